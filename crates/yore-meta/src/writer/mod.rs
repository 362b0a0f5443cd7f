//! The writer of generations.

pub(crate) mod commit;
