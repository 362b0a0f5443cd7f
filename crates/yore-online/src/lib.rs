//! Checks a volume that is in use.
//!
//! The checker reads one generation of the volume as a whole, through a [`yore_fs::Shadow`], while calls go
//! on and later generations are written. It is the same check as that of a volume that nobody uses, and finds
//! the same.
//!
//! # What is repaired at once
//!
//! What was found is of the past when the check ends. So only that is repaired which no call can have changed
//! since, and where a repair takes nothing away from anybody:
//!
//! - **O1** *Blocks that are marked used and belong to nobody* stay so, because calls take what is free, and
//!   free what somebody has. They are freed, if their bits are still set.
//! - **O2** *Links beyond the names* of an inode: calls change links and names together, so the difference
//!   stays. The links are lowered by it, if one is left.
//! - **O3** *Whatever a crash may leave* under an engine that orders changes, if the volume says that it may
//!   have such leaks, and nothing else was found ([`yore_check::Recount`], docs/CHECK.md).
//! - **O4** *What an inode says of itself*, the number of its blocks and of its entries, on such a volume
//!   also beside damage, if that is not of this inode. It was counted from what the inode alone has.
//!
//! If there is anything else among the findings, nothing but O4 is repaired at once. Somebody may own the
//! blocks, in what cannot be read. Damage is never repaired while the volume is in use.
//!
//! Where leaks are pending it checks and repairs until a check finds nothing. That check is of a generation
//! with all repairs, so they are durable before the volume says that no leaks are pending.
//!
//! # What is recorded
//!
//! Whatever is found and left goes into the volume's record of findings ([`yore_fs::FindingsRecord`]), in
//! place of what was there. A check that leaves nothing empties the record. On a mount for reading only,
//! nothing is repaired and nothing recorded.
//!
//! [`recount`] is the part without the record, and [`recount_beside`] does that in the background of a mount.

mod beside;
mod check;

pub use beside::{recount_beside, Recounting};
pub use check::{check, recorded, recount, OnlineError, OnlineOptions, OnlineReport, Told};
