//! What every subject can do.

use crate::op::Op;
use crate::outcome::Outcome;
use crate::tree::Tree;
use yore_fs::{Attr, Timestamp};

/// Carries out operations, and lets callers observe its state.
pub trait Subject {
    /// Carries out one operation; a `Drop` or `Hold` whose slot or target is missing does nothing.
    fn apply(&mut self, op: &Op) -> Outcome;
    /// The attributes of an inode, with a name or held.
    ///
    /// # Errors
    /// A message.
    fn attr(&self, inode: u64) -> Result<Attr, String>;
    /// The present, by the clock that stamps inodes.
    fn now(&self) -> Timestamp;
    /// Everything below the root.
    ///
    /// # Errors
    /// A message, if the walk failed.
    fn observe(&self) -> Result<Tree, String>;
}
