//! Questions that take long: no thread that serves others answers them, each user has a few of them answered
//! at a time, and they end when nobody waits for them any more, or when too much is found.

use super::*;
use crate::server::long::QUESTIONS_MOST;
use crate::{Named, Shown, Until};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// All questions about the past of a directory that may take long.
fn questions(from: EventNo) -> Vec<Query> {
    let (from, to, question) = (Some(from), None, 3);
    vec![
        Query::Diff { from, to },
        Query::Compare { from, to, question },
        Query::Log { name: b"f".to_vec(), most: None, verify: VerifyStates::Yes, question },
        Query::Deleted { recursive: true, question },
        Query::Usage { question },
        Query::UsageOf { name: b"f".to_vec(), question },
    ]
}

/// A directory of a user's, with a file that is gone, and the snapshot that has the file.
fn gone(view: &View) -> (InodeNo, EventNo) {
    let dir = view.mkdir(&ME, view.root(), b"d", 0o755).unwrap().inode();
    view.create(&ME, dir, b"f", FileKind::Regular, 0o644, 0).unwrap();
    let then = view.take_snapshot(dir, &NewSnapshot::default()).unwrap().number;
    view.unlink(dir, b"f").unwrap();
    (dir, then)
}

/// A comparison read two files to their end on a thread that serves everybody: with sixteen of them a mount
/// answered nobody, and could not be unmounted. Now each such question ends with the mount, and says so.
#[test]
fn questions_end_with_the_mount() {
    let view = view();
    let (dir, then) = gone(&view);
    let leaving = Leaving { view: view.clone(), ongoing: Ongoing::default() };
    let of = Named { name: b"d".to_vec(), below: true, others: false };
    let of_dir = questions(then).into_iter().map(|query| (dir, Request::Query(query)));
    let of_root = [Request::HistoryOf { of, from: 0, question: 4 }, Request::Shred { question: 5 }];
    for (directory, request) in of_dir.chain(of_root.map(|request| (view.root(), request))) {
        assert!(request.waits(), "{request:?}");
        let outcome = by(&view, directory, 0).ask_host(&leaving, &request);
        let is_told = matches!(&outcome, Err(Error::Refused(why)) if why.contains("broken off"));
        assert!(is_told, "{request:?}: {outcome:?}");
        assert_eq!(view.break_off_inspections(), 0);
        // It is asked again on another mount.
        by(&view, directory, 0).ask(&request).unwrap();
    }
    assert!(Request::WouldFree.waits());
    let expunge = |below| {
        let of = Named { name: b"d".to_vec(), below, others: false };
        Request::Expunge { of, shown: Shown::of(&[]) }
    };
    assert!(expunge(true).waits() && !expunge(false).waits());
    assert!(!Request::Query(Query::Identity).waits() && !Request::Pin.waits());
}

/// A user could have any number of questions answered at once. Now a few are, and then the others are
/// refused; other users, and whoever may do everything, are not concerned.
#[test]
fn a_user_asks_so_much_at_once() {
    let view = view();
    let (dir, then) = gone(&view);
    let host = Full::default();
    let asked: Vec<_> = (1..=QUESTIONS_MOST as u64).map(|name| host.0.begin(4711, name, None)).collect();
    for query in questions(then) {
        let request = Request::Query(query);
        let refused = by(&view, dir, 4711).ask_host(&host, &request);
        assert!(matches!(&refused, Err(Error::Refused(why)) if why.contains("4711")), "{refused:?}");
        by(&view, dir, 0).ask_host(&host, &request).unwrap();
    }
    drop(asked);
    for query in questions(then) {
        by(&view, dir, 4711).ask_host(&host, &Request::Query(query)).unwrap();
    }
}

/// An answer was looked at only when all of it had been collected, whatever memory that took. Now a question
/// ends as soon as too much is found.
#[test]
fn too_much_is_not_collected() {
    let view = view();
    let dir = view.mkdir(&ME, view.root(), b"d", 0o755).unwrap().inode();
    for n in 0..200 {
        view.create(&ME, dir, format!("{n:0>50}").as_bytes(), FileKind::Regular, 0o644, 0).unwrap();
    }
    let then = view.take_snapshot(dir, &NewSnapshot::default()).unwrap().number;
    for n in 0..200 {
        view.unlink(dir, format!("{n:0>50}").as_bytes()).unwrap();
    }
    let (from, to, question) = (Some(then), None, 0);
    let of = Named { name: b"d".to_vec(), below: true, others: false };
    for (directory, request) in [
        (dir, Request::Query(Query::Diff { from, to })),
        (dir, Request::Query(Query::Compare { from, to, question })),
        (dir, Request::Query(Query::Deleted { recursive: true, question })),
        (view.root(), Request::HistoryOf { of, from: 0, question }),
    ] {
        let host = Full(Ongoing::short(2_000));
        let refused = by(&view, directory, 0).ask_host(&host, &request);
        let is_told = matches!(&refused, Err(Error::Refused(why)) if why.contains("64 MiB"));
        assert!(is_told, "{request:?}: {refused:?}");
        by(&view, directory, 0).ask(&request).unwrap();
    }
}

/// A mount that answers a question only when it is broken off, and has seen its name.
#[derive(Default)]
struct Slow {
    broken_off: AtomicU64,
}

impl Client for Slow {
    fn ask(&self, request: &Request) -> Result<Answer> {
        let start = Instant::now();
        match request {
            Request::BreakOff { question } => self.broken_off.store(*question, Ordering::Release),
            Request::Shred { question } | Request::Query(Query::Usage { question }) => {
                while self.broken_off.load(Ordering::Acquire) != *question {
                    assert!(start.elapsed() < Duration::from_secs(30), "nobody breaks it off");
                    std::thread::yield_now();
                }
                return Err(Error::Refused(format!("question {question} was broken off")));
            }
            _ => {}
        }
        Ok(Answer::Done)
    }
}

/// Ctrl-C did not end a question: the process waited for its answer. A client that is told to stop breaks the
/// question off, under the name that it has or a new one; what does not take long is asked as it is.
#[test]
fn a_client_gives_up() {
    let (slow, stop) = (Slow::default(), AtomicBool::new(true));
    let until = Until::new(&slow, &stop);
    let outcome = until.usage();
    let is_told = |why: &str| why.contains("was broken off") && !why.contains("question 0 ");
    assert!(matches!(&outcome, Err(Error::Refused(why)) if is_told(why)), "{outcome:?}");
    let outcome = until.ask(&Request::Shred { question: 77 });
    assert!(matches!(&outcome, Err(Error::Refused(why)) if why.contains("question 77 ")), "{outcome:?}");
    until.describe(EventNo(1), Saying::default()).unwrap();
}
