//! Logs of files and directories.

use super::*;
use yore_fs::Error;

/// `path size first-last what`, with snapshots counted from one, and `*` for a state that still holds.
fn log_lines(volume: &Volume, directory: &str, name: &str) -> Vec<String> {
    let numbers: Vec<EventNo> =
        volume.view().events().unwrap().into_iter().map(|event| event.number).collect();
    let at = |seen: &yore_fs::SeenBy| numbers.iter().position(|n| *n == seen.event.number).unwrap() + 1;
    let line = |l: Logged| {
        let span = match (&l.first, &l.last) {
            (Some(first), Some(last)) => format!("{}-{}", at(first), at(last)),
            _ => "none".to_string(),
        };
        let mut what: Vec<&str> = (l.what - What::TIME - What::LINKS).iter_names().map(|(n, _)| n).collect();
        what.extend(l.renamed.then_some("renamed"));
        what.extend(l.replaced.then_some("replaced"));
        what.extend(l.oldest.then_some("oldest"));
        let path = l.path.as_deref().map_or("?".into(), text);
        format!("{path} {} {span}{} {}", l.facts.size, if l.current { "*" } else { "" }, what.join(","))
    };
    log_of(volume, directory, name).unwrap().into_iter().map(line).collect()
}

/// The log of a file has the states that snapshots have seen and no others, each once, with the first and the
/// last snapshot. It follows the file when the file, or a directory above it, is renamed.
#[test]
fn a_log_follows_renames() {
    let volume = small();
    volume.create_dir_all("d/e").unwrap();
    volume.write("d/a", "1").unwrap();
    event(&volume, "/"); // 1
    event(&volume, "d"); // 2
    volume.append("d/a", "2").unwrap();
    event(&volume, "d/e"); // 3: has not seen it
    volume.append("d/a", "3").unwrap();
    event(&volume, "d"); // 4
    volume.rename("d/a", "d/e/b").unwrap();
    event(&volume, "d/e"); // 5
    event(&volume, "/"); // 6
    volume.rename("d", "x").unwrap();
    event(&volume, "/"); // 7
    volume.set_permissions("x/e/b", 0o600).unwrap();
    volume.append("x/e/b", "4").unwrap();
    let expected = [
        "/x/e/b 4 none* CONTENT,METADATA",
        "/x/e/b 3 5-7 renamed",
        // The path of the event's root is the one that it has now.
        "/x/a 3 4-4 CONTENT",
        "/x/a 1 1-2 oldest",
    ];
    same(log_lines(&volume, "x/e", "b"), &expected);
    // One more link does not make another state.
    volume.hard_link("x/e/b", "again").unwrap();
    event(&volume, "/"); // 8
    volume.remove_file("again").unwrap();
    let mut expected = expected;
    expected[0] = "/x/e/b 4 8-8* CONTENT,METADATA";
    same(log_lines(&volume, "x/e", "b"), &expected);
    // A log as of a snapshot begins there. The log of a name that is gone is the log of the file that it
    // meant last.
    same(log_lines(&volume, "x@now/e", "b"), &expected);
    volume.remove_file("x/e/b").unwrap();
    expected[0] = "/x/e/b 4 8-8 CONTENT,METADATA";
    same(log_lines(&volume, "x/e", "b"), &expected);
    let nothing = log_of(&volume, "x/e", "never").unwrap_err();
    assert!(matches!(nothing, Error::NotFound));
}

/// Editors write a new file and rename it over the old one. The log goes on with the old file, even if a
/// snapshot has seen the temporary file; it does not go on with what the temporary name meant before.
#[test]
fn a_log_goes_through_saves() {
    let volume = small();
    volume.create_dir("d").unwrap();
    volume.write("d/f", "1").unwrap();
    event(&volume, "d"); // 1
    volume.write("d/.f.tmp", "22").unwrap();
    volume.rename("d/.f.tmp", "d/f").unwrap();
    event(&volume, "d"); // 2
    volume.write("d/.f.tmp", "333").unwrap();
    event(&volume, "d"); // 3
    volume.rename("d/.f.tmp", "d/f").unwrap();
    event(&volume, "d"); // 4
    volume.write("d/.f.tmp", "4444").unwrap();
    volume.rename("d/.f.tmp", "d/f").unwrap();
    let expected = [
        "/d/f 4 none* replaced",
        "/d/f 3 4-4 renamed",
        "/d/.f.tmp 3 3-3 replaced",
        "/d/f 2 2-3 replaced",
        "/d/f 1 1-1 oldest",
    ];
    same(log_lines(&volume, "d", "f"), &expected);
}

/// The log of a directory has a state for each snapshot before which names came or went, and one before which
/// its mode changed.
#[test]
fn logs_of_directories() {
    let volume = small();
    volume.create_dir("d").unwrap();
    event(&volume, "/");
    volume.write("d/a", "").unwrap();
    event(&volume, "/");
    volume.append("d/a", "more").unwrap();
    event(&volume, "/");
    volume.set_permissions("d", 0o700).unwrap();
    let expected = ["/d 1 none* METADATA", "/d 1 2-3 CONTENT", "/d 0 1-1 oldest"];
    same(log_lines(&volume, "/", "d"), &expected);
    same(log_lines(&volume, "d", ""), &expected);
    same(log_lines(&volume, "/", ""), &["/ 1 1-3* oldest"]);
}
