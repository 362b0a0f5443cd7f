//! Promise: what format 2.0 wrote can be read for ever. `golden/volume-2.0.blocks` is a volume of 32 MiB with
//! a file of every kind, as a program of that format left it without closing it. The tests read it as it is,
//! then go on using it, change it and empty it; [`wanted`] lists its names, attributes and contents.
//!
//! The image is never made again: a program that cannot read it reads another format. It was made by `cargo
//! test -p yore-fs --test all golden::make_the_image -- --ignored`, which needs an empty file there. The
//! times that [`wanted`] does not set, and whatever else depends on the moment of making, are in the image as
//! they were.

pub mod blocks;
pub mod event;
pub mod seen;

use blocks::{pack, unpack};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use yore_device::{Device, MemoryDevice};
use yore_fs::{
    Attr, Caller, Engine, Error, FallocateMode, FileKind, InodeNo, MkfsOptions, MountOptions, Policy, SeekTo,
    SetAttr, SetTime, SetXattrMode, Timestamp, View, Volume, WriteMode,
};

const IMAGE: &[u8] = include_bytes!("golden/volume-2.0.blocks");
const BLOCK: usize = 4096;
const BLOCKS: u64 = (32 << 20) / BLOCK as u64;
const UUID: [u8; 16] = *b"the golden image";
const LABEL: &str = "Yore 2.0";
/// The content of the file without a name.
const ORPHAN: &[u8] = b"held, and gone";

/// What a name of the volume leads to.
struct Wanted {
    path: Vec<u8>,
    kind: FileKind,
    permissions: u32,
    owner: (u32, u32),
    links: u32,
    rdev: u32,
    /// Bytes; for a directory the number of its entries.
    size: u64,
    /// Blocks on the medium: data, tree nodes, attributes.
    blocks: u64,
    /// Where bytes were written, and how many; all others are zero.
    written: Vec<(u64, usize)>,
    /// Space that was allocated in addition.
    allocated: Vec<(u64, u64)>,
    /// Where a symbolic link leads.
    target: Vec<u8>,
    xattrs: Vec<(&'static str, Vec<u8>)>,
    /// Last access and change, where they were set.
    times: Option<(Timestamp, Timestamp)>,
    /// An earlier name of the same file.
    same_as: Option<&'static str>,
}

impl Wanted {
    fn new(path: impl AsRef<[u8]>, kind: FileKind, permissions: u32) -> Wanted {
        Wanted {
            path: path.as_ref().to_vec(),
            kind,
            permissions,
            owner: (0, 0),
            links: 1,
            rdev: 0,
            size: 0,
            blocks: 0,
            written: Vec::new(),
            allocated: Vec::new(),
            target: Vec::new(),
            xattrs: Vec::new(),
            times: None,
            same_as: None,
        }
    }

    fn directory(path: impl AsRef<[u8]>, permissions: u32, directories: u32, entries: u64) -> Wanted {
        let new = Wanted::new(path, FileKind::Directory, permissions);
        Wanted { links: 2 + directories, size: entries, ..new }
    }

    fn file(path: impl AsRef<[u8]>, size: u64, blocks: u64, written: &[(u64, usize)]) -> Wanted {
        let new = Wanted::new(path, FileKind::Regular, 0o644);
        Wanted { size, blocks, written: written.to_vec(), ..new }
    }

    fn link(path: &str, target: &[u8], blocks: u64) -> Wanted {
        let new = Wanted::new(path, FileKind::Symlink, 0o777);
        Wanted { target: target.to_vec(), size: target.len() as u64, blocks, ..new }
    }

