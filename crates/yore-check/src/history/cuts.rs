//! The cuts, the forgotten cuts, and the index of the others.

use super::index::Index;
use crate::checker::Checker;
use crate::{CheckError, Finding, Problem};
use std::collections::BTreeMap;
use yore_format::{
    cut_index_by_name, cut_index_by_root, key_parts, Block, CutKind, CutRow, CutState, HistoryTree,
    Incarnation, InodeNo, MetaAddr, Number, RollbackIntent, Timestamp, WriteFeatures,
};

/// What the trees of cuts hold.
#[derive(Default)]
struct Cuts {
    times: Vec<Cut>,
    /// The keys that their index should have.
    keys: Vec<[u8; 16]>,
    /// The names by which kept cuts can be found, each with its root, or without one on a volume where names
    /// of cuts are unique.
    names: BTreeMap<(Option<(InodeNo, Incarnation)>, String), Number>,
    /// The kept cuts, each with its root and kind.
    kept: BTreeMap<Number, (InodeNo, CutKind)>,
    rollbacks: Vec<Rollback>,
}

/// A directory that is being rolled back.
struct Rollback {
    number: Number,
    root: InodeNo,
    incarnation: Incarnation,
    /// Suspended: since then anything may have happened to the directory.
    stopped: bool,
    intent: RollbackIntent,
    place: MetaAddr,
}

/// The time of a cut, and where its row stands.
struct Cut {
    number: Number,
    time: Timestamp,
    root: InodeNo,
    place: MetaAddr,
}

impl Checker<'_> {
    /// Checks the cuts, the forgotten cuts, and the index of the others.
    pub(super) fn cuts(&mut self, roots: &Block) -> Result<(), CheckError> {
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
        self.compare_index(Self::past_walk(roots, HistoryTree::CutIndex), None, index)
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

    /// Checks a cut, and keeps what is compared with other cuts. Only cuts in the tree of cuts are in the
    /// index. Returns whether all of it could be read.
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

    /// Checks that each unfinished rollback can be finished: the cuts that it needs are kept, and the
    /// directory exists.
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

    /// Checks a cut by itself.
    fn check_cut(&mut self, tree: HistoryTree, place: MetaAddr, number: Number, cut: &CutRow) {
        let next = self.sb.next_number;
        if number.0 == 0 || number >= next {
            let finding = Finding::new(Problem::CutNumber, format!("from 1 to below {next}"), number.0);
            self.add(finding.at(place).of(cut.root));
        }
        let (right, expected) = match (tree, cut.kind) {
            // Nobody can look at it from the beginning, and nothing remembers it in the end.
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
}

fn state_name(state: CutState) -> &'static str {
    match state {
        CutState::Kept => "kept",
        CutState::Dying => "dying",
        CutState::Forgotten => "forgotten",
    }
}
