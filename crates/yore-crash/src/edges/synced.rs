//! What fsyncs have promised when the power failed: of each its own file, and the way to it
//! (`judge/held.rs` says the same of random sequences).

use crate::model::Identity;
use crate::op::Name;
use crate::tree::{Inside, Tree};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What an fsync has promised.
pub(super) struct Synced {
    /// After how many entries of the device it had returned.
    pub(super) entries: usize,
    /// The moment of its call.
    pub(super) moment: usize,
    inode: Identity,
    /// Names in directories that the file had at some moment until then, and the moment since which each
    /// leads to it, or no longer leads to it.
    names: Vec<(Identity, Name, usize)>,
    /// The directories that lead to it.
    above: BTreeSet<Identity>,
}

impl Synced {
    /// The promise of an fsync of an inode at the last of these moments; `None` if it has no name.
    pub(super) fn of(moments: &[Tree], number: u64, entries: usize) -> Option<Synced> {
        let moment = moments.len().checked_sub(1)?;
        let inode = identity(&moments[moment], number)?;
        let mut names: BTreeMap<(Identity, Name), (bool, usize)> = BTreeMap::new();
        for (at, tree) in moments.iter().enumerate() {
            for (directory, listed) in tree.directories() {
                let Some(directory) = identity(tree, directory) else { continue };
                for (name, _) in listed.iter().filter(|(_, entry)| identity(tree, entry.0) == Some(inode)) {
                    let known = names.entry((directory, name.clone())).or_insert((true, at));
                    if !known.0 {
                        *known = (true, at);
                    }
                }
            }
            for ((directory, name), known) in &mut names {
                if known.0 && target(tree, *directory, name) != Some(inode) {
                    *known = (false, at);
                }
            }
        }
        let mut above = BTreeSet::new();
        for ((directory, _), _) in names.iter().filter(|(_, (is_its, _))| *is_its) {
            let mut at = Some(*directory);
            while let Some(directory) = at.filter(|directory| above.insert(*directory)) {
                at = match moments[moment].nodes.get(&directory.0).map(|node| &node.inside) {
                    Some(Inside::Directory { parent, .. }) => identity(&moments[moment], *parent),
                    _ => None,
                };
            }
        }
        let names = names.into_iter().map(|((directory, name), (_, since))| (directory, name, since));
        Some(Synced { entries, moment, inode, names: names.collect(), above })
    }
}

/// The moments before which nothing may be that is found after a crash; 0 where no fsync says more.
#[derive(Default)]
pub(super) struct Held<'a> {
    inodes: HashMap<Identity, usize>,
    ways: HashMap<Identity, usize>,
    names: HashMap<(Identity, &'a Name), usize>,
}

impl<'a> Held<'a> {
    /// What these fsyncs promise, by moments that count from `first` on, which is durable.
    pub(super) fn by(fsyncs: impl Iterator<Item = &'a Synced>, first: usize) -> Held<'a> {
        let mut held = Held::default();
        for synced in fsyncs.filter(|synced| synced.moment > first) {
            let moment = synced.moment - first;
            raise(held.inodes.entry(synced.inode).or_default(), moment);
            for inode in synced.above.iter().chain([&synced.inode]) {
                raise(held.ways.entry(*inode).or_default(), moment);
            }
            for (directory, name, since) in &synced.names {
                raise(held.names.entry((*directory, name)).or_default(), since.saturating_sub(first));
            }
        }
        held
    }

    /// Of what an inode says of itself, and of all names in a directory.
    pub(super) fn of_inode(&self, inode: Identity) -> usize {
        self.inodes.get(&inode).copied().unwrap_or(0)
    }

    /// Of a name in a directory.
    pub(super) fn of_name(&self, directory: Identity, name: &Name) -> usize {
        let own = self.names.get(&(directory, name)).copied().unwrap_or(0);
        own.max(self.of_inode(directory))
    }

    /// The moment such that an inode must have a name if it had one from then on.
    pub(super) fn way_to(&self, inode: Identity) -> usize {
        self.ways.get(&inode).copied().unwrap_or(0)
    }

    /// The inodes to which an fsync has promised a way.
    pub(super) fn with_ways(&self) -> impl Iterator<Item = Identity> + '_ {
        self.ways.keys().copied()
    }
}

fn raise(moment: &mut usize, to: usize) {
    *moment = to.max(*moment);
}

/// The number and incarnation of an inode of a tree.
pub(super) fn identity(tree: &Tree, number: u64) -> Option<Identity> {
    tree.nodes.get(&number).map(|node| (number, node.facts.incarnation))
}

/// What a name in a directory of a tree means.
pub(super) fn target(tree: &Tree, directory: Identity, name: &Name) -> Option<Identity> {
    if identity(tree, directory.0) != Some(directory) {
        return None;
    }
    tree.entries(directory.0)?.get(name).and_then(|entry| identity(tree, entry.0))
}

/// The inode to which a path from the root leads.
pub(super) fn at_path(tree: &Tree, path: &str) -> Option<u64> {
    path.split('/').try_fold(tree.root, |at, name| Some(tree.entries(at)?.get(name.as_bytes())?.0))
}
