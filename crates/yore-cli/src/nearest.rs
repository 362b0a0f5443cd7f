//! Finds the snapshot that a user meant by a mistyped name, for the message of a command that found no
//! snapshot of that name.

use crate::live;
use crate::timed_path::absent_path;
use std::fmt;
use std::fs::File;
use std::path::Path;
use yore_control::{Client as _, Mounted};
use yore_fs::Volume;

/// What a volume knows about a path that leads nowhere. It travels with the error, and adds nothing to the
/// message itself.
#[derive(Debug)]
pub struct Known {
    /// The names of its snapshots.
    names: Vec<String>,
    /// The path up to the first name that leads nowhere.
    up_to: String,
}

impl fmt::Display for Known {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

impl Known {
    /// The name that may have been meant.
    pub fn nearest(&self, wanted: &str) -> Option<&str> {
        nearest(wanted, self.names.iter().map(String::as_str))
    }

    /// The path up to the first name that leads nowhere.
    pub fn up_to(&self) -> &str {
        &self.up_to
    }
}

/// The part of a path up to the first name that leads nowhere, or all of it.
pub fn up_to_missing(path: &str, is_missing: impl Fn(&Path) -> bool) -> &str {
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    let mut parts = ends.map(|end| &path[..end]).filter(|part| !part.is_empty());
    parts.find(|part| is_missing(Path::new(part))).unwrap_or(path)
}

/// The same for a path of the host.
pub fn up_to_missing_on_host(path: &str) -> &str {
    let is_not_found = |error: std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
    up_to_missing(path, |part| std::fs::symlink_metadata(part).is_err_and(is_not_found))
}

/// If an error is about a path with times that leads nowhere, adds what a volume knows. This may be called
/// for several volumes.
pub fn with_names(error: anyhow::Error, volume: &Volume) -> anyhow::Error {
    let Some(path) = absent_path(&error) else { return error };
    match volume.view().events() {
        Ok(events) => {
            let known = error.downcast_ref::<Known>();
            let mut names = known.map_or(Vec::new(), |known| known.names.clone());
            names.extend(events.into_iter().map(|event| event.row.name).filter(|name| !name.is_empty()));
            let is_missing = |part: &Path| {
                volume.symlink_node(part).is_err_and(|e| matches!(e.root(), yore_fs::Error::NotFound))
            };
            let up_to = known
                .map_or_else(|| up_to_missing(path, is_missing).to_string(), |known| known.up_to.clone());
            error.context(Known { names, up_to })
        }
        // The user gets the first error.
        Err(_) => error,
    }
}

/// The name that may have been meant in a path of a mount; `None` also if the path is on no mount.
pub fn on_mount(path: &Path, wanted: &str) -> Option<String> {
    let path = std::path::absolute(path).ok()?;
    let above = path.ancestors().find(|above| above.is_dir())?;
    live::mount_at(above)?;
    let names = names_on_mount(above)?;
    nearest(wanted, names.iter().map(String::as_str)).map(str::to_string)
}

/// The names of the snapshots that a directory of a mount lists, each once; `None` if it cannot be asked.
fn names_on_mount(directory: &Path) -> Option<Vec<String>> {
    let rows = Mounted(File::open(directory).ok()?).all_snapshots().ok()?;
    let mut names: Vec<String> = rows.into_iter().map(|row| row.event.row.name).collect();
    names.retain(|name| !name.is_empty());
    names.sort_unstable();
    names.dedup();
    Some(names)
}

/// The one of these names that differs least from the given one, if it differs little: in one letter of
/// three, or only in that its end is missing.
pub fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = wanted.to_lowercase();
    let letters = wanted.chars().count();
    let near = names.filter_map(|name| {
        let lower = name.to_lowercase();
        let distance = strsim::osa_distance(&wanted, &lower);
        let begun = letters >= 3 && lower.starts_with(&wanted);
        (distance <= (letters / 3).max(1) || begun).then_some((begun, distance, name))
    });
    near.min_by_key(|(begun, distance, _)| (*begun, *distance)).map(|(_, _, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promises that a mistyped name leads to the right one, and that no name is suggested that looks
    /// different.
    #[test]
    fn little_differs() {
        let of = |wanted: &str| nearest(wanted, ["before-upgrade", "step-1", "step-12", "v1.0"].into_iter());
        assert_eq!(of("before-upgrde"), Some("before-upgrade"));
        assert_eq!(of("beofre-upgrade"), Some("before-upgrade"));
        assert_eq!(of("Before-Upgrade"), Some("before-upgrade"));
        assert_eq!(of("before"), Some("before-upgrade"));
        assert_eq!(of("step1"), Some("step-1"));
        assert_eq!(of("step-13"), Some("step-1"), "the first of those that are as near");
        assert_eq!(of("v1.1"), Some("v1.0"));
        assert_eq!(of("after"), None);
        assert_eq!(of("x"), None);
        assert_eq!(of(""), None);
    }
}
