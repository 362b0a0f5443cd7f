//! The judge must refuse trees that are wrong in one way each, and accept right ones.

use super::*;
use crate::generate::{sequence, Profile};
use crate::op::{EntryPath, Name, Target};
use crate::runner::Runner;
use crate::subject::ModelSubject;
use yore_fs::{Caller, FileKind, RenameMode, SetAttr};

type Blocks = BTreeMap<u64, Arc<Block>>;

fn name(text: &str) -> Name {
    Name::from(text.as_bytes())
}

fn entry_path(text: &str) -> EntryPath {
    EntryPath { directory: Target::Path(vec![]), name: name(text) }
}

fn path(text: &str) -> Target {
    Target::Path(vec![name(text)])
}

fn create(text: &str) -> Op {
    let caller = Caller::superuser();
    Op::Create { at: entry_path(text), kind: FileKind::Regular, permissions: 0o644, rdev: 0, caller }
}

fn write(text: &str, offset: u64, len: usize, tag: u64) -> Op {
    Op::Write { target: path(text), offset, len, tag, append: false, kill_set_id: false }
}

fn truncate(text: &str, size: u64) -> Op {
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    Op::SetAttr { target: path(text), set, caller: Caller::superuser() }
}

fn fsync(text: &str) -> Op {
    Op::Fsync { target: path(text), data_only: false }
}

fn rename(from: &str, to: &str) -> Op {
    Op::Rename { from: entry_path(from), to: entry_path(to), mode: RenameMode::Replace }
}

/// The model's history of these operations.
fn history(ops: Vec<Op>) -> History {
    let mut runner = Runner::new(ModelSubject::new(), &ModelSubject::root());
    let mut history = History::new(runner.model.clone());
    for op in ops {
        let effects = runner.step(&op).expect("the model agrees with itself");
        history.push(op, effects, runner.model.clone());
    }
    history
}

fn at(judge: &Judge, moment: usize) -> Tree {
    Tree::of(&judge.history.states[moment].without_slots())
}

fn bounds(begun: usize, returned: usize) -> Bounds {
    Bounds::new(begun, returned)
}

fn file_mut<'a>(tree: &'a mut Tree, text: &str) -> &'a mut Node {
    let number = match &tree.nodes[&tree.root].inside {
        Inside::Directory { entries, .. } => entries[&name(text)].0,
        _ => unreachable!("the root is a directory"),
    };
    tree.nodes.get_mut(&number).expect("it has an inode")
}

fn content_mut<'a>(tree: &'a mut Tree, text: &str) -> (&'a mut u64, &'a mut BTreeMap<u64, Arc<Block>>) {
    match &mut file_mut(tree, text).inside {
        Inside::File { size, blocks } => (size, blocks),
        _ => unreachable!("it is a file"),
    }
}

/// The content that a file had at another moment; the rest of the tree is as it is.
fn content_of(judge: &Judge, moment: usize, text: &str) -> (u64, BTreeMap<u64, Arc<Block>>) {
    let mut tree = at(judge, moment);
    let (size, blocks) = content_mut(&mut tree, text);
    (*size, blocks.clone())
}

/// After every crash, every moment that is not older than the last sync is accepted as it is.
#[test]
fn every_true_moment_is_accepted() {
    for seed in 0..15 {
        let judge = Judge::new(history(sequence(seed, 80, Profile::Crash)));
        for begun in 0..=80 {
            let bounds = bounds(begun, begun.saturating_sub(1));
            for moment in judge.lowest(bounds)..=begun {
                let found = judge.judge(&at(&judge, moment), bounds, Unit::Block);
                // An older moment is refused if a file was synced after it; the last one never.
                if moment == begun {
                    found.unwrap_or_else(|e| panic!("seed {seed}, moment {moment} of {begun}: {e}"));
                }
            }
        }
    }
}

