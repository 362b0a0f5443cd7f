//! `snapshot` and `snapshots`, and what other commands need to find their directory.
//!
//! **The printed time stays a name.** What `snapshot` prints must mean this snapshot for ever. But a time
//! means the last snapshot up to the end of what it names, so the next one in the same minute would take over
//! `14.05`. Therefore the command prints a time that ends within [`REACH`] of the snapshot, waits until that
//! has passed, and then asks whether another snapshot came in the meantime.

use super::files::on_volume;
use crate::args;
use crate::asked::{here, Paths};
use crate::live;
use crate::opened;
use crate::output::{bytes_of, json_name_or_null, json_time, print_json, print_line, printable, Clock, List};
use crate::side::{self, Side};
use crate::status::{self, Outcome};
use crate::timed_path::root_of;
use crate::volume::{Access, OnVolume};
use anyhow::Context as _;
use serde_json::{json, Value};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use yore_control::{Client, Mounted, Take};
use yore_fs::time::check_snapshot_name;
use yore_fs::{Error, EventKind, EventNo, ListedEvent, Timestamp, Volume};

/// How long after a snapshot the time printed for it may end. This tells apart all snapshots but those taken
/// at the same moment, and nobody notices the wait.
const REACH: Duration = Duration::from_millis(10);

/// Where the directory is.
pub enum Location {
    /// On a mount.
    Mounted { dir: File, path: PathBuf },
    /// On a volume that this process opens.
    Free(OnVolume),
}

impl Location {
    /// What an operand names: a directory of a mount, `VOL:/PATH`, or a volume, which may be mounted.
    pub fn find(operand: &OsStr) -> anyhow::Result<Location> {
        let path = Path::new(operand);
        let found = match (fs::metadata(path), OnVolume::split(operand)) {
            (Ok(found), _) => found,
            (Err(_), Some(on)) => return Ok(Location::Free(on)),
            (Err(error), None) => return Err(not_there(path, error)),
        };
        if found.is_dir() {
            return Location::of_mount(path);
        }
        live::wait_until_closed(path);
        match live::mount_of(path) {
            Some(mount) => Location::of_mount(&mount.directory),
            None => Ok(Location::Free(OnVolume { volume: path.into(), path: "/".into() })),
        }
    }

    /// The location of a directory of a mount.
    pub fn of_mount(path: &Path) -> anyhow::Result<Location> {
        let name = path.display();
        fs::metadata(path).map_err(|error| not_there(path, error))?;
        anyhow::ensure!(
            live::mount_at(path).is_some(),
            "{name} is not on a mounted volume; name a directory that is, or a volume (volume.yore, volume.yore:/letters)"
        );
        let dir = opened::file_or_directory(path).with_context(|| format!("cannot open {name}"))?;
        Ok(Location::Mounted { dir, path: path.into() })
    }

    /// Asks about the directory.
    pub fn ask<T>(
        &self,
        access: Access,
        work: impl FnOnce(&dyn Client) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.ask_with(access, |client, _| work(client))
    }

    /// The same, with the volume if this process opens it: the command then does what a daemon does in the
    /// background.
    pub fn ask_with<T>(
        &self,
        access: Access,
        work: impl FnOnce(&dyn Client, Option<&Volume>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.with_volume(access, |volume| match volume {
            Some(opened) => work(&here(opened, self.path())?, volume),
            None => work(&Mounted(self.open_dir()?), None),
        })
    }

    /// Does something with the paths and the files of the mount or volume.
    pub fn with_paths<T>(
        &self,
        access: Access,
        work: impl FnOnce(Paths<'_>, &dyn Side) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.with_volume(access, |volume| match volume {
            None => work(Paths::ON_MOUNTS, &side::Host),
            Some(opened) => work(Paths::on(volume), &side::OnVolume::new(opened, &self.root())),
        })
    }

