//! Decides whether a volume whose engine orders changes agrees after a crash with what had been promised.
//!
//! Such an engine leaves of each name and of each inode what it was at *some* moment: not all of one moment.
//! So the judge examines each of them by itself, and what ties them together (docs/EDGES.md). L is the last
//! moment that a sync, or a call that returned under `sync`, has made durable, or that an event has: it comes
//! alone, behind everything before it. An fsync makes its own file durable and the way to it, and nothing
//! else: for these L is the moment of its call (`held.rs` says it exactly). B is the last operation that had
//! begun.
//!
//! - **O1** What a name means in a directory (also: nothing) is what it meant there at some moment from L to
//!   B. So a name that was there throughout is there, and no name leads to an inode that never had it.
//! - **O2** An inode that had a name at all of these moments has one: while it is renamed the old one or the
//!   new one or both. Only an exchange may leave a file without a name, and a repair gives it one. Where L is
//!   the moment of an fsync, only one behind it may, or one of directories, which may lead to the file.
//! - **O3** What an inode says of itself (type, permissions, owners, times; of a symbolic link the target) is
//!   of one moment p from L to B. Its count of links is one that it had, or one more while it is renamed; it
//!   is never less than the names that lead to it.
//! - **O4** A file's p is not before the operation that gave it one of its names, and not behind the one that
//!   took one of them: the inode is written before a name of it, and behind the end of one. (The times that a
//!   rename sets come behind all that.) This also ties a file to a directory that was fsynced.
//! - **O5** Each extended attribute is what it was at some moment from L to B, or is not there if it was not.
//! - **O6** Size, times and content of a regular file are what the promises 2 to 4 of the [judge](super)
//!   allow with this p: nobody else's bytes, nothing that was truncated, and all that a sync or fsync of the
//!   file had promised. A copy comes in parts, so a file that it makes longer may have a size in between.
//! - **O7** The snapshots are those of some moment from L to B, and each shows exactly what it saw
//!   ([`super`]). One that is there proves that all names and attributes from before it are.
//! - **O8** An inode that had lost its last name by L is gone, also if somebody still had it open. An fsync
//!   of such a file promises that its names are gone, and no more.

use super::held::{Held, Range};
use super::{Bounds, FoundFile, Judge, Life, Span, Unit, REPLACED};
use crate::model::{Body, Identity, Ino, Inode, State, Time};
use crate::op::{show_name, EntryPath, Name, Op};
use crate::tree::{list, Facts, Inside, Node, Tree};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use yore_fs::{FileKind, RenameMode};

/// From which moment on a file has one of its names, and until which.
#[derive(Clone, Copy, Debug, Default)]
struct Named {
    from: usize,
    until: usize,
}

/// By inode: what the names that were found say of its moment.
type Names = HashMap<Ino, Named>;

impl Judge {
    /// Judges a tree found under an engine that orders changes. `drained`: an event shows that all names and
    /// attributes of this moment are durable. Returns the inodes that half an exchange has left without a
    /// name.
    ///
    /// # Errors
    /// What is not allowed, in words.
    pub fn judge_ordered(
        &self,
        tree: &Tree,
        bounds: Bounds,
        drained: usize,
    ) -> Result<Vec<Identity>, String> {
        if !tree.contradictions.is_empty() {
            return Err(list(&tree.contradictions));
        }
        let held = self.held(bounds, drained);
        let (mut wrong, mut names) = (Vec::new(), Names::new());
        for (number, node) in &tree.nodes {
            let Some(ino) = self.inodes.get(&(*number, node.facts.incarnation)) else {
                wrong.push(format!("{} is unknown", tree.path_of(*number)));
                continue;
            };
            if let Inside::Directory { entries, .. } = &node.inside {
                let errors = self.wrong_entries(tree, entries, *ino, &held, &mut names);
                wrong.extend(errors.into_iter().map(|error| format!("{}: {error}", tree.path_of(*number))));
            }
        }
        let counts = names_of(tree);
        for (number, node) in &tree.nodes {
            let Some(ino) = self.inodes.get(&(*number, node.facts.incarnation)) else { continue };
            let (found, range) = (counts.get(number).copied().unwrap_or(0), held.of_inode(*ino));
            let mut errors = self.wrong_count(node, *ino, found, range);
            errors.extend(self.wrong_xattrs(node, *ino, range));
            errors.extend(self.wrong_inode(node, *ino, names.get(ino).copied(), range, bounds));
            let since = match range.lowest > held.lowest {
                true => format!(" (it was fsynced at moment {})", range.lowest),
                false => String::new(),
            };
            wrong
                .extend(errors.into_iter().map(|error| format!("{}: {error}{since}", tree.path_of(*number))));
        }
        let nameless = self.missing(tree, &held, &mut wrong);
        wrong.sort_unstable();
        match wrong.is_empty() {
            true => Ok(nameless),
            false => Err(format!(
                "of the moments {} (durable) to {} (begun):\n    {}",
                held.lowest,
                held.begun,
                list(&wrong)
            )),
        }
    }

