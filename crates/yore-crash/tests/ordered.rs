//! The engines that order changes leave what the order lets them leave, wherever the power fails
//! (docs/EDGES.md, docs/ENGINES.md).
//!
//! `ORDERED_STATES=n` tries n states of each sequence, `ORDERED_SEED=n` other ones, `ORDERED_NAME=name` one
//! sequence.

use yore_crash::edges::crashes::run;
use yore_crash::edges::sequences;
use yore_fs::Engine;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn every_crash_under(engine: Engine) {
    let (states, seed) =
        (number("ORDERED_STATES").unwrap_or(60) as usize, number("ORDERED_SEED").unwrap_or(1));
    let only = std::env::var("ORDERED_NAME").ok();
    let (mut wrong, mut tried, mut tolerated) = (Vec::new(), 0, 0);
    for name in sequences().into_iter().filter(|name| only.as_ref().is_none_or(|only| only == name)) {
        let outcome = run(name, engine, seed).and_then(|run| run.try_states(states, seed));
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
    every_crash_under(Engine::SoftUpdates);
}

#[test]
fn every_crash_under_sync_leaves_what_was_promised() {
    every_crash_under(Engine::Sync);
}