    /// Opens the volume, unless it is mounted, and does something.
    pub fn with_volume<T>(
        &self,
        access: Access,
        work: impl FnOnce(Option<&Volume>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let Some(file) = self.file() else { return work(None) };
        let mut is_open = false;
        let done = on_volume(file, access, |volume| {
            is_open = true;
            work(Some(volume))
        });
        done.map_err(|error| {
            // What could not be opened as a volume is just a file of a mount.
            match !is_open && is_file_on_mount(file) && root_of(&error).is_none() {
                true => anyhow::anyhow!("{} is not a directory; name the one that it is in", file.display()),
                false => error,
            }
        })
    }

    /// The directory, if it is on a mount.
    pub fn dir(&self) -> Option<&File> {
        match self {
            Location::Mounted { dir, .. } => Some(dir),
            Location::Free(_) => None,
        }
    }

    /// The same where no volume was opened, so that it is on a mount.
    pub fn open_dir(&self) -> anyhow::Result<&File> {
        self.dir().with_context(|| format!("{} is not open", self.name()))
    }

    /// The file of the volume, if that is not mounted.
    fn file(&self) -> Option<&Path> {
        match self {
            Location::Mounted { .. } => None,
            Location::Free(on) => Some(&on.volume),
        }
    }

    /// The path of the directory on the mount or volume.
    pub fn path(&self) -> &Path {
        match self {
            Location::Mounted { path, .. } => path,
            Location::Free(on) => &on.path,
        }
    }

    /// The mount that it is on.
    pub fn mount(&self) -> Option<live::Mount> {
        self.dir().and_then(|_| live::mount_at(self.path()))
    }

    /// The root directory of what it is on: the mount point, or the file of the volume.
    pub fn root(&self) -> PathBuf {
        let mounted = || self.mount().map_or(self.path().into(), |mount| mount.directory);
        self.file().map_or_else(mounted, Path::to_path_buf)
    }

    /// What stands before a path of its volume: the mount point, or the volume's file and a colon.
    pub fn front(&self) -> Vec<u8> {
        let colon = if self.file().is_some() { ":" } else { "" };
        [bytes_of(&self.root()), colon.as_bytes()].concat()
    }

    /// Whether the paths of both lead to the same volume, as far as that is known before it is opened.
    pub fn is_beside(&self, other: &Location) -> bool {
        self.file() == other.file()
    }

    /// As messages name it.
    pub fn name(&self) -> String {
        let front = self.file().map_or(String::new(), |file| format!("{}:", file.display()));
        format!("{front}{}", self.path().display())
    }
}

/// Why a path leads nowhere. A dead mount exists, but every look-up there fails.
fn not_there(path: &Path, error: io::Error) -> anyhow::Error {
    let name = path.display();
    match live::mount_at(path) {
        Some(mount) if error.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error()) => {
            let directory = mount.directory.display();
            anyhow::anyhow!(
                "the daemon that served {directory} is dead; mount the volume again, or `yore umount {directory}`"
            )
        }
        _ if error.kind() == io::ErrorKind::NotFound => {
            // A relative path of one name has nothing above it.
            let whole = std::path::absolute(path).unwrap_or_else(|_| path.into());
            let above = whole.ancestors().find(|above| above.exists());
            match above.and_then(live::mount_at) {
                Some(_) => Error::NotFound.on_path("cannot find", bytes_of(path)).into(),
                None => anyhow::anyhow!("cannot find {name}: no such file or directory"),
            }
        }
        _ => anyhow::Error::new(error).context(format!("cannot find {name}")),
    }
}

/// The error of a user who has as many of something as one user may have.
pub fn too_many(what: &str, helps: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "you have as many {what} on this volume as one user may; {helps}, and root can mount the volume with a higher limit \
         (-o user_{what}=N)"
    )
}

/// Takes a snapshot.
pub fn snapshot(args: &args::Snapshot) -> Outcome {
    let name = args.name.as_deref().unwrap_or("");
    if args.name.is_some() {
        check_snapshot_name(name).map_err(|error| status::usage(error.to_string()))?;
    }
    let time = args.time.as_deref().map(|text| Clock::new(args.utc).parse(text));
    let time = time.transpose().map_err(|why| status::usage(format!("--time: {why}")))?;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let new = Take {
        name: name.to_string(),
        description: text(&args.message),
        held: args.hold,
        hold_reason: text(&args.reason),
        time,
        wait: !args.no_wait,
        ..Take::default()
    };
    let location = Location::find(&args.path)?;
    let listed = location.ask(Access::Write, |client| {
        let cannot = || format!("cannot take a snapshot of {}", location.name());
        let (number, time) = client.take(new).with_context(cannot)?;
        wait_until_past(time, Instant::now());
        named_for_ever(client.snapshots(number)?.rows, number)
    });
    let listed = listed.map_err(|error| explain(error, &location, name))?;
    let clock = Clock::new(args.utc);
    match args.json {
        true => print_json(&json_row(&listed, &clock))?,
        false => print_line(clock.name(listed.event.row.time, listed.next))?,
    }
    Ok(status::OK)
}

