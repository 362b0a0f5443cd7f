//! Checksums of file data: whether a volume keeps them, giving them to what it has, and how much has none.

use crate::api::inodes::each_below;
use crate::file::{self, Entered};
use crate::history::record::VersionsWalk;
use crate::{Engine, Error, Progress, Result, View};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use yore_core::inode::InodeCell;
use yore_format::{WriteFeatures, BITS_PER_GROUP};

/// Versions that are looked at under one hold of the lock that keeps forgetting back.
pub(crate) const BATCH: usize = 64;

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

    /// How many blocks of file data have no checksum, those of the past included: all of them on a volume
    /// that keeps none. A block counts once, however many files and versions have it. What is not written
    /// back yet does not count. Others use the volume meanwhile. `ask` says whether to go on; `None` if it
    /// says no.
    ///
    /// O(extents of all files, and of their versions), and 4 KiB of memory for each 128 MiB of the volume
    /// that have such data.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] for a view of the past; damage of metadata, and device errors.
    pub fn data_without_checksums(&self, ask: &mut dyn FnMut() -> ControlFlow<()>) -> Result<Option<u64>> {
        let store = self.live()?;
        let mut without = Without::default();
        let mut stopped = false;
        let mut present = |cell: &Arc<InodeCell>| {
            if stopped {
                return Ok(());
            }
            stopped = ask().is_break();
            let state = cell.state.read();
            match state.gone || !state.inode.is_regular() {
                true => Ok(()),
                false => {
                    file::each_missing(store, cell.no, &state.inode, &mut |start, n| without.note(start, n))
                }
            }
        };
        each_below(self, self.root(), &mut present)?;
        for cell in store.inodes.select(|cell| cell.unlinked.load(Ordering::Acquire)) {
            present(&cell)?;
        }
        let mut walk = VersionsWalk::default();
        while !stopped {
            stopped = ask().is_break();
            let _still = store.past.forgetting.lock();
            let Some(versions) = store.past.next_versions(&store.meta, &mut walk, BATCH)? else { break };
            for (no, version) in versions.iter().filter(|(_, version)| version.inode.is_regular()) {
                file::each_missing(store, *no, &version.inode, &mut |start, n| without.note(start, n))?;
            }
        }
        Ok((!stopped).then_some(without.blocks))
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
        let mut step = |entered: &Entered, before: u64| {
            progress.add(entered.blocks - before);
            ask().is_break()
        };
        let mut stopped = false;
        let mut file = |cell: &Arc<InodeCell>| {
            let mut at = Some(0);
            while let Some(from) = at.filter(|_| !stopped) {
                let before = entered.blocks;
                at = file::enter_missing(&**store, cell, from, &mut entered)?;
                stopped = step(&entered, before);
            }
            Ok(())
        };
        each_below(self, self.root(), &mut file)?;
        for cell in store.inodes.select(|cell| cell.unlinked.load(Ordering::Acquire)) {
            file(&cell)?;
        }
        let mut walk = VersionsWalk::default();
        while !stopped {
            let _still = store.past.forgetting.lock();
            let Some(versions) = store.past.next_versions(&store.meta, &mut walk, BATCH)? else { break };
            for (no, version) in versions.iter().filter(|(_, version)| version.inode.is_regular()) {
                let mut at = Some(0);
                while let Some(from) = at.filter(|_| !stopped) {
                    let (before, inode) = (entered.blocks, &version.inode);
                    at = file::enter_missing_of_version(&**store, *no, inode, from, &mut entered)?;
                    stopped = step(&entered, before);
                }
            }
        }
        store.meta.sync()?;
        Ok(ChecksumsEntered { blocks: entered.blocks, left: entered.left, broken_off: stopped })
    }
}

/// A set of blocks, by 128 MiB.
#[derive(Default)]
struct Without {
    blocks: u64,
    maps: BTreeMap<u64, Box<[u64; WORDS]>>,
}

const WORDS: usize = BITS_PER_GROUP as usize / 64;

impl Without {
    fn note(&mut self, start: u64, len: u64) {
        for block in start..start + len {
            let bit = (block % u64::from(BITS_PER_GROUP)) as usize;
            let map =
                self.maps.entry(block / u64::from(BITS_PER_GROUP)).or_insert_with(|| Box::new([0; WORDS]));
            self.blocks += u64::from(map[bit / 64] >> (bit % 64) & 1 == 0);
            map[bit / 64] |= 1 << (bit % 64);
        }
    }
}
