//! A check of a volume in use relies on this: what a shadow needs is saved before it is written over. Without
//! that, checks find what never was.
use std::ops::ControlFlow;
use std::sync::Arc;
use yore_check::{check, CheckOptions};
use yore_device::MemoryDevice;
use yore_format::VolumeState;
use yore_fs::mutation::{set, Mutation};
use yore_fs::{Engine, MkfsOptions, MountOptions, Volume};
use yore_online::{recount, OnlineError, OnlineOptions};

/// Whether a check of a shadow finds anything, cannot be made, or counts other files than there were when the
/// shadow began, after more was written. (Under `journal` the medium with its log is sound at every moment.)
fn is_found(engine: Engine) -> bool {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    Volume::create(device.clone(), &MkfsOptions::default()).unwrap().close().unwrap();
    let options = MountOptions { engine: Some(engine), ..MountOptions::default() };
    let volume = Volume::open(device, &options).unwrap();
    for i in 0..300 {
        volume.write(format!("{i}"), [1; 10]).unwrap();
    }
    let shadow = volume.view().shadow(1 << 20).unwrap();
    for i in 0..300 {
        match i % 3 {
            0 => volume.remove_file(format!("{i}")).unwrap(),
            _ => volume.write(format!("new {i}"), [2; 9000]).unwrap(),
        }
        if i % 30 == 0 {
            volume.sync().unwrap();
        }
    }
    let is_right = |report: yore_check::Report| report.is_clean() && report.counts.inodes == 301;
    let is_found = !check(&shadow, &CheckOptions::default()).is_ok_and(is_right);
    drop(shadow);
    volume.close().unwrap();
    is_found
}

/// Whether a volume with leaks says that it has none, when the recount of them was broken off and the volume
/// closed.
fn leaks_are_denied() -> bool {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    Volume::create(device.clone(), &MkfsOptions::default()).unwrap().close().unwrap();
    let options = MountOptions { engine: Some(Engine::SoftUpdates), ..MountOptions::default() };
    let volume = Volume::open(device.clone(), &options).unwrap();
    volume.write("file", [1; 10_000]).unwrap();
    volume.sync().unwrap();
    // The power fails.
    let device = Arc::new(device.snapshot());
    drop(volume);
    let volume = Volume::open(device.clone(), &options).unwrap();
    let view = volume.view();
    // As if the crash had left it.
    view.correct_totals(5, 0, 0).unwrap();
    let recounted = recount(view, &OnlineOptions::default(), &mut |_| ControlFlow::Break(()));
    assert!(matches!(recounted, Err(OnlineError::BrokenOff)), "{recounted:?}");
    volume.close().unwrap();
    let report = check(&*device, &CheckOptions::default()).unwrap();
    assert!(!report.is_clean());
    report.state == VolumeState::Clean
}

/// W1, and that a volume says that no leaks are pending only behind a check that has found none. In one test,
/// because a mutation is for the whole process.
#[test]
fn saving_behind_the_write_is_found() {
    assert!(!leaks_are_denied());
    set(Mutation::LeaksDeniedEarly);
    let denied = leaks_are_denied();
    set(Mutation::None);
    assert!(denied, "leaks are denied before they are repaired, and nobody sees it");
    for engine in [Engine::Snapshot, Engine::Journal, Engine::None] {
        assert!(!is_found(engine), "{engine:?}: without a mutation nothing is found");
        set(Mutation::SavedBehindWrite);
        let found = is_found(engine);
        set(Mutation::None);
        assert!(found, "{engine:?}: W1 is broken, and nothing is found");
    }
}
