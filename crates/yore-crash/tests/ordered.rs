//! The engines that order changes leave what the order lets them leave, wherever the power fails
//! (docs/EDGES.md, docs/ENGINES.md).
//!
//! `ORDERED_STATES=n` tries n states of each sequence, `ORDERED_SEED=n` other ones, `ORDERED_NAME=name` one
//! sequence.

use yore_crash::edges::crashes::{run, Run, Tried};
use yore_crash::edges::sequences;
use yore_crash::volume::Wrong;
use yore_fs::Engine;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn every_crash_under(
    engine: Engine,
    states: usize,
    tries: impl Fn(&Run, usize, u64) -> Result<Tried, Wrong>,
) {
    let (states, seed) =
        (number("ORDERED_STATES").map_or(states, |n| n as usize), number("ORDERED_SEED").unwrap_or(1));
    let only = std::env::var("ORDERED_NAME").ok();
    let (mut wrong, mut tried, mut tolerated) = (Vec::new(), 0, 0);
    for name in sequences().into_iter().filter(|name| only.as_ref().is_none_or(|only| only == name)) {
        let outcome = run(name, engine, seed).and_then(|run| tries(&run, states, seed));
        match outcome {
            Ok(found) => {
                tried += found.states;
                tolerated += found.tolerated;
            }
            Err(error) => wrong.push(format!("{name}: [{}] {}", error.class, error.message)),
        }
    }
    println!("{tried} states under {}, with {tolerated} findings that may be left", engine.name());
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn every_crash_under_soft_updates_leaves_what_was_promised() {
    every_crash_under(Engine::SoftUpdates, 60, Run::try_states);
}

#[test]
fn every_crash_under_sync_leaves_what_was_promised() {
    every_crash_under(Engine::Sync, 60, Run::try_states);
}

/// What a crash has left is put right while the volume is in use, beside work, and the volume says so.
#[test]
fn every_crash_is_recounted() {
    every_crash_under(Engine::SoftUpdates, 16, Run::try_recounts);
    every_crash_under(Engine::Sync, 6, Run::try_recounts);
}
