//! Promises: what a snapshot has seen can be read as it was, whatever happens afterwards; and a file that is
//! made and removed between two snapshots leaves nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use yore_device::{Device, MemoryDevice};
use yore_fs::{
    Caller, Error, EventNo, FallocateMode, File, FileKind, MkfsOptions, MountOptions, NewSnapshot,
    OpenOptions, RenameMode, SetAttr, SetXattrMode, View, Volume,
};

/// The content of a tree: for each path the attributes that the past must have, and the content.
type Tree = BTreeMap<PathBuf, (FileKind, u32, u32, u64, Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>)>;

/// A change, and its name.
type Step<'a> = (&'static str, Box<dyn Fn() + 'a>);

fn tree(volume: &Volume) -> Tree {
    let mut all = Tree::new();
    for entry in volume.walk("/") {
        let entry = entry.unwrap();
        let (path, metadata) = (entry.path(), entry.metadata());
        let attr = metadata.attr();
        let content = match attr.kind {
            FileKind::Regular => volume.read(path).unwrap(),
            FileKind::Symlink => volume.read_link(path).unwrap().into_os_string().into_encoded_bytes(),
            _ => Vec::new(),
        };
        let node = volume.symlink_node(path).unwrap();
        let view = volume.view().of(&node);
        let mut xattrs = Vec::new();
        for name in view.listxattr(node.inode()).unwrap() {
            let value = view.getxattr(node.inode(), &name).unwrap();
            xattrs.push((name, value));
        }
        let permissions = attr.permissions & 0o1777;
        all.insert(path.into(), (attr.kind, permissions, attr.links, attr.size, content, xattrs));
    }
    all
}

fn as_of(volume: &Volume, event: EventNo) -> Volume {
    Volume::from_view(volume.view().as_of(event))
}

fn event(volume: &Volume) -> EventNo {
    let view = volume.view();
    view.take_snapshot(view.root(), &NewSnapshot::default()).unwrap().number
}

fn small() -> Volume {
    Volume::memory(64 << 20).unwrap()
}

#[test]
fn a_file_is_read_as_it_was() {
    let volume = small();
    volume.write("a", "one").unwrap();
    let first = event(&volume);
    volume.write("a", "two and more").unwrap();
    let second = event(&volume);
    volume.remove_file("a").unwrap();
    let third = event(&volume);
    assert_eq!(as_of(&volume, first).read("a").unwrap(), b"one");
    assert_eq!(as_of(&volume, second).read("a").unwrap(), b"two and more");
    assert!(!as_of(&volume, third).exists("a").unwrap());
    assert!(!volume.exists("a").unwrap());
}

/// Makes each kind of change, one after another, each behind a snapshot. All snapshots show what was there
/// when they were taken: at once, after more of them, after a sync, and after the volume was closed and
/// opened again.
#[test]
fn whatever_changes_the_past_stays() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(128 << 20));
    let volume = Volume::create(device.clone(), &MkfsOptions::default()).unwrap();
    fill(&volume);
    let steps: Vec<Step<'_>> =
        [contents, names, attributes, removals].iter().flat_map(|part| part(&volume)).collect();
    let mut seen = vec![("nothing", event(&volume), tree(&volume))];
    for (what, step) in &steps {
        step();
        let now = tree(&volume);
        seen.push((what, event(&volume), now));
        let (_, number, before) = &seen[seen.len() - 2];
        assert!(tree(&as_of(&volume, *number)) == *before, "before: {what}");
        if seen.len() % 7 == 0 {
            volume.sync().unwrap();
        }
    }
    let check = |volume: &Volume, when: &str| {
        for (what, number, then) in &seen {
            let found = tree(&as_of(volume, *number));
            for (path, value) in then {
                assert!(found.get(path) == Some(value), "{when}: {} after {what}", path.display());
            }
            assert_eq!(found.len(), then.len(), "{when}: names after {what}");
        }
    };
    check(&volume, "in the end");
    drop(steps);
    volume.close().unwrap();
    let volume = Volume::open(device, &MountOptions::default()).unwrap();
    check(&volume, "opened again");
}

