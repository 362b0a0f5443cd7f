//! Parts of structures, each as one line of text.

use crate::output::{kind_name, printable};
use yore_format::{DirEntry, ExtentValue, MetaAddr};

pub fn root_text(addr: MetaAddr, level: Option<u8>) -> String {
    match (addr.is_none(), level) {
        (true, _) => "none".to_string(),
        (false, Some(level)) => format!("{addr}, level {level}"),
        (false, None) => addr.to_string(),
    }
}

pub fn entry_text(entry: &DirEntry<'_>) -> String {
    format!(
        "\"{}\" inode {} incarnation {} ({}), birth {}",
        printable(entry.name),
        entry.inode,
        entry.incarnation,
        kind_name(entry.kind),
        entry.birth
    )
}

pub fn extent_text(key: u64, extent: &ExtentValue) -> String {
    let mut text = format!(
        "file blocks {key} to {} at blocks {} to {}, birth {}",
        key.saturating_add(u64::from(extent.len)) - 1,
        extent.start,
        extent.start.0 + u64::from(extent.len) - 1,
        extent.birth
    );
    for (set, name) in [(extent.unwritten, ", unwritten"), (extent.shared, ", shared")] {
        text.push_str(if set { name } else { "" });
    }
    text
}
