//! Entries that name the directory which they are in, wrong counts of links, lists of orphans that cannot be
//! worked off, and extents that reach into one that is changed by another Op.

use super::*;
use yore_fs::{Engine, FileKind, Policy, RenameMode};

/// A volume with a directory `d`, whose only entry `x` names `d` itself and says that it is a `kind`; a
/// directory `e` with a file `f`; and the number of `d`.
fn itself(kind: FileKind) -> (MemoryDevice, InodeNo) {
    let device = Arc::new(MemoryDevice::new(SIZE));
    let options = MkfsOptions { policy: Policy::default(), ..MkfsOptions::default() };
    let volume = Volume::create(device.clone(), &options).unwrap();
    volume.create_dir_all("d/x").unwrap();
    volume.create_dir_all("e").unwrap();
    volume.write("e/f", "f").unwrap();
    volume.close().unwrap();
    let d = inode_of(&device, "d");
    plant_inode(&device, d, |inode| {
        let incarnation = inode.incarnation;
        let (cookie, entry) = inode.inline().split_at(8);
        let (entry, _) = DirEntry::decode_prefix(entry).unwrap();
        assert_eq!(entry.name, b"x");
        let mut content = cookie.to_vec();
        DirEntry { inode: d, incarnation, kind, ..entry }.encode(&mut content);
        inode.set_inline(&content);
    });
    (device.snapshot(), d)
}

/// A call that removes or renames such an entry had locked the directory, and waited for itself for ever.
#[test]
fn an_entry_that_names_its_own_directory() {
    for kind in [FileKind::Directory, FileKind::Regular] {
        let (device, d) = itself(kind);
        let volume = open(device).unwrap();
        let view = volume.view();
        let (root, e) = (view.root(), volume.node("e").unwrap().inode());
        let results = [
            view.rmdir(d, b"x"),
            view.unlink(d, b"x"),
            view.rename(d, b"x", d, b"y", RenameMode::Replace),
            view.rename(d, b"x", e, b"y", RenameMode::Replace),
            view.rename(d, b"x", root, b"y", RenameMode::NoReplace),
            view.rename(d, b"x", e, b"f", RenameMode::Exchange),
            view.rename(e, b"f", d, b"x", RenameMode::Exchange),
        ];
        for (i, result) in results.into_iter().enumerate() {
            let c = corruption(result.unwrap_err());
            let said = (c.structure, c.field, c.owner);
            assert_eq!(said, ("directory", "entry", Some(d)), "{kind:?}, {i}: {c}");
        }
        // As a file cannot replace a directory, this may be what is told.
        match view.rename(e, b"f", d, b"x", RenameMode::Replace).unwrap_err().root() {
            Error::IsADirectory if kind == FileKind::Directory => {}
            Error::Corruption(c) => assert_eq!(c.owner, Some(d)),
            other => panic!("{other}"),
        }
        assert_eq!(volume.read("e/f").unwrap(), b"f");
        volume.close().unwrap();
    }
}

/// A volume where `d` has directories `a`, `b` and `c` and a file `f`, and `e` a file `g` and an empty
/// directory `h`; the inode of a path is changed.
fn counted(engine: Engine, path: &str, change: impl FnOnce(&mut Inode)) -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(SIZE));
    let options = MkfsOptions { engine, ..MkfsOptions::default() };
    let volume = Volume::create(device.clone(), &options).unwrap();
    for path in ["d/a", "d/b", "d/c", "e/h"] {
        volume.create_dir_all(path).unwrap();
    }
    volume.write("d/f", "f").unwrap();
    volume.write("e/g", "g").unwrap();
    volume.close().unwrap();
    plant_inode(&device, inode_of(&device, path), change);
    device.snapshot()
}

/// A directory's count of links is too low. When directories in it went, the count came to nothing, and the
/// directory was gone for everybody, with all that was in it.
#[test]
fn a_directory_with_too_few_links_stays() {
    for links in [1, 2] {
        let device = Arc::new(counted(Engine::Snapshot, "d", |inode| inode.links = links));
        let volume = Volume::open(device.clone(), &MountOptions::default()).unwrap();
        volume.remove_dir("d/a").unwrap();
        volume.rename("d/b", "e/b").unwrap();
        volume.rename_with("d/c", "e/g", RenameMode::Exchange).unwrap();
        assert_eq!(volume.metadata("d").unwrap().nlink(), 2);
        assert_eq!(volume.read("d/c").unwrap(), b"g");
        volume.create_dir_all("d/i").unwrap();
        volume.rename("e/h", "d/i").unwrap();
        volume.close().unwrap();
        let volume = Volume::open(device, &MountOptions::default()).unwrap();
        assert_eq!(volume.read("d/f").unwrap(), b"f");
        assert!(volume.metadata("d/i").unwrap().is_dir());
        volume.close().unwrap();
    }
}

