//! One state of an inode whose content is walked.

use crate::chain::Chain;
use crate::checker::Checker;
use crate::key::KEY_WIDTH;
use crate::tree::Tree;
use crate::{Finding, Problem};
use yore_format::{BlockKind, EventNo, Inode, InodeNo, MetaAddr};

/// What is known of an inode in use before its content is walked.
#[derive(Clone, Copy)]
pub(crate) enum InUse {
    /// Its place in the list of inodes in use.
    Listed(usize),
    /// The fast pass has summed up its names and, if it is a directory, its entries, which have so many
    /// nodes.
    Summed(u64),
}

/// An inode as it is, or as it was: a version.
pub(crate) struct State<'a> {
    pub(crate) number: InodeNo,
    pub(crate) inode: &'a Inode,
    /// The inode's block, or the leaf that holds the version.
    pub(crate) addr: MetaAddr,
    /// The chain of states that this one is part of; `None` for an inode without a past.
    pub(crate) chain: Option<&'a mut Chain>,
    /// Data blocks and nodes that were found.
    pub(crate) blocks: u64,
    /// Whether all of it could be read.
    pub(crate) complete: bool,
}

impl<'a> State<'a> {
    pub(crate) fn new(
        number: InodeNo,
        inode: &'a Inode,
        addr: MetaAddr,
        chain: Option<&'a mut Chain>,
    ) -> State<'a> {
        State { number, inode, addr, chain, blocks: 0, complete: true }
    }

    /// When a version ended.
    pub(crate) fn end(&self) -> Option<EventNo> {
        self.chain.as_ref().and_then(|chain| chain.end())
    }

    /// Whether this is a version.
    pub(crate) fn is_past(&self) -> bool {
        self.end().is_some()
    }

    /// The content's tree.
    pub(crate) fn content_tree(&self, kind: BlockKind) -> Tree {
        Tree {
            kind,
            owner: self.number,
            incarnation: self.inode.incarnation,
            root: self.inode.tree_root(),
            level: Some(self.inode.content_level),
            key_width: KEY_WIDTH,
        }
    }
}

impl Checker<'_> {
    /// Reports content of a kind that the type cannot have. The check does not follow what it refers to.
    pub(crate) fn wrong_content(&mut self, state: &mut State<'_>, expected: &str) {
        state.complete = false;
        let found = format!("{:?}", state.inode.content_kind).to_lowercase();
        let finding = Finding::new(Problem::ContentKind, expected, found);
        self.add_incomplete(finding.at(state.addr).of(state.number));
    }
}
