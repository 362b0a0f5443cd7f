//! Events that are due, damage of single inodes, and clocks that are wrong.

use super::{held_until, let_go, take_due_events};
use crate::{
    Error, EventKind, EventNo, InodeNo, NewSnapshot, Policy, Retention, RetentionRules, Timestamp,
    Versioning, Volume,
};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;
use yore_core::inode::InodeCell;
use yore_format::{BlockKind, Expect, GroupNo, Inode};

/// Damages an inode that is in use, and takes it out of memory.
pub(crate) fn damage(volume: &Volume, cell: &InodeCell) {
    let store = volume.view().store();
    let frame = store.meta.read(cell.no.addr(), &Expect::volume(BlockKind::Inodes)).unwrap();
    let reserved = store.reserve_freely(GroupNo(0), 0).unwrap();
    let mut op = store.meta.begin(reserved);
    op.change(&frame, |page| {
        page.apply(|block| {
            let (slot, range) = Inode::slot_mut(block, cell.no.slot());
            slot.fill(0xff);
            range
        });
    });
    drop(op);
    store.inodes.remove(cell);
}

/// An error for one directory that was due left out all others that were due at the same time: they got no
/// event until something below them changed again.
#[test]
fn an_error_of_one_leaves_the_others_due() {
    let volume = Volume::memory(64 << 20).unwrap();
    let view = volume.view();
    let hourly = Versioning::Interval(3_600_000_000_000);
    let policy = Policy { versioning: Some(hourly), ..Policy::default() };
    let mut sound = BTreeSet::new();
    for i in 0..12 {
        let name = format!("d{i}");
        volume.create_dir(&name).unwrap();
        let no = volume.node(&name).unwrap().inode();
        view.set_policy(no, &policy).unwrap();
        sound.insert(no);
    }
    volume.write("damaged", "text").unwrap();
    volume.sync().unwrap();
    let store = view.store();
    let cell = store.cell(volume.node("damaged").unwrap().inode()).unwrap();
    damage(&volume, &cell);
    let before = view.events().unwrap().last().unwrap().number;
    for no in sound.iter().chain([&cell.no]) {
        store.due.put(*no, Duration::ZERO);
    }
    let failed = take_due_events(store);
    assert!(matches!(failed, Err(Error::Corruption(_))), "{failed:?}");
    let taken = view.events().unwrap().into_iter().filter(|event| event.number > before);
    let taken: Vec<(InodeNo, EventKind)> = taken.map(|event| (event.row.root, event.row.kind)).collect();
    assert!(taken.iter().all(|(_, kind)| *kind == EventKind::Interval), "{taken:?}");
    assert_eq!(taken.into_iter().map(|(root, _)| root).collect::<BTreeSet<_>>(), sound);
    let next = store.due.next().expect("the damaged one is due again");
    assert!(next > Duration::from_secs(1), "{next:?}");
}

fn at_close(retention: Option<Retention>) -> Policy {
    Policy { versioning: Some(Versioning::Close), retention, ..Policy::default() }
}

fn keep_last(last: u32) -> Retention {
    Retention::Rules(RetentionRules { last, ..RetentionRules::default() })
}

/// The kept events of a directory or file.
fn of(volume: &Volume, no: InodeNo) -> Vec<EventNo> {
    let events = volume.view().events().unwrap();
    events.into_iter().filter(|event| event.row.root == no).map(|event| event.number).collect()
}

/// Two files with three versions each, the first of which is damaged.
fn damaged_and_sound(volume: &Volume) -> [InodeNo; 2] {
    volume.view().set_policy(volume.view().root(), &at_close(None)).unwrap();
    for text in ["one", "two", "three"] {
        volume.write("damaged", text).unwrap();
        volume.write("sound", text).unwrap();
    }
    volume.sync().unwrap();
    let files = ["damaged", "sound"].map(|name| volume.node(name).unwrap().inode());
    let cell = volume.view().store().cell(files[0]).unwrap();
    damage(volume, &cell);
    files
}

