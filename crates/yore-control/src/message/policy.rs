//! What is said of policies.

use serde::{Deserialize, Serialize};
use yore_fs::Policy;

/// The policy of a directory or file, and what applies to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyHere {
    /// Its own policy; one that says nothing if it has none.
    pub own: Policy,
    /// What applies: all of it is said.
    pub in_force: Policy,
    /// Who says when versions are made: a path on the volume. `None`: nobody does; so in the following.
    pub versioning_by: Option<Vec<u8>>,
    /// Who says how long they are kept.
    pub retention_by: Option<Vec<u8>>,
    /// Who says for how long they are held.
    pub hold_by: Option<Vec<u8>>,
    /// Who says what is excluded.
    pub exclude_by: Option<Vec<u8>>,
    /// It is excluded itself.
    pub excluded: bool,
}
