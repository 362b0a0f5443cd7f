//! The trees of the past, and what they say of each other: cuts and their index, versions and changes, past names.
//!
//! What the versions name is looked at with the inodes ([`crate::states`]); here they are gathered. What is kept of them
//! takes memory in proportion to the history: an inode for each version, and a name and a number for each name that
//! a directory once had.

use crate::checker::Checker;
use crate::tree::{Leaf, Tree, Walk};
use crate::{CheckError, Finding, Problem};
use std::collections::BTreeMap;
use yore_format::{
    change_key, cut_index_by_name, cut_index_by_root, key_parts, name_cookie, shard_of, Block, BlockKind,
    Corruption, CutRow, CutState, DirEntry, Expect, HistoryRoots, HistoryTree, Incarnation, Inode, InodeNo,
    MetaAddr, Number, PastName, Timestamp, Version, HISTORY_SHARDS,
};

/// Cookies that one hash of a name can have.
const COLLISIONS: u64 = 256;

/// A version, with where it stands.
pub(crate) struct Past {
    pub(crate) end: Number,
    pub(crate) inode: Inode,
    pub(crate) place: MetaAddr,
}

/// What is kept of the trees of the past for the walk over the inodes.
#[derive(Default)]
pub(crate) struct History {
    /// The versions of each inode that has any, from the oldest to the newest.
    versions: BTreeMap<InodeNo, Vec<Past>>,
    /// Of each directory: when the names that are not meant any more ended last.
    deaths: BTreeMap<InodeNo, BTreeMap<Vec<u8>, Number>>,
}

impl History {
    /// Takes the versions of an inode, from the oldest to the newest.
    pub(crate) fn take(&mut self, inode: InodeNo) -> Vec<Past> {
        self.versions.remove(&inode).unwrap_or_default()
    }

    /// The first inode of which there still are versions.
    pub(crate) fn first_inode(&self) -> Option<InodeNo> {
        self.versions.keys().next().copied()
    }
}

/// An index as it should be: its keys in ascending order, and whether these are all.
struct Index {
    keys: Vec<[u8; 16]>,
    complete: bool,
    problem: Problem,
    shown: fn([u64; 2]) -> String,
}

/// The past names of one directory and one hash, of which equal names are among.
struct Run {
    directory: InodeNo,
    base: u64,
    /// Name, birth, death and place.
    lives: Vec<(Vec<u8>, Number, Number, MetaAddr)>,
}

