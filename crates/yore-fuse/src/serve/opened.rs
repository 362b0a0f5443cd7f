//! Which files of a mount a process has open for writing, from `/proc/PID/fdinfo`. Nothing here sends a
//! request to the mount, or to any other, unless the process closes a file at that very moment: then the
//! reader may be the last who has it, and has to put it away. For a socket or a file of another file system
//! that can take as long as the process likes. So a thread of its own reads, and may be left behind
//! ([`crate::mapped::patient`]).

use crate::mapped::patient::{read_all, Patience, Process, Stuck};
use rustix::fs::{statx, AtFlags, StatxFlags, CWD};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::time::Duration;
use yore_fs::InodeNo;

/// How long to wait for a process.
const PATIENCE: Patience =
    Patience { alone: Duration::from_millis(100), each: Duration::from_secs(2), all: Duration::from_secs(2) };

/// The processes of this machine that did not answer, and may not have answered yet.
static STUCK: Stuck = Stuck::new();

/// An open file that can be written to.
#[derive(Debug, PartialEq, Eq)]
struct Writer {
    /// The number of the mount on which it is open, in the process's namespace.
    mount: u64,
    inode: InodeNo,
}

/// Those of some files that a process has open for writing, by the numbers that they have on the mount of
/// this device. What the process has open is read once, however many files are asked about. A process that
/// may not be examined, or does not answer in time, counts as having none of them open.
pub(super) fn open_for_writing(
    process: u32,
    device: (u32, u32),
    files: &HashSet<InodeNo>,
) -> HashSet<InodeNo> {
    let files = files.clone();
    let read = move |process| Ok(read_open(process, device, &files));
    let found = Process::find(process)
        .and_then(|found| read_all(found.into_iter().collect(), &STUCK, PATIENCE, read));
    match found {
        Ok(found) => {
            if !found.unread.is_empty() {
                tracing::debug!(process, "a process does not tell what it has open");
            }
            found.files
        }
        Err(error) => {
            tracing::warn!(process, %error, "what a process has open cannot be read");
            HashSet::new()
        }
    }
}

fn read_open(process: u32, device: (u32, u32), files: &HashSet<InodeNo>) -> HashSet<InodeNo> {
    let mut open = HashSet::new();
    let Ok(entries) = fs::read_dir(format!("/proc/{process}/fdinfo")) else { return open };
    // A file of another mount may have the same number. One mount may be in several places and namespaces,
    // each time under another number.
    let mut mounts: HashMap<u64, bool> = HashMap::new();
    for entry in entries.flatten() {
        let Ok(text) = fs::read_to_string(entry.path()) else { continue };
        let Some(writer) = parse(&text).filter(|writer| files.contains(&writer.inode)) else { continue };
        let is_ours = match mounts.get(&writer.mount) {
            Some(known) => *known,
            None => {
                // It may have been closed meanwhile.
                let Some(found) = is_on(process, &entry.file_name(), device) else { continue };
                mounts.insert(writer.mount, found);
                found
            }
        };
        if is_ours {
            open.insert(writer.inode);
        }
    }
    open
}

/// Whether a descriptor's file is on this device. `None`: there is no such descriptor any more. The kernel
/// answers from what it knows.
fn is_on(process: u32, descriptor: &OsStr, device: (u32, u32)) -> Option<bool> {
    let path = Path::new("/proc").join(process.to_string()).join("fd").join(descriptor);
    let found = statx(CWD, &path, AtFlags::STATX_DONT_SYNC, StatxFlags::empty()).ok()?;
    Some((found.stx_dev_major, found.stx_dev_minor) == device)
}

/// The open file that an fdinfo describes, if it can be written to.
fn parse(text: &str) -> Option<Writer> {
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let flags = i32::from_str_radix(value("flags:")?, 8).ok()?;
    let (mount, inode) = (value("mnt_id:")?.parse().ok()?, value("ino:")?.parse().ok()?);
    let writer = Writer { mount, inode: InodeNo(inode) };
    (flags & libc::O_ACCMODE != libc::O_RDONLY).then_some(writer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    fn facts(file: &fs::File) -> ((u32, u32), InodeNo) {
        let facts = file.metadata().unwrap();
        ((rustix::fs::major(facts.dev()), rustix::fs::minor(facts.dev())), InodeNo(facts.ino()))
    }

    /// Files that this process has open are detected, by the mode of the open, and no longer after their
    /// closes. A file of the same number on another mount once counted as well, so that a file that was
    /// closed got no version while that one was open.
    #[test]
    fn who_writes() {
        let dir = tempfile::tempdir().unwrap();
        let files: Vec<fs::File> =
            (0..100).map(|n: u32| fs::File::create(dir.path().join(n.to_string())).unwrap()).collect();
        let (device, number) = facts(&files[0]);
        let numbers: HashSet<InodeNo> = files.iter().map(|file| facts(file).1).collect();
        let me = std::process::id();
        assert_eq!(open_for_writing(me, device, &numbers), numbers);
        let one = HashSet::from([number]);
        assert_eq!(open_for_writing(me, device, &one), one);
        assert!(open_for_writing(me, (device.0, device.1 + 1), &numbers).is_empty(), "of another mount");
        drop(files);
        assert!(open_for_writing(me, device, &numbers).is_empty());
        let reader = fs::File::open(dir.path().join("0")).unwrap();
        assert!(open_for_writing(me, device, &one).is_empty(), "to read only");
        drop(reader);
        assert!(open_for_writing(u32::MAX, device, &one).is_empty(), "there is no such process");
    }

    #[test]
    fn descriptions_of_open_files() {
        let of = |flags: &str| format!("pos:\t0\nflags:\t{flags}\nmnt_id:\t29\nino:\t17\n");
        let writer = Some(Writer { mount: 29, inode: InodeNo(17) });
        assert_eq!(parse(&of("0100002")), writer);
        assert_eq!(parse(&of("0100001")), writer);
        assert_eq!(parse(&of("0100000")), None);
        assert_eq!(parse("pos:\t0\nflags:\t0100002\nino:\t17\n"), None);
        assert_eq!(parse(""), None);
    }
}
