//! The flags that people give to files, in the library: what a rollback does with them, and what the past
//! shows.

use std::ops::ControlFlow;
use std::sync::Arc;
use yore_device::{Device, MemoryDevice};
use yore_fs::rollback::{Plan, Rights, Verb};
use yore_fs::{
    Error, EventNo, InodeFlags, InodeNo, MkfsOptions, MountOptions, NewSnapshot, RenameMode, SetXattrMode,
    View, Volume, What,
};

fn volume() -> (Arc<dyn Device>, Volume) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    View::mkfs(&device, &MkfsOptions::default()).unwrap();
    (device.clone(), Volume::open(device, &MountOptions::default()).unwrap())
}

fn inode(volume: &Volume, path: &str) -> InodeNo {
    volume.node(path).unwrap().inode()
}

fn set(volume: &Volume, path: &str, flags: InodeFlags) {
    volume.view().set_flags(inode(volume, path), flags).unwrap();
}

fn flags(volume: &Volume, path: &str) -> InodeFlags {
    volume.view().getattr(inode(volume, path)).unwrap().flags
}

fn event(volume: &Volume, path: &str) -> EventNo {
    volume.view().take_snapshot(inode(volume, path), &NewSnapshot::default()).unwrap().number
}

fn back(volume: &Volume, rights: &Rights, target: EventNo) -> yore_fs::Result<String> {
    let plan = Plan { verb: Verb::Rollback, of: None, target, others: None };
    volume.view().rollback(rights, inode(volume, "d"), &plan, &mut |_| ()).map(|done| done.name)
}

/// Flags are there when the volume is opened again, and still protect. Only flags that people choose are
/// accepted; other changes of the attributes of an immutable file are refused.
#[test]
fn flags_are_kept() {
    let (device, volume) = volume();
    volume.write("file", "content").unwrap();
    let all = InodeFlags::CHOSEN;
    set(&volume, "file", all);
    assert!(matches!(
        volume.view().set_flags(inode(&volume, "file"), all - InodeFlags::NO_DUMP),
        Err(Error::NotPermitted { .. })
    ));
    assert!(matches!(
        volume.view().set_flags(inode(&volume, "file"), InodeFlags::CAPABILITY),
        Err(Error::Invalid { .. })
    ));
    volume.close().unwrap();
    let volume = Volume::open(device, &MountOptions::default()).unwrap();
    assert_eq!(flags(&volume, "file"), all);
    assert!(matches!(
        volume.view().setxattr(inode(&volume, "file"), b"user.a", b"", SetXattrMode::Any),
        Err(Error::NotPermitted { .. })
    ));
    let root = volume.view().root();
    let moved = volume.view().rename(root, b"file", root, b"other", RenameMode::Replace);
    assert!(matches!(moved, Err(Error::NotPermitted { .. })));
}

/// A caller that cannot take protection away wants to roll back. The rollback names what is protected before
/// it begins, and changes nothing.
#[test]
fn a_rollback_leaves_what_is_protected() {
    for protected in ["d/changed", "d/new", "d/sub", "d"] {
        for flag in [InodeFlags::IMMUTABLE, InodeFlags::APPEND_ONLY] {
            let (_, volume) = volume();
            volume.create_dir_all("d/sub").unwrap();
            volume.write("d/changed", "one").unwrap();
            volume.write("d/sub/gone", "gone").unwrap();
            let then = event(&volume, "d");
            volume.remove_file("d/sub/gone").unwrap();
            volume.write("d/changed", "two").unwrap();
            volume.write("d/new", "new").unwrap();
            set(&volume, protected, flag);
            let path = protected.strip_prefix("d/").unwrap_or(".");
            match back(&volume, &Rights::Unprotected, then) {
                Err(Error::Protected { path: found }) => assert_eq!(found, path),
                other => panic!("{protected}: {other:?}"),
            }
            assert_eq!(volume.read_to_string("d/changed").unwrap(), "two");
            assert!(volume.exists("d/new").unwrap() && !volume.exists("d/sub/gone").unwrap());
            assert_eq!(volume.view().events().unwrap().len(), 1, "nothing was begun");
            set(&volume, protected, InodeFlags::empty());
            back(&volume, &Rights::Unprotected, then).unwrap();
            assert_eq!(volume.read_to_string("d/changed").unwrap(), "one");
            assert!(volume.exists("d/sub/gone").unwrap(), "{protected}");
        }
    }
}

