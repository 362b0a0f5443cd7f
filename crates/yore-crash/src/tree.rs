//! A file system as seen from outside: everything that a walk from the root finds.
//!
//! A [`Tree`] is made from a mounted volume ([`crate::subject`]) or from a state of the model; comparing two
//! says in words where they differ. The judge of crash states works on trees alone, so that it can be tested
//! with trees that are wrong on purpose.

use crate::model::{Block, Body, FileData, Inode, State, Time, ROOT};
use crate::op::{show_name, Name};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use yore_fs::{Attr, FileKind, Timestamp};

/// An inode's attributes, as far as they are promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // As in `yore_fs::Attr`.
pub struct Facts {
    pub incarnation: u32,
    pub kind: FileKind,
    pub permissions: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub btime: Timestamp,
}

impl Facts {
    /// The promised part of attributes.
    pub fn of(attr: &Attr) -> Facts {
        Facts {
            incarnation: attr.incarnation,
            kind: attr.kind,
            permissions: attr.permissions,
            links: attr.links,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            atime: attr.atime,
            mtime: attr.mtime,
            ctime: attr.ctime,
            btime: attr.btime,
        }
    }
}

/// What a node holds, by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inside {
    /// Entries: inode number and type by name; and the number of `..`.
    Directory {
        /// By name.
        entries: BTreeMap<Name, (u64, FileKind)>,
        /// `..`.
        parent: u64,
    },
    /// Size, and the blocks that are not all zeros.
    File {
        /// Bytes.
        size: u64,
        /// By index.
        blocks: BTreeMap<u64, Arc<Block>>,
    },
    /// Target.
    Symlink(Name),
    /// Nothing.
    Special,
}

/// An inode as seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Attributes.
    pub facts: Facts,
    /// Extended attributes.
    pub xattrs: BTreeMap<Name, Arc<[u8]>>,
    /// The rest.
    pub inside: Inside,
}

/// Everything below a root.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// The root's number.
    pub root: u64,
    /// By number.
    pub nodes: HashMap<u64, Node>,
    /// Contradictions met on the way, such as a directory with two names.
    pub contradictions: Vec<String>,
}

impl Tree {
    /// What a walk through a state of the model finds. All its times must be known.
    pub fn of(state: &State) -> Tree {
        let mut tree = Tree { root: number(state, ROOT), nodes: HashMap::new(), contradictions: Vec::new() };
        let mut waiting = vec![ROOT];
        while let Some(ino) = waiting.pop() {
            let Some(inode) = state.get(ino) else { continue };
            if tree.nodes.insert(number(state, ino), node(state, inode)).is_none() {
                waiting.extend(inode.entries().into_iter().flat_map(|entries| entries.values()));
            }
        }
        tree
    }

    /// The directories, with their entries.
    pub fn directories(&self) -> impl Iterator<Item = (u64, &BTreeMap<Name, (u64, FileKind)>)> {
        self.nodes.keys().filter_map(|inode| Some((*inode, self.entries(*inode)?)))
    }

    /// The entries of a directory; `None` if there is no such directory.
    pub fn entries(&self, inode: u64) -> Option<&BTreeMap<Name, (u64, FileKind)>> {
        match &self.nodes.get(&inode)?.inside {
            Inside::Directory { entries, .. } => Some(entries),
            _ => None,
        }
    }

    /// A path that leads to an inode, for people.
    pub fn path_of(&self, inode: u64) -> String {
        let mut path = String::new();
        let mut at = inode;
        // A chain of directories is no longer than there are nodes, unless it is broken.
        for _ in 0..self.nodes.len() {
            if at == self.root {
                break;
            }
            let above = self.nodes.iter().find_map(|(number, node)| match &node.inside {
                Inside::Directory { entries, .. } => {
                    entries.iter().find(|(_, entry)| entry.0 == at).map(|(name, _)| (*number, name))
                }
                _ => None,
            });
            let Some((directory, name)) = above else {
                return format!("inode {inode}");
            };
            path = format!("/{}{path}", show_name(name));
            at = directory;
        }
        if path.is_empty() {
            path.push('/');
        }
        format!("{path} (inode {inode})")
    }

    /// A hash of the names, and of all attributes except those that may reach the medium later (sizes,
    /// mtimes, ctimes and contents of regular files).
    pub fn names_hash(&self) -> u64 {
        self.nodes.iter().fold(0, |sum: u64, (number, node)| sum.wrapping_add(node.names_hash(*number)))
    }

