//! Decides whether the content of a volume after a crash agrees with what had been promised.
//!
//! # What is promised
//!
//! Operations are numbered; *moment* m is the state after the first m of them. When the power failed, some
//! had returned and perhaps one more had begun. Then there must be **one** moment p such that
//!
//! 1. p lies between the last completed sync and the operations begun, and names and attributes (everything
//!    but the sizes, contents, mtimes and ctimes of regular files, which may reach the medium later) are
//!    exactly those of p. A completed fsync, of whatever file or directory, bounds p from below as a sync
//!    does.
//! 2. The size of each regular file is one that it had between its last sync or fsync and p, reduced by the
//!    later truncations within p: data may be missing, but a truncation is never missing. The same goes for
//!    mtime and ctime, with the last call within p that set them.
//! 3. Each block of its content is what it was at some moment between its last sync or fsync and the crash
//!    (beyond the end of the file: zeros). What a truncation within p removed does not come back: if a block
//!    is older than a truncation that removed a part of it, it is zero from there on. If nothing that was
//!    there since then was overwritten or truncated, so that the file only grew, all of it is what it was at
//!    *one* moment, up to the size found.
//! 4. If p contains a rename of the file over another, its content is not older than that rename.
//!
//! Where calls return only when what they changed is durable ([`History::settles`]), each of them bounds p
//! from below as an fsync does.
//!
//! An engine that orders changes promises something else, of an fsync, too (`ordered.rs`, `held.rs`).
//!
//! If a device tears sectors, a block that is overwritten in place may be old and new by sector, so point 3
//! is then judged by sector ([`Unit`]).
//!
//! A snapshot that is found shows names and attributes of its own moment. Points 2 to 4 hold for its files
//! with that moment as p and as the crash; a sync or fsync after it has made durable what it shows, too.
//!
//! # How
//!
//! The hash of names and attributes of every moment is computed once per sequence, so a tree found after a
//! crash costs one walk and one lookup. Only its files are then compared with their versions in the span.

use crate::model::{Block, Effects, FileData, Identity, Ino, Inode, State, BLOCK};
use crate::op::Op;
use crate::past::taken::Taken;
use crate::tree::{list, show_block, Facts, Inside, Node, Tree};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A sequence that was carried out, with the state after each prefix of it.
#[derive(Clone, Debug)]
pub struct History {
    /// The operations.
    pub ops: Vec<Op>,
    /// What each of them did.
    pub effects: Vec<Effects>,
    /// The state at each moment: one more than operations.
    pub states: Vec<State>,
    /// Whether calls that change names or attributes return when that is durable.
    pub settles: bool,
}

impl History {
    /// The history of nothing yet.
    pub fn new(state: State) -> History {
        History { ops: Vec::new(), effects: Vec::new(), states: vec![state], settles: false }
    }

    /// Adds an operation and the state after it.
    pub fn push(&mut self, op: Op, effects: Effects, state: State) {
        self.ops.push(op);
        self.effects.push(effects);
        self.states.push(state);
    }
}

/// How far the operations had come when the power failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How many had begun.
    pub begun: usize,
    /// How many had returned.
    pub returned: usize,
    /// The moment that a sync by another thread has made durable; 0 if none.
    pub synced: usize,
    /// The moment whose names and attributes an fsync by another thread has made durable; 0 if none. Under an
    /// engine that orders changes that says nothing of this thread's files.
    pub named: usize,
}

impl Bounds {
    /// Operations came this far, and no other thread synced.
    pub fn new(begun: usize, returned: usize) -> Bounds {
        Bounds { begun, returned, synced: 0, named: 0 }
    }
}

/// The unit that is old or new as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Blocks of 4096 bytes.
    Block,
    /// Sectors of 512 bytes.
    Sector,
}

