//! Promises of expunging: everything that the history knew of a file is gone at once, under whatever name it
//! was, and gives its room back. The present state of the file stays, and so does everything else. Events
//! that are held or pinned lose nothing.

use std::ops::ControlFlow;
use std::sync::Barrier;
use yore_fs::{
    Error, EventNo, Forgetting, InodeNo, NewSnapshot, OpenOptions, PinnedBy, RenameMode, User, Volume,
};

fn event(volume: &Volume, directory: &str, name: &str) -> EventNo {
    let node = volume.node(directory).unwrap();
    volume
        .view()
        .take_snapshot(node.inode(), &NewSnapshot { wait: true, ..NewSnapshot::named(name) })
        .unwrap()
        .number
}

/// The inode and incarnation that a path means, in the present or with a time in the path.
fn file(volume: &Volume, path: &str) -> (InodeNo, u32) {
    let attr = *volume.node(path).unwrap().attr();
    (attr.inode, attr.incarnation)
}

fn finish(volume: &Volume) -> Forgetting {
    volume.view().finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap()
}

fn expunge(volume: &Volume, paths: &[&str]) -> Forgetting {
    let files: Vec<_> = paths.iter().map(|path| file(volume, path)).collect();
    volume.view().expunge(&files).unwrap();
    finish(volume)
}

fn free(volume: &Volume) -> u64 {
    volume.sync().unwrap();
    volume.view().statfs().blocks_free
}

fn is_gone(volume: &Volume, path: &str) -> bool {
    match volume.read(path).as_ref().map_err(Error::root) {
        Err(Error::NotFound) => true,
        other => panic!("{path}: {other:?}"),
    }
}