    /// How many links the names found make, by inode; none of an inode without a name.
    fn links_by_names(&self) -> HashMap<u64, u32> {
        let mut names: HashMap<u64, u32> = HashMap::from([(self.root, 2)]);
        for (number, node) in &self.nodes {
            let Inside::Directory { entries, .. } = &node.inside else { continue };
            for (child, kind) in entries.values() {
                let is_directory = *kind == FileKind::Directory;
                *names.entry(*child).or_default() += if is_directory { 2 } else { 1 };
                if is_directory {
                    *names.entry(*number).or_default() += 1;
                }
            }
        }
        names
    }

    /// Takes the link counts of `other`, which has the same inodes, where they agree with the names found.
    pub(crate) fn take_right_links(&mut self, other: &Tree) {
        let names = self.links_by_names();
        for (number, node) in &mut self.nodes {
            let links = other.nodes.get(number).map(|other| other.facts.links);
            if links.is_some() && links == names.get(number).copied() {
                node.facts.links = names[number];
            }
        }
    }

    /// Link counts that do not agree with the names found.
    pub fn wrong_links(&self) -> Vec<String> {
        let names = self.links_by_names();
        let wrong = |(number, node): (&u64, &Node)| {
            let (links, found) = (node.facts.links, names.get(number).copied().unwrap_or(0));
            (links != found).then(|| format!("{} has {links} links and {found} names", self.path_of(*number)))
        };
        self.nodes.iter().filter_map(wrong).collect()
    }

    /// The differences from what was expected; empty if there are none. `exact`: including what
    /// [`Tree::names_hash`] leaves out.
    pub fn differences(&self, expected: &Tree, exact: bool) -> Vec<String> {
        let mut found = self.contradictions.clone();
        for (number, wanted) in &expected.nodes {
            match self.nodes.get(number) {
                None => found.push(format!("{} is missing", expected.path_of(*number))),
                Some(node) => {
                    let path = || expected.path_of(*number);
                    found.extend(
                        node.differences(wanted, exact).into_iter().map(|d| format!("{}: {d}", path())),
                    );
                }
            }
        }
        for number in self.nodes.keys().filter(|number| !expected.nodes.contains_key(number)) {
            found.push(format!("{} should not be there", self.path_of(*number)));
        }
        found.sort_unstable();
        found
    }
}

/// What the file system calls an inode of a state.
fn number(state: &State, ino: usize) -> u64 {
    let identity = state.get(ino).and_then(|inode| inode.identity);
    identity.expect("identities are learned when inodes are made").0
}

fn node(state: &State, inode: &Inode) -> Node {
    let attr = inode.attr(|time| match time {
        Time::Known(time) => time,
        other => unreachable!("times are learned after each operation, not {other:?}"),
    });
    let facts = Facts::of(&attr);
    let inside = match &inode.body {
        Body::Directory { entries, parent } => Inside::Directory {
            entries: entries
                .iter()
                .filter_map(|(name, ino)| Some((name.clone(), (number(state, *ino), state.get(*ino)?.kind))))
                .collect(),
            parent: number(state, *parent),
        },
        Body::File(data) => file(data),
        Body::Symlink(target) => Inside::Symlink(target.clone()),
        Body::Special => Inside::Special,
    };
    Node { facts, xattrs: inode.xattrs.clone(), inside }
}

fn file(data: &FileData) -> Inside {
    Inside::File { size: data.size(), blocks: data.blocks().clone() }
}

impl Node {
    /// The part of an inode of a state in [`Tree::names_hash`].
    pub(crate) fn hash_of(state: &State, inode: &Inode) -> u64 {
        node(state, inode).names_hash(inode.identity.map_or(0, |identity| identity.0))
    }

    /// This node's part of [`Tree::names_hash`].
    pub fn names_hash(&self, number: u64) -> u64 {
        let mut hash = DefaultHasher::new();
        let facts = &self.facts;
        (number, facts.incarnation, facts.kind as u8, facts.permissions, facts.links).hash(&mut hash);
        (facts.uid, facts.gid, facts.rdev, facts.atime, facts.btime).hash(&mut hash);
        self.xattrs.hash(&mut hash);
        if facts.kind != FileKind::Regular {
            (facts.mtime, facts.ctime).hash(&mut hash);
        }
        match &self.inside {
            Inside::Directory { entries, parent } => {
                parent.hash(&mut hash);
                entries.len().hash(&mut hash);
                for (name, (number, kind)) in entries {
                    (name, number, *kind as u8).hash(&mut hash);
                }
            }
            Inside::Symlink(target) => target.hash(&mut hash),
            Inside::File { .. } | Inside::Special => {}
        }
        hash.finish()
    }

