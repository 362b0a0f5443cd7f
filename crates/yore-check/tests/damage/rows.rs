//! Promises about rows of the past that contradict each other: what cannot be right is given up and named,
//! or put right, and all else of the past is kept.

use super::common::past::*;
use super::past_damage::*;
use super::repaired::*;
use super::*;
use yore_check::{plan_repair, Plan};

/// Plants what a story tells on the volume with a past.
fn planted(story: &str) -> MemoryDevice {
    let all = [PAST_TREES, EVENTS, VERSIONS, PAST_NAMES, POLICIES, SHARING].into_iter().flatten();
    let (_, _, plant) = all.clone().find(|(told, ..)| *told == story).expect("the story is planted");
    let mut b = common::past::past();
    plant(&mut b);
    b.finish()
}

fn lost<'p>(plan: &'p Plan<'_>) -> Vec<(&'p str, &'p str)> {
    plan.lost.iter().map(|loss| (&loss.path[..], &loss.what[..])).collect()
}

/// Promises for each contradiction of rows that a repair succeeds without giving up the past, that at most
/// two rows go, and that each is named.
#[test]
fn only_what_cannot_be_right_is_given_up() {
    for (volume, plants) in volumes() {
        for (story, problems, plant) in plants {
            let is_of_rows = !problems.is_empty() && problems.iter().all(|p| p.class() == Class::History);
            if !is_of_rows {
                continue;
            }
            let mut b = volume();
            plant(&mut b);
            let device = b.finish();
            let plan = plan(&device);
            assert!(plan.is_complete(), "{story}: {}", plan.after);
            let (before, after) = (plan.before.counts, plan.after.counts);
            let of = |counts: &yore_check::Counts| {
                counts.versions + counts.past_names + counts.events + counts.forgotten
            };
            let gone = of(&before) - of(&after);
            assert!(gone <= 2, "{story}: {gone} rows are gone: {:?}", plan.lost);
            assert!(
                plan.lost.len() as u64 >= gone,
                "{story}: {gone} rows are gone, named are {:?}",
                plan.lost
            );
            assert_eq!((before.inodes, before.entries), (after.inodes, after.entries), "{story}");
        }
    }
}

/// Promises that a version that overlaps another is named by its path and the time at which it was so.
#[test]
fn a_version_is_named_by_path_and_time() {
    let device = planted("versions overlap");
    let plan = plan(&device);
    let [(path, what)] = lost(&plan)[..] else { panic!("{:?}", plan.lost) };
    assert!(path.starts_with("/directory@1970-01-01T00:00:") && path.ends_with('Z'), "{path}");
    assert!(what.contains("contradicts"), "{what}");
}

/// Promises that what a version says of itself is set to what it holds, and that nothing is lost by it.
#[test]
fn a_version_is_put_right_where_it_says_what_it_does_not_hold() {
    for story in [
        "a version's count of blocks",
        "the count of blocks of a version that shares nodes",
        "a version's size",
        "a version's flags",
        "a device number on a version of a file",
    ] {
        let device = planted(story);
        let plan = plan(&device);
        assert!(plan.is_complete() && plan.lost.is_empty(), "{story}: {:?} {}", plan.lost, plan.after);
        assert_eq!(plan.before.counts.versions, plan.after.counts.versions, "{story}");
    }
}

/// Promises that rows in the tree of another shard are moved, and none is lost.
#[test]
fn rows_are_moved_to_their_shards() {
    for story in ["a version in another shard", "a past name in another shard"] {
        let device = planted(story);
        let plan = plan(&device);
        assert!(plan.is_complete() && plan.lost.is_empty(), "{story}: {:?} {}", plan.lost, plan.after);
        let (before, after) = (plan.before.counts, plan.after.counts);
        assert_eq!((before.versions, before.past_names), (after.versions, after.past_names), "{story}");
    }
}

/// Promises that events stay whose times or names contradict, and that what has changed of them is said.
#[test]
fn events_stay_under_another_time_or_name() {
    for (story, said) in [
        ("an event earlier than the one before it", "its time cannot be"),
        ("an event at the time of the one before it", "its time cannot be"),
        ("two kept events of one name", "this one is called \"first-7\" now"),
    ] {
        let device = planted(story);
        let plan = plan(&device);
        let [(path, what)] = lost(&plan)[..] else { panic!("{story}: {:?}", plan.lost) };
        assert!(path.starts_with('/') && path.contains('@') && what.contains(said), "{story}: {path} {what}");
        assert_eq!(plan.before.counts.events, plan.after.counts.events, "{story}");
    }
}

/// Promises that many versions of one inode that contradict each other, and damaged names beside them, do
/// not take the whole past, nor keep a repair from its end.
#[test]
fn several_contradictions_go_one_after_the_other() {
    let mut b = common::past::past();
    let again = Inode { born: EventNo(4), ..b.was(DIRECTORY, 1).clone() };
    b.version(DIRECTORY, 5, again);
    b.past.names[0].value[0] = 5;
    b.past.events.get_mut(&7).unwrap().time.seconds = -1;
    b.was(GONE, 4).blocks += 1;
    let device = b.finish();
    let plan = plan_repair(&device, &CheckOptions::default()).unwrap();
    assert!(plan.is_complete(), "{}", plan.after);
    assert!(plan.lost.iter().all(|loss| loss.path != "the past"), "{:?}", plan.lost);
    assert_eq!(plan.before.counts.events, plan.after.counts.events);
    assert_eq!(plan.before.counts.versions, plan.after.counts.versions + 1, "{:?}", plan.lost);
}
