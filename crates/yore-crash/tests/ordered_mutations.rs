//! The crash tests find `soft-updates` and `sync` when they are wrong in one way, as `engine_mutations.rs`
//! has it for `snapshot`. Kinds of edges that are left out one by one: `edges.rs`.
//!
//! The switches affect the whole process, so this is one test, and alone in its file.

use yore_crash::edges::crashes::run;
use yore_crash::edges::sequences;
use yore_fs::mutation::{set, Mutation};
use yore_fs::Engine;

/// States of each sequence within which a mutation must be found by some of them.
const STATES: usize = 300;

fn found(mutation: Mutation, engine: Engine) -> Option<String> {
    set(mutation);
    let wrong = sequences().into_iter().find_map(|name| {
        let outcome = run(name, engine, 1).and_then(|run| run.try_states(STATES, 1));
        outcome.err().map(|error| format!("{name}: [{}] {}", error.class, error.message))
    });
    set(Mutation::None);
    wrong
}

#[test]
fn a_wrong_order_is_found() {
    let mutations = [
        (Mutation::EdgesDropped, Engine::SoftUpdates),
        (Mutation::RoundsUnflushed, Engine::SoftUpdates),
        (Mutation::HeldReusedEarly, Engine::SoftUpdates),
        (Mutation::NamedAtOnce, Engine::SoftUpdates),
        (Mutation::AheadOfData, Engine::SoftUpdates),
        (Mutation::OlderBelieved, Engine::SoftUpdates),
        (Mutation::PartWithoutFirsts, Engine::SoftUpdates),
        (Mutation::PartNumberedLate, Engine::SoftUpdates),
        (Mutation::EdgesDropped, Engine::Sync),
        (Mutation::Unsettled, Engine::Sync),
        (Mutation::BoundsIgnored, Engine::Sync),
    ];
    let mut missed = Vec::new();
    for (mutation, engine) in mutations {
        match found(mutation, engine) {
            Some(what) => println!("{mutation:?}, {}: {}", engine.name(), what.lines().next().unwrap_or("")),
            None => missed.push((mutation, engine.name())),
        }
    }
    assert!(missed.is_empty(), "nothing was found of {missed:?}");
}
