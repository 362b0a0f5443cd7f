//! Reading history: what there was as of a time, which history there is, and what space it takes.

pub(crate) mod access;
pub(crate) mod at_time;
pub(crate) mod listing;
pub(crate) mod query;
pub(crate) mod usage;
