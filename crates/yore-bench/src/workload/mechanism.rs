//! What is compared on simulated disks: engines, when their calls return, and where their logs are.

use crate::report::TargetInfo;
use yore_fs::{Durability, Engine};

/// How metadata is kept consistent in a row of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mechanism {
    /// The engine.
    pub engine: Engine,
    /// When its calls return.
    pub durability: Durability,
    /// Whether the log is on a disk of its own.
    pub own_log: bool,
}

impl Mechanism {
    /// With the log inside.
    pub const fn new(engine: Engine, durability: Durability) -> Mechanism {
        Mechanism { engine, durability, own_log: false }
    }

    /// The row: its name says what is not as usual.
    pub(crate) fn info(self) -> TargetInfo {
        let mut name = self.engine.name().to_string();
        if self.durability != Durability::Async {
            name = format!("{name}, {}", self.durability.name());
        }
        if self.own_log {
            name = format!("{name}, own log");
        }
        let description = format!("Yore, the library on a simulated disk, engine {name}");
        TargetInfo { name, description, version: None, ours: true }
    }
}
