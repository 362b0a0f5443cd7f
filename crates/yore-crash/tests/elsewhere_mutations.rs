//! The crash tests find an engine that is wrong in one way about a log on another disk.
//!
//! The switches affect the whole process, so this is one test, and alone in its file.

#![cfg(feature = "mutations")]

mod wrong;

use wrong::{found, STATES, STATES_RIGHT};
use yore_fs::mutation::Mutation;
use yore_fs::{Durability, Engine};

#[test]
fn a_wrong_log_elsewhere_is_found() {
    for durability in [Durability::Async, Durability::Sync, Durability::Group] {
        let right = found(Mutation::None, STATES_RIGHT / 10, Engine::Journal, durability, true);
        assert_eq!(right, None, "without a mutation, {}", durability.name());
    }
    let mutations = [
        (Mutation::OverwrittenUnflushed, Engine::Journal),
        (Mutation::OverwrittenUnflushed, Engine::Snapshot),
        (Mutation::NamedUnflushed, Engine::Journal),
        (Mutation::BlocksBeforeLog, Engine::Journal),
        (Mutation::OutstandingForgotten, Engine::Snapshot),
    ];
    let mut missed = Vec::new();
    for (mutation, engine) in mutations {
        match found(mutation, STATES, engine, Durability::Async, true) {
            Some((states, what)) => println!("{mutation:?}, {engine:?}: after {states} states: {what}"),
            None => {
                println!("{mutation:?}, {engine:?}: MISSED");
                missed.push((mutation, engine));
            }
        }
    }
    assert!(missed.is_empty(), "within {STATES} states nothing was found of {missed:?}");
}
