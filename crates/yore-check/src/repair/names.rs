//! Directories, orphans, and inodes that have lost their names.
//!
//! A directory is read as far as that goes, its entries are put right one by one, and it is written anew, in
//! the inode if they fit there. Counts (links, parents, sizes) are left to the round after it.

use super::round::{Loss, Once, Round};
use super::tree::{Gathered, Which};
use crate::inline::{InlineEntries, InlineEntry};
use crate::key::COLLISIONS;
use crate::known::Known;
use crate::{CheckError, Finding};
use std::collections::{BTreeMap, BTreeSet};
use yore_format::{
    name_cookie, orphan_value, BlockKind, ContentKind, DirEntry, EventNo, FileKind, Incarnation, Inode,
    InodeNo, MetaAddr, INLINE_BYTES, INODES_PER_BLOCK, NAME_MAX, NOT_INODES,
};

/// Steps up from a file to the root that are believed.
const DEPTH_MAX: usize = 4096;
/// Where inodes without a name go.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// An entry that is kept.
struct Kept {
    inode: InodeNo,
    incarnation: Incarnation,
    birth: EventNo,
    kind: FileKind,
    name: Vec<u8>,
}

impl Kept {
    fn of(entry: &DirEntry<'_>) -> Kept {
        let DirEntry { inode, incarnation, birth, kind, name } = *entry;
        Kept { inode, incarnation, birth, kind, name: name.to_vec() }
    }

    fn encoded(&self) -> Vec<u8> {
        let Kept { inode, incarnation, birth, kind, .. } = *self;
        let mut value = Vec::new();
        DirEntry { inode, incarnation, birth, kind, name: &self.name }.encode(&mut value);
        value
    }
}

/// What a directory holds.
struct Entries {
    /// In the order in which they were found.
    cells: Vec<(u64, Vec<u8>)>,
    old: Gathered,
    /// Something could not be read.
    is_lossy: bool,
}