/// A count of links is the greatest one. What would raise it is refused, or leaves it as it is; it came to
/// nothing then, or ended the program.
#[test]
fn the_greatest_count_of_links_is_not_raised() {
    for engine in [Engine::Snapshot, Engine::SoftUpdates] {
        let volume = open(counted(engine, "d", |inode| inode.links = u32::MAX)).unwrap();
        for mode in [RenameMode::Replace, RenameMode::NoReplace] {
            let error = volume.rename_with("e/h", "d/h", mode).unwrap_err();
            assert!(matches!(error.root(), Error::TooManyLinks), "{error}");
        }
        let error = volume.rename_with("e/h", "d/f", RenameMode::Exchange).unwrap_err();
        assert!(matches!(error.root(), Error::TooManyLinks), "{error}");
        volume.rename_with("e/h", "d/a", RenameMode::Exchange).unwrap();
        assert_eq!(volume.read("d/f").unwrap(), b"f");
        volume.close().unwrap();
        let volume = open(counted(engine, "e/g", |inode| inode.links = u32::MAX)).unwrap();
        volume.rename("e/g", "d/g").unwrap();
        volume.rename_with("d/g", "d/f", RenameMode::Exchange).unwrap();
        assert_eq!(volume.metadata("d/f").unwrap().nlink(), u32::MAX);
        assert_eq!(volume.read("d/f").unwrap(), b"g");
        volume.close().unwrap();
    }
}

/// A volume with a file `a` of 300 extents, one block each, with a hole of one block behind it; and its
/// number.
fn scattered() -> (Arc<MemoryDevice>, InodeNo) {
    let device = Arc::new(MemoryDevice::new(SIZE));
    let volume = Volume::create(device.clone(), &MkfsOptions::default()).unwrap();
    let file = File::create(&volume, "a").unwrap();
    let no = file.inode();
    for k in 0..300 {
        file.write_at(&[5; BLOCK_SIZE], 2 * k * BLOCK_SIZE as u64).unwrap();
    }
    drop(file);
    volume.close().unwrap();
    (device, no)
}

/// The last of the extents that one Op removes reaches into the first of the next Op. What was left of it had
/// the key of that one, and the program ended.
#[test]
fn extents_that_overlap_between_two_ops() {
    let (device, no) = scattered();
    let (_, root) = find(&device, read_inode(&device, no).tree_root(), BlockKind::Extents);
    for last in 29..35 {
        let device = device.snapshot();
        plant(&device, NodeRef::new(&root).child(0).unwrap(), BlockKind::Extents, |block| {
            let value = ExtentValue::decode(NodeRef::new(block).value(last)).unwrap();
            NodeMut::new(block).replace(last, &ExtentValue { len: 3, ..value }.encode());
        });
        let volume = open(device).unwrap();
        let c = corruption(volume.truncate("a", 0).unwrap_err());
        assert_eq!((c.structure, c.owner), ("extent", Some(no)), "{last}: {c}");
        drop(volume.close());
    }
}

/// A crash has left a truncation half-way, so the file is in the list of orphans with its name. The mount
/// cannot free the rest, which is damaged. The file could not be removed then, and not be truncated: it could
/// not be listed a second time.
#[test]
fn a_truncation_that_a_mount_cannot_finish() {
    let (device, no) = scattered();
    let (_, root) = find(&device, read_inode(&device, no).tree_root(), BlockKind::Extents);
    let (_, leaf) = find(&device, NodeRef::new(&root).child(1).unwrap(), BlockKind::Extents);
    let bad = ExtentValue::decode(NodeRef::new(&leaf).value(50)).unwrap();
    let (group, bit) = Geometry::new(SIZE / BLOCK_SIZE as u64).bit_of(bad.start).unwrap();
    assert_eq!(group, GroupNo(0));
    plant_free_block(&device, bit);
    let volume = Volume::open(device.clone(), &MountOptions::default()).unwrap();
    assert_eq!(corruption(volume.truncate("a", 10 * BLOCK_SIZE as u64).unwrap_err()).structure, "bitmap");
    volume.sync().unwrap();
    let crashed = device.snapshot();
    drop(volume);
    for shorter in [false, true] {
        let device = Arc::new(crashed.snapshot());
        let volume = Volume::open(device.clone(), &MountOptions::default()).unwrap();
        assert_eq!(volume.metadata("a").unwrap().len(), 10 * BLOCK_SIZE as u64);
        let file = OpenOptions::new().write(true).open(&volume, "a").unwrap();
        file.write_at(b"new", 0).unwrap();
        file.sync_all().unwrap();
        if shorter {
            // Only what is damaged keeps it from being done.
            assert_eq!(corruption(file.set_len(3).unwrap_err()).structure, "bitmap");
        }
        assert!(volume.read("a").unwrap().starts_with(b"new"));
        drop(file);
        volume.remove_file("a").unwrap();
        assert!(matches!(volume.read("a").unwrap_err().root(), Error::NotFound));
        // It says that the rest cannot be freed.
        corruption(volume.close().unwrap_err());
        let volume = Volume::open(device, &MountOptions::default()).unwrap();
        assert!(volume.exists("a").is_ok_and(|there| !there));
        drop(volume.close());
    }
}