/// Changes of one inode that matter for its content; moments are those after the operation.
#[derive(Default)]
struct Life {
    /// Each version with its first moment, in order.
    versions: Vec<(usize, Arc<Inode>)>,
    /// Moment and size.
    truncations: Vec<(usize, u64)>,
    mtime_set: Vec<usize>,
    ctime_set: Vec<usize>,
    /// Moments of fsyncs; whether of data only.
    fsyncs: Vec<(usize, bool)>,
    /// Moments of renames over another file.
    replaced: Vec<usize>,
    /// Moments of copies to it.
    copies: Vec<usize>,
}

/// Judges trees found after crashes in one sequence.
pub struct Judge {
    history: History,
    /// Moments by hash of names and attributes.
    moments: HashMap<u64, Vec<usize>>,
    inodes: HashMap<Identity, Ino>,
    lives: Vec<Life>,
    /// Moments after which a sync had completed.
    syncs: Vec<usize>,
    /// Moments after which an fsync had completed.
    fsyncs: Vec<usize>,
    /// Moments after which a call had returned that is durable then.
    settled: Vec<usize>,
}

impl Judge {
    /// Prepares for a history.
    pub fn new(history: History) -> Judge {
        let count = history.states.last().map_or(0, State::numbers);
        let mut judge = Judge {
            moments: HashMap::new(),
            inodes: HashMap::new(),
            lives: (0..count).map(|_| Life::default()).collect(),
            syncs: Vec::new(),
            fsyncs: Vec::new(),
            settled: Vec::new(),
            history,
        };
        // States share inodes that they did not change, so each is hashed once.
        let mut known: HashMap<*const Inode, u64> = HashMap::new();
        for (moment, state) in judge.history.states.iter().enumerate() {
            let mut sum: u64 = 0;
            for (ino, inode) in state.inodes() {
                if inode.links > 0 {
                    let hash =
                        *known.entry(Arc::as_ptr(inode)).or_insert_with(|| Node::hash_of(state, inode));
                    sum = sum.wrapping_add(hash);
                }
                let life = &mut judge.lives[ino];
                if !life.versions.last().is_some_and(|(_, last)| Arc::ptr_eq(last, inode)) {
                    life.versions.push((moment, inode.clone()));
                }
                if let Some(identity) = inode.identity {
                    judge.inodes.insert(identity, ino);
                }
            }
            judge.moments.entry(sum).or_default().push(moment);
        }
        judge.note_effects();
        judge
    }

    fn note_effects(&mut self) {
        for (number, effects) in self.history.effects.iter().enumerate() {
            let moment = number + 1;
            if effects.synced_all {
                self.syncs.push(moment);
            }
            // One that failed has changed nothing, and waits for nothing.
            let changed = !effects.touched.is_empty() || !effects.ctime_set.is_empty();
            if self.history.settles && changed && self.history.ops[number].settles() {
                self.settled.push(moment);
            }
            if let Some((ino, size)) = effects.truncated {
                self.lives[ino].truncations.push((moment, size));
            }
            if let Some(ino) = effects.mtime_set {
                self.lives[ino].mtime_set.push(moment);
            }
            for ino in &effects.ctime_set {
                self.lives[*ino].ctime_set.push(moment);
            }
            if let Some(ino) = effects.replaced_by {
                self.lives[ino].replaced.push(moment);
            }
            if let Op::Copy { .. } = self.history.ops[number] {
                effects.touched.iter().for_each(|ino| self.lives[*ino].copies.push(moment));
            }
            let Some((ino, data_only)) = effects.synced else { continue };
            self.lives[ino].fsyncs.push((moment, data_only));
            self.fsyncs.push(moment);
        }
    }

    /// The history it judges by.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The earliest moment that may be found, under an engine that leaves one moment.
    pub fn lowest(&self, bounds: Bounds) -> usize {
        let done = self.syncs.iter().chain(&self.fsyncs).chain(&self.settled).copied();
        let own = done.filter(|moment| *moment <= bounds.returned).max().unwrap_or(0);
        own.max(bounds.synced).max(bounds.named)
    }

