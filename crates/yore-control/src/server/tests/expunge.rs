//! Who may give up the history of files.

use super::*;
use crate::{Named, Shown};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use yore_fs::{NewSnapshot, RenameMode, SetAttr, WriteMode};

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
    let first = root.ask(&Request::HistoryOf { of: named(b"d", true), from: 0, question: 0 }).unwrap();
    assert!(matches!(first, Answer::HistoryOf { next: Some(_), .. }));
    let (known, files) = root.history_of(&named(b"d", true)).unwrap();
    assert_eq!((known.files, files.len()), (901, 901));
    let paths: BTreeSet<_> = files.into_iter().map(|file| file.path).collect();
    assert_eq!(paths.len(), 901);
    assert!(matches!(root.history_of(&named(b"d", false)), Err(Error::IsADirectory)));
}

/// Promises that only what was shown is given up. An editor put another file in its place while the user read
/// the question, and the history of that other file was gone, though the list showed the first one.
#[test]
fn other_files_than_shown() {
    let view = view();
    let root = view.root();
    let make = |name: &[u8]| {
        let file = view.create(&ME, root, name, FileKind::Regular, 0o644, 0).unwrap();
        file.write(0, name, WriteMode { append: false, kill_set_id: false }).unwrap();
        file
    };
    make(b"doc");
    let new = make(b"new");
    let one = view.take_snapshot(root, &NewSnapshot::named("one")).unwrap().number;
    let sees = |name: &[u8]| {
        let (then, mut content) = (view.as_of(one), [0; 8]);
        let read = then.lookup(then.root(), name).and_then(|file| file.read(0, &mut content));
        read.is_ok_and(|read| content[..read] == *name)
    };
    let (asking, doc) = (by(&view, root, 0), named(b"doc", false));
    let before = Shown::of(&asking.history_of(&doc).unwrap().1);
    view.rename(root, b"new", root, b"doc", RenameMode::Replace).unwrap();
    assert!(matches!(asking.expunge_shown(&doc, before), Ok(None)));
    assert!(matches!(Here::new(&view, root).expunge_shown(&doc, before), Ok(None)));
    assert!(sees(b"doc") && sees(b"new"));

    // What is shown now is given up, and nothing else.
    let (_, files) = asking.history_of(&doc).unwrap();
    assert_eq!(files.iter().map(|file| file.inode).collect::<Vec<_>>(), [new.inode()]);
    assert!(matches!(asking.expunge_shown(&doc, Shown::of(&files)), Ok(Some(_))));
    assert!(sees(b"doc") && !sees(b"new"));
}

/// Promises that one more file below a directory, or one less, makes other files of it, and that the order of
/// the list does not.
#[test]
fn the_digest_tells_lists_apart() {
    let view = view();
    let dir = view.mkdir(&ME, view.root(), b"d", 0o755).unwrap().inode();
    let make = |name: &[u8]| view.create(&ME, dir, name, FileKind::Regular, 0o644, 0).unwrap();
    make(b"a");
    make(b"b");
    view.take_snapshot(view.root(), &NewSnapshot::named("one")).unwrap();
    let (asking, d) = (by(&view, view.root(), 0), named(b"d", true));
    let (_, mut files) = asking.history_of(&d).unwrap();
    assert_eq!(files.len(), 3);
    let shown = Shown::of(&files);
    files.reverse();
    assert_eq!(Shown::of(&files), shown);
    assert_eq!(Shown::of(&[&files[..], &files[..1]].concat()), shown);
    assert_ne!(Shown::of(&files[1..]), shown);
    assert!(matches!(asking.expunge_shown(&d, Shown::of(&files[1..])), Ok(None)));
    make(b"c");
    assert!(matches!(asking.expunge_shown(&d, shown), Ok(None)));
    assert_eq!(asking.expunge(&d).unwrap().files, 4);
}