/// Waits until snapshots are later than [`REACH`] after this one; no longer than that, whatever clocks do.
fn wait_until_past(time: Timestamp, started: Instant) {
    let end = Duration::new(u64::try_from(time.seconds).unwrap_or(0), time.nanos) + REACH;
    loop {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let left = end.saturating_sub(now).min(REACH.saturating_sub(started.elapsed()));
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left);
    }
}

/// The row of a snapshot just taken, with an end that holds for all that will ever follow.
fn named_for_ever(rows: Vec<ListedEvent>, number: EventNo) -> anyhow::Result<ListedEvent> {
    let mut row = rows
        .into_iter()
        .find(|row| row.event.number == number)
        .context("the snapshot was taken, but is not in the list any more: somebody removed it")?;
    let end = later(row.event.row.time, REACH);
    row.next = Some(row.next.map_or(end, |next| next.min(end)));
    Ok(row)
}

fn later(time: Timestamp, by: Duration) -> Timestamp {
    let nanos = u64::from(time.nanos) + by.as_nanos() as u64;
    let seconds = time.seconds.saturating_add((nanos / 1_000_000_000) as i64);
    Timestamp { seconds, nanos: (nanos % 1_000_000_000) as u32 }
}

/// Adds the next step to why there is no snapshot.
fn explain(error: anyhow::Error, location: &Location, name: &str) -> anyhow::Error {
    let shown = location.name();
    match (root_of(&error), location) {
        (Some(Error::Exists), _) => anyhow::anyhow!(
            "cannot take a snapshot of {shown}: it has a snapshot named `{name}`; choose another name \
             (`yore snapshots` lists those that are taken)"
        ),
        (Some(Error::OutOfOrder { .. }), _) => anyhow::anyhow!(
            "cannot take a snapshot of {shown}: its time must be later than that of the last snapshot or version, and not in the \
             future. To import snapshots, make the volume with `yore mkfs --policy none`, so that none is taken by itself, and take \
             the oldest first"
        ),
        (Some(Error::NotADirectory), _) => {
            anyhow::anyhow!("cannot take a snapshot of {shown}: not a directory; name the one that it is in")
        }
        (Some(Error::ReadOnly), Location::Free(_)) => anyhow::anyhow!(
            "cannot take a snapshot of {shown}: it is of the past, which does not change any more; name the directory \
             as it is now"
        ),
        (Some(Error::ReadOnly), Location::Mounted { .. }) => anyhow::anyhow!(
            "cannot take a snapshot of {shown}: it is mounted read-only, or of the past; mount the volume for writing, \
             or name the directory as it is now"
        ),
        _ => error,
    }
}

/// Whether something that could not be opened as a volume is just a file on a mount.
pub fn is_file_on_mount(path: &Path) -> bool {
    let directory = path.canonicalize().ok().and_then(|path| Some(path.parent()?.to_path_buf()));
    path.is_file() && directory.is_some_and(|directory| live::mount_at(&directory).is_some())
}

/// Lists snapshots.
pub fn snapshots(args: &args::Snapshots) -> Outcome {
    let location = Location::find(&args.path)?;
    let rows = location.ask(Access::Read, |client| {
        client.all_snapshots().map_err(|error| match error.root() {
            Error::NotADirectory => anyhow::anyhow!(
                "cannot list the snapshots of {}: not a directory; name the one that it is in",
                location.name()
            ),
            _ => {
                anyhow::Error::new(error).context(format!("cannot list the snapshots of {}", location.name()))
            }
        })
    })?;
    // Undo points matter to `undo` alone, which finds them by itself.
    let is_listed = |row: &&ListedEvent| args.all || row.event.row.kind != EventKind::Undo;
    let lines: Vec<Line<'_>> = rows.iter().filter(is_listed).map(|row| Line { row, kept: None }).collect();
    print_rows(args.listing, &Clock::new(args.listing.utc), &lines)?;
    Ok(status::OK)
}

