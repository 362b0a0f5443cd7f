//! One worker of the fast pass: looks at each block once, when it arrives, and keeps a [`Summary`].
//!
//! The worker has read the block, and found it sound and the version that its zone's header records. Here and
//! in the modules above come the rules that a block can break by itself. What must agree with other blocks is
//! summed up or kept.

use super::doubt::{ensure, Certain};
use super::ground::Ground;
use super::node::Summary;
use super::places::Teller;
use yore_format::{DirEntry, ExtentValue, FileKind, Incarnation, InodeNo};

/// Cookies that one hash of a name can have.
const COLLISIONS: u64 = 256;

/// A worker's part.
pub(crate) struct Digest<'g> {
    pub(crate) ground: &'g Ground,
    pub(crate) summary: Summary,
    pub(super) teller: Teller<'g>,
}

impl<'g> Digest<'g> {
    pub(crate) fn new(ground: &'g Ground) -> Digest<'g> {
        Digest { ground, summary: Summary::default(), teller: Teller::new(&ground.places) }
    }

    /// An entry: what its name's hash is, and whether it names a directory.
    pub(super) fn entry(
        &mut self,
        (directory, incarnation): (InodeNo, Incarnation),
        cookie: u64,
        entry: &DirEntry<'_>,
    ) -> Certain<(u64, bool)> {
        let base = yore_format::name_cookie(&self.ground.sb.hash_seed, entry.name);
        ensure((base..base + COLLISIONS).contains(&cookie), "an entry under another key")?;
        self.ground.number(entry.birth)?;
        let keys = &self.ground.keys;
        let named = (entry.inode, entry.incarnation, entry.kind);
        let place = keys.place(named, (directory, incarnation), cookie);
        self.teller.name_is_at(entry.inode, place, || keys.name(named))?;
        self.summary.tally.entries += 1;
        Ok((base, entry.kind == FileKind::Directory))
    }

    /// An extent, where the one before it ended at `end`. Returns where this one ends.
    pub(super) fn extent(&mut self, key: u64, extent: &ExtentValue, end: u64) -> Certain<u64> {
        let len = u64::from(extent.len);
        let after = key.saturating_add(len);
        ensure(key >= end && after <= u64::from(u32::MAX), "extents out of order")?;
        self.ground.number(extent.birth)?;
        self.ground.claim(extent.start, len)?;
        self.summary.tally.extents += 1;
        self.summary.tally.data_blocks += len;
        Ok(after)
    }
}

/// Whether a directory's links and size are what its entries say.
pub(super) fn check_listing(links: u32, size: u64, entries: u64, subdirectories: u64) -> Certain {
    ensure(size == entries, "a directory of another size")?;
    match links {
        0 => ensure(entries == 0, "a removed directory with entries"),
        _ => ensure(u64::from(links) == 2 + subdirectories, "another number of links of a directory"),
    }
}
