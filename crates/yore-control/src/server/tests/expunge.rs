//! Who may give up the history of files.

use super::*;
use crate::Named;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use yore_fs::{NewSnapshot, SetAttr};

fn named(name: &[u8], below: bool) -> Named {
    Named { name: name.to_vec(), below, others: false }
}

/// Root may, and the user who owns all states; nobody else, and nobody through a mount that is read-only. If
/// history must stay, the error says why.
#[test]
fn who_may_expunge() {
    let view = view();
    let file = view.create(&ME, view.root(), b"a", FileKind::Regular, 0o644, 0).unwrap().inode();
    let owner = |uid| {
        let set = SetAttr { uid: Some(uid), ..SetAttr::default() };
        view.setattr(&Caller::superuser(), file, &set).unwrap();
    };
    owner(9);
    let held = view
        .take_snapshot(view.root(), &NewSnapshot { held: true, ..NewSnapshot::named("one") })
        .unwrap()
        .number;
    owner(4711);
    let (by, a) = (|uid| by(&view, view.root(), uid), named(b"a", false));
    for uid in [9, 4711] {
        assert!(matches!(by(uid).history_of(&a), Err(Error::NotPermitted { .. })));
        assert!(matches!(by(uid).expunge(&a), Err(Error::NotPermitted { .. })));
    }
    // The answer does not even reveal whether there is such a name.
    assert!(matches!(by(9).history_of(&named(b"b", false)), Err(Error::NotPermitted { .. })));
    assert!(matches!(by(0).history_of(&named(b"b", false)), Err(Error::NotFound)));
    for name in [&b""[..], b"a/b", b"a\0", &[b'a'; 256]] {
        assert!(matches!(by(0).history_of(&named(name, false)), Err(Error::Invalid { .. })), "{name:?}");
        assert!(matches!(by(0).expunge(&named(name, true)), Err(Error::Invalid { .. })), "{name:?}");
    }
    assert_eq!(by(0).history_of(&a).unwrap().0.versions, 1);
    let read_only = Asking { read_only: true, ..by(0) };
    assert!(matches!(read_only.expunge(&a), Err(Error::ReadOnly)));
    assert!(matches!(by(0).expunge(&a), Err(Error::Held { event }) if event == held.0));
    hold(&by(0), held, false).unwrap();
    assert_eq!(by(0).expunge(&a).unwrap().versions, 1);
    view.finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(by(4711).history_of(&a).unwrap().0.versions, 0);
}

/// A list of more than one part has each file once, and its total covers all of them.
#[test]
fn parts() {
    let view = view();
    let dir = view.mkdir(&ME, view.root(), b"d", 0o755).unwrap().inode();
    for n in 0..900 {
        let name = format!("{n:0>40}");
        view.create(&ME, dir, name.as_bytes(), FileKind::Regular, 0o644, 0).unwrap();
    }
    let root = by(&view, view.root(), 0);
    let first = root.ask(&Request::HistoryOf { of: named(b"d", true), from: 0 }).unwrap();
    assert!(matches!(first, Answer::HistoryOf { next: Some(_), .. }));
    let (known, files) = root.history_of(&named(b"d", true)).unwrap();
    assert_eq!((known.files, files.len()), (901, 901));
    let paths: BTreeSet<_> = files.into_iter().map(|file| file.path).collect();
    assert_eq!(paths.len(), 901);
    assert!(matches!(root.history_of(&named(b"d", false)), Err(Error::IsADirectory)));
}
