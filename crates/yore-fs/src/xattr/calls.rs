//! Attributes through the calls of a view, on a volume that is closed and opened again.

use crate::{
    Caller, Engine, Error, FileKind, InodeNo, MkfsOptions, MountOptions, Policy, SetAttr, SetXattrMode, View,
};
use std::sync::Arc;
use yore_device::{Device, MemoryDevice};

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";
const NO_ID: u32 = u32::MAX;

fn volume() -> (Arc<dyn Device>, View) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    let options = MkfsOptions {
        uuid: [7; 16],
        hash_seed: [9; 16],
        label: String::new(),
        engine: Engine::Snapshot,
        owner: (0, 0),
        permissions: 0o755,
        log_size: None,
        policy: Policy::default(),
        journal: None,
        data_checksums: false,
        force: false,
    };
    View::mkfs(&device, &options).unwrap();
    let view = View::open(device.clone(), &MountOptions::default()).unwrap();
    (device, view)
}

/// An ACL of (tag, permissions, id) as Linux encodes it.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut out = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(&permissions.to_le_bytes());
        out.extend_from_slice(&id.to_le_bytes());
    }
    out
}

/// Owner, one named user, group, mask, others.
fn named(owner: u16, user: u16, group: u16, mask: u16, others: u16) -> Vec<u8> {
    acl(&[(1, owner, NO_ID), (2, user, 1000), (4, group, NO_ID), (0x10, mask, NO_ID), (0x20, others, NO_ID)])
}

fn file(view: &View, name: &[u8], permissions: u32) -> InodeNo {
    let caller = Caller::superuser();
    view.create(&caller, view.root(), name, FileKind::Regular, permissions, 0).unwrap().inode()
}

fn permissions(view: &View, inode: InodeNo) -> u32 {
    view.getattr(inode).unwrap().permissions
}

/// Setting the access ACL sets the mode, and chmod sets the ACL; the ACL leaves the set-id bits alone; an ACL
/// that a mode can express is not stored.
#[test]
fn access_acls_and_modes_follow_each_other() {
    let (device, view) = volume();
    let f = file(&view, b"f", 0o4640);
    assert!(matches!(view.getxattr(f, ACCESS), Err(Error::NoAttribute)));
    view.setxattr(f, ACCESS, &named(7, 6, 5, 4, 1), SetXattrMode::Any).unwrap();
    assert_eq!(permissions(&view, f), 0o4741);
    let chmod = SetAttr { permissions: Some(0o2652), ..SetAttr::default() };
    view.setattr(&Caller::superuser(), f, &chmod).unwrap();
    assert_eq!(view.getxattr(f, ACCESS).unwrap(), named(6, 6, 5, 5, 2));
    assert_eq!(permissions(&view, f), 0o2652);
    view.close().unwrap();
    let view = View::open(device, &MountOptions::default()).unwrap();
    assert_eq!(view.getxattr(f, ACCESS).unwrap(), named(6, 6, 5, 5, 2));
    assert_eq!((permissions(&view, f), view.listxattr(f).unwrap()), (0o2652, vec![ACCESS.to_vec()]));
    let minimal = acl(&[(1, 6, NO_ID), (4, 4, NO_ID), (0x20, 4, NO_ID)]);
    view.setxattr(f, ACCESS, &minimal, SetXattrMode::Any).unwrap();
    assert!(matches!(view.getxattr(f, ACCESS), Err(Error::NoAttribute)));
    assert_eq!((permissions(&view, f), view.getattr(f).unwrap().blocks_512), (0o2644, 0));
    view.removexattr(f, ACCESS).unwrap();
    let refused = view.setxattr(f, ACCESS, b"nonsense", SetXattrMode::Any);
    assert!(matches!(refused, Err(Error::Unsupported { .. })));
}

