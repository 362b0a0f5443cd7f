//! `none`: blocks are written where they are, in any order, and nothing is flushed. It promises nothing, and
//! is what all other engines are measured against.
//!
//! In the background it writes the blocks that changed, and no more: headers, table and superblock are
//! written when somebody asks for a sync, and when the volume is closed. Until then memory alone knows which
//! slot a new block has, and the checksum of each copy; so after a crash a volume is as it was if nothing had
//! changed since its last sync, and else must be found sound by the checker, or made anew. Blocks without
//! these are of no use, so an fsync writes none: it forces the file's data.

use super::strategy::{by_age, Backlog, Due, Pass, Place, Plan, Strategy};
use yore_format::Engine;

#[derive(Debug)]
pub(super) struct None;

impl Strategy for None {
    fn engine(&self) -> Engine {
        Engine::None
    }

    fn logs(&self) -> bool {
        false
    }

    fn forces(&self) -> bool {
        false
    }

    fn logs_first(&self) -> bool {
        false
    }

    fn must_be_checked(&self) -> bool {
        true
    }

    fn plan(&self, pass: Pass) -> Plan {
        Plan { blocks: Place::Same, maps: Place::Same, closes: pass.is_wanted, flushes: pass.is_wanted }
    }

    fn due(&self, backlog: Backlog) -> Due {
        by_age(backlog)
    }
}