/// Any change of a name or an attribute makes a tree wrong.
#[test]
fn any_wrong_name_or_attribute_is_reported() {
    let mut changes = 0;
    for seed in 0..10 {
        let judge = Judge::new(history(sequence(seed, 60, Profile::Crash)));
        let bounds = bounds(60, 60);
        let right = at(&judge, 60);
        judge.judge(&right, bounds, Unit::Block).expect("the right tree is accepted");
        for number in right.nodes.keys() {
            let wrong: [fn(&mut Node); 8] = [
                |node| node.facts.permissions ^= 1,
                |node| node.facts.uid ^= 1,
                |node| node.facts.gid ^= 1,
                |node| node.facts.links += 1,
                |node| node.facts.incarnation += 1,
                |node| node.facts.mtime.nanos += 7,
                |node| node.facts.ctime.nanos += 7,
                |node| {
                    node.xattrs.insert(Name::from(&b"trusted.new"[..]), Arc::from(&b"1"[..]));
                },
            ];
            for change in wrong {
                let mut tree = right.clone();
                change(tree.nodes.get_mut(number).expect("it is there"));
                assert!(judge.judge(&tree, bounds, Unit::Block).is_err(), "seed {seed}, inode {number}");
                changes += 1;
            }
        }
        for (number, node) in &right.nodes {
            let Inside::Directory { entries, .. } = &node.inside else { continue };
            for lost in entries.keys() {
                let mut tree = right.clone();
                if let Some(Inside::Directory { entries, .. }) =
                    tree.nodes.get_mut(number).map(|n| &mut n.inside)
                {
                    entries.remove(lost);
                }
                assert!(judge.judge(&tree, bounds, Unit::Block).is_err(), "seed {seed}: a lost entry");
            }
        }
    }
    assert!(changes > 500);
}

/// After a sync completed, the state before it is too old; while it runs, it is not.
#[test]
fn a_state_older_than_a_sync_is_reported() {
    let judge = Judge::new(history(vec![create("a"), Op::Sync, create("b")]));
    assert_eq!(judge.judge(&at(&judge, 0), bounds(2, 1), Unit::Block), Ok(0));
    assert!(judge.judge(&at(&judge, 0), bounds(2, 2), Unit::Block).is_err());
    assert!(judge.judge(&at(&judge, 3), bounds(2, 2), Unit::Block).is_err(), "b was not begun");
    assert_eq!(judge.judge(&at(&judge, 2), bounds(3, 2), Unit::Block), Ok(2));
}

/// Whatever fsync promised must be there: the name, the size, the content.
#[test]
fn what_fsync_promised_must_be_there() {
    let ops = vec![create("a"), write("a", 0, 9000, 1), fsync("a"), write("a", 0, 4096, 2), create("b")];
    let judge = Judge::new(history(ops));
    assert!(judge.judge(&at(&judge, 0), bounds(3, 3), Unit::Block).is_err(), "the name is lost");
    assert!(judge.judge(&at(&judge, 1), bounds(3, 3), Unit::Block).is_err(), "the content is lost");
    assert!(judge.judge(&at(&judge, 1), bounds(3, 2), Unit::Block).is_ok(), "fsync had not returned");
    let mut tree = at(&judge, 5);
    content_mut(&mut tree, "a").1.remove(&1);
    assert!(judge.judge(&tree, bounds(5, 5), Unit::Block).is_err(), "a hole where data was synced");
    // The overwritten block may be old, whatever else is new.
    let old = content_of(&judge, 3, "a").1[&0].clone();
    let mut tree = at(&judge, 5);
    content_mut(&mut tree, "a").1.insert(0, old.clone());
    assert_eq!(judge.judge(&tree, bounds(5, 5), Unit::Block), Ok(5));
    // Half a block is not a block, unless sectors tear.
    let mut half = old;
    Arc::make_mut(&mut half)[..2048].copy_from_slice(&content_of(&judge, 5, "a").1[&0][..2048]);
    let mut tree = at(&judge, 5);
    content_mut(&mut tree, "a").1.insert(0, half);
    assert!(judge.judge(&tree, bounds(5, 5), Unit::Block).is_err());
    assert_eq!(judge.judge(&tree, bounds(5, 5), Unit::Sector), Ok(5));
}

