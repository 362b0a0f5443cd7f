//! Answers about policies.

use serde::{Deserialize, Serialize};
use yore_fs::Policy;

/// The policy of a directory or file, and what applies to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyHere {
    /// Its own policy; one that says nothing if it has none.
    pub own: Policy,
    /// The policy that applies: all of its fields are set.
    pub in_force: Policy,
    /// The path on the volume whose policy says when versions are made. `None`: no policy does; so in the
    /// following.
    pub versioning_by: Option<Vec<u8>>,
    /// The path whose policy says how long they are kept.
    pub retention_by: Option<Vec<u8>>,
    /// The path whose policy says for how long they are held.
    pub hold_by: Option<Vec<u8>>,
    /// The path whose policy says what is excluded.
    pub exclude_by: Option<Vec<u8>>,
    /// Whether it is excluded itself.
    pub excluded: bool,
}
