//! What `name@last`, `name@-N` and `name@NAME` mean.

use yore_fs::time::{parse, TimeZone, When};
use yore_fs::{Error, EventNo, NewSnapshot, Policy, Timestamp, User, Versioning, View, Volume};

fn volume() -> Volume {
    Volume::memory(64 << 20).unwrap()
}

fn inode(volume: &Volume, path: &str) -> yore_fs::InodeNo {
    volume.node(path).unwrap().inode()
}

fn event(volume: &Volume, path: &str, name: &str) -> EventNo {
    volume.view().take_snapshot(inode(volume, path), &NewSnapshot::named(name)).unwrap().number
}

fn when(text: &str) -> When {
    parse(text, Timestamp { seconds: 1_795_183_530, nanos: 0 }, &TimeZone::UTC).unwrap()
}

/// The event that a time means in a directory.
fn resolve(view: &View, volume: &Volume, path: &str, text: &str) -> Result<EventNo, Error> {
    view.event_for(inode(volume, path), &when(text))
}

/// `@last` and `@-2` are the last snapshot and the one before, among those that show the directory: its own
/// and those of directories above. Undo points and snapshots of other directories do not count, and neither
/// do forgotten ones.
#[test]
fn snapshots_of_a_directory_are_counted_from_the_last() {
    let volume = volume();
    volume.create_dir_all("a/b").unwrap();
    volume.create_dir("other").unwrap();
    let view = volume.view();
    assert!(matches!(resolve(view, &volume, "a", "last"), Err(Error::NotFound)), "there is none");
    let all = [
        event(&volume, "/", ""),
        event(&volume, "a", ""),
        event(&volume, "a/b", ""),
        event(&volume, "/", ""),
    ];
    event(&volume, "other", "");
    view.take_snapshot(
        inode(&volume, "a"),
        &NewSnapshot { undo: true, ..NewSnapshot::named("before-rollback-1") },
    )
    .unwrap();
    let of = |path: &str| -> Vec<EventNo> {
        let found = (1..9).map(|n| resolve(view, &volume, path, &format!("-{n}")));
        found.take_while(|found| !matches!(found, Err(Error::NotFound))).map(Result::unwrap).collect()
    };
    assert_eq!(of("/"), [all[3], all[0]]);
    assert_eq!(of("a"), [all[3], all[1], all[0]]);
    assert_eq!(of("a/b"), [all[3], all[2], all[1], all[0]]);
    assert_eq!(resolve(view, &volume, "a/b", "last").unwrap(), all[3]);
    view.forget(&[all[2]]).unwrap();
    assert_eq!(of("a/b"), [all[3], all[1], all[0]]);
    // As of an event they are counted from there.
    let then = view.as_of(all[1]);
    assert_eq!(then.event_for(inode(&volume, "a"), &when("last")).unwrap(), all[1]);
    assert_eq!(then.event_for(inode(&volume, "a"), &when("-2")).unwrap(), all[0]);
}

/// For a file, its own versions and the snapshots of directories are counted together, under the name that it
/// had, even if each save puts another file there. Its removal does not count.
#[test]
fn versions_of_a_file_are_counted_with_snapshots() {
    let volume = volume();
    let view = volume.view();
    let close = Policy { versioning: Some(Versioning::Close), ..Policy::default() };
    volume.create_dir("d").unwrap();
    view.set_policy(inode(&volume, "d"), &close).unwrap();
    let then =
        |text: &str| volume.read(format!("d/letter@{text}")).map(|bytes| String::from_utf8(bytes).unwrap());
    volume.write("d/letter", "one").unwrap();
    volume.write("d/letter", "two").unwrap();
    event(&volume, "d", "");
    for text in ["three", "four"] {
        volume.write("d/.letter.tmp", text).unwrap();
        volume.rename("d/.letter.tmp", "d/letter").unwrap();
    }
    assert_eq!(then("last").unwrap(), "four");
    assert_eq!(then("-1").unwrap(), "four");
    assert_eq!(then("-2").unwrap(), "three");
    let earlier: Vec<String> = (3..9).map_while(|n| then(&format!("-{n}")).ok()).collect();
    assert_eq!(earlier.iter().filter(|text| *text == "one").count(), 1, "{earlier:?}");
    assert_eq!(earlier.last().map(String::as_str), Some("one"), "{earlier:?}");
    assert!(
        earlier.len() >= 2 && earlier[..earlier.len() - 1].iter().all(|text| text == "two"),
        "{earlier:?}"
    );
    volume.remove_file("d/letter").unwrap();
    assert_eq!(then("last").unwrap(), "four", "that it was removed is no version");
    assert!(then("-99").is_err());
}

