//! What others do while a request is being answered: rights are those at the moment of the change, and pins
//! of others stand in nobody's way who may do everything.

use super::*;
use crate::Named;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use yore_fs::{Pin, PinnedBy, Policy, User, Versioning};

const ROOT: User = User { uid: 0, limits: None };
const HOUR: u64 = 3_600_000_000_000;

fn holding(hold: Option<u64>) -> Policy {
    Policy { hold, ..Policy::default() }
}

/// A host on which root sets a policy when another user's request was allowed already, and is not done yet.
struct RootIsFaster<'a> {
    view: &'a View,
    directory: InodeNo,
    ongoing: Ongoing,
}

impl Host for RootIsFaster<'_> {
    fn room(&self) -> Result<Pinning<'_>> {
        Err(Error::Refused("full".into()))
    }

    fn is_over(&self) -> bool {
        false
    }

    fn ongoing(&self) -> &Ongoing {
        &self.ongoing
    }

    fn want_closes(&self) -> Result<()> {
        self.view.set_policy_for(&ROOT, self.directory, &holding(Some(HOUR)))
    }
}

/// Malware asked for a policy again and again that left the hold as it was: none. When root set a hold, one
/// of these requests had been allowed already, and was done after it: root's hold was gone. The same happened
/// to a hold of root's that became longer. Now such a request is refused.
#[test]
fn a_policy_of_root_stays() {
    let view = view();
    let mine = view.mkdir(&ME, view.root(), b"mine", 0o700).unwrap().inode();
    let close = Policy { versioning: Some(Versioning::Close), ..Policy::default() };
    let host = RootIsFaster { view: &view, directory: mine, ongoing: Ongoing::default() };
    for (uid, policy) in [(4711, close.clone()), (DAEMONS, Policy { hold: Some(1), ..close.clone() })] {
        view.set_policy_for(&ROOT, mine, &Policy::default()).unwrap();
        let refused = by(&view, mine, uid).ask_host(&host, &Request::SetPolicy(policy));
        assert!(matches!(refused, Err(Error::NotPermitted { .. })), "{uid}: {refused:?}");
        assert_eq!(view.policy(mine).unwrap(), holding(Some(HOUR)));
    }
    // Root may.
    by(&view, mine, 0).ask_host(&host, &Request::SetPolicy(close.clone())).unwrap();
    assert_eq!(view.policy(mine).unwrap(), close);
}

/// Malware released its own snapshots, and held them, again and again. When root came to hold one, a request
/// that had been allowed already released it, or made the malware the one who holds it.
#[test]
fn a_hold_of_root_stays() {
    let view = view();
    let mine = view.mkdir(&ME, view.root(), b"mine", 0o700).unwrap().inode();
    let number = by(&view, mine, 4711).take(named("a")).unwrap().0;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                for held in [true, false] {
                    // It is refused while root holds it.
                    let _ = hold(&by(&view, mine, 4711), number, held);
                }
            }
        });
        for _ in 0..100 {
            hold(&by(&view, mine, 0), number, true).unwrap();
            std::thread::yield_now();
            let row = view.kept_event(number).unwrap().row;
            if (row.held, row.more.held_by) != (true, Some(0)) {
                is_over.store(true, Ordering::Release);
                panic!("root holds it: {row:?}");
            }
            hold(&by(&view, mine, 0), number, false).unwrap();
        }
        is_over.store(true, Ordering::Release);
    });
}

/// A host with pins of ordinary users' processes.
#[derive(Default)]
struct OthersPin {
    pins: Mutex<Vec<Pin>>,
    ongoing: Ongoing,
}

impl Host for OthersPin {
    fn room(&self) -> Result<Pinning<'_>> {
        Ok(Box::new(|pin| {
            self.pins.lock().unwrap().push(pin);
            Ok(())
        }))
    }

    fn release(&self, event: EventNo) -> bool {
        let mut pins = self.pins.lock().unwrap();
        let before = pins.len();
        pins.retain(|pin| pin.event() != event);
        pins.len() < before
    }

    fn is_over(&self) -> bool {
        false
    }

    fn ongoing(&self) -> &Ongoing {
        &self.ongoing
    }
}

/// Any user could pin snapshots as long as he had a process, and nobody, root included, could forget them or
/// expunge what they had seen. Root goes past pins of ordinary users' processes; those users do not, and
/// nobody goes past what is mounted.
#[test]
fn root_goes_past_pins_of_others() {
    let view = view();
    let mine = view.mkdir(&ME, view.root(), b"mine", 0o755).unwrap().inode();
    view.create(&ME, mine, b"f", FileKind::Regular, 0o644, 0).unwrap();
    let numbers = ["a", "b", "c"].map(|name| by(&view, mine, 4711).take(named(name)).unwrap().0);
    let host = OthersPin::default();
    let pin = |number| by(&view.as_of(number), mine, 9).ask_host(&host, &Request::Pin).unwrap();
    for number in numbers.into_iter().chain([numbers[0]]) {
        assert_eq!(pin(number), Answer::Pinned(true));
    }
    let forget = |uid, number| {
        by(&view, mine, uid).ask_host(&host, &Request::Forget { numbers: vec![number] }).map(drop)
    };
    assert!(matches!(forget(4711, numbers[0]), Err(Error::Pinned { event }) if event == numbers[0].0));
    forget(0, numbers[0]).unwrap();
    assert!(by(&view.as_of(numbers[0]), mine, 9).ask_host(&host, &Request::Pin).is_err());
    let mounted = view.pin(numbers[1], PinnedBy::Mount).unwrap();
    assert!(matches!(forget(0, numbers[1]), Err(Error::Pinned { event }) if event == numbers[1].0));
    drop(mounted);
    forget(0, numbers[1]).unwrap();
    let of = Named { name: b"f".to_vec(), below: false, others: false };
    let (known, files) = by(&view, mine, 0).history_of(&of).unwrap();
    assert_eq!(known.files, 1);
    let expunge = Request::Expunge { of, shown: crate::Shown::of(&files) };
    assert!(matches!(by(&view, mine, 4711).ask_host(&host, &expunge), Err(Error::Pinned { .. })));
    assert!(matches!(by(&view, mine, 0).ask_host(&host, &expunge), Ok(Answer::Expunged(_))));
}
