//! The core of an open Yore volume: free space, trees, extents, inodes in memory, the list of orphans, the
//! cache of file data, and the locks. It knows nothing of names, of what calls do, or of how history is kept.
//!
//! This crate is the floor of `yore-fs`, which is the library for programs. Code that changes something here
//! reserves room ([`Core::reserve`]), locks inodes in order ([`locks`]), prepares what will change, and opens
//! an Op.
//!
//! It knows three things of history: up to which number the past holds blocks too
//! ([`btree::Tree::recorded_until`], [`extent`]), how many blocks only the past holds ([`retained`]), and
//! what a cell remembers for the layers above ([`memo`]).

pub mod alloc;
pub mod btree;
pub mod clock;
pub mod datacache;
mod error;
pub mod extent;
pub mod inode;
pub mod locks;
pub mod memo;
pub mod met;
pub mod orphan;
pub mod pages;
pub mod retained;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use crate::alloc::Alloc;
use crate::datacache::FileCache;
pub use crate::error::{Error, Result};
pub use crate::inode::Attr;
use crate::inode::{store_inode, InodeCell, InodeTable};
use crate::locks::{OrderedMutex, Rank};
use crate::met::MetDamage;
use crate::orphan::Orphans;
use parking_lot::Mutex;
use std::sync::Arc;
use yore_format::layout::GROUP_BLOCKS;
use yore_format::{EventNo, GroupNo, Incarnation, InodeNo, BLOCK_SIZE};
use yore_meta::{Meta, Reclaimer, Reserved, ReservedInode};

/// What part of the cache for data may be late.
const LATE_SHARE: u64 = 8;

/// The parts of an open volume.
pub struct Core {
    /// The metadata.
    pub meta: Arc<Meta>,
    /// The space for data.
    pub alloc: Arc<Alloc>,
    /// The cache of file data.
    pub files: FileCache,
    /// The inodes in memory.
    pub inodes: InodeTable,
    /// Inodes without a name that are still in use.
    pub orphans: Orphans,
    /// The first lock that a rename between directories takes: it keeps the tree's shape still while
    /// ancestors are compared.
    pub rename: OrderedMutex,
    /// The seed of all hashes of names on this volume.
    pub hash_seed: [u8; 16],
    /// Blocks of file data that were met damaged.
    pub met: MetDamage,
    /// Whether nothing on the medium may change.
    pub read_only: bool,
    /// Whether times of access are kept.
    pub access_times: bool,
    /// Cells whose times alone have changed, to be written some time.
    aged: Mutex<Vec<Arc<InodeCell>>>,
}

/// How a core is opened.
#[derive(Clone, Copy, Debug)]
pub struct CoreOptions {
    /// Whether nothing on the medium may change.
    pub read_only: bool,
    /// Whether times of access are kept; they are not on a volume that may not change.
    pub access_times: bool,
    /// The size of the cache for data, in bytes.
    pub data_cache: u64,
    /// Whether freed blocks are discarded, and in runs of how many at least.
    pub discard: Option<u32>,
}

impl Core {
    /// The core of a volume whose metadata was opened.
    pub fn new(meta: Arc<Meta>, options: CoreOptions) -> Core {
        let CoreOptions { read_only, access_times, data_cache, discard } = options;
        let alloc = Arc::new(Alloc::new(&meta));
        if let Some(least) = discard.filter(|_| !read_only) {
            alloc.discard_from(least.max(1));
        }
        meta.set_late_most((data_cache / LATE_SHARE / BLOCK_SIZE as u64) as usize);
        let reclaimer: Arc<dyn Reclaimer> = alloc.clone();
        meta.set_reclaimer(Arc::downgrade(&reclaimer));
        Core {
            alloc,
            files: FileCache::new(data_cache),
            inodes: InodeTable::new(),
            orphans: Orphans::default(),
            rename: OrderedMutex::new(Rank::Rename),
            hash_seed: meta.found().hash_seed,
            met: MetDamage::default(),
            read_only,
            access_times: access_times && !read_only,
            aged: Mutex::default(),
            meta,
        }
    }