    /// How many syncs and fsyncs had returned, and calls that are durable then.
    pub(crate) fn promises_kept(&self, bounds: Bounds) -> usize {
        let returned = |moments: &[usize]| moments.partition_point(|moment| *moment <= bounds.returned);
        returned(&self.syncs) + returned(&self.fsyncs) + returned(&self.settled)
    }

    /// The moment of the tree, the latest if several are possible.
    ///
    /// # Errors
    /// Why it is at no allowed moment, in words.
    pub fn judge(&self, tree: &Tree, bounds: Bounds, unit: Unit) -> Result<usize, String> {
        let mut moments = self.moments_of(tree, bounds, unit, true)?;
        Ok(moments.pop().unwrap_or(0))
    }

    /// All moments that the tree may be at, in order; at least one. `one`: only the latest.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub fn moments_of(
        &self,
        tree: &Tree,
        bounds: Bounds,
        unit: Unit,
        one: bool,
    ) -> Result<Vec<usize>, String> {
        if !tree.contradictions.is_empty() {
            return Err(list(&tree.contradictions));
        }
        let lowest = self.lowest(bounds);
        let moments = self.moments.get(&tree.names_hash()).map_or(&[][..], Vec::as_slice);
        let allowed = moments.iter().rev().copied().filter(|m| (lowest..=bounds.begun).contains(m));
        let mut best: Option<(usize, Vec<String>)> = None;
        let mut good = Vec::new();
        for moment in allowed {
            let wrong = self.wrong_content(tree, unit, |life| Span::new(self, life, moment, bounds));
            if wrong.is_empty() {
                good.push(moment);
                if one {
                    break;
                }
            } else if best.as_ref().is_none_or(|(_, least)| wrong.len() < least.len()) {
                best = Some((moment, wrong));
            }
        }
        good.reverse();
        match best {
            _ if !good.is_empty() => Ok(good),
            Some((moment, wrong)) => {
                Err(format!("names and attributes are those of moment {moment}, but:\n    {}", list(&wrong)))
            }
            None => Err(self.explain_names(tree, moments, lowest, bounds)),
        }
    }

    /// Checks what a snapshot shows: names and attributes must be those of its moment, and contents what a
    /// crash at that moment could have left under the promises kept so far, including those of later syncs.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn judge_past(&self, tree: &Tree, taken: &Taken, bounds: Bounds, unit: Unit) -> Result<(), String> {
        let mut wrong = tree.differences(&taken.tree, false);
        wrong.extend(
            self.wrong_content(tree, unit, |life| Span::new(self, life, taken.moment, bounds).ended()),
        );
        match wrong.is_empty() {
            true => Ok(()),
            false => Err(list(&wrong)),
        }
    }

    fn explain_names(&self, tree: &Tree, moments: &[usize], lowest: usize, bounds: Bounds) -> String {
        if let Some(moment) = moments.first() {
            return format!(
                "names and attributes are those of moment {moment}, which is not between {lowest} (promised by a \
                 sync or fsync) and {} (begun)",
                bounds.begun
            );
        }
        let nearest = (lowest..=bounds.begun)
            .map(|moment| {
                let expected = Tree::of(&self.history.states[moment].without_slots());
                (moment, tree.differences(&expected, false))
            })
            .min_by_key(|(_, differences)| differences.len());
        let Some((moment, differences)) = nearest else {
            return format!("no moment lies between {lowest} and {}", bounds.begun);
        };
        format!(
            "names and attributes are those of no moment from {lowest} to {}; nearest is moment {moment}, but:\n    {}",
            bounds.begun,
            list(&differences)
        )
    }

    /// Errors in regular files, given what each of them may be.
    fn wrong_content<'a>(
        &'a self,
        tree: &Tree,
        unit: Unit,
        span: impl Fn(&'a Life) -> Span<'a>,
    ) -> Vec<String> {
        let mut wrong = Vec::new();
        for (number, node) in &tree.nodes {
            let Inside::File { size, blocks } = &node.inside else { continue };
            let Some(ino) = self.inodes.get(&(*number, node.facts.incarnation)) else {
                wrong.push(format!("{} is unknown", tree.path_of(*number)));
                continue;
            };
            let file = FoundFile { size: *size, blocks, facts: &node.facts };
            let span = span(&self.lives[*ino]);
            let errors = span.wrong(&file, unit);
            let since = if span.is_since_replacing { REPLACED } else { "" };
            wrong
                .extend(errors.into_iter().map(|error| format!("{}: {error}{since}", tree.path_of(*number))));
        }
        wrong.sort_unstable();
        wrong
    }

    /// Inodes that were held without a name at a moment: after a crash they must be gone.
    pub fn orphans(&self, moment: usize) -> impl Iterator<Item = Identity> + '_ {
        let inodes = self.history.states[moment].inodes();
        inodes.filter(|(_, inode)| inode.links == 0).filter_map(|(_, inode)| inode.identity)
    }
}