    fn differences(&self, wanted: &Node, exact: bool) -> Vec<String> {
        let mut found = Vec::new();
        if self == wanted {
            return found;
        }
        let mut differ = |what: &str, found_value: String, wanted_value: String| {
            if found_value != wanted_value {
                found.push(format!("{what} is {found_value}, should be {wanted_value}"));
            }
        };
        let (a, b) = (&self.facts, &wanted.facts);
        let exact = exact || b.kind != FileKind::Regular;
        differ("kind", format!("{:?}", a.kind), format!("{:?}", b.kind));
        differ("incarnation", a.incarnation.to_string(), b.incarnation.to_string());
        differ("permissions", format!("{:o}", a.permissions), format!("{:o}", b.permissions));
        differ("links", a.links.to_string(), b.links.to_string());
        differ("owner", format!("{}:{}", a.uid, a.gid), format!("{}:{}", b.uid, b.gid));
        differ("rdev", a.rdev.to_string(), b.rdev.to_string());
        differ("atime", format!("{:?}", a.atime), format!("{:?}", b.atime));
        differ("btime", format!("{:?}", a.btime), format!("{:?}", b.btime));
        if exact {
            differ("mtime", format!("{:?}", a.mtime), format!("{:?}", b.mtime));
            differ("ctime", format!("{:?}", a.ctime), format!("{:?}", b.ctime));
        }
        if self.xattrs != wanted.xattrs {
            differ("the list of attributes", show_xattrs(&self.xattrs), show_xattrs(&wanted.xattrs));
            for (name, value) in &wanted.xattrs {
                if self.xattrs.get(name).is_some_and(|there| there != value) {
                    found.push(format!("attribute {} has another value", show_name(name)));
                }
            }
        }
        if exact || !matches!(wanted.inside, Inside::File { .. }) {
            found.extend(self.inside.differences(&wanted.inside));
        }
        found
    }
}

fn show_xattrs(xattrs: &BTreeMap<Name, Arc<[u8]>>) -> String {
    let list: Vec<_> =
        xattrs.iter().map(|(name, value)| format!("{}[{}]", show_name(name), value.len())).collect();
    format!("{{{}}}", list.join(", "))
}

impl Inside {
    fn differences(&self, wanted: &Inside) -> Vec<String> {
        let mut found = Vec::new();
        match (self, wanted) {
            (
                Inside::Directory { entries: a, parent: up },
                Inside::Directory { entries: b, parent: wanted_up },
            ) => {
                if up != wanted_up {
                    found.push(format!("its parent is {up}, should be {wanted_up}"));
                }
                for name in a.keys().chain(b.keys().filter(|name| !a.contains_key(*name))) {
                    if a.get(name) != b.get(name) {
                        let (a, b) = (a.get(name), b.get(name));
                        found.push(format!("entry {} is {a:?}, should be {b:?}", show_name(name)));
                    }
                }
            }
            (Inside::File { size: a, blocks }, Inside::File { size: b, blocks: wanted_blocks }) => {
                if a != b {
                    found.push(format!("size is {a}, should be {b}"));
                }
                let others = wanted_blocks.keys().filter(|index| !blocks.contains_key(index));
                for index in blocks.keys().chain(others) {
                    if blocks.get(index) != wanted_blocks.get(index) {
                        let (a, b) = (blocks.get(index), wanted_blocks.get(index));
                        found.push(format!(
                            "block {index} is {}, should be {}",
                            show_block(a),
                            show_block(b)
                        ));
                    }
                }
            }
            (Inside::Symlink(a), Inside::Symlink(b)) => {
                if a != b {
                    found.push(format!("target is {}, should be {}", show_name(a), show_name(b)));
                }
            }
            (Inside::Special, Inside::Special) => {}
            _ => found.push("it is of another kind inside".to_string()),
        }
        found
    }
}

/// A block for people: its first bytes, and how much of it is not zero.
pub fn show_block(block: Option<&Arc<Block>>) -> String {
    match block {
        None => "zeros".to_string(),
        Some(block) => {
            let zeros = block.iter().filter(|byte| **byte == 0).count();
            let first: String = block[..6].iter().map(|byte| format!("{byte:02x}")).collect();
            let mut hash = DefaultHasher::new();
            block[..].hash(&mut hash);
            format!("{first}.. ({zeros} zeros, hash {:08x})", hash.finish() as u32)
        }
    }
}

/// The first few of a list of differences.
pub fn list(differences: &[String]) -> String {
    let mut text = differences.iter().take(8).cloned().collect::<Vec<_>>().join("\n    ");
    if differences.len() > 8 {
        text.push_str(&format!("\n    and {} more", differences.len() - 8));
    }
    text
}
