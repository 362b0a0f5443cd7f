//! A workload as a list of file system calls.
//!
//! An experiment is drawn as a script before anything runs. So all file systems get the same calls in the
//! same order, whether they are mounted or a library, with threads or one client after the other. What the
//! script costs in memory is 24 bytes a call.

use crate::report::Column;

/// One call. Files and directories are numbers of [`Script`]; a client has a file open from
/// [`Action::Create`] or [`Action::Open`] until [`Action::Close`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    MakeDirectory(u32),
    RemoveDirectory(u32),
    List(u32),
    Create(u32),
    Open(u32),
    Close(u32),
    Write {
        file: u32,
        at: u64,
        bytes: u32,
    },
    /// All these bytes must be there.
    Read {
        file: u32,
        at: u64,
        bytes: u32,
    },
    /// The file then has these bytes.
    Truncate {
        file: u32,
        bytes: u64,
    },
    Sync(u32),
    Stat(u32),
    /// Asks for a file that is not there.
    Missing(u32),
    /// A file that has the new name is replaced.
    Rename {
        file: u32,
        to: u32,
    },
    Remove(u32),
}

/// What a phase is divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Per {
    /// So many files, transactions, scripts.
    Operations(u64),
    /// So many bytes of file data.
    Bytes(u64),
}

/// A part of an experiment that is measured as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Phase {
    /// The title of the table that it belongs to; `None` if it only prepares.
    pub(crate) table: Option<&'static str>,
    /// The name of its column.
    pub(crate) column: String,
    /// What it is divided by.
    pub(crate) per: Per,
    /// Caches are dropped before it.
    pub(crate) cold: bool,
    /// What each client does, in its order.
    pub(crate) clients: Vec<Vec<Action>>,
}

impl Phase {
    /// Its column, as a rate.
    pub(crate) fn as_column(&self) -> Column {
        match self.per {
            Per::Operations(_) => Column::rate(self.column.clone()),
            Per::Bytes(_) => Column::throughput(self.column.clone()),
        }
    }

    /// The figure in it, of so many seconds.
    pub(crate) fn rate(&self, seconds: f64) -> f64 {
        let (Per::Operations(count) | Per::Bytes(count)) = self.per;
        count as f64 / seconds.max(1e-9)
    }
}

/// The directory in which a script runs; it is there.
pub(crate) const ROOT: u32 = 0;

/// What an experiment does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    /// The parent and name of each directory but [`ROOT`], whose number is one less than its place says.
    directories: Vec<(u32, String)>,
    /// The directory and name of each file.
    files: Vec<(u32, String)>,
    pub(crate) phases: Vec<Phase>,
}

/// Bytes of each read and write of a program that uses buffers.
pub(crate) const BUFFER: u32 = 64 << 10;

impl Script {
    /// Names a directory; a script makes it by [`Action::MakeDirectory`].
    pub(crate) fn directory(&mut self, parent: u32, name: impl Into<String>) -> u32 {
        self.directories.push((parent, name.into()));
        self.directories.len() as u32
    }

    /// Names a file.
    pub(crate) fn file(&mut self, directory: u32, name: impl Into<String>) -> u32 {
        self.files.push((directory, name.into()));
        self.files.len() as u32 - 1
    }

    /// How many directories there are names for, with [`ROOT`].
    pub(crate) fn directory_count(&self) -> usize {
        self.directories.len() + 1
    }

    /// The parent and name of a directory; `None` for [`ROOT`].
    pub(crate) fn directory_name(&self, directory: u32) -> Option<(u32, &str)> {
        let (parent, name) = self.directories.get(directory.checked_sub(1)? as usize)?;
        Some((*parent, name))
    }

    /// The directory and name of a file.
    pub(crate) fn file_name(&self, file: u32) -> (u32, &str) {
        let (directory, name) = &self.files[file as usize];
        (*directory, name)
    }

    /// Names directories below [`ROOT`], and adds a phase that makes them.
    pub(crate) fn make_directories(&mut self, prefix: &str, count: usize) -> Vec<u32> {
        let made: Vec<u32> =
            (0..count.max(1)).map(|i| self.directory(ROOT, format!("{prefix}{i:05}"))).collect();
        self.prepare(made.iter().map(|dir| Action::MakeDirectory(*dir)).collect());
        made
    }

