//! How a generation is written in place: in rounds, each change behind those that it waits for. Here the
//! rounds are found out; `passing.rs` carries them out.
//!
//! **A pass.** The generation is frozen, and its changes are known with their units and the edges between
//! them (`base/pending.rs`). Let D be the changes that are durable. A round takes from each block the changes
//! of which all predecessors are in D, or are taken from the same block: in ascending order, none before an
//! earlier one of the same unit (U1), and no insert that would take the room of one that was left out (U3).
//! The blocks are written and the device is flushed; then D has these changes, too, and the next round
//! begins. The least change that waits can always be taken, so rounds end (docs/EDGES.md, "Why it never
//! deadlocks").
//!
//! **What is written of a block.** If all of its changes are in D or taken, the block as it was frozen. Else
//! a *rollback*: what the generation before left of the block, with those changes that are in D or taken. A
//! round writes blocks of the second kind only if there is none of the first, because others may be of the
//! first kind a round later. When all rounds are known, so is which blocks cannot do without a rollback. Then
//! the rounds are found out anew, with each rollback in the first round that can have all of it, and the
//! cheaper ones are carried out.
//!
//! **New and freed blocks.** The header of a zone says which indexes exist. A new block is written in one
//! round, to a slot that the zone did not use when the pass began; the header that names it follows in the
//! next round, and with it the block's changes are in D. Until then its slot means nothing. So the block may
//! be written with changes whose predecessors are written in the same round: they are in D before the header
//! is written, or come into D with the same header ([`Counts`]). An index that is freed goes out of the
//! header when what its removal waits for is in D. A header names only what was durable before its round, and
//! goes to the slot of the zone's two that does not count, so each instant has one that is whole. Slots and
//! indexes that are freed are not used again in the same pass.
//!
//! **The superblock** comes first, and says which numbers are used up; the flush behind it has file data on
//! the medium, too. What needs neither goes with it, before the same flush, for a mount never uses the number
//! of the generation behind the last superblock (R5): new blocks, since no header names them yet, and blocks
//! in place if what is taken of them takes things away or sets bits (`Planner::says_nothing_new`). It
//! promises no block that only this generation frees, for a crash may leave such a block marked as used: its
//! count of free blocks lacks them, until a later generation or a recount says more. It has the root of the
//! orphans as the generation before left it; when that changes, a second one follows as a part of some round,
//! in the other slot.
//!
//! **A pass without a superblock.** If the last superblock covers this generation, too (`ceilings.rs`), none
//! is written. The first flush is there for file data, and more goes before it: numbers that only a
//! superblock says are used up are so already, so entries and inodes may go that name no data. That needs
//! rollbacks of blocks whose other inodes name data; the plan with them is carried out if it saves a round.
//!
//! **What is put off.** Nobody waits for the bits of blocks to be cleared that nothing names any more. So a
//! pass that somebody waits for leaves that to the next one, unless it can go with something else that is
//! written of the bitmap. The running generation takes it over before the blocks can be taken again, so their
//! bits are cleared before they are set (U1). All that it waited for is durable, so the next pass clears them
//! before its first flush.
//!
//! **All rounds are found out before the first one is written** (`Schedule`). If they are more than
//! [`ROUNDS_MOST`], or the root of the orphans must change twice, the generation goes aside as a whole.

use super::room::{Cells, Room};
use crate::base::pending::{cleared_by, Kept, PassCounts, PutOff, Taken};
use crate::base::units::{self, Piece};
use crate::base::waits::NO_OP;
#[cfg(feature = "mutations")]
use crate::mutation::{is, Mutation};
use hashbrown::{HashMap, HashSet};
use std::collections::BTreeMap;
use yore_format::{Block, BlockHeader, BlockKind, ContentKind, Inode, MetaAddr, ZoneNo, INODE_BYTES};

/// Rounds of a pass beyond which it costs less to write the generation aside.
const ROUNDS_MOST: usize = 24;

/// How often new blocks are gone through in a round, since one may let another go with it.
const SWEEPS: usize = 3;

/// A flush takes as long as so many blocks do: a turn of a disk, at 100 MB a second.
pub(crate) const FLUSH_BLOCKS: u64 = 200;

