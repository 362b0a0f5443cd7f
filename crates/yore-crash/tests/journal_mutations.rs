//! The crash tests find a `journal` that is wrong in one way, as `engine_mutations.rs` has it for `snapshot`.
//!
//! The switches affect the whole process, so this is one test, and alone in its file.

mod wrong;

use wrong::{found, STATES, STATES_RIGHT};
use yore_fs::mutation::Mutation;
use yore_fs::{Durability, Engine};

#[test]
fn a_wrong_journal_is_found() {
    for durability in [Durability::Async, Durability::Sync, Durability::Group] {
        let right = found(Mutation::None, STATES_RIGHT / 10, Engine::Journal, durability, false);
        assert_eq!(right, None, "without a mutation, {}", durability.name());
    }
    let mutations = [
        (Mutation::BlocksBeforeLog, Durability::Async),
        (Mutation::UnloggedInPlace, Durability::Async),
        (Mutation::LastRecordDropped, Durability::Async),
        (Mutation::NamedUnflushed, Durability::Async),
        (Mutation::RecordsSwapped, Durability::Async),
        (Mutation::BlocksReusedEarly, Durability::Async),
        (Mutation::StalePosition, Durability::Async),
        (Mutation::OutstandingForgotten, Durability::Async),
        (Mutation::TornRecordAccepted, Durability::Async),
        (Mutation::ContinuedEarly, Durability::Async),
        (Mutation::Unsettled, Durability::Sync),
        (Mutation::Unsettled, Durability::Group),
    ];
    let mut missed = Vec::new();
    for (mutation, durability) in mutations {
        match found(mutation, STATES, Engine::Journal, durability, false) {
            Some((states, what)) => println!("{mutation:?}: after {states} states: {what}"),
            None => {
                println!("{mutation:?}: MISSED");
                missed.push(mutation);
            }
        }
    }
    assert!(missed.is_empty(), "within {STATES} states nothing was found of {missed:?}");
}
