//! Files of a mount that programs have mapped so that they can store to them.
//!
//! What is stored through a mapping reaches the daemon when the kernel writes the page, some time later.
//! Today's kernels do not wait for that in syncfs(2) where FUSE is concerned: they only begin. And no request
//! tells of a mapping. So who must have what was stored before asks the table of each process for its
//! mappings and has the kernel write the pages of those files. Pages of a file that is not mapped any more
//! need no such thing: the kernel writes them before the mapping goes.
//!
//! Processes that cannot be seen, in other namespaces or of other users where the daemon is not root's, are
//! passed over.

use rustix::ioctl::{ioctl, opcode, Opcode, Updater};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};

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
/// Writable, shared, of a file; at the address or the next one behind it.
const WANTED: u64 = 0x02 | 0x08 | 0x10 | 0x20;

/// The numbers, as `stat` shows them, of the files on a device that are mapped to be written to. Not for a
/// thread that serves: a process whose table is read may itself wait for a request.
///
/// # Errors
/// `/proc` cannot be listed.
pub(crate) fn mapped_files(device: (u32, u32)) -> io::Result<HashSet<u64>> {
    let mut files = HashSet::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        // It may have ended, or be somebody else's.
        let Ok(mut table) = File::open(entry.path().join("maps")) else { continue };
        if !query(&table, device, &mut files) {
            let mut text = String::new();
            if table.read_to_string(&mut text).is_ok() {
                files.extend(text.lines().filter_map(|line| parse(line, device)));
            }
        }
    }
    Ok(files)
}

/// Asks for each mapping by itself. False where the kernel cannot be asked so (before Linux 6.11).
fn query(table: &File, device: (u32, u32), files: &mut HashSet<u64>) -> bool {
    let mut address = 0;
    loop {
        let mut query = Query { size: size_of::<Query>() as u64, flags: WANTED, address, ..Query::default() };
        // SAFETY: the number has the size of the structure in it, which tells its size, too, and asks for no
        // name to be stored.
        match unsafe { ioctl(table, Updater::<QUERY, Query>::new(&mut query)) } {
            Ok(()) if query.end > address => address = query.end,
            Err(rustix::io::Errno::NOTTY | rustix::io::Errno::INVAL) => return false,
            // No more, or the process has ended.
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

    /// Only what is shared and can be written to counts, on that device.
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

    /// A mapping of this process is found by either way, and not any more when it is gone.
    #[test]
    fn a_mapping_is_found() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let facts = file.metadata().unwrap();
        let device = (rustix::fs::major(facts.dev()), rustix::fs::minor(facts.dev()));
        // SAFETY: a new mapping at an address of the kernel's choice, which nobody uses.
        let at = unsafe {
            mmap(std::ptr::null_mut(), 4096, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)
        }
        .unwrap();
        assert!(mapped_files(device).unwrap().contains(&facts.ino()));
        let text = fs::read_to_string("/proc/self/maps").unwrap();
        assert!(text.lines().any(|line| parse(line, device) == Some(facts.ino())));
        // SAFETY: the mapping just made.
        unsafe { munmap(at, 4096) }.unwrap();
        assert!(!mapped_files(device).unwrap().contains(&facts.ino()));
    }
}
