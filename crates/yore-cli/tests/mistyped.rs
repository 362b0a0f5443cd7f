//! Promises about a hundred mistyped commands: the answer says what is wrong, with what, and what to do. Each
//! has its exit status and the words that the answer must contain. None of them changes the volume.

use crate::common;

use common::{error_text, ok, run, Scratch};
use std::fs;

const USAGE: i32 = 2;
const FAILED: i32 = 3;

/// In the commands `V` is a volume with the directory `/d`, the file `/d/file` and the snapshot `first` of
/// the directory; `NEW` is nothing yet, `DIR` an empty directory of the host, and `FILE` a file of the host
/// that is no volume.
#[rustfmt::skip]
const MISTYPED: &[(&str, i32, &str)] = &[
    // No such command, or not enough said.
    ("snapshoot V", USAGE, "'snapshot'"),
    ("lsblk", USAGE, "'ls'"),
    ("--help-me", USAGE, "'--help'"),
    ("mkfs", USAGE, "<VOL>"),
    ("mount", USAGE, "<DIR>"),
    ("mount V", USAGE, "<DIR>"),
    ("umount", USAGE, "<DIR>"),
    ("ls", USAGE, "VOL:/PATH"),
    ("forget", USAGE, "PATH[@TIME]"),
    ("hold V:/d@first extra", USAGE, "unexpected argument 'extra'"),
    ("bench nonsense", USAGE, "unrecognized subcommand 'nonsense'"),
    ("completions tcsh", USAGE, "'zsh'"),
    // Volumes that cannot be made.
    ("mkfs NEW", USAGE, "say how large, for example --size 10G"),
    ("mkfs NEW --size 10X", USAGE, "write bytes, or a number with K, M, G, T or P"),
    ("mkfs NEW --size 5", FAILED, "too small for a volume: from 16 MiB"),
    ("mkfs NEW --size 1M", FAILED, "too small for a volume: from 16 MiB"),
    ("mkfs V --size 64M", FAILED, "give --force to overwrite it all the same"),
    ("mkfs FILE --size 64M", FAILED, "give --force to overwrite it all the same"),
    ("mkfs DIR --size 64M", FAILED, "name the image file to be made"),
    ("mkfs NEW --size 64M --engine btrfs", USAGE, "possible values: none, sync"),
    ("mkfs NEW --size 64M --policy nonsense", USAGE, "nonsense"),
    ("mkfs NEW --size 64M --label 0123456789012345678901234567890123456789012345678901234567890123456789", USAGE, "at most 64 are possible"),
    // Mounts.
    ("mount NEW DIR", FAILED, "does not exist; check the path, or make a volume there"),
    ("mount FILE DIR", FAILED, "is no Yore volume"),
    ("mount V FILE", FAILED, "it is not a directory"),
    ("mount V DIR/none", FAILED, "make it first (mkdir"),
    ("mount V DIR -o nonsense", USAGE, "`yore mount --help` lists the options"),
    ("mount V DIR -o cache=lots", USAGE, "\"lots\" is no size"),
    ("mount V DIR -o engine=ext4", USAGE, "choose none, sync, journal, soft-updates or"),
    ("mount V DIR -o durability=group", FAILED, "add engine=journal"),
    ("mount V DIR -o durability=now", USAGE, "choose async, sync or group"),
    ("mount V:/d DIR", USAGE, "--at TIME"),
    ("mount V DIR --at 5m", USAGE, "5min or 5mon"),
    ("mount V DIR --at frist", FAILED, "frist"),
    ("umount DIR", FAILED, "`yore df` lists what is mounted"),
    ("unmount DIR", FAILED, "`yore df` lists what is mounted"),
    ("umount /", FAILED, "no volume is mounted on /"),
    ("umount V", FAILED, "`yore df` lists what is mounted"),
    // What is no volume.
    ("info FILE", FAILED, "is no Yore volume"),
    ("info NEW", FAILED, "check the path"),
    ("info DIR", FAILED, "no volume is mounted"),
    ("df FILE", FAILED, "is no Yore volume"),
    ("df DIR", FAILED, "no volume is mounted"),
    ("ls FILE:/", FAILED, "is no Yore volume"),
    ("ls NEW:/", FAILED, "check the path"),
    ("check FILE", FAILED, "is no Yore volume"),
    ("check NEW", FAILED, "check the path"),
    ("check DIR", FAILED, "a volume needs a regular file or a block device"),
    ("inspect FILE", FAILED, "is no Yore volume"),
    ("inspect V nonsense", USAGE, "yore inspect --help"),
    ("snapshots NEW", FAILED, "no such file"),
    ("snapshots FILE", FAILED, "is no Yore volume"),
    // Paths.
    ("ls V", USAGE, "written VOL:/PATH; did you mean"),
    ("ls V:", USAGE, "v.yore:/ ?"),
    ("cat FILE", USAGE, "is a file of this system, for cat"),
    ("ls V:d", USAGE, "written VOL:/PATH"),
    ("ls DIR", USAGE, "is a directory of this system"),
    ("ls V:/nothing", FAILED, "\"/nothing\": no such file or directory"),
    ("cat V", USAGE, "written VOL:/PATH; did you mean"),
    ("cat V:/d", FAILED, "it is a directory"),
    ("cat V:/d/none", FAILED, "\"/d/none\": no such file or directory"),
    ("stat V:/none", FAILED, "no such file or directory"),
    ("mkdir V", USAGE, "written VOL:/PATH; did you mean"),
    ("mkdir V:/d", FAILED, "it already exists"),
    ("mkdir V:/a/b/c", FAILED, "-p makes those above, too"),
    ("mkdir V:/d/file/x", FAILED, "not a directory"),
    ("mkdir -m 999 V:/x", USAGE, "write it in octal, as 755"),
    ("rm V", USAGE, "written VOL:/PATH; did you mean"),
    ("rm V:/d", USAGE, "remove it with -r"),
    ("rm V:/none", FAILED, "no such file or directory"),
    ("rm -r V:/d@first", FAILED, "the past cannot be changed"),
    ("find V:/none", FAILED, "no such file or directory"),
    ("find V:/ -type q", USAGE, "is no file type"),
    ("find V:/ -size big", USAGE, "\"big\" is no size"),
    ("find V:/ -newermt someday", USAGE, "here a time is wanted"),
    // Copies.
    ("cp V:/d/file", USAGE, "VOL:/TO"),
    ("cp V:/d V:/e", USAGE, "copy it with -r"),
    ("cp V:/none V:/x", FAILED, "no such file or directory"),
    ("put FILE", USAGE, "VOL:/TO"),
    ("put FILE DIR", USAGE, "put needs a path on a volume here"),
    ("put DIR V:/x", USAGE, "copy it with -r"),
    ("put V:/d/file V:/x", USAGE, "`yore cp`"),
    ("get V:/d/file", USAGE, "TO"),
    ("get V:/d DIR", USAGE, "copy it with -r"),
    ("get FILE DIR", USAGE, "get needs a path on a volume here"),
    // Times.
    ("ls V:/d@5m", USAGE, "5min or 5mon"),
    ("ls V:/d@2026", USAGE, "write a date as 2026-11"),
    ("ls V:/d@2026-02-30", USAGE, "there is no such day"),
    ("ls V:/d@frist", FAILED, "did you mean `first`?"),
    ("ls V:/.@nothing/d@first", FAILED, "no snapshot named `nothing`"),
    ("ls V:/d@first/none@nothing", FAILED, "no snapshot named `nothing`"),
    ("ls V:/d@nothing", FAILED, "`yore snapshots` lists those that there are"),
    ("forget V --keep-within 5m", USAGE, "5min or 5mon"),
    // Snapshots.
    ("snapshot DIR", FAILED, "is not on a mounted volume"),
    ("snapshot V:/none", FAILED, "no such file or directory"),
    ("snapshot V:/d/file", FAILED, "name the one that it is in"),
    ("snapshot V -n yesterday", USAGE, "it could be taken for a time"),
    ("snapshot V -n a/b", USAGE, "contain neither `/` nor `@`"),
    ("snapshot V:/d -n first", FAILED, "choose another name"),
    ("snapshot V:/d@first", FAILED, "name the directory as it is now"),
    ("hold V", USAGE, "which snapshot? Name one"),
    ("hold V:/d@none", FAILED, "`yore snapshots` lists those that there are"),
    ("forget V", USAGE, "which snapshot? Name one"),
    ("forget V@none", FAILED, "no snapshot named `none`"),
    ("forget V --keep-last 0", USAGE, "invalid value '0'"),
    ("forget V --keep-hourly many", USAGE, "invalid value 'many'"),
    ("expunge V:/none", FAILED, "`yore deleted` lists what is gone"),
    ("expunge V:/d", USAGE, "with -r"),
    // Policies.
    ("policy V version=5m", USAGE, "5min or 5mon"),
    ("policy V version=often", USAGE, "a duration is wanted"),
    ("policy V version=foo", USAGE, "Accepted are whole numbers, each with a unit"),
    ("mkfs NEW --size 64M --policy version=foo", USAGE, "not understood as a duration"),
    ("policy V keep=some", USAGE, "is no rule"),
    ("policy V keep=last", USAGE, "how many or how long"),
    ("policy V keep=last:x", USAGE, "`x` is neither a number nor all"),
    ("policy V versoin=close", USAGE, "what can be said"),
    ("policy V version=close version=close", USAGE, "said twice"),
    // Looking back and putting back.
    ("diff V:/d", USAGE, "since when? Name a time"),
    ("diff V:/d@none", FAILED, "no snapshot named `none`"),
    ("diff V:/d@first V:/d/file", FAILED, "cannot be compared"),
    ("status V:/d@first", USAGE, "for what changed since then: yore diff"),
    ("status V:/none", FAILED, "no such file or directory"),
    ("log V:/none", FAILED, "`yore deleted` what is gone"),
    ("log V -n 0", USAGE, "invalid value '0'"),
    ("deleted V:/d/file", FAILED, "not a directory"),
    ("du V", USAGE, "`yore du --history`"),
    ("restore V:/d/file", USAGE, "as of when? Name a time"),
    ("restore V:/d/file@none", FAILED, "no snapshot named `none`"),
    ("undelete V:/d/file", FAILED, "is there; for what it was before"),
    ("undelete V:/none", FAILED, "`yore deleted"),
    ("rollback V:/d", USAGE, "as of when? Name a time"),
    ("rollback V:/d@none", FAILED, "no snapshot named `none`"),
    ("rollback V:/d/file@first", FAILED, "is not a directory"),
    ("undo V", FAILED, "nothing to undo"),
    ("redo V", FAILED, "nothing to redo"),
];

