//! What preparations keep of the tables of shared blocks, and what letting go of blocks has done
//! (`shared.rs`).

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;
use yore_format::{table_of, BlockNo, Corruption, CountTableRef, GroupNo, MetaAddr, TableNo, TABLE_ENTRIES};
use yore_meta::{Change, Frame, Op};

/// Who lets go of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetGo {
    /// The inode in use, and no version of it has them: these references end.
    InUse,
    /// The inode in use, and a version of it has them: these references are in use no longer.
    ToPast,
    /// The last version that had them: these references end, which were not in use.
    Past,
}

/// What letting go of blocks has done.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct Gone {
    /// Blocks that nobody has any more.
    pub freed: u64,
    /// By how many blocks what only the past holds has grown.
    pub retained: i64,
    /// By how many the references have grown that are not in use.
    pub references: i64,
    /// Whether some of the blocks had further references.
    pub shared: bool,
    /// The change that comes before all that.
    pub(super) behind: Change,
}

impl Gone {
    /// Nothing yet, and all that comes is behind this change.
    pub(super) fn behind(behind: Change) -> Gone {
        Gone { freed: 0, retained: 0, references: 0, shared: false, behind }
    }
}

/// Blocks of a group with one reference, which ends: places in the group and lengths, in ascending order.
pub(super) struct Sole {
    pub(super) group: GroupNo,
    pub(super) runs: Vec<(u32, u32)>,
    /// The tables of these blocks: they had further references once, and what ended these comes first.
    pub(super) tables: Vec<MetaAddr>,
}

impl Default for Sole {
    fn default() -> Sole {
        Sole { group: GroupNo(u32::MAX), runs: Vec::new(), tables: Vec::new() }
    }
}

impl Sole {
    /// Somebody lets go of blocks with one reference. The past may have them then; else they are noted, as
    /// one run with those that precede them.
    pub(super) fn let_go(&mut self, (bit, len): (u32, u32), how: LetGo, gone: &mut Gone) {
        match how {
            LetGo::ToPast => {
                gone.retained += i64::from(len);
                return;
            }
            LetGo::Past => gone.retained -= i64::from(len),
            LetGo::InUse => {}
        }
        match self.runs.last_mut() {
            Some((first, n)) if *first + *n == bit => *n += len,
            _ => self.runs.push((bit, len)),
        }
    }

    /// As [`Sole::let_go`], for blocks that a table describes: they may have had further references once.
    pub(super) fn let_go_counted(
        &mut self,
        run: (u32, u32),
        how: LetGo,
        gone: &mut Gone,
        (op, table): (&Op<'_>, &Frame),
    ) {
        self.let_go(run, how, gone);
        if op.wants_order() && self.tables.last() != Some(&table.addr()) {
            self.tables.push(table.addr());
        }
    }
}

/// What memory knows of shared blocks.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) users: Arc<TableUsers>,
    /// Held while tables are made.
    pub(super) making: Mutex<()>,
    /// Groups that had no room for checksum tables when they needed some.
    pub(super) roomless: Mutex<BTreeSet<GroupNo>>,
    /// Tables that may have become tables of zeros.
    pub(super) emptied: Mutex<BTreeSet<TableNo>>,
    /// Runs that were lowered to one reference, by first block and generation: their lengths. No run is
    /// longer than a table.
    pub(super) lowered: Mutex<BTreeMap<(u64, u64), u32>>,
    /// The last generation in which anything was.
    pub(super) last_lowered: AtomicU64,
    /// Checksums that are entered too late.
    #[cfg(feature = "mutations")]
    pub(super) late_checksums: Mutex<Option<LateChecksums>>,
}

/// What [`yore_meta::mutation::Mutation::ChecksumLate`] has not entered yet, from a first block on.
#[cfg(feature = "mutations")]
pub(super) type LateChecksums = (BlockNo, Vec<Option<yore_format::DataChecksum>>);

/// How many preparations have tables. One joins under the mutex, which is held while a table is given back.
/// It leaves without: it may end within an Op, for which the thread with the mutex may wait.
#[derive(Default)]
pub(super) struct TableUsers {
    pub(super) joining: Mutex<()>,
    pub(super) count: AtomicU32,
}

/// Tables that a preparation keeps.
#[derive(Default)]
pub(super) struct PinnedTables {
    pub(super) tables: BTreeMap<TableNo, Frame>,
    /// Checksum tables, which an Op looks up by itself: here they only stay in memory.
    pub(super) checksums: BTreeMap<TableNo, Frame>,
    pub(super) users: Option<Arc<TableUsers>>,
}

impl Drop for PinnedTables {
    fn drop(&mut self) {
        if let Some(users) = &self.users {
            users.count.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl PinnedTables {
    /// How many references a block has, given its place in its group.
    pub(super) fn references(&self, group: GroupNo, bit: u32) -> u32 {
        let (table, entry) = table_of(group, bit);
        let count = self.tables.get(&table).and_then(|frame| CountTableRef::new(&frame.read()).get(entry));
        count.map_or(1, |count| u32::from(count.references))
    }
}

/// The parts of `len` blocks from `bit` on that one table each describes: the table, the first entry, and how
/// many.
pub(super) fn parts(group: GroupNo, bit: u32, len: u32) -> impl Iterator<Item = (TableNo, usize, u32)> {
    let mut at = bit;
    std::iter::from_fn(move || {
        let (table, entry) = table_of(group, at);
        let n = (bit + len - at).min((TABLE_ENTRIES - entry) as u32);
        at += n;
        (n > 0).then_some((table, entry, n))
    })
}

/// Damage: more callers let go of a block than have it.
pub(super) fn owned_twice(block: BlockNo, at: yore_format::MetaAddr) -> Box<Corruption> {
    let expected = "of one extent only, or counted as shared";
    Corruption::new("extent", "blocks", expected, "blocks that another frees, too").at(at).on(block)
}
