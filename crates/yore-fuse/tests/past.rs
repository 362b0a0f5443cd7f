//! Promises: on a mount, `name@time` shows the past to programs that know nothing of it, while the present
//! changes. No listing shows it, and nobody can change it.

mod common;

use common::Mounted;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use yore_fs::NewSnapshot;

/// Runs a program in a directory; returns its output, and whether it succeeded.
fn run(directory: &Path, command: &str) -> (bool, String) {
    let out = Command::new("sh").current_dir(directory).args(["-c", command]).output().unwrap();
    let text = [out.stdout, out.stderr].concat();
    (out.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn ok(directory: &Path, command: &str) -> String {
    let (ended_well, text) = run(directory, command);
    assert!(ended_well, "{command}: {text}");
    text
}

fn snapshot(mounted: &Mounted, name: &str) {
    mounted.view.take_snapshot(mounted.view.root(), &NewSnapshot::named(name)).unwrap();
}

/// The paper's own session: a file is changed and removed, and read as of both times.
#[test]
fn programs_read_the_past() {
    let Some(mounted) = Mounted::new() else { return };
    let dir = mounted.root();
    ok(&dir, "mkdir -p src/lib && echo 'int f(void) { return 1; }' > src/lib/f.c && ln -s f.c src/lib/link");
    ok(&dir, "echo 'int f(void); int main(void) { return f(); }' > src/main.c && chmod 640 src/main.c");
    ok(&dir, "cp /bin/true src/true && for i in $(seq 300); do echo $i > src/lib/n$i; done");
    snapshot(&mounted, "v1");
    ok(
        &dir,
        "echo 'int f(void) { return 2; }' > src/lib/f.c && rm src/main.c src/lib/n1* && mv src/lib src/code",
    );
    snapshot(&mounted, "v2");
    assert_eq!(ok(&dir, "cat src@v1/lib/f.c"), "int f(void) { return 1; }\n");
    assert_eq!(
        ok(&dir, "cat src@v2/code/f.c src/code/f.c@v2 src/code/f.c"),
        "int f(void) { return 2; }\n".repeat(3)
    );
    assert_eq!(
        ok(&dir, "cat src@v1/lib/link"),
        "int f(void) { return 1; }\n",
        "a link leads to its own time"
    );
    assert_eq!(ok(&dir, "ls"), "src\n", "nothing is listed");
    assert_eq!(ok(&dir, "ls src@v1/lib | wc -l").trim(), "302");
    assert_eq!(ok(&dir, "ls src/code | wc -l").trim(), (302 - 111).to_string());
    assert_eq!(ok(&dir, "stat -c '%a %s' src@v1/main.c").trim(), "640 44");
    let differences = ok(&dir, "diff -r src@v1 src@v2; true");
    assert!(
        differences.contains("Only in src@v1: lib") && differences.contains("Only in src@v2: code"),
        "{differences}"
    );
    assert_eq!(ok(&dir, "grep -rl 'return 1' src@v1"), "src@v1/lib/f.c\n");
    assert_eq!(ok(&dir, "find src@v1 -type f | wc -l").trim(), "303");
    ok(&dir, "tar cf - src@v1 | tar tf - > /dev/null && ./src@v1/true");
    assert_eq!(
        ok(&dir, "cd src@v1/lib && cat f.c && cd .. && pwd -P").lines().last().unwrap(),
        format!("{}/src@v1", dir.display())
    );
    // The same name in the same place, and a directory that no longer exists, as of a time written out.
    let events = mounted.view.events().unwrap();
    let (first, second) = (events[0].row.time, events[1].row.time);
    let written = yore_fs::time::print(first, Some(second), &yore_fs::time::TimeZone::UTC);
    let written = match written.starts_with('@') {
        true => written,
        false => format!("{written}Z"),
    };
    assert_eq!(ok(&dir, &format!("cat 'src@{written}/lib/f.c'")), "int f(void) { return 1; }\n");
    assert!(!run(&dir, "ls src@1990-01-01").0, "before there was anything");
    assert!(!run(&dir, "ls src@v3").0, "no such snapshot");
}

#[test]
fn the_past_is_read_only_and_the_present_is_not() {
    let Some(mounted) = Mounted::new() else { return };
    let dir = mounted.root();
    ok(&dir, "mkdir d && echo one > d/a && chmod u+s d/a");
    snapshot(&mounted, "then");
    for command in [
        "echo two > d@then/a",
        "echo two > d@then/b",
        "rm d@then/a",
        "rmdir d@then",
        "mkdir d@then/e",
        "chmod 600 d@then/a",
        "touch d@then/a",
        "ln -s x d@then/l",
        "mv d@then/a d@then/b",
        "setfattr -n user.a -v b d@then/a",
    ] {
        let (ended_well, text) = run(&dir, command);
        assert!(!ended_well, "{command}: {text}");
    }
    let refused = |result: std::io::Result<()>, with: i32| {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(with));
    };
    refused(fs::rename(dir.join("d@then/a"), dir.join("d/b")), libc::EXDEV);
    refused(fs::rename(dir.join("d/a"), dir.join("d@then/b")), libc::EXDEV);
    refused(fs::hard_link(dir.join("d@then/a"), dir.join("d/b")), libc::EXDEV);
    refused(fs::write(dir.join("d@then/a"), "two"), libc::EROFS);
    refused(fs::set_permissions(dir.join("d@then/a"), fs::Permissions::from_mode(0o600)), libc::EROFS);
    // A name with a time is of the past also in a directory of the present. Once, a program that wanted to
    // remove or move it was told that it did not exist, and a file moved to it became a file of that name,
    // which hid the past.
    refused(fs::remove_file(dir.join("d/a@then")), libc::EROFS);
    refused(fs::remove_dir(dir.join("d@then")), libc::EROFS);
    refused(fs::rename(dir.join("d/a@then"), dir.join("d/b")), libc::EXDEV);
    refused(fs::rename(dir.join("d/a"), dir.join("d/a@then")), libc::EXDEV);
    refused(fs::rename(dir.join("d@then"), dir.join("e")), libc::EXDEV);
    refused(fs::remove_file(dir.join("d/never@then")), libc::ENOENT);
    assert_eq!(fs::read(dir.join("d/a@then")).unwrap(), b"one\n");
    ok(&dir, "mv d@then/a d/moved 2>/dev/null; rm -f d/moved; cp d@then/a d/copy");
    assert_eq!(fs::read(dir.join("d/copy")).unwrap(), b"one\n");
    let (now, then) = (fs::metadata(dir.join("d/a")).unwrap(), fs::metadata(dir.join("d@then/a")).unwrap());
    assert_ne!(now.ino(), then.ino());
    assert_eq!(then.mode() & 0o7777, 0o644, "set-id bits have no effect in the past");
    assert_eq!(then.atime(), then.mtime());
    assert_eq!(then.ino(), fs::metadata(dir.join("d@then/a")).unwrap().ino());
}

/// A file held open in the past stays as it was while the present is rewritten, also behind a mapping. Writes
/// to the present never appear in it.
#[test]
fn what_is_open_stays_as_it_was() {
    let Some(mounted) = Mounted::new() else { return };
    let dir = mounted.root();
    let old: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    fs::write(dir.join("f"), &old).unwrap();
    snapshot(&mounted, "then");
    let open = fs::File::open(dir.join("f@then")).unwrap();
    let mut start = vec![0; 1000];
    std::os::unix::fs::FileExt::read_exact_at(&open, &mut start, 0).unwrap();
    let mut file = fs::OpenOptions::new().write(true).open(dir.join("f")).unwrap();
    file.write_all(&vec![9; 3_000_000]).unwrap();
    fs::remove_file(dir.join("f")).unwrap();
    let mut found = vec![0; old.len()];
    std::os::unix::fs::FileExt::read_exact_at(&open, &mut found, 0).unwrap();
    assert!(found == old);
    assert!(fs::read(dir.join("f@then")).unwrap() == old);
    fs::write(dir.join("f"), "another").unwrap();
    snapshot(&mounted, "later");
    assert_eq!(fs::read(dir.join("f@later")).unwrap(), b"another");
    assert!(fs::read(dir.join("f@then")).unwrap() == old);
}

/// Whoever could write to a file could store into it as it was, through a mapping: the kernel asks nobody,
/// and kept the page after the daemon had refused it. So everybody read the forgery, as long as the kernel
/// liked. Now it has to drop the page. A mount that is told about opens refuses to open the file.
#[test]
fn stores_into_the_past_are_dropped() {
    use rustix::mm::{mmap, msync, munmap, MapFlags, MsyncFlags, ProtFlags};
    for close_events in [false, true] {
        let Some(mounted) = Mounted::with(|config| config.close_events = close_events) else { return };
        let path = mounted.path("f@then");
        let was = [b'-'; 4096];
        fs::write(mounted.path("f"), was).unwrap();
        snapshot(&mounted, "then");
        assert_eq!(fs::read(&path).unwrap(), was);
        assert_eq!(fs::File::create(&path).unwrap_err().raw_os_error(), Some(libc::EROFS));
        let opened = fs::OpenOptions::new().read(true).write(true).open(&path);
        if close_events {
            assert_eq!(opened.unwrap_err().raw_os_error(), Some(libc::EROFS));
        } else {
            let file = opened.unwrap();
            // SAFETY: a new mapping at an address that the kernel chooses, of a file that nobody truncates.
            // Nobody uses it after it is unmapped.
            unsafe {
                let rights = ProtFlags::READ | ProtFlags::WRITE;
                let at = mmap(std::ptr::null_mut(), 4096, rights, MapFlags::SHARED, &file, 0).unwrap();
                std::slice::from_raw_parts_mut(at.cast::<u8>(), 6).copy_from_slice(b"forged");
                msync(at, 4096, MsyncFlags::SYNC).unwrap_err();
                munmap(at, 4096).unwrap();
            }
            let end = Instant::now() + Duration::from_secs(60);
            while fs::read(&path).unwrap() != was {
                assert!(Instant::now() < end, "the forgery is still read");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        mounted.end();
    }
}

/// Names with an `@` can be created, and then they are ordinary names.
#[test]
fn names_with_an_at_sign() {
    let Some(mounted) = Mounted::new() else { return };
    let dir = mounted.root();
    ok(&dir, "echo x > a && echo y > a@2h && echo z > user@example.org && echo w > @ && echo v > b@");
    assert_eq!(ok(&dir, "cat a@2h user@example.org @ b@"), "y\nz\nw\nv\n");
    snapshot(&mounted, "s");
    ok(&dir, "rm a@2h @ && mkdir a@2h && rmdir a@2h");
    assert_eq!(ok(&dir, "cat a@2h@s @@s b@@s"), "y\nw\nv\n");
    assert!(!run(&dir, "cat nothing@s").0);
    ok(&dir, "echo now > nothing@s && cat nothing@s");
}