/// Two directories may each have a `step-1`; behind a path, the name means the snapshot of the nearest
/// directory above that has one. Names used to belong to the whole volume, so the second one was refused.
#[test]
fn each_directory_has_names_of_its_own() {
    let volume = volume();
    for agent in ["agent1", "agent2"] {
        volume.create_dir_all(format!("{agent}/deep")).unwrap();
        volume.write(format!("{agent}/deep/file"), format!("{agent} at step 1")).unwrap();
        event(&volume, agent, "step-1");
        volume.write(format!("{agent}/deep/file"), "later").unwrap();
    }
    let read = |path: &str| String::from_utf8(volume.read(path).unwrap()).unwrap();
    for agent in ["agent1", "agent2"] {
        let then = format!("{agent} at step 1");
        assert_eq!(read(&format!("{agent}@step-1/deep/file")), then);
        assert_eq!(read(&format!("{agent}/deep@step-1/file")), then);
        assert_eq!(read(&format!("{agent}/deep/file@step-1")), then);
        assert_eq!(read(&format!("{agent}/.@step-1/deep/file")), then);
    }
    let view = volume.view();
    assert!(matches!(resolve(view, &volume, "/", "step-1"), Err(Error::NotFound)), "none is of the root");
    let again = view.take_snapshot(inode(&volume, "agent1"), &NewSnapshot::named("step-1"));
    assert!(matches!(again, Err(Error::Exists)), "{again:?}");
    // A directory above has one, too: below agent1 the name still means agent1's own, and elsewhere the one
    // above.
    let all = event(&volume, "/", "step-1");
    volume.write("agent1/deep/file", "last").unwrap();
    assert_eq!(read("agent1/deep/file@step-1"), "agent1 at step 1");
    assert_eq!(read("agent1@step-1/deep/file"), "agent1 at step 1");
    assert_eq!(read(".@step-1/agent1/deep/file"), "later");
    assert_eq!(resolve(view, &volume, "/", "step-1").unwrap(), all);
    // When it is forgotten, the name means the one above.
    let own = resolve(view, &volume, "agent1", "step-1").unwrap();
    view.forget(&[own]).unwrap();
    assert_eq!(resolve(view, &volume, "agent1", "step-1").unwrap(), all);
    // A directory that was moved since is found in the snapshot of where it was.
    volume.rename("agent2/deep", "moved").unwrap();
    view.forget(&[all]).unwrap();
    assert_eq!(read("moved/file@step-1"), "agent2 at step 1");
    // A directory that takes the place of one that is gone has its own names.
    volume.remove_dir_all("agent1").unwrap();
    volume.create_dir("agent1").unwrap();
    event(&volume, "agent1", "step-1");
    volume.close().unwrap();
}

/// A snapshot can be renamed and described later; the old name is free then, and means nothing.
#[test]
fn a_snapshot_is_renamed() {
    let volume = volume();
    volume.write("file", "then").unwrap();
    let number = event(&volume, "/", "old");
    let other = event(&volume, "/", "other");
    volume.write("file", "now").unwrap();
    let view = volume.view();
    let row = view.describe(number, Some("new"), Some("what went out")).unwrap().row;
    assert_eq!((row.name.as_str(), row.more.description.as_str()), ("new", "what went out"));
    assert_eq!(volume.read("file@new").unwrap(), b"then");
    assert!(volume.read("file@old").is_err());
    assert!(matches!(view.describe(number, Some("other"), None), Err(Error::Exists)));
    assert!(matches!(view.describe(number, Some("monday"), None), Err(Error::Invalid { .. })));
    assert_eq!(view.describe(number, None, Some("")).unwrap().row.more.description, "");
    event(&volume, "/", "old");
    assert_eq!(view.describe(other, Some(""), None).unwrap().row.name, "");
    assert!(matches!(resolve(view, &volume, "/", "other"), Err(Error::NotFound)));
    // Names can be exchanged through a third one, any number of times.
    for i in 0..200 {
        view.describe(number, Some(&format!("name {i}")), None).unwrap();
    }
    assert_eq!(resolve(view, &volume, "/", "name 199").unwrap(), number);
    let undo = view
        .take_snapshot(view.root(), &NewSnapshot { undo: true, ..NewSnapshot::named("before-rollback-9") })
        .unwrap()
        .number;
    assert!(view.describe(undo, Some("mine"), None).is_err(), "its name says what can be undone");
    let user = User { uid: 7, limits: None };
    view.hold_because(Some(&user), number, true, "for the audit").unwrap();
    let row = view.kept_event(number).unwrap().row;
    assert_eq!((row.held, row.more.hold_reason.as_str(), row.more.held_by), (true, "for the audit", Some(7)));
    view.hold(number, false).unwrap();
    let row = view.kept_event(number).unwrap().row;
    assert_eq!((row.held, row.more.hold_reason.as_str(), row.more.held_by), (false, "", None));
}

/// Imported snapshots have the dates at which they were taken, in order, and are events of the whole volume.
#[test]
fn imported_snapshots_have_their_dates() {
    let volume = volume();
    volume.create_dir("d").unwrap();
    let view = volume.view();
    let at = |seconds| Some(Timestamp { seconds, nanos: 0 });
    let take = |path: &str, time| {
        let new = NewSnapshot { time, ..NewSnapshot::default() };
        view.take_snapshot(inode(&volume, path), &new)
    };
    for (seconds, content) in [(1_000_000_000, "first"), (1_100_000_000, "second")] {
        volume.write("file", content).unwrap();
        assert_eq!(take("/", at(seconds)).unwrap().row.time, at(seconds).unwrap());
    }
    assert!(matches!(take("/", at(1_100_000_000)), Err(Error::OutOfOrder { .. })));
    assert!(matches!(take("/", at(1_050_000_000)), Err(Error::OutOfOrder { .. })));
    assert!(matches!(take("/", at(i64::MAX)), Err(Error::OutOfOrder { .. })));
    assert!(matches!(take("d", at(1_200_000_000)), Err(Error::Invalid { .. })));
    volume.write("file", "now").unwrap();
    assert_eq!(volume.read("file@2001-12-31").unwrap(), b"first");
    assert_eq!(volume.read("file@2005").map_err(|_| ()), Err(()), "not a time");
    assert_eq!(volume.read("file@2005-12-31").unwrap(), b"second");
    assert!(take("/", None).unwrap().row.time > at(1_700_000_000).unwrap());
}
