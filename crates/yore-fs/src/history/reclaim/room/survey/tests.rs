//! One walk answers what would free more, for all reasons. The answer is the same as with one walk for each.

use super::*;
use crate::{NewSnapshot, PinnedBy, Volume};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The previous way to count: a walk for each reason.
fn one_by_one(store: &Arc<Store>, behalf: Behalf) -> WouldFree {
    let rule = Rule::new(store, behalf);
    let sorted = rule.sort().unwrap();
    let now = most(store, &rule, Budget::All).unwrap().data;
    let mut why: HashMap<EventNo, Option<Stays>> =
        sorted.young.iter().map(|event| (event.number, None)).collect();
    why.extend(sorted.stay.iter().map(|(event, why)| (event.number, Some(*why))));
    let mut reasons: Vec<Option<Stays>> = why.values().copied().collect();
    reasons.sort_unstable();
    reasons.dedup();
    let of = |reason: Option<Stays>| {
        let count = why.values().filter(|other| **other == reason).count() as u64;
        let stays = |event: &Event| why.get(&event.number).is_some_and(|other| *other != reason);
        let freed = freed(store, Needed::of(store, stays).unwrap(), Budget::All).unwrap();
        (reason, count, freed.saturating_sub(now))
    };
    WouldFree { by_itself: now, more: reasons.into_iter().map(of).collect() }
}

/// On a volume with much history, `yore info` walked over all of it once for each reason why something stays.
/// Now one walk gives the same answer, for random histories with snapshots of several directories that are
/// held, named, pinned or none of these.
#[test]
fn one_walk_for_all_reasons() {
    let mut reasons = 0;
    for seed in 0..6 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let volume = Volume::memory(64 << 20).unwrap();
        let view = volume.view();
        let directories = ["", "a/", "a/b/", "c/"];
        volume.create_dir_all("a/b").unwrap();
        volume.create_dir("c").unwrap();
        let mut pins = Vec::new();
        for step in 0..150 {
            let mut path = || {
                let directory = directories[random.random_range(0..directories.len())];
                format!("{directory}{}", random.random_range(0..8))
            };
            let (path, other) = (path(), path());
            match random.random_range(0..10) {
                0..=4 => {
                    let content = vec![step as u8; random.random_range(1..60_000)];
                    volume.write(&path, content).unwrap();
                }
                5 => drop(volume.remove_file(&path)),
                6 => drop(volume.rename(&path, &other)),
                _ => {
                    let directory = directories[random.random_range(0..directories.len())];
                    let root = volume.node(format!("/{directory}")).unwrap().inode();
                    let kind = random.random_range(0..4);
                    let name = if kind == 0 { format!("named-{step}") } else { String::new() };
                    let event = view
                        .take_snapshot(root, &NewSnapshot { held: kind == 1, ..NewSnapshot::named(&name) })
                        .unwrap();
                    if kind == 2 {
                        pins.push(view.pin(event.number, PinnedBy::Mount).unwrap());
                    }
                }
            }
        }
        view.sync().unwrap();
        for behalf in [Behalf::Owner, Behalf::User(7)] {
            let found = what_would_free(view.store(), behalf).unwrap();
            assert_eq!(found, one_by_one(view.store(), behalf), "{seed}");
            reasons += found.more.iter().filter(|(_, _, blocks)| *blocks > 0).count();
        }
    }
    assert!(reasons > 10, "{reasons}");
}
