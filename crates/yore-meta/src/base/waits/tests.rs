use super::*;
use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use yore_format::ZoneNo;

struct At(Where);

impl HasPlace for At {
    fn place(&self) -> Where {
        self.0
    }
}

fn block(number: u16) -> MetaAddr {
    MetaAddr::new(ZoneNo(0), number)
}

fn change(waits: &mut Waits<At>, number: u16) -> Change {
    waits.change(0, At(Where::Block(block(number))))
}

/// Which changes must come before which, told one by one.
#[derive(Default)]
struct Plain {
    names: HashMap<InodeNo, Vec<(usize, InodeNo)>>,
    vacated: HashMap<InodeNo, Vec<usize>>,
    blocks: HashMap<MetaAddr, Vec<usize>>,
    edges: Edges,
}

impl Plain {
    fn unnamed(&mut self, inode: InodeNo, gone: usize) {
        let (mut inodes, mut next) = (vec![inode], 0);
        while let Some(inode) = inodes.get(next) {
            for (name, directory) in self.names.get(inode).cloned().unwrap_or_default() {
                if name < gone {
                    self.edges.push((EdgeKind::Kept, name, gone));
                    if !inodes.contains(&directory) {
                        inodes.push(directory);
                    }
                }
            }
            next += 1;
        }
    }

    fn occupied(&mut self, inode: InodeNo, by: usize) {
        let gone = self.vacated.get(&inode).into_iter().flatten().filter(|gone| **gone < by);
        self.edges.extend(gone.map(|gone| (EdgeKind::Vacated, *gone, by)));
    }

    fn all_before(&mut self, kind: EdgeKind, of: MetaAddr, by: usize) {
        let changes = self.blocks.get(&of).into_iter().flatten().filter(|change| **change < by);
        self.edges.extend(changes.map(|change| (kind, *change, by)));
    }
}

/// Whether a change comes behind another one by edges of one kind, for each pair.
fn behind(waits: &Waits<At>, kind: EdgeKind) -> Vec<Vec<bool>> {
    let count = waits.changes.len();
    let mut firsts = vec![Vec::new(); count];
    for (_, first, then) in waits.edges.iter().filter(|(of, ..)| *of == kind) {
        assert!(first < then, "an edge points backward");
        firsts[*then].push(*first);
    }
    let mut behind: Vec<Vec<bool>> = Vec::new();
    for of_change in firsts {
        let mut all = vec![false; count];
        for first in of_change {
            all[first] = true;
            all.iter_mut().zip(&behind[first]).for_each(|(all, before)| *all |= before);
        }
        behind.push(all);
    }
    behind
}

/// A change that stands for others leaves nothing out: what had to come before a change one by one does so
/// still, by edges of the same kind, in whatever order Ops beside each other tell it.
#[test]
fn one_change_stands_for_many_others() {
    let mut stood_for = 0;
    for seed in 0..60 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (mut waits, mut plain): (Waits<At>, _) = (Waits::default(), Plain::default());
        let mut changes: Vec<Change> = Vec::new();
        for _ in 0..400 {
            let number = random.random_range(0..3);
            changes.push(change(&mut waits, number));
            plain.blocks.entry(block(number)).or_default().push(changes.len() - 1);
            // Sometimes an earlier one, as if another Op had made changes since.
            let back = if random.random_bool(0.2) { random.random_range(0..4) } else { 0 };
            let by = changes[changes.len() - 1 - back.min(changes.len() - 1)];
            let at = by.number() as usize;
            let inode = |random: &mut Xoshiro256PlusPlus| InodeNo(random.random_range(0..5));
            let no = inode(&mut random);
            match random.random_range(0..8) {
                0..=2 => {
                    let directory = inode(&mut random);
                    waits.named(no, directory, by);
                    plain.names.entry(no).or_default().push((at, directory));
                }
                3 => {
                    waits.unnamed(no, by);
                    plain.unnamed(no, at);
                }
                4 => {
                    waits.vacated(no, by);
                    plain.vacated.entry(no).or_default().push(at);
                }
                5 => {
                    waits.occupied(no, by);
                    plain.occupied(no, at);
                }
                _ => {
                    let kind = if random.random_bool(0.5) { EdgeKind::Moved } else { EdgeKind::Returned };
                    let of = block(random.random_range(0..3));
                    waits.all_before(kind, of, by);
                    plain.all_before(kind, of, at);
                }
            }
        }
        for kind in [EdgeKind::Kept, EdgeKind::Vacated, EdgeKind::Moved, EdgeKind::Returned] {
            let behind = behind(&waits, kind);
            for (_, first, then) in plain.edges.iter().filter(|(of, ..)| *of == kind) {
                assert!(behind[*then][*first], "seed {seed}: {then} no longer waits for {first} ({kind:?})");
            }
        }
        stood_for += plain.edges.len() - waits.edges.len().min(plain.edges.len());
    }
    assert!(stood_for > 1000, "only {stood_for} edges fewer");
}

/// Edges grew with the square of the calls: a file that was renamed back and forth within one generation, a
/// name that came and went, extents that were written over and a block that was asked for again and again
/// took gigabytes.
#[test]
fn edges_grow_with_the_calls() {
    const CALLS: usize = 30_000;
    let (file, directory) = (InodeNo(20), InodeNo(16));
    let rename = |waits: &mut Waits<At>| {
        let (entered, gone) = (change(waits, 1), change(waits, 1));
        waits.edge(EdgeKind::Replaced, entered, gone);
        waits.unnamed(file, gone);
        waits.named(file, directory, entered);
    };
    let overwrite = |waits: &mut Waits<At>| {
        let cell = change(waits, 2);
        waits.occupied(file, cell);
        waits.vacated(file, cell);
    };
    let record = |waits: &mut Waits<At>| {
        change(waits, 3);
        let row = change(waits, 4);
        waits.all_before(EdgeKind::Recorded, block(3), row);
    };
    type Call<'a> = &'a dyn Fn(&mut Waits<At>);
    let calls: [Call<'_>; 3] = [&rename, &overwrite, &record];
    for (number, call) in calls.into_iter().enumerate() {
        let mut waits = Waits::default();
        (0..CALLS).for_each(|_| call(&mut waits));
        let edges = waits.edges.len();
        assert!(edges > CALLS / 2 && edges < 24 * CALLS, "call {number}: {edges} edges");
    }
}

/// What reaches the medium together needs no edges, and gets none until it is taken.
#[test]
fn what_comes_together_has_no_edges() {
    let mut waits = Waits::default();
    let (first, then) = (change(&mut waits, 1), change(&mut waits, 1));
    waits.named(InodeNo(20), InodeNo(16), first);
    waits.edge(EdgeKind::Named, first, then);
    waits.come_together();
    waits.unnamed(InodeNo(20), then);
    waits.all_before(EdgeKind::Moved, block(1), then);
    let taken = waits.take();
    assert_eq!((taken.changes.len(), taken.edges.len()), (2, 0));
    let (first, then) = (change(&mut waits, 1), change(&mut waits, 1));
    waits.edge(EdgeKind::Named, first, then);
    assert_eq!(waits.edges, [(EdgeKind::Named, 0, 1)]);
}
