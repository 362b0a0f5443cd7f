//! A log that is open for appending, and what a superblock says of it.

use std::ops::Deref;
use std::sync::Arc;
use yore_device::Device;
use yore_format::{BlockNo, ExternalLog, Superblock};
use yore_log::{KeptLog, Log, LogError};

/// A log open for appending.
#[derive(Debug)]
pub(crate) struct OpenLog {
    log: Log,
    /// On a device of its own: a flush of the volume's device says nothing of the log, nor the other way
    /// round.
    kept: Option<KeptLog>,
}

impl Deref for OpenLog {
    type Target = Log;

    fn deref(&self) -> &Log {
        &self.log
    }
}

impl OpenLog {
    pub(crate) fn new(log: Log, kept: Option<KeptLog>) -> OpenLog {
        OpenLog { log, kept }
    }

    /// Whether the log has a device of its own, so that what must be durable before a record needs a flush of
    /// the volume's device before it.
    #[inline]
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.kept.is_some()
    }

    /// Nobody finds it any more, if it has a device of its own.
    pub(crate) fn give_up(&self) -> std::result::Result<(), LogError> {
        self.kept.as_ref().map_or(Ok(()), KeptLog::give_up)
    }

    /// The log's own device.
    pub(crate) fn own_device(&self) -> Option<&Arc<dyn Device>> {
        self.kept.as_ref().map(KeptLog::device)
    }
}

/// What a superblock says of where the log is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Whereabouts {
    pub(crate) start: BlockNo,
    pub(crate) blocks: u64,
    pub(crate) id: u64,
    pub(crate) external: Option<ExternalLog>,
}

impl Whereabouts {
    pub(crate) fn enter(&self, superblock: &mut Superblock) {
        superblock.log_start = self.start;
        superblock.log_blocks = self.blocks;
        superblock.log_id = self.id;
        superblock.external_log.clone_from(&self.external);
    }
}

/// A log that is about to take the place of the one that a volume has.
#[derive(Debug)]
pub(crate) struct NextLog {
    pub(crate) at: Whereabouts,
    /// Open for appending, unless the engine has no use for it.
    pub(crate) open: Option<Arc<OpenLog>>,
}
