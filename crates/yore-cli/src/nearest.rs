//! Which name somebody may have meant who mistyped one: of snapshots, for the message of a command that found none of a name.
//!
//! What names there are is known where the snapshot was looked for. On a mount they are asked for when the message is written; of a
//! volume that is not mounted the error carries them, for then it is closed again.

use crate::command::snapshot_names;
use crate::live;
use std::fmt;
use std::path::Path;
use yore_fs::Volume;

/// The names of the snapshots of a volume, with an error of a command on it. Adds nothing to the message itself.
#[derive(Debug)]
pub struct Known(Vec<String>);

impl fmt::Display for Known {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

impl Known {
    /// The name that may have been meant.
    pub fn nearest(&self, wanted: &str) -> Option<&str> {
        nearest(wanted, self.0.iter().map(String::as_str))
    }
}

/// Adds to an error what snapshots a volume has, if it is about one that it has not. May be done for several volumes.
pub fn with_names(error: anyhow::Error, volume: &Volume) -> anyhow::Error {
    if !crate::status::is_about_a_name(&error) {
        return error;
    }
    match volume.view().cuts() {
        Ok(cuts) => {
            let mut names = error.downcast_ref::<Known>().map_or(Vec::new(), |known| known.0.clone());
            names.extend(cuts.into_iter().map(|cut| cut.row.name).filter(|name| !name.is_empty()));
            error.context(Known(names))
        }
        // The first error is what is told.
        Err(_) => error,
    }
}

/// The name that may have been meant in a path of a mount; `None` also if it is on none.
pub fn on_mount(path: &Path, wanted: &str) -> Option<String> {
    let path = std::path::absolute(path).ok()?;
    let above = path.ancestors().find(|above| above.is_dir())?;
    live::mount_at(above)?;
    let names = snapshot_names(above)?;
    nearest(wanted, names.iter().map(String::as_str)).map(str::to_string)
}

/// The one of these that differs least from what was written, if that is little: one letter in three, or only its end is missing.
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

    /// Promises that what is mistyped is found, and that nothing is suggested that looks different.
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
