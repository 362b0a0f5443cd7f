//! What is durable under an engine that orders changes: everything up to one moment, and of files that were
//! fsynced since then more.
//!
//! An fsync of a file, when it has returned, promises this of the moment of its call, and of nothing else:
//!
//! - **H1** What the file says of itself, and its extended attributes, are not older.
//! - **H2** Each name that it had is there, unless a later call took it, and each that it had lost is gone.
//! - **H3** The entries of a directory that was fsynced are not older, each by itself.
//! - **H4** There is a way to it: the file and each directory above it have a name. A directory above it that
//!   was renamed may have its old name or the new one; so for its names only this counts. (Half an exchange
//!   may leave one without, as ever.)
//! - **H5** An event that came before the last change of the file is there, and with it everything before the
//!   event, which comes alone.
//!
//! All else may be as old as the last sync. So each inode and each name has a moment of its own before which
//! it may not be ([`Held`]).

use super::{Bounds, Judge, Life};
use crate::model::{Body, Ino};
use crate::op::{Name, Op};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The moments between which names and inodes must be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) lowest: usize,
    pub(super) begun: usize,
}

/// What an fsync has promised.
struct Synced<'a> {
    /// Names in directories that the file had at some moment until then, and the moment since which each
    /// leads to it, or no longer leads to it.
    names: Vec<(Ino, &'a Name, usize)>,
    /// The directories that lead to it.
    above: BTreeSet<Ino>,
}

/// The moments before which nothing may be that is found after a crash.
pub(super) struct Held<'a> {
    /// Of everything.
    pub(super) lowest: usize,
    /// The last operation that had begun.
    pub(super) begun: usize,
    /// Of files that were fsynced.
    inodes: HashMap<Ino, usize>,
    /// From which moment on there must be a way to an inode.
    ways: HashMap<Ino, usize>,
    /// Of names, by directory.
    names: HashMap<(Ino, &'a Name), usize>,
}

impl Held<'_> {
    /// Of everything.
    pub(super) fn of_all(&self) -> Range {
        Range { lowest: self.lowest, begun: self.begun }
    }

    /// Of what an inode says of itself, and of all names in a directory.
    pub(super) fn of_inode(&self, ino: Ino) -> Range {
        let own = self.inodes.get(&ino).copied().unwrap_or(0);
        Range { lowest: self.lowest.max(own), begun: self.begun }
    }

    /// Of a name in a directory.
    pub(super) fn of_name(&self, directory: Ino, name: &Name) -> Range {
        let own = self.names.get(&(directory, name)).copied().unwrap_or(0);
        let of_directory = self.of_inode(directory);
        Range { lowest: of_directory.lowest.max(own), ..of_directory }
    }

    /// The moment such that an inode must have a name if it had one from then on.
    pub(super) fn way_to(&self, ino: Ino) -> usize {
        self.ways.get(&ino).copied().unwrap_or(0).max(self.lowest)
    }
}

impl Judge {
    /// The moment up to which everything is durable under an engine that orders changes.
    pub(crate) fn lowest_ordered(&self, bounds: Bounds) -> usize {
        let done = self.syncs.iter().chain(&self.settled).copied();
        let synced = done.filter(|moment| *moment <= bounds.returned).max().unwrap_or(0).max(bounds.synced);
        // An fsync of the data alone need not store the times, so it may have nothing to write.
        let fsyncs = self.fsyncs_until(bounds.returned).filter(|(_, _, data_only)| !data_only);
        let events = fsyncs.map(|(ino, moment, _)| self.event_before(&self.lives[ino], moment));
        events.max().unwrap_or(0).max(synced)
    }

    /// What is durable. `drained`: an event shows that everything up to this moment is.
    pub(super) fn held(&self, bounds: Bounds, drained: usize) -> Held<'_> {
        let mut held = Held {
            lowest: self.lowest_ordered(bounds).max(drained),
            begun: bounds.begun,
            inodes: HashMap::new(),
            ways: HashMap::new(),
            names: HashMap::new(),
        };
        for (ino, moment, _) in self.fsyncs_until(bounds.returned) {
            // What is durable anyway says no more.
            if moment <= held.lowest {
                continue;
            }
            let synced = self.promise(ino, moment);
            raise(held.inodes.entry(ino).or_default(), moment);
            for ino in synced.above.into_iter().chain([ino]) {
                raise(held.ways.entry(ino).or_default(), moment);
            }
            for (directory, name, since) in synced.names {
                raise(held.names.entry((directory, name)).or_default(), since);
            }
        }
        held
    }

    /// The fsyncs that had returned by a moment: of which inode, the moment of the call, and whether of its
    /// data only.
    fn fsyncs_until(&self, returned: usize) -> impl Iterator<Item = (Ino, usize, bool)> + '_ {
        let of_life = |(ino, life): (Ino, &'_ Life)| {
            let fsyncs = life.fsyncs.clone().into_iter();
            fsyncs.map(move |(moment, data_only)| (ino, moment, data_only))
        };
        let all = self.lives.iter().enumerate().flat_map(of_life);
        all.filter(move |(_, moment, _)| *moment <= returned)
    }

    fn promise(&self, ino: Ino, moment: usize) -> Synced<'_> {
        let mut names = Vec::new();
        let mut above = BTreeSet::new();
        for (directory, life) in self.lives.iter().enumerate() {
            for (name, (is_its, since)) in names_of(ino, life, moment) {
                names.push((directory, name, since));
                if is_its {
                    above.extend(self.way_of(directory, moment));
                }
            }
        }
        Synced { names, above }
    }

    /// A directory and those above it, as they were at a moment.
    fn way_of(&self, directory: Ino, moment: usize) -> Vec<Ino> {
        let mut way = vec![directory];
        while let Some(Body::Directory { parent, .. }) =
            self.history.states[moment].get(way[way.len() - 1]).map(|inode| &inode.body)
        {
            if way.contains(parent) {
                break;
            }
            way.push(*parent);
        }
        way
    }

    /// The last event that came before the last change of an inode until a moment; 0 if there is none. Each
    /// change of an inode sets its ctime.
    fn event_before(&self, life: &Life, moment: usize) -> usize {
        let versions = &life.versions[..life.versions.partition_point(|(at, _)| *at <= moment)];
        let mut pairs = versions.windows(2).rev();
        let changed = pairs.find(|pair| pair[0].1.ctime != pair[1].1.ctime).map(|pair| pair[1].0);
        let changed = changed.or(versions.first().map(|(at, _)| *at)).unwrap_or(0);
        let events = self.history.ops.iter().enumerate().filter(|(_, op)| matches!(op, Op::Snapshot { .. }));
        events.map(|(number, _)| number + 1).filter(|event| *event < changed).max().unwrap_or(0)
    }
}

/// The names in a directory that an inode had at some moment until this one: whether it has each at this
/// moment, and since when.
fn names_of(ino: Ino, directory: &Life, moment: usize) -> BTreeMap<&Name, (bool, usize)> {
    let mut names: BTreeMap<&Name, (bool, usize)> = BTreeMap::new();
    for (at, inode) in directory.versions.iter().take_while(|(at, _)| *at <= moment) {
        let Some(entries) = inode.entries() else { break };
        for (name, _) in entries.iter().filter(|(_, child)| **child == ino) {
            let known = names.entry(name).or_insert((true, *at));
            if !known.0 {
                *known = (true, *at);
            }
        }
        for (name, known) in &mut names {
            if known.0 && entries.get(*name) != Some(&ino) {
                *known = (false, *at);
            }
        }
    }
    names
}

fn raise(moment: &mut usize, to: usize) {
    *moment = to.max(*moment);
}
