//! Every byte of a Yore volume: structures, magics, checksums, verifiers, dumps. No I/O.
//!
//! `docs/FORMAT.md` is the prose for what stands here; a test compares its tables with these structs.
//! All integers are little-endian with explicit widths; reserved bytes are written as zero and verified.
//! Bytes from the medium never panic (R15): every reader here returns a [`Corruption`] that names what was
//! expected and what was found.

mod bitmap;
mod cells;
mod error;
mod features;
mod findings;
mod group_tables;
mod header;
mod history;
mod ids;
mod inode;
mod intent;
pub mod layout;
mod node;
mod policy;
mod scrubs;
mod spare;
mod structures;
mod superblock;
mod tables;
mod tagged;
mod touched;
pub mod travel;
mod units;
mod varint;
mod verify;
mod zone;

pub use bitmap::{BitmapMut, BitmapRef, BITMAP_OFFSET, BITS_PER_GROUP};
pub use cells::{
    decode_symlink_chunk, name_cookie, orphan_value, xattr_key, DirEntry, ExtentValue, FileKind, XattrCell,
    XattrNamespace, DIRENT_FIXED_BYTES, EXTENT_LEN_MAX, EXTENT_VALUE_BYTES, NAME_MAX, SYMLINK_CHUNK_BYTES,
    SYMLINK_MAX, XATTR_CHUNK_BYTES, XATTR_VALUE_MAX,
};
pub use error::Corruption;
pub use features::Features;
pub use findings::{FindingsRecord, RecordedFinding, FINDINGS_BLOCKS, RECORDED_PATH_MAX};
pub use group_tables::{
    table_entries, table_of, BlockCount, ChecksumTableMut, ChecksumTableRef, CountTableMut, CountTableRef,
    DataChecksum, TablePlace, TABLES_PER_GROUP, TABLE_ENTRIES, TABLE_PLACES,
};
pub use header::{
    is_same_but_for_seal, seal, verify_checksum, verify_version, BlockHeader, BlockKind, Expect, HEADER_BYTES,
};
pub use history::{
    event_index_by_name, event_index_by_root, key_parts, name_end_key, name_key, name_shard, operation_key,
    version_end_key, version_key, version_shard, AnnalsCounts, AnnalsKey, AnnalsRow, EventKind, EventMore,
    EventRow, EventState, ForgottenFor, HintPlace, HintSpan, HintSum, HistoryGrowth, HistoryRoots,
    HistorySpace, HistoryTree, IndexValue, InodeIndexCell, NameIndexCell, OperationKind, OperationRow,
    PastName, RollbackIntent, RowClass, RowName, RowValue, SpanCell, SpanHint, Version, DESCRIPTION_MAX,
    EVENT_FIXED_BYTES, EVENT_NAME_MAX, HINT_BLOCKS_MOST, HISTORY_ROOTS, HISTORY_SHARDS, HOLD_REASON_MAX,
    OPERATION_NOTE_MAX, OPERATION_PATH_MAX, ROW_BYTES_MAX, VERSION_FIXED_BYTES,
};
pub use ids::{
    BlockNo, EventNo, Generation, GroupNo, Incarnation, InodeNo, MetaAddr, TableNo, ZoneNo, EVENT_LIMIT,
    INODE_LIMIT,
};
pub use inode::{ContentKind, Inode, InodeFlags, Timestamp, EXTENT_INLINE_BYTES, INLINE_BYTES, INODE_BYTES};
pub use intent::{
    body_crc, encode_note, Intent, IntentBlock, IntentHead, IntentNote, IntentWriter, IntentZone,
    INTENT_DATA_MAX,
};
pub use node::{NodeMut, NodeRef, NODE_HEADER_BYTES, NODE_PAYLOAD_BYTES};
pub use policy::{
    policy_key, Policy, PolicyRow, Retention, RetentionRules, Versioning, EXCLUDE_MAX, INTERVAL_MIN,
    WITHIN_MAX,
};
pub use scrubs::{ScrubEnded, ScrubPosition, ScrubRecord, ScrubUnderWay, WithoutChecksums, SCRUB_CANDIDATES};
pub use spare::Spare;
pub use structures::layout_tables;
pub use superblock::{
    decode_slots, Engine, ExternalLog, RootZone, Scrub, SlotState, SpaceRules, Superblock, VolumeState,
    WriteFeatures, FORMAT_MAJOR, FORMAT_MINOR, LOG_PATH_MAX, ROOT_ZONES_MAX,
};
pub use tables::{FieldLayout, StructLayout};
pub use tagged::is_storable_text;
pub use touched::{chunks_of, Touched, CHUNK_BYTES};
pub use units::{checksum, checksum_except, Block, BLOCK_SIZE, INODES_PER_BLOCK, ZERO_BLOCK};
pub use varint::ShortBytes;
pub use verify::{verify_header, verify_header_with, verify_own_header};
pub use zone::{ZoneHeader, ZoneTableEntry, ZoneTableMut, ZoneTableRef, NOT_INODES};
