//! What a program has read of a file, as strace(1) records it, and played into a disk's model.

use crate::program::{command, run};
use crate::simulated::{Model, Range, Usage};
use crate::{BenchError, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

const BLOCK: u64 = 4096;
/// The calls that read, or say where the next read begins.
const CALLS: &str = "trace=read,pread64,readv,preadv,lseek";

/// Whether strace is there.
///
/// # Errors
/// [`BenchError::NotInstalled`].
pub(super) fn check_can_record() -> Result<()> {
    run(command("strace").arg("-V"), "strace").map(drop)
}

/// Runs a program that must end well, and returns what it has read of the file `image`, in order. What is
/// recorded is written into `directory` for a while.
pub(super) fn reads(program: &Command, image: &Path, directory: &Path) -> Result<Vec<Range>> {
    let output = directory.join("strace");
    let failed = || BenchError::system("reading what strace has recorded");
    let mut strace = command("strace");
    strace.args(["-f", "-y", "-s", "0", "-e", CALLS, "-o"]).arg(&output);
    run(strace.arg(program.get_program()).args(program.get_args()), "strace")?;
    let text = std::fs::read_to_string(&output).map_err(failed())?;
    std::fs::remove_file(&output).map_err(failed())?;
    Ok(parse(&text, &image.display().to_string()))
}

/// The reads of the file of this path.
fn parse(text: &str, path: &str) -> Vec<Range> {
    let mark = format!("<{path}>");
    let mut reads = Vec::new();
    // Where the next read of each descriptor begins.
    let mut positions: BTreeMap<&str, u64> = BTreeMap::new();
    // Calls that others have interrupted, by thread.
    let mut begun: BTreeMap<&str, String> = BTreeMap::new();
    for line in text.lines() {
        let (thread, call) = line.split_once(char::is_whitespace).unwrap_or(("", line));
        let call = call.trim_start();
        if let Some(first) = call.strip_suffix("<unfinished ...>") {
            begun.insert(thread, first.trim_end().to_string());
            continue;
        }
        let whole = match call.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>")) {
            Some((_, rest)) => begun.remove(thread).unwrap_or_default() + rest,
            None => call.to_string(),
        };
        let Some(read) = Call::of(&whole, &mark) else { continue };
        // A descriptor is the same in all threads. What a name borrows must outlive the line.
        let descriptor = line.find(read.descriptor).map_or("", |at| &line[at..at + read.descriptor.len()]);
        let position = positions.entry(descriptor).or_default();
        match read.kind {
            Kind::Seek => *position = read.result,
            Kind::At(offset) => reads.push(Range { offset, len: read.result }),
            Kind::Next => {
                reads.push(Range { offset: *position, len: read.result });
                *position += read.result;
            }
        }
    }
    reads.retain(|read| read.len > 0);
    reads
}

enum Kind {
    /// A read at this place.
    At(u64),
    /// A read where the last one ended.
    Next,
    Seek,
}

struct Call<'l> {
    descriptor: &'l str,
    kind: Kind,
    result: u64,
}

impl<'l> Call<'l> {
    /// A call that has succeeded, of the file of this mark.
    fn of(line: &'l str, mark: &str) -> Option<Call<'l>> {
        let (name, rest) = line.split_once('(')?;
        let (descriptor, rest) = rest.split_once(mark)?;
        let (arguments, result) = rest.rsplit_once(" = ")?;
        let result = result.split_whitespace().next()?.parse().ok()?;
        let last = || arguments.trim_end().trim_end_matches(')').rsplit(", ").next()?.trim().parse().ok();
        let kind = match name {
            "read" | "readv" => Kind::Next,
            "pread64" => Kind::At(last()?),
            // Flags follow the offset of preadv2 only.
            "preadv" => Kind::At(last()?),
            "lseek" => Kind::Seek,
            _ => return None,
        };
        Some(Call { descriptor, kind, result })
    }
}

/// Has a disk serve reads, one after the other, in whole blocks. What was read once is in memory and not read
/// again, as the host's cache has it.
pub(super) fn play(reads: &[Range], disk: &mut dyn Model) -> Usage {
    let before = disk.usage();
    let mut cached = BTreeSet::new();
    for read in reads {
        let blocks = read.offset / BLOCK..(read.offset + read.len).div_ceil(BLOCK);
        let mut missing: Option<Range> = None;
        for block in blocks {
            match (&mut missing, cached.insert(block)) {
                (Some(run), true) => run.len += BLOCK,
                (none, true) => *none = Some(Range { offset: block * BLOCK, len: BLOCK }),
                (_, false) => {
                    if let Some(run) = missing.take() {
                        disk.read(&[run]);
                    }
                }
            }
        }
        if let Some(run) = missing {
            disk.read(&[run]);
        }
    }
    disk.usage().since(&before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::HardDisk;

    const TEXT: &str = "\
100   read(3</lib/libc.so.6>, \"\"..., 832) = 832
100   lseek(4</tmp/image>, 1024, SEEK_SET) = 1024
100   read(4</tmp/image>, \"\"..., 1024)   = 1024
100   read(4</tmp/image>, \"\"..., 4096)   = 4096
101   pread64(4</tmp/image>,  <unfinished ...>
102   pread64(4</tmp/image>, \"\"..., 8192, 40960) = 8192
101   <... pread64 resumed>\"\"..., 4096, 20480) = 4096
100   pread64(4</tmp/image>, 0x55, 4096, 81920) = -1 EIO (Input/output error)
100   pread64(5</tmp/image2>, \"\"..., 4096, 0) = 4096
100   +++ exited with 0 +++
";

    /// Only reads of the file count, where they were, in the order in which they ended.
    #[test]
    fn reads_are_found() {
        let range = |offset, len| Range { offset, len };
        let expected = [range(1024, 1024), range(2048, 4096), range(40960, 8192), range(20480, 4096)];
        assert_eq!(parse(TEXT, "/tmp/image"), expected);
    }

    /// A block is read once, and neighbours of a request together.
    #[test]
    fn what_is_cached_is_not_read() {
        let range = |offset, len| Range { offset, len };
        let usage = play(&[range(1024, 1024), range(0, 8192), range(4096, 4096)], &mut HardDisk::new());
        assert_eq!((usage.reads, usage.bytes_read), (2, 8192));
    }
}
