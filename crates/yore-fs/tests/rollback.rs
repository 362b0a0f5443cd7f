//! Rolling back in the library: the result, the calls that wait, and what a crash or a full volume leaves.

use crate::common::tree as reading;

use reading::{read_tree, Found};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use yore_device::{Device, MemoryDevice};
use yore_fs::rollback::{Plan, Rights, Verb};
use yore_fs::{
    Caller, Error, EventNo, FileKind, InodeNo, MkfsOptions, MountOptions, NewSnapshot, SetAttr, SetXattrMode,
    View, Volume,
};

fn volume(bytes: u64) -> (Arc<dyn Device>, Volume) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(bytes));
    View::mkfs(&device, &MkfsOptions::default()).unwrap();
    (device.clone(), Volume::open(device, &MountOptions::default()).unwrap())
}

fn plan(target: EventNo) -> Plan {
    Plan { verb: Verb::Rollback, of: None, target, others: None }
}

fn back(volume: &Volume, path: &str, target: EventNo) -> yore_fs::Result<String> {
    let inode = volume.node(path)?.inode();
    volume.view().rollback(&Rights::All, inode, &plan(target), &mut |_| ()).map(|done| done.name)
}

fn event(volume: &Volume, path: &str) -> EventNo {
    let inode = volume.node(path).unwrap().inode();
    volume.view().take_snapshot(inode, &NewSnapshot::default()).unwrap().number
}

/// Everything below a directory, as far as a rollback brings it back.
fn tree(view: &View, root: InodeNo) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for Found { path, attr, content, xattrs } in read_tree(view, root).into_iter().skip(1) {
        let mut what = format!("{:?} {:o} {} {}", attr.kind, attr.permissions & 0o1777, attr.uid, attr.gid);
        if attr.kind != FileKind::Directory {
            what += &format!(" {:?} {:?}", attr.mtime, String::from_utf8_lossy(&content));
        }
        for (name, value) in xattrs {
            what += &format!(" {name:?}={value:?}");
        }
        all.insert(format!("/{}", path.to_str().unwrap()), what);
    }
    all
}

fn change_much(volume: &Volume) {
    volume.write("d/changed", "two").unwrap();
    volume.write("d/new", "new").unwrap();
    volume.rename("d/sub/a", "d/sub/b").unwrap();
    volume.rename("d/sub", "d/other").unwrap();
    volume.remove_file("d/gone").unwrap();
    volume.set_xattr("d/kept", "user.a", "1", yore_fs::SetXattrMode::Any).unwrap();
    volume.create_dir("d/sub").unwrap();
    volume.write("d/sub/x", "x").unwrap();
}

fn fill(volume: &Volume) {
    volume.create_dir("d").unwrap();
    volume.create_dir("d/sub").unwrap();
    for name in ["changed", "gone", "kept", "sub/a", "sub/c"] {
        volume.write(format!("d/{name}"), "one").unwrap();
    }
    volume.hard_link("d/kept", "d/link").unwrap();
    let set = SetAttr { permissions: Some(0o4755), ..SetAttr::default() };
    volume.set_symlink_attributes("d/kept", &set).unwrap();
}

#[test]
fn a_directory_becomes_what_it_was_and_back() {
    let (_, volume) = volume(64 << 20);
    fill(&volume);
    let then = event(&volume, "d");
    let dir = volume.node("d").unwrap().inode();
    let was = tree(&volume.view().as_of(then), dir);
    assert_eq!(back(&volume, "d", then).unwrap(), "", "nothing differs");
    change_much(&volume);
    let between = tree(volume.view(), dir);
    assert_eq!(back(&volume, "d", then).unwrap(), "rollback-1");
    assert_eq!(tree(volume.view(), dir), was);
    // Set-id bits, which the past does not show, are as they were.
    assert_eq!(volume.metadata("d/kept").unwrap().attr().permissions, 0o4755);
    assert_eq!(back(&volume, "d", then).unwrap(), "", "nothing is left that differs");
    let events = volume.view().events().unwrap();
    let names: Vec<&str> = events.iter().map(|event| event.row.name.as_str()).collect();
    assert_eq!(names, ["", "before-rollback-1", "after-rollback-1"]);
    assert_eq!(back(&volume, "d", events[1].number).unwrap(), "rollback-2");
    assert_eq!(tree(volume.view(), dir), between);
    assert_eq!(volume.view().unfinished_rollbacks().unwrap(), []);
    for wrong in [99, 3] {
        assert!(matches!(back(&volume, "d/other", EventNo(wrong)), Err(Error::NotFound)), "{wrong}");
    }
    assert!(matches!(back(&volume, "d/new", then), Err(Error::NotADirectory)));
}