/// Files made in a directory with a default ACL have it, whatever the umask; directories hand it on.
#[test]
fn default_acls_are_inherited() {
    let (_device, view) = volume();
    let caller = Caller { umask: 0o077, ..Caller::superuser() };
    let d = view.mkdir(&caller, view.root(), b"d", 0o777).unwrap().inode();
    assert_eq!(permissions(&view, d), 0o700);
    view.setxattr(d, DEFAULT, &named(7, 7, 5, 7, 1), SetXattrMode::Any).unwrap();
    assert_eq!(permissions(&view, d), 0o700);
    let f = view.create(&caller, d, b"f", FileKind::Regular, 0o666, 0).unwrap().inode();
    assert_eq!(view.getxattr(f, ACCESS).unwrap(), named(6, 7, 5, 6, 0));
    assert_eq!(permissions(&view, f), 0o660);
    let sub = view.mkdir(&caller, d, b"sub", 0o777).unwrap().inode();
    assert_eq!(view.getxattr(sub, DEFAULT).unwrap(), named(7, 7, 5, 7, 1));
    assert_eq!(permissions(&view, sub), 0o771);
    let link = view.symlink(&caller, d, b"link", b"target").unwrap().inode();
    assert!(view.listxattr(link).unwrap().is_empty());
    view.removexattr(d, DEFAULT).unwrap();
    let g = view.create(&caller, d, b"g", FileKind::Regular, 0o666, 0).unwrap().inode();
    assert_eq!((permissions(&view, g), view.listxattr(g).unwrap().len()), (0o600, 0));
}

/// Which files can have which attributes, and what the modes of setting refuse.
#[test]
fn kinds_of_files_and_modes_of_setting() {
    let (_device, view) = volume();
    let f = file(&view, b"f", 0o644);
    let link = view.symlink(&Caller::superuser(), view.root(), b"l", b"f").unwrap().inode();
    let set = |inode, name: &[u8], mode| view.setxattr(inode, name, b"v", mode);
    assert!(matches!(set(link, b"user.a", SetXattrMode::Any), Err(Error::NotPermitted { .. })));
    assert!(matches!(view.getxattr(link, b"user.a"), Err(Error::NoAttribute)));
    set(link, b"trusted.a", SetXattrMode::Any).unwrap();
    let default = view.setxattr(f, DEFAULT, &named(7, 7, 7, 7, 7), SetXattrMode::Any);
    assert!(matches!(default, Err(Error::NotPermitted { .. })));
    assert!(matches!(set(f, b"user.a", SetXattrMode::Replace), Err(Error::NoAttribute)));
    set(f, b"user.a", SetXattrMode::Create).unwrap();
    assert!(matches!(set(f, b"user.a", SetXattrMode::Create), Err(Error::Exists)));
    let large = vec![1; 65_537];
    let refused = view.setxattr(f, b"user.a", &large, SetXattrMode::Any);
    assert!(matches!(refused, Err(Error::AttributeTooLarge)));
    assert_eq!(view.getxattr(f, b"user.a").unwrap(), b"v");
    view.removexattr(f, b"user.a").unwrap();
    assert!(matches!(view.removexattr(f, b"user.a"), Err(Error::NoAttribute)));
}

/// The largest values replace each other, also on a volume with room for few of them; deleting the file frees
/// all.
#[test]
fn largest_values_come_and_go() {
    let (device, view) = volume();
    let before = view.info().metadata_blocks;
    let f = file(&view, b"f", 0o644);
    for round in 0..60u8 {
        for name in [&b"user.one"[..], b"user.two", b"user.three"] {
            view.setxattr(f, name, &vec![round; 65_536], SetXattrMode::Any).unwrap();
        }
    }
    view.close().unwrap();
    let view = View::open(device, &MountOptions::default()).unwrap();
    for name in [&b"user.one"[..], b"user.two", b"user.three"] {
        assert_eq!(view.getxattr(f, name).unwrap(), vec![59; 65_536]);
    }
    assert!(view.getattr(f).unwrap().blocks_512 >= 8 * 3 * 22);
    view.unlink(view.root(), b"f").unwrap();
    assert_eq!(view.info().metadata_blocks, before);
}
