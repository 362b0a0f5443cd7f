//! Volumes on which hardly any room is left: a file that takes all but a few blocks, before the first
//! operation. Names and attributes find room in the zones of metadata that are there; what needs blocks of
//! data, or another zone, may find none. An operation that finds none must have changed nothing, and one that
//! needs none must never fail for want of it ([`crate::runner`]).

use crate::op::{EntryPath, Name, Op, Target};
use yore_fs::{Caller, FallocateMode, FileKind, View};

/// The file; no sequence has its name.
const NAME: &[u8] = b"takes all the room";
/// Blocks that are left: from fewer than one operation needs, to enough for some of them.
const LEFT: [u64; 6] = [0, 3, 12, 30, 80, 200];

/// Whether an operation that finds no room has changed nothing. A copy may have copied a part, as the call
/// says; and the set-id bits that a write takes are gone before it changes content.
pub(crate) fn is_all_or_nothing(op: &Op) -> bool {
    !matches!(op, Op::Copy { .. } | Op::Write { kill_set_id: true, .. })
}

/// The operations that leave little of what is free on a volume now.
pub(crate) fn leave_little(view: &View, seed: u64) -> Vec<Op> {
    let left = LEFT[(seed % LEFT.len() as u64) as usize];
    let room = view.statfs();
    let len = room.blocks_available.saturating_sub(left) * u64::from(room.block_size);
    let root = Target::Path(Vec::new());
    let at = EntryPath { directory: root, name: Name::from(NAME) };
    let target = Target::Path(vec![at.name.clone()]);
    let (kind, caller) = (FileKind::Regular, Caller::superuser());
    vec![
        Op::Create { at, kind, permissions: 0o600, rdev: 0, caller },
        Op::Fallocate { target, offset: 0, len, mode: FallocateMode::Allocate { keep_size: true } },
        Op::Sync,
    ]
}