/// Whoever reads during a rollback sees the tree before it or the tree after it, and never anything between.
#[test]
fn nobody_sees_between() {
    let (_, volume) = volume(256 << 20);
    volume.create_dir("d").unwrap();
    let state = |n: usize| {
        for i in 0..40 {
            if volume.exists(format!("d/f{i}")).unwrap() {
                let _ = volume.remove_file(format!("d/f{i}"));
            }
            if i % 3 != n {
                volume.write(format!("d/f{i}"), format!("{n}")).unwrap();
            }
        }
        volume.write("d/all", format!("{n}")).unwrap();
        event(&volume, "d")
    };
    let events = [state(0), state(1)];
    let dir = volume.node("d").unwrap().inode();
    let trees = events.map(|event| tree(&volume.view().as_of(event), dir));
    let names =
        |of: &BTreeMap<String, String>| of.keys().map(|name| name[1..].to_string()).collect::<Vec<_>>();
    let names = trees.each_ref().map(names);
    let done = AtomicBool::new(false);
    let (listed, read) = std::thread::scope(|threads| {
        let lists = threads.spawn(|| {
            let mut seen = [0; 2];
            while !done.load(Ordering::Relaxed) {
                // One call reads one state.
                let mut found = Vec::new();
                volume
                    .view()
                    .readdir(dir, 0, &mut |item| {
                        found.push(String::from_utf8(item.name.to_vec()).unwrap());
                        true
                    })
                    .unwrap();
                found.retain(|name| name != "." && name != "..");
                found.sort();
                let which = names.iter().position(|names| *names == found);
                seen[which.unwrap_or_else(|| panic!("between: {found:?}"))] += 1;
            }
            seen
        });
        let reads = threads.spawn(|| {
            let mut count = 0;
            while !done.load(Ordering::Relaxed) {
                // Each read shows one of the two states whole.
                let first = volume.read_to_string("d/all").unwrap();
                let other = volume.read_to_string("d/f5").unwrap();
                assert!(["0", "1"].contains(&first.as_str()) && ["0", "1"].contains(&other.as_str()));
                volume.write("outside", "goes on").unwrap();
                count += 1;
            }
            count
        });
        for turn in 0..60 {
            back(&volume, "d", events[turn % 2]).unwrap();
        }
        done.store(true, Ordering::Relaxed);
        (lists.join().unwrap(), reads.join().unwrap())
    });
    assert!(listed[0] > 0 && listed[1] > 0 && read > 0, "{listed:?} {read}");
}

