//! The tests of the library, as one program: it is linked once, and its tests share the processors.

mod common {
    pub mod seeds;
    pub mod tree;
}

mod agree;
mod copying;
mod damage;
mod discard;
mod exclude;
mod expunge;
mod expunge_beside;
mod flags;
mod forget;
mod fsync;
mod golden;
mod golden_annals;
mod golden_extended;
mod golden_old_trees;
mod golden_past;
mod golden_shared;
mod intervals;
mod log_identity;
mod names;
mod neighbours;
mod orphans;
mod past;
mod policy;
mod query;
mod readme;
mod rollback;
mod room;
mod space;
mod together;
mod usage;