/// The remark on a file whose content must not be older than its rename over another.
pub const REPLACED: &str = " (its last promise is that of a rename over another file)";

/// A regular file as found.
struct FoundFile<'a> {
    size: u64,
    blocks: &'a BTreeMap<u64, Arc<Block>>,
    facts: &'a Facts,
}

/// The allowed states of a file, given the moment of names and attributes.
struct Span<'a> {
    life: &'a Life,
    /// The moment of names and attributes.
    moment: usize,
    /// The earliest moment from which content may be.
    content_from: usize,
    /// Whether a rename over another file is the reason for that, and not a sync.
    is_since_replacing: bool,
    /// The earliest moment from which times may be.
    times_from: usize,
    /// The latest moment from which size and times may be.
    to: usize,
    /// The latest moment from which content may be.
    begun: usize,
    /// Whether a copy to the file may be there in part.
    in_parts: bool,
}

impl<'a> Span<'a> {
    fn new(judge: &Judge, life: &'a Life, moment: usize, bounds: Bounds) -> Span<'a> {
        let returned = |moment: &usize| *moment <= bounds.returned;
        let synced = judge.syncs.iter().copied().filter(returned).max().unwrap_or(0).max(bounds.synced);
        let fsynced = |of_data: bool| {
            let fsyncs = life.fsyncs.iter().filter(|(_, data_only)| of_data || !data_only);
            fsyncs.map(|(moment, _)| *moment).filter(returned).max().unwrap_or(0)
        };
        let replaced = life.replaced.iter().copied().filter(|at| *at <= moment).max().unwrap_or(0);
        let content_synced = synced.max(fsynced(true));
        let content_from = content_synced.max(replaced);
        let times_from = synced.max(fsynced(false));
        let to = moment.max(content_from);
        let is_since_replacing = replaced > content_synced;
        Span {
            life,
            moment,
            content_from,
            is_since_replacing,
            times_from,
            to,
            begun: bounds.begun.max(to),
            in_parts: false,
        }
    }

    /// The same under an engine that orders changes, for a file that has a name which it had from some moment
    /// on: a rename over another file that gave it the name has written its content first.
    fn of_ordered(mut self, named_from: usize) -> Span<'a> {
        self.in_parts = true;
        let replaced = self.life.replaced.iter().copied().filter(|at| *at <= named_from).max().unwrap_or(0);
        match replaced > self.content_from {
            true => Span {
                content_from: replaced,
                is_since_replacing: true,
                to: self.to.max(replaced),
                begun: self.begun.max(replaced),
                ..self
            },
            false => self,
        }
    }