/// Writes during a rollback come before it or after it. No write before it is lost, because the undo point
/// has it.
#[test]
fn nothing_that_others_write_is_lost() {
    let (_, volume) = volume(256 << 20);
    volume.create_dir("d").unwrap();
    let then = event(&volume, "d");
    let done = AtomicBool::new(false);
    let written = std::thread::scope(|threads| {
        let writers: Vec<_> = (0..3)
            .map(|n| {
                let (volume, done) = (&volume, &done);
                threads.spawn(move || {
                    let mut count = 0;
                    while !done.load(Ordering::Relaxed) {
                        let name = format!("d/w{n}-{count}");
                        volume.write(&name, name.as_bytes()).unwrap();
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        for _ in 0..30 {
            back(&volume, "d", then).unwrap();
        }
        done.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<usize>>()
    });
    back(&volume, "d", then).unwrap();
    assert_eq!(volume.read_dir("d").unwrap().count(), 0);
    let mut found = std::collections::HashSet::new();
    let dir = volume.node("d").unwrap().inode();
    for event in volume.view().events().unwrap().iter().filter(|event| event.row.name.starts_with("before-"))
    {
        let view = volume.view().as_of(event.number);
        view.readdir(dir, 0, &mut |item| {
            found.insert(String::from_utf8(item.name.to_vec()).unwrap());
            true
        })
        .unwrap();
    }
    // A write of the library is two calls, so a file may be empty; but none is missing.
    for (n, count) in written.into_iter().enumerate() {
        for i in 0..count {
            assert!(found.contains(&format!("w{n}-{i}")), "w{n}-{i}");
        }
    }
}

/// Files that are not the caller's are not touched, and no rollback begins.
#[test]
fn only_what_is_yours() {
    let (_, volume) = volume(64 << 20);
    fill(&volume);
    let own = |path: &str, uid| {
        volume
            .set_symlink_attributes(path, &SetAttr { uid: Some(uid), gid: Some(7), ..SetAttr::default() })
            .unwrap();
    };
    for path in ["d", "d/sub", "d/changed", "d/gone", "d/kept", "d/sub/a", "d/sub/c"] {
        own(path, 9);
    }
    let then = event(&volume, "d");
    volume.write("d/changed", "two").unwrap();
    let inode = volume.node("d").unwrap().inode();
    let mine = |uid, groups: &[u32], target| {
        let rights = Rights::Owner { uid, groups: groups.to_vec() };
        volume.view().rollback(&rights, inode, &plan(target), &mut |_| ()).map(|done| done.name)
    };
    assert!(matches!(mine(8, &[7], then), Err(Error::NotYours { path }) if path == "changed"));
    assert!(matches!(mine(9, &[6], then), Err(Error::NotYours { path }) if path == "changed"));
    volume.write("d/by-root", "").unwrap();
    assert!(matches!(mine(9, &[7], then), Err(Error::NotYours { path }) if path == "by-root"));
    assert_eq!(volume.view().events().unwrap().len(), 1, "nothing was begun");
    own("d/by-root", 9);
    assert_eq!(mine(9, &[7], then).unwrap(), "rollback-1");
    volume.set_xattr("d/sub/c", "trusted.a", "1", yore_fs::SetXattrMode::Any).unwrap();
    assert!(matches!(mine(9, &[7], then), Err(Error::NotYours { path }) if path == "sub/c"));
    assert_eq!(back(&volume, "d", then).unwrap(), "rollback-2");
}

/// An owner's rollback gave him what chmod and mknod do not give him: the set-group-id bit of a program of a
/// group that is not his, and a device that root had made for him and taken away again.
#[test]
fn owners_bring_back_no_rights_of_others() {
    let (_, volume) = volume(64 << 20);
    let own = |path: &str, gid, permissions| {
        let set =
            SetAttr { uid: Some(9), gid: Some(gid), permissions: Some(permissions), ..SetAttr::default() };
        volume.set_symlink_attributes(path, &set).unwrap();
    };
    volume.create_dir("d").unwrap();
    volume.write("d/program", "of group 5").unwrap();
    own("d", 7, 0o755);
    own("d/program", 5, 0o2755);
    let directory = volume.node("d").unwrap().inode();
    let view = volume.view();
    let mine = |groups: &[u32], target| {
        let rights = Rights::Owner { uid: 9, groups: groups.to_vec() };
        view.rollback(&rights, directory, &plan(target), &mut |_| ()).map(drop)
    };
    let permissions = || volume.metadata("d/program").unwrap().attr().permissions;
    let then = event(&volume, "d");
    // As long as the program has the bit, everything else about it comes back.
    own("d/program", 5, 0o2750);
    mine(&[7], then).unwrap();
    assert_eq!(permissions(), 0o2755);
    own("d/program", 5, 0o750);
    assert!(matches!(mine(&[7], then), Err(Error::NotYours { path }) if path == "program"));
    assert_eq!(permissions(), 0o750);
    mine(&[7, 5], then).unwrap();
    assert_eq!(permissions(), 0o2755);

    for (name, kind) in [("block", FileKind::BlockDevice), ("char", FileKind::CharDevice)] {
        view.create(&Caller::superuser(), directory, name.as_bytes(), kind, 0o600, 0x103).unwrap();
        let path = format!("d/{name}");
        own(&path, 7, 0o600);
        let then = event(&volume, "d");
        volume.remove_file(&path).unwrap();
        assert!(matches!(mine(&[7, 5], then), Err(Error::NotYours { path }) if path == name));
        assert!(!volume.exists(&path).unwrap());
        back(&volume, "d", then).unwrap();
        assert_eq!(volume.node(&path).unwrap().attr().kind, kind);
        volume.remove_file(&path).unwrap();
    }
}

/// Somebody rolls a directory back on a nearly full volume, and the files that come back do not fit: they are
/// too small to share blocks. The rollback used to begin and stop half way. It could neither be finished nor
/// undone, because both needed room that its own snapshots kept. Now it does not begin.
#[test]
fn what_does_not_fit_is_not_begun() {
    let (_, volume) = volume(32 << 20);
    volume.create_dir("d").unwrap();
    const FILES: usize = 500;
    for i in 0..FILES {
        volume.write(format!("d/f{i}"), vec![i as u8; 12 << 10]).unwrap();
    }
    for i in 0..6 {
        volume.write(format!("d/small{i}"), "small").unwrap();
    }
    let then = event(&volume, "d");
    let dir = volume.node("d").unwrap().inode();
    volume.view().hold(then, true).unwrap();
    for i in 0..FILES {
        volume.write(format!("d/f{i}"), "other").unwrap();
    }
    volume.remove_file("d/f0").unwrap();
    let filled = fill_up(&volume);
    for n in 0..3 {
        volume.remove_file(format!("fill{n}")).unwrap();
    }
    let was = tree(volume.view(), dir);
    let failed = back(&volume, "d", then).unwrap_err();
    assert!(matches!(failed.root(), Error::NoSpace | Error::NeverFits { .. }), "{failed}");
    assert_eq!(tree(volume.view(), dir), was);
    assert!(!volume.exists("d/.@before-rollback-1").unwrap(), "there is nothing to undo");
    assert_eq!(volume.view().unfinished_rollbacks().unwrap(), []);
    for n in 3..filled.min(9) {
        volume.remove_file(format!("fill{n}")).unwrap();
    }
    assert_eq!(back(&volume, "d", then).unwrap(), "rollback-1");
    assert_eq!(tree(volume.view(), dir), tree(&volume.view().as_of(then), dir));
}

/// Files that come back whole share the blocks of the past: a full volume has room for them.
#[test]
fn what_is_shared_fits() {
    let (_, volume) = volume(32 << 20);
    volume.create_dir("d").unwrap();
    for i in 0..6 {
        volume.write(format!("d/f{i}"), vec![i as u8; 1 << 20]).unwrap();
    }
    let then = event(&volume, "d");
    let dir = volume.node("d").unwrap().inode();
    volume.view().hold(then, true).unwrap();
    for i in 0..6 {
        volume.write(format!("d/f{i}"), "other").unwrap();
    }
    volume.remove_file("d/f0").unwrap();
    fill_up(&volume);
    volume.remove_file("fill0").unwrap();
    assert_eq!(back(&volume, "d", then).unwrap(), "rollback-1");
    assert_eq!(tree(volume.view(), dir), tree(&volume.view().as_of(then), dir));
}

/// Writes files of 1 MiB until none fits; returns how many.
fn fill_up(volume: &Volume) -> usize {
    let mut filled = 0;
    while volume.write(format!("fill{filled}"), vec![1; 1 << 20]).is_ok() && filled < 64 {
        filled += 1;
    }
    filled
}

/// Makes a file with attributes of 60,000 bytes. They are metadata, which the check for room does not count.
fn write_with_attributes(volume: &Volume, path: &str, content: &[u8]) {
    volume.write(path, content).unwrap();
    volume.set_xattr(path, "user.large", [7; 60_000], SetXattrMode::Any).unwrap();
}

/// A rollback that does not end must leave the directories that it has made to their former owners. Once
/// only root could read them, or roll back again, as the message says.
#[test]
fn what_was_stopped_is_still_yours() {
    let (_, volume) = volume(32 << 20);
    let own = |path: &str, permissions: u32| {
        let set =
            SetAttr { uid: Some(1000), gid: Some(100), permissions: Some(permissions), ..SetAttr::default() };
        volume.set_symlink_attributes(path, &set).unwrap();
    };
    volume.create_dir("d").unwrap();
    volume.create_dir("d/sub").unwrap();
    volume.write("d/name", "renamed").unwrap();
    for i in 0..60 {
        write_with_attributes(&volume, &format!("d/sub/f{i}"), &[i]);
    }
    own("d", 0o755);
    own("d/sub", 0o755);
    let then = event(&volume, "d");
    volume.rename("d/name", "d/other").unwrap();
    volume.remove_dir_all("d/sub").unwrap();
    fill_up(&volume);
    let failed = back(&volume, "d", then);
    assert!(matches!(failed, Err(Error::Unfinished { .. })), "{failed:?}");
    let view = volume.view();
    let directory = volume.node("d").unwrap().inode();
    let mut seen = 0;
    for (path, _) in tree(view, directory) {
        let attr = *volume.node(format!("d{path}")).unwrap().attr();
        if attr.kind == FileKind::Directory {
            assert_eq!((attr.uid, attr.gid), (1000, 100), "{path}");
            seen += 1;
        }
    }
    assert!(seen > 0);
}

/// The volume has room for the data of files, but not for their attributes. What was done stays, and
/// everything from before is kept. The caller learns of it, and can finish the rollback or undo it.
#[test]
fn a_full_volume_loses_nothing() {
    for goes_back in [false, true] {
        let (device, volume) = volume(32 << 20);
        volume.create_dir("d").unwrap();
        for i in 0..60 {
            write_with_attributes(&volume, &format!("d/f{i}"), &[i]);
        }
        let then = event(&volume, "d");
        let dir = volume.node("d").unwrap().inode();
        let was = tree(&volume.view().as_of(then), dir);
        for i in 0..60 {
            volume.remove_file(format!("d/f{i}")).unwrap();
        }
        for i in 0..6 {
            volume.write(format!("d/g{i}"), "small").unwrap();
        }
        let between = tree(volume.view(), dir);
        volume.view().hold(then, true).unwrap();
        let filled = fill_up(&volume);
        volume.remove_file("fill0").unwrap();
        let failed = back(&volume, "d", then);
        let Err(Error::Unfinished { name, source }) = failed else { panic!("{failed:?}") };
        assert!(matches!(source.root(), Error::NoSpace | Error::NeverFits { .. }), "{source}");
        assert_eq!(name, "rollback-1");
        let told = volume.view().unfinished_rollbacks().unwrap();
        assert_eq!((told.len(), told[0].stopped, told[0].target), (1, true, then));
        let before = told[0].before;
        assert_eq!(tree(&volume.view().as_of(before), dir), between);
        for event in [then, before] {
            assert!(volume.view().forget(&[event]).is_err(), "what is needed is not forgotten");
        }
        // The rollback has taken all room that there was for metadata.
        let mut gone = 1;
        while volume.write("d/meanwhile", "others").is_err() {
            volume.remove_file(format!("fill{gone}")).unwrap();
            gone += 1;
        }
        volume.close().unwrap();
        drop(volume);
        // It does not go on by itself: somebody has used the directory since.
        let volume = Volume::open(device, &MountOptions::default()).unwrap();
        assert_eq!(volume.read_to_string("d/meanwhile").unwrap(), "others");
        assert_eq!(volume.view().unfinished_rollbacks().unwrap(), told);
        for n in gone..filled {
            volume.remove_file(format!("fill{n}")).unwrap();
        }
        volume.sync().unwrap();
        let sub = volume.create_dir("d/deeper").and_then(|()| Ok(volume.node("d/deeper")?.inode())).unwrap();
        let deeper = volume.view().take_snapshot(sub, &NewSnapshot::default()).unwrap().number;
        let refused = back(&volume, "d/deeper", deeper).unwrap_err();
        assert!(refused.to_string().contains("rollback-1 of a directory above"), "{refused}");
        let target = if goes_back { before } else { then };
        assert_eq!(back(&volume, "d", target).unwrap(), "rollback-2");
        assert_eq!(tree(volume.view(), dir), if goes_back { between } else { was });
        assert_eq!(volume.read_to_string("d/.@before-rollback-2/meanwhile").unwrap(), "others");
        assert_eq!(volume.view().unfinished_rollbacks().unwrap(), []);
        volume.view().hold(then, false).unwrap();
        volume.view().forget(&[then]).unwrap();
    }
}

/// A file of terabytes that is nearly all hole takes the place of another one. A rollback compares both while
/// others wait; it compares only their data, so this takes no time.
#[test]
fn holes_are_not_compared() {
    let (_, volume) = volume(64 << 20);
    volume.create_dir("d").unwrap();
    let (view, end) = (volume.view(), 8 << 40);
    let mut mtime = None;
    // The same content again, with the same time.
    let mut make = |more: Option<u64>| {
        volume.write("d/new", "data").unwrap();
        let no = volume.node("d/new").unwrap().inode();
        for at in [Some(end), more].into_iter().flatten() {
            let mode = yore_fs::WriteMode { append: false, kill_set_id: false };
            view.write(no, at, b"data", mode).unwrap();
        }
        let time = *mtime.get_or_insert(view.getattr(no).unwrap().mtime);
        let set = SetAttr { mtime: Some(yore_fs::SetTime::To(time)), ..SetAttr::default() };
        volume.set_symlink_attributes("d/new", &set).unwrap();
        volume.rename("d/new", "d/sparse").unwrap();
    };
    make(None);
    let then = event(&volume, "d");
    make(None);
    assert_eq!(back(&volume, "d", then).unwrap(), "", "it is what it was");
    // There is data where there was a hole.
    make(Some(end / 2));
    assert_eq!(back(&volume, "d", then).unwrap(), "rollback-1");
    let mut bytes = [7; 4];
    view.read(volume.node("d/sparse").unwrap().inode(), end / 2, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 4]);
}

/// Two directories exchanged their names, and each has a file `f` that is where it was: one stayed by its
/// path, the other one by its directory. The rollback used to believe that the changed file had also moved
/// with its directory; so it looked for that file in the wrong place, and did not end.
#[test]
fn what_moved_to_where_its_path_is_the_same() {
    let (_, volume) = volume(64 << 20);
    for path in ["d", "d/a", "d/b"] {
        volume.create_dir(path).unwrap();
    }
    for path in ["a/f", "b/f", "a/g", "b/h"] {
        volume.write(format!("d/{path}"), path).unwrap();
    }
    let dir = volume.node("d").unwrap().inode();
    let then = event(&volume, "d");
    volume.rename_with("d/a", "d/b", yore_fs::RenameMode::Exchange).unwrap();
    // The file that was `a/f` is `a/f` again, in the other directory, and has changed.
    volume.rename_with("d/a/f", "d/b/f", yore_fs::RenameMode::Exchange).unwrap();
    volume.set_permissions("d/a/f", 0o600).unwrap();
    let (now, was) = (tree(volume.view(), dir), tree(&volume.view().as_of(then), dir));
    assert_eq!(back(&volume, "d", then).unwrap(), "rollback-1");
    assert_eq!(tree(volume.view(), dir), was);
    let undone = volume
        .view()
        .events()
        .unwrap()
        .iter()
        .find(|event| event.row.name == "before-rollback-1")
        .unwrap()
        .number;
    assert_eq!(back(&volume, "d", undone).unwrap(), "rollback-2");
    assert_eq!(tree(volume.view(), dir), now);
    assert_eq!(back(&volume, "d", undone).unwrap(), "");
}

/// A long diff of one user made a rollback of another one's directory wait, and with it all who used that
/// directory. A diff is not waited for.
#[test]
fn a_diff_elsewhere_is_not_waited_for() {
    let (_, volume) = volume(64 << 20);
    fill(&volume);
    volume.create_dir("e").unwrap();
    volume.write("e/file", "one").unwrap();
    let (then, of_e) = (event(&volume, "d"), event(&volume, "e"));
    change_much(&volume);
    volume.write("e/file", "two").unwrap();
    let [d, e] = ["d", "e"].map(|path| volume.node(path).unwrap().inode());
    let view = volume.view().clone();
    let (asked, has_ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let begun = parking_lot::Mutex::new(None);
    let go_on = |_: usize| {
        if !asked.swap(true, Ordering::Relaxed) {
            let (view, (told, hears)) = (view.clone(), std::sync::mpsc::channel());
            *begun.lock() = Some(std::thread::spawn(move || {
                let done = view.rollback(&Rights::All, e, &plan(of_e), &mut |_| ());
                told.send(()).is_ok() && done.is_ok()
            }));
            // The diff goes on when the rollback has ended, or seems to wait for it.
            let heard = hears.recv_timeout(std::time::Duration::from_secs(60));
            has_ended.store(heard.is_ok(), Ordering::Relaxed);
        }
        ControlFlow::Continue(())
    };
    let mut found = 0;
    let outcome = volume.view().diff_while(d, (Some(then), None), &go_on, &mut |_| {
        found += 1;
        ControlFlow::Continue(())
    });
    outcome.unwrap();
    assert!(begun.into_inner().unwrap().join().unwrap(), "the rollback");
    assert!(has_ended.into_inner(), "it has waited for the diff");
    assert_eq!(volume.read_to_string("e/file").unwrap(), "one");
    assert!(found > 0);
}

/// A diff whose directory is rolled back meanwhile, again and again, begins anew, three times; then rollbacks
/// wait. It never tells of a state between.
#[test]
fn a_diff_begins_anew_behind_a_rollback() {
    let (_, volume) = volume(64 << 20);
    fill(&volume);
    let then = event(&volume, "d");
    change_much(&volume);
    let now = event(&volume, "d");
    let (d, view) = (volume.node("d").unwrap().inode(), volume.view());
    let differences = |go_on: &(dyn Fn(usize) -> ControlFlow<()> + Sync)| {
        let (mut found, progress) = (Vec::new(), yore_fs::Progress::default());
        view.compare_while(d, (Some(then), None), &progress, go_on, &mut |one| {
            found.push(one.path);
            ControlFlow::Continue(())
        })
        .unwrap();
        found
    };
    let rollbacks = AtomicUsize::new(0);
    let found = differences(&|bytes| {
        let number = rollbacks.load(Ordering::Relaxed);
        // It holds nothing when it asks for the first time.
        if bytes == 0 && number < 3 {
            rollbacks.store(number + 1, Ordering::Relaxed);
            let target = if number.is_multiple_of(2) { then } else { now };
            view.rollback(&Rights::All, d, &plan(target), &mut |_| ()).unwrap();
        }
        ControlFlow::Continue(())
    });
    assert_eq!(rollbacks.into_inner(), 3, "each of them had it begin anew");
    let undisturbed = || differences(&|_| ControlFlow::Continue(()));
    assert_eq!(found, undisturbed());
    view.rollback(&Rights::All, d, &plan(now), &mut |_| ()).unwrap();
    assert_ne!(found, undisturbed());
}
