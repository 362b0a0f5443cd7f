//! Inodes with their versions: the order of the versions, and one chain for each incarnation.

use crate::chain::Chain;
use crate::checker::Checker;
use crate::claims::Claimant;
use crate::finding::PastRow;
use crate::state::{InUse, State};
use crate::versions::Past;
use crate::{CheckError, Finding, Problem};
use yore_format::{BlockKind, EventNo, Expect, FileKind, Incarnation, Inode, InodeNo, MetaAddr};

/// One of the states of an inode number.
#[derive(Clone, Copy)]
struct One<'a> {
    inode: &'a Inode,
    addr: MetaAddr,
    /// Of a version.
    end: Option<EventNo>,
    /// Of the inode in use: what is known of it.
    in_use: Option<InUse>,
}

impl<'a> One<'a> {
    fn past(past: &'a Past) -> One<'a> {
        One { inode: &past.inode, addr: past.addr, end: Some(past.end), in_use: None }
    }

    /// The row of a version.
    fn row(&self, inode: InodeNo) -> Option<PastRow> {
        self.end.map(|end| PastRow::Version { inode, born: self.inode.born, end })
    }

    fn incarnation(&self) -> Incarnation {
        self.inode.incarnation
    }

    /// The type. The format's decoders know no inode in use without one.
    fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(self.inode.mode)
    }
}

impl Checker<'_> {
    /// Walks the content of every inode and of its versions, and then of the versions of inodes that are
    /// gone.
    pub(crate) fn contents(&mut self) -> Result<(), CheckError> {
        let mut next = 0;
        while let Some(addr) = self.number_at(next)?.map(InodeNo::addr) {
            if !self.begin_claims(Claimant::Inodes(addr.zone()))? {
                next += 1;
                continue;
            }
            // The census has reported what is wrong with the block, and then none of its inodes is known.
            let block = self.read_again(addr, &Expect::volume(BlockKind::Inodes))?;
            while let Some(number) = self.number_at(next)?.filter(|number| number.addr() == addr) {
                let inode = block.as_ref().map(|b| Inode::decode(Inode::slot(b, number.slot())));
                if let Some(Ok(inode)) = inode {
                    self.states(number, Some((InUse::Listed(next), &inode)))?;
                }
                next += 1;
            }
            self.pace.gone_through();
        }
        // What is left are versions of inodes that are gone.
        let mut from = InodeNo(0);
        while let Some(number) = self.history.versions.first_from(from)? {
            let is_gone = self.known(number)?.is_none();
            if is_gone && self.begin_claims(Claimant::Gone(number.addr().zone()))? {
                self.states(number, None)?;
            }
            let Some(next) = number.0.checked_add(1) else { break };
            from = InodeNo(next);
        }
        Ok(())
    }

    /// The number of the inode at a place in `inodes`; `None` behind the last one.
    fn number_at(&self, at: usize) -> Result<Option<InodeNo>, CheckError> {
        match at < self.inodes.len() {
            true => Ok(Some(self.inodes.get(at)?.number)),
            false => Ok(None),
        }
    }

    /// What is claimed from now on is claimed by these. False if they are not to be walked.
    pub(crate) fn begin_claims(&mut self, by: Claimant) -> Result<bool, CheckError> {
        match &self.only {
            Some(only) => Ok(only.contains(&by)),
            None => self.claims.begin(by).map(|()| true),
        }
    }

    /// Checks all states of an inode number: the inode in use, if there is one, with what is known of it, and
    /// its versions.
    pub(crate) fn states(
        &mut self,
        number: InodeNo,
        in_use: Option<(InUse, &Inode)>,
    ) -> Result<(), CheckError> {
        let past = self.history.versions.of(number)?;
        self.pace.walked(past.len());
        let newest =
            in_use.map(|(known, inode)| One { inode, addr: number.addr(), end: None, in_use: Some(known) });
        let states: Vec<One<'_>> = newest.into_iter().chain(past.iter().rev().map(One::past)).collect();
        if let ([one], Some((_, inode))) = (&states[..], in_use) {
            return self.one_state(*one, &mut State::new(number, inode, one.addr, None));
        }
        for pair in states.windows(2) {
            self.check_succession(number, &pair[1], &pair[0]);
        }
        let mut left = &states[..];
        while let Some(first) = left.first() {
            let same = left.iter().take_while(|one| one.incarnation() == first.incarnation()).count();
            let (chain, older) = left.split_at(same);
            self.chain(number, chain, older.first().and_then(|one| one.row(number)))?;
            left = older;
        }
        Ok(())
    }

    /// Checks the states of one incarnation, from the newest to the oldest, and what they hold together.
    fn chain(
        &mut self,
        number: InodeNo,
        states: &[One<'_>],
        before: Option<PastRow>,
    ) -> Result<(), CheckError> {
        let mut chain = Chain::new(states.iter().map(|one| one.row(number)), before);
        for one in states {
            let mut state = State::new(number, one.inode, one.addr, Some(&mut chain));
            let found = self.findings.kept();
            self.one_state(*one, &mut state)?;
            let complete = state.complete;
            if let Some(row) = one.row(number) {
                self.findings.set_row(found, &row);
            }
            chain.next(complete);
        }
        for finding in chain.lacking(number) {
            self.add(finding);
        }
        Ok(())
    }

    fn one_state(&mut self, one: One<'_>, state: &mut State<'_>) -> Result<(), CheckError> {
        match one.kind() {
            Some(kind) => self.content(one.in_use, kind, state),
            None => {
                // The census and the decoder of versions see this first. This stays here so that it does not
                // go unseen if they change.
                let found = format!("mode {:#o}", one.inode.mode);
                let finding = Finding::new(Problem::BlockDamaged, "a file type", found);
                self.add_incomplete(finding.at(one.addr).of(state.number));
                state.complete = false;
                Ok(())
            }
        }
    }

    /// Compares a version with the state after it.
    fn check_succession(&mut self, number: InodeNo, older: &One<'_>, newer: &One<'_>) {
        let end = older.end.unwrap_or_default();
        let was = older.incarnation();
        let in_order = was <= newer.incarnation() || self.sb.incarnation_rounds() > 0;
        if end > newer.inode.born || !in_order {
            let expected = format!("incarnation {was} or later, born at {end} or later");
            let found = format!("incarnation {}, born at {}", newer.incarnation(), newer.inode.born);
            let finding = Finding::new(Problem::VersionOrder, expected, found);
            let finding = finding.at(newer.addr).of(number).of_row(older.row(number));
            // The row came, and the change of the present that it was made for did not. That may have ended
            // since.
            let has_not_ended = was == newer.incarnation() && older.inode.born == newer.inode.born;
            self.add(if has_not_ended { finding.may_be_left() } else { finding });
        }
        if was == newer.incarnation() && older.kind() != newer.kind() {
            let text =
                |kind: Option<FileKind>| kind.map_or("no type".to_string(), |kind| format!("{kind:?}"));
            let (expected, found) = (text(newer.kind()), text(older.kind()));
            let finding = Finding::new(Problem::VersionKind, expected, found);
            self.add(finding.at(older.addr).of(number).of_row(older.row(number)));
        }
    }
}
