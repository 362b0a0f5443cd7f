//! Who may roll back.

use super::*;
use yore_fs::rollback::{Plan, Verb};
use yore_fs::{NewSnapshot, SetAttr};

/// Root may roll back everything, owners their own files, others nothing; nobody on a read-only mount, nor by
/// another name.
#[test]
fn who_may_roll_back() {
    let view = view();
    let dir = view.mkdir(&ME, view.root(), b"d", 0o755).unwrap().inode();
    let create = |caller: &Caller, name: &[u8]| {
        view.create(caller, dir, name, FileKind::Regular, 0o644, 0).unwrap().inode()
    };
    let file = create(&ME, b"a");
    let then = view.take_snapshot(dir, &NewSnapshot::default()).unwrap().number;
    let plan = Plan { verb: Verb::Rollback, of: None, target: then, others: None };
    let change = || view.setattr(&ME, file, &SetAttr { size: Some(7), ..SetAttr::default() }).unwrap();
    let by = |uid| by(&view, dir, uid);
    change();
    assert!(matches!(by(9).roll_back(&plan), Err(Error::NotPermitted { .. })));
    let read_only = Asking { read_only: true, ..by(0) };
    assert!(matches!(read_only.roll_back(&plan), Err(Error::ReadOnly)));
    for verb in [Verb::Restore, Verb::Undelete] {
        assert!(matches!(by(0).roll_back(&Plan { verb, ..plan }), Err(Error::Invalid { .. })));
    }
    let nothing = Plan { target: EventNo(0), ..plan };
    assert!(matches!(by(0).roll_back(&nothing), Err(Error::NotFound)));
    let done = by(4711).roll_back(&plan).unwrap();
    assert_eq!((&done.name[..], done.has_end), ("rollback-1", true));
    assert_eq!(by(4711).roll_back(&plan).unwrap().name, "", "nothing differs");
    let caller = Caller { uid: 0, gid: 0, ..ME };
    create(&caller, b"by-root");
    assert!(matches!(by(4711).roll_back(&plan), Err(Error::NotYours { path }) if path.ends_with("by-root")));
    assert!(by(DAEMONS).roll_back(&plan).unwrap().has_end);
    assert_eq!(by(4711).unfinished_rollbacks().unwrap(), []);
    let operations = by(0).operations().unwrap();
    assert!(operations.iter().any(|(_, row)| row.note == "rollback-1" && row.uid == 4711));
}