#[test]
fn mistyped_commands_are_answered() {
    let scratch = common::scratch();
    ok(["snapshot", &scratch.on("/d"), "-n", "first"]);
    fs::create_dir(scratch.path("dir")).unwrap();
    scratch.file("file", "text\n");
    // Opening a volume for writing increases a counter on it; its content stays.
    let state = || {
        let snapshots = ok(["snapshots", &scratch.on("/d")]).lines().count();
        (ok(["ls", "-lR", &scratch.on("/")]), snapshots)
    };
    let before = state();
    assert!(MISTYPED.len() >= 100);
    let failed: Vec<String> =
        MISTYPED.iter().filter_map(|(line, status, words)| wrong(&scratch, line, *status, words)).collect();
    assert!(failed.is_empty(), "{} answers are wrong:\n{}", failed.len(), failed.join("\n"));
    assert_eq!(state(), before, "a mistyped command has changed the volume");
}

/// The error in the answer to a command.
fn wrong(scratch: &Scratch, line: &str, status: i32, words: &str) -> Option<String> {
    let with = |word: &str, short: &str, path: &str| {
        let rest = word.strip_prefix(short)?;
        rest.is_empty().then_some(()).or_else(|| rest.starts_with([':', '/', '@']).then_some(()))?;
        Some(format!("{}{rest}", common::text(&scratch.path(path))))
    };
    let paths = [("NEW", "new.yore"), ("DIR", "dir"), ("FILE", "file"), ("V", "v.yore")];
    let args: Vec<String> = line
        .split(' ')
        .map(|word| paths.iter().find_map(|(short, path)| with(word, short, path)).unwrap_or(word.into()))
        .collect();
    let output = run(&args);
    let answer = error_text(&output);
    let is_right =
        output.status.code() == Some(status) && answer.contains(words) && !answer.contains("panicked");
    (!is_right).then(|| format!("yore {line}: {}, not {status} with {words:?}: {answer}", output.status))
}
