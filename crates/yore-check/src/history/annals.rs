//! The annals: their rows, and the indexes of them by inode and by name.
//!
//! Rows are read in the order of the trees. What they say of inodes and of names is checked with what the
//! old trees say. The past names, and a cell of an index for each fact, are put in order first, in temporary
//! files if there are many.

use super::index::Missing;
use super::names::Run;
use crate::checker::Checker;
use crate::known::IndexCells;
use crate::spill::{Cursor, Room, Sorted, Sorter};
use crate::{CheckError, Finding, Problem};
use std::collections::BTreeMap;
use yore_format::{
    name_key, version_shard, AnnalsKey, AnnalsRow, Block, Corruption, DirEntry, EventNo, HistoryRoots,
    HistoryTree, InodeIndexCell, InodeNo, MetaAddr, NameIndexCell, PastName, WriteFeatures, EVENT_LIMIT,
    HISTORY_SHARDS, INODE_LIMIT,
};

/// Numbers so that their bytes sort as they do.
fn numbers<const COUNT: usize>(of: [u64; COUNT]) -> Vec<u8> {
    of.iter().flat_map(|number| number.to_be_bytes()).collect()
}

/// The numbers at the beginning of what [`numbers`] has made.
fn numbers_of<const COUNT: usize>(bytes: &[u8]) -> [u64; COUNT] {
    let mut chunks = bytes.chunks_exact(8);
    [(); COUNT].map(|()| {
        let chunk = chunks.next().and_then(|chunk| chunk.first_chunk());
        u64::from_be_bytes(*chunk.expect("as many numbers as were put there"))
    })
}

/// What the rows say.
struct Rows {
    /// Past names, by directory, cookie, birth and death. In front of each is where its row stands.
    names: Sorter,
    /// The cells that the indexes should have, as keys.
    by_inode: Sorter,
    by_name: Sorter,
    /// Something could not be read.
    incomplete: bool,
}

/// A cell of an index, which can be kept as bytes that sort as it does.
trait IndexCell: Ord + Sized {
    fn bytes(&self) -> Vec<u8>;
    fn of(bytes: &[u8]) -> Self;
}

impl IndexCell for InodeIndexCell {
    fn bytes(&self) -> Vec<u8> {
        numbers([self.inode.0, self.end.0, self.born.0, self.sequence.into()])
    }

    fn of(bytes: &[u8]) -> InodeIndexCell {
        let [inode, end, born, sequence] = numbers_of(bytes);
        let (inode, end, born) = (InodeNo(inode), EventNo(end), EventNo(born));
        InodeIndexCell { inode, end, born, sequence: sequence as u32 }
    }
}

impl IndexCell for NameIndexCell {
    fn bytes(&self) -> Vec<u8> {
        let NameIndexCell { directory, cookie, death, birth, sequence, shard } = *self;
        numbers([directory.0, cookie, death.0, birth.0, sequence.into(), shard as u64])
    }

    fn of(bytes: &[u8]) -> NameIndexCell {
        let [directory, cookie, death, birth, sequence, shard] = numbers_of(bytes);
        NameIndexCell {
            directory: InodeNo(directory),
            cookie,
            death: EventNo(death),
            birth: EventNo(birth),
            sequence: sequence as u32,
            shard: shard as usize,
        }
    }
}

/// Key and value of a cell.
type Cell = (Vec<u8>, Vec<u8>);
/// The cells of an index by their keys.
type Cells = BTreeMap<Vec<u8>, Vec<u8>>;
/// Decodes a cell of an index.
type Decode<C> = fn(&[u8], &[u8]) -> Result<C, Box<Corruption>>;

/// An index as it should be.
struct Index<C> {
    cells: Sorted,
    /// Whether these are all.
    complete: bool,
    problem: Problem,
    decode: Decode<C>,
    /// Encodes a cell; `None` for numbers that no key has room for.
    encode: fn(&C) -> Option<Cell>,
    shown: fn(&C) -> String,
}

