//! Snapshots of the whole volume in a sequence: where they are put, which are forgotten, and what must be seen of the others later.
//!
//! A snapshot changes nothing that the model knows. What it must show is the state after it, but for what past views
//! leave out: times of access and set-id bits. Without a crash it shows exactly that, for ever. After one, the
//! snapshots that are there must be those that the moment has that names and attributes of the present are at, the
//! forgotten ones left out; each shows the names and attributes of its own moment, and contents that a crash at that moment could
//! have left ([`Judge::judge_past`]). What was found once never changes again, whatever is done to the volume.

use crate::judge::{Bounds, History, Judge, Unit};
use crate::model::State;
use crate::op::{Name, Op};
use crate::subject::observe;
use crate::tree::Tree;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use yore_fs::time::When;
use yore_fs::{CutKind, Number, Timestamp, View};

/// Bits of permissions that past views do not show.
const SET_ID: u32 = 0o6000;

/// Puts snapshots between operations: before one of so many, and behind the last. Every second one has a name, which
/// begins with `prefix`; a third are waited for. A fourth of them are forgettings instead, of which a third give nothing up.
pub fn weave(ops: Vec<Op>, seed: u64, one_in: u32, prefix: &str) -> Vec<Op> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x0070_6173_7400);
    let (mut woven, mut count) = (Vec::new(), 0);
    let mut snapshot = || {
        count += 1;
        let name = match random.random_range(0..2) {
            0 => Name::from(&b""[..]),
            _ => Name::from(format!("{prefix}-{count}").into_bytes()),
        };
        let wait = random.random_range(0..3) == 0;
        let forgotten = (count > 2 && random.random_range(0..4) == 0).then(|| random.random_range(0..8));
        let op = match forgotten {
            Some(which) => Op::Forget { which, left: wait },
            None => Op::Snapshot { name, wait },
        };
        (random.random_range(0..one_in) == 0).then_some(op)
    };
    for op in ops {
        woven.extend(snapshot());
        woven.push(op);
    }
    woven.extend(snapshot());
    woven
}

/// Which of the snapshots that are kept is meant, given those that are; it is so no longer. The same rule for the file system and for
/// who remembers what it did.
pub(crate) fn forgotten(kept: &mut Vec<usize>, which: usize) -> Option<usize> {
    (!kept.is_empty()).then(|| kept.remove(which % kept.len()))
}

/// A snapshot of a sequence.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Its number.
    pub number: Number,
    /// How many operations had been carried out when it was forgotten, that one included.
    pub forgotten: Option<usize>,
    /// How many operations had been carried out, itself included.
    pub moment: usize,
    /// Its name, or nothing.
    pub name: Name,
    /// What it must show.
    pub tree: Tree,
}

impl Taken {
    /// One that was taken in this state.
    pub fn new(number: Number, moment: usize, name: &Name, state: &State) -> Taken {
        let tree = without_hidden(Tree::of(&state.without_slots()));
        Taken { number, forgotten: None, moment, name: name.clone(), tree }
    }

    fn is_kept_at(&self, moment: usize) -> bool {
        self.moment <= moment && self.forgotten.is_none_or(|forgotten| forgotten > moment)
    }
}

/// The snapshots of a sequence, as far as it has come.
#[derive(Clone, Debug, Default)]
pub struct Sequence {
    taken: Vec<Taken>,
    kept: Vec<usize>,
}

impl Sequence {
    /// All that were taken.
    pub fn taken(&self) -> &[Taken] {
        &self.taken
    }

    /// An operation was carried out that led to this moment and state. `number` says which number a snapshot has got.
    pub fn note(&mut self, op: &Op, moment: usize, state: &State, number: impl FnOnce() -> Number) {
        match op {
            Op::Snapshot { name, .. } => {
                self.kept.push(self.taken.len());
                self.taken.push(Taken::new(number(), moment, name, state));
            }
            Op::Forget { which, .. } => {
                if let Some(index) = forgotten(&mut self.kept, *which) {
                    self.taken[index].forgotten = Some(moment);
                }
            }
            _ => {}
        }
    }
}

