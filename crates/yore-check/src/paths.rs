//! The paths of what was found, and of what cannot be read.
//!
//! Numbers of inodes say little to people, so each finding that concerns an inode gets a path that leads to
//! it. And where an inode block cannot be read, the entries that lead to it are all that is left of its
//! inodes: their paths say what is lost.
//!
//! Both take one walk over the directories that can be read, and only on a volume with findings that need it.
//! The walk reports nothing: what is wrong was reported before. It enters a node only one level below its
//! parent's, so it ends; a path that meets itself has no beginning and is none.
//!
//! Of a path of more than 4 KiB only the end is told, and the way up is followed no further: directories may
//! be as deep as there are inodes.

use crate::checker::Checker;
use crate::inline::{InlineEntries, InlineEntry};
use crate::report::{Findings, Lost};
use crate::CheckError;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use yore_format::{
    Block, BlockKind, ContentKind, DirEntry, Expect, FileKind, Inode, InodeNo, MetaAddr, NodeRef,
};

/// The longest path that is told whole, in bytes. Of a longer one the end is.
const PATH_MAX: usize = 4096;
/// Names that are kept for other paths, at most.
const NAMES_KEPT: usize = 1 << 16;

/// Where a name is: the directory, and the name.
type Name = (InodeNo, Vec<u8>);

/// A directory's content: what its nodes must be, and the root.
struct Listing {
    inode: Inode,
    expect: Expect,
}

impl Listing {
    /// What a directory has, if the block of its inode could be read.
    fn of(number: InodeNo, block: Option<Arc<Block>>) -> Option<Listing> {
        let inode = Inode::decode(Inode::slot(&*block?, number.slot())).ok()?;
        let incarnation = inode.incarnation;
        let expect = Expect { kind: BlockKind::Directory, owner: number, incarnation, level: None };
        (FileKind::from_mode(inode.mode) == Some(FileKind::Directory)).then_some(Listing { inode, expect })
    }
}

/// What the paths are made of, as far as it was read.
struct Names {
    /// A name of each inode in question. `None`: it has none that can be read.
    of: BTreeMap<InodeNo, Option<Name>>,
    /// Names that lead to what cannot be read, at most so many, and how many there are.
    lost: Vec<Name>,
    lost_max: usize,
    lost_count: u64,
}