impl Rows {
    fn new(room: Room) -> Rows {
        let list = || Sorter::new(room.list());
        Rows { names: list(), by_inode: list(), by_name: list(), incomplete: false }
    }
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
        let mut rows = Rows::new(self.room);
        for shard in 0..HISTORY_SHARDS {
            self.rows(roots, shard, &mut rows)?;
        }
        self.names_of_rows(&rows.names.into_sorted()?)?;
        let complete = !rows.incomplete;
        let by_inode = Index {
            cells: rows.by_inode.into_sorted()?,
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
            cells: rows.by_name.into_sorted()?,
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
                    Ok((key, row)) => self.row((shard, key), row, key <= watermark, leaf.addr, rows)?,
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
    ) -> Result<(), CheckError> {
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
                let cell = InodeIndexCell { inode, end, born, sequence: key.sequence };
                rows.by_inode.push(&cell.bytes(), &[])?;
            }
            self.history.versions.push(inode, end, version.into_owned(), addr)?;
        }
        if let Some(name) = name.filter(|_| !name_is_reclaimed) {
            self.counts.past_names += 1;
            let (directory, cookie, birth) = (name.directory, name.cookie, name.birth);
            if has_keys {
                let sequence = key.sequence;
                let cell = NameIndexCell { directory, cookie, death: end, birth, sequence, shard };
                rows.by_name.push(&cell.bytes(), &[])?;
            }
            let entry = DirEntry { inode, incarnation, birth, kind: name.kind, name: name.name };
            let past = PastName { death: end, entry };
            let key = [&name_key(directory, cookie, birth)[..], &end.0.to_be_bytes()].concat();
            rows.names.push(&key, &[&addr.0.to_be_bytes()[..], &past.encode()].concat())?;
        }
        Ok(())
    }

    /// Checks the past names of the rows as those of the old trees, and that they follow those.
    fn names_of_rows(&mut self, names: &Sorted) -> Result<(), CheckError> {
        let mut run = Run::of_annals();
        let mut cursor = names.all()?;
        while let Some((key, value)) = cursor.get() {
            let [directory, cookie, birth, _] = numbers_of(key);
            let (directory, [addr]) = (InodeNo(directory), numbers_of(value).map(MetaAddr));
            // A row may have a name that the format does not allow in an entry.
            match PastName::decode(EventNo(birth), &value[size_of::<MetaAddr>()..]) {
                Ok(name) => {
                    self.check_past_names(directory, addr, cookie, &name.entry, false)?;
                    self.past_name(&mut run, addr, directory, cookie, &name)?;
                }
                Err(corruption) => self.damaged_cell(corruption, addr),
            }
            cursor.advance()?;
        }
        self.end_of_run(&mut run)
    }

    /// Compares an index with what it should have.
    fn compare_cells<C: IndexCell>(
        &mut self,
        (tree, roots): (HistoryTree, &Block),
        index: Index<C>,
    ) -> Result<(), CheckError> {
        let mut walk = Self::past_walk(roots, tree);
        let Index { cells, complete, problem, decode, encode, shown } = index;
        if self.history.keeps_indexes && complete {
            if let Some(cells) = encoded(&cells, encode)? {
                self.history.indexes.push(IndexCells { tree, cells });
            }
        }
        let mut wanted = cells.all()?;
        let (mut missing, mut addr) = (Missing::new(self.room), MetaAddr::NONE);
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
                let bytes = cell.bytes();
                while let Some(wanting) = here(&wanted).filter(|wanting| *wanting < &bytes[..]) {
                    missing.push(wanting, leaf.addr)?;
                    wanted.advance()?;
                }
                if here(&wanted) == Some(&bytes[..]) {
                    wanted.advance()?;
                } else if complete {
                    self.add(Finding::new(problem, "no such key", shown(&cell)).at(leaf.addr));
                }
            }
        }
        if !readable || walk.is_some_and(|walk| !walk.complete) {
            return Ok(());
        }
        while let Some(wanting) = here(&wanted) {
            missing.push(wanting, addr)?;
            wanted.advance()?;
        }
        missing.report(self, problem, |bytes| shown(&C::of(bytes)))
    }
}

/// The key at a place in a list.
fn here<'c>(cursor: &'c Cursor<'_>) -> Option<&'c [u8]> {
    cursor.get().map(|(key, _)| key)
}

/// The cells of an index by their keys; `None` if some have no key, or two of them one. Then rows contradict
/// each other.
fn encoded<C: IndexCell>(
    cells: &Sorted,
    encode: fn(&C) -> Option<Cell>,
) -> Result<Option<Cells>, CheckError> {
    let (mut by_key, mut cursor) = (Cells::new(), cells.all()?);
    while let Some(bytes) = here(&cursor) {
        let Some((key, value)) = encode(&C::of(bytes)) else { return Ok(None) };
        if by_key.insert(key, value).is_some() {
            return Ok(None);
        }
        cursor.advance()?;
    }
    Ok(Some(by_key))
}