/// Data that was written but not synced may be missing, but then the size is one that the file had.
#[test]
fn unsynced_data_may_be_missing_but_sizes_are_real() {
    let ops = vec![create("a"), write("a", 0, 5000, 1), write("a", 5000, 5000, 2), create("b")];
    let judge = Judge::new(history(ops));
    for moment in 1..=3 {
        let mut tree = at(&judge, 4);
        let content = content_of(&judge, moment, "a");
        *content_mut(&mut tree, "a").0 = content.0;
        *content_mut(&mut tree, "a").1 = content.1;
        assert_eq!(judge.judge(&tree, bounds(4, 4), Unit::Block), Ok(4), "content of moment {moment}");
    }
    let mut tree = at(&judge, 4);
    *content_mut(&mut tree, "a").0 = 4096;
    assert!(judge.judge(&tree, bounds(4, 4), Unit::Block).is_err(), "it never had 4096 bytes");
    let mut tree = at(&judge, 4);
    let stranger = content_of(&judge, 3, "a").1[&1].clone();
    content_mut(&mut tree, "a").1.insert(0, stranger);
    assert!(judge.judge(&tree, bounds(4, 4), Unit::Block).is_err(), "a block from elsewhere");
}

/// After a file was renamed over another one, its content is not older than the rename; before that, it may
/// be.
#[test]
fn a_renamed_file_is_never_short() {
    let ops = vec![create("old"), create("new"), write("new", 0, 10_000, 1), rename("new", "old")];
    let judge = Judge::new(history(ops));
    assert_eq!(judge.judge(&at(&judge, 4), bounds(4, 4), Unit::Block), Ok(4));
    assert_eq!(judge.judge(&at(&judge, 2), bounds(4, 4), Unit::Block), Ok(3), "nothing of it happened");
    let mut tree = at(&judge, 4);
    *content_mut(&mut tree, "old").0 = 0;
    content_mut(&mut tree, "old").1.clear();
    assert!(judge.judge(&tree, bounds(4, 4), Unit::Block).is_err(), "an empty file replaced the old one");
    let mut tree = at(&judge, 4);
    content_mut(&mut tree, "old").1.remove(&1);
    assert!(judge.judge(&tree, bounds(4, 4), Unit::Block).is_err(), "an empty stretch");
}

/// A file that only grew begins as it should, whatever its size. Neither a hole in it nor older bytes are
/// accepted, although a judgement block by block would accept both.
#[test]
fn a_file_that_only_grew_is_a_prefix() {
    let mut ops =
        vec![create("file"), write("file", 0, 1000, 1), fsync("file"), write("file", 1000, 2000, 2)];
    ops.extend([write("file", 3000, 9000, 3), truncate("file", 20_000)]);
    let judge = Judge::new(history(ops.clone()));
    let found = |judge: &Judge, from: usize, size: u64, change: &dyn Fn(&mut Blocks)| {
        let now = judge.history.states.len() - 1;
        let mut tree = at(judge, now);
        let (_, mut blocks) = content_of(judge, from, "file");
        change(&mut blocks);
        let (its_size, content) = content_mut(&mut tree, "file");
        (*its_size, *content) = (size, blocks);
        judge.judge(&tree, bounds(now, now), Unit::Sector)
    };
    found(&judge, 6, 20_000, &|_| {}).expect("all of it");
    found(&judge, 4, 3000, &|_| {}).expect("a part of it");
    // Each of its blocks is as it was at some moment.
    found(&judge, 2, 3000, &|_| {}).expect_err("zeros behind what was fsynced");
    found(&judge, 6, 12_000, &|blocks| drop(blocks.remove(&1))).expect_err("a hole");
    // Once something is overwritten, the file is judged by blocks.
    ops.push(write("file", 10, 10, 4));
    let judge = Judge::new(history(ops));
    found(&judge, 7, 12_000, &|blocks| drop(blocks.remove(&1))).expect("old and new by block");
}

/// What a truncation removed does not come back when the file grows again.
#[test]
fn truncated_content_does_not_come_back() {
    let ops = vec![
        create("a"),
        write("a", 0, 8192, 1),
        Op::Sync,
        truncate("a", 0),
        create("b"),
        write("a", 4096, 4096, 2),
    ];
    let judge = Judge::new(history(ops));
    let mut tree = at(&judge, 6);
    let old = content_of(&judge, 3, "a").1[&0].clone();
    content_mut(&mut tree, "a").1.insert(0, old);
    assert!(judge.judge(&tree, bounds(6, 6), Unit::Block).is_err());
    let mut tree = at(&judge, 5);
    *content_mut(&mut tree, "a").0 = 8192;
    assert!(judge.judge(&tree, bounds(5, 5), Unit::Block).is_err(), "the truncation belongs to the moment");
}

