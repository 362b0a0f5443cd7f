//! Who may set policies.

use super::*;
use std::path::Path;
use yore_fs::{NewSnapshot, Policy, Retention, RetentionRules, Versioning, WriteMode, EXCLUDE_MAX};

fn holding(hold: Option<u64>) -> Policy {
    Policy { hold, ..Policy::default() }
}

/// Owners say when versions are made. The user who mounted the volume says how long they are held, and only
/// root shortens that.
#[test]
fn who_may_set_policies() {
    let view = view();
    let mine = view.mkdir(&ME, view.root(), b"mine", 0o700).unwrap().inode();
    let by = |uid| by(&view, mine, uid);
    let snapshots = Policy { versioning: Some(Versioning::Snapshots), ..Policy::default() };
    assert!(matches!(by(9).set_policy(snapshots.clone()), Err(Error::NotPermitted { .. })));
    by(4711).set_policy(snapshots.clone()).unwrap();
    assert_eq!(by(9).policy().unwrap().own, snapshots);
    const HOUR: u64 = 3_600_000_000_000;
    assert!(matches!(by(4711).set_policy(holding(Some(HOUR))), Err(Error::NotPermitted { .. })));
    by(DAEMONS).set_policy(holding(Some(HOUR))).unwrap();
    // What the policy says of holds stays unchanged.
    by(4711).set_policy(Policy { hold: Some(HOUR), ..snapshots }).unwrap();
    for shorter in [None, Some(HOUR - 1)] {
        assert!(matches!(by(DAEMONS).set_policy(holding(shorter)), Err(Error::NotPermitted { .. })));
    }
    by(DAEMONS).set_policy(holding(Some(2 * HOUR))).unwrap();
    by(0).set_policy(holding(None)).unwrap();
    let read_only = Asking { read_only: true, ..by(4711) };
    assert!(matches!(read_only.set_policy(Policy::default()), Err(Error::ReadOnly)));
    // A mount that cannot detect closes of files says so, and nothing is changed.
    let close = Policy { versioning: Some(Versioning::Close), ..Policy::default() };
    assert!(matches!(by(0).set_policy(close.clone()), Err(Error::Refused(_))));
    assert_eq!(by(0).policy().unwrap().own, Policy::default());
    Here::new(&view, mine).set_policy(close).unwrap();
}

/// The answer says what applies and whose policy says so. Directories and files of the past have no policy;
/// files of the present accept the request.
#[test]
fn what_applies() {
    let view = view();
    let dir = view.mkdir(&ME, view.root(), b"d", 0o755).unwrap().inode();
    let file = view.create(&ME, dir, b"f", FileKind::Regular, 0o644, 0).unwrap();
    let of_dir = Policy { exclude: Some(vec!["f".into()]), hold: Some(0), ..Policy::default() };
    by(&view, dir, 0).set_policy(of_dir.clone()).unwrap();
    let here = by(&view, file.inode(), 9).policy().unwrap();
    assert_eq!((here.own, here.in_force.exclude), (Policy::default(), of_dir.exclude));
    assert_eq!((here.exclude_by.as_deref(), here.versioning_by), (Some(&b"/d"[..]), None));
    assert_eq!((here.in_force.retention, here.excluded), (Some(Retention::Everything), true));
    let number = view.take_snapshot(view.root(), &NewSnapshot::default()).unwrap().number;
    let past = view.as_of(number);
    assert!(matches!(by(&past, dir, 0).policy(), Err(Error::NotPermitted { .. })));
    assert!(matches!(by(&past, dir, 0).set_policy(Policy::default()), Err(Error::NotPermitted { .. })));
    assert_eq!(view.path_now(dir).unwrap().as_deref(), Some(Path::new("/d")));
}

/// A policy that cannot be on the medium does not get there, whatever bytes ask for it.
#[test]
fn no_policy_that_cannot_be() {
    let view = view();
    let root = by(&view, view.root(), 0);
    let within = |text: &str| {
        let rules = RetentionRules { within: text.into(), ..RetentionRules::default() };
        Policy { retention: Some(Retention::Rules(rules)), ..Policy::default() }
    };
    let exclude = |patterns: &[&str]| {
        let patterns = patterns.iter().map(|text| text.to_string()).collect();
        Policy { exclude: Some(patterns), ..Policy::default() }
    };
    for bad in [
        Policy { versioning: Some(Versioning::Interval(0)), ..Policy::default() },
        holding(Some(u64::MAX)),
        within(&"1".repeat(300)),
        within("soon"),
        within("1\th"),
        within("1h\n"),
        exclude(&[""]),
        exclude(&["a\nb"]),
        exclude(&["a\0b"]),
        exclude(&[&"x".repeat(EXCLUDE_MAX)]),
    ] {
        let outcome = root.set_policy(bad.clone());
        assert!(matches!(outcome, Err(Error::Invalid { .. } | Error::Refused(_))), "{bad:?}: {outcome:?}");
    }
    assert_eq!(root.policy().unwrap().own, Policy::default());
}

/// A user who had opened his own volume could remove the policy that holds versions for a time, but not
/// release one of these: `yore release` said that root must. Whoever opened the volume may do both, as root
/// on a mount, and nobody else may.
#[test]
fn who_may_release_what_a_policy_holds() {
    const HOUR: u64 = 3_600_000_000_000;
    let view = view();
    let policy = Policy { versioning: Some(Versioning::Close), ..holding(Some(HOUR)) };
    view.set_policy(view.root(), &policy).unwrap();
    let file = view.create(&ME, view.root(), b"f", FileKind::Regular, 0o644, 0).unwrap().inode();
    let versions: Vec<EventNo> = [b"one", b"two"]
        .map(|text| {
            view.write(file, 0, text, WriteMode { append: false, kill_set_id: false }).unwrap();
            view.closed(file).unwrap().expect("a version").number
        })
        .to_vec();
    let release = Saying { hold: Some(None), ..Saying::default() };
    let refused = by(&view, view.root(), DAEMONS).describe(versions[0], release.clone());
    assert!(matches!(refused, Err(Error::HeldUntil { .. })), "{refused:?}");
    by(&view, view.root(), 0).describe(versions[0], release.clone()).unwrap();

    let (host, access) = (Full::default(), view.access(None, view.root()));
    let opened_it = Who {
        uid: 4711,
        may_all: true,
        as_root: true,
        groups: &[],
        access: &access,
        read_only: false,
        limits: UserLimits::default(),
        expunges_others: true,
        host: &host,
    };
    let request = Request::Describe { number: versions[1], saying: release };
    answer(&view, view.root(), &opened_it, &request).unwrap();
    view.forget(&versions).unwrap();
}