impl Round<'_> {
    /// Reads a directory as far as that goes. `None` if it is none.
    fn entries(&mut self, number: InodeNo) -> Result<Option<(Inode, Entries)>, CheckError> {
        let Some(inode) = self.volume.inode(number)?.filter(Inode::is_directory) else { return Ok(None) };
        let mut found = Entries { cells: Vec::new(), old: Gathered::default(), is_lossy: false };
        match inode.content_kind {
            ContentKind::Empty => {}
            ContentKind::Extents => found.is_lossy = true,
            ContentKind::Inline => {
                for item in InlineEntries::new(inode.inline()) {
                    match item {
                        Ok(InlineEntry { cookie, bytes, .. }) => found.cells.push((cookie, bytes.to_vec())),
                        Err(_) => found.is_lossy = true,
                    }
                }
            }
            ContentKind::Tree => {
                let which = directory_tree(number, &inode);
                found.old = self.volume.gather(which, inode.tree_root(), Some(inode.content_level))?;
                found.is_lossy = found.old.is_lossy;
                found.cells = found.old.cells.iter().map(|(key, value)| (*key, value.clone())).collect();
            }
        }
        Ok(Some((inode, found)))
    }

    /// Puts the entries of the directory that a finding is about right.
    pub(super) fn mend_directory(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        match finding.inode {
            Some(number) => self.mend_entries(number),
            None => Ok(false),
        }
    }

    pub(super) fn mend_entries(&mut self, number: InodeNo) -> Result<bool, CheckError> {
        if !self.is_first(Once::Directory(number)) {
            // Other findings of the same directory are put right with the first one.
            return Ok(true);
        }
        let Some((mut inode, entries)) = self.entries(number)? else { return Ok(false) };
        if entries.is_lossy {
            self.lose(number, "entries of this directory could not be read")?;
        }
        let mut kept: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut names: BTreeMap<Vec<u8>, InodeNo> = BTreeMap::new();
        for (cookie, value) in &entries.cells {
            let Ok(entry) = DirEntry::decode(value) else {
                self.lose(number, "an entry of this directory could not be read")?;
                continue;
            };
            let Some(mut entry) = self.judge(number, *cookie, Kept::of(&entry))? else { continue };
            if let Some(other) = names.get(&entry.name) {
                if *other == entry.inode {
                    continue;
                }
                rename(&mut entry, &names);
            }
            names.insert(entry.name.clone(), entry.inode);
            let base = name_cookie(&self.volume.sb.hash_seed, &entry.name);
            let keys = base..base.saturating_add(COLLISIONS);
            let own = Some(*cookie).filter(|key| keys.contains(key) && !kept.contains_key(key));
            match own.or_else(|| keys.clone().find(|key| !kept.contains_key(key))) {
                Some(key) => drop(kept.insert(key, entry.encoded())),
                None => self.lose(number, format!("no key is left for {}", shown(&entry.name)))?,
            }
        }
        if !entries.is_lossy
            && !entries.old.is_ragged
            && kept.iter().eq(entries.cells.iter().map(|(key, value)| (key, value)))
        {
            return Ok(false);
        }
        self.set_entries(number, &mut inode, &entries.old, &kept)
    }

    /// An entry as it should be; `None` if it should not be.
    fn judge(
        &mut self,
        directory: InodeNo,
        cookie: u64,
        mut entry: Kept,
    ) -> Result<Option<Kept>, CheckError> {
        let Some(known) = self.seen.known_inode(entry.inode)? else {
            // What is unreadable in this round may be back in the next one.
            if self.seen.incomplete {
                return Ok(Some(entry));
            }
            let what = format!("the name {} of an inode that does not exist was removed", shown(&entry.name));
            self.lose(directory, what)?;
            return Ok(None);
        };
        let is_remembered = (known.parent, known.parent_cookie) == (directory, cookie);
        if known.incarnation != entry.incarnation {
            if !is_remembered {
                let what = format!("the name {} of a file that was removed is gone", shown(&entry.name));
                self.lose(directory, what)?;
                return Ok(None);
            }
            entry.incarnation = known.incarnation;
        }
        entry.kind = known.kind;
        Ok(self.may_name(&known, directory, cookie).then_some(entry))
    }

    /// Whether this may be a name of an inode: a directory has one.
    fn may_name(&self, known: &Known, directory: InodeNo, cookie: u64) -> bool {
        if !known.is_directory() {
            return true;
        }
        if known.number == InodeNo::ROOT {
            return false;
        }
        if known.names < 2 {
            return true;
        }
        // If it remembers none of its names, the last one that was met is as good as any.
        let here = (directory, cookie);
        let remembered = (known.parent, known.parent_cookie);
        here == if self.has_remembered_name(known) { remembered } else { (known.named_in, known.named_at) }
    }

    /// Whether the name is there that a directory remembers.
    fn has_remembered_name(&self, known: &Known) -> bool {
        self.named_at(known.parent, known.parent_cookie).is_ok_and(|named| named == Some(known.number))
    }

    /// What the entry of a directory under a cookie names.
    fn named_at(&self, directory: InodeNo, cookie: u64) -> Result<Option<InodeNo>, CheckError> {
        let value = self.entry_at(directory, cookie)?;
        Ok(value.and_then(|value| DirEntry::decode(&value).ok().map(|entry| entry.inode)))
    }

    /// The entry of a directory under a cookie.
    fn entry_at(&self, directory: InodeNo, cookie: u64) -> Result<Option<Vec<u8>>, CheckError> {
        let Some(inode) = self.volume.inode(directory)?.filter(Inode::is_directory) else { return Ok(None) };
        match inode.content_kind {
            ContentKind::Inline => {
                let found = InlineEntries::readable(inode.inline()).find(|found| found.cookie == cookie);
                Ok(found.map(|found| found.bytes.to_vec()))
            }
            ContentKind::Tree => self.volume.value_under(
                directory_tree(directory, &inode),
                inode.tree_root(),
                inode.content_level,
                cookie,
            ),
            ContentKind::Empty | ContentKind::Extents => Ok(None),
        }
    }

    /// Gives a directory these entries.
    fn set_entries(
        &mut self,
        number: InodeNo,
        inode: &mut Inode,
        old: &Gathered,
        cells: &BTreeMap<u64, Vec<u8>>,
    ) -> Result<bool, CheckError> {
        let bytes: Vec<u8> =
            cells.iter().flat_map(|(key, value)| [&key.to_be_bytes()[..], value].concat()).collect();
        inode.size = cells.len() as u64;
        if bytes.len() <= INLINE_BYTES {
            inode.set_inline(&bytes);
        } else {
            let which = directory_tree(number, inode);
            let Some(tree) = self.volume.write_tree(which, number.addr().zone(), old, cells)? else {
                return Ok(false);
            };
            inode.set_tree_root(tree.root, tree.level);
        }
        self.volume.set_inode(number, Some(inode))
    }

    /// A directory with several names keeps one. All directories that name it are put right.
    pub(super) fn mend_named_twice(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        let Some(number) = finding.inode else { return Ok(false) };
        let Some(known) = self.seen.known_inode(number)? else { return Ok(false) };
        let further = self.seen.further_names.get(&number).into_iter().flatten();
        let mut directories: BTreeSet<InodeNo> = further.map(|(directory, _)| *directory).collect();
        directories.insert(known.named_in);
        let mut changed = false;
        for directory in directories {
            changed |= self.mend_entries(directory)?;
        }
        Ok(changed)
    }

    /// Takes the name of a directory that is below itself away.
    pub(super) fn break_cycle(&mut self, finding: &Finding) -> Result<bool, CheckError> {
        let Some(number) = finding.inode else { return Ok(false) };
        let Some(known) = self.seen.known_inode(number)? else { return Ok(false) };
        let (above, cookie) = (known.named_in, known.named_at);
        if !self.is_first(Once::Directory(above)) {
            return Ok(false);
        }
        let Some((mut inode, entries)) = self.entries(above)?.filter(|(_, entries)| !entries.is_lossy) else {
            return Ok(false);
        };
        let cells = entries.cells.into_iter().filter(|(key, _)| *key != cookie).collect();
        self.set_entries(above, &mut inode, &entries.old, &cells)
    }

    /// Makes the tree of orphans anew: every inode without links, and those of the old tree that may be
    /// there. The old nodes are freed when nothing leads to them.
    pub(super) fn new_orphans(&mut self, _: &Finding) -> Result<bool, CheckError> {
        if !self.is_first(Once::Orphans) {
            return Ok(true);
        }
        let mut cells: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        self.seen.inodes.each(|known| {
            if known.links == 0 || known.orphan {
                cells.insert(known.number.0, orphan_value(known.incarnation).to_vec());
            }
        })?;
        let sb = &mut self.volume.sb;
        (sb.orphan_root, sb.orphan_level) = (MetaAddr::NONE, 0);
        if cells.is_empty() {
            return Ok(true);
        }
        let which = Which { kind: BlockKind::Orphans, owner: InodeNo::ORPHANS, incarnation: Incarnation(0) };
        let near = InodeNo::ROOT.addr().zone();
        let Some(tree) = self.volume.write_tree(which, near, &Gathered::default(), &cells)? else {
            return Ok(false);
        };
        (self.volume.sb.orphan_root, self.volume.sb.orphan_level) = (tree.root, tree.level);
        Ok(true)
    }

    /// Gives all inodes without a name one in lost+found.
    pub(super) fn rescue(&mut self, _: &Finding) -> Result<bool, CheckError> {
        if !self.is_first(Once::Rescue) {
            return Ok(true);
        }
        let mut unnamed: Vec<(InodeNo, Incarnation, FileKind)> = Vec::new();
        self.seen.inodes.each(|known| {
            if known.names == 0 && known.links > 0 && known.number != InodeNo::ROOT {
                unnamed.push((known.number, known.incarnation, known.kind));
            }
        })?;
        let Some(place) = self.lost_and_found()? else { return Ok(false) };
        // A directory of that name that has lost its own stays where it can be found: in itself it could not.
        let unnamed: Vec<_> = unnamed.into_iter().filter(|(number, ..)| *number != place).collect();
        let Some((mut inode, entries)) = self.entries(place)?.filter(|(_, entries)| !entries.is_lossy) else {
            return Ok(false);
        };
        let mut cells: BTreeMap<u64, Vec<u8>> = entries.cells.into_iter().collect();
        let taken: BTreeSet<Vec<u8>> = cells
            .values()
            .filter_map(|v| DirEntry::decode(v).ok().map(|entry| entry.name.to_vec()))
            .collect();
        for (number, incarnation, kind) in unnamed {
            let name = (0..)
                .map(|n: u64| {
                    if n == 0 { format!("#{number}") } else { format!("#{number}.{n}") }.into_bytes()
                })
                .find(|name| !taken.contains(name));
            let Some(name) = name else { return Ok(false) };
            let birth = self.volume.sb.next_number;
            self.add(&mut cells, &Kept { inode: number, incarnation, birth, kind, name });
        }
        self.set_entries(place, &mut inode, &entries.old, &cells)
    }

    /// Adds an entry under a key of its own. Returns the key; `None` if its hash has no key left.
    fn add(&self, cells: &mut BTreeMap<u64, Vec<u8>>, entry: &Kept) -> Option<u64> {
        let base = name_cookie(&self.volume.sb.hash_seed, &entry.name);
        let key = (base..base.saturating_add(COLLISIONS)).find(|key| !cells.contains_key(key))?;
        cells.insert(key, entry.encoded());
        Some(key)
    }

    /// The directory lost+found, which is made if there is none. What somebody else may read or write is left
    /// to him, since names of all users go there: then the directory gets another name. `None` if it cannot
    /// be made.
    fn lost_and_found(&mut self) -> Result<Option<InodeNo>, CheckError> {
        let Some((mut root, entries)) = self.entries(InodeNo::ROOT)?.filter(|(_, entries)| !entries.is_lossy)
        else {
            return Ok(None);
        };
        let mut named: BTreeMap<Vec<u8>, (InodeNo, FileKind)> = BTreeMap::new();
        for (_, value) in &entries.cells {
            let Ok(DirEntry { name, inode, kind, .. }) = DirEntry::decode(value) else { return Ok(None) };
            if name.starts_with(LOST_AND_FOUND) {
                named.insert(name.to_vec(), (inode, kind));
            }
        }
        let mut name = LOST_AND_FOUND.to_vec();
        while let Some((number, kind)) = named.get(&name) {
            if *kind == FileKind::Directory {
                let there = self.seen.known(*number)?.map_or(Ok(None), |_| self.volume.inode(*number))?;
                // What is not there may be in the next round.
                let Some(inode) = there else { return Ok(None) };
                if inode.uid == 0 && inode.mode & 0o077 == 0 {
                    return Ok(Some(*number));
                }
            }
            name.push(b'+');
        }
        if name.len() > NAME_MAX {
            return Ok(None);
        }
        let (next, most) = (self.volume.sb.next_incarnation, u64::from(u32::MAX));
        let Some(number) = self.free_inode()?.filter(|_| next < most) else { return Ok(None) };
        self.volume.sb.next_incarnation += 1;
        let incarnation = Incarnation(next as u32);
        let birth = self.volume.sb.next_number;
        let kind = FileKind::Directory;
        let mut cells: BTreeMap<u64, Vec<u8>> = entries.cells.into_iter().collect();
        let entry = Kept { inode: number, incarnation, birth, kind, name };
        let Some(cookie) = self.add(&mut cells, &entry) else { return Ok(None) };
        let mut inode = Inode::free();
        (inode.mode, inode.links, inode.incarnation) = (kind.mode() | 0o700, 2, incarnation);
        (inode.born, inode.parent, inode.parent_cookie) = (birth, InodeNo::ROOT, cookie);
        (inode.parent_incarnation, inode.mtime, inode.ctime) = (root.incarnation, root.mtime, root.ctime);
        (inode.atime, inode.btime) = (root.atime, root.ctime);
        if !self.volume.set_inode(number, Some(&inode))? {
            return Ok(None);
        }
        let is_set = self.set_entries(InodeNo::ROOT, &mut root, &entries.old, &cells)?;
        Ok(is_set.then_some(number))
    }

    /// An inode that is free; if there is none, in a block that is made for it.
    fn free_inode(&mut self) -> Result<Option<InodeNo>, CheckError> {
        let with_room =
            self.volume.zones.iter().filter(|(number, _)| !number.is_root()).find_map(|(number, zone)| {
                let is_some_free = |free: &u8| *free != NOT_INODES && *free > 0;
                let index = zone.header.inode_free.iter().position(is_some_free)?;
                Some(MetaAddr::new(*number, index as u16))
            });
        let addr = match with_room {
            Some(addr) => addr,
            None => {
                let Some(addr) = self.volume.free_address(InodeNo::ROOT.addr().zone()) else {
                    return Ok(None);
                };
                let nobody = (InodeNo::NONE, Incarnation(0));
                let block = self.volume.empty(BlockKind::Inodes, 0, addr, nobody, EventNo(0));
                if !self.volume.put(addr, block) {
                    return Ok(None);
                }
                addr
            }
        };
        let Some(block) = self.volume.read_kind(addr, BlockKind::Inodes)? else { return Ok(None) };
        let free = (0..INODES_PER_BLOCK).find(|slot| Inode::slot_is_free(&block, *slot));
        Ok(free.map(|slot| InodeNo::new(addr, slot as u8)))
    }

    /// Remembers that something of a file is lost.
    pub(super) fn lose(&mut self, number: InodeNo, what: impl Into<String>) -> Result<(), CheckError> {
        let path = self.path_of(number)?;
        let unnamed = (!path.starts_with('/')).then_some(number);
        let lost = Loss { path, what: what.into(), unnamed };
        if self.said.insert((lost.path.clone(), lost.what.clone())) {
            self.lost.push(lost);
        }
        Ok(())
    }

    /// Says what was lost by the paths that there are after the repair, where there was none before.
    pub(super) fn name(&self, lost: &mut [Loss]) -> Result<(), CheckError> {
        for loss in lost {
            if let Some(number) = loss.unnamed {
                loss.path = self.path_of(number)?;
            }
        }
        Ok(())
    }

    /// The path of a file by the names that the check met.
    pub(super) fn path_of(&self, number: InodeNo) -> Result<String, CheckError> {
        let (mut at, mut names) = (number, Vec::new());
        while at != InodeNo::ROOT && names.len() < DEPTH_MAX {
            let Some(known) = self.seen.known_inode(at)?.filter(|known| known.names > 0) else {
                names.push(format!("inode {at}"));
                names.reverse();
                return Ok(names.join("/"));
            };
            let value = self.entry_at(known.named_in, known.named_at)?;
            let name = value.and_then(|value| DirEntry::decode(&value).ok().map(|entry| shown(entry.name)));
            names.push(name.unwrap_or_else(|| format!("inode {at}")));
            at = known.named_in;
        }
        names.reverse();
        Ok(format!("/{}", names.join("/")))
    }
}

