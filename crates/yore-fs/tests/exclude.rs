//! What policies exclude: which files, what can be seen of them and when. Nothing is lost that was promised.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use yore_device::{AlignedBuf, Device, MemoryDevice};
use yore_fs::time::When;
use yore_fs::{
    Error, EventKind, EventNo, InodeNo, MkfsOptions, MountOptions, NewSnapshot, OpenOptions, Policy,
    Versioning, View, Volume,
};

const HOUR: u64 = 3_600_000_000_000;

fn device() -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    View::mkfs(&device, &MkfsOptions::default()).unwrap();
    device
}

fn open(device: &Arc<dyn Device>) -> Volume {
    Volume::open(device.clone(), &MountOptions::default()).unwrap()
}

fn inode(volume: &Volume, path: &str) -> InodeNo {
    volume.symlink_node(path).unwrap().inode()
}

fn set(volume: &Volume, path: &str, patterns: Option<&[&str]>, versioning: Option<Versioning>) {
    let exclude = patterns.map(|patterns| patterns.iter().map(|one| one.to_string()).collect());
    let policy = Policy { exclude, versioning, ..Policy::default() };
    volume.view().set_policy(inode(volume, path), &policy).unwrap();
}

/// Takes what the policy of a directory with an interval takes when its time has come.
fn interval(volume: &Volume, path: &str) -> EventNo {
    let (view, of) = (volume.view(), inode(volume, path));
    // A policy with an interval begins with a snapshot.
    let policy = Policy { versioning: Some(Versioning::Interval(HOUR)), ..view.policy(of).unwrap() };
    view.set_policy(of, &policy).unwrap();
    let last = view.events().unwrap().pop().unwrap();
    assert_eq!((last.row.kind, last.row.root), (EventKind::Interval, of));
    last.number
}

fn snapshot(volume: &Volume, path: &str) -> EventNo {
    volume.view().take_snapshot(inode(volume, path), &NewSnapshot::default()).unwrap().number
}

/// The content of a file as of an event; `None`: it is not there.
fn then(volume: &Volume, path: &str, event: EventNo) -> Option<String> {
    let view = volume.view().as_of(event);
    let mut at = view.root();
    for name in path.split('/') {
        match view.lookup(at, name.as_bytes()) {
            Ok(node) => at = node.inode(),
            Err(Error::NotFound) => return None,
            Err(e) => panic!("{e}"),
        }
    }
    let mut bytes = vec![0; view.getattr(at).unwrap().size as usize];
    view.read(at, 0, &mut bytes).unwrap();
    Some(String::from_utf8(bytes).unwrap())
}

fn listed(volume: &Volume, directory: InodeNo, event: EventNo) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let each = &mut |item: yore_fs::DirItem<'_>| {
        names.insert(String::from_utf8(item.name.to_vec()).unwrap());
        true
    };
    volume.view().as_of(event).readdir(directory, 2, each).unwrap();
    names.retain(|name| name != "." && name != "..");
    names
}

fn over(volume: &Volume, path: &str, text: &str) {
    let file = OpenOptions::new().write(true).open(volume, path).unwrap();
    file.write_at(text.as_bytes(), 0).unwrap();
}

/// The files of [`who_is_excluded`].
const FILES: [&str; 11] = [
    "w/a.swp",
    "w/a",
    "w/keep.swp",
    "w/sub/b.swp",
    "w/sub/target/deep/f",
    "w/sub/target/keep.swp",
    "w/top",
    "w/sub/top",
    "w/own/c.swp",
    "w/own/d",
    "outside.swp",
];
/// Those of them, and of their directories, that the policies exclude at first, and those that they do not.
const EXCLUDED: [&str; 7] = [
    "w/a.swp",
    "w/sub/b.swp",
    "w/sub/target",
    "w/sub/target/deep",
    "w/sub/target/deep/f",
    "w/top",
    "w/own/d",
];
const NOT_EXCLUDED: [&str; 9] =
    ["w", "w/a", "w/keep.swp", "w/sub", "w/sub/top", "w/own", "w/own/c.swp", "outside.swp", "/"];

