//! Every short sequence, by number.
//!
//! A case is a few operations of a fixed vocabulary on a small prepared tree. Each is followed by nothing, by
//! an fsync or fdatasync of its file, by an fsync of the directory, or by a sync. All sequences of one and of
//! two operations are cases, and those of three over the operations that programs use to save files (write,
//! rename, link, unlink). Numbers are fixed as long as the vocabulary is; [`spread`] puts them in an order of
//! which each part is a fair sample of all.

use crate::op::brief::{create, entry_path, mkdir, path, write};
use crate::op::{Name, Op};
use std::sync::Arc;
use yore_fs::{Caller, FallocateMode, RenameMode, SetAttr, SetXattrMode};

/// Operations that make the tree with which a case begins. The last of them is a sync, and no crash meets
/// them. For even cases they leave a log that has begun its session: a flush precedes the first record of a
/// session, and would hide that another flush is missing.
pub fn preparation(number: u64) -> Vec<Op> {
    let mut ops = vec![
        mkdir("d"),
        mkdir("e"),
        create("a"),
        write("a", 0, 5000, 1),
        create("b"),
        write("b", 0, 60, 2),
        create("d/a"),
        write("d/a", 0, 9000, 3),
    ];
    if number.is_multiple_of(2) {
        ops.push(Op::Fsync { target: path("d/a"), data_only: false });
    }
    ops.push(Op::Sync);
    ops
}

/// An operation, and the file and directory that are synced after it.
struct Word {
    op: Op,
    file: &'static str,
    directory: &'static str,
}

/// The number of ways to sync after an operation.
const SYNCS: u64 = 5;
/// The operations of the vocabulary that make up sequences of three.
const CHOSEN: [usize; 12] = [0, 7, 9, 12, 18, 23, 25, 27, 38, 39, 40, 41];

/// The operations that cases are made of; the tag tells the data of writes apart.
fn vocabulary(tag: u64) -> Vec<Word> {
    let word = |op, file, directory| Word { op, file, directory };
    let (root, d) = ("", "d");
    vec![
        word(create("c"), "c", root),
        word(create("d/b"), "d/b", d),
        word(mkdir("c"), "a", root),
        word(mkdir("d/b"), "a", d),
        word(symlink("c", 12), "a", root),
        word(symlink("d/b", 200), "a", d),
        word(write("b", 0, 50, tag), "b", root),
        word(append("a", 3000, tag), "a", root),
        word(write("a", 1000, 3000, tag), "a", root),
        word(write("d/a", 0, 8192, tag), "d/a", d),
        word(write("b", 0, 20_000, tag), "b", root),
        word(write("a", 40_000, 100, tag), "a", root),
        word(truncate("a", 1000), "a", root),
        word(truncate("a", 30_000), "a", root),
        word(truncate("d/a", 0), "d/a", d),
        word(truncate("b", 5000), "b", root),
        word(rename("a", "c", RenameMode::Replace), "c", root),
        word(rename("a", "d/b", RenameMode::NoReplace), "d/b", d),
        word(rename("a", "b", RenameMode::Replace), "b", root),
        word(rename("d/a", "a", RenameMode::Replace), "a", root),
        word(rename("e", "c", RenameMode::Replace), "a", root),
        word(rename("d", "e", RenameMode::Replace), "a", root),
        word(rename("a", "b", RenameMode::Exchange), "a", root),
        word(rename("a", "d/a", RenameMode::Exchange), "d/a", d),
        word(rename("b", "d", RenameMode::Exchange), "a", root),
        word(link("a", "c"), "c", root),
        word(link("d/a", "c"), "d/a", root),
        word(unlink("a"), "d/a", root),
        word(unlink("b"), "a", root),
        word(unlink("d/a"), "a", d),
        word(Op::Rmdir { at: entry_path("e") }, "a", root),
        word(set("a", SetAttr { permissions: Some(0o600), ..SetAttr::default() }), "a", root),
        word(set("d", SetAttr { uid: Some(1000), gid: Some(50), ..SetAttr::default() }), "a", d),
        word(xattr("a", 20, tag), "a", root),
        word(xattr("b", 5000, tag), "b", root),
        word(fallocate("a", 8192, 50_000, FallocateMode::Allocate { keep_size: true }), "a", root),
        word(fallocate("a", 0, 4096, FallocateMode::PunchHole), "a", root),
        word(fallocate("d/a", 3000, 20_000, FallocateMode::ZeroRange { keep_size: false }), "d/a", d),
        word(write("c", 0, 6000, tag), "c", root),
        word(rename("c", "a", RenameMode::Replace), "a", root),
        word(unlink("c"), "a", root),
        word(write("c", 0, 30, tag), "c", root),
        word(rename("e", "d/b", RenameMode::Replace), "a", d),
    ]
}

/// How many cases there are with one, two and three operations.
pub fn counts() -> [u64; 3] {
    let (all, chosen) = (vocabulary(0).len() as u64, CHOSEN.len() as u64);
    [all * SYNCS, (all * SYNCS).pow(2), (chosen * SYNCS).pow(3)]
}

/// How many cases there are.
pub fn count() -> u64 {
    counts().iter().sum()
}

/// The n-th number of an order in which each part of the cases is a fair sample of all of them; goes round.
pub fn spread(n: u64) -> u64 {
    // Coprime to the count, which `every_number_is_drawn_once` tests.
    const STRIDE: u128 = 104_729;
    (u128::from(n) * STRIDE % u128::from(count())) as u64
}

