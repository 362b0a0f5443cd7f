//! Reading history: what was as of a time, what there is of it, and what it takes.

pub(crate) mod access;
pub(crate) mod at_time;
pub(crate) mod listing;
pub(crate) mod query;
pub(crate) mod usage;