/// Patterns are those of gitignore: a name anywhere, a directory with everything in it, a path from the
/// directory of the policy, and patterns that a later one takes back. The nearest directory that says
/// anything decides; a file with several names is never excluded.
#[test]
fn who_is_excluded() {
    let volume = open(&device());
    volume.create_dir_all("/w/sub/target/deep").unwrap();
    volume.create_dir_all("/w/own").unwrap();
    for path in FILES {
        volume.write(path, path).unwrap();
    }
    let is = |path: &str| volume.view().policy_in_force(inode(&volume, path)).unwrap().excluded;
    assert!(!is("w/a.swp"));
    set(&volume, "/w", Some(&["*.swp", "!keep.swp", "target/", "/top"]), None);
    set(&volume, "/w/own", Some(&["d"]), None);
    let check = |yes: &[&str], no: &[&str]| {
        yes.iter().for_each(|path| assert!(is(path), "{path}"));
        no.iter().for_each(|path| assert!(!is(path), "{path}"));
    };
    check(&EXCLUDED, &NOT_EXCLUDED);
    // As in git, a pattern cannot take back what lies below an excluded directory.
    check(&["w/sub/target/keep.swp"], &[]);
    // Names and places change.
    volume.rename("w/a.swp", "w/a.txt").unwrap();
    volume.rename("w/sub/top", "w/sub/target/moved").unwrap();
    volume.rename("w/sub/target/deep", "w/deep").unwrap();
    check(&["w/sub/target/moved"], &["w/a.txt", "w/deep", "w/deep/f"]);
    volume.rename("w/sub", "w/target").unwrap();
    check(&["w/target", "w/target/target/moved"], &[]);
    volume.rename("w/target", "sub").unwrap();
    check(&[], &["sub", "sub/target/moved", "sub/b.swp"]);
    // A file with several names belongs to no single directory.
    volume.write("w/e.swp", "e").unwrap();
    check(&["w/e.swp"], &[]);
    volume.hard_link("w/e.swp", "w/e").unwrap();
    check(&[], &["w/e.swp"]);
    volume.remove_file("w/e").unwrap();
    // The inode does not remember the name that is left, until that name changes.
    check(&[], &["w/e.swp"]);
    volume.rename("w/e.swp", "w/f.swp").unwrap();
    check(&["w/f.swp"], &[]);
    volume.rename("w/f.swp", "w/e.swp").unwrap();
    // A file's own policy can say that the file is not excluded, and no more.
    let view = volume.view();
    let own = |patterns: &[&str]| {
        let exclude = Some(patterns.iter().map(|one| one.to_string()).collect());
        view.set_policy(inode(&volume, "w/e.swp"), &Policy { exclude, ..Policy::default() })
    };
    assert!(matches!(own(&["x"]), Err(Error::Invalid { .. })));
    own(&[]).unwrap();
    check(&[], &["w/e.swp"]);
    for wrong in ["[a", "#", "", "a{b"] {
        let exclude = Some(vec!["fine".to_string(), wrong.to_string()]);
        let refused = view.set_policy(inode(&volume, "/w"), &Policy { exclude, ..Policy::default() });
        assert!(
            matches!(&refused, Err(Error::Refused(why)) if why.contains(&format!("{wrong:?}"))),
            "{wrong}"
        );
    }
    let long = Policy { exclude: Some(vec!["x".repeat(600); 2]), ..Policy::default() };
    assert!(matches!(view.set_policy(inode(&volume, "/w"), &long), Err(Error::Refused(_))));
    set(&volume, "/w", None, None);
    check(&["w/own/d"], &["w/e.swp", "w/keep.swp"]);
    volume.close().unwrap();
}

