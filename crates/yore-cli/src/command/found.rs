//! What checks and scrubs have found, in the words and the JSON of all commands that tell it.

use crate::output::human;
use serde_json::{json, Value};
use yore_fs::{RecordedFinding, WithoutChecksums};

const BLOCK: u64 = yore_device::BLOCK_SIZE as u64;

/// A finding that is recorded.
pub fn json_finding(found: &RecordedFinding) -> Value {
    json!({
        "problem": found.code, "severity": if found.is_damage { "damage" } else { "leak" },
        "place": found.addr.map(|addr| addr.to_string()), "block": found.block.map(|block| block.0),
        "inode": found.inode.map(|inode| inode.0), "path": found.path,
    })
}

/// The data that was not verified, as JSON; null if nobody knows.
pub fn json_without(without: Option<&WithoutChecksums>) -> Value {
    without.map_or(Value::Null, |without| json!({ "bytes": without.blocks * BLOCK, "files": without.files }))
}

/// The same for people; `None` if nobody knows.
pub fn without_text(of: &Value) -> Option<String> {
    let (bytes, files) = (of["bytes"].as_u64()?, of["files"].as_u64()?);
    let bytes = human(bytes);
    Some(match (of["bytes"].as_u64(), files) {
        (Some(0), _) => "all file data has checksums".into(),
        (_, 0) => format!("{bytes} of data that only the past has have no checksum and were not verified"),
        (_, 1) => format!("{bytes} of data, in 1 file, have no checksum and were not verified"),
        (_, files) => format!("{bytes} of data, in {files} files, have no checksum and were not verified"),
    })
}
