//! Promise: what format 2.2 added can be read for ever. `golden/volume-2.2.blocks` is a volume as a program
//! of that format left it without closing it. It became shorter and longer. Its snapshots say who took them,
//! what they are, and why and until when they are held; two of them have the same name. Its files have flags;
//! it has rules for a full volume, and rows of operations. One snapshot is half forgotten, and some changes
//! are only in the log. `golden/volume-2.2.txt` describes everything that can be seen of it. The test reads
//! the image as it is, then uses it, makes it longer and shorter, and gives up all its history.
//!
//! Neither file is ever made again: a program that cannot read them reads another format. They were made by
//! `cargo test -p yore-fs --test all golden_extended::make_the_image -- --ignored`, which needs empty files
//! there.

use crate::golden::blocks;
use crate::golden::seen;

use blocks::unpack;
use seen::{begun, gist, left_open, make_files, no, options, read_only, same, text, tree, tree_of, write};
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::Arc;
use yore_device::MemoryDevice;
use yore_fs::rollback::{Plan, Rights, Verb};
use yore_fs::{
    Doing, Error, EventKind, EventNo, FallocateMode, InodeFlags, MkfsOptions, NewSnapshot, OperationKind,
    OperationRow, Policy, Retention, RetentionRules, RowClass, SpaceRules, User, Versioning, View, Volume,
};

const IMAGE: &[u8] = include_bytes!("golden/volume-2.2.blocks");
const SEEN: &str = include_str!("golden/volume-2.2.txt");

const MIB: u64 = 1 << 20;
/// The length of the device; the volume is shorter.
const DEVICE: u64 = 64 * MIB;
/// How long the volume is at the end.
const LENGTH: u64 = 40 * MIB;
const RULES: SpaceRules = SpaceRules { floor_seconds: 86_400, share_percent: 40 };
const ROOT: User = User { uid: 0, limits: None };
const OWNER: User = User { uid: 7, limits: None };
/// A hold for a hundred years is in force whenever the test runs; a hold for a second never is.
const LONG: u64 = 100 * 365 * 86_400 * 1_000_000_000;
const SHORT: u64 = 1_000_000_000;

// ---- making it ----

fn set_flags(volume: &Volume, path: &str, flags: InodeFlags) {
    volume.view().set_flags(no(volume, path), flags).unwrap();
}

/// Takes a snapshot with all its texts, and records who took it.
fn take(volume: &Volume, path: &str, new: &NewSnapshot<'_>) -> EventNo {
    let view = volume.view();
    let event = view.take_snapshot(no(volume, path), new).unwrap();
    let doing = Doing { view, uid: new.user.map_or(0, |user| user.uid) };
    doing.note(doing.taking(&event).unwrap());
    event.number
}

fn with_policy(volume: &Volume, path: &str, hold: Option<u64>) {
    let view = volume.view();
    let keep = RetentionRules { last: 1000, ..RetentionRules::default() };
    let policy = Policy {
        versioning: Some(Versioning::Close),
        retention: Some(Retention::Rules(keep)),
        hold,
        ..Policy::default()
    };
    let doing = Doing { view, uid: 0 };
    doing.note([doing.setting(no(volume, path), &policy).unwrap()]);
    view.set_policy_for(&ROOT, no(volume, path), &policy).unwrap();
}

fn save(volume: &Volume, path: &str, text: &str) {
    volume.write(path, text).unwrap();
    volume.view().closed(no(volume, path)).unwrap();
}