/// An editor writes its swap file all the time: snapshots of an interval kept each state of it, and filled
/// the volume. Excluded, it takes no room. A snapshot that somebody takes shows it; a snapshot of an interval
/// shows nothing, and never the present content.
#[test]
fn intervals_make_no_versions_of_it() {
    let device = device();
    let volume = open(&device);
    volume.create_dir("d").unwrap();
    let big = |i: u32| format!("{i:07}\n").repeat(128 << 10);
    set(&volume, "/", Some(&["*.swp"]), None);
    volume.write("d/x.swp", big(0)).unwrap();
    volume.write("d/doc", "draft 0").unwrap();
    let asked = snapshot(&volume, "/");
    over(&volume, "d/x.swp", &big(1));
    let first = interval(&volume, "/");
    volume.sync().unwrap();
    let before = volume.statfs().history_data_blocks;
    for i in 2..22 {
        over(&volume, "d/x.swp", &big(i));
        over(&volume, "d/doc", &format!("draft {i}"));
        volume.sync().unwrap();
        interval(&volume, "/");
    }
    let taken = volume.statfs().history_data_blocks - before;
    assert!(taken < 256, "{taken} blocks; one version of the swap file is 256");
    let (events, root) = (volume.view().events().unwrap(), volume.view().root());
    let d = inode(&volume, "d");
    let last = events.last().unwrap().number;
    let seen = |volume: &Volume| {
        assert_eq!(then(volume, "d/x.swp", asked).unwrap(), big(0));
        assert_eq!(then(volume, "d/x.swp", first), None);
        assert_eq!(then(volume, "d/doc", first).unwrap(), "draft 0");
        assert_eq!(then(volume, "d/x.swp", last).unwrap(), big(21), "nothing has changed it since");
        assert_eq!(listed(volume, d, first), BTreeSet::from(["doc".to_string()]));
        assert_eq!(listed(volume, d, last).len(), 2);
    };
    seen(&volume);
    let at = events.iter().find(|event| event.number == first).unwrap().row.time;
    let found = volume.view().lookup_at(d, b"x.swp", &When::At(at)).and_then(|node| {
        let mut byte = [0];
        node.read(0, &mut byte).map(|_| ())
    });
    assert!(matches!(found, Err(Error::NotFound)), "{found:?}");
    volume.close().unwrap();
    let volume = open(&device);
    seen(&volume);
    // A removed file can be seen at the time that the list gives.
    over(&volume, "d/x.swp", "gone");
    volume.remove_file("d/x.swp").unwrap();
    interval(&volume, "/");
    let mut deleted = Vec::new();
    let each = &mut |one: yore_fs::Deleted| {
        deleted.push((String::from_utf8(one.path).unwrap(), one.last.event.number));
        ControlFlow::Continue(())
    };
    volume.view().deleted(root, true, each).unwrap();
    assert_eq!(deleted, [("d/x.swp".to_string(), asked)]);
    let mut states = Vec::new();
    let log = &mut |one: yore_fs::Logged| {
        states.push(one.first.map(|seen| seen.event.number));
        ControlFlow::Continue(())
    };
    volume.view().log(d, b"x.swp", log).unwrap();
    assert_eq!(states, [Some(asked)]);
    volume.close().unwrap();
}

/// A snapshot of an interval shows a build's directory only while nothing in it changes; files that are moved
/// out of it get versions from then on.
#[test]
fn what_moves_in_and_out() {
    let volume = open(&device());
    volume.create_dir_all("w/target").unwrap();
    volume.write("w/target/obj", "1").unwrap();
    volume.write("w/src", "1").unwrap();
    set(&volume, "/w", Some(&["target/"]), None);
    let first = interval(&volume, "/w");
    let w = |path: &str, event| {
        let view = volume.view().as_of(event);
        let mut at = inode(&volume, "/w");
        for name in path.split('/') {
            at = view.lookup(at, name.as_bytes()).ok()?.inode();
        }
        let mut bytes = vec![0; view.getattr(at).unwrap().size as usize];
        view.read(at, 0, &mut bytes).unwrap();
        Some(String::from_utf8(bytes).unwrap())
    };
    assert_eq!((w("target/obj", first), w("src", first)), (Some("1".into()), Some("1".into())));
    volume.rename("w/src", "w/target/src").unwrap();
    over(&volume, "w/target/src", "2");
    over(&volume, "w/target/obj", "2");
    assert_eq!((w("target/obj", first), w("src", first)), (None, Some("1".into())), "it had that name");
    let second = interval(&volume, "/w");
    volume.rename("w/target/obj", "w/obj").unwrap();
    let third = interval(&volume, "/w");
    over(&volume, "w/obj", "3");
    assert_eq!((w("target/obj", second), w("obj", third)), (None, Some("2".into())));
    volume.close().unwrap();
}

