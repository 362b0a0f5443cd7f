//! The crash tests work: they find an engine that is wrong in one way, within a bounded number of states.
//! This needs the feature `mutations`. Errors that a device in between can imitate are in `mutations.rs`.
//!
//! Three switches are not in the list: docs/TESTING.md says why no crash shows them, and which other tests
//! find two of them.
//!
//! The switches affect the whole process, so this is one test, and alone in its file.

#![cfg(feature = "mutations")]

use yore_crash::campaign::{try_case, Campaign};
use yore_crash::case::Case;
use yore_crash::generate::Profile;
use yore_crash::judge::REPLACED;
use yore_fs::mutation::{set, Mutation};

/// Crash states within which a mutation must be found. Those that need a certain schedule take some
/// thousands.
const STATES: u64 = 30_000;
/// Crash states in which nothing may be found without a mutation.
const STATES_RIGHT: u64 = 15_000;

/// A file is removed and another gets one of its blocks, while the generation that has the removal is being
/// written.
const FREED_AND_TAKEN: u64 = 502;

/// How many states were tried until something was found, and what it was; `None` if nothing was.
fn found(mutation: Mutation, states: u64) -> Option<(u64, String)> {
    set(mutation);
    let mut tried = 0;
    let mut go_on = |_| {
        tried += 1;
        true
    };
    let directed = try_case(&Case::across(FREED_AND_TAKEN), 0, &mut go_on);
    if let Err(failure) = directed {
        set(Mutation::None);
        return Some((tried, failure.to_string()));
    }
    let summary = Campaign { shorten: false, ..Campaign::crashes(1, states) }.run();
    let text =
        |failure: &dyn std::fmt::Display| failure.to_string().lines().take(3).collect::<Vec<_>>().join(" ");
    let mut found = summary.failures.first().map(|failure| (summary.states, text(failure)));
    if found.is_none() && mutation != Mutation::None {
        found = found_in_short_ones().map(|(states, what)| (summary.states + states, text(&what)));
    }
    set(Mutation::None);
    found
}

/// What is found in short sequences with snapshots, each with many crashes: what needs a crash between two
/// flushes of one generation.
fn found_in_short_ones() -> Option<(u64, String)> {
    let mut tried = 0;
    for seed in 0..200 {
        let case = Case::new(seed, 24, Profile::Crash).with_events();
        let mut go_on = |_| {
            tried += 1;
            true
        };
        if let Err(failure) = try_case(&case, 200, &mut go_on) {
            return Some((tried, failure.to_string()));
        }
    }
    None
}

#[test]
fn a_wrong_engine_is_found() {
    // With text that the message must contain, if something else could be found as well.
    let mutations = [
        (Mutation::SlotsReusedEarly, ""),
        (Mutation::BlocksReusedEarly, ""),
        (Mutation::StalePosition, ""),
        (Mutation::OutstandingForgotten, ""),
        (Mutation::TornRecordAccepted, ""),
        (Mutation::RenameBeforeData, REPLACED),
        // The checker finds this, too: what a version names is free.
        (Mutation::RecordedReused, ""),
        (Mutation::RecordedOnce, "[past]"),
        // Write-back finds this, too: a page counted on a block that is the version's now.
        (Mutation::RecordedBeforeData, ""),
        (Mutation::SnapshotNotForced, ""),
        (Mutation::ForgottenNeeded, ""),
        (Mutation::ForgottenShared, ""),
        (Mutation::ForgottenUnforced, "[past]"),
        (Mutation::HistoryUncounted, "blocks that only the past holds"),
        // Shared blocks.
        (Mutation::CountNotRaised, ""),
        (Mutation::CountLoweredTwice, ""),
        (Mutation::SharedWrittenOver, ""),
        (Mutation::LoweredForgotten, ""),
        // Late data. The present has most blocks of a version, too, so either may be found wrong.
        (Mutation::LateLeftOut, ""),
        (Mutation::LateBehindFlush, ""),
        // Annals.
        (Mutation::RowDropped, ""),
        (Mutation::WatermarkAhead, ""),
        (Mutation::KeyLeft, ""),
        (Mutation::BothForgotten, ""),
        (Mutation::IndexAlone, ""),
        (Mutation::DiscardedEarly, ""),
        (Mutation::DiscardedLate, ""),
        // Files that are laid together.
        (Mutation::MovedUncopied, ""),
    ];
    let mut missed = Vec::new();
    for (mutation, said) in mutations {
        match found(mutation, STATES) {
            Some((states, what)) => {
                println!("{mutation:?}: after {states} states: {what}");
                assert!(what.contains(said), "{mutation:?} is found for another reason");
            }
            None => {
                println!("{mutation:?}: MISSED");
                missed.push(mutation);
            }
        }
    }
    assert_eq!(found(Mutation::None, STATES_RIGHT), None, "without a mutation");
    assert!(missed.is_empty(), "within {STATES} states nothing was found of {missed:?}");
}