    /// The same for a view that shows the moment of names and attributes for ever: nothing later, and no
    /// later promise.
    fn ended(self) -> Span<'a> {
        let to = self.moment;
        Span {
            content_from: self.content_from.min(to),
            times_from: self.times_from.min(to),
            to,
            begun: to,
            ..self
        }
    }

    /// The versions that existed at some moment of a range.
    fn versions(&self, from: usize, to: usize) -> &'a [(usize, Arc<Inode>)] {
        let versions = &self.life.versions;
        let first = versions.partition_point(|(moment, _)| *moment <= from).saturating_sub(1);
        let end = versions.partition_point(|(moment, _)| *moment <= to);
        &versions[first.min(end)..end]
    }

    /// The last of these moments within `moment`, but not before `from`.
    fn since(&self, from: usize, moments: impl Iterator<Item = usize>) -> usize {
        moments.filter(|at| *at <= self.moment).max().unwrap_or(0).max(from)
    }

    fn wrong(&self, file: &FoundFile<'_>, unit: Unit) -> Vec<String> {
        let mut wrong = Vec::new();
        // A size from before a truncation belongs to data that the truncation then met and truncated.
        let truncate = |moment: usize, size: u64| {
            let later =
                self.life.truncations.iter().filter(|(at, _)| (moment + 1..=self.moment).contains(at));
            later.map(|(_, size)| *size).chain([size]).min().unwrap_or(size)
        };
        let versions = self.versions(self.content_from, self.to).iter();
        let mut sizes: Vec<u64> =
            versions.filter_map(|(moment, v)| v.data().map(|data| truncate(*moment, data.size()))).collect();
        sizes.dedup();
        if !(sizes.contains(&file.size) || self.in_parts && self.is_of_copy(file.size)) {
            wrong.push(format!("size is {}, since its last sync it was {sizes:?}", file.size));
        }
        let known = |time| match time {
            crate::model::Time::Known(time) => Some(time),
            _ => None,
        };
        let since = self.since(self.times_from, self.life.mtime_set.iter().copied());
        if !self.versions(since, self.to).iter().any(|(_, v)| known(v.mtime) == Some(file.facts.mtime)) {
            wrong.push(format!("mtime is {:?}, which it was not from moment {since} on", file.facts.mtime));
        }
        let since = self.since(self.times_from, self.life.ctime_set.iter().copied());
        if !self.versions(since, self.to).iter().any(|(_, v)| known(v.ctime) == Some(file.facts.ctime)) {
            wrong.push(format!("ctime is {:?}, which it was not from moment {since} on", file.facts.ctime));
        }
        wrong.extend(self.wrong_blocks(file, unit));
        wrong
    }

    /// Whether a copy up to the moment of names and attributes may have left this size.
    fn is_of_copy(&self, size: u64) -> bool {
        let size_at = |moment: usize| {
            let (_, inode) = self.versions(moment, moment).first()?;
            inode.data().map(FileData::size)
        };
        let mut copies =
            self.life.copies.iter().filter(|at| (self.content_from + 1..=self.to + 1).contains(*at));
        copies.any(|at| size_at(at - 1).zip(size_at(*at)).is_some_and(|(was, is)| (was..=is).contains(&size)))
    }

    fn wrong_blocks(&self, file: &FoundFile<'_>, unit: Unit) -> Vec<String> {
        let versions = self.versions(self.content_from, self.begun);
        let is_whole = |inode: &Arc<Inode>| {
            inode.data().is_some_and(|data| data.size() == file.size && data.blocks() == file.blocks)
        };
        if self.life.truncations.is_empty() && versions.iter().any(|(_, inode)| is_whole(inode)) {
            return Vec::new();
        }
        if let Some(last) = last_of_grown(versions) {
            let wrong = difference_below(file.size, file.blocks, last.blocks());
            let told = wrong.map(|index| {
                let (found, wanted) = (file.blocks.get(&index), last.blocks().get(&index));
                format!(
                    "block {index} is {}, which is not how {} begins: nothing of the file was overwritten or truncated from \
                     moment {} on",
                    show_block(found),
                    show_block(wanted),
                    self.content_from
                )
            });
            return told.into_iter().collect();
        }
        let mut indexes: Vec<u64> = file.blocks.keys().copied().collect();
        let of_version =
            |(_, inode): &'a (usize, Arc<Inode>)| inode.data().into_iter().flat_map(|d| d.blocks().keys());
        indexes.extend(versions.iter().flat_map(of_version).filter(|i| **i * (BLOCK as u64) < file.size));
        indexes.sort_unstable();
        indexes.dedup();
        indexes.into_iter().filter_map(|index| self.wrong_block(file, index, unit)).collect()
    }

    /// How many bytes of a block of `moment` are left by the later truncations within p, none of which
    /// removed the block as a whole.
    fn kept_of_block(&self, index: u64, moment: usize) -> usize {
        let start = index * BLOCK as u64;
        let later = self.life.truncations.iter().filter(|(at, _)| (moment + 1..=self.moment).contains(at));
        let kept = later.map(|(_, size)| size.saturating_sub(start).min(BLOCK as u64) as usize);
        kept.min().unwrap_or(BLOCK)
    }

    fn wrong_block(&self, file: &FoundFile<'_>, index: u64, unit: Unit) -> Option<String> {
        static ZEROS: Block = [0; BLOCK];
        // A truncation removes whole blocks for good; in the last block it leaves the rest to a later write.
        let truncated = self.life.truncations.iter().filter(|(_, size)| size.div_ceil(BLOCK as u64) <= index);
        let from = self.since(self.content_from, truncated.map(|(moment, _)| *moment));
        let versions = self.versions(from, self.begun);
        let found = file.blocks.get(&index).map_or(&ZEROS, |block| &**block);
        let len = (file.size.saturating_sub(index * BLOCK as u64)).min(BLOCK as u64) as usize;
        let step = if unit == Unit::Block { BLOCK } else { 512 };
        for start in (0..len).step_by(step) {
            let range = start..(start + step).min(len);
            let fits = versions.iter().any(|(moment, inode)| {
                let block = inode.data().and_then(|data| data.blocks().get(&index));
                let block = &block.map_or(&ZEROS, |block| &**block)[range.clone()];
                let kept = self.kept_of_block(index, *moment).clamp(range.start, range.end) - range.start;
                let found = &found[range.clone()];
                found == block
                    || found[..kept] == block[..kept] && found[kept..].iter().all(|byte| *byte == 0)
            });
            if !fits {
                let allowed: Vec<String> = versions
                    .iter()
                    .map(|(moment, inode)| {
                        let block = inode.data().and_then(|data| data.blocks().get(&index));
                        format!("{} (moment {moment})", show_block(block))
                    })
                    .collect();
                return Some(format!(
                    "block {index} is {} at {range:?}, from moment {from} on it was {}",
                    show_block(file.blocks.get(&index)),
                    allowed.join(", ")
                ));
            }
        }
        None
    }
}