/// A pattern is given to a policy that has taken snapshots, and a directory is moved to where it is excluded.
/// What these snapshots have seen stays as it was, even if it is changed only after the volume was opened
/// again.
#[test]
fn what_begins_to_be_excluded_loses_nothing() {
    let device = device();
    let volume = open(&device);
    volume.create_dir_all("p/moving").unwrap();
    volume.create_dir_all("q/inner").unwrap();
    for path in ["p/x.swp", "p/moving/f", "q/inner/g"] {
        volume.write(path, "before").unwrap();
    }
    set(&volume, "/q", Some(&["target"]), None);
    let first = interval(&volume, "/");
    set(&volume, "/p", Some(&["*.swp"]), None);
    set(&volume, "/", Some(&["build/"]), Some(Versioning::Interval(HOUR)));
    let second = volume.view().events().unwrap().pop().unwrap().number;
    volume.rename("p/moving", "build").unwrap();
    // Excluded by the policy of the directory itself, and by another one above once that policy says nothing
    // more.
    volume.rename("q/inner", "q/build").unwrap();
    set(&volume, "/q", None, None);
    volume.close().unwrap();
    let volume = open(&device);
    for path in ["p/x.swp", "build/f", "q/build/g"] {
        assert!(volume.view().policy_in_force(inode(&volume, path)).unwrap().excluded, "{path}");
        over(&volume, path, "behind");
    }
    for event in [first, second] {
        for path in ["p/moving/f", "q/inner/g"] {
            assert_eq!(then(&volume, path, event).as_deref(), Some("before"), "{path} as of {event}");
        }
    }
    assert_eq!(then(&volume, "p/x.swp", first).as_deref(), Some("before"));
    let third = interval(&volume, "/");
    over(&volume, "build/f", "behin2");
    assert_eq!(then(&volume, "build/f", third), None);
    volume.close().unwrap();
}

/// If a directory's own policy says everything but patterns, those of a directory above it hold there, and
/// the answer shows them. It used to show none, although files were excluded.
#[test]
fn patterns_from_above_are_told() {
    let volume = open(&device());
    volume.create_dir_all("p").unwrap();
    volume.write("p/x.swp", "1").unwrap();
    set(&volume, "/", Some(&["*.swp"]), None);
    let retention = Some(yore_fs::Retention::Everything);
    let own = Policy { versioning: Some(Versioning::Close), retention, hold: Some(0), ..Policy::default() };
    volume.view().set_policy(inode(&volume, "p"), &own).unwrap();
    let found = volume.view().policy_in_force(inode(&volume, "p/x.swp")).unwrap();
    assert!(found.excluded);
    assert_eq!((found.exclude, found.exclude_by), (vec!["*.swp".to_string()], Some(InodeNo::ROOT)));
    volume.close().unwrap();
}

/// Closing an excluded file makes no version. An editor that saves through a temporary file makes a version
/// of the name under which it saves.
#[test]
fn closes_make_no_versions_of_it() {
    let volume = open(&device());
    set(&volume, "/", Some(&["*.tmp"]), Some(Versioning::Close));
    let view = volume.view();
    let files = || view.events().unwrap().iter().filter(|event| event.row.kind == EventKind::Close).count();
    volume.write("a.tmp", "1").unwrap();
    assert!(view.closed(inode(&volume, "a.tmp")).unwrap().is_none());
    assert_eq!(files(), 0);
    volume.write("doc", "1").unwrap();
    view.closed(inode(&volume, "doc")).unwrap();
    let before = files();
    volume.rename("a.tmp", "doc").unwrap();
    assert_eq!(files(), before + 1, "it is saved under its name");
    volume.write("b.tmp", "1").unwrap();
    let all = view.events().unwrap().len();
    volume.remove_file("b.tmp").unwrap();
    assert_eq!(view.events().unwrap().len(), all, "nobody asks when it was removed");
    volume.close().unwrap();
}

/// A machine stops when new data of an excluded file is on the medium, but nothing else of what was done
/// since. Its inode said that it was so when the interval's snapshot was taken, and showed as the past what
/// was written later.
#[test]
fn a_crash_shows_no_new_data_in_the_past() {
    let device = device();
    let volume = open(&device);
    set(&volume, "/", Some(&["*.swp"]), None);
    let text = |c: char| String::from(c).repeat(40_000);
    volume.write("x.swp", text('1')).unwrap();
    volume.write("y.swp", "y").unwrap();
    let event = interval(&volume, "/");
    volume.sync().unwrap();
    over(&volume, "x.swp", &text('2'));
    // Before the file takes the place of another one its data is written, over what was there.
    volume.rename("x.swp", "y.swp").unwrap();
    let stopped: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    let mut buffer = AlignedBuf::zeroed(256);
    for at in (0..64u64 << 20).step_by(1 << 20) {
        device.read_at(at, &mut buffer).unwrap();
        stopped.write_at(at, &buffer).unwrap();
    }
    let after = open(&stopped);
    let found = then(&after, "x.swp", event);
    assert!(found.is_none() || found == Some(text('1')), "{:?}", found.map(|text| text[..8].to_string()));
    after.close().unwrap();
    volume.close().unwrap();
}