    /// O1, and what the names say of the moments of inodes.
    fn wrong_entries(
        &self,
        tree: &Tree,
        entries: &BTreeMap<Name, (u64, FileKind)>,
        directory: Ino,
        held: &Held<'_>,
        names: &mut Names,
    ) -> Vec<String> {
        let mut wrong = Vec::new();
        let life = &self.lives[directory];
        let ever = versions(life, held.of_all()).iter();
        let ever = ever.filter_map(|(_, inode)| inode.entries()).flat_map(BTreeMap::keys);
        let all: BTreeSet<&Name> = ever.chain(entries.keys()).collect();
        for name in all {
            let range = held.of_name(directory, name);
            let found = entries.get(name).and_then(|(number, _)| {
                let incarnation = tree.nodes.get(number)?.facts.incarnation;
                Some((*number, incarnation))
            });
            let at = |inode: &Inode| inode.entries().and_then(|entries| entries.get(name)).copied();
            let fits = |version: usize| self.identity(at(&life.versions[version].1)) == found;
            let indexes = indexes(life, range);
            let fitting: Vec<usize> = indexes.clone().filter(|version| fits(*version)).collect();
            let (Some(first), Some(last)) = (fitting.first(), fitting.last()) else {
                let had: Vec<_> =
                    life.versions[indexes].iter().map(|(m, v)| (*m, self.identity(at(v)))).collect();
                let since = match range.lowest > held.lowest {
                    true => format!(", which is durable since moment {}", range.lowest),
                    false => String::new(),
                };
                wrong.push(format!("{} is {found:?}, and was by moments {had:?}{since}", show_name(name)));
                continue;
            };
            let Some(ino) = found.and_then(|found| self.inodes.get(&found)) else { continue };
            // The name may be older than the moment since which it is durable.
            let given = (0..*first).rev().take_while(|version| fits(*version)).last().unwrap_or(*first);
            let from = life.versions[given].0.max(held.lowest);
            let until = match last + 1 < indexes.end {
                true => life.versions[last + 1].0,
                false => range.begun,
            };
            let known = names.entry(*ino).or_insert(Named { from, until });
            *known = Named { from: known.from.max(from), until: known.until.min(until) };
        }
        wrong
    }

    fn identity(&self, ino: Option<Ino>) -> Option<Identity> {
        self.lives[ino?].versions.last().and_then(|(_, inode)| inode.identity)
    }

    /// The count of O3.
    fn wrong_count(&self, node: &Node, ino: Ino, names: u32, range: Range) -> Vec<String> {
        let most = versions(&self.lives[ino], range).iter().map(|(_, inode)| inode.links).max().unwrap_or(0);
        let links = node.facts.links;
        if links < names {
            return vec![format!("it has {names} names and says {links}")];
        }
        match links > most + 1 {
            true => vec![format!("it has {links} links and never had more than {most}")],
            false => Vec::new(),
        }
    }

