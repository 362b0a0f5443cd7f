//! The metadata layer: a bounded cache of metadata blocks, zones, operations, generations and the engines.
//!
//! The store above changes blocks only through an [`Op`], which belongs to exactly one generation. It looks
//! up and reads what it needs first ([`Meta::read`]), reserves ([`Meta::reserve`], [`Meta::reserve_inode`]),
//! then opens the Op ([`Meta::begin`]), changes ([`Op::change`], [`Op::allocate`], …) and drops it. Rules
//! kept here, numbered as in the architecture:
//!
//! - **R6** The store reserves what an Op may need before the Op opens; the order is reserve → inode locks →
//!   open → group → block.
//! - **R7** An open Op never reads the device: [`Op::cached`] finds only blocks in memory, which the caller
//!   keeps there by holding their [`Frame`]s. An Op never fails: all that could fail was done before it
//!   opened.
//! - **R8** Only Ops make zones ([`Op::create_zone`]); a commit needs nothing that was not reserved.
//!
//! Each room is a module that owns its locks; modules refer only downwards (docs/DESIGN.md,
//! scripts/check-layers.py). The crash argument of the default engine is in `writer/mod.rs`, recovery in
//! `meta/open.rs`. `log/intent.rs` is the log that makes an fsync cheap, and `log/replay.rs` replays it at a
//! mount.

mod base;
mod blocks;
mod cache;
mod engine;
mod error;
mod findings;
mod log;
mod meta;
mod mkfs;
#[cfg(feature = "mutations")]
pub mod mutation;
mod op;
mod rooms;
mod space;
mod writer;
mod zones;

pub use base::freed::Reclaimer;
pub use base::ledger::{Counter, Totals};
pub use base::left::{Left, LeftBlocks, LeftNotes, Notes, Sharing};
pub use base::medium::holds_volume;
pub use base::order::{Change, EdgeKind};
pub use base::pending::PassCounts;
pub use base::progress::StopAtPanic;
pub use base::recorder::{Place, Recording};
pub use base::shadow::{Saved, Shadow};
pub use base::units::Piece;
pub use cache::FrameGuard;
pub use engine::Durability;
pub use error::{is_of_place, MetaError, Result};
pub use findings::{next_findings, read_findings, read_scrubs, spare_superblock};
pub use log::intent::LogStatus;
pub use log::notes::NotedFile;
pub use log::place::{LogDevice, LogPlace};
pub use log::region::{default_log_blocks, forget_log, usual_log_blocks};
pub use log::replay::{find_log, log_contents, log_records, LogContents, Recovered};
pub use meta::give_up::give_up_log;
pub use meta::open::{MetaOptions, PART_LEAVES};
pub use meta::recount::TotalsGrowth;
pub use meta::scrub::Patience;
pub use meta::shred::AskZone;
pub use meta::together::ZonesLaid;
pub use meta::Meta;
pub use mkfs::{mkfs, MkfsOptions};
pub use op::logs::{NewLog, OldLog};
pub use op::zones::EmptyZone;
pub use op::{NewBlock, Op, Page};
pub use space::{GroupSummary, Reserved, ReservedInode, Room};
pub use writer::beside::{Beside, Closing};
pub use yore_log::REGION_BLOCKS_MIN as LOG_BLOCKS_MIN;
pub use zones::zone::Frame;
