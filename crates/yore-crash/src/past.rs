//! Snapshots of the whole volume in a sequence: where they are put, which are forgotten, and what the others
//! must show later.
//!
//! A snapshot changes nothing that the model knows. It must show the state after it, except what past views
//! leave out: times of access and set-id bits. Without a crash it shows exactly that, for ever. After a
//! crash, take the moment at which names and attributes of the present are: the snapshots on the volume must
//! be those of that moment, without the forgotten ones. Each shows the names and attributes of its own
//! moment, and contents that a crash at that moment could have left ([`Judge::judge_past`]). Once found, they
//! never change again, whatever happens to the volume.
//!
//! But files may be expunged: then all earlier snapshots lose them as soon as the call has returned. If a
//! crash meets such a call, each file is shown as before by all these snapshots, or by none.

pub(crate) mod taken;

use self::taken::{without, without_hidden, Taken, SET_ID};
use crate::judge::{Bounds, History, Judge, Unit};
use crate::model::{Identity, State};
use crate::op::{forgotten, EntryPath, Name, Op, Target};
use crate::subject::{observe, Own};
use crate::tree::{Node, Tree};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use yore_fs::time::When;
use yore_fs::{EventKind, EventNo, InodeNo, View};

/// Puts snapshots between operations: before one in `one_in`, and after the last. Every second one has a
/// name, which begins with `prefix`; a third are waited for. A fourth of them are replaced by forgetting one,
/// and a third of these leave the reclaiming undone.
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

/// Puts expunge operations into a sequence that takes snapshots: before one in `one_in`, once there is a
/// snapshot. They expunge what earlier operations have named, two of three as of a snapshot. A third of them
/// leave the reclaiming undone.
pub fn weave_expunges(ops: Vec<Op>, seed: u64, one_in: u32) -> Vec<Op> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x6578_7075_6e67);
    let (mut woven, mut named, mut taken) = (Vec::new(), Vec::new(), false);
    for op in ops {
        if taken && !named.is_empty() && random.random_range(0..one_in) == 0 {
            let path: &Vec<Name> = &named[random.random_range(0..named.len())];
            let which = (random.random_range(0..3) > 0).then(|| random.random_range(0..8));
            woven.push(Op::Expunge { path: path.clone(), which, left: random.random_range(0..3) == 0 });
        }
        taken |= matches!(op, Op::Snapshot { .. });
        named.extend(named_by(&op));
        woven.push(op);
    }
    woven
}

/// Puts the indexing of a few rows of history into a sequence that takes snapshots: before one operation in
/// `one_in`, once there is a snapshot.
pub fn weave_indexing(ops: Vec<Op>, seed: u64, one_in: u32) -> Vec<Op> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x0069_6e64_6578);
    let (mut woven, mut taken) = (Vec::new(), false);
    for op in ops {
        if taken && random.random_range(0..one_in) == 0 {
            woven.push(Op::Index { rows: random.random_range(1..24) });
        }
        taken |= matches!(op, Op::Snapshot { .. });
        woven.push(op);
    }
    woven
}

/// Puts the laying together of files into a sequence that takes snapshots: before one operation in `one_in`,
/// once there is a snapshot, of something that an earlier one has named.
pub fn weave_defragments(ops: Vec<Op>, seed: u64, one_in: u32) -> Vec<Op> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x6465_6672_6167);
    let (mut woven, mut named, mut taken) = (Vec::new(), Vec::new(), false);
    for op in ops {
        if taken && !named.is_empty() && random.random_range(0..one_in) == 0 {
            let path: &Vec<Name> = &named[random.random_range(0..named.len())];
            woven.push(Op::Defragment { target: Target::Path(path.clone()) });
        }
        taken |= matches!(op, Op::Snapshot { .. });
        named.extend(named_by(&op));
        woven.push(op);
    }
    woven
}

