//! A view of the volume's tree, as it is or as it was, and the calls that read it: one method per file-system
//! call on inodes and names. [`crate::api`], above, has the calls that change the present, and those that
//! concern the past itself.

mod below;
mod handle;
mod pass;
mod reads;

pub(crate) use below::{is_around, is_below};
pub use handle::{Node, View};
