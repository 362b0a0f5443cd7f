//! What history takes, through a mount: of the volume, of what is below a directory, of a file.
//!
//! # Number 10
//!
//! | bytes | of the question |
//! |---|---|
//! | 0..4 | 1: of the volume, 2: by snapshot, of what is below the directory asked, 3: by state, of a name in it |
//! | 4..8 | length of the name, 0 but for 3 |
//! | 8.. | the name |
//!
//! The answer, all in bytes (8 each): for 1 what only history holds, of data, of files' metadata, and of its
//! own trees. For 2 and 3 first what is in use, what only history holds (data, metadata), and the sum of what
//! single snapshots or states hold alone (data, metadata); then for each snapshot or state what it holds
//! alone (data, metadata), what goes with it and all older ones (data, metadata), what it shares, and the
//! snapshot (as in a log) or the state (a record of the log).
//!
//! Of the volume for everybody, as statfs(2); of a directory as the log.

use super::{ask, Reader, Writer, PART_BYTES};
use crate::control::{malformed, put};
use rustix::ioctl::{opcode, Opcode};
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use yore_control::told::Told;
use yore_fs::{EventUsage, InodeNo, Retained, StateUsage, Statfs, UsageTotals, View};

pub(super) const USAGE: Opcode = opcode::read_write::<[u8; PART_BYTES]>(b'Y', 10);

const VOLUME: u32 = 1;
const DIRECTORY: u32 = 2;
const NAME: u32 = 3;

/// What only history holds of a volume, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryBytes {
    /// Of files: data, and metadata.
    pub files: Retained,
    /// What says what is kept.
    pub index: u64,
}

impl HistoryBytes {
    /// Of a volume whose space is this.
    pub fn of(space: &Statfs) -> HistoryBytes {
        let bytes = |blocks: u64| blocks.saturating_mul(space.block_size.into());
        let files = Retained {
            data: bytes(space.history_data_blocks),
            metadata: bytes(space.history_metadata_blocks),
        };
        HistoryBytes { files, index: bytes(space.history_index_blocks) }
    }

    /// All of it.
    pub fn bytes(&self) -> u64 {
        self.files.bytes().saturating_add(self.index)
    }
}

/// What only history holds of the volume that an open directory of a mount is on.
///
/// # Errors
/// ENOTTY if it is no directory of a mount that Yore serves, or its daemon is older; `InvalidData` for an
/// answer that is none.
pub fn space(dir: &File) -> io::Result<HistoryBytes> {
    let answer = ask::<USAGE>(dir, &question(VOLUME, &[])?, 0)?;
    let mut reader = Reader(&answer);
    let found = reader.held().zip(reader.u64()).map(|(files, index)| HistoryBytes { files, index });
    found.ok_or_else(malformed)
}

/// What each snapshot holds of what is below an open directory of a mount; as [`View::usage`].
///
/// # Errors
/// As [`super::log`].
pub fn usage(dir: &File) -> io::Result<(UsageTotals, Vec<EventUsage>)> {
    let answer = ask::<USAGE>(dir, &question(DIRECTORY, &[])?, 0)?;
    let mut reader = Reader(&answer);
    let totals = reader.totals().ok_or_else(malformed)?;
    let all = reader.all(|reader| {
        let (exclusive, with_older, shared) = (reader.held()?, reader.held()?, reader.u64()?);
        Some(EventUsage { exclusive, with_older, shared, seen: reader.seen_by()? })
    })?;
    Ok((totals, all))
}

/// What each state of a name in an open directory of a mount holds; as [`View::usage_of`].
///
/// # Errors
/// As [`super::log`].
pub fn usage_of(dir: &File, name: &[u8]) -> io::Result<(UsageTotals, Vec<StateUsage>)> {
    let answer = ask::<USAGE>(dir, &question(NAME, name)?, 0)?;
    let mut reader = Reader(&answer);
    let totals = reader.totals().ok_or_else(malformed)?;
    let all = reader.all(|reader| {
        let (exclusive, with_older, shared) = (reader.held()?, reader.held()?, reader.u64()?);
        Some(StateUsage { exclusive, with_older, shared, state: reader.logged()? })
    })?;
    Ok((totals, all))
}

fn question(of: u32, name: &[u8]) -> io::Result<Vec<u8>> {
    let len = u32::try_from(name.len()).ok().filter(|len| *len as usize <= super::NAME_MOST);
    let len = len.ok_or(rustix::io::Errno::NAMETOOLONG)?;
    Ok([&of.to_le_bytes()[..], &len.to_le_bytes(), name].concat())
}

/// What is asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Of<'a> {
    Volume,
    Directory,
    Name(&'a [u8]),
}

impl<'a> Of<'a> {
    pub(super) fn decode(reader: &mut Reader<'a>) -> Option<Of<'a>> {
        match (reader.u32()?, reader.u32()?) {
            (VOLUME, 0) => Some(Of::Volume),
            (DIRECTORY, 0) => Some(Of::Directory),
            (NAME, len) => Some(Of::Name(reader.take(usize::try_from(len).ok()?)?)),
            _ => None,
        }
    }

    pub(super) fn answer(
        &self,
        view: &View,
        inode: InodeNo,
        told: &Told<'_>,
        writer: &mut Writer,
    ) -> yore_fs::Result<()> {
        let totals = match self {
            Of::Volume => {
                let space = HistoryBytes::of(&view.statfs());
                writer.held(space.files);
                writer.u64(space.index);
                return Ok(());
            }
            Of::Directory => view.usage(inode, &mut |found| {
                writer.record(|w| {
                    w.held(found.exclusive);
                    w.held(found.with_older);
                    w.u64(found.shared);
                    w.seen_by(&found.seen);
                })
            })?,
            Of::Name(name) => {
                let mut all = Vec::new();
                let totals = view.usage_of(inode, name, &mut |found| {
                    all.push(found);
                    ControlFlow::Continue(())
                })?;
                let (had, mut is_any) = (!all.is_empty(), false);
                for found in all {
                    let Some(state) = told.logged(found.state, name)? else { continue };
                    let write = |w: &mut Writer| {
                        w.held(found.exclusive);
                        w.held(found.with_older);
                        w.u64(found.shared);
                        w.logged(&state);
                    };
                    is_any = true;
                    if writer.record(write).is_break() {
                        break;
                    }
                }
                if had && !is_any {
                    return Err(yore_fs::Error::NotFound);
                }
                totals
            }
        };
        // Known last, and told first.
        let UsageTotals { live, history, exclusive } = totals;
        let sums = [live, history.data, history.metadata, exclusive.data, exclusive.metadata];
        let mut head = [0; 40];
        for (i, sum) in sums.into_iter().enumerate() {
            put(&mut head, 8 * i, &sum.to_le_bytes());
        }
        writer.bytes.splice(0..0, head);
        Ok(())
    }
}

impl Writer {
    fn held(&mut self, held: Retained) {
        self.u64(held.data);
        self.u64(held.metadata);
    }
}

impl Reader<'_> {
    fn held(&mut self) -> Option<Retained> {
        Some(Retained { data: self.u64()?, metadata: self.u64()? })
    }

    fn totals(&mut self) -> Option<UsageTotals> {
        let (live, history, exclusive) = (self.u64()?, self.held()?, self.held()?);
        Some(UsageTotals { live, history, exclusive })
    }
}
