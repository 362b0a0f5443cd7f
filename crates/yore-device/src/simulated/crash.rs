//! The states that a crash could leave on the medium: named, counted, enumerated, sampled and produced.
//!
//! A [`CrashPoint`] is the durable image after some number of entries, and what is pending on top of it. A
//! [`Choice`] says what became of the pending, and together they are a [`CrashState`](super::CrashState),
//! which prints as one short line and is read back from it. Producing a state copies nothing but the blocks
//! that it changes.
//!
//! **Counting.** A *cell* is the unit that is never torn: a sector, or a block ([`Tearing`]). The outcomes of
//! a cell are what lies below it and each pending write that hits it, contents that are the same counted
//! once: a write that changes one sector of a block has 2 outcomes, not 256. A pending discard has 3: not
//! happened, zeros, garbage. Cells and discards are independent, so the number of states is the product, and
//! a state is a number written with these digits, least significant first. Number 0 is "nothing reached the
//! medium".
//!
//! **Sampling.** Independent coin flips would hardly ever leave out just a few of many writes, or let just a
//! few through, and those are the states that break things. So a sample first draws *how* it flips: how
//! probable it is that a write reached the medium, whether writes tear, and whether the order of issue
//! decides between writes to one cell. The generator is SplitMix64, fixed here for ever, so that a printed
//! seed keeps its meaning.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::state::{Choice, CrashPlan, CrashStateError, Tearing};
use crate::memory::Block;
use crate::{Device, DeviceError, MemoryDevice, BLOCK_SIZE};

/// How many different blocks of garbage there are.
const GARBAGE_BLOCKS: u64 = 16;

/// A write or discard that no completed flush covers.
#[derive(Debug, Clone)]
pub(super) enum Pending {
    Write { offset: u64, data: Arc<[u8]> },
    Discard { offset: u64, len: u64 },
}

impl Pending {
    /// Whether a flush of a range covers it. Who flushes parts of a device writes to one of them at a time.
    pub(super) fn is_in(&self, range: &std::ops::Range<u64>) -> bool {
        let (start, len) = match self {
            Pending::Write { offset, data } => (*offset, data.len() as u64),
            Pending::Discard { offset, len } => (*offset, *len),
        };
        range.start <= start && start + len <= range.end
    }

    /// Carries it out on a medium. The range was checked when it was recorded.
    fn apply(&self, medium: &MemoryDevice) -> Result<(), DeviceError> {
        match self {
            Pending::Write { offset, data } => medium.write_at(*offset, data),
            Pending::Discard { offset, len } => medium.discard(*offset, *len),
        }
    }
}

/// What a pending discard left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Discarded {
    No,
    Zeros,
    Garbage(u64),
}

/// A cell, and the pending writes that hit it, in order of issue.
#[derive(Debug)]
struct Cell {
    /// In bytes from the start of the device.
    offset: u64,
    writes: Vec<usize>,
}

/// An instant at which the power may fail: what is durable, and what is pending.
#[derive(Debug)]
pub struct CrashPoint {
    after_entry: usize,
    durable: MemoryDevice,
    pending: Vec<Pending>,
    sectors: OnceLock<Vec<Cell>>,
    blocks: OnceLock<Vec<Cell>>,
    /// Cells for the enumeration. Outcomes that are the same count once.
    distinct_sectors: OnceLock<Vec<Cell>>,
    distinct_blocks: OnceLock<Vec<Cell>>,
}

impl CrashPoint {
    pub(super) fn new(after_entry: usize, durable: MemoryDevice, pending: Vec<Pending>) -> Self {
        CrashPoint {
            after_entry,
            durable,
            pending,
            sectors: OnceLock::new(),
            blocks: OnceLock::new(),
            distinct_sectors: OnceLock::new(),
            distinct_blocks: OnceLock::new(),
        }
    }

    /// How many entries have happened.
    pub fn after_entry(&self) -> usize {
        self.after_entry
    }

    /// How many writes and discards are pending.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// How many states this point has, if that fits a number. Different numbers may still name equal contents
    /// where discards are pending.
    pub fn state_count(&self, tearing: Tearing) -> Option<u64> {
        let mut count: u64 = 1;
        for pending in &self.pending {
            if matches!(pending, Pending::Discard { .. }) {
                count = count.checked_mul(3)?;
            }
        }
        for cell in self.distinct_cells(tearing) {
            count = count.checked_mul(1 + cell.writes.len() as u64)?;
        }
        Some(count)
    }

