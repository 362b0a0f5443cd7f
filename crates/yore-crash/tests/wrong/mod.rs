//! What finds an engine that is wrong in one way, for the tests that prove that crash tests work.

use yore_crash::campaign::{try_case, Campaign};
use yore_crash::case::Case;
use yore_crash::generate::Profile;
use yore_fs::mutation::{set, Mutation};
use yore_fs::{Durability, Engine};

/// Crash states within which a mutation must be found. Those that need a certain schedule take some
/// thousands.
pub const STATES: u64 = 30_000;
/// Crash states in which nothing may be found without a mutation.
pub const STATES_RIGHT: u64 = 15_000;

/// Cases of [`yore_crash::systematic::across`] that are tried first. In one a file is removed and another
/// gets one of its blocks, while the generation that has the removal is being written. In the other a
/// snapshot is forgotten, and blocks that it would have kept are written over.
const DIRECTED: [u64; 2] = [502, 3706];

/// How many states were tried under an engine, perhaps with the log on another disk, until something was
/// found, and what it was; `None` if nothing was.
pub fn found(
    mutation: Mutation,
    states: u64,
    engine: Engine,
    durability: Durability,
    elsewhere: bool,
) -> Option<(u64, String)> {
    // These are about checksums alone.
    let checksums = matches!(
        mutation,
        Mutation::ChecksumNotEntered | Mutation::ChecksumLate | Mutation::ChecksummedInPlace
    );
    set(mutation);
    let mut tried = 0;
    let mut go_on = |_| {
        tried += 1;
        true
    };
    for number in DIRECTED {
        let case = Case { engine, elsewhere, checksums, ..Case::across(number) };
        if let Err(failure) = try_case(&case, 0, &mut go_on) {
            set(Mutation::None);
            return Some((tried, failure.to_string()));
        }
    }
    let summary =
        Campaign { shorten: false, engine, durability, elsewhere, checksums, ..Campaign::crashes(1, states) }
            .run();
    let text =
        |failure: &dyn std::fmt::Display| failure.to_string().lines().take(3).collect::<Vec<_>>().join(" ");
    let mut found = summary.failures.first().map(|failure| (summary.states, text(failure)));
    if found.is_none() && mutation != Mutation::None {
        found = found_in_short_ones(Case {
            engine,
            durability,
            elsewhere,
            checksums,
            ..Case::new(0, 24, Profile::Crash)
        })
        .map(|(states, what)| (summary.states + states, text(&what)));
    }
    set(Mutation::None);
    found
}

/// What is found in short sequences with snapshots, each with many crashes: what needs a crash between two
/// flushes of one generation.
fn found_in_short_ones(like: Case) -> Option<(u64, String)> {
    let mut tried = 0;
    for seed in 0..200 {
        let case = Case { seed, ..like.clone() }.with_events();
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
