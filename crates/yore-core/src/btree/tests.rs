//! Trees against the standard library's map, over a real metadata layer on a device in memory. After each
//! batch the test walks the whole tree and checks T1 to T4, and the number of nodes. A failure prints its
//! seed; to replay it, call the test's body with that seed alone.

use super::path::Key;
use super::*;
use crate::testing::{Ground, Random};
use crate::Result;
use std::collections::BTreeMap;

use yore_format::{
    Block, BlockKind, EventNo, Incarnation, InodeNo, MetaAddr, NodeMut, NodeRef, NODE_PAYLOAD_BYTES,
};
use yore_meta::{Frame, Meta, Op, Reserved};

const BIRTH: EventNo = EventNo(7);

impl Ground {
    /// Prepares a range of keys, reserves for `inserts` and runs `f` in an Op.
    /// Returns by how many nodes the tree has grown.
    fn change<R: Into<Option<TreeDelta>>>(
        &mut self,
        tree: &mut Tree,
        (first, last): (u64, u64),
        inserts: u32,
        f: impl FnOnce(&mut Tree, &mut Op<'_>) -> R,
    ) -> i32 {
        let reserved = self.reserve(tree.blocks_for_inserts(inserts));
        let mut pins = Pins::new();
        tree.prepare(&self.meta, &key(first), &key(last), &mut pins).unwrap();
        let mut op = self.meta.begin(reserved);
        let delta = f(tree, &mut op);
        stored(&mut op, &self.meta, delta)
    }
}

/// Stores the root of a tree, as it were: the list of orphans stays as it is. Returns by how many nodes the
/// tree has grown.
fn stored(op: &mut Op<'_>, meta: &Meta, delta: impl Into<Option<TreeDelta>>) -> i32 {
    let Some(delta) = delta.into() else { return 0 };
    let nodes = delta.nodes;
    let (root, level) = meta.orphan_root();
    let pointer = op.set_orphan_root(root, level);
    delta.stored(op, pointer);
    nodes
}

fn key(k: u64) -> [u8; 8] {
    k.to_be_bytes()
}

fn tree() -> Tree {
    Tree::empty(BlockKind::Directory, InodeNo(400), Incarnation(3))
}

/// Prints the seed when the test fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}

/// Walks all nodes, checks bounds strictly, and returns the number of nodes and of leaves' used bytes.
fn verify(meta: &Meta, tree: &Tree, expected: &BTreeMap<u64, Vec<u8>>) -> (i32, usize) {
    let (mut nodes, mut used, mut cells) = (0, 0, Vec::new());
    if !tree.is_empty() {
        let mut todo = vec![tree.root_position(8)];
        while let Some(position) = todo.pop() {
            nodes += 1;
            let frame = meta.read_any(position.addr).unwrap();
            let page = frame.read();
            let node = tree.checked(&page, &position, 8).unwrap();
            node.verify().unwrap();
            assert!(node.count() > 0, "T4");
            for i in 0..node.count() {
                assert!(*node.key(i) >= *position.lower && position.is_below_upper(node.key(i)), "T1");
            }
            if position.level > 0 {
                assert_eq!(*node.key(0), *position.lower, "T2");
                assert!(node.count() > 1 || position.addr != tree.root, "T4: a root of one child");
                todo.extend((0..node.count()).rev().map(|i| position.child(node, i).unwrap()));
            } else {
                used += node.used_bytes();
                cells.extend(
                    (0..node.count()).map(|i| {
                        (u64::from_be_bytes(node.key(i).try_into().unwrap()), node.value(i).to_vec())
                    }),
                );
            }
        }
    }
    assert!(cells.iter().map(|(k, v)| (k, v)).eq(expected.iter()), "the cells differ");
    (nodes, used)
}

fn value(random: &mut Random, most: u64) -> Vec<u8> {
    let len = random.below(most + 1) as usize;
    vec![random.below(256) as u8; len]
}

/// Random inserts, replaces and removes, alone and several to an Op, of values up to `most` bytes.
fn against_map(seed: u64, keys: u64, most: u64, batches: usize) {
    let _seed = Seed(seed);
    let (mut ground, mut random) = (Ground::new(), Random(seed));
    let (mut tree, mut map, mut nodes) = (tree(), BTreeMap::new(), 0);
    for batch in 0..batches {
        // Phases that mostly grow take turns with phases that mostly shrink, down to nothing.
        let growing = batch % 4 < 2;
        for _ in 0..300 {
            let first = random.below(keys);
            let span = if random.below(4) == 0 { random.below(12) } else { 0 };
            let changes = 1 + random.below(3) as u32;
            let meta = ground.meta.clone();
            nodes += ground.change(&mut tree, (first, first + span), changes, |tree, op| {
                let mut all: Option<TreeDelta> = None;
                for _ in 0..changes {
                    let k = first + random.below(span + 1);
                    let there = map.contains_key(&k);
                    let delta = if there && (!growing || random.below(4) == 0) {
                        map.remove(&k);
                        tree.remove(op, &key(k))
                    } else if there {
                        let v = value(&mut random, most);
                        let delta = tree.replace(op, &key(k), &v);
                        map.insert(k, v);
                        delta
                    } else if growing || random.below(4) == 0 {
                        let v = value(&mut random, most);
                        let delta = tree.insert(op, &key(k), &v, BIRTH);
                        map.insert(k, v);
                        delta
                    } else {
                        continue;
                    };
                    all = Some(delta.after(all));
                }
                all
            });
            let probe = random.below(keys);
            let got = tree.get(&meta, &key(probe), |v| v.map(<[u8]>::to_vec)).unwrap();
            assert_eq!(got.as_ref(), map.get(&probe));
            let got = tree.floor(&meta, &key(probe), |c| c.map(|(k, _)| k.to_vec())).unwrap();
            assert_eq!(got, map.range(..=probe).next_back().map(|(k, _)| key(*k).to_vec()));
        }
        if !growing && batch % 4 == 3 {
            while let Some(k) = map.range(random.below(keys)..).next().or(map.iter().next()).map(|(k, _)| *k)
            {
                map.remove(&k);
                nodes += ground.change(&mut tree, (k, k), 0, |tree, op| tree.remove(op, &key(k)));
                if map.len() % 64 == 0 {
                    assert_eq!(verify(&ground.meta, &tree, &map).0, nodes);
                }
            }
            assert!(tree.is_empty() && nodes == 0);
        }
        assert_eq!(verify(&ground.meta, &tree, &map).0, nodes);
        if batch % 3 == 0 {
            ground.meta.sync().unwrap();
        }
        scan_from(&ground.meta, &tree, &map, random.below(keys));
    }
}

fn scan_from(meta: &Meta, tree: &Tree, map: &BTreeMap<u64, Vec<u8>>, from: u64) {
    let mut want = map.range(from..);
    tree.scan(meta, &key(from), &mut |k, v| {
        let (wk, wv) = want.next().unwrap();
        assert!(*k == key(*wk) && *v == **wv);
        Ok(true)
    })
    .unwrap();
    assert!(want.next().is_none());
}

#[test]
fn behaves_as_a_map_with_small_values() {
    against_map(11, 3000, 30, 24);
}

#[test]
fn behaves_as_a_map_with_sparse_keys_and_large_values() {
    against_map(12, 2000, 1300, 24);
}

#[test]
fn behaves_as_a_map_where_nodes_hold_few_cells() {
    // Values are so long that a leaf has room for two or three: many levels of one-cell leaves come and go.
    against_map(13, 600, 1990, 24);
}

#[test]
fn a_hundred_thousand_keys_in_order_fill_nodes_and_come_off_from_the_end() {
    let mut ground = Ground::new();
    let (mut tree, mut map, mut nodes) = (tree(), BTreeMap::new(), 0);
    for k in 0..100_000u64 {
        let v = k.to_le_bytes();
        nodes += ground.change(&mut tree, (k, k), 1, |t, op| t.insert(op, &key(k), &v, BIRTH));
        map.insert(k, v.to_vec());
    }
    let (counted, used) = verify(&ground.meta, &tree, &map);
    assert_eq!(counted, nodes);
    assert!(used * 10 >= counted as usize * NODE_PAYLOAD_BYTES * 8, "leaves of an ascending load are full");
    // Keys are removed step by step, as the extents of a file are freed.
    while let Some((&last, _)) = map.iter().next_back() {
        let first = last.saturating_sub(499);
        nodes += ground.change(&mut tree, (first, last), 0, |t, op| {
            (first..=last).fold(None, |gone, k| Some(t.remove(op, &key(k)).after(gone)))
        });
        map.retain(|k, _| *k < first);
    }
    assert!(tree.is_empty() && nodes == 0);
}

/// Empties a branch that is its parent's first child. The next branch takes over its bounds, down to the
/// leaf, and an insert of the same Op into the emptied range finds its way there.
#[test]
fn neighbours_take_over_what_emptied_branches_held() {
    for from_the_end in [false, true] {
        let mut ground = Ground::new();
        let (mut tree, mut map, mut nodes) = (tree(), BTreeMap::new(), 0);
        for k in 0..1000u64 {
            let k = 10 * k;
            nodes += ground.change(&mut tree, (k, k), 1, |t, op| t.insert(op, &key(k), &[3; 1900], BIRTH));
            map.insert(k, vec![3; 1900]);
        }
        assert_eq!(tree.level, 2);
        while map.len() > 1 {
            let mut keys: Vec<u64> = if from_the_end {
                map.keys().rev().take(5).copied().collect()
            } else {
                map.keys().take(5).copied().collect()
            };
            keys.sort_unstable();
            let (first, last) = (keys[0], keys[keys.len() - 1]);
            // All keys go, and one cell comes back under another key.
            let back = first + 3;
            nodes += ground.change(&mut tree, (first, last), 1, |t, op| {
                let gone = keys.iter().fold(None, |gone, k| Some(t.remove(op, &key(*k)).after(gone)));
                t.insert(op, &key(back), &[4; 1000], BIRTH).after(gone)
            });
            keys.iter().for_each(|k| drop(map.remove(k)));
            map.insert(back, vec![4; 1000]);
            if map.len() % 3 == 0 {
                assert_eq!(verify(&ground.meta, &tree, &map).0, nodes);
            }
        }
    }
}

#[test]
fn a_run_takes_no_more_blocks_than_it_says() {
    for seed in 1..40 {
        let _seed = Seed(seed);
        let (mut ground, mut random) = (Ground::new(), Random(seed * 0x9e37_79b9));
        let (mut tree, mut map) = (tree(), BTreeMap::new());
        for _ in 0..random.below(60) {
            let k = random.below(1000) << 16;
            let v = value(&mut random, 1280);
            if map.insert(k, v.clone()).is_none() {
                let _ = ground.change(&mut tree, (k, k), 1, |t, op| t.insert(op, &key(k), &v, BIRTH));
            } else {
                let _ = ground.change(&mut tree, (k, k), 1, |t, op| t.replace(op, &key(k), &v));
            }
        }
        let nodes_before = verify(&ground.meta, &tree, &map).0;
        let first = (random.below(1000) << 16) + 1;
        let bound = tree.blocks_for_run(64, 1301);
        assert!(bound <= 32, "more than an Op may reserve");
        let reserved = ground.reserve(bound);
        let mut pins = Pins::new();
        tree.prepare(&ground.meta, &key(first), &key(first + 63), &mut pins).unwrap();
        let mut op = ground.meta.begin(reserved);
        let mut all = None;
        for k in first..first + 64 {
            let v = vec![k as u8; if k == first { 1287 } else { 1025 }];
            all = Some(tree.insert_run(&mut op, &key(k), &v, BIRTH).after(all));
            map.insert(k, v);
        }
        stored(&mut op, &ground.meta, all);
        drop(op);
        let gained = verify(&ground.meta, &tree, &map).0 - nodes_before;
        assert!(gained as u32 <= bound, "{gained} of {bound}");
    }
}

#[test]
fn whole_trees_are_freed_in_steps() {
    let mut ground = Ground::new();
    let (mut tree, mut nodes) = (tree(), 0);
    for k in 0..1500u64 {
        let k = k.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        nodes += ground.change(&mut tree, (k, k), 1, |t, op| t.insert(op, &key(k), &[1; 200], BIRTH));
    }
    assert!(tree.level >= 1 && nodes > 60);
    while !tree.is_empty() {
        let mut pins = Pins::new();
        tree.prepare_last(&ground.meta, 8, &mut pins).unwrap();
        let mut op = ground.meta.begin(Reserved::none());
        let before = nodes;
        let delta = tree.free_last(&mut op, 8).unwrap();
        nodes += stored(&mut op, &ground.meta, delta);
        assert!(nodes < before);
    }
    assert_eq!(nodes, 0);
}

/// A tree of two levels, with its content.
fn planted(ground: &mut Ground) -> Tree {
    let mut tree = tree();
    for k in 0..400u64 {
        let k = k * 10;
        let _ = ground.change(&mut tree, (k, k), 1, |t, op| t.insert(op, &key(k), &[5; 100], BIRTH));
    }
    assert_eq!(tree.level, 1);
    tree
}

fn child(meta: &Meta, tree: &Tree, i: usize) -> (Frame, MetaAddr) {
    let root = meta.read(tree.root, &tree.expect(1)).unwrap();
    let addr = NodeRef::new(&root.read()).child(i).unwrap();
    (meta.read(addr, &tree.expect(0)).unwrap(), addr)
}

fn damage(meta: &Meta, frame: &Frame, f: impl FnOnce(&mut Block)) {
    let mut op = meta.begin(Reserved::none());
    op.change(frame, |page| {
        page.apply(|b| {
            f(b);
            yore_format::Touched::whole(0..0)
        });
    });
}

fn is_corruption<T>(result: Result<T>) -> bool {
    matches!(result, Err(crate::Error::Corruption(_)))
}

#[test]
fn damaged_trees_give_errors() {
    let mut ground = Ground::new();
    let tree = planted(&mut ground);
    let meta = ground.meta.clone();
    let (leaf, _) = child(&meta, &tree, 1);
    let lower = leaf.read()[..].to_vec();
    let first = Key::new(NodeRef::new(&leaf.read()).key(0));
    let all = |tree: &Tree| tree.scan(&meta, &key(0), &mut |_, _| Ok(true));
    all(&tree).unwrap();

    // The node of another owner, and a level that does not descend.
    for (at, what) in [(16, "owner"), (24, "incarnation"), (5, "level"), (4, "kind")] {
        damage(&meta, &leaf, |b| b[at] ^= 1);
        assert!(is_corruption(tree.get(&meta, &first, |_| ())), "{what}");
        assert!(is_corruption(all(&tree)), "{what}");
        assert!(is_corruption(tree.prepare(&meta, &first, &first, &mut Pins::new())), "{what}");
        damage(&meta, &leaf, |b| b.copy_from_slice(&lower));
    }
    // A key below the bounds that the parent gives.
    damage(&meta, &leaf, |b| {
        NodeMut::new(b).set_key(0, &key(1));
    });
    assert!(is_corruption(tree.get(&meta, &first, |_| ())));
    damage(&meta, &leaf, |b| b.copy_from_slice(&lower));
    // A branch that points to itself, and one that points to one child twice.
    let root = meta.read(tree.root, &tree.expect(1)).unwrap();
    let own = tree.root.0.to_le_bytes();
    let was: Block = *root.read();
    damage(&meta, &root, |b| {
        NodeMut::new(b).replace(1, &own);
    });
    assert!(is_corruption(all(&tree)));
    damage(&meta, &root, |b| {
        *b = was;
        let twice = NodeRef::new(b).child(0).unwrap().0.to_le_bytes();
        NodeMut::new(b).replace(1, &twice);
    });
    assert!(is_corruption(all(&tree)));
    damage(&meta, &root, |b| *b = was);
    all(&tree).unwrap();
    // Roots that are not roots.
    let wrong = Tree { level: 2, ..tree };
    assert!(is_corruption(wrong.get(&meta, &first, |_| ())));
    let wrong = Tree { level: 200, ..tree };
    assert!(is_corruption(wrong.floor(&meta, &first, |_| ())));
    assert!(is_corruption(Tree::at_root(
        &meta,
        InodeNo::ROOT.addr(),
        tree.kind,
        tree.owner,
        tree.incarnation
    )));
}

#[test]
fn what_a_split_that_stopped_half_way_left_is_ignored_and_then_removed() {
    let mut ground = Ground::new();
    let tree = planted(&mut ground);
    let meta = ground.meta.clone();
    let (left, _) = child(&meta, &tree, 0);
    let (right, _) = child(&meta, &tree, 1);
    // The left node still has a cell that moved, with an old value.
    let moved = Key::new(NodeRef::new(&right.read()).key(0));
    damage(&meta, &left, |b| {
        let mut node = NodeMut::new(b);
        let n = node.as_ref().count();
        node.insert(n, &moved, &[6; 20]);
    });
    let mut seen = Vec::new();
    tree.scan(&meta, &key(0), &mut |k, v| {
        assert_eq!(v, [5; 100]);
        seen.push(u64::from_be_bytes(k.try_into().unwrap()));
        Ok(true)
    })
    .unwrap();
    assert!(seen.into_iter().eq((0..400).map(|k| k * 10)));
    let mut changed = tree;
    let _ = ground.change(&mut changed, (5, 5), 1, |t, op| t.insert(op, &key(5), &[5; 100], BIRTH));
    let mut map: BTreeMap<u64, Vec<u8>> = (0..400).map(|k| (k * 10, vec![5; 100])).collect();
    map.insert(5, vec![5; 100]);
    verify(&meta, &changed, &map);
}

/// Promises that removals of keys that lie anywhere need nothing but what was kept in memory for them: leaves
/// that become empty, first children, and whole branches among them.
#[test]
fn scattered_keys_are_removed_together() {
    for seed in 1..5 {
        let _seed = Seed(seed);
        let (mut random, mut ground, mut tree) = (Random(seed), Ground::new(), tree());
        let mut map = BTreeMap::new();
        // Two cells a leaf, and several branches.
        for k in 0..1500 {
            let insert = |tree: &mut Tree, op: &mut Op<'_>| tree.insert(op, &key(k), &[5; 1900], BIRTH);
            let _ = ground.change(&mut tree, (k, k), 1, insert);
            map.insert(k, vec![5; 1900]);
        }
        while !map.is_empty() {
            // From the front, a few at a time: the first branch becomes empty, and not the next.
            let is_front = seed % 2 == 0;
            let from = if is_front { 0 } else { random.below(1500) };
            let step = if is_front { 1 } else { 1 + random.below(3) as usize };
            let most = 1 + random.below(if is_front { 5 } else { 500 }) as usize;
            let leaving: Vec<u64> = map.range(from..).step_by(step).take(most).map(|(k, _)| *k).collect();
            let keys: Vec<_> = leaving.iter().map(|k| key(*k)).collect();
            ground.reopen();
            let reserved = ground.reserve(0);
            let mut pins = Pins::new();
            tree.prepare_removals(&ground.meta, &keys, &mut pins).unwrap();
            let mut op = ground.meta.begin(reserved);
            for (k, key) in leaving.iter().zip(&keys) {
                let delta = tree.remove(&mut op, key);
                stored(&mut op, &ground.meta, delta);
                map.remove(k);
            }
            drop(op);
            if !is_front || map.len() % 10 == 0 {
                verify(&ground.meta, &tree, &map);
            }
        }
        assert!(tree.is_empty());
    }
}

/// A batch takes exactly the blocks that its plan says, and leaves a sound tree with all cells.
#[test]
fn planned_inserts_take_what_the_plan_says() {
    for seed in 1..13 {
        let _seed = Seed(seed);
        let (mut ground, mut random) = (Ground::new(), Random(seed));
        let (mut tree, mut map, mut nodes) = (tree(), BTreeMap::new(), 0);
        let keys = [400, 20_000, 1 << 40][random.below(3) as usize];
        for batch in 0..120 {
            let from = random.below(keys);
            let mut cells = BTreeMap::new();
            for i in 0..1 + random.below(128) {
                let k = if seed % 2 == 0 { random.below(keys) } else { from + i };
                if !map.contains_key(&k) {
                    cells.insert(k, value(&mut random, 40));
                }
            }
            map.extend(cells.clone());
            let meta = ground.meta.clone();
            let cells: Vec<_> = cells.into_iter().map(|(k, value)| (key(k).to_vec(), value)).collect();
            let plan = tree.plan_inserts(&meta, &cells).unwrap();
            let blocks = plan.blocks();
            let reserved = ground.reserve(blocks);
            let mut op = meta.begin(reserved);
            let delta = tree.insert_planned(&mut op, plan, BIRTH);
            let grown = stored(&mut op, &meta, delta);
            drop(op);
            assert_eq!(grown, blocks as i32);
            nodes += grown;
            assert_eq!(verify(&meta, &tree, &map).0, nodes);
            if let Some(again) = cells.first().filter(|_| batch % 8 == 0) {
                assert!(
                    is_corruption(tree.plan_inserts(&meta, std::slice::from_ref(again))),
                    "the key is there"
                );
            }
            // Leaves with room in all states, and trees that got smaller.
            for k in map.keys().copied().filter(|_| random.below(5) == 0).collect::<Vec<_>>() {
                nodes += ground.change(&mut tree, (k, k), 0, |tree, op| tree.remove(op, &key(k)));
                map.remove(&k);
            }
        }
    }
}

/// Promises that a cell in a new leaf counts from the pointer to that leaf on, also where the root stays as
/// it is, so that its owner stores nothing. Before, a version in the first row of a leaf was taken for
/// durable when the leaf was, and a crash before the pointer lost it.
#[test]
fn a_cell_in_a_new_leaf_counts_from_the_pointer_on() {
    let (mut ground, mut tree) = (Ground::new(), tree());
    let (mut last, mut leaves) = (LastLeaf::default(), 0);
    for k in 0..40 {
        let reserved = ground.reserve(tree.blocks_for_inserts(1));
        let position = tree.append_position(&ground.meta, &key(k)).unwrap();
        let mut op = ground.meta.begin(reserved);
        let delta = tree.append(&mut op, &mut last, position, (&key(k), &[5; 900]), BIRTH);
        if delta.moves_root() {
            stored(&mut op, &ground.meta, delta);
            continue;
        }
        let nodes = delta.nodes;
        let cell = delta.unmoved().unwrap();
        assert_eq!(cell.counts > cell.change, nodes > 0, "{nodes} new nodes");
        leaves += nodes;
    }
    assert!(leaves > 5, "{leaves}");
}

/// One Op changes cells that lie together, in a tree of which the past has nodes. The count of copies was
/// that of a way from the root for each of them, so on a volume with little room for metadata hardly any
/// could be changed at once. Now it is that of the nodes with these keys, and of a few beside. An Op that
/// took more blocks than it has reserved would panic.
#[test]
fn cells_that_lie_together_need_few_copies() {
    const KEYS: u64 = 2500;
    for (seed, most) in [(1, 60), (2, 300), (3, 900)] {
        let _seed = Seed(seed);
        let (mut ground, mut random) = (Ground::new(), Random(seed));
        let (mut tree, mut map, mut nodes) = (tree(), BTreeMap::new(), 0);
        for k in 0..KEYS {
            let cell = value(&mut random, most);
            nodes += ground.change(&mut tree, (k, k), 1, |tree, op| tree.insert(op, &key(k), &cell, BIRTH));
            map.insert(k, cell);
        }
        for past in BIRTH.0..BIRTH.0 + 6 {
            tree = tree.with_recorded(EventNo(past));
            for _ in 0..10 {
                let first = random.below(KEYS);
                let last = (first + random.below(150)).min(KEYS - 1);
                let cells = changes(&mut random, &map, first..=last, most);
                nodes += change_in_past(&mut ground, &mut tree, &map, (first, last), &cells);
                for (k, cell) in cells {
                    match cell {
                        Some(cell) => map.insert(k, cell),
                        None => map.remove(&k),
                    };
                }
                assert_eq!(verify(&ground.meta, &tree, &map).0, nodes);
            }
        }
    }
}

/// Random removals, some replacements by values of the same length, and few inserts. Sometimes all goes.
fn changes(
    random: &mut Random,
    map: &BTreeMap<u64, Vec<u8>>,
    keys: std::ops::RangeInclusive<u64>,
    most: u64,
) -> Vec<(u64, Option<Vec<u8>>)> {
    let all_go = random.below(2) == 0;
    let mut cells = Vec::new();
    for k in keys {
        match map.get(&k) {
            Some(_) if all_go || random.below(2) == 0 => cells.push((k, None)),
            Some(old) if random.below(2) == 0 => cells.push((k, Some(vec![3; old.len()]))),
            None if random.below(20) == 0 => cells.push((k, Some(value(random, most)))),
            _ => {}
        }
    }
    cells
}

/// Makes changes of cells with keys in a range, in one Op that has reserved no more than it says that it
/// needs: removals first. Returns by how many nodes the tree has grown.
fn change_in_past(
    ground: &mut Ground,
    tree: &mut Tree,
    map: &BTreeMap<u64, Vec<u8>>,
    (first, last): (u64, u64),
    cells: &[(u64, Option<Vec<u8>>)],
) -> i32 {
    let birth = EventNo(tree.recorded_until.0 + 1);
    let inserts = cells.iter().filter(|(k, cell)| cell.is_some() && !map.contains_key(k)).count() as u32;
    let past = tree.past_nodes(&ground.meta, &key(first), &key(last)).unwrap();
    let splits = if inserts > 0 { tree.blocks_for_splits(inserts) } else { 0 };
    let reserved = ground.reserve(splits + past.blocks_for_copies(&key(first), &key(last)));
    let mut pins = Pins::new();
    tree.prepare(&ground.meta, &key(first), &key(last), &mut pins).unwrap();
    let mut op = ground.meta.begin(reserved);
    let mut all: Option<TreeDelta> = None;
    for (k, _) in cells.iter().filter(|(_, cell)| cell.is_none()) {
        let delta = tree.remove(&mut op, &key(*k));
        all = Some(delta.after(all));
    }
    for (k, cell) in cells {
        let Some(cell) = cell else { continue };
        let delta = match map.contains_key(k) {
            true => tree.replace(&mut op, &key(*k), cell),
            false => tree.insert(&mut op, &key(*k), cell, birth),
        };
        all = Some(delta.after(all));
    }
    stored(&mut op, &ground.meta, all)
}