/// The path under which an operation creates something, if it does.
fn named_by(op: &Op) -> Option<Vec<Name>> {
    let (Op::Create { at, .. }
    | Op::Mkdir { at, .. }
    | Op::Symlink { at, .. }
    | Op::Link { at, .. }
    | Op::Rename { to: at, .. }) = op
    else {
        return None;
    };
    let EntryPath { directory: Target::Path(path), name } = at else { return None };
    Some([&path[..], std::slice::from_ref(name)].concat())
}

/// Files whose whole history was given up.
#[derive(Clone, Debug)]
struct Expunged {
    /// How many operations had been carried out, including itself.
    moment: usize,
    files: Vec<Identity>,
}

/// The snapshots of a sequence, as far as it has come.
#[derive(Clone, Debug, Default)]
pub struct Sequence {
    taken: Vec<Taken>,
    kept: Vec<usize>,
    expunged: Vec<Expunged>,
}

impl Sequence {
    /// Whether none was taken.
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// An operation was carried out that led to this moment and state. `number` is the number of the snapshot
    /// that it took, `gone` are the files that it expunged.
    pub fn note(
        &mut self,
        op: &Op,
        moment: usize,
        state: &State,
        number: impl FnOnce() -> EventNo,
        gone: impl FnOnce() -> Vec<Identity>,
    ) {
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
            Op::Expunge { .. } => self.expunged.push(Expunged { moment, files: gone() }),
            _ => {}
        }
    }

    /// The snapshots that are kept at a moment, as they look if these expunge operations had returned, and
    /// `pending` is gone, too.
    fn shown_at(&self, moment: usize, returned: usize, pending: &HashSet<Identity>) -> Vec<Taken> {
        let kept = self.taken.iter().filter(|taken| taken.is_kept_at(moment));
        kept.map(|taken| taken.without(&self.gone(taken.moment, returned, pending))).collect()
    }

    /// What was expunged after a moment by calls that had returned, and `pending`.
    fn gone(&self, after: usize, returned: usize, pending: &HashSet<Identity>) -> HashSet<Identity> {
        let later = self.expunged.iter().filter(|one| one.moment > after && one.moment <= returned);
        later.flat_map(|one| one.files.iter()).chain(pending).copied().collect()
    }

    /// The files that no snapshot shows any more, of those that a call is expunging that has begun and not
    /// returned.
    fn pending(&self, seen: &[Seen], bounds: Bounds) -> HashSet<Identity> {
        let is_under_way = |one: &&Expunged| one.moment > bounds.returned && one.moment <= bounds.begun;
        let is_seen = |(number, incarnation): &Identity| {
            let is_it = |node: &Node| node.facts.incarnation == *incarnation;
            seen.iter().any(|seen| seen.tree.nodes.get(number).is_some_and(is_it))
        };
        let files = self.expunged.iter().filter(is_under_way).flat_map(|one| one.files.iter());
        files.filter(|file| !is_seen(file)).copied().collect()
    }
}

/// A snapshot as it was found on a volume.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its number.
    pub number: EventNo,
    /// Its name, or nothing.
    pub name: String,
    /// What it shows.
    pub tree: Tree,
}

/// Walks all snapshots of a volume, in the order in which they were taken.
///
/// # Errors
/// A message: what could not be read, or that the facts about a snapshot contradict each other.
pub fn observe_all(view: &View) -> Result<Vec<Seen>, String> {
    let events = view.events().map_err(|error| format!("the list of snapshots: {error}"))?;
    let (of_files, others): (Vec<_>, Vec<_>) = events.iter().partition(|event| event.row.kind.is_of_file());
    of_files.iter().try_for_each(|event| read_version(view, event))?;
    let (intervals, others): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|event| event.row.kind == EventKind::Interval);
    intervals.into_iter().try_for_each(|event| list_interval(view, event))?;
    let seen: Vec<Seen> =
        others.into_iter().map(|event| observe_one(view, event)).collect::<Result<_, _>>()?;
    seen.iter().try_for_each(|then| query_others(view, then, &seen))?;
    Ok(seen)
}