/// The files that the steps change.
fn fill(volume: &Volume) {
    let big: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
    volume.create_dir_all("d/e/f").unwrap();
    for i in 0..300 {
        volume.write(format!("d/n{i}"), format!("{i}").repeat(i)).unwrap();
    }
    volume.write("big", &big).unwrap();
    volume.write("d/small", "s").unwrap();
    volume.symlink("d/small", "short").unwrap();
    volume.symlink("x/".repeat(900), "long").unwrap();
    volume.hard_link("d/small", "again").unwrap();
    volume.set_xattr("big", "user.a", vec![7; 5000], SetXattrMode::Any).unwrap();
    volume.set_xattr("d", "user.b", "b", SetXattrMode::Any).unwrap();
    volume.set_xattr("d/n60", "security.capability", vec![1; 3000], SetXattrMode::Any).unwrap();
    volume.set_xattr("d/n60", "user.a", vec![1; 9000], SetXattrMode::Any).unwrap();
    volume.append("d/n60", vec![1; 20_000]).unwrap();
    volume.set_xattr("d/n61", "security.capability", "c", SetXattrMode::Any).unwrap();
}

fn step<'a>(what: &'static str, change: impl Fn() + 'a) -> Step<'a> {
    (what, Box::new(change))
}

/// Content of files: overwritten, truncated, allocated, with holes.
fn contents(volume: &Volume) -> Vec<Step<'_>> {
    let file = || OpenOptions::new().read(true).write(true).open(volume, "big").unwrap();
    let ino = |path: &str| volume.symlink_node(path).unwrap().inode();
    let view = volume.view();
    vec![
        step("overwrite in the middle", move || {
            file().write_at(&[9; 10_000], 1_000_000).unwrap();
        }),
        step("append", move || volume.append("big", vec![3; 9_000]).unwrap()),
        step("overwrite a page twice", move || {
            file().write_at(b"again", 1_000_100).unwrap();
        }),
        step("truncate", move || volume.truncate("big", 1_500_001).unwrap()),
        step("grow", move || volume.truncate("big", 1_700_000).unwrap()),
        step("scattered writes", move || {
            let file = file();
            for i in 0..150u64 {
                file.write_at(&[i as u8; 100], i * 11_000).unwrap();
            }
        }),
        step("punch", move || {
            view.fallocate(ino("big"), 50_000, 400_000, FallocateMode::PunchHole).unwrap();
        }),
        step("allocate", move || {
            let mode = FallocateMode::Allocate { keep_size: false };
            view.fallocate(ino("big"), 100_000, 3_000_000, mode).unwrap();
        }),
        step("write to what is allocated", move || {
            file().write_at(&[8; 70_000], 2_000_000).unwrap();
        }),
        step("zero a range", move || {
            let mode = FallocateMode::ZeroRange { keep_size: true };
            view.fallocate(ino("big"), 900_000, 300_000, mode).unwrap();
        }),
    ]
}

/// Names and directories: renamed, exchanged, moved.
fn names(volume: &Volume) -> Vec<Step<'_>> {
    vec![
        step("rename", move || volume.rename("big", "d/e/bigger").unwrap()),
        step("rename back over another", move || volume.rename("d/e/bigger", "d/n7").unwrap()),
        step("exchange", move || volume.rename_with("d/n7", "d/n8", RenameMode::Exchange).unwrap()),
        step("move a directory", move || volume.rename("d/e", "e").unwrap()),
    ]
}

/// Permissions, owners, extended attributes.
fn attributes(volume: &Volume) -> Vec<Step<'_>> {
    let ino = |path: &str| volume.symlink_node(path).unwrap().inode();
    let view = volume.view();
    vec![
        step("chmod", move || volume.set_permissions("d/n9", 0o600).unwrap()),
        step("chown", move || volume.chown("d/n9", Some(5), None).unwrap()),
        step("xattr replaced", move || {
            volume.set_xattr("d/n8", "user.a", "short", SetXattrMode::Any).unwrap()
        }),
        step("xattr added", move || {
            volume.set_xattr("d/n8", "user.c", vec![1; 60_000], SetXattrMode::Any).unwrap();
        }),
        step("event, and a capability with it", move || {
            let set = SetAttr { size: Some(1_000), kill_set_id: true, ..SetAttr::default() };
            view.setattr(&Caller::superuser(), ino("d/n60"), &set).unwrap();
            assert_eq!(volume.get_xattr("d/n60", "security.capability").unwrap(), None);
        }),
        step("event, and the only attribute with it", move || {
            let set = SetAttr { size: Some(0), kill_set_id: true, ..SetAttr::default() };
            view.setattr(&Caller::superuser(), ino("d/n61"), &set).unwrap();
        }),
        step("xattr removed", move || volume.remove_xattr("d", "user.b").unwrap()),
    ]
}