/// What is written of a block in a round.
pub(super) enum What {
    /// The block as it was frozen.
    Whole,
    /// The block with some changes undone.
    Undone(Box<Block>),
}

/// What is written between two flushes.
#[derive(Default)]
pub(super) struct Round {
    pub(super) blocks: Vec<(MetaAddr, What)>,
    /// Indexes that the headers of zones name from this round on, or no longer name.
    pub(super) headers: BTreeMap<ZoneNo, Vec<(u16, bool)>>,
    /// Root and level of the orphans, if a superblock says so from this round on.
    pub(super) orphans: Option<(MetaAddr, u8)>,
}

/// How a pass is to be written.
#[derive(Clone, Copy)]
pub(super) struct How {
    /// The last superblock holds for it, too.
    pub(super) is_covered: bool,
    /// It may put off what nobody waits for.
    pub(super) puts_off: bool,
    /// Data blocks that its bitmaps mark as free that were not.
    pub(super) freed: u64,
}

/// The rounds of a pass.
pub(super) struct Schedule {
    pub(super) how: How,
    /// What is written before the first flush, with the superblock if there is one.
    pub(super) ahead: Vec<(MetaAddr, What)>,
    pub(super) rounds: Vec<Round>,
    pub(super) put_off: Vec<PutOff>,
}

/// Which rollbacks go before the first flush.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ahead {
    /// Those that are known to be needed.
    Known,
    /// All that can be written.
    All,
}

/// Of blocks that cannot do without a rollback: how many of their changes each one had, ascending.
type Rollbacks = HashMap<MetaAddr, Vec<usize>>;

/// Where a block of the pass is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Its zone's header does not name it, and nothing of it was written.
    Nowhere,
    /// It was written, and no header names it yet.
    Written,
    /// The header names it.
    Named,
    /// It was freed, and the header does not name it any more.
    Gone,
}

/// A block that the pass changes.
struct InPass<'t> {
    /// What it was before, or when it was made.
    base: &'t Block,
    stage: Stage,
    made: Option<usize>,
    freed: Option<usize>,
    /// All of its changes, ascending.
    changes: Vec<usize>,
    /// How many of them are not durable.
    left: usize,
    /// How many of those cannot be put off.
    needed: usize,
    /// Of a block that was written and is not named: the changes that it has.
    written: Vec<usize>,
}

/// When a change is durable, if it was taken in the round that is being put together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counts {
    /// It was not taken.
    No,
    /// Behind the round.
    Behind,
    /// It lies in a new block: with the next header of this zone.
    With(ZoneNo),
}

/// Blocks with what is written of them.
type Chosen = Vec<(MetaAddr, Choice)>;

/// What may be taken of a block in a round.
struct Choice {
    changes: Vec<usize>,
    what: What,
}

struct Planner<'t> {
    taken: &'t Taken,
    how: How,
    /// Which changes may be put off.
    may_wait: Vec<bool>,
    /// Which changes each waits for: a range of `firsts`.
    starts: Vec<usize>,
    firsts: Vec<usize>,
    is_durable: Vec<bool>,
    /// Whether a change was taken from the block that is looked at.
    is_chosen: Vec<bool>,
    /// Which changes were taken in the round that is being put together.
    taken_now: Vec<Counts>,
    /// The zone of the block that is looked at, if that block is new: when its changes count, changes of the
    /// same round are durable.
    counts_later: Option<ZoneNo>,
    /// Whether only changes may go that need no superblock and no data ([`Planner::says_nothing_new`]).
    is_ahead: bool,
    blocks: BTreeMap<MetaAddr, InPass<'t>>,
    /// Blocks with something that is not durable.
    open: Vec<MetaAddr>,
    /// Changes of the orphans' root that are not durable, ascending.
    orphans: Vec<usize>,
    /// Whether a round has changed it.
    has_changed_orphans: bool,
    /// Rollbacks that are known to be needed.
    known: &'t Rollbacks,
    /// Those that were planned.
    rollbacks: Rollbacks,
}