    /// O5.
    fn wrong_xattrs(&self, node: &Node, ino: Ino, range: Range) -> Vec<String> {
        let versions = versions(&self.lives[ino], range);
        let ever = versions.iter().flat_map(|(_, inode)| inode.xattrs.keys());
        let all: BTreeSet<&Name> = ever.chain(node.xattrs.keys()).collect();
        let fits =
            |name: &Name| versions.iter().any(|(_, inode)| inode.xattrs.get(name) == node.xattrs.get(name));
        let wrong = all.into_iter().filter(|name| !fits(name));
        wrong
            .map(|name| {
                let len = |value: Option<&Arc<[u8]>>| value.map(|value| value.len());
                let had: Vec<_> = versions.iter().map(|(m, v)| (*m, len(v.xattrs.get(name)))).collect();
                let found = len(node.xattrs.get(name));
                format!("attribute {} has {found:?} bytes, and had by moments {had:?}", show_name(name))
            })
            .collect()
    }

    /// The rest of O3, O4 and O6: there must be a moment p.
    fn wrong_inode(
        &self,
        node: &Node,
        ino: Ino,
        named: Option<Named>,
        range: Range,
        bounds: Bounds,
    ) -> Vec<String> {
        let life = &self.lives[ino];
        let is_file = node.facts.kind == FileKind::Regular;
        // Directories are not ordered by their own names.
        let named = named.filter(|_| node.facts.kind != FileKind::Directory);
        let named = named.unwrap_or(Named { from: range.lowest, until: range.begun });
        let mut least: Option<Vec<String>> = None;
        let from = named.from.saturating_sub(1).max(range.lowest);
        for moment in (from..=named.until).rev() {
            let Some((_, version)) = last_at(life, moment) else { break };
            let mut wrong = wrong_facts(&node.facts, version, is_file);
            wrong.extend(match (&node.inside, &version.body) {
                (Inside::File { size, blocks }, _) if wrong.is_empty() => {
                    let span = Span::new(self, life, moment, bounds).of_ordered(named.from);
                    let since = if span.is_since_replacing { REPLACED } else { "" };
                    let file = FoundFile { size: *size, blocks, facts: &node.facts };
                    let errors = span.wrong(&file, Unit::Block);
                    errors.into_iter().map(|error| format!("{error}{since}")).collect()
                }
                (Inside::Symlink(found), Body::Symlink(target)) if found != target => {
                    vec![format!("its target is {}", show_name(found))]
                }
                (Inside::Directory { parent, .. }, Body::Directory { .. }) => {
                    self.wrong_parent(*parent, life, range)
                }
                _ => Vec::new(),
            });
            if wrong.is_empty() {
                return wrong;
            }
            if least.as_ref().is_none_or(|least| wrong.len() < least.len()) {
                let Named { from, until } = named;
                wrong.push(format!(
                    "(moment {moment} is nearest; its names are of moments {from} to {until})"
                ));
                least = Some(wrong);
            }
        }
        least.unwrap_or_else(|| vec![format!("no moment has its names: {named:?}")])
    }

    fn wrong_parent(&self, parent: u64, life: &Life, range: Range) -> Vec<String> {
        let is_it = |inode: &Inode| match &inode.body {
            Body::Directory { parent: ino, .. } => {
                self.identity(Some(*ino)).is_some_and(|identity| identity.0 == parent)
            }
            _ => false,
        };
        match versions(life, range).iter().any(|(_, inode)| is_it(inode)) {
            true => Vec::new(),
            false => vec![format!("its parent is {parent}, which it never was")],
        }
    }

