//! What fsck(8) calls as `fsck.yore`: `yore check` with the options and the exit codes that every checker
//! has.
//!
//! At boot (`-a`, `-p`) a volume that was closed in order is checked only with `-f`: like other checkers,
//! this one then believes the superblock. With `-a`, `-p` or `-y` a sound volume that was not closed in order
//! is marked clean. What is found is repaired with `-y` only, and only in an image file: the undo file is
//! beside it. For block devices `yore check --repair` asks for a place.

use crate::args;
use crate::command::check;
use crate::output::{bytes_of, print_line, printable};
use crate::status;
use crate::volume::{self, Access};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use yore_format::VolumeState;

/// Nothing is wrong.
const SOUND: u8 = 0;
/// What was wrong is repaired.
const CORRECTED: u8 = 1;
/// Something is wrong, and stays so.
const UNCORRECTED: u8 = 4;
/// The volume could not be checked.
const NOT_CHECKED: u8 = 8;
/// The command line makes no sense.
const USAGE: u8 = 16;

const HELP: &str = "\
Usage: fsck.yore [-a|-p|-y|-n] [-f] [-v] VOL...

Checks Yore volumes that are not mounted, as `yore check` does.
  -a, -p   at boot: what was closed in order is not gone through; a sound volume is marked clean
  -y       repair what is found, in an image file, with an undo file beside it; a sound volume is marked clean
  -n, -r   change nothing (as without options)
  -f       go through it, also if it was closed in order
  -v, -C[FD], -s, -T  accepted
  -V       print the version
Exit status: 0 nothing is wrong, 1 something was and is repaired, 4 something is, 8 a volume could not be checked, 16 usage";

/// Whether the program was called by a name that fsck(8) looks for.
pub fn is_called_by(name: &OsStr) -> bool {
    let called = Path::new(name).file_name().unwrap_or_default();
    called == "fsck.yore" || called == "fsck.fuse.yore"
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    at_boot: bool,
    mark: bool,
    force: bool,
    help: bool,
    version: bool,
    volumes: Vec<PathBuf>,
}

impl Wanted {
    /// Reads the command line. The error is the unknown option.
    fn parse(args: &[OsString]) -> Result<Wanted, String> {
        let mut wanted = Wanted::default();
        let mut options = true;
        for arg in args {
            match arg.as_bytes() {
                b"--" if options => options = false,
                b"--help" if options => wanted.help = true,
                [b'-', letters @ ..] if options && !letters.is_empty() => {
                    for letter in letters {
                        match letter {
                            b'a' | b'p' => (wanted.at_boot, wanted.mark) = (true, true),
                            b'y' => wanted.mark = true,
                            b'n' | b'r' => wanted.mark = false,
                            b'f' => wanted.force = true,
                            b'v' | b's' | b'T' => {}
                            // The rest is a descriptor for progress.
                            b'C' => break,
                            b'V' => wanted.version = true,
                            b'h' => wanted.help = true,
                            _ => return Err(arg.to_string_lossy().into_owned()),
                        }
                    }
                }
                _ => wanted.volumes.push(arg.into()),
            }
        }
        Ok(wanted)
    }
}

/// Checks the named volumes. Returns the exit status, which has the bits of all volumes.
pub fn run(args: &[OsString]) -> u8 {
    let wanted = match Wanted::parse(args) {
        Ok(wanted) if wanted.help || wanted.version => {
            let text = if wanted.help { HELP } else { concat!("fsck.yore ", env!("CARGO_PKG_VERSION")) };
            say(text);
            return SOUND;
        }
        Ok(wanted) if !wanted.volumes.is_empty() => wanted,
        Ok(_) => return refused("name a volume"),
        Err(option) => return refused(&format!("unknown option {option}")),
    };
    wanted.volumes.iter().fold(SOUND, |all, volume| all | one(volume, &wanted))
}

/// Says what is wrong with the command line, and how it is written.
fn refused(why: &str) -> u8 {
    status::warn(why);
    HELP.lines().for_each(status::tell);
    USAGE
}

/// Prints text. If that fails, the exit status still says what is known of the volumes.
fn say(text: &str) {
    if let Err(error) = print_line(text) {
        // Its status is that of a command; a checker has others.
        let _ = status::report(Err(error));
    }
}

fn one(volume: &Path, wanted: &Wanted) -> u8 {
    if wanted.at_boot && !wanted.force {
        match is_clean(volume) {
            Ok(true) => {
                say(&format!("{}: clean", printable(bytes_of(volume))));
                return SOUND;
            }
            Ok(false) => {}
            Err(error) => return meaning(status::report(Err(error))),
        }
    }
    let args = args::Check {
        volume: volume.into(),
        json: false,
        repair: match (wanted.mark, wanted.at_boot || !check::is_image(volume)) {
            (false, _) => None,
            (true, true) => Some(args::Repair::Mark),
            (true, false) => Some(args::Repair::All),
        },
        undo_file: None,
        give_up_past: false,
        shorten: false,
        undo: false,
        journal: None,
        without_journal: false,
        online: false,
        max_findings: 1000,
        memory: yore_check::CheckOptions::default().memory,
        estimate: false,
        progress: args::Progress { quiet: true, ..args::Progress::default() },
    };
    let mut ended = check::Ending::Sound;
    let status = status::report(check::ending(&args).map(|ending| {
        ended = ending;
        if ending == check::Ending::Findings {
            status::FINDINGS
        } else {
            status::OK
        }
    }));
    match ended {
        check::Ending::Repaired => CORRECTED,
        _ => meaning(status),
    }
}

/// Whether a volume was closed in order.
fn is_clean(volume: &Path) -> anyhow::Result<bool> {
    let device = volume::open_device(volume, Access::Read)?;
    Ok(crate::inspect::superblock::usable(volume, device.as_ref())?.state == VolumeState::Clean)
}

/// What one of our exit codes is for fsck(8).
fn meaning(ours: u8) -> u8 {
    match ours {
        status::OK => SOUND,
        status::FINDINGS | status::DAMAGED => UNCORRECTED,
        status::USAGE => USAGE,
        _ => NOT_CHECKED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Wanted, String> {
        Wanted::parse(&args.iter().map(OsString::from).collect::<Vec<_>>())
    }

    /// Promises that the options that fsck(8) and systemd-fsck pass on are understood in any order, and no
    /// others.
    #[test]
    fn options() {
        let volumes = vec![PathBuf::from("/v")];
        let boot = Wanted { at_boot: true, mark: true, volumes: volumes.clone(), ..Wanted::default() };
        assert_eq!(parse(&["-a", "-T", "-C5", "/v"]), Ok(boot));
        let forced = Wanted { at_boot: true, force: true, volumes: volumes.clone(), ..Wanted::default() };
        assert_eq!(parse(&["-pfn", "/v"]), Ok(forced));
        assert_eq!(parse(&["/v"]), Ok(Wanted { volumes, ..Wanted::default() }));
        assert_eq!(parse(&["-x", "/v"]), Err("-x".to_string()));
        assert_eq!(parse(&["--", "-a"]).unwrap().volumes, [PathBuf::from("-a")]);
    }
}