impl Checker<'_> {
    /// Gives the findings their paths, and says what is lost.
    pub(crate) fn paths(&mut self) -> Result<Lost, CheckError> {
        let wanted: BTreeSet<InodeNo> = self.findings.inodes().filter(|n| n.is_file()).collect();
        if self.findings.limit() == 0 || wanted.is_empty() && !self.incomplete {
            return Ok(Lost::default());
        }
        // Reading again what is damaged would report it again.
        let found = std::mem::replace(&mut self.findings, Findings::new(0));
        let incomplete = self.incomplete;
        let paths = self.find_paths(&wanted, found.limit());
        (self.findings, self.incomplete) = (found, incomplete);
        let (paths, lost) = paths?;
        self.findings.set_paths(&paths);
        Ok(lost)
    }

    fn find_paths(
        &mut self,
        wanted: &BTreeSet<InodeNo>,
        lost_max: usize,
    ) -> Result<(BTreeMap<InodeNo, String>, Lost), CheckError> {
        let mut names = Names { of: BTreeMap::new(), lost: Vec::new(), lost_max, lost_count: 0 };
        let mut unknown = BTreeSet::new();
        for number in wanted {
            if self.named(*number)?.is_none() {
                unknown.insert(*number);
            }
        }
        if self.incomplete || !unknown.is_empty() {
            self.search_all(&unknown, &mut names)?;
        }
        let mut paths = BTreeMap::new();
        for number in wanted {
            if let Some(path) = self.path(*number, None, &mut names)? {
                paths.insert(*number, path);
            }
        }
        let mut lost = Lost { paths: Vec::new(), count: names.lost_count };
        for (directory, name) in std::mem::take(&mut names.lost) {
            lost.paths.extend(self.path(directory, Some(name), &mut names)?);
        }
        lost.paths.sort();
        Ok((paths, lost))
    }

    /// The directory and cookie of an entry that names an inode in use, where the walk met one.
    fn named(&self, number: InodeNo) -> Result<Option<(InodeNo, u64)>, CheckError> {
        let known = self.known_inode(number)?.filter(|known| known.names > 0);
        Ok(known.map(|known| (known.named_in, known.named_at)))
    }

    /// Looks through all directories for names of inodes of which none is known, and for those that lead to
    /// what cannot be read.
    fn search_all(&mut self, unknown: &BTreeSet<InodeNo>, names: &mut Names) -> Result<(), CheckError> {
        for at in 0..self.inodes.len() {
            let known = self.inodes.get(at)?;
            if !known.is_directory() {
                continue;
            }
            let directory = known.number;
            let block = self.read_again(directory.addr(), &Expect::volume(BlockKind::Inodes))?;
            let Some(listing) = Listing::of(directory, block) else { continue };
            self.each_entry(&listing, &mut |checker, _, entry| {
                let name = || (directory, entry.name.to_vec());
                if unknown.contains(&entry.inode) {
                    names.of.entry(entry.inode).or_insert_with(|| Some(name()));
                }
                if checker.known(entry.inode)?.is_none() && checker.is_hidden(entry.inode)? {
                    names.lost_count += 1;
                    if names.lost.len() < names.lost_max {
                        names.lost.push(name());
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// A path of an inode, or of a name in it, if the names can be read up to the root, or as far up as a
    /// path is told.
    fn path(
        &mut self,
        number: InodeNo,
        name: Option<Vec<u8>>,
        names: &mut Names,
    ) -> Result<Option<String>, CheckError> {
        let mut steps: Vec<Vec<u8>> = name.into_iter().collect();
        let mut bytes: usize = steps.iter().map(|name| 1 + name.len()).sum();
        let (mut passed, mut at) = (BTreeSet::new(), number);
        while at != InodeNo::ROOT {
            if !passed.insert(at) {
                return Ok(None);
            }
            if bytes > PATH_MAX {
                // A long way round has no beginning either.
                let known = self.known_inode(at)?;
                if known.is_none_or(|known| known.below_root == Some(false)) {
                    return Ok(None);
                }
                break;
            }
            let name = match names.of.get(&at).cloned() {
                Some(name) => name,
                None => {
                    let name = self.name(at)?;
                    if names.of.len() < NAMES_KEPT {
                        names.of.insert(at, name.clone());
                    }
                    name
                }
            };
            let Some((directory, name)) = name else { return Ok(None) };
            bytes += 1 + name.len();
            steps.push(name);
            at = directory;
        }
        Ok(Some(joined(&steps)))
    }

    /// The name of an inode in use: that of the entry which the walk met.
    fn name(&mut self, number: InodeNo) -> Result<Option<Name>, CheckError> {
        let Some((directory, cookie)) = self.named(number)? else { return Ok(None) };
        let block = self.read_alone(directory.addr(), &Expect::volume(BlockKind::Inodes))?;
        let Some(listing) = Listing::of(directory, block) else { return Ok(None) };
        let mut found = None;
        if listing.inode.content_kind == ContentKind::Inline {
            self.each_entry(&listing, &mut |_, at, entry| {
                if at == cookie {
                    found = Some((directory, entry.name.to_vec()));
                }
                Ok(())
            })?;
            return Ok(found);
        }
        let key = cookie.to_be_bytes();
        let (mut addr, mut level) = (listing.inode.tree_root(), listing.inode.content_level);
        while let Some(block) = self.node(&listing, addr, level)? {
            let node = NodeRef::new(&block);
            if level == 0 {
                let entry = node.search(&key).ok().and_then(|i| DirEntry::decode(node.value(i)).ok());
                return Ok(entry.map(|entry| (directory, entry.name.to_vec())));
            }
            let Ok(child) = node.child(node.child_for(&key)) else { break };
            (addr, level) = (child, level - 1);
        }
        Ok(None)
    }

    /// A node of a directory's tree, if it can be read and has cells.
    fn node(&mut self, of: &Listing, addr: MetaAddr, level: u8) -> Result<Option<Arc<Block>>, CheckError> {
        let expect = Expect { level: Some(level), ..of.expect };
        let block = self.read_again(addr, &expect)?;
        Ok(block.filter(|block| {
            let node = NodeRef::new(block);
            node.count() > 0 && node.key_width() == crate::key::KEY_WIDTH
        }))
    }

    /// Calls `each` with the cookie and entry of every name that can be read.
    fn each_entry(
        &mut self,
        of: &Listing,
        each: &mut dyn FnMut(&mut Self, u64, &DirEntry<'_>) -> Result<(), CheckError>,
    ) -> Result<(), CheckError> {
        match of.inode.content_kind {
            ContentKind::Empty | ContentKind::Extents => Ok(()),
            ContentKind::Inline => {
                for InlineEntry { cookie, entry, .. } in InlineEntries::readable(of.inode.inline()) {
                    each(self, cookie, &entry)?;
                }
                Ok(())
            }
            ContentKind::Tree => {
                // Damage can let many branches name one node.
                let mut passed = BTreeSet::new();
                let mut stack = vec![(of.inode.tree_root(), of.inode.content_level)];
                while let Some((addr, level)) = stack.pop() {
                    if !passed.insert(addr) {
                        continue;
                    }
                    let Some(block) = self.node(of, addr, level)? else { continue };
                    let node = NodeRef::new(&block);
                    for i in 0..node.count() {
                        if level > 0 {
                            stack.extend(node.child(i).ok().map(|child| (child, level - 1)));
                        } else if let Ok(entry) = DirEntry::decode(node.value(i)) {
                            each(self, crate::key::key(node, i).number(), &entry)?;
                        }
                    }
                }
                Ok(())
            }
        }
    }
}

/// The path of these names, the last of which is the first of the path; of a long one the end. What is not
/// UTF-8 is replaced, as in every path in JSON.
fn joined(steps: &[Vec<u8>]) -> String {
    let names: Vec<Cow<'_, str>> = steps.iter().rev().map(|name| String::from_utf8_lossy(name)).collect();
    let bytes = names.iter().map(|name| 1 + name.len()).sum();
    let mut path = String::with_capacity(bytes);
    for name in &names {
        path.push('/');
        path.push_str(name);
    }
    if path.is_empty() {
        path.push('/');
    }
    if path.len() > PATH_MAX {
        let from = (path.len() - PATH_MAX..path.len()).find(|at| path.is_char_boundary(*at));
        path = path.split_off(from.unwrap_or(path.len()));
    }
    path
}
