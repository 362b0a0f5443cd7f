//! The trees of the past, and what they say of each other: cuts, those forgotten and the index of the others;
//! versions, past names, and the changes, which are the ends of both.
//!
//! What the versions name is looked at with the inodes ([`crate::states`]); here they are gathered. What is
//! kept of them takes memory in proportion to the history: an inode for each version, a name and a number for
//! each name that a directory once had, and, until these trees are done, a time or a key for each of their
//! cells.

use crate::checker::Checker;
use crate::tree::{Leaf, Tree, Walk};
use crate::{CheckError, Finding, Problem};
use std::collections::BTreeMap;
use yore_format::{
    cut_index_by_name, cut_index_by_root, key_parts, name_cookie, name_end_key, name_shard, version_end_key,
    version_shard, Block, BlockKind, Corruption, CutKind, CutRow, CutState, DirEntry, Expect, HistoryRoots,
    HistorySpace, HistoryTree, Incarnation, Inode, InodeNo, MetaAddr, Number, PastName, RollbackIntent,
    Timestamp, Version, WriteFeatures, HISTORY_SHARDS,
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
    deaths: BTreeMap<InodeNo, Deaths>,
    /// Files whose history is being given up, and the number up to which.
    expunged: BTreeMap<(InodeNo, Incarnation), Number>,
    /// How many blocks only the past holds, as its roots say.
    pub(crate) space: HistorySpace,
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

/// When past names ended last.
#[derive(Default)]
struct Deaths {
    by_name: BTreeMap<Vec<u8>, Number>,
    by_cookie: BTreeMap<u64, Number>,
}

/// A tree whose cells are keys alone, as it should be.
struct Index<const BYTES: usize> {
    keys: Vec<[u8; BYTES]>,
    /// Whether these are all.
    complete: bool,
    problem: Problem,
    shown: fn(&[u8]) -> String,
}

/// What the trees of cuts hold.
#[derive(Default)]
struct Cuts {
    times: Vec<Cut>,
    /// The keys that their index should have.
    keys: Vec<[u8; 16]>,
    /// The names by which kept cuts can be found, each with what was cut; the same for all where names are
    /// the volume's.
    names: BTreeMap<(Option<(InodeNo, Incarnation)>, String), Number>,
    /// Those that are kept, with what was cut, and why.
    kept: BTreeMap<Number, (InodeNo, CutKind)>,
    rollbacks: Vec<Rollback>,
}

/// A directory that is being made what it was.
struct Rollback {
    number: Number,
    root: InodeNo,
    incarnation: Incarnation,
    /// Given up for now: since then anything may have become of the directory.
    stopped: bool,
    intent: RollbackIntent,
    place: MetaAddr,
}

/// When a cut was, and where that stands.
struct Cut {
    number: Number,
    time: Timestamp,
    root: InodeNo,
    place: MetaAddr,
}

/// The keys that the trees of changes should have, by shard.
struct Ends {
    keys: Vec<Vec<[u8; 24]>>,
    /// Whether these are all.
    complete: bool,
}

/// The past names of one directory and one hash, of which equal names are among.
struct Run {
    directory: InodeNo,
    base: u64,
    lives: Vec<Life>,
    /// Directory and cookie of the cell before, and when it ended.
    before: (InodeNo, u64, Number),
}

/// What a past name was, sorted by name and birth.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Life {
    name: Vec<u8>,
    birth: Number,
    death: Number,
    cookie: u64,
    place: MetaAddr,
}