/// The operations of a case, after the [`preparation`]; numbers go round at the [`count`].
pub fn case(number: u64) -> Vec<Op> {
    let [ones, twos, _] = counts();
    let number = number % count();
    let (mut rest, length) = match number {
        n if n < ones => (n, 1),
        n if n < ones + twos => (n - ones, 2),
        n => (n - ones - twos, 3),
    };
    let mut ops = Vec::new();
    for position in 0..length {
        let words = vocabulary(10 + position);
        let choices = if length == 3 { CHOSEN.len() } else { words.len() } as u64;
        let (choice, sync) = ((rest / SYNCS % choices) as usize, rest % SYNCS);
        rest /= SYNCS * choices;
        let word = &words[if length == 3 { CHOSEN[choice] } else { choice }];
        ops.push(word.op.clone());
        ops.extend(match sync {
            0 => None,
            1 => Some(Op::Fsync { target: path(word.file), data_only: false }),
            2 => Some(Op::Fsync { target: path(word.file), data_only: true }),
            3 => Some(Op::Fsync { target: path(word.directory), data_only: false }),
            _ => Some(Op::Sync),
        });
    }
    ops
}

/// How many cases [`across`] has.
pub fn across_count() -> u64 {
    let words = vocabulary(0).len() as u64;
    words.pow(2) * LASTS + words * LASTS
}

/// The number of ways in which a case of [`across`] ends.
const LASTS: u64 = 2;

/// The operations of a case of another kind, after the [`preparation`]: an operation, something behind which
/// what comes next may be done to the same blocks, a second operation, and at last one that writes the data
/// home, or an fsync.
///
/// In most cases a sync is between the two. If syncs stall, the later operations meet a generation being
/// written that has the earlier one. In the last cases a snapshot is taken and forgotten, and the second
/// operation meets what that alone would have kept.
pub fn across(number: u64) -> Vec<Op> {
    let (before, after) = (vocabulary(10), vocabulary(11));
    let words = before.len() as u64;
    let number = number % across_count();
    let (mut ops, number, second) = match number.checked_sub(words.pow(2) * LASTS) {
        None => {
            let first = before[(number % words) as usize].op.clone();
            (vec![first, Op::Sync], number / words.pow(2), number / words % words)
        }
        Some(rest) => {
            let snapshot = Op::Snapshot { name: Arc::from(&b""[..]), wait: true };
            (vec![snapshot, Op::Forget { which: 0, left: false }], rest / words, rest % words)
        }
    };
    let file = after[second as usize].file;
    ops.push(after[second as usize].op.clone());
    ops.push(match number {
        // This writes what is dirty, and waits for nothing.
        0 => fallocate(file, 0, 1, FallocateMode::Allocate { keep_size: true }),
        _ => Op::Fsync { target: path(file), data_only: false },
    });
    ops
}

/// As [`spread`], for the cases of [`across`].
pub fn spread_across(n: u64) -> u64 {
    // A prime that does not divide the count.
    (u128::from(n) * 104_729 % u128::from(across_count())) as u64
}

fn symlink(at: &str, len: usize) -> Op {
    Op::Symlink { at: entry_path(at), to: Arc::from(vec![b's'; len]), caller: Caller::superuser() }
}

fn append(target: &str, len: usize, tag: u64) -> Op {
    Op::Write { target: path(target), offset: 0, len, tag, append: true, kill_set_id: false }
}

fn set(target: &str, set: SetAttr) -> Op {
    Op::SetAttr { target: path(target), set, caller: Caller::superuser() }
}

fn truncate(target: &str, size: u64) -> Op {
    set(target, SetAttr { size: Some(size), ..SetAttr::default() })
}

fn rename(from: &str, to: &str, mode: RenameMode) -> Op {
    Op::Rename { from: entry_path(from), to: entry_path(to), mode }
}

fn link(target: &str, at: &str) -> Op {
    Op::Link { target: path(target), at: entry_path(at) }
}

fn unlink(at: &str) -> Op {
    Op::Unlink { at: entry_path(at) }
}

fn xattr(target: &str, len: usize, tag: u64) -> Op {
    let name: Name = Arc::from(&b"user.x"[..]);
    Op::SetXattr { target: path(target), name, len, tag, mode: SetXattrMode::Any }
}

fn fallocate(target: &str, offset: u64, len: u64, mode: FallocateMode) -> Op {
    Op::Fallocate { target: path(target), offset, len, mode }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order goes through all cases. No case of one or two operations repeats another (the test compares
    /// each fifth of them).
    #[test]
    fn every_number_is_drawn_once() {
        let count = count();
        let mut drawn = vec![false; count as usize];
        for n in 0..count {
            assert!(!std::mem::replace(&mut drawn[spread(n) as usize], true), "{n}");
        }
        let [ones, twos, _] = counts();
        let mut seen = std::collections::HashSet::new();
        for number in (0..ones + twos).step_by(5) {
            let ops: Vec<String> = case(number).iter().map(|op| op.to_string()).collect();
            assert!(seen.insert(ops), "{number}");
        }
    }

    /// Most operations of the vocabulary succeed on the prepared tree; those on `/c` need another before
    /// them.
    #[test]
    fn operations_are_possible() {
        use crate::model::expect::Expect;
        let mut state = crate::model::State::new(&crate::subject::ModelSubject::root());
        for op in preparation(0) {
            assert!(!matches!(state.apply(&op).0, Expect::Fails(_) | Expect::Skip), "{op}");
        }
        let fails = |word: &Word| matches!(state.clone().apply(&word.op).0, Expect::Fails(_) | Expect::Skip);
        let failing: Vec<String> =
            vocabulary(10).iter().filter(|word| fails(word)).map(|word| word.op.to_string()).collect();
        assert!(failing.len() <= 4, "{failing:?}");
    }
}