/// Links, removals, and names that are used again.
fn removals(volume: &Volume) -> Vec<Step<'_>> {
    vec![
        step("unlink one of two", move || volume.remove_file("again").unwrap()),
        step("unlink the other", move || volume.remove_file("d/small").unwrap()),
        step("unlink a link", move || volume.remove_file("long").unwrap()),
        step("link", move || volume.hard_link("d/n20", "d/n20-too").unwrap()),
        step("unlink many", move || {
            for i in 100..250 {
                volume.remove_file(format!("d/n{i}")).unwrap();
            }
        }),
        step("make many", move || {
            for i in 100..200 {
                volume.write(format!("d/n{i}"), "new").unwrap();
            }
        }),
        step("unlink the big one", move || volume.remove_file("d/n8").unwrap()),
        step("remove a directory", move || volume.remove_dir_all("e").unwrap()),
        step("the same name again", move || volume.write("e", "a file now").unwrap()),
        step("remove everything", move || volume.remove_dir_all("d").unwrap()),
    ]
}

#[test]
fn what_is_made_and_removed_between_snapshots_leaves_nothing() {
    let volume = small();
    volume.create_dir("d").unwrap();
    volume.write("d/kept", "kept").unwrap();
    event(&volume);
    // The first changes leave the versions of both directories.
    volume.write("d/first", "x").unwrap();
    volume.remove_file("d/first").unwrap();
    volume.sync().unwrap();
    let used = |volume: &Volume| (volume.info().metadata_blocks, volume.info().free_blocks);
    let before = used(&volume);
    for i in 0..50 {
        volume.write(format!("d/{i}"), vec![1; 50_000]).unwrap();
        volume.set_xattr(format!("d/{i}"), "user.x", vec![1; 3000], SetXattrMode::Any).unwrap();
    }
    volume.sync().unwrap();
    for i in 0..50 {
        volume.remove_file(format!("d/{i}")).unwrap();
    }
    volume.sync().unwrap();
    volume.sync().unwrap();
    assert_eq!(used(&volume).1, before.1);
    assert!(used(&volume).0 <= before.0 + 8, "{:?} and {before:?}", used(&volume));
}

/// A name with a time, in any place of a path; a name without a time inherits it; names that exist come
/// first.
#[test]
fn names_with_times() {
    let volume = small();
    let view = volume.view();
    let snapshot = |name: &str| view.take_snapshot(view.root(), &NewSnapshot::named(name)).unwrap();
    volume.create_dir_all("src/lib").unwrap();
    volume.write("src/lib/a", "old").unwrap();
    snapshot("first");
    volume.write("src/lib/a", "new").unwrap();
    volume.write("src/lib/b", "later").unwrap();
    snapshot("second");
    volume.remove_dir_all("src").unwrap();
    volume.write("with@first", "a file of that name").unwrap();
    let read = |path: &str| volume.read_to_string(path);
    assert_eq!(read("src@first/lib/a").unwrap(), "old");
    assert_eq!(read("src@second/lib/a").unwrap(), "new");
    assert_eq!(read("src@second/lib@first/a").unwrap(), "old");
    assert_eq!(read("src@second/lib/a@first").unwrap(), "old");
    assert_eq!(read(".@first/src/lib/a").unwrap(), "old");
    assert_eq!(read("src@now/lib/b").unwrap(), "later");
    assert!(matches!(read("src@first/lib/b").unwrap_err().root(), Error::NotFound));
    assert!(matches!(read("src@third/lib/b").unwrap_err().root(), Error::NotFound));
    assert!(matches!(read("src@1d/lib/b").unwrap_err().root(), Error::NotFound), "before there was anything");
    assert_eq!(read("with@first").unwrap(), "a file of that name");
    let names = |path: &str| -> Vec<_> {
        let mut names: Vec<_> = volume.read_dir(path).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names("/"), ["with@first"], "nothing of the past is listed");
    assert_eq!(names("src@first/lib/.."), ["lib"]);
    assert_eq!(names("src@first/.."), ["with@first"], "back through the name");
    volume.symlink("src@first", "named").unwrap();
    assert_eq!(read("named/lib/a").unwrap(), "old");
}

#[test]
fn the_past_cannot_be_changed() {
    let volume = small();
    let view = volume.view();
    volume.create_dir("d").unwrap();
    volume.write("d/a", "a").unwrap();
    view.take_snapshot(view.root(), &NewSnapshot::named("then")).unwrap();
    let refused = |result: Result<(), Error>| {
        let error = result.unwrap_err();
        assert!(matches!(error.root(), Error::ReadOnly), "{error}");
    };
    refused(volume.write("d@then/a", "b"));
    refused(volume.write("d@then/new", "b"));
    refused(volume.remove_file("d@then/a"));
    refused(volume.remove_dir_all("d@then"));
    refused(volume.create_dir("d@then/e"));
    refused(volume.symlink("x", "d@then/e"));
    refused(volume.set_permissions("d@then/a", 0o777));
    refused(volume.set_xattr("d@then/a", "user.a", "a", SetXattrMode::Any));
    refused(volume.rename("d@then/a", "d@then/b"));
    let across = |result: Result<(), Error>| {
        let error = result.unwrap_err();
        assert!(matches!(error.root(), Error::AcrossTimes), "{error}");
    };
    across(volume.rename("d@then/a", "d/b"));
    across(volume.hard_link("d@then/a", "d/b"));
    assert!(File::open(&volume, "d@then/a").unwrap().set_len(0).is_err());
    volume.remove_file("d/a").unwrap();
    volume.copy("d@then/a", "d/a").unwrap();
    assert_eq!(volume.read("d/a").unwrap(), b"a");
}

