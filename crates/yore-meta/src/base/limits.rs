//! What the counts of a superblock may be when a volume is opened.

use crate::error::Result;
use yore_format::layout::{ZONE_INDEXES, ZONE_TABLE_ENTRIES};
use yore_format::{Corruption, Generation, Superblock};

/// How far counts that go on growing may have come: enough is left for a mount each nanosecond, for
/// centuries.
const LEFT: u64 = 1 << 62;

fn check_limit(field: &'static str, limit: u64, value: u64) -> Result<()> {
    match value <= limit {
        true => Ok(()),
        false => Err(Corruption::new("superblock", field, format!("at most {limit}"), value).into()),
    }
}

/// Checks that there is room for further mounts and generations. `newest` is the newest generation that
/// either superblock says.
pub(crate) fn check_mounts(found: &Superblock, newest: Generation) -> Result<()> {
    check_limit("generation", LEFT, newest.0)?;
    check_limit("mount_id", LEFT, found.mount_id)
}

/// Checks that counts that go on growing have room to, and that those that loops run up to are possible.
/// Counts that are possible and wrong are for the checker to find. The log's records say some of them anew.
pub(crate) fn check_counts(found: &Superblock) -> Result<()> {
    if found.next_number.0 == 0 {
        return Err(Corruption::new("superblock", "next_number", "at least 1", 0).into());
    }
    let zones_max = found.root_zones.len() as u64 * u64::from(ZONE_INDEXES) * ZONE_TABLE_ENTRIES as u64;
    for (field, limit, value) in [
        ("next_number", LEFT, found.next_number.0),
        ("zone_number_limit", zones_max, u64::from(found.zone_number_limit)),
        ("zones", zones_max + found.root_zones.len() as u64, u64::from(found.zones)),
        ("free_blocks", found.volume_blocks, found.free_blocks),
        ("metadata_blocks", found.volume_blocks, found.metadata_blocks),
    ] {
        check_limit(field, limit, value)?;
    }
    Ok(())
}
