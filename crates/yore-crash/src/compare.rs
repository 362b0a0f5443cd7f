//! Comparison without crashes: sequences on a volume and on the model, with unmounts in between.

use crate::case::Case;
use crate::runner::Runner;
use crate::subject::ViewSubject;
use crate::volume::{make, must_be_clean, open, Wrong};
use std::sync::Arc;
use yore_device::{Device, MemoryDevice};

/// Bytes of the volume: room for everything that a sequence can make.
const SIZE: u64 = 128 << 20;
/// Operations between two comparisons of the whole tree.
const COMPARE_EVERY: usize = 25;

/// Carries a sequence out on a volume and on the model: every result must be the same, the whole tree from time to
/// time, and again after an unmount in the middle and at the end, after each of which the check must find nothing.
///
/// # Errors
/// The first difference.
pub fn compare(case: &Case) -> Result<(), Wrong> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(SIZE));
    make(&device, case.engine, case.seed)?;
    let view = open(device.clone()).map_err(|error| Wrong::new("open", error))?;
    let root = view.getattr(view.root()).map_err(|error| Wrong::new("open", error))?;
    let mut runner = Runner::new(ViewSubject::new(view), &root);
    let ops = case.operations();
    for (number, op) in ops.iter().enumerate() {
        let result = |error| Wrong::new("result", format!("operation {number}: {error}"));
        runner.step(op).map_err(result)?;
        if runner.full > 0 {
            return Err(result(format!("{op}: the volume is full though little is stored")));
        }
        if number % COMPARE_EVERY == COMPARE_EVERY - 1 {
            tree(&runner, &format!("after operation {number}"))?;
        }
        if number == ops.len() / 2 {
            runner = remount(runner, &device, "in the middle")?;
        }
    }
    tree(&runner, "after the last operation")?;
    let runner = remount(runner, &device, "at the end")?;
    runner.subject.view().close().map_err(|error| Wrong::new("close", error))
}

fn tree(runner: &Runner<ViewSubject>, when: &str) -> Result<(), Wrong> {
    runner.compare().map_err(|error| Wrong::new("tree", format!("{when}: {error}")))
}

/// Unmounts, checks, mounts again, compares.
fn remount(
    runner: Runner<ViewSubject>,
    device: &Arc<dyn Device>,
    when: &str,
) -> Result<Runner<ViewSubject>, Wrong> {
    let Runner { model, mut subject, full } = runner;
    subject.drop_held();
    subject.view().close().map_err(|error| Wrong::new("close", format!("{when}: {error}")))?;
    drop(subject);
    must_be_clean(&**device, &format!("after the unmount {when}"))?;
    let view = open(device.clone()).map_err(|error| Wrong::new("mount", format!("{when}: {error}")))?;
    let runner = Runner { model: model.without_slots(), subject: ViewSubject::new(view), full };
    tree(&runner, &format!("after the unmount {when}"))?;
    Ok(runner)
}
