//! What a state must have beside being sound: a name that was there throughout, a name for each inode that
//! had one throughout, and in each file nothing but what was there at some moment. Of what was fsynced the
//! moments count from that on.

use super::synced::{identity, target, Held};
use crate::model::{Identity, BLOCK};
use crate::op::{show_name, Name};
use crate::tree::{Inside, Node, Tree};
use std::collections::BTreeSet;

/// The moments of a sequence between which a state must lie.
pub(super) struct Between<'a> {
    /// The trees between calls, from the first that may be found to the last.
    pub(super) moments: &'a [Tree],
    /// What was fsynced since the first.
    pub(super) held: Held<'a>,
    /// At which of them, or before the first, names had just changed places, and whether one side was a
    /// directory: an inode may be without a name for a moment.
    pub(super) exchanges: Vec<(usize, bool)>,
}

impl Between<'_> {
    /// Whether half an exchange may have left an inode without a name that must have one from a moment on, or
    /// a directory above it.
    fn may_be_nameless(&self, from: usize) -> bool {
        let may = |(moment, of_directory): &(usize, bool)| {
            from == 0 || *moment > from || *of_directory && *moment > 0
        };
        self.exchanges.iter().any(may)
    }
}

/// Compares a state with the moments between calls. `is_recounted`: exchanges were completed. Returns the
/// numbers of inodes that half an exchange has left without a name.
///
/// # Errors
/// What is missing.
pub(super) fn judge(state: &Tree, between: &Between<'_>, is_recounted: bool) -> Result<Vec<u64>, String> {
    let mut nameless = Vec::new();
    let Some(first) = between.moments.first() else { return Ok(nameless) };
    let there = first.nodes.keys().filter_map(|number| identity(first, *number));
    let all: BTreeSet<Identity> = there.chain(between.held.with_ways()).collect();
    for inode in all {
        let from = between.held.way_to(inode);
        let is = |tree: &Tree| identity(tree, inode.0) == Some(inode);
        if is(state) || !between.moments[from..].iter().all(is) {
            continue;
        }
        if !is_recounted && between.may_be_nameless(from) {
            nameless.push(inode.0);
            continue;
        }
        let path = between.moments[from].path_of(inode.0);
        return Err(format!("{path} had a name throughout from moment {from} on and has none"));
    }
    for (number, listed) in state.directories() {
        let Some(directory) = identity(state, number) else { continue };
        entries(state, directory, listed.keys(), between)?;
    }
    contents(state, between)?;
    names(state, between.moments)?;
    for (number, node) in &state.nodes {
        let from = between.held.of_inode((*number, node.facts.incarnation));
        if from > 0 {
            let wrong = attributes(node, *number, &between.moments[from..]);
            wrong.map_err(|what| format!("{}: {what}, since moment {from}", state.path_of(*number)))?;
        }
    }
    Ok(nameless)
}

/// A name is in a directory if it was there throughout. What an fsync has promised of a name is there.
fn entries<'a>(
    state: &Tree,
    directory: Identity,
    found: impl Iterator<Item = &'a Name>,
    between: &'a Between<'_>,
) -> Result<(), String> {
    let ever = between.moments.iter().filter(|tree| identity(tree, directory.0) == Some(directory));
    let ever = ever.filter_map(|tree| tree.entries(directory.0)).flat_map(|listed| listed.keys());
    let all: BTreeSet<&Name> = ever.chain(found).collect();
    for name in all {
        let from = between.held.of_name(directory, name);
        let (has, later) = (target(state, directory, name), &between.moments[from..]);
        if has.is_none() && later.iter().all(|tree| target(tree, directory, name).is_some()) {
            let path = state.path_of(directory.0);
            return Err(format!("{} was in {path} throughout and is not", show_name(name)));
        }
        if from > 0 && later.iter().all(|tree| target(tree, directory, name) != has) {
            let path = state.path_of(directory.0);
            return Err(format!(
                "{} in {path} is {has:?}, which it was not since moment {from}",
                show_name(name)
            ));
        }
    }
    Ok(())
}

