//! The crash tests work: they find an engine that is wrong in one way, within a bounded number of states.
//! This needs the feature `mutations`. Errors that a device in between can imitate are in `mutations.rs`.
//!
//! Three switches are not in the list: docs/TESTING.md says why no crash shows them, and which other tests
//! find two of them.
//!
//! The switches affect the whole process, so this is one test, and alone in its file.

mod wrong;

use wrong::{STATES, STATES_RIGHT};
use yore_crash::judge::REPLACED;
use yore_fs::mutation::Mutation;
use yore_fs::{Durability, Engine};

fn found(mutation: Mutation, states: u64) -> Option<(u64, String)> {
    wrong::found(mutation, states, Engine::Snapshot, Durability::Async, false)
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
        // Checksums of data.
        (Mutation::ChecksummedInPlace, "file data"),
        (Mutation::ChecksumNotEntered, "have no checksum"),
        // Damage is found, too: the block's older checksum is compared.
        (Mutation::ChecksumLate, ""),
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