    /// The bytes that were written at an offset; they are never zero.
    fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let name = self.same_as.map_or(&self.path[..], str::as_bytes);
        (offset..offset + len as u64)
            .map(|i| 1 + ((i * 7 + i / 251 + name.len() as u64) % 255) as u8)
            .collect()
    }
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

/// Owner 6, user 1000: 7, group 4, mask 6, others 0.
fn named_acl() -> Vec<u8> {
    acl(&[(1, 6, u32::MAX), (2, 7, 1000), (4, 4, u32::MAX), (0x10, 6, u32::MAX), (0x20, 0, u32::MAX)])
}

/// All names of the volume, in the order in which they were made.
fn wanted() -> Vec<Wanted> {
    let mut all = vec![Wanted { blocks: 1, ..Wanted::directory("", 0o755, 5, 31) }];
    all.extend(regular_files());
    all.extend([
        Wanted { rdev: 0x0103, ..Wanted::new("char", FileKind::CharDevice, 0o666) },
        Wanted { rdev: 0x1234_5678, ..Wanted::new("block", FileKind::BlockDevice, 0o660) },
        Wanted::new("pipe", FileKind::Fifo, 0o600),
        Wanted::new("socket", FileKind::Socket, 0o755),
        Wanted::link("short link", b"plain", 0),
        Wanted::link("longest link within the inode", &[b'x'; 108], 0),
        Wanted::link("long link", &b"../over/and/over/".repeat(180), 1),
        Wanted { blocks: 1, ..Wanted::directory("few", 0o750, 0, 2) },
        Wanted::file(b"few/\xff\xfe not text \x01", 3, 0, &[(0, 3)]),
        Wanted::file(format!("few/{}", "n".repeat(255)), 0, 0, &[]),
        Wanted::directory("deep", 0o755, 1, 1),
        Wanted::directory("deep/er", 0o755, 1, 1),
        Wanted::directory("deep/er/est", 0o755, 0, 1),
        Wanted::file("deep/er/est/bottom", 1, 0, &[(0, 1)]),
        Wanted { owner: (7, 100), ..Wanted::directory("group", 0o2775, 0, 1) },
        // It inherits the group, and nothing else.
        Wanted { owner: (0, 100), ..Wanted::file("group/member", 0, 0, &[]) },
        Wanted {
            xattrs: vec![("system.posix_acl_default", named_acl())],
            blocks: 1,
            ..Wanted::directory("inherits", 0o1777, 0, 1)
        },
        Wanted {
            permissions: 0o660,
            blocks: 1,
            xattrs: vec![("system.posix_acl_access", named_acl())],
            ..Wanted::file("inherits/heir", 0, 0, &[])
        },
    ]);
    // A directory whose tree has two levels, with one file.
    all.push(Wanted { blocks: 3, ..Wanted::directory("many", 0o755, 0, 24) });
    for i in 0..24 {
        let path = format!("many/{i:02}{}", "-long".repeat(45));
        all.push(Wanted { path: path.into_bytes(), same_as: Some("linked"), ..linked() });
    }
    all.push(Wanted::file("in the log", 5000, 2, &[(0, 5000)]));
    all
}

fn linked() -> Wanted {
    Wanted { links: 25, ..Wanted::file("linked", 200, 1, &[(0, 200)]) }
}

fn regular_files() -> Vec<Wanted> {
    let block = BLOCK as u64;
    let time = |seconds, nanos| Timestamp { seconds, nanos };
    let apart = |n: u64, distance: u64| (0..n).map(move |i| (i * distance * block, 20)).collect::<Vec<_>>();
    vec![
        Wanted { owner: (u32::MAX - 1, 65_534), permissions: 0, ..Wanted::file("empty", 0, 0, &[]) },
        Wanted {
            times: Some((time(-86_401, 1), time(4_102_444_800, 999_999_999))),
            ..Wanted::file("plain", 11, 0, &[(0, 11)])
        },
        Wanted::file("fills the inode", 108, 0, &[(0, 108)]),
        Wanted::file("one more than the inode has", 109, 1, &[(0, 109)]),
        Wanted::file("three blocks", 2 * block + 17, 3, &[(0, 2 * BLOCK + 17)]),
        Wanted { permissions: 0o6755, owner: (1000, 100), ..Wanted::file("set-id", 4, 0, &[(0, 4)]) },
        // Up to four extents are in the inode.
        Wanted::file("four extents", 6 * block + 20, 4, &apart(4, 2)),
        Wanted::file("a tree of one leaf", 16 * block + 20, 9 + 1, &apart(9, 2)),
        Wanted {
            allocated: (1..130).map(|i| (2 * i * block, block)).collect(),
            ..Wanted::file("a tree of two levels", 259 * block, 130 + 3, &[(0, 20), (150 * block + 9, 9)])
        },
        Wanted { allocated: vec![(0, 16 * block)], ..Wanted::file("unwritten", 16 * block, 16, &[]) },
        Wanted {
            allocated: vec![(0, 16 * block)],
            ..Wanted::file("partly written", 16 * block, 16, &[(3 * block + 5, 2 * BLOCK)])
        },
        Wanted { allocated: vec![(0, 8 * block)], ..Wanted::file("allocated beyond", 5, 8, &[(0, 5)]) },
        Wanted::file("sparse", (5 << 40) + 1, 2, &[(3 << 30, 1), (5 << 40, 1)]),
        Wanted::file("only a size", 12_345_678, 0, &[]),
        linked(),
        Wanted {
            blocks: 1,
            xattrs: vec![("user.one", b"1".to_vec()), ("trusted.empty", Vec::new())],
            ..Wanted::file("attributes", 0, 0, &[])
        },
        Wanted {
            blocks: 4,
            xattrs: vec![("security.long", b"0123456789".repeat(900)), ("user.\u{e9}", vec![0; 300])],
            ..Wanted::file("long attributes", 0, 0, &[])
        },
        Wanted {
            permissions: 0o660,
            blocks: 1,
            xattrs: vec![("system.posix_acl_access", named_acl())],
            ..Wanted::file("access list", 0, 0, &[])
        },
    ]
}

// ---- making it ----

fn options() -> MountOptions {
    // One generation, which the one sync writes.
    let commit_interval = Duration::from_secs(3600);
    MountOptions { commit_interval, access_times: false, ..MountOptions::default() }
}

fn mkfs() -> MkfsOptions {
    MkfsOptions {
        uuid: UUID,
        hash_seed: *b"seed of 16 bytes",
        label: LABEL.into(),
        engine: Engine::Snapshot,
        owner: (0, 0),
        permissions: 0o755,
        log_size: None,
        policy: Policy::default(),
        journal: None,
        data_checksums: false,
        force: false,
    }
}

/// The volume as a crash leaves it after a sync. It has a file that was open and had no name, and one that
/// was synced afterwards and is only in the log.
fn make() -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(BLOCKS * BLOCK as u64));
    let shared: Arc<dyn Device> = device.clone();
    View::mkfs(&shared, &mkfs()).unwrap();
    let view = View::open(shared, &options()).unwrap();
    let caller = Caller { umask: 0, ..Caller::superuser() };
    let orphan = view.create(&caller, view.root(), b"orphan", FileKind::Regular, 0o644, 0).unwrap();
    let all = wanted();
    let (logged, all) = all[1..].split_last().unwrap();
    for wanted in all {
        put(&view, &caller, wanted);
    }
    write(&view, orphan.inode(), 0, ORPHAN);
    write(&view, orphan.inode(), 1 << 20, ORPHAN);
    view.unlink(view.root(), b"orphan").unwrap();
    view.sync().unwrap();
    put(&view, &caller, logged);
    view.fsync(find(&view, &logged.path), false).unwrap();
    let left = device.snapshot();
    drop(orphan);
    view.close().unwrap();
    left
}

