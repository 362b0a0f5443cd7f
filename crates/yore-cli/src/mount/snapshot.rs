//! What `mount --at` mounts: a directory as of a time.

use crate::nearest::nearest;
use crate::output::{now, Clock};
use crate::status;
use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use yore_control::{Client as _, Here};
use yore_fs::time::{parse, TimeZone, When};
use yore_fs::{Error, EventNo, FileKind, InodeNo, Pin, PinnedBy, Timestamp, View, Volume};

/// A directory of a volume as of a time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct At {
    /// The directory's path on the volume.
    path: Vec<u8>,
    /// The time as it was written.
    pub text: String,
    moment: Moment,
}

/// A time, read where it was written: the daemon may be in another time zone.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Moment {
    At { seconds: i64, nanos: u32 },
    Last(NonZeroU32),
    Named(String),
}

/// A directory as of a snapshot that cannot be forgotten meanwhile.
pub struct Found {
    /// Keeps the snapshot.
    pub pin: Pin,
    /// The directory.
    pub root: InodeNo,
    /// What follows the volume's name in the table of mounts.
    pub name: String,
}

impl At {
    /// The directory at this path as of this time.
    ///
    /// # Errors
    /// A usage error if the text is not a time.
    pub fn parse(path: &Path, text: &str) -> anyhow::Result<At> {
        let when = parse(text, now(), &TimeZone::system())
            .map_err(|error| status::usage(format!("--at: {error}")))?;
        let moment = match when {
            When::At(Timestamp { seconds, nanos }) => Moment::At { seconds, nanos },
            When::Last(count) => Moment::Last(count),
            When::Named(name) => Moment::Named(name),
        };
        Ok(At { path: path.as_os_str().as_bytes().to_vec(), text: text.to_string(), moment })
    }

    /// The directory's path on the volume.
    pub fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path))
    }

    fn when(&self) -> When {
        match &self.moment {
            Moment::At { seconds, nanos } => When::At(Timestamp { seconds: *seconds, nanos: *nanos }),
            Moment::Last(count) => When::Last(*count),
            Moment::Named(name) => When::Named(name.clone()),
        }
    }

    /// Finds the directory on an open volume, and pins its snapshot.
    ///
    /// # Errors
    /// There is no such snapshot (the error says which there are); it is not a directory; damage and device
    /// errors.
    pub fn find(&self, view: &View) -> anyhow::Result<Found> {
        let volume = Volume::from_view(view.clone());
        let (seen, directory, name) = match (self.path().parent(), self.path().file_name()) {
            (Some(parent), Some(name)) => {
                let parent = volume.node(parent)?;
                (volume.view().of(&parent).into_owned(), parent.inode(), name.as_bytes())
            }
            _ => (view.clone(), view.root(), &b"."[..]),
        };
        let node = match seen.lookup_at(directory, name, &self.when()) {
            Ok(node) => node,
            Err(Error::NotFound) => return Err(self.absent(&volume)),
            Err(error) => return Err(error.on_path("cannot find", &self.path).into()),
        };
        anyhow::ensure!(
            node.attr().kind == FileKind::Directory,
            "cannot mount {} as of {}: it is no directory; `yore get` copies a file of then",
            self.path().display(),
            self.text
        );
        let number = node.event().unwrap_or_default();
        let pin = view.pin(number, PinnedBy::Mount).map_err(|error| match error {
            Error::NotFound => self.absent(&volume),
            error => error.into(),
        })?;
        let name = self.name_of(view, number)?;
        Ok(Found { pin, root: node.inode(), name })
    }

    /// The directory, if it is not the root, and what its snapshot is called.
    fn name_of(&self, view: &View, number: EventNo) -> anyhow::Result<String> {
        let time = match &self.moment {
            Moment::Named(name) => name.clone(),
            Moment::At { .. } | Moment::Last(_) => {
                let root = view.kept_event(number)?.row.root;
                let (event, next) =
                    view.events_of(root, number, 1)?.pop().context("the snapshot is in no list")?;
                Clock::new(false).name(event.row.time, next)
            }
        };
        Ok(match self.path().file_name() {
            None => format!("@{time}"),
            Some(_) => format!(":{}@{time}", self.path().display()),
        })
    }

    /// Why there is no such snapshot, and which snapshots there are.
    fn absent(&self, volume: &Volume) -> anyhow::Error {
        let (path, text) = (self.path().display(), &self.text);
        let cannot = format!("cannot mount {path} as of {text}");
        let view = volume.view();
        let rows = match Here::new(view, view.root()).all_snapshots() {
            Ok(rows) => rows,
            Err(error) => return error.into(),
        };
        if rows.is_empty() {
            return anyhow::anyhow!(
                "{cannot}: there are no snapshots of this volume; take one with `yore snapshot`"
            );
        }
        let shown = |path: &Option<PathBuf>| match path {
            Some(path) => path.display().to_string(),
            None => "a directory that is gone".to_string(),
        };
        if let Moment::Named(name) = &self.moment {
            return match rows.iter().find(|row| row.event.row.name == *name) {
                Some(row) => anyhow::anyhow!(
                    "{cannot}: that snapshot is of {}, and does not show {path}; mount that directory (VOL:/PATH)",
                    shown(&row.path)
                ),
                None => {
                    let names = rows.iter().map(|row| row.event.row.name.as_str()).filter(|name| !name.is_empty());
                    let near = nearest(name, names).map(|near| format!("; did you mean `{near}`?"));
                    anyhow::anyhow!(
                        "{cannot}: there is no snapshot of that name{} `yore snapshots` lists those that there are",
                        near.as_deref().unwrap_or(";")
                    )
                }
            };
        }
        // If the directory no longer exists, snapshots that showed it cannot be told from others.
        let shows = volume.node(self.path()).ok().and_then(|node| {
            let of = Here::new(&volume.view().of(&node), node.inode()).all_snapshots().ok()?;
            Some(of.into_iter().filter(|row| row.covers).collect::<Vec<_>>())
        });
        let clock = Clock::new(false);
        match shows.as_deref() {
            Some(rows) if matches!(self.moment, Moment::Last(_)) && !rows.is_empty() => anyhow::anyhow!(
                "{cannot}: there are not so many snapshots of it; `yore snapshots` lists those that there are"
            ),
            Some([]) => anyhow::anyhow!(
                "{cannot}: no snapshot shows it. Those that there are are of other directories, as {}; mount one of these \
                 (VOL:/PATH)",
                shown(&rows[0].path)
            ),
            Some([first, ..]) if matches!(self.when(), When::At(time) if time < first.event.row.time) => {
                anyhow::anyhow!(
                    "{cannot}: the first snapshot that shows it is of {}",
                    clock.name(first.event.row.time, first.next)
                )
            }
            _ => anyhow::anyhow!(
                "{cannot}: there was nothing then, or the snapshot of that time was forgotten; `yore snapshots` lists those \
                 that there are"
            ),
        }
    }
}
