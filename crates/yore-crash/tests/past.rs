//! Crashes of volumes with a larger past than random sequences make: files of many extents, which are
//! truncated in many steps, and directories and a history of many blocks. The rules of judgement are in
//! `yore_crash::past`.

use std::sync::Arc;
use yore_crash::op::brief::{create, entry_path, mkdir, path as target, write};
use yore_crash::op::{Op, Target};
use yore_crash::record::record_operations;
use yore_fs::{Caller, RenameMode, SetAttr};

const BLOCK: u64 = 4096;

fn set(path: &str, set: SetAttr) -> Op {
    Op::SetAttr { target: target(path), set, caller: Caller::superuser() }
}

fn truncate(path: &str, size: u64) -> Op {
    set(path, SetAttr { size: Some(size), ..SetAttr::default() })
}

fn chmod(path: &str, permissions: u32) -> Op {
    set(path, SetAttr { permissions: Some(permissions), ..SetAttr::default() })
}

fn fsync(path: &str) -> Op {
    Op::Fsync { target: target(path), data_only: false }
}

fn snapshot(wait: bool) -> Op {
    Op::Snapshot { name: Arc::from(&b""[..]), wait }
}

/// Crashes the second sequence in this many states.
fn crash(preparation: Vec<Op>, ops: Vec<Op>, states: usize) {
    let recorded = match record_operations(preparation, ops) {
        Ok(recorded) => recorded,
        Err(wrong) => panic!("[{}] {}", wrong.class, wrong.message),
    };
    let mut last = None;
    let mut each = |state, trial| {
        last = Some((state, trial));
        true
    };
    if let Err(wrong) = recorded.try_samples(states, 1, &mut each) {
        panic!("{last:?}: [{}] {}", wrong.class, wrong.message);
    }
}

/// A file of 400 extents that a snapshot has seen is truncated in many steps, overwritten here and there, and
/// removed, with further snapshots in between. None of its blocks and nodes is lost or changed.
#[test]
fn a_file_of_many_extents_is_truncated_and_overwritten() {
    let mut preparation = vec![create("a"), create("b")];
    preparation.extend((0..400).map(|n| write("a", 2 * n * BLOCK, BLOCK as usize, n)));
    preparation.push(Op::Sync);
    let mut ops = vec![snapshot(false), write("a", 250 * BLOCK, 100, 1000), fsync("a")];
    ops.extend((0..20).map(|n| write("a", n * 37 * BLOCK + 1000, 5000, 2000 + n)));
    ops.extend([snapshot(false), truncate("a", 300 * BLOCK + 5), write("b", 0, 9000, 3000), fsync("b")]);
    ops.extend([snapshot(true), truncate("a", 500 * BLOCK), snapshot(false), truncate("a", 0)]);
    ops.extend([write("a", 0, 20_000, 4000), Op::Sync, snapshot(false), Op::Unlink { at: entry_path("a") }]);
    ops.extend([create("a"), write("a", 0, 20_000, 5000), fsync("b"), snapshot(false), fsync("a")]);
    crash(preparation, ops, 300);
}

/// A file with 400 extents that a snapshot has seen, and some that none has seen, is removed while it is in
/// use.
#[test]
fn a_file_of_many_extents_goes_while_it_is_in_use() {
    let mut preparation = vec![create("a"), create("b")];
    preparation.extend((0..400).map(|n| write("a", 2 * n * BLOCK, BLOCK as usize, n)));
    preparation.push(Op::Sync);
    let mut ops = vec![snapshot(false), Op::Hold { target: target("a"), slot: 0 }];
    ops.extend([write("a", 100 * BLOCK, 9000, 1000), Op::Unlink { at: entry_path("a") }, snapshot(false)]);
    let held = |offset, tag| Op::Write {
        target: Target::Slot(0),
        offset,
        len: 9000,
        tag,
        append: false,
        kill_set_id: false,
    };
    ops.extend([held(0, 2000), held(700 * BLOCK, 3000), fsync("b"), Op::Drop { slot: 0 }, fsync("b")]);
    ops.extend([create("a"), write("a", 0, 200_000, 4000), snapshot(false), Op::Sync, truncate("a", 5000)]);
    crash(preparation, ops, 300);
}

/// A directory of many blocks is emptied, filled again and moved between snapshots.
#[test]
fn a_large_directory_changes_between_snapshots() {
    let file = |n: u64| format!("d/a name long enough to fill blocks with {n}");
    let mut preparation = vec![mkdir("d"), mkdir("e")];
    preparation.extend((0..250).map(|n| create(&file(n))));
    preparation.push(Op::Sync);
    let mut ops = vec![snapshot(false)];
    ops.extend((0..250).filter(|n| n % 3 == 0).map(|n| Op::Unlink { at: entry_path(&file(n)) }));
    ops.extend([snapshot(false), fsync("d")]);
    ops.extend((0..250).filter(|n| n % 6 == 0).map(|n| create(&file(n))));
    ops.push(snapshot(false));
    let rename = |from: &str, to: &str| Op::Rename {
        from: entry_path(from),
        to: entry_path(to),
        mode: RenameMode::Replace,
    };
    ops.extend((0..250).filter(|n| n % 6 == 0).map(|n| rename(&file(n), &file(n + 1))));
    ops.extend([
        snapshot(true),
        rename("d", "e/d"),
        Op::Unlink { at: entry_path(&format!("e/{}", file(1))) },
    ]);
    ops.extend([fsync("e"), snapshot(false), rename("e/d", "d")]);
    crash(preparation, ops, 150);
}

/// Many inodes have many versions: the trees of the history split while the power may fail.
#[test]
fn a_history_of_many_versions() {
    let file = |n: u64| format!("f{n}");
    let mut preparation: Vec<Op> = (0..80).map(|n| create(&file(n))).collect();
    preparation.push(Op::Sync);
    let mut ops = Vec::new();
    for round in 0..5 {
        ops.push(snapshot(round == 3));
        ops.extend((0..80).map(|n| match n % 3 {
            0 => write(&file(n), 0, 60, round),
            _ => chmod(&file(n), 0o600 + round as u32),
        }));
        ops.extend((round % 2 == 0).then(|| fsync(&file(round))));
    }
    crash(preparation, ops, 200);
}
