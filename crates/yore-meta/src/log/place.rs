//! Where the log of a volume is: in the volume, or on a device of its own, which must be the right one.
//!
//! A log on a device of its own has an anchor that names the volume, the log and the session begun last. The
//! superblock names the same. So a volume finds out that it was given the log of another volume, an older
//! copy of its log, or one that another copy of the volume has used since: each would lack records, or have
//! some that belong to other states of the volume.

use super::region::region_of;
use crate::error::{MetaError, Result};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use yore_device::{Device, FileDevice, OpenOptions};
use yore_format::{Superblock, LOG_PATH_MAX};
use yore_log::{KeptLog, LogError, LogId, LogOwner, Region};

/// A device that has the log of a volume, or is to have it.
#[derive(Clone, Debug)]
pub struct LogDevice {
    /// The device.
    pub device: Arc<dyn Device>,
    /// Where later mounts look for it; empty: nowhere, they must be told. At most [`LOG_PATH_MAX`] bytes.
    pub path: Vec<u8>,
}

impl LogDevice {
    /// Checks the path.
    pub(crate) fn check(&self) -> Result<()> {
        if self.path.len() <= LOG_PATH_MAX && !self.path.contains(&0) {
            return Ok(());
        }
        Err(MetaError::Refused(format!(
            "the path of a log's device has at most {LOG_PATH_MAX} bytes, and that of {} has {}: use a shorter one",
            self.device.describe(),
            self.path.len()
        )))
    }
}

/// Where the log of a volume is looked for that does not have it inside.
#[derive(Clone, Debug, Default)]
pub enum LogPlace {
    /// Where the volume says that it is.
    #[default]
    Recorded,
    /// On this device.
    On(LogDevice),
    /// Nowhere, inside neither: what the log has is left out. For reading only.
    Without,
}

/// The log of a volume, found.
#[derive(Debug)]
pub(crate) struct FoundLog {
    pub(crate) region: Region,
    pub(crate) id: LogId,
    /// The log, if it is on a device of its own.
    pub(crate) kept: Option<KeptLog>,
}

impl FoundLog {
    /// The device that it is on, which is the volume's if it has none of its own.
    pub(crate) fn device<'d>(&'d self, volume: &'d Arc<dyn Device>) -> &'d Arc<dyn Device> {
        self.kept.as_ref().map_or(volume, KeptLog::device)
    }
}

/// Finds the log of a volume; `None` if it has none, or is to be opened without. Writes nothing.
pub(crate) fn find(
    volume: &dyn Device,
    superblock: &Superblock,
    place: &LogPlace,
    read_only: bool,
) -> Result<Option<FoundLog>> {
    let name = volume.describe();
    if matches!(place, LogPlace::Without) {
        return match read_only {
            true => Ok(None),
            false => Err(MetaError::Refused(format!(
                "{name} can only be read without its log: what the log has would be lost"
            ))),
        };
    }
    let Some(external) = &superblock.external_log else {
        if let LogPlace::On(other) = place {
            let (other, place) =
                (other.device.describe(), if superblock.log_blocks > 0 { "inside" } else { "nowhere" });
            return Err(MetaError::Refused(format!(
                "{name} has its log {place}, and not on {other}: leave that out, or move the log there with `yore journal {name} --to {other}`"
            )));
        }
        let inside = region_of(superblock);
        return Ok(inside.map(|(region, id)| FoundLog { region, id, kept: None }));
    };
    let device = match place {
        LogPlace::On(on) => {
            on.check()?;
            on.device.clone()
        }
        _ => open_recorded(&name, &external.path, read_only)?,
    };
    let kept = check(&name, superblock, device)?;
    if !read_only && kept.device().read_only() {
        let log = kept.device().describe();
        return Err(MetaError::Refused(format!(
            "the log of {name} on {log} can only be read; mount the volume with `-o ro`, or make it writable"
        )));
    }
    Ok(Some(FoundLog { region: kept.ring(), id: kept.id(), kept: Some(kept) }))
}

/// What can be done about a log that is not there.
fn help(name: &str) -> String {
    format!(
        "give the path of the right one (`-o journal=PATH`, `--journal PATH`), look at the volume without it (`-o ro,journal=none`), \
         or give up what only the log has (`yore journal {name} --give-up`)"
    )
}

fn open_recorded(name: &str, path: &[u8], read_only: bool) -> Result<Arc<dyn Device>> {
    if path.is_empty() {
        return Err(MetaError::Refused(format!(
            "the log of {name} is on a device of its own, and the volume does not say on which: {}",
            help(name)
        )));
    }
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    match FileDevice::open(path, OpenOptions { read_only, ..OpenOptions::default() }) {
        Ok(device) => Ok(Arc::new(device)),
        Err(e) => Err(MetaError::Refused(format!(
            "the log of {name} should be on {}, and that cannot be used ({e}): {}",
            path.display(),
            help(name)
        ))),
    }
}

/// The log on a device, if it is the one that the superblock means.
fn check(name: &str, superblock: &Superblock, device: Arc<dyn Device>) -> Result<KeptLog> {
    let on = device.describe();
    let refused = |what: String| MetaError::Refused(format!("{what}: {}", help(name)));
    let region = Region::whole(&*device);
    let kept = match KeptLog::find(device, region) {
        Err(LogError::Device(e)) => return Err(e.into()),
        Err(LogError::NotALog { .. } | LogError::BadRegion { .. }) => {
            return Err(refused(format!(
                "{on} should have the log of {name}, and has no log of a volume, or one of another length"
            )));
        }
        other => other?,
    };
    let external = superblock.external_log.as_ref().expect("the caller has looked");
    let ours = LogOwner(superblock.uuid);
    if kept.owner() != ours {
        return Err(refused(format!(
            "{on} has the log of the volume {}, and {name} is {ours}",
            kept.owner()
        )));
    }
    if kept.id().0 != superblock.log_id || kept.ring().blocks != superblock.log_blocks {
        return Err(refused(format!("{on} has another log that {name} once had, or was to have")));
    }
    let (known, found) = (external.session, kept.session());
    #[cfg(feature = "mutations")]
    if crate::mutation::is(crate::mutation::Mutation::OldSessionAccepted) {
        return Ok(kept);
    }
    if found < known {
        return Err(refused(format!(
            "{on} has an older copy of the log of {name}: it was used {found} times, and the volume knows of {known}"
        )));
    }
    if found > known + u64::from(external.begins) {
        return Err(refused(format!(
            "the log on {on} was used since by another copy of the volume, or {name} is an older copy: the log was used {found} times, \
             and the volume knows of {known}"
        )));
    }
    Ok(kept)
}
