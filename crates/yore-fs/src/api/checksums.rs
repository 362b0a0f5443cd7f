//! Checksums of file data: whether a volume keeps them, giving them to what it has, and how much has none.

use crate::api::block_set::BlockSet;
use crate::api::inodes::{each_state, State};
use crate::file::{self, Entered};
use crate::{Engine, Error, Progress, Result, View};
use std::ops::ControlFlow;
use yore_format::{Inode, WithoutChecksums, WriteFeatures};

/// What giving checksums to the data of a volume has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ChecksumsEntered {
    /// Blocks that got a checksum.
    pub blocks: u64,
    /// Blocks that have none all the same: there was no room for their table, or they were just being
    /// written. Doing it again may help.
    pub left: u64,
    /// It was broken off, and goes on when it is done again.
    pub broken_off: bool,
}

impl View {
    /// Whether the volume keeps checksums of file data.
    pub fn keeps_data_checksums(&self) -> bool {
        let store = self.store();
        store.alloc.keeps_checksums(&store.meta)
    }

    /// How much file data has no checksum, that of the past included: all of it on a volume that keeps none.
    /// What is not written back yet does not count. Others use the volume meanwhile. `ask` says whether to go
    /// on; `None` if it says no.
    ///
    /// O(extents of all files, and of their versions), and 4 KiB of memory for each 128 MiB of the volume
    /// that have such data.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] for a view of the past; damage of metadata, and device errors.
    pub fn data_without_checksums(
        &self,
        ask: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Option<WithoutChecksums>> {
        let store = self.live()?;
        let (mut without, mut files) = (BlockSet::default(), 0);
        let ended = each_state(self, &mut |seen| {
            if ask().is_break() {
                return Ok(ControlFlow::Break(()));
            }
            let mut count = |no, inode: &Inode| {
                let mut is_any = false;
                file::each_missing(store, no, inode, &mut |start, n| {
                    is_any = true;
                    without.note(start, n);
                })?;
                Ok::<bool, Error>(is_any)
            };
            match seen {
                State::Present(cell) => {
                    let state = cell.state.read();
                    if !state.gone && state.inode.is_regular() {
                        files += u64::from(count(cell.no, &state.inode)?);
                    }
                }
                State::Version(no, version) if version.inode.is_regular() => {
                    count(no, &version.inode)?;
                }
                State::Version(..) => {}
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(ended.is_continue().then(|| WithoutChecksums { blocks: without.len(), files }))
    }

    /// From now on the volume keeps checksums of file data, and all data that has none gets one, that of the
    /// past included. Others use the volume meanwhile. What was broken off, or was interrupted by a crash,
    /// goes on when this is called again: only data without checksums is read. `progress` counts blocks;
    /// `ask` says whether to go on.
    ///
    /// # Errors
    /// [`Error::Refused`] under the engine `none`; [`Error::ReadOnly`]; damage and device errors.
    pub fn enable_data_checksums(
        &self,
        progress: &Progress,
        ask: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<ChecksumsEntered> {
        let store = self.live()?;
        store.check_writable()?;
        if store.meta.engine() == Engine::None {
            let why = "the engine `none` keeps no order of writes, so a crash would leave data whose checksums are of \
                       other data: open the volume with engine=snapshot or engine=journal";
            return Err(Error::Refused(why.into()));
        }
        let totals = &store.meta.totals;
        progress.restart(store.meta.geometry().blocks.saturating_sub(totals.free_blocks.get()));
        store.meta.extend(WriteFeatures::CHECKSUMS)?;
        // What was accepted before goes to where it was promised to go.
        store.sync()?;
        let mut entered = Entered::default();
        let ended = each_state(self, &mut |seen| {
            let mut at = Some(0);
            while let Some(from) = at {
                let before = entered.blocks;
                at = match seen {
                    State::Present(cell) => file::enter_missing(&**store, cell, from, &mut entered)?,
                    State::Version(no, version) if version.inode.is_regular() => {
                        file::enter_missing_of_version(&**store, no, &version.inode, from, &mut entered)?
                    }
                    State::Version(..) => None,
                };
                progress.add(entered.blocks - before);
                if ask().is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        store.meta.sync()?;
        Ok(ChecksumsEntered { blocks: entered.blocks, left: entered.left, broken_off: ended.is_break() })
    }
}
