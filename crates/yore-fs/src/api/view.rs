//! A view of the volume's tree, as it is or as it was, and what reads of it: one method per file-system call
//! on inodes and names. What changes the present, and what is about the past itself, is above, in
//! [`crate::api`].

mod below;
mod handle;
mod pass;
mod reads;

pub(crate) use below::is_below;
pub use handle::{Node, View};
