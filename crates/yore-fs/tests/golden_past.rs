//! Promise: the past that format 2.1 wrote can be read for ever. `golden/volume-2.1.blocks` is a volume of 32
//! MiB as a program of that format left it without closing it. It has snapshots and versions of files of many
//! kinds, policies, a directory that was rolled back, a forgotten event, an event whose forgetting had only
//! begun, a file whose expunging had only begun, and changes that are only in the log.
//! `golden/volume-2.1.txt` describes everything that can be seen of it. The tests read both as they are, then
//! go on using the volume and change it, and its past stays as it was.
//!
//! Neither file is ever made again: a program that cannot read them reads another format. They were made by
//! `cargo test -p yore-fs --test all golden_past::make_the_image -- --ignored`, which needs empty files
//! there.

use crate::golden::blocks;
use crate::golden::event;
use crate::golden::seen;

use blocks::unpack;
use seen::{begun, gist, left_open, make_files, no, options, read_only, same, text, tree, write};
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::Arc;
use yore_device::MemoryDevice;
use yore_fs::rollback::{Plan, Rights, Verb};
use yore_fs::{
    EventKind, EventNo, FallocateMode, InodeNo, MkfsOptions, NewSnapshot, Policy, RenameMode, Retention,
    RetentionRules, SetAttr, SetXattrMode, Versioning, View, Volume,
};

const IMAGE: &[u8] = include_bytes!("golden/volume-2.1.blocks");
const SEEN: &str = include_str!("golden/volume-2.1.txt");

/// The last event of the image, and the directory with an interval.
const LAST: EventNo = EventNo(18);
const TIMED: InodeNo = InodeNo(20);

// ---- making it ----

fn event(volume: &Volume, path: &str, name: &str, held: bool) -> EventNo {
    volume
        .view()
        .take_snapshot(no(volume, path), &NewSnapshot { held, ..NewSnapshot::named(name) })
        .unwrap()
        .number
}

fn make() -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(32 << 20));
    let mkfs = MkfsOptions { uuid: *b"the golden past.", label: "Yore 2.1".into(), ..MkfsOptions::default() };
    Volume::create(device.clone(), &mkfs).unwrap().close().unwrap();
    let volume = Volume::open(device.clone(), &options()).unwrap();
    with_files(&volume);
    with_snapshots(&volume);
    with_versions(&volume);
    with_rollback(&volume);
    with_something_begun(&volume);
    left_open(&device, volume)
}

/// Files of many kinds.
fn with_files(volume: &Volume) {
    let view = volume.view();
    for path in ["d", "d/sub", "saved", "timed", "many", "gone"] {
        volume.create_dir(path).unwrap();
    }
    volume.write("d/small", "small, at first").unwrap();
    volume.write("d/block", text(1, 4096)).unwrap();
    volume.write("d/large", text(2, 30_000)).unwrap();
    volume.write("d/replaced", "the one").unwrap();
    volume.write("d/sub/moved", "moved").unwrap();
    volume.symlink("small", "d/link").unwrap();
    volume.symlink("l".repeat(3000), "d/long link").unwrap();
    volume.hard_link("d/block", "many/second name").unwrap();
    write(volume, "d/large", 3 << 20, b"behind a hole");
    for i in 0..12 {
        // A tree of extents.
        write(volume, "d/large", (4 << 20) + i * 16_384, &text(i as usize, 100));
    }
    for i in 0..150 {
        volume.write(format!("many/file {i}"), format!("content {i}")).unwrap();
    }
    volume.write("gone/plain", "stays").unwrap();
    view.setxattr(no(volume, "d/small"), b"user.a", b"first", SetXattrMode::Any).unwrap();
    view.setxattr(no(volume, "d/block"), b"user.long", &text(3, 5000), SetXattrMode::Any).unwrap();
    view.sync().unwrap();
}

/// Snapshots of the whole volume and of a directory, and changes of many kinds between them.
fn with_snapshots(volume: &Volume) {
    let view = volume.view();
    event(volume, "/", "first", true);
    volume.write("gone/secret", "to be expunged").unwrap();
    volume.write("d/small", "small, changed").unwrap();
    write(volume, "d/block", 1000, b"overwritten");
    write(volume, "d/large", 10_000, &text(4, 8_000));
    view.fallocate(no(volume, "d/large"), 4 << 20, 100_000, FallocateMode::PunchHole).unwrap();
    volume.rename("d/sub/moved", "d/moved").unwrap();
    volume.remove_dir("d/sub").unwrap();
    volume.write("d/other", "the other").unwrap();
    view.rename(no(volume, "d"), b"other", no(volume, "d"), b"replaced", RenameMode::Replace).unwrap();
    view.setxattr(no(volume, "d/small"), b"user.a", b"second", SetXattrMode::Any).unwrap();
    view.removexattr(no(volume, "d/block"), b"user.long").unwrap();
    let set = SetAttr { permissions: Some(0o4750), uid: Some(7), gid: Some(8), ..SetAttr::default() };
    volume.set_symlink_attributes("d/small", &set).unwrap();
    event(volume, "/d", "of one directory", false);
    for i in (0..150).step_by(2) {
        volume.remove_file(format!("many/file {i}")).unwrap();
    }
    volume.truncate("d/large", 2 << 20).unwrap();
    volume.remove_file("d/link").unwrap();
    volume.remove_file("d/long link").unwrap();
    event(volume, "/", "", false);
    for i in 0..20 {
        volume.write(format!("many/file {i}"), format!("again {i}")).unwrap();
    }
}