impl Schedule {
    /// The rounds that write what a generation has changed; `None`: it cannot be written in as few as it may
    /// take. Takes time in proportion to changes and edges, for each round.
    pub(super) fn of(taken: &Taken, how: How) -> Option<Schedule> {
        let none = Rollbacks::new();
        let (late, rollbacks) = Schedule::with((taken, how), Ahead::Known, &none, ROUNDS_MOST)?;
        let mut plans = vec![late];
        let most = plans[0].rounds.len();
        if !rollbacks.is_empty() {
            // What is put off until nothing else is left makes what waits for it late, too.
            let early = Schedule::with((taken, how), Ahead::Known, &rollbacks, most);
            plans.extend(early.map(|(early, _)| early));
        }
        if how.is_covered && most > 1 {
            let ahead = Schedule::with((taken, how), Ahead::All, &none, most - 1);
            plans.extend(ahead.map(|(ahead, _)| ahead));
        }
        plans.into_iter().min_by_key(Schedule::blocks_worth)
    }

    /// What it costs, in blocks that could be written meanwhile.
    fn blocks_worth(&self) -> u64 {
        let cost = self.cost();
        cost.rounds * FLUSH_BLOCKS + cost.blocks
    }

    /// The rounds, at most `most`, with rollbacks that are `known` as early as may be, and others as late;
    /// and all that it has.
    fn with(
        (taken, how): (&Taken, How),
        goes_ahead: Ahead,
        known: &Rollbacks,
        most: usize,
    ) -> Option<(Schedule, Rollbacks)> {
        let mut planner = Planner::new((taken, how), known);
        let ahead = planner.ahead(goes_ahead);
        let mut rounds = Vec::new();
        while planner.has_more() {
            if rounds.len() == most {
                return None;
            }
            rounds.push(planner.round()?);
        }
        Some((Schedule { how, ahead, rounds, put_off: planner.put_off() }, planner.rollbacks))
    }

    pub(super) fn cost(&self) -> PassCounts {
        let blocks = || self.rounds.iter().flat_map(|round| &round.blocks).chain(&self.ahead);
        let rollbacks = blocks().filter(|(_, what)| matches!(what, What::Undone(_))).count();
        PassCounts {
            passes: 1,
            wholes: 0,
            rounds: self.rounds.len() as u64,
            blocks: blocks().count() as u64,
            rollbacks: rollbacks as u64,
            parts: 0,
        }
    }
}

/// How many data blocks the bitmaps of a generation mark as free that were not.
pub(super) fn freed_by(taken: &Taken) -> u64 {
    taken.waits.changes.iter().map(|(_, kept)| cleared_by(kept.pieces())).sum()
}

/// Which changes may be put off: they clear bits, were not put off before, and none of `firsts` is one.
fn may_wait(taken: &Taken, how: How, firsts: &[usize]) -> Vec<bool> {
    let mut may_wait = vec![false; taken.waits.changes.len()];
    if !how.puts_off {
        return may_wait;
    }
    for (number, (op, kept)) in taken.waits.changes.iter().enumerate() {
        let Kept::Block { addr, pieces } = kept else { continue };
        let base = taken.bases.get(addr);
        let is_bitmap = base.is_some_and(|block| BlockHeader::of(block).kind == BlockKind::Bitmap as u8);
        may_wait[number] = is_bitmap && *op != NO_OP && pieces.iter().all(Piece::only_clears);
    }
    firsts.iter().for_each(|first| may_wait[*first] = false);
    may_wait
}

impl<'t> Planner<'t> {
    fn new((taken, how): (&'t Taken, How), known: &'t Rollbacks) -> Planner<'t> {
        let changes = &taken.waits.changes;
        let count = changes.len();
        let mut starts = vec![0; count + 1];
        let edges = || {
            let edges = taken.waits.edges.iter();
            #[cfg(feature = "mutations")]
            let edges = edges.filter(|_| !is(Mutation::EdgesDropped));
            edges.map(|(_, first, then)| (*first, *then))
        };
        edges().for_each(|(_, then)| starts[then + 1] += 1);
        for i in 0..count {
            starts[i + 1] += starts[i];
        }
        let mut next = starts.clone();
        let mut firsts = vec![0; starts[count]];
        for (first, then) in edges() {
            firsts[next[then]] = first;
            next[then] += 1;
        }
        let mut planner = Planner {
            taken,
            how,
            may_wait: may_wait(taken, how, &firsts),
            starts,
            firsts,
            is_durable: vec![false; count],
            is_chosen: vec![false; count],
            taken_now: vec![Counts::No; count],
            counts_later: None,
            is_ahead: false,
            blocks: BTreeMap::new(),
            open: Vec::new(),
            orphans: Vec::new(),
            has_changed_orphans: false,
            known,
            rollbacks: Rollbacks::new(),
        };
        for (number, (_, kept)) in changes.iter().enumerate() {
            planner.enter(number, kept);
        }
        planner.open = planner.blocks.keys().copied().collect();
        planner
    }