/// A rollback brings flags back with the other attributes, also those of files with several names and of
/// directories that were removed. Only callers that may protect files bring protection back.
#[test]
fn a_rollback_brings_flags_back() {
    let (_, volume) = volume();
    volume.create_dir_all("d/sub").unwrap();
    volume.write("d/file", "content").unwrap();
    volume.hard_link("d/file", "d/sub/second").unwrap();
    volume.write("d/plain", "plain").unwrap();
    set(&volume, "d/file", InodeFlags::IMMUTABLE);
    set(&volume, "d/sub", InodeFlags::APPEND_ONLY | InodeFlags::NO_DUMP);
    set(&volume, "d/plain", InodeFlags::NO_ACCESS_TIMES);
    let then = event(&volume, "d");
    for path in ["d/file", "d/sub", "d/plain"] {
        set(&volume, path, InodeFlags::empty());
    }
    let differs = || {
        let mut all = Vec::new();
        volume
            .view()
            .diff(inode(&volume, "d"), Some(then), None, &mut |found| {
                all.push((String::from_utf8(found.path.clone()).unwrap(), found.what));
                ControlFlow::Continue(())
            })
            .unwrap();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    };
    assert!(differs().iter().any(|(path, what)| path == "plain" && what.contains(What::METADATA)));
    volume.remove_file("d/file").unwrap();
    volume.remove_file("d/sub/second").unwrap();
    volume.remove_dir("d/sub").unwrap();
    let owner = Rights::Owner { uid: 0, groups: vec![0] };
    assert!(matches!(back(&volume, &owner, then), Err(Error::NotYours { .. })));
    back(&volume, &Rights::All, then).unwrap();
    assert_eq!(flags(&volume, "d/file"), InodeFlags::IMMUTABLE);
    assert_eq!(inode(&volume, "d/file"), inode(&volume, "d/sub/second"));
    assert_eq!(flags(&volume, "d/sub"), InodeFlags::APPEND_ONLY | InodeFlags::NO_DUMP);
    assert_eq!(flags(&volume, "d/plain"), InodeFlags::NO_ACCESS_TIMES);
}

/// Somebody made files and directories immutable that were not so then. Root could remove the flags file by
/// file before each rollback, so a rollback by root does it by itself. Afterwards everything is as it was,
/// its flags too, and a directory that the rollback only passed through keeps the flags that it has.
#[test]
fn a_rollback_of_who_may_changes_what_is_protected() {
    for flag in [InodeFlags::IMMUTABLE, InodeFlags::APPEND_ONLY, InodeFlags::CHOSEN] {
        let (device, volume) = volume();
        volume.create_dir_all("d/sub/deep").unwrap();
        for path in ["d/changed", "d/sub/renamed", "d/sub/deep/same", "d/always"] {
            volume.write(path, "one").unwrap();
        }
        set(&volume, "d/always", flag);
        let then = event(&volume, "d");
        set(&volume, "d/always", InodeFlags::empty());
        volume.write("d/changed", "two").unwrap();
        volume.rename("d/sub/renamed", "d/elsewhere").unwrap();
        volume.rename("d/always", "d/sub/always").unwrap();
        volume.write("d/sub/new", "new").unwrap();
        volume.hard_link("d/sub/new", "linked").unwrap();
        volume.create_dir("d/new").unwrap();
        let kept = ["d/sub/deep/same", "d/sub/deep"];
        let all = ["d/changed", "d/elsewhere", "d/sub/always", "d/sub/new", "d/new", "d/sub", "d"];
        for path in kept.iter().chain(&all) {
            set(&volume, path, flag);
        }
        assert!(matches!(back(&volume, &Rights::Unprotected, then), Err(Error::Protected { .. })));
        back(&volume, &Rights::All, then).unwrap();
        let what_is = |volume: &Volume| {
            assert_eq!(volume.read_to_string("d/changed").unwrap(), "one");
            assert!(volume.exists("d/sub/renamed").unwrap() && !volume.exists("d/elsewhere").unwrap());
            assert!(!volume.exists("d/sub/new").unwrap() && !volume.exists("d/new").unwrap());
            for path in ["d", "d/sub", "d/changed", "d/sub/renamed", "d/sub/deep", "d/sub/deep/same"] {
                assert_eq!(flags(volume, path), InodeFlags::empty(), "{path}");
            }
            // The flags of then; and a name that the rollback did not cover.
            assert_eq!((flags(volume, "d/always"), flags(volume, "linked")), (flag, flag));
        };
        what_is(&volume);
        assert!(volume.write("d/always", "other").is_err() && volume.write("linked", "other").is_err());
        volume.close().unwrap();
        what_is(&Volume::open(device, &MountOptions::default()).unwrap());
    }
}
