//! Metadata that lies apart is laid together by itself, when nobody asks for anything, and then the volume is
//! left alone.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use yore_device::{Device, MemoryDevice, SimulatedDevice};
use yore_fs::{Caller, FileKind, MetadataLaid, MkfsOptions, MountOptions, View};

fn options(after: Option<Duration>) -> MountOptions {
    MountOptions {
        commit_interval: Duration::from_millis(50),
        defragment_after: after,
        access_times: false,
        ..MountOptions::default()
    }
}

/// A volume that has lost most of its files: what is left of its inodes lies far apart.
fn lying_apart(after: Option<Duration>) -> (Arc<SimulatedDevice>, View) {
    let device = Arc::new(SimulatedDevice::new(MemoryDevice::new(64 << 20)));
    let as_device: Arc<dyn Device> = device.clone();
    View::mkfs(&as_device, &MkfsOptions::default()).unwrap();
    let view = View::open(as_device, &options(after)).unwrap();
    let (caller, root) = (Caller::superuser(), view.root());
    for i in 0..8000 {
        view.create(&caller, root, format!("{i}").as_bytes(), FileKind::Regular, 0o644, 0).unwrap();
    }
    view.sync().unwrap();
    for i in (0..8000).filter(|i| i / 160 % 8 != 7) {
        view.unlink(root, format!("{i}").as_bytes()).unwrap();
    }
    view.sync().unwrap();
    (device, view)
}

fn lay(view: &View) -> MetadataLaid {
    view.lay_metadata_together(&mut || ControlFlow::Continue(())).unwrap()
}

/// How much the writes of a device have come to when it has rested for so long.
fn rest(device: &SimulatedDevice, pause: Duration) -> usize {
    let mut entries = device.entries();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < deadline, "the device has not rested for a minute");
        std::thread::sleep(pause);
        let now = device.entries();
        if std::mem::replace(&mut entries, now) == now {
            return now;
        }
    }
}

/// As long as somebody asks for something nothing is laid together. Later it is, without anybody asking, and
/// after that nothing is written any more.
#[test]
fn an_idle_volume_lays_its_metadata_together() {
    let after = Duration::from_secs(2);
    let (device, view) = lying_apart(Some(after));
    let busy_until = Instant::now() + Duration::from_secs(6);
    while Instant::now() < busy_until {
        assert!(view.lookup(view.root(), b"7").is_err());
        std::thread::sleep(Duration::from_millis(20));
    }
    let copy: Arc<dyn Device> = Arc::new(device.snapshot());
    let copy = View::open(copy, &options(None)).unwrap();
    assert!(lay(&copy).zones >= 1, "it was done beside requests");
    copy.close().unwrap();
    let busy = device.entries();
    // The housekeeping looks every five seconds.
    let deadline = Instant::now() + Duration::from_secs(60);
    while device.entries() == busy {
        assert!(Instant::now() < deadline, "nothing was laid together");
        std::thread::sleep(Duration::from_millis(100));
    }
    let settled = rest(&device, Duration::from_secs(6));
    assert!(settled > busy);
    assert_eq!(lay(&view), MetadataLaid::default(), "something was left");
    assert_eq!(rest(&device, Duration::from_secs(1)), device.entries());
    view.close().unwrap();
}

/// Without `defragment_after` nothing is laid together by itself, and a call does it.
#[test]
fn it_is_done_when_it_is_asked_for() {
    let (device, view) = lying_apart(None);
    let before = rest(&device, Duration::from_millis(500));
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(device.entries(), before);
    assert_eq!(view.lay_metadata_together(&mut || ControlFlow::Break(())).unwrap(), MetadataLaid::default());
    let shadow = view.shadow(1 << 20).unwrap();
    let refused = view.lay_metadata_together(&mut || ControlFlow::Continue(())).unwrap_err();
    assert!(refused.to_string().contains("checked"), "{refused}");
    drop(shadow);
    let laid = lay(&view);
    assert!(laid.zones >= 1 && laid.blocks >= 20, "{laid:?}");
    assert_eq!(lay(&view), MetadataLaid::default());
    view.close().unwrap();
}