    fn enter(&mut self, number: usize, kept: &'t Kept) {
        let taken = self.taken;
        let of = |base, stage| InPass {
            base,
            stage,
            made: None,
            freed: None,
            changes: Vec::new(),
            left: 0,
            needed: 0,
            written: Vec::new(),
        };
        match kept {
            Kept::Made { addr, block } => {
                let made = InPass { made: Some(number), ..of(&**block, Stage::Nowhere) };
                let before = self.blocks.insert(*addr, made);
                assert!(before.is_none(), "the index of {addr} was used twice in a generation");
            }
            Kept::Block { addr, .. } => {
                let block = self.blocks.entry(*addr).or_insert_with(|| of(&taken.bases[addr], Stage::Named));
                block.changes.push(number);
                block.left += 1;
                block.needed += usize::from(!self.may_wait[number]);
            }
            Kept::Freed { addr } => {
                // Nothing of a block that was not changed needs to be known.
                let nothing = &yore_format::ZERO_BLOCK;
                let block = self.blocks.entry(*addr).or_insert_with(|| of(nothing, Stage::Named));
                block.freed = Some(number);
            }
            Kept::Orphans { .. } => self.orphans.push(number),
            Kept::Durable { .. } => self.is_durable[number] = true,
        }
    }

    fn has_more(&self) -> bool {
        !self.orphans.is_empty() || self.open.iter().any(|addr| self.is_needed(*addr))
    }

    /// Whether something of a block is left that cannot be put off.
    fn is_needed(&self, addr: MetaAddr) -> bool {
        let block = &self.blocks[&addr];
        block.stage != Stage::Named || block.freed.is_some() || block.needed > 0
    }

    /// How many of these changes cannot be put off.
    fn needed(&self, changes: &[usize]) -> usize {
        changes.iter().filter(|change| !self.may_wait[**change]).count()
    }

    /// What is left when nothing else is.
    fn put_off(&self) -> Vec<PutOff> {
        let of_block = |addr: &MetaAddr| {
            let block = &self.blocks[addr];
            let left = block.changes.iter().filter(|change| !self.is_durable[**change]);
            let pieces = left.flat_map(|change| self.pieces(*change).iter().cloned()).collect();
            PutOff { addr: *addr, base: self.compose(block, &[]), pieces }
        };
        self.open.iter().map(of_block).collect()
    }

    /// Whether all that a change waits for is durable when the change counts, or was taken from the same
    /// block.
    fn may_go(&self, change: usize) -> bool {
        let firsts = &self.firsts[self.starts[change]..self.starts[change + 1]];
        let comes_before = |first: usize| match (self.counts_later, self.taken_now[first]) {
            (None, _) | (_, Counts::No) => false,
            (Some(_), Counts::Behind) => true,
            (Some(zone), Counts::With(header)) => zone == header,
        };
        firsts.iter().all(|first| self.is_durable[*first] || self.is_chosen[*first] || comes_before(*first))
            && (!self.is_ahead || self.says_nothing_new(change))
    }

    /// Whether a change names no file data, which may not be on the medium yet, and has no number that only
    /// this generation's superblock says is used up: it takes cells away, or changes bits or counts. If the
    /// last superblock covers the pass, also entries, and inodes that name no data.
    fn says_nothing_new(&self, change: usize) -> bool {
        #[cfg(feature = "mutations")]
        if is(Mutation::AheadOfData) {
            return true;
        }
        let Kept::Block { addr, pieces } = &self.taken.waits.changes[change].1 else { return false };
        let kind = BlockKind::from_repr(BlockHeader::of(self.blocks[addr].base).kind);
        let has_no_data = matches!(kind, Some(BlockKind::Directory | BlockKind::Orphans));
        pieces.iter().all(|piece| match piece {
            Piece::Bits { .. } | Piece::Cell { value: None, .. } => true,
            Piece::Word { .. } => kind == Some(BlockKind::CountTable),
            Piece::Cell { value: Some(_), .. } => self.how.is_covered && has_no_data,
            Piece::Slot { bytes, .. } => self.how.is_covered && names_no_data(bytes),
        })
    }