/// One damaged inode of which there were versions ended each pass of the rules, so nothing on the volume was
/// let go any more. Its own versions stay now, and all others are judged.
#[test]
fn damage_of_one_stops_no_rules() {
    let volume = Volume::memory(64 << 20).unwrap();
    let view = volume.view();
    let [damaged, sound] = damaged_and_sound(&volume);
    let (all, last) = (of(&volume, damaged), of(&volume, sound)[2..].to_vec());
    assert_eq!(all.len(), 3);
    view.set_policy(view.root(), &at_close(Some(keep_last(1)))).unwrap();
    view.retain().unwrap();
    assert_eq!((of(&volume, damaged), of(&volume, sound)), (all, last));
}

/// One damaged inode kept what others had forgotten from giving back its room.
#[test]
fn damage_of_one_leaves_others_forgotten() {
    let volume = Volume::memory(64 << 20).unwrap();
    let view = volume.view();
    let [damaged, sound] = damaged_and_sound(&volume).map(|no| of(&volume, no));
    view.forget(&[damaged.clone(), sound].concat()).unwrap();
    let done = view.finish_forgetting(&mut |_| ControlFlow::Continue(()));
    assert!(matches!(done, Ok(_) | Err(Error::Corruption(_))), "{done:?}");
    let dying = view.store().past.dying();
    assert!(dying.iter().all(|event| damaged.contains(event)), "{dying:?}, of {damaged:?}");
}

/// A clock had been ahead by years and was put right: all that was taken since had nearly the same time, so
/// the rules kept one of all of it, and let go what is older than the wrong time. What has a time that has
/// not come yet stays; the rest is judged as if that were not there.
#[test]
fn times_that_have_not_come_are_not_judged() {
    let volume = Volume::memory(64 << 20).unwrap();
    let view = volume.view();
    // The clock that is right says that it is 2011.
    let now = Timestamp { seconds: 1_300_010_000, nanos: 0 };
    for seconds in [1_300_000_000, 1_300_000_100, 1_300_003_000] {
        let new = NewSnapshot { time: Some(Timestamp { seconds, nanos: 0 }), ..NewSnapshot::default() };
        view.take_snapshot(view.root(), &new).unwrap();
    }
    for _ in 0..5 {
        view.take_snapshot(view.root(), &NewSnapshot::default()).unwrap();
    }
    // A thread applies the policy, too; this is what there was before.
    let events = view.events().unwrap();
    let root = (view.root(), events[0].row.root_incarnation);
    let numbers: Vec<EventNo> = events.iter().map(|event| event.number).collect();
    let rules = RetentionRules { within: "1h".into(), hourly: 1, ..RetentionRules::default() };
    let policy = Policy { retention: Some(Retention::Rules(rules)), ..Policy::default() };
    view.set_policy(view.root(), &policy).unwrap();
    let goes = |now| {
        let goes = let_go(view.store(), root, events.clone(), (now, &jiff::tz::TimeZone::UTC)).unwrap();
        goes.versions
    };
    assert!(goes(now).is_empty(), "all three are within an hour of the last");
    let earlier = Timestamp { seconds: 1_200_000_000, nanos: 0 };
    assert!(goes(earlier).is_empty(), "nothing has a time that has come");
    let later = Timestamp { seconds: crate::clock::now().seconds + 60, nanos: 0 };
    assert_eq!(goes(later), numbers[..3], "when the times have come they count");
}

/// A hold that was counted from a clock that had lost its time ended when the clock was put right. It counts
/// from the last event, if the clock is behind that, and no part of its last second is missing.
#[test]
fn a_hold_is_not_shorter_than_promised() {
    let at = |seconds, nanos| Timestamp { seconds, nanos };
    const HOUR: u64 = 3_600_000_000_000;
    let none = at(i64::MIN, 0);
    assert_eq!(held_until(HOUR, at(1000, 0), none), 4600);
    assert_eq!(held_until(HOUR, at(1000, 1), none), 4601);
    assert_eq!(held_until(HOUR, at(1000, 0), at(900, 5)), 4600);
    assert_eq!(held_until(HOUR, at(1000, 0), at(1_800_000_000, 0)), 1_800_003_600);
    assert_eq!(held_until(u64::MAX, at(i64::MAX, 0), none), i64::MAX);
}
