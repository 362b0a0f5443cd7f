//! The order of changes, proved without an engine (docs/EDGES.md, "The judge").
//!
//! `EDGE_STATES=n` judges n states of each sequence, `EDGE_SEED=n` other ones.

use yore_crash::edges::{demanded, record, sequences};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Every state that an ordered engine may leave is sound but for what such an engine may leave.
#[test]
fn every_closed_set_of_changes_is_a_sound_volume() {
    let (states, seed) = (number("EDGE_STATES").unwrap_or(100) as usize, number("EDGE_SEED").unwrap_or(1));
    let mut wrong = Vec::new();
    for name in sequences() {
        let recorded = record(name).unwrap_or_else(|wrong| panic!("{name}: {}", wrong.message));
        match recorded.judge(states, seed) {
            Ok(judged) => println!("{name}: {} changes, {judged} states", recorded.changes()),
            Err(error) => wrong.push(error.message),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Without one kind of edges some state is wrong.
#[test]
fn every_kind_of_edge_is_missed() {
    let mut left: Vec<_> = demanded().collect();
    for name in sequences() {
        let mut recorded = record(name).unwrap_or_else(|wrong| panic!("{name}: {}", wrong.message));
        left.retain(|kind| !recorded.misses(*kind, 12));
    }
    assert!(left.is_empty(), "nobody misses these kinds of edges: {left:?}");
}