fn names(volume: &Volume, path: &str) -> Vec<String> {
    let entries = volume.read_dir(path).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// One file is gone, one exists, and both had several names. Nothing is left of their history, and the rest
/// is as it was.
#[test]
fn nothing_is_left_of_a_file() {
    let volume = Volume::memory(64 << 20).unwrap();
    volume.create_dir("d").unwrap();
    volume.write("d/other", "other 1").unwrap();
    event(&volume, "/", "before");
    let before = free(&volume);
    volume.write("d/secret", vec![1; 400_000]).unwrap();
    volume.write("d/plan", vec![1; 400_000]).unwrap();
    event(&volume, "/", "one");
    volume.write("d/plan", vec![2; 300_000]).unwrap();
    volume.rename("d/plan", "scheme").unwrap();
    volume.write("d/other", "other 2").unwrap();
    event(&volume, "d", "two");
    event(&volume, "/", "three");
    volume.rename("scheme", "d/idea").unwrap();
    volume.remove_file("d/secret").unwrap();
    event(&volume, "/", "four");

    let done = expunge(&volume, &["d@one/secret"]);
    assert_eq!((done.expunged, done.expunging), (1, 0));
    assert!(done.blocks >= 98, "{done:?}");
    for gone in ["d@one/secret", "d@two/secret", "d@three/secret", "d/secret@one"] {
        assert!(is_gone(&volume, gone));
    }
    assert_eq!(names(&volume, "d@one"), ["other", "plan"]);
    assert_eq!(volume.read("d@one/plan").unwrap(), vec![1; 400_000]);

    expunge(&volume, &["d/idea"]);
    for gone in ["d@one/plan", ".@three/scheme", "d@four/idea", "d/idea@now"] {
        assert!(is_gone(&volume, gone));
    }
    for (at, there) in [("d@one", vec!["other"]), (".@three", vec!["d"]), ("d@four", vec!["other"])] {
        assert_eq!(names(&volume, at), there, "{at}");
    }
    assert_eq!(volume.read("d@one/other").unwrap(), b"other 1");
    assert_eq!(volume.read("d@two/other").unwrap(), b"other 2");
    assert_eq!(volume.read("d/idea").unwrap(), vec![2; 300_000]);
    // From now on it has a history again.
    event(&volume, "/", "five");
    volume.write("d/idea", "3").unwrap();
    assert_eq!(volume.read("d@five/idea").unwrap(), vec![2; 300_000]);
    assert!(is_gone(&volume, "d@four/idea"));
    volume.remove_file("d/idea").unwrap();
    expunge(&volume, &["d@five/idea"]);
    let after = free(&volume);
    // The blocks that remain are nodes of trees.
    assert!(before - after < 70, "{before} {after}");
    assert_eq!(volume.view().finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap().examined, 0);
}

/// As soon as expunging begins, lists of what is gone leave out the file, and show what its name meant
/// before.
#[test]
fn what_is_gone_is_listed_without_it() {
    let volume = Volume::memory(64 << 20).unwrap();
    let deleted = |directory: &str, recursive: bool| {
        let mut paths = Vec::new();
        let directory = volume.node(directory).unwrap().inode();
        let mut each = |gone: yore_fs::Deleted| {
            paths.push((String::from_utf8(gone.path).unwrap(), gone.facts.size));
            ControlFlow::Continue(())
        };
        volume.view().deleted(directory, recursive, &mut each).unwrap();
        paths.sort();
        paths
    };
    let path = |path: &str, size| (path.to_string(), size);
    volume.create_dir("d").unwrap();
    volume.write("d/other", "other").unwrap();
    volume.write("d/secret", "earlier").unwrap();
    event(&volume, "d", "one");
    volume.remove_file("d/secret").unwrap();
    volume.write("d/secret", "of another").unwrap();
    event(&volume, "d", "two");
    volume.remove_file("d/secret").unwrap();
    volume.remove_file("d/other").unwrap();
    assert_eq!(deleted("d", false), [path("other", 5), path("secret", 10)]);

    volume.view().expunge(&[file(&volume, "d@two/secret")]).unwrap();
    for finished in [false, true] {
        if finished {
            finish(&volume);
        }
        assert_eq!(deleted("d", false), [path("other", 5), path("secret", 7)], "{finished}");
        assert_eq!(deleted("/", true), [path("d/other", 5), path("d/secret", 7)], "{finished}");
    }
}

/// All names of a file go, also those that it does not remember. A name that meant another file before keeps
/// that file.
#[test]
fn all_names_of_a_file_go() {
    let volume = Volume::memory(64 << 20).unwrap();
    for dir in ["a", "b", "c"] {
        volume.create_dir(dir).unwrap();
    }
    volume.write("a/x", "x").unwrap();
    volume.hard_link("a/x", "b/y").unwrap();
    volume.hard_link("a/x", "c/z").unwrap();
    volume.write("b/else", "else").unwrap();
    event(&volume, "/", "one");
    volume.remove_file("b/y").unwrap();
    volume.write("b/y", "another").unwrap();
    event(&volume, "b", "two");
    let done = expunge(&volume, &["a/x"]);
    assert_eq!(done.expunged, 1);
    for gone in ["a@one/x", "b@one/y", "c@one/z"] {
        assert!(is_gone(&volume, gone));
    }
    for (at, there) in [("a@one", vec![]), ("b@one", vec!["else"]), ("c@one", vec![])] {
        assert_eq!(names(&volume, at), there, "{at}");
    }
    assert_eq!(volume.read("b@two/y").unwrap(), b"another");
    assert_eq!(volume.read("c/z").unwrap(), b"x");
    event(&volume, "/", "three");
    volume.remove_file("a/x").unwrap();
    assert_eq!(volume.read("a@three/x").unwrap(), b"x");
    assert_eq!(volume.read("c@three/z").unwrap(), b"x");
}

/// Things change between the request and its end. New events see the file, a name that ends is kept for them,
/// and no earlier event sees it.
#[test]
fn what_comes_meanwhile_has_a_past() {
    let volume = Volume::memory(64 << 20).unwrap();
    volume.create_dir("a").unwrap();
    volume.create_dir("b").unwrap();
    volume.write("a/x", "1").unwrap();
    volume.hard_link("a/x", "b/y").unwrap();
    event(&volume, "/", "one");
    volume.write("a/x", "2").unwrap();
    volume.view().expunge(&[file(&volume, "a/x")]).unwrap();
    for gone in ["a@one/x", "b@one/y"] {
        assert!(is_gone(&volume, gone));
    }
    assert!(names(&volume, "a@one").is_empty() && names(&volume, "b@one").is_empty());
    event(&volume, "/", "two");
    volume.remove_file("a/x").unwrap();
    volume.remove_file("b/y").unwrap();
    event(&volume, "/", "three");
    let check = |when: &str| {
        assert_eq!(volume.read("a@two/x").unwrap(), b"2", "{when}");
        assert_eq!(volume.read("b@two/y").unwrap(), b"2", "{when}");
        assert_eq!(names(&volume, "b@two"), ["y"], "{when}");
        for gone in ["a@one/x", "b@one/y", "a@three/x", "b@three/y"] {
            assert!(is_gone(&volume, gone));
        }
        assert!(names(&volume, "a@one").is_empty() && names(&volume, "b@one").is_empty(), "{when}");
    };
    check("before");
    assert_eq!(finish(&volume).expunged, 1);
    check("after");
}

/// A directory with everything that was ever in it. Files that live elsewhere keep their present.
#[test]
fn a_directory_goes_with_all_that_was_in_it() {
    let volume = Volume::memory(64 << 20).unwrap();
    let before = {
        volume.create_dir_all("keep").unwrap();
        event(&volume, "/", "zero");
        free(&volume)
    };
    volume.create_dir_all("p/q").unwrap();
    volume.write("p/one", vec![1; 100_000]).unwrap();
    volume.write("p/q/two", vec![2; 100_000]).unwrap();
    volume.write("p/gone", vec![3; 100_000]).unwrap();
    event(&volume, "/", "first");
    volume.rename("p/one", "keep/one").unwrap();
    volume.remove_file("p/gone").unwrap();
    event(&volume, "p", "second");
    volume.rename("p", "moved").unwrap();
    volume.write("moved/q/two", "2").unwrap();
    let dir = file(&volume, "moved");
    let all = volume.view().remembered_below(dir.0, dir.1).unwrap();
    let mut paths: Vec<_> = all.iter().map(|one| String::from_utf8_lossy(&one.path).into_owned()).collect();
    paths.sort();
    assert_eq!(paths, ["", "gone", "one", "q", "q/two"]);
    let gone = all.iter().find(|one| one.path == b"gone").unwrap();
    assert_eq!((gone.versions, gone.bytes, gone.in_use), (1, 100_000, false));
    let files: Vec<_> = all.iter().map(|one| (one.inode, one.incarnation)).collect();
    volume.view().expunge(&files).unwrap();
    assert_eq!(finish(&volume).expunged, 5);
    assert_eq!(names(&volume, ".@first"), ["keep"]);
    assert!(names(&volume, "keep@first").is_empty());
    assert_eq!(names(&volume, "."), ["keep", "moved"]);
    assert_eq!(volume.read("moved/q/two").unwrap(), b"2");
    assert_eq!(volume.read("keep/one").unwrap(), vec![1; 100_000]);
    let left: Vec<String> = volume.view().events().unwrap().into_iter().map(|event| event.row.name).collect();
    assert_eq!(left, ["zero", "first"], "its own has seen nothing else");
    volume.remove_dir_all("moved").unwrap();
    volume.remove_file("keep/one").unwrap();
    let after = free(&volume);
    assert!(before - after < 60, "{before} {after}");
}

/// Events that are held or pinned lose nothing; then no file is given up at all.
#[test]
fn held_and_pinned_events_lose_nothing() {
    let volume = Volume::memory(64 << 20).unwrap();
    volume.create_dir("d").unwrap();
    volume.write("d/a", "1").unwrap();
    volume.write("b", "1").unwrap();
    let (one, two) = (event(&volume, "d", "one"), event(&volume, "/", "two"));
    volume.write("d/a", "2").unwrap();
    volume.write("b", "2").unwrap();
    let view = volume.view();
    let (a, b) = (file(&volume, "d/a"), file(&volume, "b"));
    view.hold(one, true).unwrap();
    let refused = view.expunge(&[b, a]);
    assert!(matches!(refused, Err(Error::Held { event }) if event == one.0), "{refused:?}");
    assert_eq!(volume.read("b@two").unwrap(), b"1");
    view.hold(one, false).unwrap();
    let pin = view.pin(two, PinnedBy::Work).unwrap();
    let refused = view.expunge(&[b, a]);
    assert!(matches!(refused, Err(Error::Pinned { event }) if event == two.0), "{refused:?}");
    drop(pin);
    view.hold(one, true).unwrap();
    // This file is not in d.
    view.expunge(&[b]).unwrap();
    assert!(is_gone(&volume, "b@two"));
    assert_eq!(volume.read("d@one/a").unwrap(), b"1");
    let refused = view.expunge(&[(view.root(), 0)]);
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    assert_eq!(finish(&volume).expunged, 1);
    assert!(matches!(view.as_of(one).expunge(&[a]), Err(Error::ReadOnly)));
}

/// Somebody else took a snapshot after it was found out that only a user's own snapshots had seen a file, and
/// before the file was given up: then that snapshot had lost it. Whichever comes first, it has the file.
#[test]
fn what_others_take_meanwhile_loses_nothing() {
    let volume = Volume::memory(64 << 20).unwrap();
    let view = volume.view();
    let [me, other] = [7, 8].map(|uid| User { uid, limits: None });
    let take = |user: &User| {
        let new = NewSnapshot { user: Some(user), ..NewSnapshot::default() };
        view.take_snapshot(view.root(), &new).unwrap().number
    };
    for i in 0..50 {
        let name = format!("file {i}");
        volume.write(&name, name.as_bytes()).unwrap();
        take(&me);
        let (of, both) = (file(&volume, &name), Barrier::new(2));
        let (theirs, outcome) = std::thread::scope(|scope| {
            let theirs = scope.spawn(|| {
                both.wait();
                take(&other)
            });
            both.wait();
            let outcome = view.expunge_taken_by(&[of], me.uid);
            (theirs.join().unwrap(), outcome)
        });
        match outcome {
            Ok(()) => {}
            Err(Error::TakenByOthers { event }) => assert_eq!(event, theirs.0),
            Err(other) => panic!("{other}"),
        }
        let (then, mut content) = (view.as_of(theirs), [0; 16]);
        let read = then.lookup(then.root(), name.as_bytes()).unwrap().read(0, &mut content).unwrap();
        assert_eq!(&content[..read], name.as_bytes());
    }
}

/// A file stays open in the present and in the past: the present one is written and read; the past one is
/// gone, and never shows something else.
#[test]
fn files_that_are_open() {
    let volume = Volume::memory(64 << 20).unwrap();
    volume.write("a", vec![1; 100_000]).unwrap();
    event(&volume, "/", "one");
    let now = OpenOptions::new().read(true).write(true).open(&volume, "a").unwrap();
    now.write_at(&vec![2; 100_000], 0).unwrap();
    let then = OpenOptions::new().read(true).open(&volume, ".@one/a").unwrap();
    let mut byte = [0];
    then.read_at(&mut byte, 50_000).unwrap();
    assert_eq!(byte, [1]);
    volume.remove_file("a").unwrap();
    volume.view().expunge(&[file(&volume, ".@one/a")]).unwrap();
    let read = then.read_at(&mut byte, 50_000);
    assert!(matches!(read.as_ref().map_err(Error::root), Err(Error::NotFound | Error::Stale)), "{read:?}");
    finish(&volume);
    volume.write("b", vec![3; 200_000]).unwrap();
    assert!(then.read_at(&mut byte, 50_000).is_err());
    now.read_at(&mut byte, 50_000).unwrap();
    assert_eq!(byte, [2]);
}

/// The number of an inode is used again: the history of other files under that number stays.
#[test]
fn others_of_the_same_inode_number_stay() {
    let volume = Volume::memory(64 << 20).unwrap();
    let mut seen: Vec<(String, u8, (InodeNo, u32))> = Vec::new();
    for n in 0..40u8 {
        volume.write("f", vec![n; 5000]).unwrap();
        let name = format!("c{n}");
        event(&volume, "/", &name);
        seen.push((name, n, file(&volume, "f")));
        volume.remove_file("f").unwrap();
    }
    let (no, _) = seen[0].2;
    assert!(seen.iter().filter(|(_, _, of)| of.0 == no).count() > 2, "inode numbers are used again");
    for odd in [1, 0] {
        for (at, (_, _, of)) in seen.iter().enumerate() {
            if at % 2 == odd {
                volume.view().expunge(&[*of]).unwrap();
            }
        }
        finish(&volume);
        for (at, (name, n, _)) in seen.iter().enumerate() {
            let path = format!(".@{name}/f");
            match odd == 0 || at % 2 == odd {
                true => assert!(is_gone(&volume, &path)),
                false => assert_eq!(volume.read(&path).unwrap(), vec![*n; 5000]),
            }
        }
    }
}

/// Expunging is interrupted after every few steps, and names are exchanged.
#[test]
fn it_goes_on_where_it_was() {
    let volume = Volume::memory(64 << 20).unwrap();
    volume.write("a", "a").unwrap();
    volume.write("b", "b").unwrap();
    let view = volume.view();
    for n in 0..600 {
        event(&volume, "/", &format!("c{n}"));
        view.rename(view.root(), b"a", view.root(), b"b", RenameMode::Exchange).unwrap();
    }
    let (a, b) = (file(&volume, "a"), file(&volume, "b"));
    view.expunge(&[a]).unwrap();
    let mut calls = 0;
    loop {
        let mut asked = 0;
        let done = view
            .finish_forgetting(&mut |_| {
                asked += 1;
                if asked > 2 {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })
            .unwrap();
        calls += 1;
        for n in [0, 1, 299, 598, 599] {
            let (mine, his) = if n % 2 == 0 { ("a", "b") } else { ("b", "a") };
            assert!(is_gone(&volume, &format!(".@c{n}/{mine}")));
            assert_eq!(volume.read(format!(".@c{n}/{his}")).unwrap(), b"b", "{n}");
            assert_eq!(names(&volume, &format!(".@c{n}")), [his]);
        }
        if done.expunging == 0 {
            break;
        }
    }
    assert!(calls > 1);
    assert_eq!(file(&volume, "b"), b);
}

/// A file with several names remembers one of them. Another name ended after the file was expunged and before
/// its names were given up. It was kept with its old birth, and nothing said any more that there had been
/// other names. So it stayed, and led to an inode that was not there, and the directory could not be listed
/// as of the snapshot.
#[test]
fn a_name_that_ends_while_its_file_goes_is_given_up() {
    type Ends = fn(&Volume, &str, &str);
    let ways: [(&str, Ends); 4] = [
        ("removed", |volume, a, _| volume.remove_file(a).unwrap()),
        ("both removed", |volume, a, b| [a, b].iter().for_each(|name| volume.remove_file(name).unwrap())),
        ("replaced", |volume, a, _| volume.rename("other", a).unwrap()),
        ("exchanged", |volume, a, b| {
            volume.rename_with("other", a, RenameMode::Exchange).unwrap();
            volume.remove_file("other").unwrap();
            volume.rename(b, "moved").unwrap();
        }),
    ];
    for (how, ends) in ways {
        for (first, second) in [("a", "b"), ("b", "a")] {
            for again in [false, true] {
                let volume = Volume::memory(64 << 20).unwrap();
                volume.write("a", "content").unwrap();
                volume.write("other", "other").unwrap();
                volume.hard_link("a", "b").unwrap();
                let then = event(&volume, "/", "then");
                volume.view().expunge(&[file(&volume, "a")]).unwrap();
                if again {
                    event(&volume, "/", "again");
                }
                ends(&volume, first, second);
                event(&volume, "/", "later");
                assert_eq!(names(&volume, ".@then"), ["other"], "{how}: {first}");
                finish(&volume);
                assert_eq!(names(&volume, ".@then"), ["other"], "{how}: {first}, given up");
                if again {
                    assert_eq!(names(&volume, ".@again"), ["a", "b", "other"], "{how}: {first}");
                    assert_eq!(volume.read("a@again").unwrap(), b"content");
                    assert_eq!(volume.read("b@again").unwrap(), b"content");
                }
                assert!(is_gone(&volume, "a@then") && is_gone(&volume, "b@then"));
                assert_eq!(volume.view().events().unwrap()[0].number, then);
            }
        }
    }
}
