//! How metadata is kept consistent: one [`Strategy`] for each engine, and no `if engine` elsewhere.
//!
//! A strategy decides; it does nothing itself. It is asked at a few moments: when a volume is opened, when a
//! call has ended, when there may be a reason to write, and when a generation is written. The mechanisms are
//! the same for all engines: the cache, the zones, the writer of generations, the log. So two engines differ
//! by what they decide, and by nothing else.
//!
//! | | `snapshot` | `journal` | `soft-updates`, `sync` | `none` |
//! |---|---|---|---|---|
//! | a block goes | to a free slot | where it is, if the log has it | where it is, in rounds | where it is |
//! | before the blocks | – | the log is forced | those that its changes wait for | – |
//! | headers, table, superblock | with each generation, aside | with each generation, aside | a superblock where the last one does not cover the pass; headers as blocks come and go | when somebody asks |
//! | what fsync waits for | a record in the log | a record in the log | a generation | its data |
//! | after a crash | the log is replayed | the log is replayed | leaks remain, and counts that are too high | the volume must be checked |

mod journal;
mod none;
mod ordered;
mod snapshot;
mod strategy;

pub use strategy::Durability;
pub(crate) use strategy::{Backlog, Due, Pass, Place, Plan, Strategy};
use yore_format::Engine;

/// The strategy of an engine.
pub(crate) fn strategy(engine: Engine) -> &'static dyn Strategy {
    match engine {
        Engine::Snapshot => &snapshot::Snapshot,
        Engine::Journal => &journal::Journal,
        Engine::SoftUpdates => &ordered::SoftUpdates,
        Engine::Sync => &ordered::Sync,
        Engine::None => &none::None,
    }
}