/// Files and directories with flags, some of which change afterwards.
fn with_flags(volume: &Volume) {
    for (path, flags) in [
        ("flags/immutable", InodeFlags::IMMUTABLE),
        ("flags/log", InodeFlags::APPEND_ONLY),
        ("flags/scratch", InodeFlags::NO_ACCESS_TIMES | InodeFlags::NO_DUMP),
        ("flags/all", InodeFlags::CHOSEN),
    ] {
        volume.write(path, format!("{path}, at first")).unwrap();
        set_flags(volume, path, flags);
    }
    volume.write("flags/sub/inside", "inside").unwrap();
    set_flags(volume, "flags/sub", InodeFlags::APPEND_ONLY);
    let new = NewSnapshot { name: "flagged", description: "with flags", ..NewSnapshot::default() };
    take(volume, "flags", &new);
    volume.append("flags/log", ", and more").unwrap();
    set_flags(volume, "flags/immutable", InodeFlags::empty());
    set_flags(volume, "flags/scratch", InodeFlags::IMMUTABLE);
    volume.write("flags/immutable", "changed").unwrap();
}

/// Snapshots with all kinds of texts.
fn with_texts(volume: &Volume) {
    let view = volume.view();
    let held = NewSnapshot {
        name: "step-1",
        description: "before the migration: \u{fc}ber alles",
        held: true,
        hold_reason: "the auditors want it",
        user: Some(&OWNER),
        ..NewSnapshot::default()
    };
    take(volume, "one", &held);
    write(volume, "one/large", 5000, &text(5, 9000));
    let same_name = NewSnapshot { name: "step-1", user: Some(&ROOT), ..NewSnapshot::default() };
    let event = take(volume, "two", &same_name);
    view.hold_because(Some(&OWNER), event, true, "r".repeat(255).as_str()).unwrap();
    let renamed = take(volume, "one", &NewSnapshot { name: "old", ..NewSnapshot::default() });
    let was = view.kept_event(renamed).unwrap();
    view.describe(renamed, Some("new"), Some("d".repeat(512).as_str())).unwrap();
    let doing = Doing { view, uid: 7 };
    doing.note([
        doing.holding(&view.kept_event(event).unwrap(), Some("a reason")).unwrap(),
        doing.renaming(&was, Some("new")).unwrap(),
        doing.expunging(no(volume, "one"), 3).unwrap(),
    ]);
    doing.note(doing.forgetting(&[event, renamed]).unwrap());
    let given_up = OperationRow {
        time: was.row.time,
        kind: OperationKind::GaveUp,
        uid: 7,
        first: event,
        last: renamed,
        count: 2,
        bytes: 123_456,
        path: b"one/\xff".to_vec(),
        note: "needed by one/large".into(),
    };
    view.note_operation(RowClass::GivenUp, &given_up).unwrap();
}

fn make() -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(DEVICE));
    let mkfs = MkfsOptions { uuid: *b"golden, extended", label: "Yore 2.2".into(), ..MkfsOptions::default() };
    Volume::create(device.clone(), &mkfs).unwrap().close().unwrap();
    let volume = Volume::open(device.clone(), &options()).unwrap();
    let view = volume.view();
    for path in ["one", "two", "flags", "flags/sub", "locked", "brief", "many"] {
        volume.create_dir(path).unwrap();
    }
    volume.write("one/large", text(1, 30_000)).unwrap();
    volume.write("two/small", "small").unwrap();
    view.set_space_rules(RULES).unwrap();
    with_texts(&volume);
    with_flags(&volume);

    with_policy(&volume, "locked", Some(LONG));
    with_policy(&volume, "brief", Some(SHORT));
    with_policy(&volume, "two", Some(0));
    for n in 0..3 {
        save(&volume, "locked/letter", &format!("locked {n}"));
        save(&volume, "brief/letter", &format!("brief {n}"));
        save(&volume, "two/letter", &format!("two {n}"));
    }
    with_policy(&volume, "brief", None);

    // The volume becomes shorter, although data lies at its end, and then longer by a part of that.
    view.fallocate(no(&volume, "one/large"), MIB, 34 * MIB, FallocateMode::Allocate { keep_size: false })
        .unwrap();
    volume.write("moves", text(6, 10_000)).unwrap();
    volume.truncate("one/large", 30_000).unwrap();
    view.sync().unwrap();
    for length in [32 * MIB, LENGTH] {
        let before = view.info().size;
        assert!(match length < before {
            true => view.shorten(length, &mut |_, _| ()).unwrap(),
            false => view.lengthen(length).unwrap(),
        });
        let doing = Doing { view, uid: 0 };
        doing.note([doing.resizing(before).unwrap()]);
    }

    // A directory was rolled back, and an event is half forgotten.
    let then = take(&volume, "one", &NewSnapshot::default());
    volume.write("one/mistake", "a mistake").unwrap();
    let plan = Plan { verb: Verb::Rollback, of: None, target: then, others: None };
    let done = view.rollback(&Rights::All, no(&volume, "one"), &plan, &mut |_| ()).unwrap();
    let doing = Doing { view, uid: 0 };
    doing.note(doing.rolling(no(&volume, "one"), &done.name).unwrap());
    for n in 0..60 {
        volume.write(format!("many/{n}"), "seen by one").unwrap();
    }
    let dying = take(&volume, "many", &NewSnapshot { name: "dying", ..NewSnapshot::default() });
    for n in 0..60 {
        volume.remove_file(format!("many/{n}")).unwrap();
    }
    view.sync().unwrap();
    view.forget(&[dying]).unwrap();
    view.sync().unwrap();
    volume.rename("one/large", "one/renamed").unwrap();
    volume.write("logged", "in the log alone").unwrap();
    view.fsync(no(&volume, "logged"), false).unwrap();
    left_open(&device, volume)
}

