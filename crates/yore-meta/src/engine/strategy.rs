//! What an engine decides: the questions, what is known when they are asked, and the answers.

use std::time::Duration;
use yore_format::Engine;

/// When a call that changes metadata returns, under an engine that logs all changes before they are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Durability {
    /// At once: the change is logged with others, at most a commit interval later.
    #[default]
    Async,
    /// When the change is durable: each call has a record written and flushed for it.
    Sync,
    /// When the change is durable: calls that wait at the same time share one record.
    Group,
}

impl Durability {
    /// The name as written in options.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The one with this name.
    pub fn from_name(name: &str) -> Option<Durability> {
        name.parse().ok()
    }
}

/// Where the blocks of a generation go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// To slots that the last complete generation does not use.
    Aside,
    /// To the slots that they have; a new block gets a free one.
    Same,
    /// To the slots that they have, in rounds, each change behind those that it waits for; a new block gets a
    /// free slot.
    InOrder,
}

/// What the writer knows of a generation that it is about to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass {
    /// The log has all that the generation changed, from the last superblock on.
    pub(crate) is_logged: bool,
    /// Somebody waits for it, or it is the last one.
    pub(crate) is_wanted: bool,
    /// It is there or not as a whole: something in it has no order, or it is the last one.
    pub(crate) is_whole: bool,
}

/// How a generation is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Where its blocks go.
    pub(crate) blocks: Place,
    /// Where headers and blocks of the table go.
    pub(crate) maps: Place,
    /// Whether headers, table and superblock are written, too.
    pub(crate) closes: bool,
    /// Whether the device is flushed, before the superblock and behind it.
    pub(crate) flushes: bool,
}

impl Plan {
    /// Whether the generation is durable when it has been written.
    pub(crate) fn is_durable(self) -> bool {
        self.closes || self.blocks == Place::InOrder
    }
}

/// What there is to write, for deciding whether it is time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backlog {
    /// The age of the oldest change that no generation has.
    pub(crate) age: Duration,
    /// The age of the oldest change that neither the log nor a generation has.
    pub(crate) unlogged_age: Option<Duration>,
    /// The longest time until a change is to be on the medium.
    pub(crate) interval: Duration,
    /// Whether the log is half full.
    pub(crate) log_presses: bool,
}

/// What there may be time for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// A generation.
    Generation,
    /// A record in the log.
    Record,
    /// Nothing for so long.
    Nothing(Duration),
}

/// The decisions of one engine.
pub(crate) trait Strategy: Send + Sync + std::fmt::Debug {
    /// Which one it is.
    fn engine(&self) -> Engine;

    /// Whether the log learns of all changes, and is replayed after a crash.
    fn logs(&self) -> bool;

    /// Whether an fsync makes metadata durable; if not, it forces the data alone that was written.
    fn forces(&self) -> bool {
        true
    }

    /// Whether what a generation changed is in the log before its blocks are written.
    fn logs_first(&self) -> bool;

    /// Whether a volume that was not unmounted must be checked before anybody believes it.
    fn must_be_checked(&self) -> bool;

    /// Whether changes are kept with the order between them, for the writer.
    fn orders(&self) -> bool {
        false
    }

    /// Whether a call that changes names or attributes returns when that is durable, without anybody asking.
    fn calls_wait(&self) -> bool {
        false
    }

    /// How a generation is written.
    fn plan(&self, pass: Pass) -> Plan;

    /// What it is time for.
    fn due(&self, backlog: Backlog) -> Due;

    /// Whether blocks are written where they are, so that a mount under another engine must not believe what
    /// it finds: the volume says so in both superblocks before anything is written.
    fn in_place(&self) -> bool {
        self.engine().in_place()
    }
}

/// A generation when changes have reached the interval.
pub(super) fn by_age(backlog: Backlog) -> Due {
    match backlog.interval.checked_sub(backlog.age) {
        Some(left) if !left.is_zero() => Due::Nothing(left),
        _ => Due::Generation,
    }
}
