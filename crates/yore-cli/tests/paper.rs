//! Sessions on a mount, command by command, that a file system with time in its names should pass: those in
//! the paper on ext3cow (Peterson and Burns, "Ext3cow: a time-shifting file system for regulatory
//! compliance", Figures 1, 2 and 4, and the rules for names in between), 150 versions of a file, each opened,
//! and the ways in which editors save.

use crate::common;

use common::{ok, text, Mount, Scratch};
use serde_json::Value;
use std::fs;
use std::io::{Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

/// A user at a shell in a directory, who knows `yore` and the times noted so far.
struct Shell {
    directory: PathBuf,
    notes: Vec<(String, String)>,
}

impl Shell {
    fn new(directory: &Path) -> Shell {
        Shell { directory: directory.to_path_buf(), notes: Vec::new() }
    }

    /// Whether a line succeeds, and its output.
    fn run(&self, line: &str) -> (bool, String) {
        let yore = Path::new(env!("CARGO_BIN_EXE_yore")).parent().unwrap();
        let path = format!("{}:{}", text(yore), std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(&self.directory).env("PATH", path).stdin(Stdio::null());
        let output = shell
            .envs(self.notes.iter().map(|(name, value)| (name, value)))
            .output()
            .expect("there is a shell");
        let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
        said.push_str(&String::from_utf8_lossy(&output.stderr));
        (output.status.success(), said)
    }

    /// A line that must succeed, and print this.
    #[track_caller]
    fn prints(&self, line: &str, expected: &str) {
        let (succeeded, said) = self.run(line);
        assert!(succeeded && said == expected, "$ {line}\n{said}expected:\n{expected}");
    }

    /// A line that must fail, with this in its message.
    #[track_caller]
    fn refuses(&self, line: &str, why: &str) {
        let (succeeded, said) = self.run(line);
        assert!(!succeeded && said.contains(why), "$ {line}\n{said}expected: {why}");
    }

    /// Stores the output of a line as a variable for the next ones, and returns it.
    #[track_caller]
    fn note(&mut self, name: &str, line: &str) -> String {
        let (succeeded, said) = self.run(line);
        assert!(succeeded, "$ {line}\n{said}");
        let value = said.trim_end().to_string();
        self.notes.push((name.to_string(), value.clone()));
        value
    }
}

/// Nanoseconds since 1970, by the clock that gives snapshots their times.
fn clock() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()
}

/// Such a time as seconds since 1970, to the nanosecond.
fn seconds(nanos: u128) -> String {
    format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}

/// When the snapshots of a directory were taken, in their order.
fn taken(directory: &Path) -> Vec<u128> {
    let rows: Vec<Value> = serde_json::from_str(&ok(["snapshots", "--json", text(directory)])).unwrap();
    let time = |row: &Value| row["time"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    rows.iter().map(|row| u128::try_from(time(row).as_nanosecond()).unwrap()).collect()
}

/// Figure 1: a file, a snapshot, another content. Both can be read, the first by the printed time and by the
/// second that contains it. Time is continuous: any time means the snapshot before it. Listings have no
/// additional entries.
#[test]
fn figure_1_a_file_as_of_a_snapshot() {
    let scratch = Scratch::new();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let mut user = Shell::new(&mount.directory);
    user.prints("echo 'This is the original foo.txt.' > foo.txt", "");
    let printed = user.note("T", "yore snapshot .");
    user.prints("echo 'This is the new foo.txt.' > foo.txt", "");
    user.prints("cat foo.txt@$T", "This is the original foo.txt.\n");
    user.prints("cat foo.txt", "This is the new foo.txt.\n");
    let first = taken(&mount.directory)[0];
    user.prints(&format!("cat foo.txt@{}", first / 1_000_000_000), "This is the original foo.txt.\n");
    user.prints("cat .@$T/foo.txt", "This is the original foo.txt.\n");
    assert!(ok(["snapshots", text(&mount.directory)]).starts_with(printed.get(..16).unwrap()));

    user.note("U", "yore snapshot .");
    user.prints("echo 'This is the last foo.txt.' > foo.txt", "");
    let second = taken(&mount.directory)[1];
    for (time, says) in [
        (first, "original"),
        (first + 1, "original"),
        (first.midpoint(second), "original"),
        (second - 1, "original"),
        (second, "new"),
        (clock(), "new"),
        // A name without a time is the present: the last snapshot is the end of what a time can mean.
        (clock() + 3_600_000_000_000, "new"),
    ] {
        user.prints(&format!("cat foo.txt@{}", seconds(time)), &format!("This is the {says} foo.txt.\n"));
    }
    user.refuses(&format!("cat foo.txt@{}", seconds(first - 1)), "No such file");
    user.prints("ls -a", ".\n..\nfoo.txt\n");
    user.prints("ls -a .@$T", ".\n..\nfoo.txt\n");
    user.refuses("echo changed > foo.txt@$T", "Read-only file system");
    user.refuses("rm foo.txt@$T", "Read-only file system");
    mount.umount();
    ok(["check", text(&scratch.volume)]);
}

/// Figure 2: software is installed over an older version, after a link to a snapshot was made. Everything
/// below the link is as of then, also for programs that are run; the link may be anywhere. The name of the
/// snapshot works without the link.
#[test]
fn figure_2_named_by_a_link() {
    let scratch = Scratch::new();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let mut admin = Shell::new(&mount.directory);
    admin.prints("mkdir -p usr/bin/lib && printf '#!/bin/sh\\necho gcc 2.95; cat \"${0%%/*}\"/lib/specs\\n' > usr/bin/gcc", "");
    admin.prints(
        "chmod 755 usr/bin/gcc && echo old specs > usr/bin/lib/specs && usr/bin/gcc",
        "gcc 2.95\nold specs\n",
    );
    let time = admin.note("T", "yore snapshot usr/bin");
    admin.prints("ln -s $PWD/usr/bin@$T usr/bin.preinstall", "");
    admin.prints("readlink usr/bin.preinstall", &format!("{}/usr/bin@{time}\n", text(&mount.directory)));
    admin
        .prints("printf '#!/bin/sh\\nexit 1\\n' > usr/bin/gcc && rm -r usr/bin/lib && touch usr/bin/new", "");
    admin.refuses("usr/bin/gcc", "");
    admin.prints("usr/bin.preinstall/gcc", "gcc 2.95\nold specs\n");
    admin.prints("ls usr/bin.preinstall/ usr/bin", "usr/bin:\ngcc\nnew\n\nusr/bin.preinstall/:\ngcc\nlib\n");
    admin.prints("ln -s $PWD/usr/bin@$T ../outside && ../outside/gcc", "gcc 2.95\nold specs\n");
    admin.prints("ln -s bin@$T usr/relative && usr/relative/gcc", "gcc 2.95\nold specs\n");
    // A hard link between times would let users change the past through it.
    admin.refuses("ln usr/bin@$T/gcc usr/gcc.old", "ross-device link");
    admin.refuses("touch usr/bin.preinstall/new", "Read-only file system");
    admin.prints(
        "cp -a usr/bin.preinstall/gcc usr/bin.preinstall/lib usr/bin/ && usr/bin/gcc",
        "gcc 2.95\nold specs\n",
    );
    admin.prints(
        "yore snapshot usr/bin -n preinstall > /dev/null && rm usr/bin/gcc && usr/bin@preinstall/gcc",
        "gcc 2.95\nold specs\n",
    );
    mount.umount();
    ok(["check", text(&scratch.volume)]);
}

/// Several times in one path, and how far each reaches: below a name with a time everything is as of exactly
/// then, although the directory itself has not changed for longer.
#[test]
fn several_times_in_a_path() {
    let scratch = Scratch::new();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let mut user = Shell::new(&mount.directory);
    user.prints("mkdir -p A/B/C/D && echo E1 > A/B/C/D/E && echo F1 > A/B/C/F", "");
    user.note("T1", "yore snapshot .");
    user.prints("echo E2 > A/B/C/D/E && echo F2 > A/B/C/F", "");
    user.note("T2", "yore snapshot .");
    user.prints("echo E3 > A/B/C/D/E && echo F3 > A/B/C/F", "");
    user.note("T3", "yore snapshot .");
    user.prints("echo E4 > A/B/C/D/E && echo F4 > A/B/C/F && mv A/B/C/D A/B/C/moved", "");
    for (path, content) in [
        ("A/B@$T1/C/D/E", "E1"),
        ("A/B@$T2/C/D/E", "E2"),
        ("A@$T3/B/C/D/E", "E3"),
        ("A/B/C/moved/E", "E4"),
        ("A/B@$T1/C/D@$T2/E", "E2"),
        ("A@$T3/B@$T2/C@$T1/F", "F1"),
        ("A/B@$T1/C@$T3/D/E", "E3"),
        ("A/B/C/F@$T2", "F2"),
        // Back out of the past the same way.
        ("A/B@$T1/C/../../B/C/F", "F4"),
    ] {
        user.prints(&format!("cat {path}"), &format!("{content}\n"));
    }
    user.refuses("cat A/B/C/moved@$T1/E", "No such file");
    user.refuses("cat A/B/C/D/E", "No such file");
    mount.umount();
    ok(["check", text(&scratch.volume)]);
}

/// Figure 4: names and what they mean over time. A file keeps its number when it is changed after a snapshot,
/// and its earlier state has another number. A removed name exists until its death. What was created and
/// removed between two snapshots never existed. One name may mean one file after another, and one file may
/// have other names at other times.
#[test]
fn figure_4_names_over_time() {
    let scratch = Scratch::new();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let mut user = Shell::new(&mount.directory);
    let inode = |name: &str| fs::metadata(mount.directory.join(name)).unwrap().ino();
    user.prints("mkdir d && echo A1 > d/A && echo B1 > d/B", "");
    user.note("BEGIN", "yore snapshot .");
    user.prints("echo A2 > d/A && echo gone > d/brief && rm d/brief", "");
    let number = inode("d/A");
    // (a): written, then a snapshot.
    let a = user.note("a", "yore snapshot .");
    assert_eq!(inode("d/A"), number);
    // (b): the first change afterwards makes a version.
    user.prints("echo A3 > d/A", "");
    assert_eq!(inode("d/A"), number, "a file in use keeps its number");
    assert_ne!(inode(&format!("d@{a}/A")), number, "what it was is another file");
    user.note("b", "yore snapshot .");
    // (c): a name dies.
    user.prints("rm d/B", "");
    user.note("c", "yore snapshot .");
    user.prints("echo B2 > d/B && ln d/A d/link && mv d/A d/moved", "");
    user.note("e", "yore snapshot .");
    user.prints("rm d/link && mv d/moved d/B", "");
    for (at, names, of_a, of_b) in [
        ("$BEGIN", "A\nB\n", "A1", "B1"),
        ("$a", "A\nB\n", "A2", "B1"),
        ("$b", "A\nB\n", "A3", "B1"),
        ("$c", "A\n", "A3", ""),
        ("$e", "B\nlink\nmoved\n", "", "B2"),
    ] {
        user.prints(&format!("ls d@{at}"), names);
        for (name, content) in [("A", of_a), ("B", of_b)] {
            let line = format!("cat d@{at}/{name} && cat d/{name}@{at}");
            match content {
                "" => user.refuses(&line, "No such file"),
                _ => user.prints(&line, &format!("{content}\n{content}\n")),
            }
        }
    }
    user.prints("ls d && cat d/B", "B\nA3\n");
    assert_eq!(inode("d/B"), number);
    user.prints("stat -c %h d@$e/link d@$e/moved d@$c/A", "2\n2\n1\n");
    user.prints("cmp d@$e/link d@$e/moved && cat d@$e/link", "A3\n");
    user.refuses("cat d@$a/brief", "No such file");
    // A user looks for a file deleted by mistake at any time before, and copies it back.
    user.prints("cp -p d/A@$b d/A && cat d/A", "A3\n");
    mount.umount();
    ok(["check", text(&scratch.volume)]);
}

/// Snapshots 1 to 5 deep are each mounted by itself, all at once, and read back correctly while the present
/// is rewritten.
#[test]
fn five_clones_beside_the_present() {
    let scratch = Scratch::new();
    let Some(mount) = Mount::new(&scratch, &[]) else { return };
    let file = mount.directory.join("file");
    let mut content = vec![0u8; 1 << 20];
    let mut then = Vec::new();
    for depth in 0u8..5 {
        // A quarter of it changes each time, so blocks come from all depths.
        content.iter_mut().skip(usize::from(depth) * 4096).step_by(4).for_each(|byte| *byte = depth + 1);
        fs::write(&file, &content).unwrap();
        ok(["snapshot", text(&mount.directory), "-n", &format!("depth-{depth}")]);
        then.push(content.clone());
    }
    let mountpoints: Vec<PathBuf> = (0..5).map(|depth| scratch.path(&format!("clone-{depth}"))).collect();
    for (depth, mountpoint) in mountpoints.iter().enumerate() {
        fs::create_dir(mountpoint).unwrap();
        ok(["mount", text(&scratch.volume), text(mountpoint), "--at", &format!("depth-{depth}")]);
    }
    let mut live = fs::File::options().write(true).open(&file).unwrap();
    for pass in 0u8..4 {
        live.rewind().unwrap();
        live.write_all(&vec![0xf0 + pass; content.len()]).unwrap();
        live.sync_all().unwrap();
        for (mountpoint, expected) in mountpoints.iter().zip(&then) {
            assert!(
                fs::read(mountpoint.join("file")).unwrap() == *expected,
                "{} in pass {pass}",
                mountpoint.display()
            );
        }
    }
    drop(live);
    let all: Vec<&str> =
        mountpoints.iter().map(|mountpoint| text(mountpoint)).chain([text(&mount.directory)]).collect();
    ok([&["umount"][..], &all].concat());
    ok(["check", text(&scratch.volume)]);
}

/// A volume with the directory `/d`, in which each close makes a version, mounted.
fn at_each_close(scratch: &Scratch) -> Option<Mount<'_>> {
    ok(["mkdir", &scratch.on("/d")]);
    ok(["policy", &scratch.on("/d"), "version=close"]);
    Mount::new(scratch, &[])
}

/// The rows of a log, latest first.
fn log(path: &Path) -> Vec<Value> {
    serde_json::from_str(&ok(["log", "--json", text(path)])).unwrap()
}

/// The first version, from the latest on, that the log of a file lacks in this order, with a time that leads
/// to its content. There may be states in between: a program that another test starts inherits this one's
/// open files until it runs, and closes them then.
fn missing_in_log(
    mount: &Mount<'_>,
    file: &Path,
    versions: usize,
    content: &dyn Fn(usize) -> String,
) -> Option<usize> {
    let mut versions = (0..versions).rev().peekable();
    for row in log(file) {
        let Some(at) = row["last"]["at"].as_str() else { continue };
        let path = row["path"].as_str().unwrap().trim_start_matches('/');
        let then = mount.directory.join(format!("{path}@{at}"));
        let found = fs::read_to_string(&then).unwrap_or_else(|e| panic!("{}: {e}", then.display()));
        versions.next_if(|version| found == content(*version));
    }
    versions.next()
}

/// 150 versions of a file, made by closing it. Each is opened by the time after its close and by the time
/// that the log prints.
#[test]
fn a_hundred_and_fifty_versions() {
    const VERSIONS: usize = 150;
    let scratch = Scratch::new();
    let Some(mount) = at_each_close(&scratch) else { return };
    let file = mount.directory.join("d/file");
    let content = |version: usize| format!("version {version}\n").repeat(1 + version * 61 % 2000);
    let mut closed = Vec::new();
    for version in 0..VERSIONS {
        if version % 3 == 1 {
            // In place, as a database would, and then truncated.
            let mut open = fs::File::options().write(true).open(&file).unwrap();
            open.write_all(content(version).as_bytes()).unwrap();
            open.set_len(content(version).len() as u64).unwrap();
        } else {
            fs::write(&file, content(version)).unwrap();
        }
        closed.push(clock());
        // Closing a file that was only read makes no version.
        assert_eq!(fs::read(&file).unwrap(), content(version).as_bytes());
    }
    let verify = || {
        for (version, time) in closed.iter().enumerate() {
            let name = format!("file@{}", seconds(*time));
            let found = fs::read_to_string(file.with_file_name(&name)).unwrap();
            assert!(found == content(version), "version {version}, {name}");
        }
        assert_eq!(missing_in_log(&mount, &file, VERSIONS, &content), None);
    };
    verify();
    mount.umount();
    ok(["check", text(&scratch.volume)]);
    mount.again(&[]);
    verify();
    mount.umount();
}

/// How a program saves a file.
type Save = fn(&Path, &str);

/// Writes a temporary file, durably, and renames it over the old one.
fn replace(path: &Path, content: &str) {
    let temporary = path.with_extension("tmp");
    let mut file = fs::File::create(&temporary).unwrap();
    file.write_all(content.as_bytes()).unwrap();
    file.sync_all().unwrap();
    drop(file);
    fs::rename(temporary, path).unwrap();
}

/// Renames the old file to a backup, writes a new one, and removes the backup: vim with `backupcopy=no`.
fn backup(path: &Path, content: &str) {
    let old = path.with_file_name("letter~");
    if path.exists() {
        fs::rename(path, &old).unwrap();
    }
    let mut file = fs::File::create_new(path).unwrap();
    file.write_all(content.as_bytes()).unwrap();
    file.sync_all().unwrap();
    drop(file);
    if old.exists() {
        fs::remove_file(old).unwrap();
    }
}

/// In place: truncated, then written.
fn truncate(path: &Path, content: &str) {
    let mut file = fs::File::create(path).unwrap();
    file.write_all(content.as_bytes()).unwrap();
    file.sync_all().unwrap();
}

/// A program that reads the new content from a file beside the volume.
fn program(path: &Path, content: &str, line: &str) {
    let new = path.ancestors().nth(3).unwrap().join("new");
    fs::write(&new, content).unwrap();
    let directory = path.parent().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).env("FILE", path).env("NEW", &new).env("HOME", new.parent().unwrap());
    let output = shell.current_dir(directory).env("TERM", "dumb").stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{line}: {}", common::error_text(&output));
}

