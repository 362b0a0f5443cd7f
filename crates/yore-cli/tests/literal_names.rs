//! Names that have an `@` of their own: a name that exists wins over a time, also in the past, and also where
//! the past is put back or compared. On mounts and on volumes that are not mounted.

use crate::common;

use common::trees::{both, read, remove, write};
use common::{ok, run, Scratch};
use std::fs;

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
