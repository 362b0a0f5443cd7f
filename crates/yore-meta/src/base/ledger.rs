//! What the next superblock says of the volume beside its zones: totals, roots, and the numbers that are
//! given out.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::Arc;
use yore_format::layout::VOLUME_BLOCKS_MAX;
use yore_format::{EventNo, Generation, Incarnation, IntentHead, MetaAddr, Superblock, INODES_PER_BLOCK};

/// A count that Ops change and others read between generations.
#[derive(Debug, Default)]
pub struct Counter(AtomicI64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, by: i64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    /// The present value. If a superblock counts less than there is, which the checker finds, the count could
    /// fall below 0; this gives 0 then.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed).max(0) as u64
    }

    /// Sets the count to what the medium says. That may be anything, so this takes no more than a volume can
    /// have.
    pub(crate) fn set(&self, to: u64) {
        self.0.store(to.min(VOLUME_BLOCKS_MAX * INODES_PER_BLOCK as u64) as i64, Ordering::Relaxed);
    }
}

/// What the superblock counts.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct Totals {
    /// Free data blocks in all groups.
    pub free_blocks: Counter,
    /// Inodes in use.
    pub inodes: Counter,
    /// Metadata blocks in use.
    pub metadata_blocks: Counter,
    /// Zones, root zones included.
    pub zones: Counter,
}

/// Totals, roots and numbers of an open volume.
pub(crate) struct Ledger {
    /// Shared with the facade, which shows them to everybody.
    totals: Arc<Totals>,
    orphan_root: Mutex<(MetaAddr, u8)>,
    /// The block with the roots of the history; 0: there is none yet.
    history_root: AtomicU64,
    next_incarnation: AtomicU64,
    next_number: AtomicU64,
    /// Whether the running generation has changed the root of the orphans.
    changed_orphans: AtomicBool,
    /// Whether it has changed something else that only the superblock says.
    changed: AtomicBool,
}

impl Ledger {
    pub(crate) fn new(found: &Superblock) -> Ledger {
        let totals = Totals::default();
        totals.free_blocks.set(found.free_blocks);
        totals.inodes.set(found.inodes);
        totals.metadata_blocks.set(found.metadata_blocks);
        totals.zones.set(u64::from(found.zones));
        Ledger {
            totals: Arc::new(totals),
            orphan_root: Mutex::new((found.orphan_root, found.orphan_level)),
            history_root: AtomicU64::new(found.history_root.0),
            next_incarnation: AtomicU64::new(found.next_incarnation),
            next_number: AtomicU64::new(found.next_number.0),
            changed_orphans: AtomicBool::new(false),
            changed: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(crate) fn totals(&self) -> &Arc<Totals> {
        &self.totals
    }

    /// A fresh incarnation; never 0.
    #[inline]
    pub(crate) fn take_incarnation(&self) -> Incarnation {
        loop {
            let n = self.next_incarnation.fetch_add(1, Ordering::Relaxed) as u32;
            if n != 0 {
                return Incarnation(n);
            }
        }
    }

    /// The next one that is given; `None` if numbers have begun anew, so that they do not say what is older.
    pub(crate) fn incarnations_end(&self) -> Option<Incarnation> {
        u32::try_from(self.next_incarnation.load(Ordering::Relaxed)).ok().map(Incarnation)
    }

    /// The number that births take now.
    #[inline]
    pub(crate) fn number(&self) -> EventNo {
        EventNo(self.next_number.load(Ordering::Relaxed))
    }

    /// Takes the next number.
    pub(crate) fn take_number(&self) -> EventNo {
        self.note_changed();
        EventNo(self.next_number.fetch_add(1, Ordering::AcqRel))
    }

    /// Root and level of the tree of orphans.
    #[inline]
    pub(crate) fn orphan_root(&self) -> (MetaAddr, u8) {
        *self.orphan_root.lock()
    }

    pub(crate) fn set_orphan_root(&self, root: MetaAddr, level: u8) {
        *self.orphan_root.lock() = (root, level);
        self.changed_orphans.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn history_root(&self) -> MetaAddr {
        MetaAddr(self.history_root.load(Ordering::Acquire))
    }

    pub(crate) fn set_history_root(&self, root: MetaAddr) {
        self.history_root.store(root.0, Ordering::Release);
        self.note_changed();
    }

    /// The running generation changes something that only the superblock says, so it has to be written.
    #[inline]
    pub(crate) fn note_changed(&self) {
        self.changed.store(true, Ordering::Relaxed);
    }

    /// Whether the running generation has changed something that only the superblock says.
    #[inline]
    pub(crate) fn has_changed(&self) -> bool {
        self.changed_orphans.load(Ordering::Relaxed) || self.has_changed_more()
    }

    /// Whether the running generation has changed something else than the root of the orphans that only the
    /// superblock says.
    #[inline]
    pub(crate) fn has_changed_more(&self) -> bool {
        self.changed.load(Ordering::Relaxed)
    }

    /// The generation is frozen, with the gate held alone: enters what the ledger says in its superblock.
    /// Returns whether the generation has changed something that only the superblock says.
    pub(crate) fn freeze(&self, superblock: &mut Superblock) -> bool {
        self.enter(superblock);
        let has_other_orphans = self.changed_orphans.swap(false, Ordering::Relaxed);
        self.changed.swap(false, Ordering::Relaxed) || has_other_orphans
    }

    /// Enters what the ledger says in a superblock. With the gate held alone.
    pub(crate) fn enter(&self, superblock: &mut Superblock) {
        (superblock.orphan_root, superblock.orphan_level) = self.orphan_root();
        superblock.next_incarnation = self.next_incarnation.load(Ordering::Relaxed);
        superblock.next_number = self.number();
        superblock.history_root = self.history_root();
        superblock.free_blocks = self.totals.free_blocks.get();
        superblock.inodes = self.totals.inodes.get();
        superblock.metadata_blocks = self.totals.metadata_blocks.get();
        superblock.zones = self.totals.zones.get() as u32;
    }

    /// What a record says beside zones and blocks. With no Op open.
    pub(crate) fn head(&self, generation: Generation, zone_number_limit: u32) -> IntentHead {
        let (orphan_root, orphan_level) = self.orphan_root();
        IntentHead {
            generation,
            orphan_root,
            orphan_level,
            free_blocks: self.totals.free_blocks.get(),
            inodes: self.totals.inodes.get(),
            metadata_blocks: self.totals.metadata_blocks.get(),
            next_number: self.number(),
            next_incarnation: self.next_incarnation.load(Ordering::Relaxed),
            zone_number_limit,
            continues: false,
        }
    }

    /// Takes over what the last record of the log says.
    pub(crate) fn install(&self, head: &IntentHead) {
        self.totals.free_blocks.set(head.free_blocks);
        self.totals.inodes.set(head.inodes);
        self.totals.metadata_blocks.set(head.metadata_blocks);
        self.next_number.store(head.next_number.0, Ordering::Relaxed);
        self.next_incarnation.store(head.next_incarnation, Ordering::Relaxed);
        self.set_orphan_root(head.orphan_root, head.orphan_level);
    }
}
