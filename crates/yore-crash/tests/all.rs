//! The tests of crash consistency, as one program: it is linked once, and its tests share the processors.
//! Tests that make the whole process wrong on purpose are programs of their own.

mod common {
    pub mod copies;
    pub mod old_trees;
    #[path = "../../../yore-fs/tests/common/tree.rs"]
    pub mod reading;
    #[path = "../../../yore-fs/tests/common/seeds.rs"]
    pub mod seeds;
    pub mod tree;
}
mod moves;

mod acl;
mod checksums;
mod crash;
mod defrag;
mod edges;
mod engines;
mod excluded;
mod expunge;
mod hints;
mod itself;
mod large;
mod late;
mod log_elsewhere;
mod log_moves;
mod model;
mod old_trees;
mod operations;
mod ordered;
mod past;
mod past_random;
mod past_threads;
mod pieces;
mod promises;
mod recovery_reads;
mod regressions;
mod renames;
mod repaired_in_place;
mod repaired_log;
mod resize;
mod rollback;
mod rollback_requests;
mod shared;
mod shred;
mod shrink;
mod zones;