#[test]
#[ignore = "makes the image where there is none"]
fn make_the_image() {
    make_files("2.2", (IMAGE, SEEN), 1, make, seen);
}

// ---- what is seen ----

/// Describes events, what each has seen, policies, and who did what.
fn past(view: &View) -> String {
    let mut out = String::new();
    for event in view.events().unwrap() {
        let (row, more) = (&event.row, &event.row.more);
        let time = (row.time.seconds, row.time.nanos);
        writeln!(out, "event {} {:?} {:?} of {} at {time:?}", event.number, row.kind, row.name, row.root)
            .unwrap();
        let (by, held_by, until) = (more.by, more.held_by, more.held_until);
        writeln!(out, "  by {by:?}, held {} by {held_by:?} until {until:?}", row.held).unwrap();
        writeln!(out, "  {:?}, {:?}", more.description, more.hold_reason).unwrap();
        tree_of(view, &event, &mut out);
    }
    for (inode, policy) in view.policies().unwrap() {
        let Policy { versioning, retention, hold, exclude } = &policy;
        assert_eq!(*exclude, None, "the image has none");
        writeln!(out, "policy of {inode}: {versioning:?}, {retention:?}, hold {hold:?}").unwrap();
    }
    for class in [RowClass::GivenUp, RowClass::Done] {
        for (sequence, row) in view.operations(class).unwrap() {
            writeln!(out, "{class:?} {sequence}: {row:?}").unwrap();
        }
    }
    out
}

fn seen(view: &View) -> String {
    let mut out = past(view);
    writeln!(out, "{:?}\npresent", view.space_rules()).unwrap();
    tree(view, view.root(), "", &mut out);
    out
}

/// The past that the text describes.
fn past_of_the_text() -> &'static str {
    &SEEN[..SEEN.find("SpaceRules {").unwrap()]
}

#[test]
fn what_was_added_is_read() {
    let device = unpack(IMAGE);
    assert_eq!(begun(&device), [EventKind::Snapshot]);
    let view = read_only(&device);
    let info = view.info();
    assert_eq!((info.format.0, info.size, info.label.as_str()), (2, LENGTH, "Yore 2.2"));
    assert_eq!(view.space_rules(), RULES);
    same(&seen(&view), SEEN);
}

