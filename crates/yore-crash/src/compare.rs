//! Comparison without crashes: sequences on a volume and on the model, with unmounts in between.
//!
//! On a volume that is too small the model does not know when space runs out. But a call that fails for want
//! of space changes nothing, calls that free space never fail for want of it, and an emptied volume is as
//! good as new (unless snapshots hold what it had).

use crate::case::Case;
use crate::generate::Profile;
use crate::model::ROOT;
use crate::op::{EntryPath, Op, Target};
use crate::past::{compare_all, Sequence};
use crate::runner::Runner;
use crate::subject::ViewSubject;
use crate::volume::{make_with, must_be_clean, open, Wrong};
use std::sync::Arc;
use yore_device::{Device, MemoryDevice};
use yore_fs::{FileKind, Policy};

/// Bytes of the volume: room for everything that a sequence can make.
const SIZE: u64 = 128 << 20;
/// Bytes of a volume that is too small.
const SIZE_FULL: u64 = 24 << 20;
/// Operations between two comparisons of the whole tree.
const COMPARE_EVERY: usize = 25;

/// Runs a sequence on a volume and on the model. Every result must be the same. The whole tree is compared
/// from time to time, after an unmount in the middle, and at the end; after each unmount the check must find
/// nothing. Together with the tree, each snapshot is compared with the tree of its moment.
///
/// # Errors
/// The first difference.
pub fn compare(case: &Case) -> Result<(), Wrong> {
    let full = case.profile == Profile::Full;
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(if full { SIZE_FULL } else { SIZE }));
    make_with(&device, (case.engine, case.checksums), case.seed, None, Policy::default())?;
    let view = open(device.clone()).map_err(|error| Wrong::new("open", error))?;
    let root = view.getattr(view.root()).map_err(|error| Wrong::new("open", error))?;
    let mut runner = Runner::new(ViewSubject::new(view), &root);
    let at_first = runner.subject.view().statfs().blocks_free;
    let mut sequence = Sequence::default();
    let ops = case.operations();
    for (number, op) in ops.iter().enumerate() {
        let result = |error| Wrong::new("result", format!("operation {number}: {error}"));
        let failed = runner.full;
        runner.step(op).map_err(result)?;
        if runner.full == failed || matches!(op, Op::Forget { .. }) {
            let own = runner.subject.snapshots();
            let event = || *own.taken().last().expect("it was just taken");
            let gone = || own.expunged().last().expect("they were just given up").clone();
            sequence.note(op, number + 1, &runner.model, event, gone);
        }
        if runner.full > 0 && !full {
            return Err(result(format!("{op}: the volume is full though little is stored")));
        }
        if number % COMPARE_EVERY == COMPARE_EVERY - 1 {
            tree(&runner, &sequence, &format!("after operation {number}"))?;
        }
        if number == ops.len() / 2 {
            runner = remount(runner, &device, &sequence, "in the middle")?;
        }
    }
    tree(&runner, &sequence, "after the last operation")?;
    let mut runner = remount(runner, &device, &sequence, "at the end")?;
    if full && sequence.is_empty() {
        empty(&mut runner)?;
        tree(&runner, &sequence, "after everything was removed")?;
        runner = remount(runner, &device, &sequence, "of the empty volume")?;
        let at_last = runner.subject.view().statfs().blocks_free;
        // Zones may stay, but not their content.
        if at_last < at_first - at_first / 8 {
            let message =
                format!("{at_last} blocks are free on the emptied volume, {at_first} were on the new one");
            return Err(Wrong::new("space", message));
        }
    }
    runner.subject.view().close().map_err(|error| Wrong::new("close", error))
}

/// Removes everything; that must be possible on a full volume, too.
fn empty(runner: &mut Runner<ViewSubject>) -> Result<(), Wrong> {
    loop {
        let state = &runner.model;
        let mut path = Vec::new();
        let mut at = ROOT;
        // Down to a file or directory that has nothing below it.
        while let Some((name, child)) =
            state.get(at).and_then(|inode| inode.entries()).and_then(|entries| entries.first_key_value())
        {
            path.push(name.clone());
            at = *child;
        }
        let is_directory = state.get(at).is_some_and(|inode| inode.kind == FileKind::Directory);
        let Some(name) = path.pop() else { return Ok(()) };
        let entry = EntryPath { directory: Target::Path(path), name };
        let op = if is_directory { Op::Rmdir { at: entry } } else { Op::Unlink { at: entry } };
        runner.step(&op).map_err(|error| Wrong::new("space", format!("emptying a full volume: {error}")))?;
    }
}

/// Compares the present, and everything that snapshots show.
fn tree(runner: &Runner<ViewSubject>, sequence: &Sequence, when: &str) -> Result<(), Wrong> {
    runner.compare().map_err(|error| Wrong::new("tree", format!("{when}: {error}")))?;
    compare_all(runner.subject.view(), sequence)
        .map_err(|error| Wrong::new("past", format!("{when}: {error}")))
}

/// Unmounts, checks, mounts again, compares.
fn remount(
    runner: Runner<ViewSubject>,
    device: &Arc<dyn Device>,
    sequence: &Sequence,
    when: &str,
) -> Result<Runner<ViewSubject>, Wrong> {
    let Runner { model, mut subject, full } = runner;
    subject.drop_references();
    let snapshots = subject.snapshots().clone();
    subject.view().close().map_err(|error| Wrong::new("close", format!("{when}: {error}")))?;
    drop(subject);
    must_be_clean(&**device, &format!("after the unmount {when}"))?;
    let view = open(device.clone()).map_err(|error| Wrong::new("mount", format!("{when}: {error}")))?;
    let subject = ViewSubject::new(view).with_snapshots(snapshots);
    let runner = Runner { model: model.without_slots(), subject, full };
    tree(&runner, sequence, &format!("after the unmount {when}"))?;
    Ok(runner)
}