/// The last of the versions of a file if each begins with all of the one before it.
fn last_of_grown(versions: &[(usize, Arc<Inode>)]) -> Option<&FileData> {
    let mut last: Option<&FileData> = None;
    for (_, inode) in versions {
        let data = inode.data()?;
        let grew = last.is_none_or(|last| {
            last.is_same(data)
                || last.size() <= data.size()
                    && difference_below(last.size(), last.blocks(), data.blocks()).is_none()
        });
        if !grew {
            return None;
        }
        last = Some(data);
    }
    last
}

/// The first block in which two contents differ within their first `size` bytes, which both have.
fn difference_below(size: u64, a: &BTreeMap<u64, Arc<Block>>, b: &BTreeMap<u64, Arc<Block>>) -> Option<u64> {
    static ZEROS: Block = [0; BLOCK];
    let end = size.div_ceil(BLOCK as u64);
    let differs = |index: u64| {
        let len = (size - index * BLOCK as u64).min(BLOCK as u64) as usize;
        let [a, b] = [a, b].map(|blocks| blocks.get(&index));
        let same = a.zip(b).is_some_and(|(a, b)| Arc::ptr_eq(a, b));
        !same && a.map_or(&ZEROS, |block| &**block)[..len] != b.map_or(&ZEROS, |block| &**block)[..len]
    };
    let all = a.range(..end).chain(b.range(..end)).map(|(index, _)| *index);
    all.filter(|index| differs(*index)).min()
}

mod held;
mod ordered;
#[cfg(test)]
mod tests;