#[test]
fn snapshots_are_of_directories_too() {
    let volume = small();
    let view = volume.view();
    volume.create_dir_all("a/x").unwrap();
    volume.create_dir_all("b/x").unwrap();
    volume.write("a/x/f", "old").unwrap();
    volume.write("b/x/f", "old").unwrap();
    let a = volume.node("a").unwrap().inode();
    view.take_snapshot(a, &NewSnapshot::named("of-a")).unwrap();
    volume.write("a/x/f", "new").unwrap();
    volume.write("b/x/f", "new").unwrap();
    assert_eq!(volume.read("a/x@of-a/f").unwrap(), b"old");
    assert!(volume.read("b/x@of-a/f").is_err(), "b has no such snapshot");
    // Moving a file out of the directory that the event is of loses nothing.
    volume.write("a/y", "y").unwrap();
    view.take_snapshot(a, &NewSnapshot::named("again")).unwrap();
    volume.rename("a/y", "b/y").unwrap();
    volume.write("b/y", "changed").unwrap();
    assert_eq!(volume.read("a/y@again").unwrap(), b"y");
    // Moving a directory loses nothing either.
    view.take_snapshot(a, &NewSnapshot::named("third")).unwrap();
    volume.rename("a/x", "b/z").unwrap();
    volume.write("b/z/f", "newer").unwrap();
    assert_eq!(volume.read("a@third/x/f").unwrap(), b"new");
}

#[test]
fn names_of_snapshots_are_unique_and_no_times() {
    let volume = small();
    let view = volume.view();
    view.take_snapshot(view.root(), &NewSnapshot::named("before-upgrade")).unwrap();
    assert!(matches!(
        view.take_snapshot(view.root(), &NewSnapshot::named("before-upgrade")),
        Err(Error::Exists)
    ));
    for name in ["yesterday", "2026", "a/b", "a@b", "3h"] {
        assert!(view.take_snapshot(view.root(), &NewSnapshot::named(name)).is_err(), "{name}");
    }
    let events = view.events().unwrap();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].row.name, "before-upgrade");
}

/// Takes many snapshots in a second, each with its own time, later than the last.
#[test]
fn each_snapshot_has_its_own_time() {
    let volume = small();
    let view: &View = volume.view();
    for i in 0..1000 {
        volume.write("a", format!("{i}")).unwrap();
        view.take_snapshot(view.root(), &NewSnapshot::default()).unwrap();
    }
    let events = view.events().unwrap();
    assert!(events.windows(2).all(|pair| pair[0].row.time < pair[1].row.time));
    for (i, event) in events.iter().enumerate() {
        let when = yore_fs::time::When::At(event.row.time);
        assert_eq!(view.event_for(view.root(), &when).unwrap(), event.number);
        assert_eq!(as_of(&volume, event.number).read_to_string("a").unwrap(), format!("{i}"));
    }
}

/// Removing thousands of files that a snapshot has seen needs room for what is kept of them. The removal used
/// only the room that is set aside for removing, and said that an almost empty volume was full.
#[test]
fn removing_much_takes_the_room_that_there_is() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(128 << 20));
    let volume = Volume::create(device, &MkfsOptions::default()).unwrap();
    for i in 0..2000 {
        volume.write(format!("f{i}"), vec![1; 1000 + i]).unwrap();
    }
    let view = volume.view();
    view.take_snapshot(view.root(), &NewSnapshot { wait: true, ..NewSnapshot::named("one") }).unwrap();
    for i in 0..2000 {
        volume.append(format!("f{i}"), "more").unwrap();
    }
    view.take_snapshot(view.root(), &NewSnapshot { wait: true, ..NewSnapshot::named("all") }).unwrap();
    for i in 0..2000 {
        volume.remove_file(format!("f{i}")).unwrap();
    }
    assert_eq!(volume.read_dir("/.@all").unwrap().count(), 2000);
}