impl Checker<'_> {
    /// Walks the trees of the past.
    pub(crate) fn history(&mut self) -> Result<(), CheckError> {
        if self.sb.history_root.is_none() {
            return Ok(());
        }
        let expect = Expect {
            kind: BlockKind::HistoryRoots,
            owner: InodeNo::HISTORY,
            incarnation: Incarnation(0),
            level: Some(0),
        };
        let Some(roots) = self.reach(self.sb.history_root, &expect)? else { return Ok(()) };
        self.cuts(&roots)?;
        let mut complete = true;
        for shard in 0..HISTORY_SHARDS {
            complete &= self.versions(&roots, shard)?;
            self.past_names(&roots, shard)?;
        }
        for versions in self.history.versions.values_mut() {
            versions.sort_by_key(|version| version.inode.born);
        }
        self.changes(&roots, complete)
    }

    /// A walk over a tree of the past; `None` for one without cells.
    fn past_walk(roots: &Block, tree: HistoryTree) -> Option<Walk> {
        let (root, level) = HistoryRoots::get(roots, tree);
        let tree = Tree {
            kind: tree.kind(),
            owner: tree.owner(),
            incarnation: Incarnation(0),
            root,
            level: Some(level),
            key_width: tree.key_width(),
        };
        (!root.is_none()).then(|| Walk::new(tree))
    }

    /// The next leaf, if there is a tree at all.
    fn next_past_leaf(&mut self, walk: &mut Option<Walk>) -> Result<Option<Leaf>, CheckError> {
        walk.as_mut().map_or(Ok(None), |walk| walk.next_leaf(self))
    }

    /// Reports a cell that cannot be decoded.
    fn damaged_cell(&mut self, c: Box<Corruption>, place: MetaAddr) {
        self.add_incomplete(Finding::corruption(Problem::CellDamaged, &c.at(place)));
    }

    /// The table of cuts: numbers, times and names; then its index.
    fn cuts(&mut self, roots: &Block) -> Result<(), CheckError> {
        let mut index = Index {
            keys: Vec::new(),
            complete: true,
            problem: Problem::CutIndex,
            shown: |[first, number]| format!("cut {number} under {first:#x}"),
        };
        let mut latest: Option<Timestamp> = None;
        let mut names = BTreeMap::new();
        let mut walk = Self::past_walk(roots, HistoryTree::Cuts);
        while let Some(leaf) = self.next_past_leaf(&mut walk)? {
            for i in 0..leaf.count() {
                let (number, value) = leaf.cell(i);
                self.counts.cuts += 1;
                match CutRow::decode(value) {
                    Ok(cut) => {
                        let number = Number(number);
                        index.keys.push(cut_index_by_root(cut.root, number));
                        if !cut.name.is_empty() {
                            index.keys.push(cut_index_by_name(&self.sb.hash_seed, &cut.name, number));
                        }
                        self.cut(leaf.addr, number, &cut, latest);
                        latest = Some(cut.time);
                        if let Some(other) = Self::name_of(&cut).and_then(|name| names.insert(name, number)) {
                            let found = format!("{:?} of the cuts {other} and {number}", cut.name);
                            let finding = Finding::new(Problem::CutName, "one cut of a name", found);
                            self.add(finding.at(leaf.addr).of(cut.root));
                        }
                    }
                    Err(c) => {
                        self.damaged_cell(c, leaf.addr);
                        index.complete = false;
                    }
                }
            }
        }
        index.complete &= walk.is_none_or(|walk| walk.complete);
        self.index(Self::past_walk(roots, HistoryTree::CutIndex), None, index)
    }

    /// The name by which a cut can be found.
    fn name_of(cut: &CutRow) -> Option<String> {
        (cut.state == CutState::Kept && !cut.name.is_empty()).then(|| cut.name.clone())
    }

    fn cut(&mut self, place: MetaAddr, number: Number, cut: &CutRow, before: Option<Timestamp>) {
        let next = self.sb.next_number;
        if number.0 == 0 || number >= next {
            let finding = Finding::new(Problem::CutNumber, format!("from 1 to below {next}"), number.0);
            self.add(finding.at(place).of(cut.root));
        }
        let text = |t: Timestamp| format!("{}.{:09} s", t.seconds, t.nanos);
        if let Some(before) = before.filter(|before| *before >= cut.time) {
            let (expected, found) = (format!("later than {}", text(before)), text(cut.time));
            self.add(Finding::new(Problem::CutTime, expected, found).at(place).of(cut.root));
        }
        self.check_incarnation(cut.root_incarnation, cut.root, place);
    }

    /// Compares a tree whose cells are keys alone with the keys that it should have. In a `shard` the second part of each
    /// key is an inode, and of that shard.
    fn index(
        &mut self,
        mut walk: Option<Walk>,
        shard: Option<usize>,
        index: Index,
    ) -> Result<(), CheckError> {
        let Index { mut keys, complete, problem, shown } = index;
        keys.sort_unstable();
        keys.dedup();
        let shown = |key: &[u8]| key_parts(key).map_or_else(|c| c.to_string(), shown);
        let mut wanted = keys.into_iter().peekable();
        let mut missing = Vec::new();
        let mut place = MetaAddr::NONE;
        while let Some(leaf) = self.next_past_leaf(&mut walk)? {
            place = leaf.addr;
            for i in 0..leaf.count() {
                let (key, value) = leaf.wide_cell(i);
                if !value.is_empty() {
                    let c = Corruption::new("cell of an index", "length", 0, value.len());
                    self.damaged_cell(c, leaf.addr);
                }
                while let Some(key) = wanted.next_if(|wanted| wanted[..] < *key) {
                    missing.push((key, leaf.addr));
                }
                if wanted.next_if(|wanted| wanted[..] == *key).is_some() {
                    continue;
                }
                if !self.is_in_shard(key, shard, leaf.addr) {
                    continue;
                }
                if complete {
                    let finding = Finding::new(problem, "no such key", shown(key));
                    self.add(finding.at(leaf.addr));
                }
            }
        }
        if walk.is_some_and(|walk| !walk.complete) {
            return Ok(());
        }
        missing.extend(wanted.map(|key| (key, place)));
        for (key, place) in missing {
            let mut finding = Finding::new(problem, shown(&key), "no such key");
            finding.place = (!place.is_none()).then_some(place);
            self.add(finding);
        }
        Ok(())
    }

    /// Whether the inode in the second part of a key is of this shard; any is, of a tree that has no shards.
    fn is_in_shard(&mut self, key: &[u8], shard: Option<usize>, place: MetaAddr) -> bool {
        let (Some(shard), Ok([_, inode])) = (shard, key_parts(key)) else { return true };
        self.check_shard(InodeNo(inode), shard, place)
    }

    fn check_shard(&mut self, inode: InodeNo, shard: usize, place: MetaAddr) -> bool {
        let right = shard_of(inode);
        if right != shard {
            let (expected, found) = (format!("in shard {right}"), format!("in shard {shard}"));
            self.add(Finding::new(Problem::HistoryShard, expected, found).at(place).of(inode));
        }
        right == shard
    }

    /// Gathers the versions of a shard. Returns whether all of them could be read.
    fn versions(&mut self, roots: &Block, shard: usize) -> Result<bool, CheckError> {
        let mut complete = true;
        let mut walk = Self::past_walk(roots, HistoryTree::Versions(shard));
        while let Some(leaf) = self.next_past_leaf(&mut walk)? {
            for i in 0..leaf.count() {
                let (key, value) = leaf.wide_cell(i);
                self.counts.versions += 1;
                match decode_version(key, value) {
                    Ok((inode, version)) => {
                        self.version(inode, &version, shard, leaf.addr);
                        let Version { end, inode: was } = version;
                        let past = Past { end, inode: was, place: leaf.addr };
                        self.history.versions.entry(inode).or_default().push(past);
                    }
                    Err(c) => {
                        self.damaged_cell(c, leaf.addr);
                        complete = false;
                    }
                }
            }
        }
        Ok(complete && walk.is_none_or(|walk| walk.complete))
    }

    fn version(&mut self, inode: InodeNo, version: &Version, shard: usize, place: MetaAddr) {
        self.check_shard(inode, shard, place);
        self.check_number("end of a version", version.end, place, inode);
        self.check_incarnation(version.inode.incarnation, inode, place);
    }

    /// Compares the trees of changes with the ends of the versions, of which those at hand may not be all.
    fn changes(&mut self, roots: &Block, complete: bool) -> Result<(), CheckError> {
        let mut keys = vec![Vec::new(); HISTORY_SHARDS];
        for (inode, versions) in &self.history.versions {
            keys[shard_of(*inode)].extend(versions.iter().map(|version| change_key(version.end, *inode)));
        }
        for (shard, keys) in keys.into_iter().enumerate() {
            let index = Index {
                keys,
                complete,
                problem: Problem::ChangeIndex,
                shown: |[number, inode]| format!("the end of a version of inode {inode} at {number}"),
            };
            self.index(Self::past_walk(roots, HistoryTree::Changes(shard)), Some(shard), index)?;
        }
        Ok(())
    }

    /// Checks the past names of a shard, and keeps when each of them ended last.
    fn past_names(&mut self, roots: &Block, shard: usize) -> Result<(), CheckError> {
        let mut run = Run { directory: InodeNo::NONE, base: 0, lives: Vec::new() };
        let mut walk = Self::past_walk(roots, HistoryTree::Names(shard));
        while let Some(leaf) = self.next_past_leaf(&mut walk)? {
            for i in 0..leaf.count() {
                let (key, value) = leaf.wide_cell(i);
                self.counts.past_names += 1;
                match decode_name(key, value) {
                    Ok((directory, cookie, name)) => {
                        self.check_shard(directory, shard, leaf.addr);
                        self.past_name(&mut run, leaf.addr, directory, cookie, &name);
                    }
                    Err(c) => self.damaged_cell(c, leaf.addr),
                }
            }
        }
        self.end_of_run(&mut run);
        Ok(())
    }

    fn past_name(
        &mut self,
        run: &mut Run,
        place: MetaAddr,
        directory: InodeNo,
        cookie: u64,
        name: &PastName<'_>,
    ) {
        let PastName { death, entry } = name;
        self.check_number("death of a name", *death, place, directory);
        self.check_incarnation(entry.incarnation, entry.inode, place);
        let base = name_cookie(&self.sb.hash_seed, entry.name);
        if !(base..base + COLLISIONS).contains(&cookie) {
            let shown = String::from_utf8_lossy(entry.name);
            let expected = format!("{base:#x} and up to 255 more for {shown:?}");
            let finding = Finding::new(Problem::EntryKey, expected, format!("{cookie:#x}"));
            self.add(finding.at(place).of(directory));
        }
        if (directory, base) != (run.directory, run.base) {
            self.end_of_run(run);
            (run.directory, run.base) = (directory, base);
        }
        run.lives.push((entry.name.to_vec(), entry.birth, *death, place));
    }

    /// Compares the lives of each name with each other.
    fn end_of_run(&mut self, run: &mut Run) {
        run.lives.sort();
        let mut before: Option<(Vec<u8>, Number)> = None;
        for (name, birth, death, place) in run.lives.drain(..) {
            if let Some((_, end)) = before.filter(|(other, end)| *other == name && *end > birth) {
                let shown = String::from_utf8_lossy(&name);
                let (expected, found) = (format!("{shown:?} born at {end} or later"), birth.0);
                let finding = Finding::new(Problem::PastNameOrder, expected, found);
                self.add(finding.at(place).of(run.directory));
            }
            let deaths = self.history.deaths.entry(run.directory).or_default();
            let last = deaths.entry(name.clone()).or_default();
            *last = death.max(*last);
            before = Some((name, death));
        }
    }

    /// An entry in use begins when the names before it have ended.
    pub(crate) fn check_past_names(&mut self, directory: InodeNo, place: MetaAddr, entry: &DirEntry<'_>) {
        let deaths = self.history.deaths.get(&directory);
        let death = deaths.and_then(|deaths| deaths.get(entry.name)).copied();
        if let Some(death) = death.filter(|death| *death > entry.birth) {
            let shown = String::from_utf8_lossy(entry.name);
            let expected = format!("{shown:?} born at {death} or later");
            let finding = Finding::new(Problem::PastNameOrder, expected, entry.birth.0);
            self.add(finding.at(place).of(directory));
        }
    }
}

/// The inode in a key.
fn inode_of(number: u64) -> Result<InodeNo, Box<Corruption>> {
    let inode = InodeNo(number);
    match inode.is_file() {
        true => Ok(inode),
        false => Err(Corruption::new("key of the history", "inode", "a file's number", inode)),
    }
}

fn decode_version(key: &[u8], value: &[u8]) -> Result<(InodeNo, Version), Box<Corruption>> {
    let [inode, born] = key_parts(key)?;
    let inode = inode_of(inode)?;
    Ok((inode, Version::decode(inode, Number(born), value)?))
}

fn decode_name<'v>(key: &[u8], value: &'v [u8]) -> Result<(InodeNo, u64, PastName<'v>), Box<Corruption>> {
    let [directory, cookie, birth] = key_parts(key)?;
    Ok((inode_of(directory)?, cookie, PastName::decode(Number(birth), value)?))
}
