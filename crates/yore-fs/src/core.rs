//! The core of an open volume: metadata, free space, inodes, and the list of orphans. It knows nothing of names, of what files hold, or of
//! the past.

pub(crate) mod alloc;
pub(crate) mod btree;
pub(crate) mod datacache;
pub(crate) mod extent;
pub(crate) mod inode;
pub(crate) mod locks;
pub(crate) mod memo;
pub(crate) mod orphan;
pub(crate) mod pages;
pub(crate) mod retained;

use crate::core::alloc::Alloc;
use crate::core::inode::{store_inode, InodeCell, InodeTable};
use crate::core::locks::{OrderedMutex, Rank};
use crate::core::orphan::Orphans;
use crate::{MountOptions, Result};
use parking_lot::Mutex;
use std::sync::Arc;
use yore_format::layout::GROUP_BLOCKS;
use yore_format::{GroupNo, Incarnation, InodeNo, Number};
use yore_meta::{Meta, Reclaimer, Reserved, ReservedInode};

/// What the structures of a volume are made of.
pub(crate) struct Core {
    pub meta: Arc<Meta>,
    pub alloc: Arc<Alloc>,
    pub inodes: InodeTable,
    pub orphans: Orphans,
    /// Taken first by renames between directories: keeps the tree's shape still while ancestors are compared.
    pub rename: OrderedMutex,
    pub hash_seed: [u8; 16],
    pub read_only: bool,
    pub access_times: bool,
    /// Cells whose times alone are to be written some time.
    aged: Mutex<Vec<Arc<InodeCell>>>,
}

impl Core {
    /// The core of a volume whose metadata was opened.
    pub(crate) fn new(meta: Arc<Meta>, options: &MountOptions) -> Core {
        let alloc = Arc::new(Alloc::new(&meta));
        let reclaimer: Arc<dyn Reclaimer> = alloc.clone();
        meta.set_reclaimer(Arc::downgrade(&reclaimer));
        Core {
            alloc,
            inodes: InodeTable::new(),
            orphans: Orphans::default(),
            rename: OrderedMutex::new(Rank::Rename),
            hash_seed: meta.found().hash_seed,
            read_only: options.read_only,
            access_times: options.access_times && !options.read_only,
            aged: Mutex::default(),
            meta,
        }
    }

    /// Everything done before to the volume's metadata, and data noted or written, is durable when this returns.
    pub(crate) fn force(&self) -> Result<()> {
        Ok(self.meta.force()?)
    }

    /// Fails on a read-only or closed volume, and after a write error.
    pub(crate) fn check_writable(&self) -> Result<()> {
        Ok(self.meta.check_writable()?)
    }

    /// The number at which what is made now is born.
    pub(crate) fn number(&self) -> Number {
        self.meta.number()
    }

    /// The group whose zones and blocks are nearest to an inode.
    pub(crate) fn near(&self, no: InodeNo) -> GroupNo {
        let zone = no.addr().zone();
        let group = if zone.is_primary() { GroupNo(zone.0 / 2) } else { self.meta.zone_group(zone) };
        debug_assert!(u64::from(group.0) * GROUP_BLOCKS < self.meta.geometry().blocks);
        group
    }

    /// Reserves metadata blocks for an Op, making zones if need be; keeps off what deletes and delayed data need.
    pub(crate) fn reserve(&self, near: GroupNo, blocks: u32) -> Result<Reserved> {
        self.alloc.reserve(&self.meta, near, blocks, false)
    }

    /// As [`Core::reserve`], for what must go on when the volume is full: flushing, truncating, deleting.
    pub(crate) fn reserve_freely(&self, near: GroupNo, blocks: u32) -> Result<Reserved> {
        self.alloc.reserve(&self.meta, near, blocks, true)
    }

    /// Reserves a free inode, making an inode block if need be.
    pub(crate) fn reserve_inode(&self, near: GroupNo) -> Result<ReservedInode> {
        loop {
            if let Some(inode) = self.meta.reserve_inode(near)? {
                return Ok(inode);
            }
            let reserved = self.reserve(near, 1)?;
            self.meta.begin(reserved).add_inode_block();
        }
    }

    /// The inode's cell.
    pub(crate) fn cell(&self, no: InodeNo) -> Result<Arc<InodeCell>> {
        self.inodes.get(&self.meta, no)
    }

    /// A cell's times have aged in memory; they are written some time. Called once per cell until then.
    pub(crate) fn note_aged(&self, cell: &Arc<InodeCell>) {
        self.aged.lock().push(cell.clone());
    }

    /// Writes the inodes whose times have aged.
    pub(crate) fn flush_aged(&self) -> Result<()> {
        let aged = std::mem::take(&mut *self.aged.lock());
        for cell in aged {
            self.store_if_dirty(&cell)?;
        }
        Ok(())
    }

    /// Writes the inode if times or size differ from its block.
    pub(crate) fn store_if_dirty(&self, cell: &InodeCell) -> Result<()> {
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
    pub(crate) fn next_incarnation(&self) -> Incarnation {
        self.meta.next_incarnation()
    }
}