    /// The choices that a plan makes here.
    pub fn choices(&self, plan: &CrashPlan) -> Vec<Choice> {
        if self.pending.is_empty() {
            return vec![Choice::None];
        }
        if let Some(count) = self.state_count(plan.tearing) {
            if count <= plan.exhaustive_max {
                return (0..count).map(Choice::Index).collect();
            }
        }
        let mut choices = vec![Choice::None, Choice::All];
        let pending = self.pending.len() as u64;
        let left_out = pending.min(plan.samples.max(1));
        // Spread evenly, and always with the latest, whose order code forgets most often.
        choices.extend((1..=left_out).map(|part| {
            let number = u128::from(part) * u128::from(pending) / u128::from(left_out) - 1;
            Choice::AllBut(number as usize)
        }));
        choices.extend((0..plan.samples).map(|number| Choice::Seed(plan.seed.wrapping_add(number))));
        choices
    }

    /// Produces a state. Costs what is pending, not what the device holds.
    ///
    /// # Errors
    /// If this point has no such state.
    pub fn materialise(&self, choice: Choice, tearing: Tearing) -> Result<MemoryDevice, CrashStateError> {
        let medium = self.durable.snapshot();
        match choice {
            Choice::None => {}
            Choice::All => self.apply_all(&medium, None),
            Choice::AllBut(number) if number < self.pending.len() => {
                self.apply_all(&medium, Some(number));
            }
            Choice::AllBut(number) => {
                return Err(CrashStateError::NoSuchPending {
                    after_entry: self.after_entry,
                    number,
                    pending: self.pending.len(),
                });
            }
            Choice::Index(index) => self.apply_index(&medium, index, tearing)?,
            Choice::Seed(seed) => self.apply_sample(&medium, seed, tearing),
        }
        Ok(medium)
    }

    fn apply_all(&self, medium: &MemoryDevice, but: Option<usize>) {
        for (number, pending) in self.pending.iter().enumerate() {
            if Some(number) != but {
                apply(pending, medium);
            }
        }
    }

    fn apply_index(
        &self,
        medium: &MemoryDevice,
        index: u64,
        tearing: Tearing,
    ) -> Result<(), CrashStateError> {
        let mut rest = index;
        let mut digit = |base: u64| {
            let digit = rest % base;
            rest /= base;
            digit
        };
        for (number, pending) in self.pending.iter().enumerate() {
            if let Pending::Discard { offset, len } = pending {
                let outcome = match digit(3) {
                    0 => Discarded::No,
                    1 => Discarded::Zeros,
                    _ => Discarded::Garbage(number as u64),
                };
                discard(medium, *offset, *len, outcome);
            }
        }
        for cell in self.distinct_cells(tearing) {
            match digit(1 + cell.writes.len() as u64) {
                0 => {}
                outcome => self.store(medium, cell, cell.writes[outcome as usize - 1], tearing),
            }
        }
        match rest {
            0 => Ok(()),
            _ => Err(CrashStateError::NoSuchIndex { after_entry: self.after_entry, index }),
        }
    }

    fn apply_sample(&self, medium: &MemoryDevice, seed: u64, tearing: Tearing) {
        let mut random = SplitMix64::new(seed, self.after_entry as u64);
        // In eighths.
        let reach = [1, 4, 7][random.below(3) as usize];
        let tear = [0, 1, 8][random.below(3) as usize];
        let in_order = random.below(2) == 0;
        let mut fates = Vec::with_capacity(self.pending.len());
        for (number, pending) in self.pending.iter().enumerate() {
            let reached = random.below(8) < reach;
            let torn = random.below(8) < tear;
            if let Pending::Discard { offset, len } = pending {
                let outcome = match (reached, torn) {
                    (false, _) => Discarded::No,
                    (true, false) => Discarded::Zeros,
                    (true, true) => Discarded::Garbage(seed.wrapping_add(number as u64)),
                };
                discard(medium, *offset, *len, outcome);
            }
            fates.push((reached, torn));
        }
        let mut reached = Vec::new();
        for cell in self.cells(tearing) {
            reached.clear();
            reached.extend(cell.writes.iter().copied().filter(|&write| match fates[write] {
                (false, _) => false,
                (true, false) => true,
                (true, true) => random.below(2) == 0,
            }));
            let winner = match in_order {
                true => reached.last(),
                false => reached.get(random.below(reached.len().max(1) as u64) as usize),
            };
            if let Some(&write) = winner {
                self.store(medium, cell, write, tearing);
            }
        }
    }

    /// What a pending write has for a cell.
    fn contents(&self, cell: &Cell, write: usize, tearing: Tearing) -> &[u8] {
        match &self.pending[write] {
            Pending::Write { offset, data } => {
                let start = (cell.offset - offset) as usize;
                &data[start..start + tearing.cell_size()]
            }
            Pending::Discard { .. } => &[],
        }
    }

