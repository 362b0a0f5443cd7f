//! Entries of directories, and what they say about the inodes that they name.

use crate::checker::Checker;
use crate::inline::{InlineEntries, InlineEntry};
use crate::key::COLLISIONS;
use crate::state::State;
use crate::walk::Walk;
use crate::{CheckError, Finding, Problem, Recount};
use yore_format::{name_cookie, BlockKind, ContentKind, DirEntry, Inode, InodeNo, MetaAddr};

/// The entries of one directory so far, in ascending order of cookies.
struct Listing {
    number: InodeNo,
    entries: u64,
    /// Entries that are directories.
    subdirectories: u64,
    /// The hash that the last names share, and the names. Equal names share their hash, and hashes ascend
    /// with the cookies. So a name can occur twice only among these names, of which there are at most 256.
    base: u64,
    names: Vec<Vec<u8>>,
}

impl Checker<'_> {
    /// Checks a directory's entries.
    pub(crate) fn directory(&mut self, at: usize, state: &mut State<'_>) -> Result<(), CheckError> {
        let (number, inode) = (state.number, state.inode);
        self.counts.directories += 1;
        let mut listing = Listing { number, entries: 0, subdirectories: 0, base: 0, names: Vec::new() };
        match inode.content_kind {
            ContentKind::Empty => {}
            ContentKind::Inline => state.complete &= self.inline_entries(&mut listing, inode)?,
            ContentKind::Extents => {
                self.wrong_content(state, "empty, inline or a tree");
            }
            ContentKind::Tree => {
                let mut walk = Walk::new(state.content_tree(BlockKind::Directory));
                while let Some(leaf) = walk.next_leaf(self)? {
                    for i in 0..leaf.count() {
                        let (cookie, value) = leaf.cell(i);
                        match DirEntry::decode(value) {
                            Ok(entry) => self.check_entry(&mut listing, leaf.addr, cookie, &entry)?,
                            Err(c) => {
                                let c = c.at(leaf.addr).of(number);
                                self.add_incomplete(Finding::corruption(Problem::CellDamaged, &c));
                                state.complete = false;
                            }
                        }
                    }
                }
                state.blocks += walk.nodes;
                state.complete &= walk.complete;
            }
        }
        let entries = self.inodes.update(at, |known| {
            (known.entries, known.subdirectories) = (listing.entries, listing.subdirectories);
            known.entries
        })?;
        self.counts.entries += entries;
        if state.complete && entries != inode.size {
            let finding = Finding::new(Problem::DirectorySize, entries, inode.size);
            let recount = Recount::Counts {
                inode: number,
                incarnation: inode.incarnation,
                size: entries.wrapping_sub(inode.size) as i64,
                blocks: 0,
            };
            self.add(finding.at(number.addr()).of(number).recounted(recount));
        }
        Ok(())
    }

    /// Entries that lie in the inode: cookie, entry, cookie, entry, in ascending order. False if they cannot
    /// be read.
    fn inline_entries(&mut self, listing: &mut Listing, inode: &Inode) -> Result<bool, CheckError> {
        let addr = listing.number.addr();
        let mut after: Option<u64> = None;
        for item in InlineEntries::new(inode.inline()) {
            let InlineEntry { cookie, entry, .. } = match item {
                Ok(item) => item,
                Err(c) => {
                    let c = c.at(addr).of(listing.number);
                    self.add_incomplete(Finding::corruption(Problem::EntryInline, &c));
                    return Ok(false);
                }
            };
            if after.is_some_and(|after| cookie <= after) {
                let expected = format!("cookies above {:#x}", after.unwrap_or_default());
                let finding = Finding::new(Problem::EntryInline, expected, format!("{cookie:#x}"));
                self.add(finding.at(addr).of(listing.number));
            }
            after = Some(cookie);
            self.check_entry(listing, addr, cookie, &entry)?;
        }
        Ok(true)
    }

    /// One entry.
    fn check_entry(
        &mut self,
        listing: &mut Listing,
        addr: MetaAddr,
        cookie: u64,
        entry: &DirEntry<'_>,
    ) -> Result<(), CheckError> {
        let directory = listing.number;
        let name = String::from_utf8_lossy(entry.name);
        listing.entries += 1;
        let base = name_cookie(&self.sb.hash_seed, entry.name);
        if !(base..base + COLLISIONS).contains(&cookie) {
            let expected = format!("{base:#x} and up to 255 more for {name:?}");
            let finding = Finding::new(Problem::EntryKey, expected, format!("{cookie:#x}"));
            self.add(finding.at(addr).of(directory));
        }
        if base != listing.base {
            listing.names.clear();
            listing.base = base;
        }
        if listing.names.iter().any(|n| n == entry.name) {
            let finding = Finding::new(Problem::EntryDuplicate, "one entry", format!("another {name:?}"));
            self.add(finding.at(addr).of(directory));
        } else if listing.names.len() < COLLISIONS as usize {
            listing.names.push(entry.name.to_vec());
        }
        self.check_number("birth of an entry", entry.birth, addr, directory);
        self.check_past_names(directory, addr, cookie, entry, true)?;
        let Some(target) = self.known(entry.inode)? else {
            if !self.is_hidden(entry.inode)? {
                let found = format!("inode {} for {name:?}", entry.inode);
                let finding = Finding::new(Problem::EntryDangling, "an inode in use", found);
                self.add(finding.at(addr).of(directory));
            }
            return Ok(());
        };
        let (incarnation, kind, is_remembered, before) = self.inodes.update(target, |known| {
            let is_remembered = (known.parent, known.parent_cookie) == (directory, cookie);
            let before = (known.names > 0).then_some((known.named_in, known.named_at));
            known.is_remembered |= is_remembered;
            known.names += 1;
            (known.named_in, known.named_at) = (directory, cookie);
            (known.incarnation, known.kind, is_remembered, before)
        })?;
        if is_remembered {
            self.check_expunged((entry.inode, entry.incarnation), entry.birth, "an entry", addr);
        }
        if kind == yore_format::FileKind::Directory {
            // While a directory is renamed it may have two names in one directory, which counts it once.
            let is_counted = before.is_some_and(|(named_in, _)| named_in == directory);
            listing.subdirectories += u64::from(!is_counted);
            if let Some(before) = before {
                self.further_names.entry(entry.inode).or_default().push(before);
            }
        }
        if incarnation != entry.incarnation {
            let (expected, found) = (incarnation.0, format!("{} for {name:?}", entry.incarnation));
            let finding = Finding::new(Problem::EntryIncarnation, expected, found);
            self.add(finding.at(addr).of(directory));
        }
        if kind != entry.kind {
            let (expected, found) = (format!("{kind:?}"), format!("{:?} for {name:?}", entry.kind));
            let finding = Finding::new(Problem::EntryKind, expected, found);
            self.add(finding.at(addr).of(directory));
        }
        Ok(())
    }
}
