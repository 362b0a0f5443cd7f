//! The crash tests find an engine that is wrong in one way about a log on another disk.
//!
//! The switches affect the whole process, so this is one test, and alone in its file.

mod moves;
mod wrong;

use moves::crashes_while_it_moves;
use std::sync::Arc;
use wrong::{found, STATES, STATES_RIGHT};
use yore_device::{Device, MemoryDevice};
use yore_fs::mutation::{set, Mutation};
use yore_fs::{Durability, Engine, LogDevice, LogPlace, MkfsOptions, MountOptions, View};

/// Whether a volume takes an older copy of its log.
fn takes_an_older_copy() -> bool {
    let volume: Arc<dyn Device> = Arc::new(MemoryDevice::new(32 << 20));
    let log = Arc::new(MemoryDevice::new(1 << 20));
    let on = |log: Arc<MemoryDevice>| LogDevice { device: log, path: Vec::new() };
    View::mkfs(&volume, &MkfsOptions { journal: Some(on(log.clone())), ..MkfsOptions::default() })
        .expect("a new volume");
    let older = Arc::new(log.snapshot());
    let open = |on| {
        let options = MountOptions { journal: LogPlace::On(on), ..MountOptions::default() };
        View::open(volume.clone(), &options).and_then(|view| view.close())
    };
    open(on(log)).expect("the log is the right one");
    open(on(older)).is_ok()
}

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
    // A panic says that the test has found something; what it prints is about that.
    let moves_well = || std::panic::catch_unwind(|| crashes_while_it_moves(Engine::Journal)).is_ok();
    assert!(moves_well() && !takes_an_older_copy(), "without a mutation");
    set(Mutation::OldLogGivenUpEarly);
    assert!(!moves_well(), "a log that is given up too early is missed");
    set(Mutation::OldSessionAccepted);
    assert!(takes_an_older_copy(), "nothing else keeps an older copy of the log away");
    set(Mutation::None);
    assert!(missed.is_empty(), "within {STATES} states nothing was found of {missed:?}");
}
