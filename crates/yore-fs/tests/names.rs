//! What `name@last`, `name@-N` and `name@NAME` mean.

use yore_fs::time::{parse, TimeZone, When};
use yore_fs::{Error, Number, Policy, Timestamp, Versioning, View, Volume};

fn volume() -> Volume {
    Volume::memory(64 << 20).unwrap()
}

fn inode(volume: &Volume, path: &str) -> yore_fs::InodeNo {
    volume.node(path).unwrap().inode()
}

fn cut(volume: &Volume, path: &str, name: &str) -> Number {
    volume.view().snapshot(inode(volume, path), name, false, false).unwrap().number
}

fn when(text: &str) -> When {
    parse(text, Timestamp { seconds: 1_795_183_530, nanos: 0 }, &TimeZone::UTC).unwrap()
}

/// The cut that a time means in a directory.
fn meant(view: &View, volume: &Volume, path: &str, text: &str) -> Result<Number, Error> {
    view.cut_for(inode(volume, path), &when(text))
}

/// `@last` and `@-2` are the last snapshot and the one before, of those that show the directory: its own and those of directories above.
/// Points of undo and snapshots of other directories are not counted, and forgotten ones no more.
#[test]
fn snapshots_of_a_directory_are_counted_from_the_last() {
    let volume = volume();
    volume.create_dir_all("a/b").unwrap();
    volume.create_dir("other").unwrap();
    let view = volume.view();
    assert!(matches!(meant(view, &volume, "a", "last"), Err(Error::NotFound)), "there is none");
    let all = [cut(&volume, "/", ""), cut(&volume, "a", ""), cut(&volume, "a/b", ""), cut(&volume, "/", "")];
    cut(&volume, "other", "");
    view.undo_point(inode(&volume, "a"), "before-rollback-1", false, false).unwrap();
    let of = |path: &str| -> Vec<Number> {
        let found = (1..9).map(|n| meant(view, &volume, path, &format!("-{n}")));
        found.take_while(|found| !matches!(found, Err(Error::NotFound))).map(Result::unwrap).collect()
    };
    assert_eq!(of("/"), [all[3], all[0]]);
    assert_eq!(of("a"), [all[3], all[1], all[0]]);
    assert_eq!(of("a/b"), [all[3], all[2], all[1], all[0]]);
    assert_eq!(meant(view, &volume, "a/b", "last").unwrap(), all[3]);
    view.forget(&[all[2]]).unwrap();
    assert_eq!(of("a/b"), [all[3], all[1], all[0]]);
    // Within the past they are counted from there.
    let then = view.as_of(all[1]);
    assert_eq!(then.cut_for(inode(&volume, "a"), &when("last")).unwrap(), all[1]);
    assert_eq!(then.cut_for(inode(&volume, "a"), &when("-2")).unwrap(), all[0]);
}

/// Of a file its own versions and the snapshots of directories are counted together, under the name that it had, also where each save puts
/// another file there; that it was removed is none of them.
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
    cut(&volume, "d", "");
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
