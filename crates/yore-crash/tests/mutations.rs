//! The crash tests work: they find each way to break the order of writes and flushes, within a bounded number
//! of states.

use std::sync::Arc;
use yore_crash::campaign::try_case_between;
use yore_crash::case::Case;
use yore_crash::generate::Profile;
use yore_crash::mutant::{Mutant, Mutation, Written};
use yore_crash::systematic;
use yore_device::wrapped::Wrapped;

/// Crash states within which a mutation must be found.
const STATES: u64 = 8000;

/// A file is made, written, renamed over another and synced: its data is on the medium before its name is.
const SAVED_BY_RENAME: u64 = 214_440;

/// How many states were tried until something was found, and what it was; `None` if nothing was.
fn found(mutation: Mutation) -> Option<(u64, String)> {
    let mut states = 0;
    for number in 0.. {
        let case = match number % 2 {
            1 if number == 1 => Case::systematic(SAVED_BY_RENAME),
            0 => Case::new(number, 60, Profile::Crash),
            _ => Case::systematic(systematic::spread(number)),
        };
        let of_history =
            matches!(mutation, Mutation::Late(Written::History) | Mutation::Lose(Written::History));
        let case = if of_history { case.with_events() } else { case };
        let mut go_on = |_| {
            states += 1;
            states < STATES
        };
        let between =
            |device| Arc::new(Wrapped::new(device, Mutant::new(mutation))) as Arc<dyn yore_device::Device>;
        if let Err(failure) = try_case_between(&case, 200, &mut go_on, &|device| between(device)) {
            let first = failure.wrong.message.lines().next().unwrap_or_default().to_string();
            return Some((states, format!("[{}] {first}", failure.wrong.class)));
        }
        if states >= STATES {
            break;
        }
    }
    None
}

fn must_be_found(mutations: &[Mutation]) {
    let mut missed = Vec::new();
    for mutation in mutations {
        match found(*mutation) {
            Some((states, what)) => println!("{mutation:?}: after {states} states: {what}"),
            None => missed.push(mutation),
        }
    }
    assert!(missed.is_empty(), "within {STATES} states nothing was found of {missed:?}");
}

/// The device in between changes nothing by itself.
#[test]
fn without_a_mutation_nothing_is_found() {
    assert_eq!(found(Mutation::None), None);
}

/// R1, R2 and the log's order: each flush is needed.
#[test]
fn a_flush_left_out_is_found() {
    must_be_found(&[
        Mutation::OmitFlush(Written::ZoneHeader),
        Mutation::OmitFlush(Written::Superblock),
        Mutation::OmitFlush(Written::Log),
        Mutation::OmitFlush(Written::Data),
    ]);
}

/// A flush that does not cover an earlier write is as bad as no flush, whatever was written.
#[test]
fn a_write_that_comes_after_its_flush_is_found() {
    must_be_found(&[
        Mutation::Late(Written::Superblock),
        Mutation::Late(Written::Log),
        Mutation::Late(Written::ZoneHeader),
        Mutation::Late(Written::ZoneTable),
        Mutation::Late(Written::Bitmap),
        Mutation::Late(Written::Inodes),
        Mutation::Late(Written::Tree),
        Mutation::Late(Written::History),
        Mutation::SuperblockFirst,
    ]);
}

/// A block that is never written is found.
#[test]
fn a_lost_write_is_found() {
    must_be_found(&[
        Mutation::Lose(Written::Superblock),
        Mutation::Lose(Written::Log),
        Mutation::Lose(Written::ZoneHeader),
        Mutation::Lose(Written::ZoneTable),
        Mutation::Lose(Written::Bitmap),
        Mutation::Lose(Written::Inodes),
        Mutation::Lose(Written::Tree),
        Mutation::Lose(Written::History),
        Mutation::Lose(Written::Data),
    ]);
}

/// Data that metadata names must be on the medium before the metadata is (R1, R4).
#[test]
fn data_that_comes_too_late_is_found() {
    must_be_found(&[Mutation::Late(Written::Data)]);
}
