//! Who may set policies.

use super::*;
use std::path::Path;
use yore_fs::{NewSnapshot, Policy, Retention, RetentionRules, Versioning, EXCLUDE_MAX};

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
