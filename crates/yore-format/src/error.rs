//! The one error of this crate: bytes that are not what they should be.

use crate::travel::{self, Text};
use crate::{BlockNo, InodeNo, MetaAddr};
use serde::{Deserialize, Serialize};

/// Bytes from the medium contradict the format. Names the place, the owner and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{structure}{}{}{}: {field} should be {expected}, found {found}",
    match .addr { Some(a) => format!(" {a}"), None => String::new() },
    match .block { Some(b) => format!(" at block {b}"), None => String::new() },
    match .owner { Some(o) => format!(" of inode {o}"), None => String::new() })]
pub struct Corruption {
    /// Which structure, in the terms of FORMAT.md ("inode", "zone header").
    #[serde(deserialize_with = "travel::text")]
    pub structure: Text,
    /// Which field of it, or which relation.
    #[serde(deserialize_with = "travel::text")]
    pub field: Text,
    /// What a sound volume would hold there.
    pub expected: String,
    /// What is there.
    pub found: String,
    /// The metadata address of the block, where known.
    pub addr: Option<MetaAddr>,
    /// The physical block, where known.
    pub block: Option<BlockNo>,
    /// The inode the block belongs or should belong to, where known.
    pub owner: Option<InodeNo>,
}

impl Corruption {
    /// A corruption whose place is filled in by the caller who knows it.
    pub fn new(
        structure: &'static str,
        field: &'static str,
        expected: impl ToString,
        found: impl ToString,
    ) -> Box<Corruption> {
        Box::new(Corruption {
            structure,
            field,
            expected: expected.to_string(),
            found: found.to_string(),
            addr: None,
            block: None,
            owner: None,
        })
    }

    /// The same, with its metadata address.
    pub fn at(mut self: Box<Self>, addr: MetaAddr) -> Box<Self> {
        self.addr = Some(addr);
        self
    }

    /// The same, with its physical block.
    pub fn on(mut self: Box<Self>, block: BlockNo) -> Box<Self> {
        self.block = Some(block);
        self
    }

    /// The same, with its owner.
    pub fn of(mut self: Box<Self>, owner: InodeNo) -> Box<Self> {
        self.owner = Some(owner);
        self
    }
}
