//! Several threads on one volume.
//!
//! In directories of their own, threads must not notice each other: each has a model of its directory, and
//! every result must be the model's. In shared directories any order of the operations is right, so only what
//! must hold after every order is judged: no call reports damage, link counts are those of the names found,
//! the check finds nothing, and the tree is the same after an unmount.

use crate::generate::{sequence, Profile};
use crate::op::Op;
use crate::outcome::{Kind, Outcome};
use crate::runner::Runner;
use crate::subject::{observe, Subject, ViewSubject};
use crate::tree::{list, Tree};
use crate::volume::{make, must_be_clean, open, Wrong};
use std::sync::{Arc, Barrier};
use yore_device::{Device, MemoryDevice};
use yore_fs::{Caller, Engine, InodeNo, View};

/// Bytes of the volume: room for what all threads make.
const SIZE: u64 = 256 << 20;

fn volume(engine: Engine, seed: u64) -> Result<(Arc<dyn Device>, View), Wrong> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(SIZE));
    make(&device, engine, seed)?;
    let view = open(device.clone()).map_err(|error| Wrong::new("open", error))?;
    Ok((device, view))
}

/// Runs `work` in this many threads at once and returns the results; a panic counts as an error.
fn at_once<T: Send>(
    threads: usize,
    work: impl Fn(usize) -> Result<T, Wrong> + Sync,
) -> Result<Vec<T>, Wrong> {
    let barrier = Barrier::new(threads);
    let (barrier, work) = (&barrier, &work);
    std::thread::scope(|scope| {
        let start = |number| {
            scope.spawn(move || {
                barrier.wait();
                work(number)
            })
        };
        let running: Vec<_> = (0..threads).map(start).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err(Wrong::new("panic", "a thread panicked")))
        };
        // All are joined before the first failure is returned.
        let results: Vec<Result<T, Wrong>> = running.into_iter().map(join).collect();
        results.into_iter().collect()
    })
}

/// Each thread in a directory of its own: exactly the model.
///
/// # Errors
/// The first difference.
pub fn disjoint(seed: u64, threads: usize, ops: usize, engine: Engine) -> Result<(), Wrong> {
    let (device, view) = volume(engine, seed)?;
    let caller = Caller::superuser();
    let directory = |number: usize| {
        let name = format!("thread-{number}").into_bytes();
        let node = view.mkdir(&caller, view.root(), &name, 0o755);
        node.map(|node| node.inode()).map_err(|error| Wrong::new("result", error))
    };
    let directories: Vec<InodeNo> = (0..threads).map(directory).collect::<Result<_, _>>()?;
    let models = at_once(threads, |number| {
        let wrong = |error: String| Wrong::new("result", format!("thread {number}: {error}"));
        let root = view.getattr(directories[number]).map_err(|error| wrong(error.to_string()))?;
        let mut runner = Runner::new(ViewSubject::below(view.clone(), directories[number]), &root);
        let seed = seed.wrapping_mul(1000).wrapping_add(number as u64);
        for (at, op) in sequence(seed, ops, Profile::Model).iter().enumerate() {
            runner.step(op).map_err(|error| wrong(format!("operation {at} of seed {seed}: {error}")))?;
            if at % 40 == 39 {
                compare_below(&runner).map_err(wrong)?;
            }
        }
        compare_below(&runner).map_err(wrong)?;
        runner.subject.drop_references();
        Ok(runner.model.without_slots())
    })?;
    view.close().map_err(|error| Wrong::new("close", error))?;
    drop(view);
    must_be_clean(&*device, "after the unmount")?;
    let view = open(device).map_err(|error| Wrong::new("mount", error))?;
    for (number, model) in models.into_iter().enumerate() {
        let subject = ViewSubject::below(view.clone(), directories[number]);
        let runner = Runner { model, subject, full: 0 };
        let wrong = |error| Wrong::new("tree", format!("thread {number}, after the unmount: {error}"));
        compare_below(&runner).map_err(wrong)?;
    }
    view.close().map_err(|error| Wrong::new("close", error))
}

/// Compares a thread's directory, whose parent the model takes to be itself.
fn compare_below(runner: &Runner<ViewSubject>) -> Result<(), String> {
    let mut found = runner.subject.observe()?;
    let root = found.root;
    if let Some(crate::tree::Inside::Directory { parent, .. }) =
        found.nodes.get_mut(&root).map(|node| &mut node.inside)
    {
        *parent = root;
    }
    let differences = found.differences(&Tree::of(&runner.model), true);
    match differences.is_empty() {
        true => Ok(()),
        false => Err(list(&differences)),
    }
}

/// All threads in the same directories.
///
/// # Errors
/// What is damaged.
pub fn shared(seed: u64, threads: usize, ops: usize, engine: Engine) -> Result<(), Wrong> {
    let (device, view) = volume(engine, seed)?;
    at_once(threads, |number| {
        let mut subject = ViewSubject::new(view.clone());
        let seed = seed.wrapping_mul(1000).wrapping_add(number as u64);
        for op in sequence(seed, ops, Profile::Model) {
            if let Op::Hold { .. } | Op::Drop { .. } = op {
                // Another thread may have removed a slot's inode before the sequence expects it.
                continue;
            }
            if let Outcome::Failed(kind @ (Kind::Broken | Kind::NoSpace), message) = subject.apply(&op) {
                return Err(Wrong::new("result", format!("thread {number}, {op}: {kind:?}: {message}")));
            }
        }
        Ok(())
    })?;
    let before = observe(&view, view.root()).map_err(|error| Wrong::new("read", error))?;
    let mut inconsistent = before.contradictions.clone();
    inconsistent.extend(before.wrong_links());
    if !inconsistent.is_empty() {
        return Err(Wrong::new("tree", list(&inconsistent)));
    }
    view.close().map_err(|error| Wrong::new("close", error))?;
    drop(view);
    must_be_clean(&*device, "after the unmount")?;
    let view = open(device).map_err(|error| Wrong::new("mount", error))?;
    let after = observe(&view, view.root()).map_err(|error| Wrong::new("read", error))?;
    let differences = after.differences(&before, true);
    if !differences.is_empty() {
        return Err(Wrong::new("tree", format!("after the unmount: {}", list(&differences))));
    }
    view.close().map_err(|error| Wrong::new("close", error))
}

/// Unmounts while other threads sync without end. Whether a sync succeeds then is left open, but all of them
/// must return.
///
/// # Panics
/// If the volume cannot be made or used.
pub fn sync_while_closing(seed: u64, engine: Engine) {
    let (_device, view) = match volume(engine, seed) {
        Ok(volume) => volume,
        Err(wrong) => panic!("{}", wrong.message),
    };
    let barrier = Barrier::new(3);
    std::thread::scope(|scope| {
        for number in 0..2 {
            let (view, barrier) = (&view, &barrier);
            scope.spawn(move || {
                barrier.wait();
                for round in 0..200 {
                    let name = format!("{number}-{round}").into_bytes();
                    let made = view.mkdir(&Caller::superuser(), view.root(), &name, 0o755);
                    if made.map(|_| ()).and_then(|()| view.sync()).is_err() {
                        break;
                    }
                }
            });
        }
        barrier.wait();
        if let Err(error) = view.close() {
            panic!("close: {error}");
        }
    });
}
