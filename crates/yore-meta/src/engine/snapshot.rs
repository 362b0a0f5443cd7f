//! `snapshot`: no block is overwritten that a superblock reaches, so each superblock reaches a whole volume.
//! The argument is in `writer/mod.rs`. An fsync appends to the log what has changed since.

use super::strategy::{by_age, Backlog, Due, Pass, Place, Plan, Strategy};
use yore_format::Engine;

#[derive(Debug)]
pub(super) struct Snapshot;

impl Strategy for Snapshot {
    fn engine(&self) -> Engine {
        Engine::Snapshot
    }

    fn logs(&self) -> bool {
        true
    }

    fn logs_first(&self) -> bool {
        false
    }

    fn must_be_checked(&self) -> bool {
        false
    }

    fn plan(&self, _: Pass) -> Plan {
        Plan { blocks: Place::Aside, maps: Place::Aside, closes: true, flushes: true }
    }

    fn due(&self, backlog: Backlog) -> Due {
        by_age(backlog)
    }
}