/// A snapshot as it was found on a volume.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its number.
    pub number: Number,
    /// Its name, or nothing.
    pub name: String,
    /// What it shows.
    pub tree: Tree,
}

/// The same tree without what past views do not show.
fn without_hidden(mut tree: Tree) -> Tree {
    for node in tree.nodes.values_mut() {
        node.facts.atime = Timestamp { seconds: 0, nanos: 0 };
        node.facts.permissions &= !SET_ID;
    }
    tree
}

/// Walks all snapshots of a volume, in the order in which they were taken.
///
/// # Errors
/// A message: what could not be read, or that what is said of a snapshot contradicts itself.
pub fn observe_all(view: &View) -> Result<Vec<Seen>, String> {
    let cuts = view.cuts().map_err(|error| format!("the list of snapshots: {error}"))?;
    let (of_files, others): (Vec<_>, Vec<_>) = cuts.iter().partition(|cut| cut.row.kind.is_of_file());
    of_files.iter().try_for_each(|cut| read_version(view, cut))?;
    others.into_iter().map(|cut| observe_one(view, cut)).collect()
}

/// A version of a single file, which a policy has made, must be there and readable.
fn read_version(view: &View, cut: &yore_fs::Cut) -> Result<(), String> {
    if cut.row.kind == CutKind::Removed {
        return Ok(());
    }
    let (then, file) = (view.as_of(cut.number), cut.row.root);
    let read = || {
        let attr = then.getattr(file)?;
        let mut buffer = vec![0; (attr.size as usize).min(1 << 20)];
        then.read(file, 0, &mut buffer)?;
        then.read(file, attr.size.saturating_sub(4096), &mut buffer)?;
        then.listxattr(file)?.iter().try_for_each(|name| then.getxattr(file, name).map(|_| ()))
    };
    read().map_err(|error: yore_fs::Error| format!("version {} of file {file}: {error}", cut.number))
}

fn observe_one(view: &View, cut: &yore_fs::Cut) -> Result<Seen, String> {
    let (number, name) = (cut.number, cut.row.name.clone());
    let failed = |what: String| format!("snapshot {number}: {what}");
    if (cut.row.kind, cut.row.root, cut.row.held) != (CutKind::Snapshot, view.root(), false) {
        return Err(failed(format!("it is another one: {:?}", cut.row)));
    }
    let mut times = vec![When::At(cut.row.time)];
    times.extend((!name.is_empty()).then(|| When::Named(name.clone())));
    for when in times {
        match view.cut_for(view.root(), &when) {
            Ok(found) if found == number => {}
            found => return Err(failed(format!("{when:?} means {found:?}"))),
        }
    }
    let mut tree = observe(&view.as_of(number), view.root()).map_err(failed)?;
    let hidden: Vec<String> = tree
        .nodes
        .iter()
        .filter(|(_, node)| node.facts.atime != node.facts.mtime || node.facts.permissions & SET_ID != 0)
        .map(|(inode, node)| format!("{} shows what it should hide: {:?}", tree.path_of(*inode), node.facts))
        .collect();
    tree.contradictions.extend(hidden);
    Ok(Seen { number, name, tree: without_hidden(tree) })
}

/// Compares the snapshots of a volume with those that were taken, without a crash in between: exactly.
///
/// # Errors
/// The first difference, in words.
pub fn compare_all(view: &View, taken: &[Taken]) -> Result<(), String> {
    let seen = observe_all(view)?;
    let kept: Vec<&Taken> = taken.iter().filter(|taken| taken.forgotten.is_none()).collect();
    if seen.len() != kept.len() {
        return Err(format!("{} snapshots are there, {} are kept", seen.len(), kept.len()));
    }
    for (seen, taken) in seen.iter().zip(kept) {
        check_name(seen, taken)?;
        must_be(seen, &taken.tree)?;
    }
    Ok(())
}

