//! Expunges files by command, on volumes and on mounts: what goes, what stays, who may, and the question
//! beforehand.

use crate::common;

use common::{error_text, fails, ok, put, run, scratch, take, text, yore, Mount, NOBODY};
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt as _;

/// On a volume that is not mounted: a file that is gone, and one that exists; nothing happens without
/// `--yes`.
#[test]
fn files_of_a_volume() {
    let scratch = scratch();
    let volume = text(&scratch.volume);
    put(&scratch, "/d/secret", vec![7; 3 << 20]);
    take(volume, "one");
    ok(["rm", &scratch.on("/d/secret")]);
    ok(["rm", &scratch.on("/d/file")]);
    put(&scratch, "/d/file", "two");
    take(volume, "two");
    let gone = scratch.on("/d/secret@one");
    assert!(fails(2, ["expunge", &gone]).contains("--yes"));
    let found: Value = serde_json::from_str(&ok(["expunge", "-n", "--json", &gone])).unwrap();
    let facts = &found[0];
    assert_eq!((&facts["versions"], &facts["bytes"]), (&1.into(), &(3u64 << 20).into()), "{found}");
    assert_eq!((&facts["in_use"], &facts["type"]), (&false.into(), &"file".into()));
    assert_eq!(ok(["cat", &gone]).len(), 3 << 20);

    let said = ok(["expunge", "-y", &gone]);
    assert!(said.lines().next().unwrap().contains("1 version") && said.contains("MiB freed"), "{said}");
    fails(3, ["cat", &gone]);
    assert!(fails(3, ["expunge", "-y", &gone]).contains("yore deleted"));
    assert_eq!(ok(["ls", &scratch.on("/d@one")]), "file\nsub\n");
    assert!(!ok(["deleted", "-r", &scratch.on("/")]).contains("secret"));
    ok(["check", volume]);

    // The name has led to two files.
    let file = scratch.on("/d/file");
    let output = run(["expunge", "--yes", &file]);
    assert!(output.status.success(), "{}", error_text(&output));
    assert!(error_text(&output).contains("--all-under-name"), "{}", error_text(&output));
    assert_eq!(ok(["cat", &scratch.on("/d/file@one")]), "one");
    fails(3, ["cat", &scratch.on("/d/file@two")]);
    let output = run(["expunge", "--yes", "--all-under-name", &file]);
    assert!(output.status.success() && error_text(&output).is_empty(), "{}", error_text(&output));
    fails(3, ["cat", &scratch.on("/d/file@one")]);
    assert_eq!(ok(["cat", &file]), "two");
    ok(["check", volume]);
}

/// Directories need `-r`. The root directory is refused, and so is a file that a held snapshot has seen; the
/// message names the snapshot.
#[test]
fn directories_and_what_is_refused() {
    let scratch = scratch();
    let volume = text(&scratch.volume);
    put(&scratch, "/d/sub/deep", "deep");
    put(&scratch, "/beside", "beside");
    take(volume, "one");
    ok(["rm", &scratch.on("/d/sub/deep")]);
    let directory = scratch.on("/d");
    assert!(fails(2, ["expunge", "-y", &directory]).contains("-r"));
    assert!(fails(3, ["expunge", "-y", "-r", &scratch.on("/.@one")]).contains("yore forget"));
    assert!(fails(2, ["expunge", "-y", &scratch.on("/")]).contains("yore forget"));
    ok(["hold", &scratch.on("/.@one")]);
    let message = fails(3, ["expunge", "-y", "-r", &directory]);
    let release = message.split("(yore ").nth(1).and_then(|rest| rest.split(')').next()).expect("what to do");
    assert!(message.contains("is held") && release.starts_with("release "), "{message}");
    ok(release.split(' '));
    ok(["hold", &scratch.on("/.@one")]);
    ok(["release", &scratch.on("/.@one")]);
    let named = ok(["expunge", "-n", "-0", "-r", &directory]);
    let mut names: Vec<&str> = named.split_terminator('\0').collect();
    names.sort_unstable();
    let expected = ["", "/file", "/sub", "/sub/deep"].map(|below| format!("{directory}{below}"));
    assert_eq!(names, expected);
    ok(["expunge", "-y", "-r", &directory]);
    assert_eq!(ok(["ls", &scratch.on("/.@one")]), "beside\n");
    assert_eq!(ok(["cat", &scratch.on("/d/file")]), "one");
    ok(["check", volume]);
}

