//! What files hold: how much data, how much room a copy needs, and whether two of them hold the same.

use crate::side::{Itself, Side, Source};
use crate::timed_path::PAST;
use anyhow::Context as _;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use yore_fs::FileKind;

/// Bytes compared at a time.
const COMPARED: usize = 1 << 20;

/// The type of all FUSE mounts, FUSE_SUPER_MAGIC of <linux/magic.h>.
const FUSE: u64 = 0x6573_5546;

/// How often a read is tried again that failed because of somebody else's stores.
const TRIES: u32 = 8;

/// The least room that a copy of a file needs on the volume where the file is: none for data that is shared,
/// and a block of counts for what one of these describes.
pub fn room_beside(source: &dyn Source, size: u64) -> io::Result<u64> {
    const COUNTED: u64 = 1000 * yore_device::BLOCK_SIZE as u64;
    let data = data_bytes(source)?;
    Ok(match size < yore_fs::SHARED_LEAST {
        true => data,
        false => data.min((data / COUNTED + 1) * yore_device::BLOCK_SIZE as u64),
    })
}

/// How many bytes the blocks with data have.
pub fn data_bytes(source: &dyn Source) -> io::Result<u64> {
    const BLOCK: u64 = yore_device::BLOCK_SIZE as u64;
    let (mut at, mut bytes) = (0, 0u64);
    while let Some(data) = source.data_from(at)? {
        let (first, end) = (data.start / BLOCK, data.end.div_ceil(BLOCK));
        bytes = bytes.saturating_add(end.saturating_sub(first).saturating_mul(BLOCK));
        at = data.end.max(at.saturating_add(1));
    }
    Ok(bytes)
}

/// Reads a part of a file: on a mount what the volume has, and not what the kernel keeps of it. A program may
/// have stored into pages of a file of the past through a mapping. The daemon refuses them, but until the
/// kernel writes them, it gives them to all who read through its cache.
pub fn read_uncached(source: &dyn Source, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let Itself::OnHost(file) = source.itself() else { return source.read_at(buffer, at) };
    if !bypasses_cache(file)? {
        return source.read_at(buffer, at);
    }
    let mut outcome = source.read_at(buffer, at);
    // Before the kernel reads, it writes the pages. If they are refused, it tells this caller, and only once.
    for _ in 0..TRIES {
        if !is_eio(&outcome) {
            break;
        }
        outcome = source.read_at(buffer, at);
    }
    outcome
}

fn is_eio(outcome: &io::Result<usize>) -> bool {
    outcome.as_ref().is_err_and(|error| error.raw_os_error() == Some(Errno::IO.raw_os_error()))
}

/// Has the kernel read an open file from the mount that it is on, if it may be of the past of a Yore volume;
/// says whether it does. Other file systems keep their promises themselves, and want buffers at certain
/// places.
fn bypasses_cache(file: &File) -> io::Result<bool> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    if flags.contains(OFlags::DIRECT) {
        return Ok(true);
    }
    let kind = rustix::fs::fstatfs(file)?.f_type;
    let bypasses = u64::try_from(kind).is_ok_and(|kind| kind == FUSE) && file.metadata()?.ino() & PAST != 0;
    if bypasses {
        rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT)?;
    }
    Ok(bypasses)
}

/// Reads until the buffer is full or the file ends, as [`read_uncached`]; returns how many bytes.
pub fn fill(source: &dyn Source, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match read_uncached(source, &mut buffer[filled..], at + filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

/// The extended attributes of a file, sorted by name.
pub fn sorted_xattrs(side: &dyn Side, path: &Path) -> anyhow::Result<Vec<(OsString, Vec<u8>)>> {
    let mut all = side.xattrs(path)?;
    all.sort();
    Ok(all)
}

/// Whether two files of one type and size have the same content, or lead to the same target. The time this
/// takes grows with the data of both, not with holes.
pub fn same_content(side: &dyn Side, kind: FileKind, first: &Path, second: &Path) -> anyhow::Result<bool> {
    match kind {
        FileKind::Symlink => Ok(side.read_link(first)? == side.read_link(second)?),
        FileKind::Regular => same_data(side, first, second),
        _ => Ok(true),
    }
}

fn same_data(side: &dyn Side, first: &Path, second: &Path) -> anyhow::Result<bool> {
    let files = [(side.open(first)?, first), (side.open(second)?, second)];
    let mut buffers = [vec![0; COMPARED], vec![0; COMPARED]];
    let (mut at, mut data) = (0, [0..0, 0..0]);
    loop {
        let mut counts = [0; 2];
        for ((file, path), stretch) in files.iter().zip(&mut data) {
            if stretch.end <= at {
                let found = file.data_from(at).with_context(|| format!("cannot read {}", side.name(path)))?;
                *stretch = found.unwrap_or(u64::MAX..u64::MAX);
            }
        }
        at = at.max(data[0].start.min(data[1].start));
        if at == u64::MAX {
            return Ok(true);
        }
        for (((file, path), buffer), count) in files.iter().zip(&mut buffers).zip(&mut counts) {
            *count = fill(&**file, buffer, at).with_context(|| format!("cannot read {}", side.name(path)))?;
        }
        if buffers[0][..counts[0]] != buffers[1][..counts[1]] {
            return Ok(false);
        }
        if counts[0] < COMPARED {
            return Ok(true);
        }
        at += counts[0] as u64;
    }
}