fn check_name(seen: &Seen, taken: &Taken) -> Result<(), String> {
    match *seen.name.as_bytes() == *taken.name && seen.number == taken.number {
        true => Ok(()),
        false => Err(format!(
            "snapshot {} is named {:?}, the one taken at moment {}, which is {}, {:?}",
            seen.number,
            seen.name,
            taken.moment,
            taken.number,
            crate::op::show_name(&taken.name)
        )),
    }
}

fn must_be(seen: &Seen, tree: &Tree) -> Result<(), String> {
    let differences = seen.tree.differences(tree, true);
    match differences.is_empty() {
        true => Ok(()),
        false => Err(format!("snapshot {}:\n    {}", seen.number, crate::runner::list(&differences))),
    }
}

/// What was found of snapshots must be found again, and may be followed by others.
///
/// # Errors
/// The first difference, in words.
pub fn must_begin_with(later: &[Seen], before: &[Seen]) -> Result<(), String> {
    if later.len() < before.len() {
        return Err(format!("{} of {} snapshots are left", later.len(), before.len()));
    }
    for (later, before) in later.iter().zip(before) {
        if (later.number, &later.name) != (before.number, &before.name) {
            return Err(format!("snapshot {} has become {}", before.number, later.number));
        }
        must_be(later, &before.tree).map_err(|error| format!("it has changed: {error}"))?;
    }
    Ok(())
}

/// The snapshots that a volume may have: those from before the sequence, and the sequence's own.
#[derive(Default)]
pub(crate) struct Snapshots {
    before: Vec<Seen>,
    taken: Vec<Taken>,
}

impl Snapshots {
    /// Those of a history that began on a volume that had some.
    pub(crate) fn new(before: Vec<Seen>, history: &History, numbers: &[Number]) -> Snapshots {
        let (mut sequence, mut numbers) = (Sequence::default(), numbers.iter());
        for (n, op) in history.ops.iter().enumerate() {
            let number = || *numbers.next().expect("each was taken");
            sequence.note(op, n + 1, &history.states[n + 1], number);
        }
        Snapshots { before, taken: sequence.taken }
    }

    /// Whether there is none at any moment.
    pub(crate) fn is_none(&self) -> bool {
        self.before.is_empty() && self.taken.is_empty()
    }

    /// Those that there are at a moment.
    pub(crate) fn numbers_at(&self, moment: usize) -> Vec<Number> {
        let own = self.taken.iter().filter(|taken| taken.is_kept_at(moment)).map(|taken| taken.number);
        self.before.iter().map(|seen| seen.number).chain(own).collect()
    }

    /// Judges what was found of them after a crash, given that they are those of this moment.
    pub(crate) fn judge(
        &self,
        judge: &Judge,
        seen: &[Seen],
        moment: usize,
        bounds: Bounds,
        unit: Unit,
    ) -> Result<(), String> {
        must_begin_with(seen, &self.before)?;
        let kept = self.taken.iter().filter(|taken| taken.is_kept_at(moment));
        for (seen, taken) in seen[self.before.len()..].iter().zip(kept) {
            check_name(seen, taken)?;
            let wrong = judge.judge_past(&seen.tree, taken, bounds, unit);
            wrong.map_err(|error| {
                format!("snapshot {} of moment {}:\n    {error}", seen.number, taken.moment)
            })?;
        }
        Ok(())
    }
}

/// What a snapshot without a name must show that was taken of a tree.
pub(crate) fn taken_of(tree: Tree, number: Number) -> Seen {
    Seen { number, name: String::new(), tree: without_hidden(tree) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{sequence, Profile};

    /// Taking the snapshots out again gives the sequence that it was.
    #[test]
    fn snapshots_lie_between_the_operations() {
        for seed in 0..20 {
            let ops = sequence(seed, 60, Profile::Crash);
            let mut woven = weave(ops.clone(), seed, 8, "cut");
            let all = woven.len();
            woven.retain(|op| !matches!(op, Op::Snapshot { .. } | Op::Forget { .. }));
            assert_eq!(woven, ops);
            assert!((1..30).contains(&(all - ops.len())), "{} snapshots", all - ops.len());
        }
    }
}