/// Two directories of one command have had the same file. The first one takes it, so the second one covers
/// less than was found. These are no other files, so nothing is refused.
#[test]
fn operands_that_overlap() {
    let scratch = scratch();
    let volume = text(&scratch.volume);
    put(&scratch, "/d/sub/both", "both");
    take(volume, "one");
    ok(["rm", &scratch.on("/d/sub/both")]);
    assert_eq!(ok(["cat", &scratch.on("/d/sub/both@one")]), "both");
    let listed = ok(["expunge", "-y", "-0", "-r", &scratch.on("/d/sub"), &scratch.on("/d")]);
    assert_eq!(listed.split_terminator('\0').filter(|name| name.ends_with("/d/sub/both")).count(), 2);
    fails(3, ["cat", &scratch.on("/d/sub/both@one")]);
    assert_eq!(ok(["cat", &scratch.on("/d/file")]), "one");
    ok(["check", volume]);
}

/// On a mount: files that programs have open or have read are gone, also in paths of snapshots of directories
/// above.
#[test]
fn files_of_a_mount() {
    let scratch = scratch();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let at = |path: &str| mount.directory.join(path);
    fs::write(at("d/secret"), vec![7; 100_000]).unwrap();
    fs::hard_link(at("d/secret"), at("other")).unwrap();
    take(text(&mount.directory), "one");
    fs::write(at("d/secret"), "changed").unwrap();
    take(text(&at("d")), "two");
    let pasts = ["d@one/secret", ".@one/d/secret", ".@one/other", "d@two/secret", "d/secret@one"];
    for past in pasts {
        fs::read(at(past)).unwrap_or_else(|e| panic!("{past}: {e}"));
    }
    assert_eq!(fs::read_dir(at("d@one")).unwrap().count(), 3);
    let open = fs::File::open(at("d@one/secret")).unwrap();
    let said = ok(["expunge", "-y", text(&at("d/secret"))]);
    assert!(said.contains("in the background"), "{said}");
    // The kernel, which has all of it in memory, learns of it from a thread of the daemon a moment later.
    let mut left = Vec::new();
    common::until("the kernel has forgotten it", || {
        let mut byte = [0];
        let is_read = std::os::unix::fs::FileExt::read_at(&open, &mut byte, 50_000).is_ok();
        left = pasts.iter().filter(|past| fs::read(at(past)).is_ok()).map(|past| past.to_string()).collect();
        left.extend(is_read.then(|| "the open file".to_string()));
        let listed = fs::read_dir(at("d@one")).unwrap().count();
        left.extend((listed != 2).then(|| format!("{listed} entries")));
        left.is_empty()
    });
    assert_eq!(fs::read(at("d/secret")).unwrap(), b"changed");
    assert_eq!(fs::read(at("other")).unwrap(), b"changed");
    take(text(&mount.directory), "three");
    fs::write(at("other"), "again").unwrap();
    assert_eq!(fs::read(at("d@three/secret")).unwrap(), b"changed");
    drop(open);
    mount.umount();
    ok(["check", text(&scratch.volume)]);
}

/// A file that a held or mounted snapshot has seen is refused on a mount, too, and the message says which of
/// several snapshots that is.
#[test]
fn refusals_name_the_snapshot() {
    let scratch = scratch();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let at = |path: &str| text(&mount.directory.join(path)).to_string();
    ok(["snapshot", &at("d/sub"), "-n", "other", "--hold"]);
    fs::write(at("secret"), "1").unwrap();
    ok(["snapshot", &at(""), "-n", "one"]);
    ok(["snapshot", &at(""), "-n", "two", "--hold"]);
    fs::rename(at("secret"), at("d/secret")).unwrap();
    fs::write(at("d/secret"), "2").unwrap();
    // It has seen the file in a directory that is not above its present place.
    let message = fails(3, ["expunge", "-y", &at("d/secret")]);
    let release = message.split("(yore ").nth(1).and_then(|rest| rest.split(')').next()).expect("what to do");
    let shown = ok(["forget", "--dry-run", &at(".@one")]);
    assert!(message.contains("is held") && !shown.contains("two"), "{message}");
    ok(release.split(' '));
    let directory = scratch.path("then");
    fs::create_dir(&directory).unwrap();
    ok(["mount", text(&scratch.volume), text(&directory), "--at", "two"]);
    let message = fails(3, ["expunge", "-y", &at("d/secret")]);
    assert!(message.contains(&format!("yore umount {}", directory.display())), "{message}");
    ok(["umount", text(&directory)]);
    ok(["expunge", "-y", &at("d/secret")]);
    assert!(fs::read(at(".@two/secret")).is_err());
    mount.umount();
    ok(["check", text(&scratch.volume)]);
}