    /// Adds a phase of one client that is not measured.
    pub(crate) fn prepare(&mut self, actions: Vec<Action>) {
        self.phases.push(Phase {
            table: None,
            column: String::new(),
            per: Per::Operations(1),
            cold: false,
            clients: vec![actions],
        });
    }

    /// Adds a phase of one client.
    pub(crate) fn measure(
        &mut self,
        table: &'static str,
        column: impl Into<String>,
        per: Per,
        actions: Vec<Action>,
    ) {
        self.measure_clients(table, column, per, vec![actions]);
    }

    /// Adds a phase of several clients.
    pub(crate) fn measure_clients(
        &mut self,
        table: &'static str,
        column: impl Into<String>,
        per: Per,
        clients: Vec<Vec<Action>>,
    ) {
        self.phases.push(Phase { table: Some(table), column: column.into(), per, cold: false, clients });
    }

    /// The last phase begins with cold caches.
    pub(crate) fn cold(&mut self) {
        if let Some(last) = self.phases.last_mut() {
            last.cold = true;
        }
    }

    /// The titles of the tables, in the order in which they are first used.
    pub(crate) fn tables(&self) -> Vec<&'static str> {
        let mut titles = Vec::new();
        for title in self.phases.iter().filter_map(|phase| phase.table) {
            if !titles.contains(&title) {
                titles.push(title);
            }
        }
        titles
    }

    /// The most bytes of one write or read.
    pub(crate) fn largest_transfer(&self) -> usize {
        let bytes = |action: &Action| match action {
            Action::Write { bytes, .. } | Action::Read { bytes, .. } => *bytes as usize,
            _ => 0,
        };
        let all = self.phases.iter().flat_map(|phase| phase.clients.iter().flatten());
        all.map(bytes).max().unwrap_or(0)
    }
}

/// Calls that often come together.
pub(crate) trait Calls {
    /// Writes `bytes` from `at` of an open file, in pieces.
    fn write(&mut self, file: u32, at: u64, bytes: u64);
    /// Reads likewise.
    fn read(&mut self, file: u32, at: u64, bytes: u64);
    /// Makes a file of `bytes`.
    fn make(&mut self, file: u32, bytes: u64);
    /// Opens a file, reads its `bytes`, closes it.
    fn read_whole(&mut self, file: u32, bytes: u64);
    /// Opens a file, writes `bytes` behind the `size` that it has, closes it.
    fn append_to(&mut self, file: u32, size: u64, bytes: u64);
}

impl Calls for Vec<Action> {
    fn write(&mut self, file: u32, at: u64, bytes: u64) {
        self.extend(pieces(at, bytes).map(|(at, bytes)| Action::Write { file, at, bytes }));
    }

    fn read(&mut self, file: u32, at: u64, bytes: u64) {
        self.extend(pieces(at, bytes).map(|(at, bytes)| Action::Read { file, at, bytes }));
    }

    fn make(&mut self, file: u32, bytes: u64) {
        self.push(Action::Create(file));
        self.write(file, 0, bytes);
        self.push(Action::Close(file));
    }

    fn read_whole(&mut self, file: u32, bytes: u64) {
        self.push(Action::Open(file));
        self.read(file, 0, bytes);
        self.push(Action::Close(file));
    }

    fn append_to(&mut self, file: u32, size: u64, bytes: u64) {
        self.push(Action::Open(file));
        self.write(file, size, bytes);
        self.push(Action::Close(file));
    }
}

/// A range in pieces of [`BUFFER`].
fn pieces(at: u64, bytes: u64) -> impl Iterator<Item = (u64, u32)> {
    let step = u64::from(BUFFER);
    (0..bytes.div_ceil(step)).map(move |i| (at + i * step, (bytes - i * step).min(step) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces cover a range once, and none is larger than the buffer.
    #[test]
    fn pieces_cover_the_range() {
        for bytes in [0, 1, 4096, 65_536, 65_537, 200_000] {
            let mut next = 7;
            for (at, len) in pieces(7, bytes) {
                assert_eq!(at, next);
                assert!(len > 0 && len <= BUFFER);
                next += u64::from(len);
            }
            assert_eq!(next, 7 + bytes);
        }
    }
}