fn write(view: &View, no: InodeNo, offset: u64, bytes: &[u8]) {
    let mode = WriteMode { append: false, kill_set_id: false };
    view.write(no, offset, bytes, mode).unwrap();
}

fn put(view: &View, caller: &Caller, wanted: &Wanted) {
    let (parent, name) = match wanted.path.iter().rposition(|b| *b == b'/') {
        Some(at) => (find(view, &wanted.path[..at]), &wanted.path[at + 1..]),
        None => (view.root(), &wanted.path[..]),
    };
    if let Some(other) = wanted.same_as {
        view.link(find(view, other.as_bytes()), parent, name).unwrap();
        return;
    }
    let node = match wanted.kind {
        FileKind::Directory => view.mkdir(caller, parent, name, wanted.permissions),
        FileKind::Symlink => view.symlink(caller, parent, name, &wanted.target),
        kind => view.create(caller, parent, name, kind, wanted.permissions, wanted.rdev),
    };
    let no = node.unwrap().inode();
    for (offset, len) in &wanted.allocated {
        view.fallocate(no, *offset, *len, FallocateMode::Allocate { keep_size: true }).unwrap();
    }
    for (offset, len) in &wanted.written {
        write(view, no, *offset, &wanted.bytes(*offset, *len));
    }
    for (name, value) in &wanted.xattrs {
        view.setxattr(no, name.as_bytes(), value, SetXattrMode::Any).unwrap();
    }
    let mut set = SetAttr::default();
    // Setting the size that it has would free what is allocated beyond.
    if wanted.kind == FileKind::Regular && view.getattr(no).unwrap().size != wanted.size {
        set.size = Some(wanted.size);
    }
    if wanted.owner != (0, 0) {
        (set.uid, set.gid) = (Some(wanted.owner.0), Some(wanted.owner.1));
        set.permissions = Some(wanted.permissions);
    }
    if let Some((accessed, changed)) = wanted.times {
        (set.atime, set.mtime) = (Some(SetTime::To(accessed)), Some(SetTime::To(changed)));
    }
    view.setattr(caller, no, &set).unwrap();
}

