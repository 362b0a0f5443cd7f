//! The calls that mount(8) makes.
//!
//! `mount -t fuse.yore VOL DIR -o …` runs the first of these that exists:
//! - `/sbin/mount.fuse.yore VOL DIR [-sfnv] -o …`, a link to this program;
//! - `/sbin/mount.fuse VOL DIR [-sfnv] -o … -t fuse.yore`, which comes with libfuse, drops what only mount(8)
//!   needs (`noauto`, `nofail`, `user`, `_netdev`, `x-…`), adds `dev,suid`, and runs `yore VOL DIR -o …` in a
//!   shell.
//!
//! Neither call names a command. Both are rewritten to `yore mount …` before anything is parsed.
//!
//! Nobody asked for the options that the second one adds: with them, a volume from anywhere could bring
//! device files and set-id programs. It appends `dev` unless it was given `nodev`, then `suid` unless it was
//! given `nosuid`, always at the end and whatever stood there. So one of each is taken off the end. What the
//! administrator wrote stands before them, and stays.

use crate::args::Arguments;
use clap::CommandFactory as _;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Inserts the command that mount(8) leaves out.
pub fn rewrite(argv: Vec<OsString>) -> Vec<OsString> {
    let helper = argv.first().is_some_and(|name| is_helper(name));
    if !helper && !is_bare_mount(&argv) {
        return argv;
    }
    let mut rewritten = argv;
    if !helper {
        take_back_what_libfuse_adds(&mut rewritten);
    }
    rewritten.insert(1, "mount".into());
    rewritten
}

/// Takes `dev` and `suid` off the end of the last list of options.
fn take_back_what_libfuse_adds(argv: &mut [OsString]) {
    let Some(at) = argv.iter().rposition(|arg| arg == "-o").filter(|at| at + 1 < argv.len()) else { return };
    let Some(list) = argv[at + 1].to_str() else { return };
    let mut options: Vec<&str> = list.split(',').collect();
    for added in ["suid", "dev"] {
        if options.last() == Some(&added) {
            options.pop();
        }
    }
    argv[at + 1] = options.join(",").into();
}

/// Whether the program was called by a name that mount(8) looks for.
pub fn is_helper(name: &OsStr) -> bool {
    let called = Path::new(name).file_name().unwrap_or_default();
    ["mount.yore", "mount.fuse.yore", "mount.fuse3.yore"].iter().any(|name| called == *name)
}

/// `yore VOL DIR -o …`: two paths, then options.
fn is_bare_mount(argv: &[OsString]) -> bool {
    let [_, volume, directory, option, ..] = argv else { return false };
    let is_option = |arg: &OsStr| arg.as_encoded_bytes().starts_with(b"-");
    let is_command = Arguments::command()
        .get_subcommands()
        .any(|command| command.get_name_and_visible_aliases().iter().any(|name| volume == *name));
    !is_command && volume != "help" && !is_option(volume) && !is_option(directory) && is_option(option)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(argv: &[&str]) -> Vec<String> {
        let argv = rewrite(argv.iter().map(OsString::from).collect());
        argv.into_iter().map(|arg| arg.to_string_lossy().into_owned()).collect()
    }

    /// Promises that each call that mount(8) makes becomes a mount, and that no other call does.
    #[test]
    fn calls_of_mount() {
        let options = "rw,nodev,nosuid";
        assert_eq!(
            rewritten(&["/usr/bin/yore", "/v", "/m", "-o", options]),
            ["/usr/bin/yore", "mount", "/v", "/m", "-o", options]
        );
        assert_eq!(
            rewritten(&["/sbin/mount.fuse.yore", "/v", "/m", "-s", "-n", "-o", options])[1..4],
            ["mount", "/v", "/m"]
        );
        assert_eq!(rewritten(&["mount.yore", "/v", "/m"])[1], "mount");
        for (given, kept) in [
            ("rw,dev,suid", "rw"),
            ("rw,suid,dev,dev,suid", "rw,suid,dev"),
            ("rw,nosuid,dev", "rw,nosuid"),
            ("rw,nodev,noatime,suid", "rw,nodev,noatime"),
            ("dev,suid", ""),
        ] {
            assert_eq!(rewritten(&["yore", "/v", "/m", "-o", given])[5], kept);
            assert_eq!(rewritten(&["mount.fuse.yore", "/v", "/m", "-o", given])[5], given);
        }
        for unchanged in [
            &["yore", "ls", "v:/", "-l"][..],
            &["yore", "help", "mount"],
            &["yore"],
            &["yore", "nonsense", "x"],
        ] {
            assert_eq!(rewritten(unchanged), unchanged);
        }
    }
}
