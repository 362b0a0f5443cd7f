//! The story: a rename between directories walked from its target up to the root with both directories
//! locked, child before parent. Meanwhile an rmdir held the parent and waited for the child, and both waited
//! for ever. Now a rename walks the ancestors before it locks anything.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc};
use std::time::Duration;
use yore_device::{Device, MemoryDevice};
use yore_fs::{Caller, Error, MkfsOptions, MountOptions, RenameMode, View};

#[test]
fn renames_and_rmdirs_do_not_wait_for_each_other() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(32 << 20));
    View::mkfs(&device, &MkfsOptions::default()).unwrap();
    let view = View::open(device.clone(), &MountOptions::default()).unwrap();
    let (caller, root) = (Caller::superuser(), view.root());
    let make = |parent, name: &[u8]| view.mkdir(&caller, parent, name, 0o755).unwrap().inode();
    let (x, p) = (make(root, b"x"), make(root, b"p"));
    let d = make(p, b"d");
    make(x, b"s");
    make(d, b"keeps it from being removed");
    let done = Arc::new(AtomicBool::new(false));
    let (finished, ended) = mpsc::channel();
    let (remover, stop) = (view.clone(), done.clone());
    let other = std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            // Refused, but only after both directories were locked.
            assert!(matches!(remover.rmdir(p, b"d"), Err(Error::NotEmpty)));
        }
    });
    let mover = view.clone();
    std::thread::spawn(move || {
        for _ in 0..20_000 {
            mover.rename(x, b"s", d, b"s", RenameMode::Replace).unwrap();
            mover.rename(d, b"s", x, b"s", RenameMode::Replace).unwrap();
        }
        finished.send(()).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(120)).expect("a rename and an rmdir wait for each other");
    done.store(true, Ordering::Relaxed);
    other.join().unwrap();
    view.close().unwrap();
    let report = yore_check::check(&*device, &Default::default()).unwrap();
    assert!(report.is_clean(), "{report}");
}