/// Data that was not synced may be missing, and a truncation then meets the older block: the block is as it
/// was at the sync, without the truncated part, which does not come back.
#[test]
fn a_truncation_meets_old_content() {
    let ops = vec![
        create("f"),
        write("f", 0, 9000, 1),
        fsync("f"),
        write("f", 100, 4000, 2),
        truncate("f", 4000),
        write("f", 4050, 5000, 3),
    ];
    let judge = Judge::new(history(ops));
    let (_, synced) = content_of(&judge, 3, "f");
    for (kept, is_right) in [(4000, true), (4020, false), (3900, false)] {
        let mut tree = at(&judge, 6);
        let mut block = synced[&0].clone();
        Arc::make_mut(&mut block)[kept..].fill(0);
        content_mut(&mut tree, "f").1.insert(0, block);
        let judged = judge.judge(&tree, bounds(6, 6), Unit::Block);
        assert_eq!(judged.is_ok(), is_right, "{kept} bytes are left: {judged:?}");
    }
}

/// Takes a name of the root directory away, with what is below it.
fn lose(tree: &mut Tree, text: &str) {
    let root = tree.root;
    let lost = match tree.nodes.get_mut(&root).map(|node| &mut node.inside) {
        Some(Inside::Directory { entries, .. }) => entries.remove(&name(text)),
        _ => None,
    };
    let (number, _) = lost.expect("it was there");
    if let Some(Inside::Directory { entries, .. }) = tree.nodes.remove(&number).map(|node| node.inside) {
        entries.values().for_each(|(child, _)| drop(tree.nodes.remove(child)));
    }
}

/// Under an engine that orders changes an fsync holds its file, the names of it and the directories above it.
/// Nothing else need be there.
#[test]
fn an_ordered_fsync_holds_its_file_alone() {
    use crate::op::brief;
    let ops = vec![
        create("x"),
        Op::Sync,
        brief::mkdir("d"),
        brief::create("d/f"),
        create("g"),
        brief::write("d/f", 0, 5000, 1),
        Op::Fsync { target: brief::path("d/f"), data_only: false },
    ];
    let judge = Judge::new(history(ops));
    let judged = |tree: &Tree, returned: usize| judge.judge_ordered(tree, bounds(7, returned), 0);
    let all = at(&judge, 7);
    judged(&all, 7).expect("all of it");
    let without = |text: &str| {
        let mut tree = all.clone();
        lose(&mut tree, text);
        tree
    };
    judged(&without("g"), 7).expect("nobody has fsynced it");
    judged(&without("x"), 7).expect_err("it was synced");
    judged(&without("d"), 7).expect_err("it leads to the file");
    judged(&without("d"), 6).expect("the fsync has not returned");
    let mut tree = all.clone();
    for node in tree.nodes.values_mut() {
        if let Inside::File { size, blocks } = &mut node.inside {
            *size = 0;
            blocks.clear();
        }
    }
    judged(&tree, 7).expect_err("its content was fsynced");
    judged(&tree, 6).expect("the fsync has not returned");
    assert_eq!(judge.lowest_ordered(bounds(7, 7)), 2);
    assert_eq!(judge.lowest(bounds(7, 7)), 7);
}

/// The names of a file that was fsynced are exactly those it had; a directory above it may have its old name.
#[test]
fn an_ordered_fsync_holds_names() {
    use crate::op::brief;
    let judge = Judge::new(history(vec![create("a"), Op::Sync, rename("a", "b"), fsync("b")]));
    judge.judge_ordered(&at(&judge, 4), bounds(4, 4), 0).expect("all of it");
    judge.judge_ordered(&at(&judge, 1), bounds(4, 3), 0).expect("the fsync has not returned");
    judge.judge_ordered(&at(&judge, 1), bounds(4, 4), 0).expect_err("the new name is lost");
    let both = |judge: &Judge| {
        let mut tree = at(judge, 4);
        let root = tree.root;
        let old = at(judge, 1);
        let entry = old.entries(root).expect("the root")[&name("a")];
        if let Some(Inside::Directory { entries, .. }) = tree.nodes.get_mut(&root).map(|n| &mut n.inside) {
            entries.insert(name("a"), entry);
        }
        file_mut(&mut tree, "b").facts.links = 2;
        tree
    };
    judge.judge_ordered(&both(&judge), bounds(4, 3), 0).expect("the fsync has not returned");
    judge.judge_ordered(&both(&judge), bounds(4, 4), 0).expect_err("the old name is there");

    let file = Op::Fsync { target: brief::path("e/f"), data_only: false };
    let ops = vec![brief::mkdir("d"), Op::Sync, brief::create("d/f"), rename("d", "e"), file];
    let judge = Judge::new(history(ops));
    judge.judge_ordered(&at(&judge, 5), bounds(5, 5), 0).expect("all of it");
    judge.judge_ordered(&at(&judge, 3), bounds(5, 5), 0).expect("the directory has its old name");
    judge.judge_ordered(&at(&judge, 2), bounds(5, 5), 0).expect_err("the file is lost");
}

