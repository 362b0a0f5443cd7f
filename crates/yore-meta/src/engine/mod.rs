//! How metadata is kept consistent: one [`Strategy`] for each engine, and no `if engine` elsewhere.
//!
//! A strategy decides; it does nothing itself. It is asked at a few moments: when a volume is opened, when a
//! call has ended, when there may be a reason to write, and when a generation is written. The mechanisms are
//! the same for all engines: the cache, the zones, the writer of generations, the log. So two engines differ
//! by what they decide, and by nothing else.
//!
//! | | `snapshot` | `journal` | `none` |
//! |---|---|---|---|
//! | a block goes | to a free slot | where it is, if the log has it | where it is |
//! | before the blocks | – | the log is forced | – |
//! | headers, table, superblock | with each generation, aside | with each generation, aside | when somebody asks |
//! | what fsync waits for | a record in the log | a record in the log | a generation |
//! | after a crash | the log is replayed | the log is replayed | the volume must be checked |

mod journal;
mod none;
mod snapshot;
mod strategy;

pub use strategy::Durability;
pub(crate) use strategy::{Backlog, Due, Pass, Place, Plan, Strategy};
use yore_format::Engine;

/// The strategy of an engine; `None` if this version has none.
pub(crate) fn strategy(engine: Engine) -> Option<&'static dyn Strategy> {
    match engine {
        Engine::Snapshot => Some(&snapshot::Snapshot),
        Engine::Journal => Some(&journal::Journal),
        Engine::None => Some(&none::None),
        Engine::Sync | Engine::SoftUpdates => None,
    }
}

/// The engines that this version has, as a message lists them.
pub(crate) const AVAILABLE: &str = "`snapshot`, `journal` or `none`";