/// What an inode says of itself that was fsynced is of one of these moments, but for its times and its count.
fn attributes(node: &Node, number: u64, moments: &[Tree]) -> Result<(), String> {
    let of_moments = moments.iter().filter_map(|tree| tree.nodes.get(&number));
    let all: Vec<&Node> =
        of_moments.filter(|other| other.facts.incarnation == node.facts.incarnation).collect();
    let facts = |node: &Node| {
        let facts = &node.facts;
        (facts.kind, facts.permissions, facts.uid, facts.gid, facts.rdev, facts.btime)
    };
    if !all.iter().any(|other| facts(other) == facts(node)) {
        return Err(format!("it has the attributes {:?}, which it had not", node.facts));
    }
    let links = all.iter().map(|other| other.facts.links).max().unwrap_or(0);
    if node.facts.links > links + 1 {
        return Err(format!("it has {} links and never had more than {links}", node.facts.links));
    }
    let names: BTreeSet<&Name> =
        all.iter().flat_map(|other| other.xattrs.keys()).chain(node.xattrs.keys()).collect();
    let fits = |name: &&Name| all.iter().any(|other| other.xattrs.get(*name) == node.xattrs.get(*name));
    if let Some(name) = names.into_iter().find(|name| !fits(name)) {
        return Err(format!("attribute {} has a value that it had not", show_name(name)));
    }
    match &node.inside {
        Inside::File { size, .. } => {
            let sizes = || {
                all.iter().filter_map(|other| match &other.inside {
                    Inside::File { size, .. } => Some(*size),
                    _ => None,
                })
            };
            let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
            match (least..=most).contains(size) {
                true => Ok(()),
                false => Err(format!("it has {size} bytes, and had {least} to {most}")),
            }
        }
        Inside::Symlink(_) if !all.iter().any(|other| other.inside == node.inside) => {
            Err("it has another target".to_string())
        }
        _ => Ok(()),
    }
}

/// No directory has a name that it had at no moment.
fn names(state: &Tree, moments: &[Tree]) -> Result<(), String> {
    for (number, node) in &state.nodes {
        let Inside::Directory { entries, .. } = &node.inside else { continue };
        let had: Vec<_> = moments
            .iter()
            .filter_map(|tree| tree.nodes.get(number))
            .filter(|other| other.facts.incarnation == node.facts.incarnation)
            .filter_map(|other| match &other.inside {
                Inside::Directory { entries, .. } => Some(entries),
                _ => None,
            })
            .collect();
        if let Some(name) = entries.keys().find(|name| !had.iter().any(|had| had.contains_key(*name))) {
            let name = show_name(name);
            return Err(format!("{name} is in {} and was not at any moment", state.path_of(*number)));
        }
    }
    Ok(())
}

/// Compares what a snapshot sees with what it has always seen.
///
/// # Errors
/// Where they differ.
pub(super) fn compare(sees: &Tree, has_seen: &Tree) -> Result<(), String> {
    if let Some(contradiction) = sees.contradictions.first() {
        return Err(contradiction.clone());
    }
    for (number, node) in &has_seen.nodes {
        if sees.nodes.get(number) != Some(node) {
            let now = sees.nodes.get(number).map(|node| node.facts);
            let path = has_seen.path_of(*number);
            return Err(format!("{path} was {:?}, and is {now:?} or has other content", node.facts));
        }
    }
    match sees.nodes.keys().find(|number| !has_seen.nodes.contains_key(number)) {
        Some(number) => Err(format!("{} was not there", sees.path_of(*number))),
        None => Ok(()),
    }
}

/// Each block of a file is what it was at some moment. A file that has only grown has no size of which the
/// bytes are not there; of one that was shortened, too, bytes beyond the lesser size may be gone already.
fn contents(state: &Tree, between: &Between<'_>) -> Result<(), String> {
    for (number, node) in &state.nodes {
        let Inside::File { size, blocks } = &node.inside else { continue };
        let from = between.held.of_inode((*number, node.facts.incarnation));
        let moments: Vec<_> = between.moments[from..]
            .iter()
            .filter_map(|tree| tree.nodes.get(number))
            .filter(|other| other.facts.incarnation == node.facts.incarnation)
            .collect();
        let size_of = |other: &&Node| match &other.inside {
            Inside::File { size, .. } => *size,
            _ => 0,
        };
        let only_grows = moments.iter().is_sorted_by_key(size_of);
        for index in 0..size.div_ceil(BLOCK as u64) {
            let len = (size - index * BLOCK as u64).min(BLOCK as u64) as usize;
            let zeros = [0; BLOCK];
            let has = blocks.get(&index).map_or(&zeros, |block| &**block);
            let was = |other: &&Node| match &other.inside {
                Inside::File { size, blocks } => {
                    let had = blocks.get(&index).map_or(&zeros, |block| &**block);
                    let needed = if only_grows { len as u64 } else { 1 };
                    index * (BLOCK as u64) + needed <= *size && had[..len] == has[..len]
                }
                _ => false,
            };
            if !moments.iter().any(was) {
                let what = format!("{:02x?}…", &has[..len.min(8)]);
                return Err(format!("{} has {what} as block {index}", state.path_of(*number)));
            }
        }
    }
    Ok(())
}
