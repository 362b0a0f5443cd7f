//! The annals: their rows, and the indexes of them by inode and by name.
//!
//! Rows are read in the order of the trees. What they say of inodes and of names is checked with what the
//! old trees say. Memory: beside that a cell of an index for each fact, and each past name.

use super::names::Run;
use crate::checker::Checker;
use crate::known::{IndexCells, Past};
use crate::{CheckError, Finding, Problem};
use std::collections::BTreeMap;
use yore_format::{
    version_shard, AnnalsKey, AnnalsRow, Block, Corruption, DirEntry, EventNo, FileKind, HistoryRoots,
    HistoryTree, Incarnation, InodeIndexCell, InodeNo, MetaAddr, NameIndexCell, PastName, WriteFeatures,
    EVENT_LIMIT, HISTORY_SHARDS, INODE_LIMIT,
};

/// A past name of a row.
struct Name {
    directory: InodeNo,
    cookie: u64,
    birth: EventNo,
    death: EventNo,
    inode: InodeNo,
    incarnation: Incarnation,
    kind: FileKind,
    name: Vec<u8>,
    addr: MetaAddr,
}

/// What the rows say.
#[derive(Default)]
struct Rows {
    names: Vec<Name>,
    /// The cells that the indexes should have.
    by_inode: Vec<InodeIndexCell>,
    by_name: Vec<NameIndexCell>,
    /// Something could not be read.
    incomplete: bool,
}

/// Key and value of a cell.
type Cell = (Vec<u8>, Vec<u8>);
/// Decodes a cell of an index.
type Decode<C> = fn(&[u8], &[u8]) -> Result<C, Box<Corruption>>;

/// An index as it should be.
struct Index<C> {
    cells: Vec<C>,
    /// Whether these are all.
    complete: bool,
    problem: Problem,
    decode: Decode<C>,
    /// Encodes a cell; `None` for numbers that no key has room for.
    encode: fn(&C) -> Option<Cell>,
    shown: fn(&C) -> String,
}