/// How many names that a directory lacks are looked up in it.
const OTHERS: usize = 3;

/// Names that other snapshots show in a directory, and this one does not, must not be found in it as of this
/// one.
fn query_others(view: &View, then: &Seen, all: &[Seen]) -> Result<(), String> {
    let at = view.as_of(then.number);
    for (inode, entries) in then.tree.directories() {
        let others = all.iter().filter_map(|other| other.tree.entries(inode));
        let absent: BTreeSet<&Name> =
            others.flat_map(BTreeMap::keys).filter(|name| !entries.contains_key(*name)).collect();
        for name in absent.into_iter().take(OTHERS) {
            match at.lookup(InodeNo(inode), name) {
                Err(yore_fs::Error::NotFound) => {}
                found => {
                    let (number, name) = (then.number, crate::op::show_name(name));
                    let found = found.map(|node| node.attr().inode);
                    return Err(format!("snapshot {number}: {name} in directory {inode}: {found:?}"));
                }
            }
        }
    }
    Ok(())
}

/// A snapshot that the policy of new volumes has taken can be listed. The first one is from before the first
/// operation.
fn list_interval(view: &View, event: &yore_fs::Event) -> Result<(), String> {
    let then = view.as_of(event.number);
    let mut entries = 0;
    let listed = then.readdir(then.root(), 0, &mut |item| {
        entries += usize::from(!matches!(item.name, b"." | b".."));
        true
    });
    listed.map_err(|error| format!("snapshot {} of the policy: {error}", event.number))?;
    match event.number == EventNo(1) && entries > 0 {
        true => Err(format!("the snapshot from before the first operation shows {entries} names")),
        false => Ok(()),
    }
}

/// A version of a single file, which a policy has made, must be there and readable.
fn read_version(view: &View, event: &yore_fs::Event) -> Result<(), String> {
    if event.row.kind == EventKind::Removed {
        return Ok(());
    }
    let (then, file) = (view.as_of(event.number), event.row.root);
    let read = || {
        let attr = then.getattr(file)?;
        let mut buffer = vec![0; (attr.size as usize).min(1 << 20)];
        then.read(file, 0, &mut buffer)?;
        then.read(file, attr.size.saturating_sub(4096), &mut buffer)?;
        then.listxattr(file)?.iter().try_for_each(|name| then.getxattr(file, name).map(|_| ()))
    };
    read().map_err(|error: yore_fs::Error| format!("version {} of file {file}: {error}", event.number))
}

