//! Paths below a directory that is put back, and lists of what is done there.

use crate::command::query;
use crate::output::{bytes_of, json_name, List};
use anyhow::Context as _;
use serde_json::json;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use yore_fs::rollback::{reversed, Back};
use yore_fs::Difference;

/// A path below a directory.
pub fn below(dir: &Path, path: &[u8]) -> PathBuf {
    match path {
        b"" => dir.to_path_buf(),
        path => dir.join(OsStr::from_bytes(path)),
    }
}

/// Whether what is done is listed.
pub fn is_listed(dry_run: bool, list: &List) -> bool {
    let listing = list.listing();
    dry_run || listing.json || listing.null
}

/// Lists the one change that is made.
pub fn tell(list: &mut List, letters: &str, change: &str, path: &[u8]) -> anyhow::Result<()> {
    list.entry(letters, path, "", || {
        let mut value = json!({ "change": change });
        json_name(&mut value, "path", path);
        value
    })?;
    list.flush()
}

/// Lists everything that is done.
pub fn tell_all(list: &mut List, wanted: &[Difference], back: &Back) -> anyhow::Result<()> {
    let mut done: Vec<Difference> = wanted.iter().map(|one| reversed(one, back)).collect();
    done.sort_by(|a, b| a.path.cmp(&b.path));
    for one in &done {
        query::line(list, one)?;
    }
    list.flush()
}

/// The path of a directory as of a snapshot.
pub fn as_of(dir: &Path, at: &str) -> PathBuf {
    dir.join(format!(".@{at}"))
}

/// A name in a directory as of a time. If the name would be too long with the time, the path goes through the
/// directory as of then.
pub fn with_time(dir: &Path, name: &[u8], at: &str) -> PathBuf {
    let whole = [name, b"@", at.as_bytes()].concat();
    match whole.len() > yore_fs::NAME_MAX {
        true => as_of(dir, at).join(OsStr::from_bytes(name)),
        false => dir.join(OsStr::from_bytes(&whole)),
    }
}

/// The name of a path's last component.
pub fn name_of(path: &Path) -> anyhow::Result<&[u8]> {
    path.file_name()
        .map(OsStr::as_bytes)
        .with_context(|| format!("{} does not end in a name", String::from_utf8_lossy(bytes_of(path))))
}
