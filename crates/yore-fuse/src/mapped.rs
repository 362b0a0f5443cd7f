//! Files of a mount that programs have mapped so that they can store to them.
//!
//! A store through a mapping reaches the daemon when the kernel writes the page, some time later. Today's
//! kernels do not wait for that in syncfs(2) on FUSE: they only begin to write. No request tells of a mapping
//! either. So a caller that needs all earlier stores reads each process's table of mappings, and has the
//! kernel write the pages of those files. A file that is no longer mapped needs no such thing: the kernel
//! writes its pages before the mapping goes.
//!
//! Processes that cannot be seen are skipped: those in other namespaces, and those of other users if the
//! daemon does not run as root. Those that do not answer in time are named ([`patient`]).

mod patient;

use patient::{read_all, Found, Stuck};
use rustix::ioctl::{ioctl, opcode, Opcode, Updater};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::time::Duration;

/// How long to wait for a process's table. Reading one takes less than a millisecond.
const PATIENCE: Duration = Duration::from_secs(2);

/// The processes of this machine that did not answer, and may not have answered yet.
static STUCK: Stuck = Stuck::new();

/// `struct procmap_query` of <linux/fs.h>.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    vma_flags: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    major: u32,
    minor: u32,
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

const QUERY: Opcode = opcode::read_write::<Query>(b'f', 17);
/// Writable, shared, and of a file; at the address or the next mapping behind it.
const WANTED: u64 = 0x02 | 0x08 | 0x10 | 0x20;

/// The inode numbers, as `stat` shows them, of the files on a device that are mapped for writing. A thread
/// that serves must not call this: a process whose table is read may itself wait for a request.
///
/// # Errors
/// `/proc` cannot be listed; no thread can be started.
pub(crate) fn mapped_files(device: (u32, u32)) -> io::Result<Found> {
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc")? {
        processes.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    read_all(processes, &STUCK, PATIENCE, move |process| files_of(process, device))
}

/// The files on a device that a process has mapped for writing.
fn files_of(process: u32, device: (u32, u32)) -> HashSet<u64> {
    let mut files = HashSet::new();
    // The process may have ended, or belong to somebody else.
    let Ok(mut table) = File::open(format!("/proc/{process}/maps")) else { return files };
    if !query(&table, device, &mut files) {
        let mut text = String::new();
        if table.read_to_string(&mut text).is_ok() {
            files.extend(text.lines().filter_map(|line| parse(line, device)));
        }
    }
    files
}

/// Asks for one mapping after another. Returns false if the kernel does not have this query (before Linux
/// 6.11).
fn query(table: &File, device: (u32, u32), files: &mut HashSet<u64>) -> bool {
    let mut address = 0;
    loop {
        let mut query = Query { size: size_of::<Query>() as u64, flags: WANTED, address, ..Query::default() };
        // SAFETY: the number includes the size of the structure, which repeats its size in a field, and the
        // query asks the kernel to store no name.
        match unsafe { ioctl(table, Updater::<QUERY, Query>::new(&mut query)) } {
            Ok(()) if query.end > address => address = query.end,
            Err(rustix::io::Errno::NOTTY | rustix::io::Errno::INVAL) => return false,
            // There are no more, or the process has ended.
            _ => return true,
        }
        if (query.major, query.minor) == device {
            files.insert(query.inode);
        }
    }
}

/// A line of the table: `start-end perms offset major:minor inode path`.
fn parse(line: &str, device: (u32, u32)) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace();
    let rights = fields.nth(1)?.as_bytes();
    let (major, minor) = fields.nth(1)?.split_once(':')?;
    let at = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let inode = fields.next()?.parse().ok()?;
    (rights.get(1) == Some(&b'w') && rights.get(3) == Some(&b's') && at == device).then_some(inode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};
    use std::os::unix::fs::MetadataExt;

    /// Only mappings that are shared and writable count, and only those on that device.
    #[test]
    fn lines() {
        let line = |rights: &str| format!("7f00-7f01 {rights} 00000000 00:2a 4711    /mnt/some file");
        assert_eq!(parse(&line("rw-s"), (0, 42)), Some(4711));
        assert_eq!(parse(&line("-w-s"), (0, 42)), Some(4711));
        for (rights, device) in [("rw-p", (0, 42)), ("r--s", (0, 42)), ("rw-s", (0, 43))] {
            assert_eq!(parse(&line(rights), device), None);
        }
        assert_eq!(parse("7f00-7f01 rw-s", (0, 42)), None);
    }

    /// Both ways find a mapping of this process, and stop finding it when it is gone.
    #[test]
    fn a_mapping_is_found() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let facts = file.metadata().unwrap();
        let device = (rustix::fs::major(facts.dev()), rustix::fs::minor(facts.dev()));
        // SAFETY: a new mapping at an address that the kernel chooses, and that nobody uses.
        let at = unsafe {
            mmap(std::ptr::null_mut(), 4096, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)
        }
        .unwrap();
        assert!(mapped_files(device).unwrap().files.contains(&facts.ino()));
        let text = fs::read_to_string("/proc/self/maps").unwrap();
        assert!(text.lines().any(|line| parse(line, device) == Some(facts.ino())));
        // SAFETY: the mapping just made.
        unsafe { munmap(at, 4096) }.unwrap();
        assert!(!mapped_files(device).unwrap().files.contains(&facts.ino()));
    }
}