    /// Makes durable every earlier change of the volume's metadata, and all data that was noted or written
    /// before.
    pub fn force(&self) -> Result<()> {
        Ok(self.meta.force()?)
    }

    /// As [`Core::force`], but under an engine that orders changes only for what these files need.
    pub fn force_files(&self, files: &[InodeNo]) -> Result<()> {
        Ok(self.meta.force_files(files)?)
    }

    /// Fails on a read-only or closed volume, and after a write error.
    pub fn check_writable(&self) -> Result<()> {
        Ok(self.meta.check_writable()?)
    }

    /// The event number at which what is made now is born.
    pub fn number(&self) -> EventNo {
        self.meta.number()
    }

    /// The group whose zones and blocks are nearest to an inode.
    pub fn near(&self, no: InodeNo) -> GroupNo {
        let zone = no.addr().zone();
        let group = if zone.is_primary() { GroupNo(zone.0 / 2) } else { self.meta.zone_group(zone) };
        debug_assert!(u64::from(group.0) * GROUP_BLOCKS < self.meta.geometry().blocks);
        group
    }

    /// Reserves metadata blocks for an Op, and makes zones if need be. Leaves alone the room that deletions
    /// and delayed data need.
    pub fn reserve(&self, near: GroupNo, blocks: u32) -> Result<Reserved> {
        self.alloc.reserve(&self.meta, near, blocks, false)
    }

    /// As [`Core::reserve`], for work that must go on when the volume is full: flushing, truncating,
    /// deleting.
    pub fn reserve_freely(&self, near: GroupNo, blocks: u32) -> Result<Reserved> {
        self.alloc.reserve(&self.meta, near, blocks, true)
    }

    /// Reserves a free inode, and makes an inode block if need be.
    pub fn reserve_inode(&self, near: GroupNo) -> Result<ReservedInode> {
        loop {
            if let Some(inode) = self.meta.reserve_inode(near)? {
                return Ok(inode);
            }
            let reserved = self.reserve(near, 1)?;
            self.meta.begin(reserved).add_inode_block();
        }
    }

    /// The inode's cell.
    pub fn cell(&self, no: InodeNo) -> Result<Arc<InodeCell>> {
        self.inodes.get(&self.meta, no)
    }

    /// The inode's cell; `None` if the number names no inode in use.
    pub fn cell_if_used(&self, no: InodeNo) -> Result<Option<Arc<InodeCell>>> {
        match self.cell(no) {
            Err(Error::Stale) => Ok(None),
            found => found.map(Some),
        }
    }

    /// The inode's cell, if memory has the inode. `None`: the device would have to be asked.
    pub fn cell_in_memory(&self, no: InodeNo) -> Option<Result<Arc<InodeCell>>> {
        self.inodes.in_memory(&self.meta, no)
    }

    /// Notes that a cell's times have changed in memory; they are written some time. Called once per cell
    /// until then.
    pub fn note_aged(&self, cell: &Arc<InodeCell>) {
        self.aged.lock().push(cell.clone());
    }

    /// Writes the inodes whose times have changed.
    pub fn flush_aged(&self) -> Result<()> {
        let aged = std::mem::take(&mut *self.aged.lock());
        for cell in aged {
            self.store_if_dirty(&cell)?;
        }
        Ok(())
    }

    /// Writes the inode if times or size differ from its block.
    pub fn store_if_dirty(&self, cell: &InodeCell) -> Result<()> {
        let reserved = self.meta.reserve(GroupNo(0), 0)?;
        let mut state = cell.state.write();
        if state.dirty && !state.gone {
            let mut op = self.meta.begin(reserved);
            store_inode(&mut op, cell, &state);
            state.dirty = false;
        }
        Ok(())
    }

    /// A fresh incarnation.
    pub fn next_incarnation(&self) -> Incarnation {
        self.meta.next_incarnation()
    }
}
