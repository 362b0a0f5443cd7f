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
    let of_files = match of["files"].as_u64()? {
        0 => "of the past alone".to_string(),
        1 => "in 1 file".to_string(),
        files => format!("in {files} files"),
    };
    Some(match of["bytes"].as_u64()? {
        0 => "all file data has checksums".into(),
        bytes => format!("{} of data {of_files} has no checksum and was not verified", human(bytes)),
    })
}
