//! A snapshot that a sequence has taken, and what it must show: the state of its moment, without what past
//! views leave out.

use crate::model::{Identity, State};
use crate::op::Name;
use crate::tree::{Inside, Tree};
use std::collections::HashSet;
use yore_fs::{EventNo, Timestamp};

/// Bits of permissions that past views do not show.
pub(super) const SET_ID: u32 = 0o6000;

/// A snapshot of a sequence.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Its number.
    pub number: EventNo,
    /// How many operations had been carried out when it was forgotten, including that one.
    pub forgotten: Option<usize>,
    /// How many operations had been carried out, including itself.
    pub moment: usize,
    /// Its name, or nothing.
    pub name: Name,
    /// What it must show.
    pub tree: Tree,
}

impl Taken {
    /// A snapshot that was taken in this state.
    pub fn new(number: EventNo, moment: usize, name: &Name, state: &State) -> Taken {
        let tree = without_hidden(Tree::of(&state.without_slots()));
        Taken { number, forgotten: None, moment, name: name.clone(), tree }
    }

    pub(super) fn is_kept_at(&self, moment: usize) -> bool {
        self.moment <= moment && self.forgotten.is_none_or(|forgotten| forgotten > moment)
    }

    /// The same without these files.
    pub(super) fn without(&self, gone: &HashSet<Identity>) -> Taken {
        Taken { tree: without(&self.tree, gone), ..self.clone() }
    }
}

/// A tree as it looks when these files are expunged. What directories say about how much is in them stays.
pub(super) fn without(tree: &Tree, gone: &HashSet<Identity>) -> Tree {
    if gone.is_empty() {
        return tree.clone();
    }
    let mut left = Tree { nodes: Default::default(), ..tree.clone() };
    let is_gone = |number: &u64| {
        let node = tree.nodes.get(number);
        node.is_some_and(|node| gone.contains(&(*number, node.facts.incarnation)))
    };
    let mut waiting = vec![tree.root];
    while let Some(number) = waiting.pop() {
        let Some(mut node) = tree.nodes.get(&number).cloned() else { continue };
        if let Inside::Directory { entries, .. } = &mut node.inside {
            entries.retain(|_, (number, _)| !is_gone(number));
            waiting.extend(entries.values().map(|(number, _)| *number));
        }
        left.nodes.insert(number, node);
    }
    left
}

/// The same tree without what past views do not show.
pub(super) fn without_hidden(mut tree: Tree) -> Tree {
    for node in tree.nodes.values_mut() {
        node.facts.atime = Timestamp { seconds: 0, nanos: 0 };
        node.facts.permissions &= !SET_ID;
    }
    tree
}
