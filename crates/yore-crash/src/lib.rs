//! Model file system.
#![allow(missing_docs)]
pub mod generate;
pub mod judge;
pub mod model;
pub mod op;
pub mod outcome;
pub mod runner;
pub mod subject;
pub mod tree;
