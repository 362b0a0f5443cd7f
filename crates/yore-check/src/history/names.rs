//! Past names, and the entries in use that follow them.

use super::versions::Ends;
use super::walk::inode_of;
use crate::checker::Checker;
use crate::finding::PastRow;
use crate::key::COLLISIONS;
use crate::{CheckError, Finding, Problem};
use yore_format::{
    key_parts, name_cookie, name_end_key, name_shard, Block, Corruption, DirEntry, EventNo, HistoryTree,
    InodeNo, MetaAddr, PastName,
};

/// The past names of one directory and one hash. Equal names are always in one run.
#[derive(Default)]
pub(super) struct Run {
    directory: InodeNo,
    base: u64,
    lives: Vec<Life>,
    is_of_annals: bool,
    /// Directory and cookie of the cell before, when it was born, and when it ended.
    before: (InodeNo, u64, EventNo, EventNo),
}

/// The life of a past name. Lives sort by name and birth.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Life {
    name: Vec<u8>,
    birth: EventNo,
    death: EventNo,
    cookie: u64,
    addr: MetaAddr,
}

impl Run {
    /// One that begins with the first past name of the annals.
    pub(super) fn of_annals() -> Run {
        Run { is_of_annals: true, ..Run::default() }
    }
}

impl Checker<'_> {
    /// Checks the past names of a shard. Keeps their ends, and when each of them ended last.
    pub(super) fn past_names(
        &mut self,
        roots: &Block,
        shard: usize,
        ends: &mut Ends,
    ) -> Result<(), CheckError> {
        let mut run = Run::default();
        let mut walk = Self::past_walk(roots, HistoryTree::Names(shard));
        while let Some(leaf) = self.next_past_leaf(&mut walk)? {
            for i in 0..leaf.count() {
                let (key, value) = leaf.wide_cell(i);
                self.counts.past_names += 1;
                match decode_name(key, value) {
                    Ok((directory, cookie, name)) => {
                        self.check_shard(directory, name_shard, shard, leaf.addr);
                        self.check_before_annals("a name", name.death, directory, leaf.addr);
                        ends.push(name_shard(directory), &name_end_key(name.death, directory, cookie))?;
                        self.past_name(&mut run, leaf.addr, directory, cookie, &name)?;
                    }
                    Err(c) => {
                        self.damaged_cell(c, leaf.addr);
                        ends.complete = false;
                    }
                }
            }
        }
        self.end_of_run(&mut run)?;
        ends.complete &= walk.is_none_or(|walk| walk.complete);
        Ok(())
    }

    pub(super) fn past_name(
        &mut self,
        run: &mut Run,
        addr: MetaAddr,
        directory: InodeNo,
        cookie: u64,
        name: &PastName<'_>,
    ) -> Result<(), CheckError> {
        let PastName { death, entry } = name;
        let row = Some(PastRow::Name {
            directory,
            birth: entry.birth,
            death: *death,
            cookie,
            name: entry.name.to_vec(),
        });
        self.check_number("death of a name", *death, addr, directory);
        self.check_incarnation(entry.incarnation, entry.inode, addr);
        let base = name_cookie(&self.sb.hash_seed, entry.name);
        if !(base..base + COLLISIONS).contains(&cookie) {
            let shown = String::from_utf8_lossy(entry.name);
            let expected = format!("{base:#x} and up to 255 more for {shown:?}");
            let finding = Finding::new(Problem::EntryKey, expected, format!("{cookie:#x}"));
            self.add(finding.at(addr).of(directory).of_row(row.clone()));
        }
        if (directory, base) != (run.directory, run.base) {
            self.end_of_run(run)?;
            (run.directory, run.base) = (directory, base);
        }
        self.cookie_is_free(run, addr, (directory, cookie), entry.birth, row);
        run.before = (directory, cookie, entry.birth, *death);
        let name = entry.name.to_vec();
        run.lives.push(Life { name, birth: entry.birth, death: *death, cookie, addr });
        Ok(())
    }

    /// Checks that a cookie stands for one name at a time. Cells of one cookie follow each other in the order
    /// of births.
    fn cookie_is_free(
        &mut self,
        run: &Run,
        addr: MetaAddr,
        key: (InodeNo, u64),
        birth: EventNo,
        row: Option<PastRow>,
    ) {
        let (directory, cookie, born, end) = run.before;
        if (directory, cookie) == key && end > birth {
            let expected = format!("a name {cookie:#x} born at {end} or later");
            let finding = Finding::new(Problem::PastNameOrder, expected, birth.0).at(addr).of(directory);
            self.add(match row {
                // The first row came, and the change of the entry that it was made for did not. It has ended
                // since.
                Some(PastRow::Name { directory, birth, cookie, name, .. }) if birth == born => {
                    let row = PastRow::Name { directory, birth, death: end, cookie, name };
                    finding.of_row(Some(row)).may_be_left()
                }
                row => finding.of_row(row),
            });
        }
    }

    /// Compares the lives of each name with each other. Lives under one cookie were compared before.
    pub(super) fn end_of_run(&mut self, run: &mut Run) -> Result<(), CheckError> {
        run.lives.sort();
        let mut before: Option<(Vec<u8>, u64, EventNo)> = None;
        for Life { name, birth, death, cookie, addr } in run.lives.drain(..) {
            let overlaps = |(other, under, end): &(Vec<u8>, u64, EventNo)| {
                *other == name && *under != cookie && *end > birth
            };
            if let Some((_, _, end)) = before.filter(overlaps) {
                let shown = String::from_utf8_lossy(&name);
                let (expected, found) = (format!("{shown:?} born at {end} or later"), birth.0);
                let finding = Finding::new(Problem::PastNameOrder, expected, found);
                let directory = run.directory;
                let row = PastRow::Name { directory, birth, death, cookie, name: name.clone() };
                self.add(finding.at(addr).of(directory).of_row(Some(row)));
            }
            let deaths = match run.is_of_annals {
                true => &mut self.history.annals_deaths,
                false => &mut self.history.deaths,
            };
            deaths.push(run.directory, (&name, cookie), (death, birth))?;
            before = Some((name, cookie, death));
        }
        Ok(())
    }

    /// Checks that the earlier lives of an entry's name and cookie ended before the entry was born: those in
    /// the old trees, and, if the entry is `in_use`, those in the annals. (The annals compare theirs with
    /// each other.)
    pub(crate) fn check_past_names(
        &mut self,
        directory: InodeNo,
        addr: MetaAddr,
        cookie: u64,
        entry: &DirEntry<'_>,
        in_use: bool,
    ) -> Result<(), CheckError> {
        let mut death = self.history.deaths.last(directory, entry.name, cookie)?;
        if in_use {
            death = death.max(self.history.annals_deaths.last(directory, entry.name, cookie)?);
        }
        if let Some((death, birth)) = death.filter(|(death, _)| *death > entry.birth) {
            let shown = String::from_utf8_lossy(entry.name);
            let expected = format!("{shown:?} born at {death} or later");
            let finding = Finding::new(Problem::PastNameOrder, expected, entry.birth.0);
            // The entry may be in use. So the past name is the one that is given up.
            let row = PastRow::Name { directory, birth, death, cookie, name: entry.name.to_vec() };
            let finding = finding.at(addr).of(directory).of_row(Some(row));
            // The row came, and the change of the entry that it was made for did not. If the file is being
            // expunged, the row begins with that, and the entry may not be detached yet.
            let expunged = self.history.expunged.get(&(entry.inode, entry.incarnation)).copied();
            let began = expunged.map_or(entry.birth, |since| since.max(entry.birth));
            self.add(if birth == began { finding.may_be_left() } else { finding });
        }
        Ok(())
    }
}

fn decode_name<'v>(key: &[u8], value: &'v [u8]) -> Result<(InodeNo, u64, PastName<'v>), Box<Corruption>> {
    let [directory, cookie, birth] = key_parts(key)?;
    Ok((inode_of(directory)?, cookie, PastName::decode(EventNo(birth), value)?))
}
