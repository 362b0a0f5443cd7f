//! Promises for inodes that lose their last name while a server has look-ups of them: they stay usable until
//! the last look-up is forgotten; from then on they are gone for everybody; and they are freed, whether the
//! volume is counted, closed, or opened after a crash.

use std::sync::Arc;
use yore_device::{Device, MemoryDevice};
use yore_fs::{Attr, Caller, Error, FileKind, MkfsOptions, MountOptions, View, WriteMode};

/// More than one batch of inodes that are freed together, and some more.
const FILES: usize = 200;

const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0o022, keeps_set_id: true };

fn volume() -> (Arc<MemoryDevice>, View) {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let any: Arc<dyn Device> = device.clone();
    View::mkfs(&any, &MkfsOptions::default()).unwrap();
    (device, View::open(any, &MountOptions::default()).unwrap())
}

fn name(i: usize) -> Vec<u8> {
    format!("file {i}").into_bytes()
}

/// Files with a lookup count, every third with delayed data, every fifth with content in the inode.
fn create_held(view: &View) -> Vec<Attr> {
    let create = |i: usize| {
        let node = view.create(&CALLER, view.root(), &name(i), FileKind::Regular, 0o644, 0).unwrap();
        let attr = node.into_counted();
        let len = if i.is_multiple_of(3) {
            9000
        } else if i.is_multiple_of(5) {
            50
        } else {
            0
        };
        if len > 0 {
            let mode = WriteMode { append: false, kill_set_id: false };
            view.write(attr.inode, 0, &vec![b'x'; len], mode).unwrap();
        }
        attr
    };
    (0..FILES).map(create).collect()
}

/// Promises that a file with a lookup count can be used without a name, and that once its count is zero it is
/// stale at once and no longer counted.
#[test]
fn let_go_of_is_gone() {
    let (device, view) = volume();
    let before = view.info().inodes;
    let held = create_held(&view);
    assert_eq!(view.info().inodes, before + FILES as u64);
    for (i, attr) in held.iter().enumerate() {
        view.unlink(view.root(), &name(i)).unwrap();
        assert_eq!(view.getattr(attr.inode).unwrap().links, 0);
        if i % 2 == 0 {
            view.forget_lookups(attr.inode, 1);
            assert!(matches!(view.getattr(attr.inode), Err(Error::Stale)), "file {i}");
            assert!(matches!(view.node(attr.inode, None), Err(Error::Stale)), "file {i}");
        }
    }
    assert_eq!(view.info().inodes, before + FILES as u64 / 2);
    for attr in held.iter().skip(1).step_by(2) {
        view.forget_lookups(attr.inode, 1);
    }
    assert_eq!(view.statfs().inodes_free, view.statfs().inodes - before);
    // Their numbers are free again.
    let again = create_held(&view);
    assert_eq!(again.len(), FILES);
    view.close().unwrap();
    let view = View::open(Arc::new(device.snapshot()), &MountOptions::default()).unwrap();
    assert_eq!(view.info().inodes, before + FILES as u64);
}

/// Promises that a mount after a crash frees what was set aside and what still had a lookup count, from the
/// log as well as from a generation.
#[test]
fn a_crash_frees_them() {
    for sync in [false, true] {
        let (device, view) = volume();
        let before = view.info().inodes;
        let held = create_held(&view);
        view.sync().unwrap();
        for (i, attr) in held.iter().enumerate() {
            view.unlink(view.root(), &name(i)).unwrap();
            if i % 2 == 0 {
                view.forget_lookups(attr.inode, 1);
            }
        }
        if sync {
            view.sync().unwrap();
        } else {
            view.fsync(view.root(), false).unwrap();
        }
        let found = View::open(Arc::new(device.snapshot()), &MountOptions::default()).unwrap();
        assert_eq!(found.info().inodes, before, "after sync: {sync}");
        found.close().unwrap();
    }
}
