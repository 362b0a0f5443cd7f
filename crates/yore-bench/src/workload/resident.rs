//! `memory`: how much memory the process that serves a mount has after many files were created through it.
//!
//! *Resident* is what the process has in memory; *anonymous* is the part of it that no file backs; *peak* is
//! the most it ever had. The kernel's own caches of the mount are not included. A second measurement follows
//! after the kernel was asked to forget its names and inodes: a server keeps everything about which the
//! kernel may still ask.

use crate::compare::{Benchmark, Subject};
use crate::report::Column;
use crate::rival::{check_can_drop_caches, drop_caches, OnTarget, RivalKind};
use crate::{BenchError, Result, Target};

/// Memory of servers.
#[derive(Clone, Debug)]
pub struct Resident {
    /// Files created.
    pub files: usize,
    /// Directories they are spread over.
    pub directories: usize,
}

impl Default for Resident {
    fn default() -> Resident {
        Resident { files: 100_000, directories: 100 }
    }
}

impl Benchmark for Resident {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn about(&self) -> String {
        "Memory of the process that serves a mount.".into()
    }

    fn options(&self) -> Vec<(String, String)> {
        vec![("files".into(), self.files.to_string()), ("directories".into(), self.directories.to_string())]
    }

    fn tables(&self) -> Vec<(String, Vec<Column>)> {
        let columns = vec![
            Column::bytes("resident before"),
            Column::bytes("resident after"),
            Column::bytes("anonymous after"),
            Column::bytes("peak"),
            Column::bytes("more per file"),
            Column::bytes("resident, kernel's caches dropped"),
        ];
        vec![(String::new(), columns)]
    }

    fn check(&self, kind: RivalKind) -> Result<()> {
        check_can_drop_caches()?;
        match kind {
            RivalKind::MemoryFuse | RivalKind::Fuse2fs => Ok(()),
            kind if kind.is_mount() => Ok(()),
            _ => Err(BenchError::impossible(
                "no process serves it",
                "choose of the targets mount, memory-fuse and fuse2fs",
            )),
        }
    }

    fn round(&self, subject: &mut Subject<'_>, round: usize) -> Result<Vec<Vec<f64>>> {
        let rival = &*subject.0;
        let server = rival.server()?;
        let before = Memory::of(server)?;
        rival.measure(Run { resident: self, round, create: true })?;
        rival.settle()?;
        let after = Memory::of(server)?;
        drop_caches()?;
        let dropped = Memory::of(server)?;
        rival.measure(Run { resident: self, round, create: false })?;
        let more = after.resident.saturating_sub(before.resident) as f64 / self.files.max(1) as f64;
        let bytes = [before.resident, after.resident, after.anonymous, after.peak].map(|bytes| bytes as f64);
        Ok(vec![bytes.into_iter().chain([more, dropped.resident as f64]).collect()])
    }
}

/// Creates the files, or removes them.
struct Run<'r> {
    resident: &'r Resident,
    round: usize,
    create: bool,
}

impl OnTarget for Run<'_> {
    type Output = ();

    fn on<T: Target>(self, target: &T) -> Result<()> {
        let root = target.root()?;
        let directories = self.resident.directories.max(1);
        for d in 0..directories {
            let name = format!("m{}-{d}", self.round);
            if self.create {
                target.mkdir(&root, &name)?;
            }
            let dir = target.open_dir(&root, &name)?;
            for i in (d..self.resident.files).step_by(directories) {
                match self.create {
                    true => target.create(&dir, &i.to_string()).map(drop)?,
                    false => target.unlink(&dir, &i.to_string())?,
                }
            }
            drop(dir);
            if !self.create {
                target.rmdir(&root, &name)?;
            }
        }
        Ok(())
    }
}

/// Bytes.
#[derive(Debug, PartialEq, Eq)]
struct Memory {
    resident: u64,
    anonymous: u64,
    peak: u64,
}

impl Memory {
    fn of(process: u32) -> Result<Memory> {
        let path = format!("/proc/{process}/status");
        let status = std::fs::read_to_string(&path).map_err(BenchError::system(format!("reading {path}")))?;
        Memory::parse(&status).ok_or_else(|| {
            BenchError::impossible(
                format!("{path} does not tell the memory of the process"),
                "use another kernel",
            )
        })
    }

    /// From `/proc/PID/status`, which counts in KiB.
    fn parse(status: &str) -> Option<Memory> {
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
        };
        Some(Memory { resident: field("VmRSS")?, anonymous: field("RssAnon")?, peak: field("VmHWM")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's table is read by name, in KiB; one without the fields is no answer.
    #[test]
    fn status_is_parsed() {
        let text =
            "Name:\tyore\nVmPeak:\t  99 kB\nVmHWM:\t    20 kB\nVmRSS:\t    10 kB\nRssAnon:\t     4 kB\n";
        let expected = Memory { resident: 10 << 10, anonymous: 4 << 10, peak: 20 << 10 };
        assert_eq!(Memory::parse(text), Some(expected));
        assert_eq!(Memory::parse("Name:\tkthreadd\n"), None);
    }

    /// This process has memory.
    #[test]
    fn own_memory() {
        let memory = Memory::of(std::process::id()).unwrap();
        assert!(memory.peak >= memory.resident && memory.resident > 0);
    }
}