/// The test goes on using the volume, and its rules are in force: flags, holds of policies and of people,
/// names. The volume becomes longer and shorter, and its past stays as it was, until the test gives up all
/// history and removes all files.
#[test]
fn what_was_added_is_used_and_given_up() {
    let device = Arc::new(unpack(IMAGE));
    let volume = Volume::open(device.clone(), &options()).unwrap();
    let view = volume.view();
    same(&seen(view), SEEN);
    view.finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
    same(&seen(view), SEEN);

    for path in ["flags/scratch", "flags/all", "flags/log"] {
        assert!(is_forbidden(volume.write(path, "other")), "{path}");
    }
    assert!(is_forbidden(volume.remove_file("flags/sub/inside")));
    volume.write("flags/sub/new", "new").unwrap();
    let step = NewSnapshot { name: "step-1", ..NewSnapshot::default() };
    assert!(matches!(view.take_snapshot(no(&volume, "one"), &step), Err(Error::Exists)));
    same(&past(view), past_of_the_text());
    assert!(view.lengthen(DEVICE).unwrap());
    volume.write("fills", text(7, 1_000_000)).unwrap();
    volume.remove_file("fills").unwrap();
    view.sync().unwrap();
    assert!(view.shorten(32 * MIB, &mut |_, _| ()).unwrap());
    same(&past(view), past_of_the_text());
    volume.close().unwrap();
    let found = read_only(&device);
    same(&past(&found), past_of_the_text());
    assert_eq!((found.info().size, found.space_rules()), (32 * MIB, RULES));

    let volume = Volume::open(device.clone(), &options()).unwrap();
    give_up(volume.view());
    empty(&volume);
    volume.close().unwrap();
    let volume = Volume::open(device, &options()).unwrap();
    assert_eq!(volume.read_dir("/").unwrap().count(), 0);
    let now = volume.statfs();
    assert_eq!((now.history_data_blocks, now.history_metadata_blocks), (0, 0));
    volume.close().unwrap();
}

fn is_forbidden(result: yore_fs::Result<()>) -> bool {
    result.is_err_and(|error| matches!(error.root(), Error::NotPermitted { .. }))
}

/// Releases and forgets all events that it can.
fn give_up(view: &View) {
    let events = view.events().unwrap();
    for event in &events {
        let more = &event.row.more;
        // The hold has ended by now, or lasts longer than anybody waits.
        let locked = more.held_until.is_some_and(|until| until - event.row.time.seconds > 1000);
        match view.forget(&[event.number]) {
            Err(Error::HeldUntil { .. }) if locked => view.hold_for(&ROOT, event.number, false).unwrap(),
            Err(Error::Held { .. }) if event.row.held => view.hold(event.number, false).unwrap(),
            Ok(()) => assert!(!locked && !event.row.held),
            other => panic!("{event:?}: {other:?}"),
        }
    }
    let left: Vec<EventNo> = view.events().unwrap().iter().map(|event| event.number).collect();
    assert!(left.len() >= 5, "some were held");
    view.forget(&left).unwrap();
    view.finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(view.events().unwrap().len(), 0);
}

/// Removes all files, and the flags and policies that protect them.
fn empty(volume: &Volume) {
    for entry in volume.walk("/") {
        let node = entry.unwrap().metadata().attr().inode;
        if !volume.view().getattr(node).unwrap().flags.is_empty() {
            volume.view().set_flags(node, InodeFlags::empty()).unwrap();
        }
    }
    for (inode, _) in volume.view().policies().unwrap() {
        volume.view().set_policy_for(&ROOT, inode, &Policy::default()).unwrap();
    }
    for path in ["one", "two", "flags", "locked", "brief", "many"] {
        volume.remove_dir_all(path).unwrap();
    }
    for path in ["moves", "logged"] {
        volume.remove_file(path).unwrap();
    }
}

/// The code that made the image still makes a volume that looks the same.
#[test]
fn an_image_made_today_is_as_rich() {
    let starts = ["event", "Done"];
    assert_eq!(gist(&seen(&read_only(&make())), &starts), gist(SEEN, &starts));
}