/// Policies, and versions that one of them made.
fn with_versions(volume: &Volume) {
    let view = volume.view();
    let keep = RetentionRules { last: 10, daily: 7, within: "2weeks".into(), ..RetentionRules::default() };
    let policy = |versioning, retention| Policy { versioning, retention, ..Policy::default() };
    let close = policy(Some(Versioning::Close), Some(Retention::Rules(keep)));
    view.set_policy(no(volume, "saved"), &close).unwrap();
    view.set_policy(no(volume, "timed"), &policy(Some(Versioning::Interval(3_600_000_000_000)), None))
        .unwrap();
    view.set_policy(no(volume, "d/block"), &policy(None, Some(Retention::Everything))).unwrap();
    for i in 0..4 {
        volume.write("saved/letter", format!("saved {i}")).unwrap();
        view.closed(no(volume, "saved/letter")).unwrap();
    }
    volume.rename("saved/letter", "saved/sent").unwrap();
    volume.write("saved/gone", "with versions").unwrap();
    view.closed(no(volume, "saved/gone")).unwrap();
    volume.remove_file("saved/gone").unwrap();
}

/// An event that is forgotten, and a directory that is rolled back.
fn with_rollback(volume: &Volume) {
    let view = volume.view();
    let forgotten = event(volume, "/", "forgotten", false);
    volume.write("d/small", "small, seen by nobody").unwrap();
    let then = event(volume, "/d", "", false);
    volume.write("d/small", "small, a mistake").unwrap();
    volume.write("d/mistake", "a mistake").unwrap();
    view.forget(&[forgotten]).unwrap();
    view.finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
    let plan = Plan { verb: Verb::Rollback, of: None, target: then, others: None };
    view.rollback(&Rights::All, no(volume, "d"), &plan, &mut |_| ()).unwrap();
}

/// Begins to forget an event and to expunge a file, and does no more; and leaves a file only in the log.
fn with_something_begun(volume: &Volume) {
    let view = volume.view();
    let dying = event(volume, "/many", "dying", false);
    for i in (1..150).step_by(2) {
        volume.remove_file(format!("many/file {i}")).unwrap();
    }
    // In the image it is called `last`, which cannot be a name any more.
    event(volume, "/", "latest", false);
    let secret = volume.node("gone/secret").unwrap();
    let secret = (secret.inode(), secret.attr().incarnation);
    view.forget(&[dying]).unwrap();
    view.expunge(&[secret]).unwrap();
    view.sync().unwrap();
    volume.write("d/small", "in the log").unwrap();
    volume.write("logged", "in the log alone").unwrap();
    view.fsync(no(volume, "logged"), false).unwrap();
}

#[test]
#[ignore = "makes the image where there is none"]
fn make_the_image() {
    make_files("2.1", (IMAGE, SEEN), 2, make, seen);
}

// ---- what is seen ----

/// Describes events, what each has seen, and policies. An interval of the image ends an hour after the image
/// was made: opening it for writing then takes one event more.
fn past(view: &View) -> String {
    let mut out = String::new();
    for event in view.events().unwrap() {
        let row = &event.row;
        if event.number > LAST {
            assert_eq!((row.kind, row.root), (EventKind::Interval, TIMED));
            continue;
        }
        event::event(view, &event, &mut out);
    }
    for (inode, policy) in view.policies().unwrap() {
        let Policy { versioning, retention, .. } = &policy;
        assert!(!policy.is_extended(), "format 2.1 has no other fields");
        let says = format!("Policy {{ versioning: {versioning:?}, retention: {retention:?} }}");
        writeln!(out, "policy of {inode}: {says}").unwrap();
    }
    out
}

fn seen(view: &View) -> String {
    let mut out = past(view);
    out += "present\n";
    tree(view, view.root(), "", &mut out);
    out
}

/// The past that the text describes.
fn past_of_the_text() -> &'static str {
    &SEEN[..SEEN.find("present\n").unwrap()]
}

#[test]
fn the_past_is_read() {
    let device = unpack(IMAGE);
    assert_eq!(begun(&device), [EventKind::Snapshot, EventKind::Expunge]);
    let view = read_only(&device);
    assert_eq!(view.info().format.0, 2, "what a program of this format can use");
    same(&seen(&view), SEEN);
}

/// The test goes on using the volume. Begun tasks are finished, everything is seen as before, even after
/// changes and another opening, and all of it can be forgotten.
#[test]
fn the_past_is_taken_on() {
    let device = Arc::new(unpack(IMAGE));
    let view = View::open(device.clone(), &options()).unwrap();
    same(&seen(&view), SEEN);
    view.finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
    same(&seen(&view), SEEN);
    view.close().unwrap();
    let volume = Volume::open(device.clone(), &options()).unwrap();
    write(&volume, "d/large", 1 << 20, &text(9, 20_000));
    volume.remove_dir_all("many").unwrap();
    volume.rename("gone", "d/gone").unwrap();
    volume.write("new", "new").unwrap();
    volume.view().set_policy(no(&volume, "new"), &Policy::default()).unwrap();
    same(&past(volume.view()), past_of_the_text());
    volume.close().unwrap();
    same(&past(&read_only(&device)), past_of_the_text());

    let view = View::open(device, &options()).unwrap();
    let events = view.events().unwrap();
    for event in events.iter().filter(|event| event.row.held) {
        view.hold(event.number, false).unwrap();
    }
    let numbers: Vec<EventNo> = events.iter().map(|event| event.number).collect();
    view.forget(&numbers).unwrap();
    view.finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
    let left = view.statfs().history_data_blocks + view.statfs().history_metadata_blocks;
    assert_eq!((view.events().unwrap().len(), left), (0, 0));
    view.close().unwrap();
}

/// The code that made the image still makes a volume that looks the same.
#[test]
fn a_past_made_today_is_as_rich() {
    assert_eq!(gist(&seen(&read_only(&make())), &["event"]), gist(SEEN, &["event"]));
}