    fn store(&self, medium: &MemoryDevice, cell: &Cell, write: usize, tearing: Tearing) {
        let (block, within) = (cell.offset / BLOCK_SIZE as u64, cell.offset % BLOCK_SIZE as u64);
        medium.patch(block, within as usize, self.contents(cell, write, tearing));
    }

    /// All cells that pending writes hit, by offset.
    fn cells(&self, tearing: Tearing) -> &[Cell] {
        let kept = match tearing {
            Tearing::Sectors => &self.sectors,
            Tearing::Blocks => &self.blocks,
        };
        kept.get_or_init(|| {
            let mut cells: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
            for (number, pending) in self.pending.iter().enumerate() {
                if let Pending::Write { offset, data } = pending {
                    for start in (0..data.len()).step_by(tearing.cell_size()) {
                        cells.entry(offset + start as u64).or_default().push(number);
                    }
                }
            }
            cells.into_iter().map(|(offset, writes)| Cell { offset, writes }).collect()
        })
    }

    /// The cells, without writes that leave a cell as another outcome does. Cells with only one outcome are
    /// not in the list.
    fn distinct_cells(&self, tearing: Tearing) -> &[Cell] {
        let kept = match tearing {
            Tearing::Sectors => &self.distinct_sectors,
            Tearing::Blocks => &self.distinct_blocks,
        };
        kept.get_or_init(|| {
            let cells = self.cells(tearing).iter();
            let distinct =
                cells.map(|cell| Cell { offset: cell.offset, writes: self.distinct_writes(cell, tearing) });
            distinct.filter(|cell| !cell.writes.is_empty()).collect()
        })
    }

    fn distinct_writes(&self, cell: &Cell, tearing: Tearing) -> Vec<usize> {
        let within = (cell.offset % BLOCK_SIZE as u64) as usize;
        let below = self.durable.block(cell.offset / BLOCK_SIZE as u64);
        let below = match &below {
            Some(block) => &block[within..within + tearing.cell_size()],
            None => &[0; BLOCK_SIZE][..tearing.cell_size()],
        };
        // Below a pending discard lies one of several things, so a write equal to one of them still counts.
        let mut seen = match self.may_be_discarded(cell.offset) {
            true => Vec::new(),
            false => vec![below],
        };
        let mut distinct = Vec::new();
        for &write in &cell.writes {
            let contents = self.contents(cell, write, tearing);
            if !seen.contains(&contents) {
                seen.push(contents);
                distinct.push(write);
            }
        }
        distinct
    }

    fn may_be_discarded(&self, at: u64) -> bool {
        self.pending.iter().any(|pending| match pending {
            Pending::Discard { offset, len } => (*offset..offset + len).contains(&at),
            Pending::Write { .. } => false,
        })
    }
}

/// Carries out what was recorded. Its range was checked then, and memory does not fail.
pub(super) fn apply(pending: &Pending, medium: &MemoryDevice) {
    if let Err(error) = pending.apply(medium) {
        unreachable!("a recorded entry cannot be repeated: {error}");
    }
}

fn discard(medium: &MemoryDevice, offset: u64, len: u64, outcome: Discarded) {
    let blocks = offset / BLOCK_SIZE as u64..(offset + len) / BLOCK_SIZE as u64;
    match outcome {
        Discarded::No => {}
        Discarded::Zeros => apply(&Pending::Discard { offset, len }, medium),
        Discarded::Garbage(seed) => {
            for block in blocks {
                medium.set_block(block, Some(garbage(seed.wrapping_add(block))));
            }
        }
    }
}

/// A block of garbage. There are only a few, shared by all, so that a large discard costs no copying.
fn garbage(seed: u64) -> Arc<Block> {
    static BLOCKS: OnceLock<Vec<Arc<Block>>> = OnceLock::new();
    let blocks = BLOCKS.get_or_init(|| {
        let block = |number| {
            let mut random = SplitMix64::new(number, u64::MAX);
            let mut block = [0; BLOCK_SIZE];
            for word in block.chunks_mut(8) {
                word.copy_from_slice(&random.next().to_le_bytes());
            }
            Arc::new(block)
        };
        (0..GARBAGE_BLOCKS).map(block).collect()
    });
    blocks[(seed % GARBAGE_BLOCKS) as usize].clone()
}

/// A small generator of reproducible numbers (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014).
struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// A generator for a seed in a context; the same pair always gives the same numbers.
    fn new(seed: u64, context: u64) -> Self {
        let mut outer = SplitMix64 { state: seed };
        SplitMix64 { state: outer.next() ^ context.wrapping_mul(0x9e37_79b9_7f4a_7c15) }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is small: the bias of the remainder does not matter here.
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
