//! Operands that name snapshots of a directory, or versions of a file in one.

use super::snapshot::{is_file_on_mount, json_row, Location};
use crate::asked::Asked;
use crate::live;
use crate::opened::directory_of;
use crate::output::{bytes_of, print_json, Clock};
use crate::status;
use crate::volume::{Access, OnVolume};
use anyhow::Context as _;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use yore_control::Saying;
use yore_fs::{Error, Event, EventNo, ListedEvent, Volume};

/// What to write for a choice among the snapshots of a directory, or the versions of a file.
pub const CHOICES: &str =
    "--keep-last N, --keep-hourly N, --keep-daily N, --keep-weekly N, --keep-monthly N, --keep-yearly N, \
                       --keep-within DURATION, or --before TIME";

/// Finds what an operand names. If the operand is a volume or a mount point with an `@`, the time after the
/// `@` is one of its root directory.
pub fn find(operand: &OsStr) -> anyhow::Result<Location> {
    let path = Path::new(operand);
    if fs::symlink_metadata(path).is_ok() || OnVolume::split(operand).is_some() {
        return Location::find(operand);
    }
    match split_root(path) {
        None => Location::find(operand),
        Some((root, past)) => match Location::find(root.as_os_str())? {
            Location::Mounted { path, .. } => Location::of_mount(&path.join(past)),
            Location::Free(on) => Ok(Location::Free(OnVolume { path: Path::new("/").join(past), ..on })),
        },
    }
}

/// The same of what may also be a file of a mount.
pub fn find_file_too(operand: &OsStr) -> anyhow::Result<Location> {
    match is_file_on_mount(Path::new(operand)) {
        true => Location::of_mount(Path::new(operand)),
        false => find(operand),
    }
}

/// Splits `mnt@TIME/REST` into the mount point and `.@TIME/REST`, and `volume.yore@TIME` into the volume's
/// file and `.@TIME`.
pub fn split_root(path: &Path) -> Option<(PathBuf, OsString)> {
    path.ancestors().find_map(|named| {
        let name = named.file_name()?.as_bytes();
        // A time that cannot be parsed is looked up all the same: the look-up explains what is wrong with it.
        let of = match yore_fs::split_time(name) {
            Some((of, _)) => of,
            None => &name[..name.iter().rposition(|byte| *byte == b'@').filter(|at| *at > 0)?],
        };
        let root = named.with_file_name(OsStr::from_bytes(of));
        let below = path.strip_prefix(named).ok()?;
        let found = fs::metadata(&root).ok()?;
        let is_root = match found.is_dir() {
            true => root.canonicalize().is_ok_and(|root| live::is_mounted(&root)),
            // A file on a mount has its own times.
            false => below.as_os_str().is_empty() && !is_file_on_mount(&root),
        };
        let past = PathBuf::from(OsStr::from_bytes(&[b".", &name[of.len()..]].concat()));
        let past = if below.as_os_str().is_empty() { past } else { past.join(below) };
        is_root.then(|| (root, past.into_os_string()))
    })
}

/// What an operand names.
pub struct Target {
    location: Location,
    /// On a mount, a file in that directory. On a volume, only opening it shows whether the path is a file.
    file: Option<OsString>,
}

impl Target {
    fn find(operand: &OsStr) -> anyhow::Result<Target> {
        match file_on_mount(operand) {
            Some((parent, name)) => Ok(Target { location: Location::of_mount(&parent)?, file: Some(name) }),
            None => Ok(Target { location: find(operand)?, file: None }),
        }
    }

    /// As messages name it.
    fn name(&self) -> String {
        match &self.file {
            Some(_) => self.path().display().to_string(),
            None => self.location.name(),
        }
    }

    /// Its path there.
    fn path(&self) -> PathBuf {
        let dir = self.location.path();
        self.file.as_ref().map_or(dir.into(), |file| dir.join(file))
    }
}

/// The directory and the name of a file of a mount, or of a file that is gone from one.
fn file_on_mount(operand: &OsStr) -> Option<(PathBuf, OsString)> {
    let path = Path::new(operand);
    let name = path.file_name()?;
    let parent = directory_of(path);
    live::mount_at(parent)?;
    match fs::metadata(path) {
        // Files of other kinds have no versions of their own; the refusal names the kind.
        Ok(found) if !found.is_file() => return None,
        Ok(_) => {}
        Err(_) if OnVolume::split(operand).is_some() => return None,
        // History may know a file that is gone by its name without a time. A mount point with a time is a
        // directory.
        Err(_) if split_root(path).is_some_and(|(root, _)| root.is_dir()) => return None,
        Err(_) => {}
    }
    Some((parent.into(), name.into()))
}

