//! Batches of events that a full volume gives up.

use super::*;
use crate::{NewSnapshot, SpaceRules, Volume};

/// On a full volume with a million versions, each 256 that went were chosen by reading all of them anew, four
/// times. Now the second batch begins where the first one ended, and each event is asked again when its turn
/// comes: what was named, held or forgotten since the first batch does not go.
#[test]
fn batches_follow_one_another() {
    let volume = Volume::memory(64 << 20).unwrap();
    let view = volume.view();
    view.set_space_rules(SpaceRules { floor_seconds: 0, share_percent: 50 }).unwrap();
    let take = || view.take_snapshot(view.root(), &NewSnapshot::default()).unwrap().number;
    let taken: Vec<EventNo> = (0..2 * EVENTS + 100).map(|_| take()).collect();
    let store = view.store();
    let rule = Rule::new(store, Behalf::Owner);
    let mut plan = Plan::new(store, &rule).unwrap();
    let mut next = || -> Vec<EventNo> {
        plan.next_batch(u64::MAX).unwrap().into_iter().map(|event| event.number).collect()
    };
    assert_eq!(next(), taken[..EVENTS]);
    let [named, held, forgotten] = [EVENTS + 10, EVENTS + 11, 2 * EVENTS + 20].map(|at| taken[at]);
    view.describe(named, Some("named"), None).unwrap();
    view.hold(held, true).unwrap();
    view.forget(&[forgotten]).unwrap();
    take();
    let left: Vec<EventNo> =
        taken[EVENTS..].iter().copied().filter(|event| ![named, held, forgotten].contains(event)).collect();
    let (second, third) = left.split_at(EVENTS);
    assert_eq!(next(), second);
    assert_eq!(next(), third);
    assert!(next().is_empty());
}

/// However many events may go, few batches are enough for all of them.
#[test]
fn a_batch_grows_with_what_may_go() {
    assert_eq!(most_events(0), EVENTS);
    assert_eq!(most_events(10_000), EVENTS);
    for many in [1_000_000, 30_000_000] {
        assert!(many / most_events(many) <= BATCHES, "{many}");
    }
}