impl Checker<'_> {
    /// Checks the annals, if there are some.
    pub(super) fn annals(&mut self, roots: &Block) -> Result<(), CheckError> {
        let counts = HistoryRoots::annals_counts(roots);
        if counts.annals_from == EventNo(0) {
            return Ok(());
        }
        self.history.references = Some(counts.references);
        let at = self.sb.history_root;
        self.needs(WriteFeatures::ANNALS, "annals", at, InodeNo::HISTORY);
        self.check_number("begin of the annals", counts.annals_from, at, InodeNo::HISTORY);
        let mut rows = Rows::default();
        for shard in 0..HISTORY_SHARDS {
            self.rows(roots, shard, &mut rows)?;
        }
        self.names_of_rows(rows.names);
        let complete = !rows.incomplete;
        let by_inode = Index {
            cells: rows.by_inode,
            complete,
            problem: Problem::InodeIndex,
            decode: InodeIndexCell::decode,
            encode: |cell| {
                let is_possible =
                    cell.inode.0 < INODE_LIMIT && cell.end.0 < EVENT_LIMIT && cell.born < cell.end;
                is_possible
                    .then(|| (InodeIndexCell::key(cell.inode, cell.end).to_vec(), cell.value().to_vec()))
            },
            shown: |InodeIndexCell { inode, end, born, sequence }| {
                format!("inode {inode} from {born} to before {end}, row {sequence}")
            },
        };
        self.compare_cells((HistoryTree::InodeIndex, roots), by_inode)?;
        let by_name = Index {
            cells: rows.by_name,
            complete,
            problem: Problem::NameIndex,
            decode: NameIndexCell::decode,
            encode: |cell| {
                let NameIndexCell { directory, cookie, death, birth, .. } = *cell;
                let is_possible = directory.0 < INODE_LIMIT && death.0 < EVENT_LIMIT && birth < death;
                is_possible.then(|| {
                    let key = NameIndexCell::key(directory, cookie, death).to_vec();
                    (key, cell.value().to_vec())
                })
            },
            shown: |NameIndexCell { directory, cookie, death, birth, sequence, shard }| {
                format!(
                    "{cookie:#x} of inode {directory} from {birth} to before {death}, row {sequence} of shard {shard}"
                )
            },
        };
        self.compare_cells((HistoryTree::NameIndex, roots), by_name)
    }

    /// Gathers what the rows of a shard say, and the cells that the indexes should have of them.
    fn rows(&mut self, roots: &Block, shard: usize, rows: &mut Rows) -> Result<(), CheckError> {
        let watermark = HistoryRoots::watermark(roots, shard);
        let next = self.sb.next_number;
        if watermark.end > next {
            let (expected, found) = (format!("an end of at most {next}"), watermark.end.0);
            let finding = Finding::new(Problem::Watermark, expected, format!("{found} in shard {shard}"));
            self.add(finding.at(self.sb.history_root));
        }
        let seed = self.sb.hash_seed;
        let mut walk = Self::past_walk(roots, HistoryTree::Annals(shard));
        while let Some(leaf) = self.next_past_leaf(&mut walk)? {
            for i in 0..leaf.count() {
                let (key, value) = leaf.wide_cell(i);
                let row = AnnalsKey::decode(key)
                    .and_then(|key| Ok((key, AnnalsRow::decode(key.end, value, &seed)?)));
                match row {
                    Ok((key, row)) => self.row((shard, key), row, key <= watermark, leaf.addr, rows),
                    Err(c) => {
                        self.counts.versions += 1;
                        self.damaged_cell(c, leaf.addr);
                        rows.incomplete = true;
                    }
                }
            }
        }
        rows.incomplete |= walk.is_some_and(|walk| !walk.complete);
        Ok(())
    }

    fn row(
        &mut self,
        (shard, key): (usize, AnnalsKey),
        row: AnnalsRow<'_>,
        has_keys: bool,
        addr: MetaAddr,
        rows: &mut Rows,
    ) {
        let AnnalsRow { end, inode, incarnation, name, name_is_reclaimed, version } = row;
        let (right, next) = (version_shard(inode), self.sb.next_number);
        if shard != right || end > next {
            let expected = format!("in shard {right}, ended at {next} or before");
            let finding =
                Finding::new(Problem::AnnalsRow, expected, format!("in shard {shard}, ended at {end}"));
            self.add(finding.at(addr).of(inode));
        }
        self.check_incarnation(incarnation, inode, addr);
        if let Some(version) = version {
            self.counts.versions += 1;
            let born = version.born;
            if has_keys {
                rows.by_inode.push(InodeIndexCell { inode, end, born, sequence: key.sequence });
            }
            let past = Past { end, inode: version.into_owned(), addr };
            self.history.versions.entry(inode).or_default().push(past);
        }
        if let Some(name) = name.filter(|_| !name_is_reclaimed) {
            self.counts.past_names += 1;
            let (directory, cookie, birth) = (name.directory, name.cookie, name.birth);
            if has_keys {
                let sequence = key.sequence;
                rows.by_name.push(NameIndexCell { directory, cookie, death: end, birth, sequence, shard });
            }
            rows.names.push(Name {
                directory,
                cookie,
                birth,
                death: end,
                inode,
                incarnation,
                kind: name.kind,
                name: name.name.to_vec(),
                addr,
            });
        }
    }

    /// Checks the past names of the rows as those of the old trees, and that they follow those.
    fn names_of_rows(&mut self, mut names: Vec<Name>) {
        names.sort_unstable_by_key(|name| (name.directory, name.cookie, name.birth));
        let mut run = Run::default();
        for Name { directory, cookie, birth, death, inode, incarnation, kind, name, addr } in &names {
            let (inode, incarnation, birth, kind) = (*inode, *incarnation, *birth, *kind);
            let entry = DirEntry { inode, incarnation, birth, kind, name };
            self.check_past_names(*directory, *addr, *cookie, &entry);
            self.past_name(&mut run, *addr, *directory, *cookie, &PastName { death: *death, entry });
        }
        self.end_of_run(&mut run);
    }

    /// Compares an index with what it should have.
    fn compare_cells<C: Ord>(
        &mut self,
        (tree, roots): (HistoryTree, &Block),
        index: Index<C>,
    ) -> Result<(), CheckError> {
        let mut walk = Self::past_walk(roots, tree);
        let Index { mut cells, complete, problem, decode, encode, shown } = index;
        cells.sort_unstable();
        if self.history.keeps_indexes && complete {
            let encoded: Option<BTreeMap<_, _>> = cells.iter().map(encode).collect();
            // Two cells of one key mean that rows contradict each other.
            let whole = encoded.filter(|encoded| encoded.len() == cells.len());
            self.history.indexes.extend(whole.map(|cells| IndexCells { tree, cells }));
        }
        let mut wanted = cells.into_iter().peekable();
        let (mut missing, mut addr) = (Vec::new(), MetaAddr::NONE);
        let mut readable = true;
        while let Some(leaf) = self.next_past_leaf(&mut walk)? {
            addr = leaf.addr;
            for i in 0..leaf.count() {
                let (key, value) = leaf.wide_cell(i);
                let cell = match decode(key, value) {
                    Ok(cell) => cell,
                    Err(c) => {
                        self.damaged_cell(c, leaf.addr);
                        readable = false;
                        continue;
                    }
                };
                while let Some(cell) = wanted.next_if(|wanted| *wanted < cell) {
                    missing.push((cell, leaf.addr));
                }
                if wanted.next_if(|wanted| *wanted == cell).is_none() && complete {
                    self.add(Finding::new(problem, "no such key", shown(&cell)).at(leaf.addr));
                }
            }
        }
        if !readable || walk.is_some_and(|walk| !walk.complete) {
            return Ok(());
        }
        missing.extend(wanted.map(|cell| (cell, addr)));
        for (cell, addr) in missing {
            let mut finding = Finding::new(problem, shown(&cell), "no such key");
            finding.addr = (!addr.is_none()).then_some(addr);
            self.add(finding);
        }
        Ok(())
    }
}