/// A target that is open, so that it can be asked for snapshots.
pub struct Opened<'a> {
    target: &'a Target,
    asked: Asked<'a>,
    /// The volume, if it is not mounted.
    pub volume: Option<&'a Volume>,
}

impl<'a> Opened<'a> {
    fn of(target: &'a Target, volume: Option<&'a Volume>) -> anyhow::Result<Opened<'a>> {
        let asked = match volume {
            Some(volume) => Asked::here(volume, target.location.path())?,
            None => Asked::on_mount(target.location.open_dir()?, target.file.as_deref()),
        };
        Ok(Opened { target, asked, volume })
    }

    /// As messages name it.
    pub fn name(&self) -> String {
        self.target.name()
    }

    /// Where it is.
    pub fn location(&self) -> &Location {
        &self.target.location
    }

    /// Whether it is a file, or a name that is gone, and not a directory.
    pub fn is_file(&self) -> bool {
        self.asked.is_file()
    }

    /// All snapshots that concern the directory, or all versions of the file.
    pub fn list(&self) -> anyhow::Result<Vec<ListedEvent>> {
        self.found(self.asked.list())
    }

    /// Adds the name to the error that nothing was found.
    fn found<T>(&self, found: yore_fs::Result<T>) -> anyhow::Result<T> {
        found.map_err(|error| match error {
            Error::NotFound => error.on_path("cannot find", bytes_of(&self.target.path())).into(),
            _ => error.into(),
        })
    }

    /// The snapshot as of which it is seen; `None` if it is of the present.
    pub fn seen(&self) -> anyhow::Result<Option<ListedEvent>> {
        self.found(self.asked.seen())
    }

    /// The user who asks, if the mount does not let that user forget snapshots that others took.
    pub fn ordinary_user(&self) -> Option<u32> {
        let mount = self.location().mount()?;
        let user = rustix::process::geteuid().as_raw();
        (user != 0 && user != mount.user).then_some(user)
    }

    /// Forgets all these snapshots or none. If there are too many for one request, those of earlier requests
    /// stay forgotten after an error.
    pub fn forget(&self, numbers: &[EventNo]) -> anyhow::Result<()> {
        self.asked.client().forget(numbers).map_err(refused)
    }

    /// Changes the description of a snapshot, or whether it is held.
    pub fn describe(&self, event: &Event, saying: Saying) -> anyhow::Result<()> {
        self.asked.client().describe(event.number, saying).map_err(refused)
    }

    /// A snapshot of the directory's list, by its number.
    pub fn numbered(&self, verb: &str, number: u64) -> anyhow::Result<ListedEvent> {
        let row = self.found(self.asked.numbered(EventNo(number)))?;
        row.with_context(|| {
            let name = self.name();
            format!("cannot {verb} snapshot {number}: {name} has none of that number; `yore snapshots --json {name}` lists them")
        })
    }

    /// Prints a snapshot as it is now, as JSON.
    pub fn print(&self, verb: &str, number: EventNo) -> anyhow::Result<()> {
        print_json(&json_row(&self.numbered(verb, number.0)?, &Clock::new(false)))
    }

    /// The snapshot that the operand names, if it is one of that very directory. `verb` says in messages what
    /// the command does to it.
    pub fn snapshot(&self, verb: &str, clock: &Clock) -> anyhow::Result<ListedEvent> {
        let name = self.name();
        let Some(row) = self.seen()? else {
            return Err(no_time(verb, &name));
        };
        if row.own {
            return Ok(row);
        }
        let of = match (&row.path, named(&self.target.location, &row, clock)) {
            (Some(path), Some(named)) => {
                format!("{}; to {verb} that one, with all that is in it, name {named}", path.display())
            }
            _ => "a directory that is gone".to_string(),
        };
        if self.asked.is_file() {
            anyhow::bail!(
                "cannot {verb} {name}: what it is seen in is no version of that file itself, but a snapshot of {of}; all history of \
                 the file alone is given up by `yore expunge`"
            );
        }
        anyhow::bail!("cannot {verb} {name}: the snapshot that it is seen in was not taken of that directory itself, but of {of}")
    }
}

/// The error if an operand has no time and no option chooses either.
pub fn no_time(verb: &str, name: &str) -> anyhow::Error {
    let choices = match verb {
        "forget" => format!(", or say which are kept or forgotten: {CHOICES}"),
        _ => String::new(),
    };
    status::usage(format!(
        "{name}: which snapshot? Name one, as {name}@2026-11-20_14.05 or {name}@NAME (`yore snapshots` lists them, `yore log` the versions of a file){choices}"
    ))
}