fn directory_tree(number: InodeNo, inode: &Inode) -> Which {
    Which { kind: BlockKind::Directory, owner: number, incarnation: inode.incarnation }
}

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Gives an entry whose name another one has a name of its own.
fn rename(entry: &mut Kept, names: &BTreeMap<Vec<u8>, InodeNo>) {
    let of = |n: u64| {
        let again = if n == 0 { String::new() } else { format!(".{n}") };
        let suffix = format!(".#{}{again}", entry.inode);
        let kept = entry.name.len().min(NAME_MAX.saturating_sub(suffix.len()));
        [&entry.name[..kept], suffix.as_bytes()].concat()
    };
    let mut name = of(0);
    // So many names are more than there can be entries.
    for n in 1..=names.len() as u64 {
        if !names.contains_key(&name) {
            break;
        }
        name = of(n);
    }
    entry.name = name;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Somebody may have taken the names that a repair would give. Then they got longer and longer, beyond
    /// what a name can be. Promises that another one is found.
    #[test]
    fn a_new_name_is_not_longer_than_a_name_can_be() {
        let mut names = BTreeMap::new();
        for _ in 0..120 {
            let mut entry = Kept {
                inode: InodeNo(77),
                incarnation: Incarnation(1),
                birth: EventNo(1),
                kind: FileKind::Regular,
                name: vec![b'n'; NAME_MAX],
            };
            rename(&mut entry, &names);
            assert!(entry.name.len() <= NAME_MAX && !names.contains_key(&entry.name));
            names.insert(entry.name, entry.inode);
        }
    }
}