#[test]
#[ignore = "makes the image where there is none"]
fn make_the_image() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/volume-2.0.blocks");
    assert!(IMAGE.is_empty(), "{} is there; it is never made anew", path.display());
    std::fs::write(path, pack(&make())).unwrap();
}

// ---- reading it ----

fn find(view: &View, path: &[u8]) -> InodeNo {
    let names = path.split(|b| *b == b'/').filter(|name| !name.is_empty());
    names.fold(view.root(), |at, name| view.lookup(at, name).unwrap().inode())
}

fn list(view: &View, path: &[u8], found: &mut BTreeSet<Vec<u8>>) {
    let mut names = Vec::new();
    view.readdir(find(view, path), 0, &mut |item| {
        if item.name != b"." && item.name != b".." {
            names.push((item.name.to_vec(), item.kind));
        }
        true
    })
    .unwrap();
    for (name, kind) in names {
        let path = if path.is_empty() { name } else { [path, b"/", &name].concat() };
        if kind == FileKind::Directory {
            list(view, &path, found);
        }
        assert!(found.insert(path), "a name is listed twice");
    }
}

/// Checks that everything is as it was made, and that there is nothing else.
fn compare(view: &View) {
    let all = wanted();
    let mut found = BTreeSet::from([Vec::new()]);
    list(view, b"", &mut found);
    assert_eq!(found, all.iter().map(|w| w.path.clone()).collect());
    let mut numbers = BTreeMap::new();
    for wanted in &all {
        let no = find(view, &wanted.path);
        let name = String::from_utf8_lossy(&wanted.path);
        compare_attributes(&view.getattr(no).unwrap(), wanted, &name);
        let mut xattrs: Vec<Vec<u8>> =
            wanted.xattrs.iter().map(|(name, _)| name.as_bytes().to_vec()).collect();
        let mut listed = view.listxattr(no).unwrap();
        xattrs.sort();
        listed.sort();
        assert_eq!(listed, xattrs, "{name}");
        for (attribute, value) in &wanted.xattrs {
            assert_eq!(view.getxattr(no, attribute.as_bytes()).unwrap(), *value, "{name}: {attribute}");
        }
        match wanted.kind {
            FileKind::Regular => compare_content(view, no, wanted, &name),
            FileKind::Symlink => assert_eq!(view.readlink(no).unwrap(), wanted.target, "{name}"),
            _ => (),
        }
        let first = wanted.same_as.map_or(wanted.path.clone(), |path| path.as_bytes().to_vec());
        assert_eq!(*numbers.entry(first).or_insert(no), no, "{name} is another file");
    }
    let distinct: BTreeSet<InodeNo> = numbers.values().copied().collect();
    assert_eq!(distinct.len(), numbers.len(), "two files are one");
}

fn compare_attributes(attr: &Attr, wanted: &Wanted, name: &str) {
    let found = (attr.kind, attr.permissions, (attr.uid, attr.gid), attr.links, attr.rdev, attr.size);
    let Wanted { kind, permissions, owner, links, rdev, size, .. } = *wanted;
    assert_eq!(found, (kind, permissions, owner, links, rdev, size), "{name}");
    assert_eq!(attr.blocks_512, wanted.blocks * 8, "{name}");
    if let Some(times) = wanted.times {
        assert_eq!((attr.atime, attr.mtime), times, "{name}");
    }
}

fn compare_content(view: &View, no: InodeNo, wanted: &Wanted, name: &str) {
    let read = |offset: u64, len: usize| {
        let mut buf = vec![0xee; len];
        let n = view.read(no, offset, &mut buf).unwrap();
        buf.truncate(n);
        buf
    };
    let block = BLOCK as u64;
    let mut data: Vec<(u64, u64)> = Vec::new();
    for (offset, len) in &wanted.written {
        assert!(read(*offset, *len) == wanted.bytes(*offset, *len), "{name} at {offset}");
        let end = (offset + *len as u64).next_multiple_of(block).min(wanted.size);
        data.push((offset / block * block, end));
    }
    if wanted.size <= 4 << 20 {
        let mut content = vec![0; wanted.size as usize];
        for (offset, len) in &wanted.written {
            content[*offset as usize..*offset as usize + len].copy_from_slice(&wanted.bytes(*offset, *len));
        }
        assert!(read(0, content.len() + 1) == content, "{name}: its content");
    }
    assert!(read(wanted.size, 1).is_empty(), "{name}: its end");
    let (mut found, mut at) = (Vec::new(), 0);
    loop {
        let from = match view.seek(no, at, SeekTo::Data) {
            Err(Error::NoDataThere) => break,
            other => other.unwrap(),
        };
        at = view.seek(no, from, SeekTo::Hole).unwrap();
        found.push((from, at));
    }
    assert_eq!(found, data, "{name}: where its data is");
}