/// A snapshot in a list.
pub struct Line<'a> {
    /// The snapshot.
    pub row: &'a ListedEvent,
    /// In a list of what `forget` would do: why it is kept. If there are no reasons, it is forgotten.
    pub kept: Option<Vec<&'static str>>,
}

/// Prints a list of snapshots.
pub fn print_rows(listing: args::Listing, clock: &Clock, lines: &[Line<'_>]) -> anyhow::Result<()> {
    let mut list = List::new(listing);
    let rows: Vec<&ListedEvent> = lines.iter().map(|line| line.row).collect();
    let times: Vec<String> = rows.iter().map(|row| clock.name(row.event.row.time, row.next)).collect();
    let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
    let time_width = width(&mut times.iter().map(String::len));
    let name_width = width(&mut rows.iter().map(|row| shown_name(row).chars().count()));
    for (Line { row, kept }, time) in lines.iter().zip(&times) {
        let (before, reasons) = match kept.as_deref() {
            None => ("", String::new()),
            Some([]) => ("forget  ", String::new()),
            Some(reasons) => ("keep    ", format!("  ({})", reasons.join(", "))),
        };
        let held = if row.event.row.held { "held" } else { "-" };
        let after = format!(
            "{:pad$}  {:<8}  {held:<4}  {:<name_width$}  {}{reasons}",
            "",
            kind_name(row.event.row.kind),
            shown_name(row),
            directory(row) + &said(row),
            pad = time_width - time.len()
        );
        list.entry(before, time.as_bytes(), &after, || {
            let mut value = json_row(row, clock);
            if let Some(reasons) = kept {
                value["kept"] = json!(!reasons.is_empty());
                value["reasons"] = json!(reasons);
            }
            value
        })?;
    }
    list.done()
}

/// The name of a snapshot as it is shown. No snapshot is named `-`.
fn shown_name(row: &ListedEvent) -> String {
    match &row.event.row.name {
        name if name.is_empty() => "-".to_string(),
        name => printable(name.as_bytes()),
    }
}

/// The texts that people gave a snapshot, which come last.
fn said(row: &ListedEvent) -> String {
    let more = &row.event.row.more;
    let reason = Some(&more.hold_reason).filter(|reason| !reason.is_empty());
    let reason = reason.map(|reason| format!("  (held: {})", printable(reason.as_bytes())));
    let description = Some(&more.description).filter(|text| !text.is_empty());
    let description = description.map(|text| format!("  {}", printable(text.as_bytes())));
    format!("{}{}", description.unwrap_or_default(), reason.unwrap_or_default())
}

/// The directory of an event: its present path, or its inode number.
fn directory(row: &ListedEvent) -> String {
    match &row.path {
        Some(path) => printable(bytes_of(path)),
        None => format!("inode {}", row.event.row.root),
    }
}

fn kind_name(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Snapshot => "snapshot",
        EventKind::Close => "close",
        EventKind::Interval => "interval",
        EventKind::Undo => "undo",
        EventKind::Removed => "removed",
        EventKind::Expunge => "expunge",
        EventKind::Rollback => "rollback",
    }
}

pub(super) fn json_row(listed: &ListedEvent, clock: &Clock) -> Value {
    let row = &listed.event.row;
    let mut value = json!({
        "number": listed.event.number.0,
        "time": json_time(row.time),
        "at": clock.name(row.time, listed.next),
        "kind": kind_name(row.kind),
        "mounted": listed.mounted,
        "name": if row.name.is_empty() { Value::Null } else { json!(row.name) },
        "description": Some(&row.more.description).filter(|text| !text.is_empty()),
        "by": row.more.by,
        "held": row.held,
        "hold_reason": Some(&row.more.hold_reason).filter(|text| !text.is_empty()),
        "held_by": row.more.held_by,
        "held_until": row.more.held_until,
        "covers": listed.covers,
        "inode": row.root.0,
        "incarnation": row.root_incarnation.0,
    });
    json_name_or_null(&mut value, "path", listed.path.as_deref().map(bytes_of));
    value
}
