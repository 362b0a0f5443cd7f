//! History, the reason why Yore exists: how it is recorded, read and given up, and the rules for that.

pub(crate) mod done;
pub(crate) mod exclude;
pub(crate) mod gate;
pub(crate) mod pin;
pub(crate) mod policy;
pub(crate) mod preserve;
pub(crate) mod read;
pub(crate) mod reclaim;
pub(crate) mod record;
pub mod rollback;
pub(crate) mod versioning;