impl Checker<'_> {
    /// Walks the trees of the past.
    pub(crate) fn history(&mut self) -> Result<(), CheckError> {
        let Some(roots) = self.history_roots()? else {
            if self.sb.history_root.is_none() {
                self.policies_of_inodes(&BTreeMap::new(), true);
            }
            return Ok(());
        };
        self.cuts(&roots)?;
        let mut ends = Ends { keys: vec![Vec::new(); HISTORY_SHARDS], complete: true };
        for shard in 0..HISTORY_SHARDS {
            self.versions(&roots, shard, &mut ends)?;
            self.past_names(&roots, shard, &mut ends)?;
        }
        for versions in self.history.versions.values_mut() {
            versions.sort_by_key(|version| version.inode.born);
        }
        self.changes(&roots, ends)?;
        self.policies(&roots)?;
        self.operations(&roots)
    }

    /// The block of their roots, if the volume has a past.
    fn history_roots(&mut self) -> Result<Option<Box<Block>>, CheckError> {
        if self.sb.history_root.is_none() {
            return Ok(None);
        }
        let expect = Expect {
            kind: BlockKind::HistoryRoots,
            owner: InodeNo::HISTORY,
            incarnation: Incarnation(0),
            level: Some(0),
        };
        let roots = self.reach(self.sb.history_root, &expect)?;
        if let Some(roots) = &roots {
            self.counts.history_trees += 1;
            self.history.space = HistoryRoots::space(roots);
        }
        Ok(roots)
    }

    /// A walk over a tree of the past; `None` for one without cells.
    pub(crate) fn past_walk(roots: &Block, tree: HistoryTree) -> Option<Walk> {
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
    pub(crate) fn next_past_leaf(&mut self, walk: &mut Option<Walk>) -> Result<Option<Leaf>, CheckError> {
        walk.as_mut().map_or(Ok(None), |walk| walk.next_leaf(self))
    }

    /// Reports a cell that cannot be decoded.
    pub(crate) fn damaged_cell(&mut self, c: Box<Corruption>, place: MetaAddr) {
        self.add_incomplete(Finding::corruption(Problem::CellDamaged, &c.at(place)));
    }

    /// The cuts, those that were forgotten, and the index of the others.
    fn cuts(&mut self, roots: &Block) -> Result<(), CheckError> {
        let mut cuts = Cuts::default();
        let complete = self.cuts_in(roots, HistoryTree::Cuts, &mut cuts)?;
        self.cuts_in(roots, HistoryTree::Forgotten, &mut cuts)?;
        self.cut_times(cuts.times);
        if complete {
            self.rollbacks(&cuts.rollbacks, &cuts.kept);
        }
        let index = Index {
            keys: cuts.keys,
            complete,
            problem: Problem::CutIndex,
            shown: |key| match key_parts(key) {
                Ok([first, number]) => format!("cut {number} under {first:#x}"),
                Err(c) => c.to_string(),
            },
        };
        self.index(Self::past_walk(roots, HistoryTree::CutIndex), None, index)
    }

    /// Gathers the cuts in one of their trees. Returns whether all of them could be read.
    fn cuts_in(&mut self, roots: &Block, tree: HistoryTree, cuts: &mut Cuts) -> Result<bool, CheckError> {
        let mut complete = true;
        let mut walk = Self::past_walk(roots, tree);
        while let Some(leaf) = self.next_past_leaf(&mut walk)? {
            for i in 0..leaf.count() {
                let (number, value) = leaf.cell(i);
                match tree {
                    HistoryTree::Forgotten => self.counts.forgotten += 1,
                    _ => self.counts.cuts += 1,
                }
                match CutRow::decode(value) {
                    Ok(cut) => complete &= self.cut(tree, leaf.addr, Number(number), cut, cuts),
                    Err(c) => {
                        self.damaged_cell(c, leaf.addr);
                        complete = false;
                    }
                }
            }
        }
        Ok(complete && walk.is_none_or(|walk| walk.complete))
    }

    /// Checks a cut, and keeps what is compared with others. In the index are those of the tree of cuts
    /// alone. Whether all of it could be read.
    fn cut(
        &mut self,
        tree: HistoryTree,
        place: MetaAddr,
        number: Number,
        cut: CutRow,
        cuts: &mut Cuts,
    ) -> bool {
        self.check_cut(tree, place, number, &cut);
        let CutRow { time, kind, state, held, root, root_incarnation: incarnation, name, more } = cut;
        if !more.is_empty() {
            self.needs(WriteFeatures::EXTENDED_PAST, "a cut with further fields", place, root);
        }
        cuts.times.push(Cut { number, time, root, place });
        if tree == HistoryTree::Forgotten {
            return true;
        }
        cuts.keys.push(cut_index_by_root(root, number));
        if kind == CutKind::Rollback {
            self.counts.rollbacks += 1;
            let intent = match RollbackIntent::decode(&name) {
                Ok(intent) => intent,
                Err(c) => {
                    self.damaged_cell(c, place);
                    return false;
                }
            };
            cuts.rollbacks.push(Rollback { number, root, incarnation, stopped: held, intent, place });
        }
        if kind == CutKind::Expunge {
            let last = self.history.expunged.entry((root, incarnation)).or_default();
            *last = number.max(*last);
        }
        if state == CutState::Kept {
            cuts.kept.insert(number, (root, kind));
        }
        // The names of dying cuts are free.
        if state != CutState::Dying && !name.is_empty() {
            cuts.keys.push(cut_index_by_name(&self.sb.hash_seed, &name, number));
            let of = self.sb.features.contains(WriteFeatures::EXTENDED_PAST).then_some((root, incarnation));
            if let Some(other) = cuts.names.insert((of, name.clone()), number) {
                let found = format!("{name:?} of the cuts {other} and {number}");
                self.add(Finding::new(Problem::CutName, "one cut of a name", found).at(place).of(root));
            }
        }
        true
    }

    /// What is not finished can be: what it needs is kept, and the directory is there.
    fn rollbacks(&mut self, all: &[Rollback], kept: &BTreeMap<Number, (InodeNo, CutKind)>) {
        for of in all {
            let Rollback { number, root, incarnation, stopped, intent, place } = of;
            let is_there = |cut: &Number| cut < number && kept.contains_key(cut);
            if let Some(missing) = intent.needs().find(|cut| !is_there(cut)) {
                let finding = Finding::new(Problem::RollbackCut, "a kept cut before it", missing.0);
                self.add(finding.at(*place).of(*root));
            } else if kept.get(&intent.before) != Some(&(*root, CutKind::Undo)) {
                let expected = "a cut of the same directory, to undo it, before it";
                let finding = Finding::new(Problem::RollbackCut, expected, intent.before.0);
                self.add(finding.at(*place).of(*root));
            }
            if *stopped || self.is_hidden(*root) {
                continue;
            }
            let found = match self.known(*root).map(|at| &self.inodes[at]) {
                Some(known) if known.is_directory() && known.incarnation == *incarnation => continue,
                Some(known) => format!("{:?} of incarnation {}", known.kind, known.incarnation),
                None => "no inode in use".to_string(),
            };
            let finding = Finding::new(Problem::RollbackRoot, format!("a directory of {incarnation}"), found);
            self.add(finding.at(*place).of(*root));
        }
    }

    /// What a cut says without any other.
    fn check_cut(&mut self, tree: HistoryTree, place: MetaAddr, number: Number, cut: &CutRow) {
        let next = self.sb.next_number;
        if number.0 == 0 || number >= next {
            let finding = Finding::new(Problem::CutNumber, format!("from 1 to below {next}"), number.0);
            self.add(finding.at(place).of(cut.root));
        }
        let (right, expected) = match (tree, cut.kind) {
            // Seen by nobody from the beginning, and remembered by nothing in the end.
            (_, kind) if kind.is_work() => {
                (tree == HistoryTree::Cuts && cut.state == CutState::Dying, "dying, of work under way")
            }
            (HistoryTree::Forgotten, _) => (cut.state == CutState::Forgotten, "forgotten"),
            _ => (cut.state != CutState::Forgotten, "kept or dying"),
        };
        if !right {
            let found = format!("cut {number}, {}", state_name(cut.state));
            self.add(Finding::new(Problem::CutState, expected, found).at(place).of(cut.root));
        }
        self.check_incarnation(cut.root_incarnation, cut.root, place);
    }

    /// Compares numbers and times over both trees of cuts.
    fn cut_times(&mut self, mut cuts: Vec<Cut>) {
        cuts.sort_by_key(|cut| cut.number);
        let text = |t: Timestamp| format!("{}.{:09} s", t.seconds, t.nanos);
        for (before, cut) in cuts.iter().zip(cuts.iter().skip(1)) {
            let finding = if before.number == cut.number {
                let expected = format!("one cut {}", cut.number);
                Finding::new(Problem::CutTwice, expected, format!("another one at {}", before.place))
            } else if before.time >= cut.time {
                let expected = format!("later than {}", text(before.time));
                Finding::new(Problem::CutTime, expected, text(cut.time))
            } else {
                continue;
            };
            self.add(finding.at(cut.place).of(cut.root));
        }
    }

    /// Compares a tree whose cells are keys alone with the keys that it should have. In a `shard` the keys
    /// are changes, of inodes and directories of that shard.
    fn index<const BYTES: usize>(
        &mut self,
        mut walk: Option<Walk>,
        shard: Option<usize>,
        index: Index<BYTES>,
    ) -> Result<(), CheckError> {
        let Index { mut keys, complete, problem, shown } = index;
        keys.sort_unstable();
        keys.dedup();
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

    /// Whether the inode or directory of a change is of this shard; any is, in a tree that has no shards.
    fn is_in_shard(&mut self, key: &[u8], shard: Option<usize>, place: MetaAddr) -> bool {
        let (Some(shard), Ok([_, inode, cookie])) = (shard, key_parts(key)) else { return true };
        let right = if cookie == 0 { version_shard } else { name_shard };
        self.check_shard(InodeNo(inode), right, shard, place)
    }

    fn check_shard(
        &mut self,
        inode: InodeNo,
        right: fn(InodeNo) -> usize,
        shard: usize,
        place: MetaAddr,
    ) -> bool {
        let right = right(inode);
        if right != shard {
            let (expected, found) = (format!("in shard {right}"), format!("in shard {shard}"));
            self.add(Finding::new(Problem::HistoryShard, expected, found).at(place).of(inode));
        }
        right == shard
    }

    /// Gathers the versions of a shard, and their ends.
    fn versions(&mut self, roots: &Block, shard: usize, ends: &mut Ends) -> Result<(), CheckError> {
        let mut walk = Self::past_walk(roots, HistoryTree::Versions(shard));
        while let Some(leaf) = self.next_past_leaf(&mut walk)? {
            for i in 0..leaf.count() {
                let (key, value) = leaf.wide_cell(i);
                self.counts.versions += 1;
                match decode_version(key, value) {
                    Ok((inode, version)) => {
                        self.version(inode, &version, shard, leaf.addr);
                        let Version { end, inode: was } = version;
                        ends.keys[version_shard(inode)].push(version_end_key(end, inode));
                        let past = Past { end, inode: was, place: leaf.addr };
                        self.history.versions.entry(inode).or_default().push(past);
                    }
                    Err(c) => {
                        self.damaged_cell(c, leaf.addr);
                        ends.complete = false;
                    }
                }
            }
        }
        ends.complete &= walk.is_none_or(|walk| walk.complete);
        Ok(())
    }

    fn version(&mut self, inode: InodeNo, version: &Version, shard: usize, place: MetaAddr) {
        self.check_shard(inode, version_shard, shard, place);
        self.check_number("end of a version", version.end, place, inode);
        self.check_incarnation(version.inode.incarnation, inode, place);
    }

    /// Compares the trees of changes with the ends of versions and past names.
    fn changes(&mut self, roots: &Block, ends: Ends) -> Result<(), CheckError> {
        for (shard, keys) in ends.keys.into_iter().enumerate() {
            let index = Index {
                keys,
                complete: ends.complete,
                problem: Problem::ChangeIndex,
                shown: |key| match key_parts(key) {
                    Ok([end, inode, 0]) => format!("the end of a version of inode {inode} at {end}"),
                    Ok([death, directory, cookie]) => {
                        format!("the end of a name {cookie:#x} of inode {directory} at {death}")
                    }
                    Err(c) => c.to_string(),
                },
            };
            self.index(Self::past_walk(roots, HistoryTree::Changes(shard)), Some(shard), index)?;
        }
        Ok(())
    }

    /// Checks the past names of a shard, and keeps their ends and when each of them ended last.
    fn past_names(&mut self, roots: &Block, shard: usize, ends: &mut Ends) -> Result<(), CheckError> {
        let before = (InodeNo::NONE, 0, Number(0));
        let mut run = Run { directory: InodeNo::NONE, base: 0, lives: Vec::new(), before };
        let mut walk = Self::past_walk(roots, HistoryTree::Names(shard));
        while let Some(leaf) = self.next_past_leaf(&mut walk)? {
            for i in 0..leaf.count() {
                let (key, value) = leaf.wide_cell(i);
                self.counts.past_names += 1;
                match decode_name(key, value) {
                    Ok((directory, cookie, name)) => {
                        self.check_shard(directory, name_shard, shard, leaf.addr);
                        ends.keys[name_shard(directory)].push(name_end_key(name.death, directory, cookie));
                        self.past_name(&mut run, leaf.addr, directory, cookie, &name);
                    }
                    Err(c) => {
                        self.damaged_cell(c, leaf.addr);
                        ends.complete = false;
                    }
                }
            }
        }
        self.end_of_run(&mut run);
        ends.complete &= walk.is_none_or(|walk| walk.complete);
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
        self.cookie_is_free(run, place, (directory, cookie), entry.birth);
        run.before = (directory, cookie, *death);
        let name = entry.name.to_vec();
        run.lives.push(Life { name, birth: entry.birth, death: *death, cookie, place });
    }

    /// A cookie stands for one name at a time. Cells of one cookie follow each other in the order of births.
    fn cookie_is_free(&mut self, run: &Run, place: MetaAddr, key: (InodeNo, u64), birth: Number) {
        let (directory, cookie, end) = run.before;
        if (directory, cookie) == key && end > birth {
            let expected = format!("a name {cookie:#x} born at {end} or later");
            let finding = Finding::new(Problem::PastNameOrder, expected, birth.0);
            self.add(finding.at(place).of(directory));
        }
    }

    /// Compares the lives of each name with each other; those under one cookie were compared before.
    fn end_of_run(&mut self, run: &mut Run) {
        run.lives.sort();
        let mut before: Option<(Vec<u8>, u64, Number)> = None;
        for Life { name, birth, death, cookie, place } in run.lives.drain(..) {
            let overlaps = |(other, under, end): &(Vec<u8>, u64, Number)| {
                *other == name && *under != cookie && *end > birth
            };
            if let Some((_, _, end)) = before.filter(overlaps) {
                let shown = String::from_utf8_lossy(&name);
                let (expected, found) = (format!("{shown:?} born at {end} or later"), birth.0);
                let finding = Finding::new(Problem::PastNameOrder, expected, found);
                self.add(finding.at(place).of(run.directory));
            }
            let deaths = self.history.deaths.entry(run.directory).or_default();
            let by_cookie = deaths.by_cookie.entry(cookie).or_default();
            *by_cookie = death.max(*by_cookie);
            let by_name = deaths.by_name.entry(name.clone()).or_default();
            *by_name = death.max(*by_name);
            before = Some((name, cookie, death));
        }
    }

    /// What is in use of a file whose history is being given up has begun with that.
    pub(crate) fn check_expunged(
        &mut self,
        of: (InodeNo, Incarnation),
        birth: Number,
        what: &str,
        place: MetaAddr,
    ) {
        let since = self.history.expunged.get(&of).copied();
        if let Some(since) = since.filter(|since| birth < *since) {
            let expected = format!("{what} born at {since} or later");
            self.add(Finding::new(Problem::Expunged, expected, birth.0).at(place).of(of.0));
        }
    }

    /// An entry in use begins when the names before it, and what its cookie stood for, have ended.
    pub(crate) fn check_past_names(
        &mut self,
        directory: InodeNo,
        place: MetaAddr,
        cookie: u64,
        entry: &DirEntry<'_>,
    ) {
        let deaths = self.history.deaths.get(&directory);
        let death = deaths.and_then(|deaths| {
            deaths.by_name.get(entry.name).copied().max(deaths.by_cookie.get(&cookie).copied())
        });
        if let Some(death) = death.filter(|death| *death > entry.birth) {
            let shown = String::from_utf8_lossy(entry.name);
            let expected = format!("{shown:?} born at {death} or later");
            let finding = Finding::new(Problem::PastNameOrder, expected, entry.birth.0);
            self.add(finding.at(place).of(directory));
        }
    }
}

fn state_name(state: CutState) -> &'static str {
    match state {
        CutState::Kept => "kept",
        CutState::Dying => "dying",
        CutState::Forgotten => "forgotten",
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
