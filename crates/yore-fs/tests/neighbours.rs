//! What protects history against a malicious program with a user's rights: policies that hold what they take,
//! and limits for each user.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};
use yore_device::{Device, MemoryDevice};
use yore_fs::{
    Caller, Error, EventKind, EventNo, FileKind, InodeNo, MkfsOptions, MountOptions, NewSnapshot, Policy,
    Retention, RetentionRules, User, UserLimits, Versioning, View, WriteMode,
};

const ME: Caller = Caller { uid: 7, gid: 7, umask: 0o022, keeps_set_id: false };
const WRITE: WriteMode = WriteMode { append: false, kill_set_id: false };
const SECOND: u64 = 1_000_000_000;
const ROOT: User = User { uid: 0, limits: None };

fn device(bytes: u64) -> Arc<dyn Device> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(bytes));
    // What root says of the root directory applies to everybody's files.
    View::mkfs(&device, &MkfsOptions { owner: (0, 0), ..MkfsOptions::default() }).unwrap();
    device
}

fn open(device: &Arc<dyn Device>) -> View {
    View::open(device.clone(), &MountOptions::default()).unwrap()
}

fn create(view: &View, directory: InodeNo, name: &str) -> InodeNo {
    view.create(&ME, directory, name.as_bytes(), FileKind::Regular, 0o644, 0).unwrap().inode()
}

/// Writes and closes the file; returns the version.
fn save(view: &View, file: InodeNo, text: &str) -> EventNo {
    view.write(file, 0, text.as_bytes(), WRITE).unwrap();
    view.closed(file).unwrap().expect("a version").number
}

fn holding(hold: u64) -> Policy {
    let last = RetentionRules { last: 1, ..RetentionRules::default() };
    Policy {
        versioning: Some(Versioning::Close),
        retention: Some(Retention::Rules(last)),
        hold: Some(hold),
        ..Policy::default()
    }
}

fn is_held<T: std::fmt::Debug>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::HeldUntil { .. }))
}

/// A program with a user's rights could give up all history of that user's files. Nobody gives up what a
/// policy holds before its time: no request, no retention rule, no expunging, no change of the policy; only
/// root can release it.
#[test]
fn what_a_policy_holds_stays() {
    let device = device(64 << 20);
    let view = open(&device);
    let root = view.root();
    view.set_policy(root, &holding(3600 * SECOND)).unwrap();
    let file = create(&view, root, "file");
    let versions: Vec<EventNo> = ["one", "two", "six"].iter().map(|text| save(&view, file, text)).collect();
    let user = User { uid: 7, limits: None };
    let check = |view: &View| {
        for version in &versions {
            assert!(is_held(view.forget(&[*version])));
            assert!(is_held(view.hold_for(&user, *version, false)));
        }
        assert_eq!(view.retain().unwrap(), 0);
        let attr = view.getattr(file).unwrap();
        assert!(is_held(view.expunge(&[(file, attr.incarnation)])));
        assert_eq!(view.events().unwrap().len(), 3);
    };
    check(&view);
    let (rows, _) = view.list_versions(root, b"file", EventNo(0)).unwrap();
    assert!(rows.iter().all(|row| row.event.row.held), "lists say so");
    // The hold belongs to the events that were taken, not to the policy.
    view.set_policy(root, &Policy::default()).unwrap();
    check(&view);
    view.close().unwrap();
    let view = open(&device);
    check(&view);
    view.hold_for(&ROOT, versions[0], false).unwrap();
    view.forget(&versions[..1]).unwrap();
    view.hold(versions[1], false).unwrap();
    view.forget(&versions[1..2]).unwrap();
    assert!(is_held(view.forget(&versions[2..])));
    view.close().unwrap();
}

/// Somebody who fills the volume cannot make it give up what a policy holds.
#[test]
fn a_full_volume_does_not_take_it() {
    let view = open(&device(32 << 20));
    let root = view.root();
    view.set_policy(root, &holding(3600 * SECOND)).unwrap();
    let file = create(&view, root, "file");
    let kept = save(&view, file, "precious");
    view.set_policy(root, &Policy::default()).unwrap();
    view.write(file, 0, b"destroyed", WRITE).unwrap();
    let flood = create(&view, root, "flood");
    let full = (0..64).find_map(|i| view.write(flood, i << 20, &vec![7; 1 << 20], WRITE).err());
    assert!(matches!(full, Some(Error::NoSpace | Error::NeverFits { .. })), "{full:?}");
    let then = view.as_of(kept);
    let mut bytes = [0; 8];
    then.lookup(root, b"file").unwrap().read(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"precious");
}

