//! Paths with times in them (`name@time`) in errors.

use std::io;

/// This bit is set in the inode numbers that a mount shows for files of the past.
pub const PAST: u64 = 1 << 63;
/// This bit is set in those of directories of the past to which a name with a time led
/// (`yore-fuse/src/past.rs`). For other files it means something else.
pub const NAMED: u64 = 1 << 61;

/// The path that an error is about, and what is wrong with it.
pub fn path_in(error: &anyhow::Error) -> Option<(&str, &yore_fs::Error)> {
    let found = error.chain().find_map(of_library)?;
    Some((path_of(found)?, found.root()))
}

/// What the library says is wrong, without the path that it is about.
pub fn root_of(error: &anyhow::Error) -> Option<&yore_fs::Error> {
    error.chain().find_map(of_library).map(yore_fs::Error::root)
}

/// The error of the library that a cause is; it may have come through `std::io`.
pub fn of_library<'a>(cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a yore_fs::Error> {
    let inner = cause.downcast_ref::<io::Error>().and_then(|e| e.get_ref());
    cause.downcast_ref().or(inner.and_then(|e| e.downcast_ref()))
}

/// The path with times in it that leads nowhere, if an error is about one.
pub fn absent_path(error: &anyhow::Error) -> Option<&str> {
    match path_in(error)? {
        (path, yore_fs::Error::NotFound) => times_in(path).next().map(|_| path),
        _ => None,
    }
}

fn path_of(error: &yore_fs::Error) -> Option<&str> {
    match error {
        yore_fs::Error::Path { path, source, .. } => path_of(source).or(Some(path)),
        _ => None,
    }
}

/// What follows the last `@` of each name of a path. If that is a second `@`, it belongs to the time.
pub fn times_in(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|name| {
        let at = name.rfind('@').filter(|at| *at > 0 && at + 1 < name.len())?;
        let two = at > 1 && name[..at].ends_with('@');
        Some(&name[if two { at } else { at + 1 }..])
    })
}

/// The first name of a path that has an `@` and nothing before it. That is a name like any other, and not
/// its directory as of a time.
pub fn bare_time_in(path: &str) -> Option<&str> {
    path.split('/').find(|name| name.len() > 1 && name.starts_with('@'))
}
