//! What a state must have beside being sound: a name that was there throughout, a name for each inode that
//! had one throughout, and in each file nothing but what was there at some moment.

use crate::model::BLOCK;
use crate::tree::{Inside, Tree};

/// Compares a state with the moments between calls. `exchanges`: names change places in the sequence, so an
/// inode may be without one for a moment. Returns the numbers of these inodes.
///
/// # Errors
/// What is missing.
pub(super) fn judge(state: &Tree, moments: &[Tree], exchanges: bool) -> Result<Vec<u64>, String> {
    let mut nameless = Vec::new();
    let Some((first, later)) = moments.split_first() else { return Ok(nameless) };
    for (number, node) in &first.nodes {
        let is = |tree: &Tree| {
            tree.nodes.get(number).is_some_and(|other| other.facts.incarnation == node.facts.incarnation)
        };
        if !later.iter().all(is) {
            continue;
        }
        if !is(state) {
            if exchanges {
                nameless.push(*number);
                continue;
            }
            return Err(format!("{} had a name throughout and has none", first.path_of(*number)));
        }
        let Inside::Directory { entries, .. } = &node.inside else { continue };
        for name in entries.keys() {
            let has = |tree: &Tree| match tree.nodes.get(number).map(|node| &node.inside) {
                Some(Inside::Directory { entries, .. }) => entries.contains_key(name),
                _ => false,
            };
            if later.iter().all(has) && !has(state) {
                let name = crate::op::show_name(name);
                return Err(format!("{name} was in {} throughout and is not", first.path_of(*number)));
            }
        }
    }
    contents(state, moments)?;
    names(state, moments)?;
    Ok(nameless)
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
            let name = crate::op::show_name(name);
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
fn contents(state: &Tree, moments: &[Tree]) -> Result<(), String> {
    for (number, node) in &state.nodes {
        let Inside::File { size, blocks } = &node.inside else { continue };
        let moments: Vec<_> = moments
            .iter()
            .filter_map(|tree| tree.nodes.get(number))
            .filter(|other| other.facts.incarnation == node.facts.incarnation)
            .collect();
        let size_of = |other: &&crate::tree::Node| match &other.inside {
            Inside::File { size, .. } => *size,
            _ => 0,
        };
        let only_grows = moments.iter().is_sorted_by_key(size_of);
        for index in 0..size.div_ceil(BLOCK as u64) {
            let len = (size - index * BLOCK as u64).min(BLOCK as u64) as usize;
            let zeros = [0; BLOCK];
            let has = blocks.get(&index).map_or(&zeros, |block| &**block);
            let was = |other: &&crate::tree::Node| match &other.inside {
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
