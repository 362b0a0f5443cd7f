//! The crash tests work: an engine that is wrong in one way is found, within a bounded number of states. Only with the
//! feature `mutations`; what a device in between can imitate is in `mutations.rs`.
//!
//! Five switches are not in the list, because nothing finds them within the bound (docs/TESTING.md says which).
//!
//! The switches are for the whole process, so this is one test, and alone in its file.

#![cfg(feature = "mutations")]

use yore_crash::campaign::Campaign;
use yore_fs::mutation::{set, Mutation};

/// Crash states within which a mutation must be found.
const STATES: u64 = 25_000;

/// How many states were tried until something was found, and what it was; `None` if nothing was.
fn found(mutation: Mutation) -> Option<(u64, String)> {
    set(mutation);
    let summary = Campaign { shorten: false, ..Campaign::crashes(1, STATES) }.run();
    set(Mutation::None);
    let failure = summary.failures.first()?;
    Some((summary.states, failure.to_string().lines().take(3).collect::<Vec<_>>().join(" ")))
}

#[test]
fn a_wrong_engine_is_found() {
    let mutations = [
        Mutation::SlotsReusedEarly,
        Mutation::StalePosition,
        Mutation::TornRecordAccepted,
        Mutation::RenameBeforeData,
    ];
    let mut missed = Vec::new();
    for mutation in mutations {
        match found(mutation) {
            Some((states, what)) => println!("{mutation:?}: after {states} states: {what}"),
            None => {
                println!("{mutation:?}: MISSED");
                missed.push(mutation);
            }
        }
    }
    assert_eq!(found(Mutation::None), None, "without a mutation");
    assert!(missed.is_empty(), "within {STATES} states nothing was found of {missed:?}");
}