    /// O2. Returns those that an exchange may have left without a name.
    fn missing(&self, tree: &Tree, held: &Held<'_>, wrong: &mut Vec<String>) -> Vec<Identity> {
        let mut nameless = Vec::new();
        let states = &self.history.states[..=held.begun.min(self.history.states.len() - 1)];
        for ino in 0..self.lives.len() {
            let from = held.way_to(ino).min(states.len() - 1);
            let is_named = |state: &State| state.get(ino).is_some_and(|inode| inode.links > 0);
            let identity = states[from].get(ino).and_then(|inode| inode.identity);
            let Some(identity) = identity.filter(|_| states[from..].iter().all(is_named)) else { continue };
            let node = tree.nodes.get(&identity.0);
            if node.is_some_and(|node| node.facts.incarnation == identity.1) {
                continue;
            }
            // What is below a directory without a name is not found either, and for an fsync such a directory
            // need not have the name that it gets.
            let may = |number: usize| number >= from && self.exchanges(number, false);
            let is_half_done =
                (held.lowest..states.len() - 1).any(|number| may(number) || self.exchanges(number, true));
            match is_half_done {
                true => nameless.push(identity),
                false => wrong.push(format!(
                    "{} had a name throughout from moment {from} on and has none",
                    Tree::of(&states[from].without_slots()).path_of(identity.0)
                )),
            }
        }
        nameless
    }

    /// Whether an operation exchanges names. `directories`: and one of them is that of a directory.
    fn exchanges(&self, number: usize, directories: bool) -> bool {
        let Op::Rename { from, to, mode: RenameMode::Exchange } = &self.history.ops[number] else {
            return false;
        };
        let state = &self.history.states[number];
        let is_directory = |at: &EntryPath| {
            let directory = state.resolve(&at.directory).ok();
            let ino = directory.and_then(|directory| state.find(directory, &at.name).ok());
            ino.and_then(|ino| state.get(ino)).is_some_and(|inode| inode.entries().is_some())
        };
        !directories || is_directory(from) || is_directory(to)
    }
}

/// The versions of an inode that were there at some moment of a range.
fn versions(life: &Life, range: Range) -> &[(usize, Arc<Inode>)] {
    &life.versions[indexes(life, range)]
}

/// Which of the versions of an inode these are.
fn indexes(life: &Life, range: Range) -> std::ops::Range<usize> {
    let first = life.versions.partition_point(|(moment, _)| *moment <= range.lowest).saturating_sub(1);
    let end = life.versions.partition_point(|(moment, _)| *moment <= range.begun);
    first.min(end)..end
}

fn last_at(life: &Life, moment: usize) -> Option<&(usize, Arc<Inode>)> {
    life.versions[..life.versions.partition_point(|(at, _)| *at <= moment)].last()
}

/// How many names and directories below the walk has found of each inode.
fn names_of(tree: &Tree) -> HashMap<u64, u32> {
    let mut counts: HashMap<u64, u32> = HashMap::from([(tree.root, 2)]);
    let mut directories = BTreeSet::new();
    for (number, entries) in tree.directories() {
        for (child, kind) in entries.values() {
            match kind {
                // One with two names is one directory.
                FileKind::Directory if directories.insert(*child) => *counts.entry(*child).or_default() += 2,
                FileKind::Directory => {}
                _ => *counts.entry(*child).or_default() += 1,
            }
            *counts.entry(number).or_default() += u32::from(*kind == FileKind::Directory);
        }
    }
    counts
}

/// What an inode says of itself, but for its count. Size and times of a regular file come with its data.
fn wrong_facts(found: &Facts, version: &Inode, is_file: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut differ = |what: &str, is_same: bool| {
        if !is_same {
            wrong.push(format!("its {what} is another one"));
        }
    };
    let known = |time, found| matches!(time, Time::Known(time) if time == found);
    differ("type", found.kind == version.kind);
    differ("mode", found.permissions == version.permissions);
    differ("owner", (found.uid, found.gid) == (version.uid, version.gid));
    differ("device", found.rdev == version.rdev);
    differ("atime", known(version.atime, found.atime));
    differ("btime", known(version.btime, found.btime));
    differ("mtime", is_file || known(version.mtime, found.mtime));
    differ("ctime", is_file || known(version.ctime, found.ctime));
    wrong
}
