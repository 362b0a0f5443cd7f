//! One worker of the fast pass: looks at each block once, when it arrives, and keeps a [`Summary`].
//!
//! The worker has read the block, and found it sound and the version that its zone's header records. Here and
//! in the modules above come the rules that a block can break by itself. What must agree with other blocks is
//! summed up or kept.

use super::claim::{Claim, Span};
use super::doubt::{ensure, Certain};
use super::ground::Ground;
use super::places::Teller;
use super::summary::Summary;
use crate::key::COLLISIONS;
use std::collections::BTreeMap;
use yore_format::{DirEntry, ExtentValue, FileKind, GroupNo, Incarnation, InodeNo, MetaAddr};

/// A worker's part.
pub(crate) struct Digest<'g> {
    pub(crate) ground: &'g Ground,
    pub(crate) summary: Summary,
    pub(super) teller: Teller<'g>,
    /// In which parts of groups the blocks lie that the spans of this part of a zone have claimed.
    parts: BTreeMap<(GroupNo, Span), u64>,
}

impl<'g> Digest<'g> {
    pub(crate) fn new(ground: &'g Ground) -> Digest<'g> {
        Digest {
            ground,
            summary: Summary::new(ground.share),
            teller: Teller::new(&ground.places),
            parts: BTreeMap::new(),
        }
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
        self.ground.follows(directory, cookie, entry)?;
        let keys = &self.ground.keys;
        let named = (entry.inode, entry.incarnation, entry.kind);
        let place = keys.place(named, (directory, incarnation), cookie);
        self.teller.name_is_at(entry.inode, place, || keys.name(named))?;
        self.summary.tally.entries += 1;
        Ok((base, entry.kind == FileKind::Directory))
    }

    /// All blocks of a part of a zone were taken.
    pub(crate) fn part_is_over(&mut self) {
        for ((group, span), bits) in std::mem::take(&mut self.parts) {
            let kept = self.ground.kept(self.summary.part(group, span, bits));
            if let Err(doubt) = kept {
                self.ground.say(doubt);
            }
        }
    }

    /// An extent of an inode, which stands at an address, where the one before it ended at `end`. Returns
    /// where this one ends.
    pub(super) fn extent(
        &mut self,
        (inode, addr): (InodeNo, MetaAddr),
        key: u64,
        extent: &ExtentValue,
        end: u64,
    ) -> Certain<u64> {
        let len = u64::from(extent.len);
        let after = key.saturating_add(len);
        ensure(key >= end && after <= u64::from(u32::MAX), "extents out of order")?;
        self.ground.number(extent.birth)?;
        self.summary.tally.extents += 1;
        let claim = Claim { inode, key, start: extent.start, len, addr };
        if self.ground.is_shared(claim.start, len) {
            self.ground.kept(self.summary.shared(&claim))?;
            return Ok(after);
        }
        if let Some(part) = self.ground.claim(&claim)? {
            *self.parts.entry((part.group, Span::of(addr))).or_default() |= part.bits;
        }
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
