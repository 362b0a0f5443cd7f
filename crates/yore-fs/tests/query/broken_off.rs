//! Questions about the past end when nobody wants the answer any more, also while they read data, and they
//! say how much they have collected.

use super::{event, small};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use yore_fs::{Error, EventNo, HistoryScope, InodeNo, Progress, Result, View, Volume};

type GoOn<'a> = &'a (dyn Fn(usize) -> ControlFlow<()> + Sync);

/// A question, by its name.
type Question = (&'static str, fn(&View, InodeNo, EventNo, GoOn<'_>) -> Result<()>);

const QUESTIONS: [Question; 6] = [
    ("diff", |view, dir, then, go_on| {
        view.diff_while(dir, (Some(then), None), go_on, &mut |_| ControlFlow::Continue(()))
    }),
    ("compare", |view, dir, then, go_on| {
        let (times, progress) = ((Some(then), None), Progress::default());
        view.compare_while(dir, times, &progress, go_on, &mut |_| ControlFlow::Continue(()))
    }),
    ("deleted", |view, dir, _, go_on| {
        view.deleted_while(dir, true, &Progress::default(), go_on, &mut |_| ControlFlow::Continue(()))
    }),
    ("usage", |view, dir, _, go_on| {
        view.usage_while(dir, go_on, &mut |_| ControlFlow::Continue(())).map(drop)
    }),
    ("usage of a file", |view, dir, _, go_on| {
        view.usage_of_while(dir, b"long", go_on, &mut |_| ControlFlow::Continue(())).map(drop)
    }),
    ("history", |view, _, _, go_on| {
        let scope = HistoryScope { below: true, others: false };
        view.history_of_while(view.root(), b"d", scope, go_on).map(drop)
    }),
];

/// A directory in which a long file was replaced by one of equal content, and a file is gone.
fn replaced() -> (Volume, InodeNo, EventNo) {
    let volume = small();
    volume.create_dir("d").unwrap();
    volume.write("d/long", vec![1; 4 << 20]).unwrap();
    volume.write("d/gone", "1").unwrap();
    let then = event(&volume, "/");
    volume.write("d/new", vec![1; 4 << 20]).unwrap();
    volume.rename("d/new", "d/long").unwrap();
    volume.remove_file("d/gone").unwrap();
    let dir = volume.node("d").unwrap().inode();
    (volume, dir, then)
}

/// Whether a question comes to its end if it may go on so many times. If it may not, it says that it was
/// broken off.
fn ends(question: impl Fn(GoOn<'_>) -> Result<()>, times: usize) -> bool {
    let asked = AtomicUsize::new(0);
    let outcome = question(&|_| match asked.fetch_add(1, Ordering::Relaxed) < times {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    });
    match outcome {
        Ok(()) => assert!(asked.into_inner() <= times),
        Err(Error::Refused(why)) if why.contains("broken off") => return false,
        Err(other) => panic!("{other}"),
    }
    true
}

/// A comparison read both files to their end, whoever had gone meanwhile; other questions walked through all
/// that there is. Each now ends wherever it is told to, and says so.
#[test]
fn questions_are_broken_off() {
    let (volume, dir, then) = replaced();
    for (name, question) in QUESTIONS {
        let mut times = 0;
        while !ends(|go_on| question(volume.view(), dir, then, go_on), times) {
            times += 1;
        }
        // A comparison asks for each part of the data.
        assert!(times > if name == "compare" { 16 } else { 0 }, "{name}: {times}");
    }
}

/// An answer was collected as a whole before anybody looked how long it was. Now a caller that has had enough
/// ends the question when that much is there.
#[test]
fn what_is_collected_is_told() {
    let volume = small();
    volume.create_dir("d").unwrap();
    let names: Vec<String> = (0..500).map(|i| format!("{i:0>100}")).collect();
    for name in &names {
        volume.write(format!("d/{name}"), "").unwrap();
    }
    let then = event(&volume, "/");
    let dir = volume.node("d").unwrap().inode();
    for name in &names {
        volume.remove_file(format!("d/{name}")).unwrap();
    }
    for (name, question) in &QUESTIONS[..3] {
        let collected = |most: usize| {
            let bytes = AtomicUsize::new(0);
            let outcome = question(volume.view(), dir, then, &|more| match bytes
                .fetch_add(more, Ordering::Relaxed)
                + more
                <= most
            {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            });
            (bytes.into_inner(), outcome.is_ok())
        };
        let (all, is_done) = collected(usize::MAX);
        assert!(is_done && all > 500 * 100, "{name}: {all}");
        let (some, is_done) = collected(10_000);
        assert!(!is_done && some < 11_000, "{name}: {some}");
    }
}