/// The user who owned all of it may, and nobody else but root and the user who mounted the volume; in
/// snapshots that others took only if the mount allows it.
#[test]
fn who_may() {
    for options in ["allow_other", "allow_other,expunge_others"] {
        who_may_with(options);
    }
}

fn who_may_with(options: &str) {
    let scratch = scratch();
    let Some(mount) = Mount::new(&scratch, &["-o", options]) else { return };
    let world = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(scratch.path(""), world).unwrap();
    let (mine, was_not) = (mount.directory.join("d/file"), mount.directory.join("d/other"));
    let chown = |path| std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    chown(&mine);
    fs::write(&was_not, "root's").unwrap();
    take(text(&mount.directory), "one");
    chown(&was_not);
    fs::write(&mine, "more").unwrap();
    let as_nobody = |path| {
        yore().args(["expunge", "-y", text(path)]).uid(NOBODY).gid(NOBODY).current_dir("/").output().unwrap()
    };
    if yore().arg("--version").uid(NOBODY).current_dir("/").status().ok().and_then(|s| s.code()) != Some(0) {
        eprintln!("SKIPPED: others cannot start this program");
        return;
    }
    let output = as_nobody(&was_not);
    assert_eq!(output.status.code(), Some(3), "{}", error_text(&output));
    assert!(error_text(&output).contains("in every version"), "{}", error_text(&output));
    let output = as_nobody(&mine);
    if !options.contains("expunge_others") {
        let message = error_text(&output);
        assert_eq!(output.status.code(), Some(3), "{message}");
        assert!(message.contains("@one") && message.contains("expunge_others"), "{message}");
        assert!(fs::read(mount.directory.join("d@one/file")).is_ok());
        mount.umount();
        return;
    }
    assert!(output.status.success(), "{}", error_text(&output));
    assert!(fs::read(mount.directory.join("d@one/file")).is_err());
    assert_eq!(fs::read(mount.directory.join("d@one/other")).unwrap(), b"root's");
    mount.umount();
}

/// How often texts are in the image.
fn in_image(volume: &str, texts: &[&str]) -> usize {
    let image = fs::read(volume).unwrap();
    let count = |text: &&str| image.windows(text.len()).filter(|window| *window == text.as_bytes()).count();
    texts.iter().map(count).sum()
}

/// Expunging left content, names and targets of links in the image, where everybody who has the image finds
/// them; `--shred` leaves nothing, on a volume and on a mount.
#[test]
fn shredded() {
    let scratch = scratch();
    let volume = text(&scratch.volume);
    let all = ["SECRET-CONTENT", "SECRET-SHORT", "SECRET-NAME", "SECRET-TARGET"];
    put(&scratch, "/d/SECRET-NAME-1", "SECRET-CONTENT ".repeat(10_000));
    put(&scratch, "/d/SECRET-NAME-2", "SECRET-SHORT");
    take(volume, "one");
    ok(["rm", &scratch.on("/d/SECRET-NAME-1"), &scratch.on("/d/SECRET-NAME-2")]);
    let [first, second] = [1, 2].map(|n| scratch.on(&format!("/d/SECRET-NAME-{n}@one")));
    ok(["expunge", "-y", &first]);
    assert!(in_image(volume, &all[..3]) > 0, "nothing is there that could be erased");
    ok(["expunge", "-y", "--shred", &second]);
    assert_eq!(in_image(volume, &all), 0);
    ok(["check", volume]);
    fails(2, ["expunge", "-n", "--shred", &scratch.on("/d/file")]);

    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let path = |name: &str| text(&mount.directory.join("d").join(name)).to_string();
    fs::write(path("SECRET-NAME-1"), "SECRET-CONTENT ".repeat(10_000)).unwrap();
    fs::write(path("SECRET-NAME-2"), "SECRET-SHORT").unwrap();
    std::os::unix::fs::symlink("SECRET-TARGET".repeat(50), path("SECRET-NAME-3")).unwrap();
    take(text(&mount.directory), "two");
    for n in 1..4 {
        fs::remove_file(path(&format!("SECRET-NAME-{n}"))).unwrap();
    }
    let then: Vec<String> = (1..4).map(|n| path(&format!("SECRET-NAME-{n}@two"))).collect();
    let command = ["expunge", "-y", "--shred"].into_iter().chain(then.iter().map(String::as_str));
    ok(command);
    assert_eq!(in_image(volume, &all), 0);
    assert_eq!(fs::read_to_string(path("file")).unwrap(), fs::read_to_string(path("file@two")).unwrap());
    mount.umount();
    assert_eq!(in_image(volume, &all), 0);
    ok(["check", volume]);
}
