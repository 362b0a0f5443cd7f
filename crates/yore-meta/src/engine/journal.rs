//! `journal`: what changes is logged first, and written where it is later.
//!
//! A generation is a checkpoint. Its last record is appended in the instant in which it is frozen, so the log
//! has all that it changed since the superblock before it; the log is forced (the write-ahead rule); then its
//! blocks are written over those of the generation before. Headers, table and superblock alternate as under
//! `snapshot`, so the superblock before stays whole until the new one is there.
//!
//! **Why any crash leaves a whole file system.** Until superblock G is on the medium, a mount begins with
//! superblock G−1 and replays the records behind its position. Blocks of G−1 that the log does not name are
//! untouched. A block that it names may be as G−1 has it, as G has it, or torn, each of its sectors from one
//! of them. The two differ only in chunks that the log has, so when all of them are put in place the block is
//! as G has it, whatever lay there; the last record of the block has the checksum of all of it. A block that
//! is new in G has a slot that G−1 does not use, and its first record has all of it. Data blocks and the part
//! of the log that G makes superfluous are given back behind the flush after superblock G, as under
//! `snapshot`.
//!
//! **What the log does not have** (zones that come or go, tables and the first event of the past, a record
//! that does not fit; what a mount has replayed and no superblock has yet) cannot be written in place. A
//! generation with something of that kind is written *aside*, as `snapshot` writes all of them. That is
//! always right: slots that the last superblock does not name are free, whoever named them before.
//!
//! **Time.** Changes are logged when they reach the commit interval, or as soon as a call waits for them
//! ([`super::strategy::Durability`]). A checkpoint is due when the log is half full, when a quarter of the
//! cache is dirty, and when changes are [`CHECKPOINT_INTERVALS`] intervals old: later than under `snapshot`,
//! because that saves writing blocks that change again, and costs no promise.

use super::strategy::{Backlog, Due, Pass, Place, Plan, Strategy};
use yore_format::Engine;

/// How many commit intervals old a change may be when it is written where it belongs.
const CHECKPOINT_INTERVALS: u32 = 6;

#[derive(Debug)]
pub(super) struct Journal;

impl Strategy for Journal {
    fn engine(&self) -> Engine {
        Engine::Journal
    }

    fn logs(&self) -> bool {
        true
    }

    fn logs_first(&self) -> bool {
        true
    }

    fn must_be_checked(&self) -> bool {
        false
    }

    fn plan(&self, pass: Pass) -> Plan {
        let blocks = if pass.is_logged { Place::Same } else { Place::Aside };
        Plan { blocks, maps: Place::Aside, closes: true, flushes: true }
    }

    fn due(&self, backlog: Backlog) -> Due {
        let left = (backlog.interval * CHECKPOINT_INTERVALS).saturating_sub(backlog.age);
        if left.is_zero() || backlog.log_presses {
            return Due::Generation;
        }
        match backlog.unlogged_age.map(|age| backlog.interval.saturating_sub(age)) {
            Some(wait) if wait.is_zero() => Due::Record,
            Some(wait) => Due::Nothing(wait.min(left)),
            None => Due::Nothing(left),
        }
    }
}