fn observe_one(view: &View, event: &yore_fs::Event) -> Result<Seen, String> {
    let (number, name) = (event.number, event.row.name.clone());
    let failed = |what: String| format!("snapshot {number}: {what}");
    if (event.row.kind, event.row.root, event.row.held) != (EventKind::Snapshot, view.root(), false) {
        return Err(failed(format!("it is another one: {:?}", event.row)));
    }
    let mut times = vec![When::At(event.row.time)];
    times.extend((!name.is_empty()).then(|| When::Named(name.clone())));
    for when in times {
        match view.event_for(view.root(), &when) {
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
pub fn compare_all(view: &View, sequence: &Sequence) -> Result<(), String> {
    let seen = observe_all(view)?;
    let kept = sequence.shown_at(usize::MAX, usize::MAX, &HashSet::new());
    if seen.len() != kept.len() {
        return Err(format!("{} snapshots are there, {} are kept", seen.len(), kept.len()));
    }
    for (seen, taken) in seen.iter().zip(&kept) {
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
        false => Err(format!("snapshot {}:\n    {}", seen.number, crate::tree::list(&differences))),
    }
}

/// The snapshots found before must be found again, and others may follow.
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
    own: Sequence,
}

impl Snapshots {
    /// Those of a history that began on a volume that had some.
    pub(crate) fn new(before: Vec<Seen>, history: &History, of: &Own) -> Snapshots {
        let (mut own, mut numbers, mut expunged) =
            (Sequence::default(), of.taken().iter(), of.expunged().iter());
        for (n, op) in history.ops.iter().enumerate() {
            let number = || *numbers.next().expect("each was taken");
            let gone = || expunged.next().expect("each was given up").clone();
            own.note(op, n + 1, &history.states[n + 1], number, gone);
        }
        Snapshots { before, own }
    }

    /// Whether there is none at any moment.
    pub(crate) fn is_none(&self) -> bool {
        self.before.is_empty() && self.own.is_empty()
    }

    /// Those that exist at a moment.
    pub(crate) fn numbers_at(&self, moment: usize) -> Vec<EventNo> {
        let own = self.own.taken.iter().filter(|taken| taken.is_kept_at(moment)).map(|taken| taken.number);
        self.before.iter().map(|seen| seen.number).chain(own).collect()
    }

    /// Judges the snapshots found after a crash, given that they are those of this moment.
    pub(crate) fn judge(
        &self,
        judge: &Judge,
        seen: &[Seen],
        moment: usize,
        bounds: Bounds,
        unit: Unit,
    ) -> Result<(), String> {
        let pending = self.own.pending(seen, bounds);
        let gone = self.own.gone(0, bounds.returned, &pending);
        let before: Vec<Seen> =
            self.before.iter().map(|one| Seen { tree: without(&one.tree, &gone), ..one.clone() }).collect();
        must_begin_with(seen, &before)?;
        let kept = self.own.shown_at(moment, bounds.returned, &pending);
        for (seen, taken) in seen[self.before.len()..].iter().zip(kept) {
            check_name(seen, &taken)?;
            let wrong = judge.judge_past(&seen.tree, &taken, bounds, unit);
            wrong.map_err(|error| {
                format!("snapshot {} of moment {}:\n    {error}", seen.number, taken.moment)
            })?;
        }
        Ok(())
    }
}

/// What a snapshot of a tree must show, if it has no name.
pub(crate) fn taken_of(tree: Tree, number: EventNo) -> Seen {
    Seen { number, name: String::new(), tree: without_hidden(tree) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{sequence, Profile};
    use crate::tree::Inside;
    use yore_fs::FileKind;

    /// A tree of the model, in which `a` is 1, `b` and `d/b` are 2, and `d` is 3.
    fn tree() -> Tree {
        let entries = |all: &[(&str, u64, FileKind)]| {
            let entry = |(name, number, kind): &(&str, u64, FileKind)| {
                (Name::from(name.as_bytes()), (*number, *kind))
            };
            Inside::Directory { entries: all.iter().map(entry).collect(), parent: 0 }
        };
        let file = || Inside::File { size: 0, blocks: Default::default() };
        let (f, d) = (FileKind::Regular, FileKind::Directory);
        let nodes = [
            (0, entries(&[("a", 1, f), ("b", 2, f), ("d", 3, d)])),
            (1, file()),
            (2, file()),
            (3, entries(&[("b", 2, f)])),
        ];
        let facts = crate::tree::Facts::of(&crate::subject::ModelSubject::root());
        let node = |inside| Node { facts, xattrs: Default::default(), inside };
        let nodes = nodes.into_iter().map(|(number, inside)| (number, node(inside))).collect();
        Tree { root: 0, nodes, contradictions: Vec::new() }
    }

    /// Which numbers a tree has, and under how many names each.
    fn names(tree: &Tree) -> Vec<(u64, usize)> {
        let of = |number: u64| {
            let inside = tree.nodes.values().map(|node| match &node.inside {
                Inside::Directory { entries, .. } => {
                    entries.values().filter(|entry| entry.0 == number).count()
                }
                _ => 0,
            });
            (number, inside.sum())
        };
        let mut numbers: Vec<u64> = tree.nodes.keys().copied().collect();
        numbers.sort_unstable();
        numbers.into_iter().map(of).collect()
    }

    /// An expunged file disappears under all its names, and a directory together with everything that is only
    /// in it. Another file that had the number stays.
    #[test]
    fn what_is_expunged_is_in_no_tree() {
        let gone = |files: &[Identity]| names(&without(&tree(), &files.iter().copied().collect()));
        assert_eq!(gone(&[]), [(0, 0), (1, 1), (2, 2), (3, 1)]);
        assert_eq!(gone(&[(2, 1)]), [(0, 0), (1, 1), (3, 1)]);
        assert_eq!(gone(&[(2, 7)]), [(0, 0), (1, 1), (2, 2), (3, 1)]);
        assert_eq!(gone(&[(3, 1)]), [(0, 0), (1, 1), (2, 1)]);
        assert_eq!(gone(&[(3, 1), (2, 1)]), [(0, 0), (1, 1)]);
    }

    /// Until the call has returned, a file that one snapshot shows must be in all that had it; afterwards in
    /// none.
    #[test]
    fn what_is_being_expunged_is_gone_from_all_or_none() {
        let taken = |number: u64| Taken {
            number: EventNo(number),
            forgotten: None,
            moment: number as usize,
            name: Name::from(&b""[..]),
            tree: tree(),
        };
        let expunged = vec![Expunged { moment: 5, files: vec![(1, 1), (2, 1)] }];
        let sequence = Sequence { taken: vec![taken(1), taken(2), taken(9)], kept: Vec::new(), expunged };
        let seen = |number: u64, gone: &[Identity]| Seen {
            number: EventNo(number),
            name: String::new(),
            tree: without(&tree(), &gone.iter().copied().collect()),
        };
        let shown = |seen: &[Seen], returned: usize| -> Vec<Vec<(u64, usize)>> {
            let pending = sequence.pending(seen, Bounds::new(5, returned));
            sequence.shown_at(9, returned, &pending).iter().map(|taken| names(&taken.tree)).collect()
        };
        let (all, neither) = (names(&tree()), names(&without(&tree(), &HashSet::from([(1, 1), (2, 1)]))));
        let first_only = names(&without(&tree(), &HashSet::from([(1, 1)])));
        let (both, none) = ([seen(1, &[]), seen(2, &[])], [(1, 1), (2, 1)]);
        assert_eq!(shown(&both, 4)[..2], [all.clone(), all.clone()]);
        assert_eq!(shown(&both, 5), [neither.clone(), neither.clone(), all.clone()], "whatever is seen");
        assert_eq!(shown(&[seen(1, &none), seen(2, &none)], 4)[..2], [neither.clone(), neither]);
        // One of the two is gone. The other must be in both, although one does not show it.
        let half = [seen(1, &[(1, 1)]), seen(2, &none)];
        assert_eq!(shown(&half, 4)[..2], [first_only.clone(), first_only]);
    }

    /// Without the snapshots the sequence is the original one.
    #[test]
    fn snapshots_lie_between_the_operations() {
        for seed in 0..20 {
            let ops = sequence(seed, 60, Profile::Crash);
            let plain = weave(ops.clone(), seed, 8, "event");
            let all = plain.len();
            let mut woven = weave_expunges(plain.clone(), seed, 6);
            assert!(woven.len() - all < 30, "{} expungings", woven.len() - all);
            woven.retain(|op| !matches!(op, Op::Expunge { .. }));
            assert_eq!(woven, plain);
            let laid = weave_defragments(plain.clone(), seed, 6);
            assert!(laid.len() - all < 30, "{} layings", laid.len() - all);
            let is_drawn = |op: &&Op| matches!(op, Op::Defragment { .. });
            let drawn = plain.iter().filter(is_drawn).count();
            assert!(laid.iter().filter(is_drawn).count() - drawn == laid.len() - all);
            woven.retain(|op| !matches!(op, Op::Snapshot { .. } | Op::Forget { .. }));
            assert_eq!(woven, ops);
            assert!((1..30).contains(&(all - ops.len())), "{} snapshots", all - ops.len());
        }
    }
}