/// The orphan is the only inode that has no name.
fn orphan(view: &View) -> Option<InodeNo> {
    let mut named = BTreeSet::new();
    named.extend(wanted().iter().map(|w| find(view, &w.path)));
    let first = view.root().0;
    let mut all = (first..first + 16 * 64).map(InodeNo).filter(|no| !named.contains(no));
    all.find(|no| view.getattr(*no).is_ok())
}

/// Opens the image without changing it.
#[test]
fn the_image_is_read() {
    let device = unpack(IMAGE);
    let before = device.snapshot();
    let device = Arc::new(device);
    let view =
        View::open(device.clone(), &MountOptions { read_only: true, ..MountOptions::default() }).unwrap();
    let info = view.info();
    assert_eq!(
        (info.uuid, &info.label[..], info.engine, info.size),
        (UUID, LABEL, Engine::Snapshot, 32 << 20)
    );
    assert_eq!(info.format.0, 2, "what a program of this format can use");
    compare(&view);
    let orphan = orphan(&view).expect("a file without a name is kept");
    assert_eq!(view.getattr(orphan).unwrap().links, 0);
    let mut content = vec![0; ORPHAN.len()];
    view.read(orphan, 1 << 20, &mut content).unwrap();
    assert_eq!(content, ORPHAN);
    assert!(matches!(view.unlink(view.root(), b"plain"), Err(Error::ReadOnly)));
    view.close().unwrap();
    assert_eq!(device.first_difference(&before), None, "reading changed the volume");
}

/// Goes on using a copy of the image: the orphan goes, and the rest stays, even after a change and another
/// opening.
#[test]
fn the_image_is_taken_on() {
    let device = Arc::new(unpack(IMAGE));
    let view = View::open(device.clone(), &options()).unwrap();
    compare(&view);
    assert_eq!(orphan(&view), None);
    view.close().unwrap();
    let volume = Volume::open(device.clone(), &options()).unwrap();
    compare(volume.view());
    let before = volume.view().info().free_blocks;
    for path in ["plain", "a tree of two levels", "many/new", "deep/er/new"] {
        volume.append(path, vec![9; 3 * BLOCK]).unwrap();
    }
    volume.close().unwrap();
    let volume = Volume::open(device.clone(), &options()).unwrap();
    assert!(volume.view().info().free_blocks < before);
    for (path, was) in
        [("plain", 11), ("a tree of two levels", 259 * BLOCK), ("many/new", 0), ("deep/er/new", 0)]
    {
        let content = volume.read(path).unwrap();
        assert_eq!((content.len(), &content[was..]), (was + 3 * BLOCK, &[9; 3 * BLOCK][..]), "{path}");
    }
    empty(&volume);
    volume.close().unwrap();
    let volume = Volume::open(device, &options()).unwrap();
    assert_eq!(volume.read_dir("/").unwrap().count(), 0);
    assert_eq!(volume.view().info().free_blocks, free_blocks_when_empty(), "all space is free again");
}

/// Removes everything.
fn empty(volume: &Volume) {
    let mut names = BTreeSet::new();
    list(volume.view(), b"", &mut names);
    for name in names.iter().rev() {
        let view = volume.view();
        let (parent, name) = match name.iter().rposition(|b| *b == b'/') {
            Some(at) => (find(view, &name[..at]), &name[at + 1..]),
            None => (view.root(), &name[..]),
        };
        match view.unlink(parent, name) {
            Err(Error::IsADirectory) => view.rmdir(parent, name).unwrap(),
            other => other.unwrap(),
        }
    }
}

/// The free blocks of a volume of this size without files.
fn free_blocks_when_empty() -> u64 {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(BLOCKS * BLOCK as u64));
    View::mkfs(&device, &mkfs()).unwrap().free_blocks
}

/// The code that makes the image still makes a volume with the same files: the list above is the same for
/// both.
#[test]
fn a_volume_made_today_has_the_same_files() {
    let view = View::open(Arc::new(make()), &options()).unwrap();
    compare(&view);
    view.close().unwrap();
}