/// The time of the hold ends; then the event is like all other history.
#[test]
fn the_time_ends() {
    let view = open(&device(64 << 20));
    let root = view.root();
    view.set_policy(root, &holding(SECOND)).unwrap();
    let file = create(&view, root, "file");
    let version = save(&view, file, "one");
    let begun = Instant::now();
    loop {
        match view.forget(&[version]) {
            Ok(()) => break,
            Err(Error::HeldUntil { .. }) => assert!(begun.elapsed() < Duration::from_secs(30)),
            Err(other) => panic!("{other}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// That a file was removed was held as the root directory's policy says, and not as that of the directory
/// says where the file was: so it could be given up at once, or by nobody.
#[test]
fn a_removal_is_held_as_the_file_was() {
    let view = open(&device(64 << 20));
    let root = view.root();
    let [held, free] = [b"held", b"free"].map(|name| view.mkdir(&ME, root, name, 0o755).unwrap().inode());
    let close = Policy { versioning: Some(Versioning::Close), ..Policy::default() };
    for (of_root, of_held, of_free) in
        [(None, Some(3600 * SECOND), None), (Some(3600 * SECOND), None, Some(0))]
    {
        view.set_policy(root, &Policy { hold: of_root, ..close.clone() }).unwrap();
        view.set_policy(held, &Policy { hold: of_held, ..Policy::default() }).unwrap();
        view.set_policy(free, &Policy { hold: of_free, ..Policy::default() }).unwrap();
        for (directory, is_held) in [(held, true), (free, false)] {
            let file = create(&view, directory, "file");
            save(&view, file, "text");
            view.unlink(directory, b"file").unwrap();
            let removal = view.events().unwrap().pop().unwrap();
            assert_eq!(removal.row.kind, EventKind::Removed);
            assert_eq!(removal.row.more.held_until.is_some(), is_held, "{of_root:?}");
        }
    }
}

/// A policy shortens a hold if it names a shorter one, if it no longer names one, or if a directory above it
/// names a longer one.
#[test]
fn what_shortens_a_hold() {
    let view = open(&device(64 << 20));
    let root = view.root();
    let below = view.mkdir(&ME, root, b"below", 0o755).unwrap().inode();
    view.set_policy(root, &holding(100 * SECOND)).unwrap();
    let shortens = |inode, hold| view.shortens_hold(inode, &Policy { hold, ..Policy::default() }).unwrap();
    assert!(shortens(root, None) && shortens(root, Some(0)) && shortens(root, Some(99 * SECOND)));
    assert!(!shortens(root, Some(100 * SECOND)) && !shortens(root, Some(101 * SECOND)));
    assert!(shortens(below, Some(0)) && !shortens(below, None) && !shortens(below, Some(200 * SECOND)));
    assert_eq!(view.policy_in_force(below).unwrap().hold, 100 * SECOND);
    let too_long = Policy { hold: Some(u64::MAX), ..Policy::default() };
    assert!(matches!(view.set_policy(root, &too_long), Err(Error::Invalid { .. })));
}

/// A user's policy left the hold as it was, and so it was allowed. Then it waited for a lock, while root set
/// a hold; and it was set over that policy of root's, so nothing was held any more. Now what is there when
/// the policy is set decides.
#[test]
fn no_policy_is_set_over_one_that_came_meanwhile() {
    let view = open(&device(64 << 20));
    let dir = view.mkdir(&ME, view.root(), b"mine", 0o755).unwrap().inode();
    let close = Policy { versioning: Some(Versioning::Close), ..Policy::default() };
    let asked = Cell::new(0);
    let may = || {
        asked.set(asked.get() + 1);
        let is_same = view.policy(dir)?.hold == close.hold;
        if asked.get() == 1 {
            view.set_policy_for(&ROOT, dir, &holding(3600 * SECOND))?;
        }
        match is_same {
            true => Ok(()),
            false => Err(Error::NotPermitted { what: "holds" }),
        }
    };
    let user = User { uid: 7, limits: None };
    let refused = view.set_policy_if(&user, dir, &close, &may);
    assert!(matches!(refused, Err(Error::NotPermitted { .. })), "{refused:?}");
    assert_eq!((view.policy(dir).unwrap(), asked.get()), (holding(3600 * SECOND), 2));
    view.set_policy_if(&ROOT, dir, &close, &|| Ok(())).unwrap();
    assert_eq!(view.policy(dir).unwrap(), close);
}

/// Whether a user may hold or release a snapshot is decided by what is there when that is done, and not by
/// what was there when the user asked.
#[test]
fn a_hold_is_judged_when_it_changes() {
    let view = open(&device(64 << 20));
    let event = view.take_snapshot(view.root(), &NewSnapshot::default()).unwrap().number;
    let user = User { uid: 7, limits: None };
    let not_held_by_others = |row: &yore_fs::EventRow| match row.more.held_by {
        Some(by) if by != 7 => Err(Error::NotPermitted { what: "others hold it" }),
        _ => Ok(()),
    };
    let hold = |held| view.hold_if(&user, event, (held, "mine"), &not_held_by_others);
    let now = || {
        let row = view.kept_event(event).unwrap().row;
        (row.held, row.more.held_by)
    };
    hold(true).unwrap();
    assert_eq!(now(), (true, Some(7)));
    view.hold_for(&ROOT, event, true).unwrap();
    for held in [true, false] {
        assert!(matches!(hold(held), Err(Error::NotPermitted { .. })));
        assert_eq!(now(), (true, Some(0)));
    }
}

fn limit<T: std::fmt::Debug>(result: Result<T, Error>) -> Option<(&'static str, u32)> {
    match result {
        Err(Error::LimitReached { what, most }) => Some((what, most)),
        other => {
            other.unwrap();
            None
        }
    }
}

/// A user took 300,000 snapshots in ten seconds, which filled the volume and the daemon's memory. Each user
/// has limits. They affect neither other users nor what policies take, and they are known again when the
/// volume is opened.
#[test]
fn users_have_limits() {
    let device = device(64 << 20);
    let view = open(&device);
    let root = view.root();
    let limits = Some(UserLimits { snapshots: 3, holds: 1, policies: 1 });
    let (user, other) = (User { uid: 7, limits }, User { uid: 8, limits });
    let take = |view: &View, user: &User, held| {
        let new = NewSnapshot { held, user: Some(user), ..NewSnapshot::default() };
        view.take_snapshot(root, &new).map(|event| event.number)
    };
    let mine: Vec<EventNo> = (0..3).map(|i| take(&view, &user, i == 0).unwrap()).collect();
    assert_eq!(limit(take(&view, &user, false)), Some(("snapshots", 3)));
    let point = NewSnapshot { user: Some(&user), undo: true, ..NewSnapshot::named("before-x") };
    let undo = view.take_snapshot(root, &point);
    assert_eq!(limit(undo), Some(("snapshots", 3)));
    assert_eq!(limit(view.hold_for(&user, mine[1], true)), Some(("holds", 1)));
    assert_eq!(limit(take(&view, &other, false)), None);
    for _ in 0..5 {
        take(&view, &ROOT, true).unwrap();
    }
    view.close().unwrap();

    let view = open(&device);
    assert_eq!(limit(take(&view, &user, false)), Some(("snapshots", 3)));
    view.forget(&mine[2..]).unwrap();
    take(&view, &user, false).unwrap();
    assert_eq!(limit(take(&view, &user, false)), Some(("snapshots", 3)));
    view.hold_for(&user, mine[0], false).unwrap();
    view.hold_for(&user, mine[1], true).unwrap();
    view.hold_for(&user, mine[1], true).unwrap();
    assert_eq!(limit(view.hold_for(&user, mine[0], true)), Some(("holds", 1)));

    let [a, b] = [b"a", b"b"].map(|name| view.mkdir(&ME, root, name, 0o755).unwrap().inode());
    let close = Policy { versioning: Some(Versioning::Close), ..Policy::default() };
    view.set_policy_for(&user, a, &close).unwrap();
    assert_eq!(limit(view.set_policy_for(&user, b, &close)), Some(("policies", 1)));
    view.set_policy_for(&user, a, &Policy { retention: Some(Retention::Everything), ..close.clone() })
        .unwrap();
    let file = create(&view, a, "file");
    for text in ["1", "2", "3", "4", "5"] {
        save(&view, file, text);
    }
    view.set_policy_for(&user, a, &Policy::default()).unwrap();
    view.set_policy_for(&user, b, &close).unwrap();
    view.close().unwrap();
    let view = open(&device);
    assert_eq!(limit(view.set_policy_for(&user, a, &close)), Some(("policies", 1)));
}