/// An event comes before what was changed behind it, so an fsync of that shows the event to be durable.
#[test]
fn an_ordered_fsync_holds_events_before_it() {
    let chmod = |text: &str| {
        let set = SetAttr { permissions: Some(0o600), ..SetAttr::default() };
        Op::SetAttr { target: path(text), set, caller: Caller::superuser() }
    };
    let ops = vec![create("a"), create("b"), Op::Sync, snapshot(false), chmod("a"), fsync("b"), fsync("a")];
    let judge = Judge::new(history(ops));
    assert_eq!(judge.lowest_ordered(bounds(7, 6)), 3, "the other file has not changed since");
    assert_eq!(judge.lowest_ordered(bounds(7, 7)), 4);
}

fn snapshot(wait: bool) -> Op {
    Op::Snapshot { name: name(""), wait }
}

/// The snapshot that the operation before a moment took.
fn taken(judge: &Judge, moment: usize) -> Taken {
    Taken::new(yore_fs::EventNo(1), moment, &name(""), &judge.history.states[moment])
}

/// A snapshot shows what a crash at its moment could have left of a file: old or new, but nothing later. Data
/// that was synced afterwards, or waited for, appears as it was.
#[test]
fn a_snapshot_shows_nothing_of_later_and_nothing_that_a_sync_has_made_old() {
    let ops = |wait, last| {
        let write = |tag| write("a", 0, 8192, tag);
        history(vec![create("a"), write(1), Op::Sync, write(2), snapshot(wait), write(3), last])
    };
    let judge_content = |judge: &Judge, of: usize, bounds: Bounds| {
        let taken = taken(judge, 5);
        let mut tree = taken.tree.clone();
        let (size, blocks) = content_mut(&mut tree, "a");
        (*size, *blocks) = content_of(judge, of, "a");
        judge.judge_past(&tree, &taken, bounds, Unit::Block)
    };
    let plain = Judge::new(ops(false, create("b")));
    assert!(judge_content(&plain, 1, bounds(7, 7)).is_err(), "older than the sync before");
    judge_content(&plain, 2, bounds(7, 7)).expect("what was synced last");
    judge_content(&plain, 5, bounds(7, 7)).expect("what it was");
    assert!(judge_content(&plain, 6, bounds(7, 7)).is_err(), "what was written after the snapshot");
    let waited = Judge::new(ops(true, create("b")));
    judge_content(&waited, 2, bounds(5, 4)).expect("it has not returned");
    assert!(judge_content(&waited, 2, bounds(5, 5)).is_err(), "it was waited for");
    judge_content(&waited, 5, bounds(7, 7)).expect("what it was");
    for sync in [fsync("a"), Op::Sync] {
        let synced = Judge::new(ops(false, sync));
        judge_content(&synced, 2, bounds(7, 6)).expect("the sync has not returned");
        assert!(judge_content(&synced, 2, bounds(7, 7)).is_err(), "it was synced since");
        judge_content(&synced, 5, bounds(7, 7)).expect("what it was");
    }
}

/// Names and attributes of a snapshot are those of its moment, neither older nor newer.
#[test]
fn a_snapshot_shows_the_names_of_its_moment() {
    let judge = Judge::new(history(vec![create("a"), snapshot(false), rename("a", "b"), snapshot(false)]));
    let (first, second) = (taken(&judge, 2), taken(&judge, 4));
    let bounds = bounds(4, 4);
    judge.judge_past(&first.tree, &first, bounds, Unit::Block).expect("its own");
    judge.judge_past(&second.tree, &second, bounds, Unit::Block).expect("its own");
    assert!(judge.judge_past(&second.tree, &first, bounds, Unit::Block).is_err(), "newer");
    assert!(judge.judge_past(&first.tree, &second, bounds, Unit::Block).is_err(), "older");
}