/// Why a change was refused, with the next step where the error does not say it.
fn refused(error: Error) -> anyhow::Error {
    match error.root() {
        Error::NotFound | Error::Stale => {
            anyhow::anyhow!("somebody forgot it meanwhile; look again with `yore snapshots`")
        }
        Error::ReadOnly => {
            anyhow::anyhow!("it is mounted read-only; mount the volume for writing, then try again")
        }
        _ => error.into(),
    }
}

/// Opens all targets, which are on one volume or mount, and does some work with them.
pub fn with_opened<T>(
    targets: &[Target],
    access: Access,
    work: impl FnOnce(&[Opened<'_>]) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    fn opened<'a>(targets: &'a [Target], volume: Option<&'a Volume>) -> anyhow::Result<Vec<Opened<'a>>> {
        targets.iter().map(|target| Opened::of(target, volume)).collect()
    }
    let first = targets.first().context("there is no operand")?;
    first.location.with_volume(access, |volume| work(&opened(targets, volume)?))
}

/// Finds all operands. They must be on one volume, so that the command does all of its work or nothing.
pub fn find_all(operands: &[OsString]) -> anyhow::Result<Vec<Target>> {
    let targets = operands.iter().map(|operand| Target::find(operand)).collect::<anyhow::Result<Vec<_>>>()?;
    for pair in targets.windows(2) {
        let [a, b] = [&pair[0].location, &pair[1].location];
        if !a.is_beside(b) || device(a)? != device(b)? {
            return Err(status::usage(format!(
                "{} and {} are on different volumes; run the command once for each",
                pair[0].name(),
                pair[1].name()
            )));
        }
    }
    Ok(targets)
}

/// Finds the one snapshot that `verb` is done to: by its number, or as the operand names it. Opening a volume
/// for writing changes it, so what can be known to fail fails before.
pub fn find_one(
    verb: &str,
    operand: &OsStr,
    number: Option<u64>,
) -> anyhow::Result<([Target; 1], ListedEvent)> {
    let targets = [Target::find(operand)?];
    let row = with_opened(&targets, Access::Read, |opened| match number {
        Some(number) => opened[0].numbered(verb, number),
        None => opened[0].snapshot(verb, &Clock::new(false)),
    })?;
    Ok((targets, row))
}

/// The device of a mount; `None`: it is on none.
fn device(location: &Location) -> anyhow::Result<Option<u64>> {
    let found = location.dir().map(File::metadata).transpose().context("cannot look at an open directory")?;
    Ok(found.map(|found| found.dev()))
}

/// The names and then the times, the latest first, of the snapshots that show a path, and of a file's
/// versions, too.
pub fn names_and_times(operand: &OsStr) -> anyhow::Result<Vec<String>> {
    let mut rows = with_opened(&[Target::find(operand)?], Access::Read, |opened| {
        let asked = &opened[0].asked;
        let mut rows = asked.client().all_snapshots()?;
        if asked.is_file() {
            rows.extend(asked.list()?);
        }
        Ok(rows)
    })?;
    rows.retain(|row| row.covers);
    rows.sort_by_key(|row| std::cmp::Reverse(row.event.number));
    let clock = Clock::new(false);
    let names = rows.iter().map(|row| row.event.row.name.clone()).filter(|name| !name.is_empty());
    let times = rows.iter().map(|row| clock.name(row.event.row.time, row.next));
    Ok(names.chain(times).collect())
}

/// How a command names a snapshot of the volume of `location`: by the directory or file that the event is of,
/// as of its name or time. `None` if that directory or file is gone.
pub fn named(location: &Location, row: &ListedEvent, clock: &Clock) -> Option<String> {
    let path = row.path.as_deref()?;
    let path = if path == Path::new("/") { "/.".into() } else { path.display().to_string() };
    // A name means this snapshot whatever is taken later; a time might not.
    let time = match row.event.row.name.as_str() {
        "" => clock.name(row.event.row.time, row.next),
        name => name.to_string(),
    };
    Some(format!("{}{path}@{time}", String::from_utf8_lossy(&location.front())))
}

/// What to do about a snapshot that is mounted by itself, and where it is mounted.
pub fn mounted_on(row: &ListedEvent, location: &Location) -> String {
    let daemon = location.mount().and_then(|mount| live::daemon_at(&mount.directory));
    let mut snapshots = daemon.into_iter().flat_map(|daemon| daemon.snapshots);
    match snapshots.find(|of| of.number == row.event.number.0) {
        Some(of) => format!(
            "it is mounted on {directory}; unmount it first (yore umount {directory})",
            directory = of.directory.display()
        ),
        None => "it is mounted; unmount it first".to_string(),
    }
}