/// vim with its default settings.
fn vim(path: &Path, content: &str) {
    program(path, content, r#"vim -u NONE -i NONE -N -es -c '%!cat "$NEW"' -c 'wq!' "$FILE""#);
}

/// vim with a backup file and a swap file beside the text.
fn vim_with_backup(path: &Path, content: &str) {
    program(
        path,
        content,
        r#"vim -u NONE -i NONE -N -es --cmd 'set backup backupcopy=no directory=. updatecount=1' \
            -c '%!cat "$NEW"' -c 'wq!' "$FILE" && rm -f "$FILE~""#,
    );
}

/// sed: a temporary file beside it, renamed.
fn sed(path: &Path, content: &str) {
    program(path, content, r#"[ -s "$FILE" ] || echo > "$FILE"; sed -i -e "1r $NEW" -e d "$FILE""#);
}

/// Editors' saves under a policy of versions at each close. Each saved content is found under the name by the
/// time after the save, although the name means another file each time, and is in the log of the name.
fn saves(save: Save) {
    const SAVES: usize = 12;
    let scratch = Scratch::new();
    let Some(mount) = at_each_close(&scratch) else { return };
    let letter = mount.directory.join("d/letter");
    let content =
        |version: usize| format!("Dear Anna,\nthis is draft {version}.\n{}", "more\n".repeat(version));
    let mut saved = Vec::new();
    for version in 0..SAVES {
        save(&letter, &content(version));
        saved.push(clock());
        assert_eq!(fs::read_to_string(&letter).unwrap(), content(version));
    }
    for (version, time) in saved.iter().enumerate() {
        let then = letter.with_file_name(format!("letter@{}", seconds(*time)));
        assert_eq!(fs::read_to_string(&then).unwrap(), content(version), "{}", then.display());
    }
    // Under whatever name each had; the last one is the present.
    let missing = missing_in_log(&mount, &letter, SAVES, &content);
    assert_eq!(missing, None, "a draft is not in the log:\n{}", ok(["log", text(&letter)]));
    let (current, last) = (&log(&letter)[0], content(SAVES - 1).len());
    assert_eq!(current["facts"]["size"], last);
    // Even after removal it can be brought back.
    fs::remove_file(&letter).unwrap();
    let time = seconds(saved[SAVES - 1]);
    fs::copy(letter.with_file_name(format!("letter@{time}")), &letter).unwrap();
    assert_eq!(fs::read_to_string(&letter).unwrap(), content(SAVES - 1));
    mount.umount();
    ok(["check", text(&scratch.volume)]);
}

#[test]
fn saved_by_renaming_over() {
    saves(replace);
}

#[test]
fn saved_with_a_backup() {
    saves(backup);
}

#[test]
fn saved_in_place() {
    saves(truncate);
}

#[test]
fn saved_by_sed() {
    saves(sed);
}

#[test]
fn saved_by_vim() {
    let there = |name: &str| Command::new(name).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !there("vim") {
        eprintln!("SKIPPED: vim is not installed");
        return;
    }
    saves(vim);
    saves(vim_with_backup);
}
