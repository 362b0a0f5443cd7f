//! Names that have an `@` of their own: a name that exists wins over a time, also in the past, and also where
//! the past is put back or compared. On mounts and on volumes that are not mounted.

use crate::common;

use common::trees::{both, read, remove, write};
use common::{error_text, ok, run, take, text, yore, Mount, Scratch, NOBODY};
use std::fs;
use std::os::unix::fs::{chown, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;

/// Makes a directory.
fn make(scratch: &Scratch, path: &str) {
    match scratch.path("mnt").exists() {
        true => fs::create_dir(scratch.path("mnt").join(&path[1..])).unwrap(),
        false => drop(ok(["mkdir", &scratch.on(path)])),
    }
}

fn is_there(scratch: &Scratch, path: &str) -> bool {
    match scratch.path("mnt").exists() {
        true => scratch.path("mnt").join(&path[1..]).exists(),
        false => run(["stat", &scratch.on(path)]).status.success(),
    }
}

/// The text after the `@` of a file's name was taken for a time, since the file was below a directory of the
/// past: `restore` put its content into the file that is called as what stands before the `@`, or made that
/// one.
#[test]
fn a_file_comes_back_under_its_own_name() {
    both(&[], |scratch, on| {
        write(scratch, "/d/getty", "other");
        write(scratch, "/d/getty@tty1.service", "one");
        ok(["snapshot", &on("/d"), "-n", "then"]);
        write(scratch, "/d/getty", "other, changed");
        write(scratch, "/d/getty@tty1.service", "two");
        for path in ["/d@then/getty@tty1.service", "/d/.@then/getty@tty1.service"] {
            let patch = ok(["diff", "-p", &on(path)]);
            assert!(patch.contains("-one") && patch.contains("+two"), "{patch}");
        }
        ok(["restore", &on("/d@then/getty@tty1.service")]);
        assert_eq!(read(scratch, "/d/getty"), "other, changed");
        assert_eq!(read(scratch, "/d/getty@tty1.service"), "one");
        // There is nothing now of what stands before the `@`.
        remove(scratch, "/d/getty");
        write(scratch, "/d/getty@tty1.service", "three");
        ok(["restore", &on("/d/.@then/getty@tty1.service")]);
        assert!(!is_there(scratch, "/d/getty"));
        assert_eq!(read(scratch, "/d/getty@tty1.service"), "one");
        ok(["restore", &on("/d@then/getty@tty1.service"), "--to", &on("/d/sub")]);
        assert!(!is_there(scratch, "/d/sub/getty"));
        assert_eq!(read(scratch, "/d/sub/getty@tty1.service"), "one");
        // A name with an `@` of its own and a time, and one whose time is not that of its directory.
        write(scratch, "/d/getty@tty1.service", "four");
        ok(["restore", &on("/d/getty@tty1.service@then")]);
        assert_eq!(read(scratch, "/d/getty@tty1.service"), "one");
        assert!(!is_there(scratch, "/d/getty"));
        ok(["snapshot", &on("/d"), "-n", "later"]);
        ok(["restore", &on("/d@later/getty@then")]);
        assert_eq!(read(scratch, "/d/getty"), "other");
    });
}

/// The same of a directory: it was put into another one, and what it is now was not found.
#[test]
fn a_directory_is_its_own() {
    both(&[], |scratch, on| {
        for name in ["/d/mail", "/d/mail@host"] {
            make(scratch, name);
            write(scratch, &format!("{name}/letter"), name);
        }
        ok(["snapshot", &on("/d"), "-n", "then"]);
        for name in ["/d/mail", "/d/mail@host"] {
            write(scratch, &format!("{name}/letter"), "changed");
        }
        for past in ["/d@then/mail@host", "/d/.@then/mail@host"] {
            let patch = ok(["diff", "-p", &on(past)]);
            assert!(patch.contains("-/d/mail@host") && patch.contains("+changed"), "{patch}");
            ok(["restore", &on(past)]);
            assert_eq!(read(scratch, "/d/mail/letter"), "changed");
            assert_eq!(read(scratch, "/d/mail@host/letter"), "/d/mail@host");
            write(scratch, "/d/mail@host/letter", "changed");
        }
        ok(["rollback", &on("/d@then/mail@host")]);
        assert_eq!(read(scratch, "/d/mail/letter"), "changed");
        assert_eq!(read(scratch, "/d/mail@host/letter"), "/d/mail@host");
        write(scratch, "/d/mail@host/letter", "changed");
        ok(["restore", &on("/d@then/mail@host/letter")]);
        assert_eq!(read(scratch, "/d/mail/letter"), "changed");
        assert_eq!(read(scratch, "/d/mail@host/letter"), "/d/mail@host");
    });
}

/// A command listed a directory of the past to learn whether a name in it has a time. So a user who may only
/// search that directory was refused what lies below it, though the directory below is the user's own.
/// Promises that the right to search it is enough, whether the name has a time or an `@` of its own.
#[test]
fn who_may_search_need_not_list() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: needs root");
    }
    let scratch = Scratch::new();
    let Some(mount) = Mount::new(&scratch, &["-o", "allow_other"]) else { return };
    let homes = mount.directory.join("homes");
    let own = homes.join("user@host");
    fs::create_dir_all(&own).unwrap();
    chown(&own, Some(NOBODY), Some(NOBODY)).unwrap();
    for (path, mode) in
        [(&scratch.path(""), 0o755), (&mount.directory, 0o755), (&homes, 0o711), (&own, 0o755)]
    {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let volume = text(&mount.directory);
    take(volume, "then");
    fs::write(own.join("letter"), "one").unwrap();
    take(volume, "later");
    fs::write(own.join("answer"), "two").unwrap();
    for (path, added) in [("user@host", vec!["answer", "letter"]), ("user@host@later", vec!["answer"])] {
        let path = format!("{}@then/{path}", text(&homes));
        let diff = yore().args(["diff", "--json", &path]).uid(NOBODY).gid(NOBODY).current_dir("/").output();
        let diff = diff.unwrap();
        assert!(diff.status.success(), "{path}: {}", error_text(&diff));
        let rows: serde_json::Value = serde_json::from_slice(&diff.stdout).unwrap();
        let mut found: Vec<_> =
            rows.as_array().unwrap().iter().map(|row| row["path"].as_str().unwrap()).collect();
        found.sort_unstable();
        assert_eq!(found, added, "{path}");
    }
    mount.umount();
}