    fn pieces(&self, change: usize) -> &'t [Piece] {
        self.taken.waits.changes[change].1.pieces()
    }

    /// What of a block's changes can be written now; `None`: nothing.
    fn choose(&mut self, addr: MetaAddr) -> Option<Choice> {
        let block = &self.blocks[&addr];
        // A block that no header names yet counts only from the header on that does, and so do its changes.
        let made = block.made.filter(|_| block.stage == Stage::Nowhere);
        made.into_iter().for_each(|made| self.is_chosen[made] = true);
        let waiting: Vec<usize> = block.changes.iter().copied().filter(|c| !self.is_durable[*c]).collect();
        let mut chosen = Vec::with_capacity(waiting.len());
        let mut left_out = None;
        for (i, change) in waiting.iter().enumerate() {
            if !self.may_go(*change) {
                left_out = Some(i);
                break;
            }
            self.is_chosen[*change] = true;
            chosen.push(*change);
        }
        if let Some(first) = left_out {
            self.choose_some(addr, &waiting[first..], &mut chosen);
        }
        chosen.iter().chain(&made).for_each(|change| self.is_chosen[*change] = false);
        let block = &self.blocks[&addr];
        if chosen.len() == block.left && block.freed.is_none() {
            return Some(Choice { changes: chosen, what: What::Whole });
        }
        if chosen.is_empty() && block.stage == Stage::Named {
            return None;
        }
        let undone = self.compose(block, &chosen);
        match units::is_bare(&undone) && block.stage == Stage::Nowhere && chosen.len() < block.left {
            true => None,
            false => Some(Choice { changes: chosen, what: What::Undone(undone) }),
        }
    }

    /// Goes on with changes of which the first one cannot be taken.
    fn choose_some(&mut self, addr: MetaAddr, waiting: &[usize], chosen: &mut Vec<usize>) {
        let block = &self.blocks[&addr];
        let width = self.width(block);
        let known: HashSet<usize> = chosen.iter().copied().collect();
        let is_before = |c: &&usize| **c < waiting[0] && (self.is_durable[**c] || known.contains(*c));
        let mut cells = Cells::of(block.base, width);
        for change in block.changes.iter().filter(is_before) {
            cells.put_all(self.pieces(*change));
        }
        // Changes behind the first one that was left out, durable ones of an earlier round included.
        let start = block.changes.partition_point(|c| *c < waiting[0]);
        let later = &block.changes[start..];
        let mut room = Room::new(
            cells,
            &mut later.iter().map(|change| (self.pieces(*change), self.is_durable[*change])),
        );
        for change in later {
            let is_durable = self.is_durable[*change];
            let may_go = is_durable || self.may_go(*change);
            if room.pass(self.pieces(*change), is_durable, may_go) && !is_durable {
                self.is_chosen[*change] = true;
                chosen.push(*change);
            }
        }
    }

    fn width(&self, block: &InPass<'_>) -> usize {
        units::width_behind(block.base, block.changes.iter().flat_map(|change| self.pieces(*change)))
    }

    /// A block with what is durable of its changes, and these.
    fn compose(&self, block: &InPass<'_>, chosen: &[usize]) -> Box<Block> {
        let is_in = |change: &&usize| self.is_durable[**change] || chosen.binary_search(change).is_ok();
        let pieces = block.changes.iter().filter(is_in).flat_map(|change| self.pieces(*change));
        let composed = units::compose(block.base, self.width(block), pieces);
        composed.expect("what is taken of a node fits beside what was left out")
    }

    /// Whether a block that is not whole is written all the same, with so many of the changes that are left.
    fn is_early(&self, addr: MetaAddr, chosen: usize) -> bool {
        let Some(known) = self.known.get(&addr) else { return false };
        let block = &self.blocks[&addr];
        let durable = block.changes.len() - block.left;
        let is_new = block.stage == Stage::Nowhere;
        let next = known.iter().find(|had| **had > durable || (is_new && **had == durable));
        next.is_some_and(|had| durable + chosen >= *had)
    }

    /// What can be written with the superblock, before anything is durable.
    fn ahead(&mut self, which: Ahead) -> Vec<(MetaAddr, What)> {
        self.is_ahead = true;
        // A block that goes is written only if what waits for it needs that.
        let stays = |addr: &&MetaAddr| {
            let block = &self.blocks[*addr];
            block.stage == Stage::Nowhere || block.freed.is_none()
        };
        let open: Vec<MetaAddr> = self.open.iter().filter(stays).copied().collect();
        let (mut chosen, mut partly) = self.choose_all(&open);
        self.is_ahead = false;
        if which == Ahead::All {
            chosen.append(&mut partly);
        }
        let ahead = chosen.into_iter().map(|(addr, choice)| (addr, self.write(addr, choice))).collect();
        self.close_done();
        ahead
    }

    /// What can be written of these blocks in one round: as wholes, or as rollbacks that are known to be
    /// needed; and all other rollbacks that can be written.
    fn choose_all(&mut self, of: &[MetaAddr]) -> (Chosen, Chosen) {
        let is_new = |addr: &MetaAddr| self.blocks[addr].stage == Stage::Nowhere;
        let (new, others): (Vec<MetaAddr>, Vec<MetaAddr>) = of.iter().copied().partition(is_new);
        let (mut chosen, mut partly) = (Chosen::new(), Chosen::new());
        for addr in others {
            if self.blocks[&addr].needed > 0 {
                self.choose_one(addr, Counts::Behind, &mut chosen, &mut partly);
            }
        }
        // A header is written behind the superblock.
        let is_ahead = std::mem::take(&mut self.is_ahead);
        let mut waiting = new;
        for _ in 0..SWEEPS {
            let (before, mut rollbacks) = (chosen.len(), Chosen::new());
            waiting.retain(|addr| {
                self.counts_later = Some(addr.zone());
                !self.choose_one(*addr, Counts::With(addr.zone()), &mut chosen, &mut rollbacks)
            });
            if chosen.len() == before || waiting.is_empty() {
                partly.append(&mut rollbacks);
                break;
            }
        }
        (self.counts_later, self.is_ahead) = (None, is_ahead);
        for change in chosen.iter().flat_map(|(_, choice)| &choice.changes) {
            self.taken_now[*change] = Counts::No;
        }
        (chosen, partly)
    }

    /// Chooses of one block; returns whether it goes into the round. `counts` says when its changes are
    /// durable.
    fn choose_one(
        &mut self,
        addr: MetaAddr,
        counts: Counts,
        chosen: &mut Chosen,
        partly: &mut Chosen,
    ) -> bool {
        let needed = self.blocks[&addr].needed;
        let Some(choice) = self.choose(addr) else { return false };
        let goes = self.needed(&choice.changes) == needed || self.is_early(addr, choice.changes.len());
        if goes {
            choice.changes.iter().for_each(|change| self.taken_now[*change] = counts);
        }
        if goes { chosen } else { partly }.push((addr, choice));
        goes
    }

    /// The next round; `None` if there is none that a pass may have.
    fn round(&mut self) -> Option<Round> {
        let mut round = Round::default();
        let mut open = Vec::with_capacity(self.open.len());
        for addr in &self.open {
            let block = &self.blocks[addr];
            if block.stage == Stage::Written {
                round.headers.entry(addr.zone()).or_default().push((addr.index(), true));
            } else if block.stage == Stage::Named && block.freed.is_some_and(|freed| self.may_go(freed)) {
                round.headers.entry(addr.zone()).or_default().push((addr.index(), false));
            } else {
                open.push(*addr);
            }
        }
        let (mut chosen, mut partly) = self.choose_all(&open);
        let ready = self.orphans.iter().take_while(|change| self.may_go(**change)).count();
        let is_all = ready == self.orphans.len();
        if chosen.is_empty() && round.headers.is_empty() && (ready == 0 || !is_all) {
            chosen = partly;
        } else {
            partly.clear();
        }
        if ready > 0 && (is_all || (chosen.is_empty() && round.headers.is_empty())) {
            if std::mem::replace(&mut self.has_changed_orphans, true) {
                return None;
            }
            round.orphans = self.change_orphans(ready);
        }
        let named = round.headers.iter();
        let named: Vec<(MetaAddr, bool)> = named
            .flat_map(|(zone, indexes)| indexes.iter().map(|(i, exists)| (MetaAddr::new(*zone, *i), *exists)))
            .collect();
        if chosen.is_empty() && named.is_empty() && round.orphans.is_none() {
            debug_assert!(false, "no change of a generation can be written");
            tracing::error!(
                "changes wait for each other, which is a bug; the generation is written as a whole"
            );
            return None;
        }
        // All of it becomes durable together, behind the round.
        named.into_iter().for_each(|(addr, exists)| self.name(addr, exists));
        for (addr, choice) in chosen {
            let what = self.write(addr, choice);
            round.blocks.push((addr, what));
        }
        #[cfg(feature = "mutations")]
        if is(Mutation::NamedAtOnce) {
            let written: Vec<MetaAddr> = round.blocks.iter().map(|(addr, _)| *addr).collect();
            for addr in written {
                if self.blocks[&addr].stage == Stage::Written {
                    round.headers.entry(addr.zone()).or_default().push((addr.index(), true));
                    self.name(addr, true);
                }
            }
        }
        self.close_done();
        Some(round)
    }

    /// The root of the orphans behind so many changes of it.
    fn change_orphans(&mut self, ready: usize) -> Option<(MetaAddr, u8)> {
        let mut last = None;
        for change in self.orphans.drain(..ready) {
            self.is_durable[change] = true;
            if let Kept::Orphans { root, level } = self.taken.waits.changes[change].1 {
                last = Some((root, level));
            }
        }
        last
    }

    fn name(&mut self, addr: MetaAddr, exists: bool) {
        let block = self.blocks.get_mut(&addr).expect("a block of the pass");
        let (durable, stage) = match exists {
            true => (std::mem::take(&mut block.written), Stage::Named),
            // What still waited in it is void (U2).
            false => (block.changes.clone(), Stage::Gone),
        };
        block.stage = stage;
        let index = if exists { block.made } else { block.freed };
        for change in durable.iter().filter(|change| !self.is_durable[**change]) {
            block.left -= 1;
            block.needed -= usize::from(!self.may_wait[*change]);
        }
        durable.into_iter().chain(index).for_each(|change| self.is_durable[change] = true);
    }

    /// A block is written with what was chosen of it.
    fn write(&mut self, addr: MetaAddr, Choice { changes, what }: Choice) -> What {
        let needed = self.needed(&changes);
        let block = self.blocks.get_mut(&addr).expect("a block of the pass");
        let is_rollback = needed < block.needed;
        if is_rollback {
            let had = block.changes.len() - block.left + changes.len();
            self.rollbacks.entry(addr).or_default().push(had);
        }
        if block.stage == Stage::Nowhere {
            block.stage = Stage::Written;
            block.written = changes;
            return what;
        }
        block.left -= changes.len();
        block.needed -= needed;
        changes.iter().for_each(|change| self.is_durable[*change] = true);
        what
    }

    fn close_done(&mut self) {
        let blocks = &self.blocks;
        self.open.retain(|addr| {
            let block = &blocks[addr];
            match block.stage {
                Stage::Gone => false,
                Stage::Named => block.left > 0 || block.freed.is_some(),
                Stage::Nowhere | Stage::Written => true,
            }
        });
    }
}

/// Whether an inode names no data blocks. One with a tree of extents does: its size says how much of them
/// counts, and that may change while the tree does not.
fn names_no_data(slot: &[u8]) -> bool {
    let slot: Option<&[u8; INODE_BYTES]> = slot.try_into().ok();
    let inode = slot.and_then(|slot| Inode::decode(slot).ok());
    inode.is_some_and(|inode| match inode.content_kind {
        ContentKind::Empty | ContentKind::Inline => true,
        ContentKind::Extents => false,
        // Entries of a directory and the target of a symbolic link are metadata.
        ContentKind::Tree => inode.is_directory() || inode.is_symlink(),
    })
}
