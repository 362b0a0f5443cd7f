//! `forget`, `hold` and `release`.
//!
//! **A command forgets exactly what its operand names.** `PATH@TIME` means the snapshot as of which that path
//! is seen, but only if it is a snapshot of that very directory, or a version of that very file. A snapshot
//! of a directory above shows more than the operand names, so the command refuses it and says how to name it.
//! Without a time, options choose among a directory's own snapshots, or a file's own versions
//! ([`yore_fs::retention`]). Without options the command chooses nothing.
//!
//! **Stopping loses nothing.** First the command marks all of them, durably: from then on nobody sees them.
//! Then it frees, in small steps, the space that only they held; on a mount the daemon does that in the
//! background. If a signal or a crash interrupts this, the next mount or the next `forget` does the rest.

use super::files::on_volume;
use super::snapshot::{is_file_on_mount, json_row, print_rows, Line, Location};
use crate::args;
use crate::asked::Asked;
use crate::live;
use crate::nearest::nearest;
use crate::output::{bytes_of, human, now, Clock, Out};
use crate::progress::{stop_wanted, while_given_back, Progress};
use crate::status::{self, Ended, Outcome};
use crate::volume::{Access, OnVolume};
use anyhow::Context as _;
use jiff::tz::TimeZone;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use yore_control::Saying;
use yore_fs::retention::{reasons, Reason, Taken};
use yore_fs::time::{parse_ago, parse_begin, When};
use yore_fs::{Error, Event, EventKind, EventNo, Forgetting, ListedEvent, RetentionRules, Volume};

/// What to write for a choice among the snapshots of a directory, or the versions of a file.
const CHOICES: &str =
    "--keep-last N, --keep-hourly N, --keep-daily N, --keep-weekly N, --keep-monthly N, --keep-yearly N, \
                       --keep-within DURATION, or --before TIME";

/// Finds what an operand names. If the operand is a volume or a mount point with an `@`, the time behind the
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

/// Splits `mnt@TIME/REST` into the mount point and `.@TIME/REST`, and `volume.yore@TIME` into the volume's
/// file and `.@TIME`.
pub(super) fn split_root(path: &Path) -> Option<(PathBuf, OsString)> {
    path.ancestors().find_map(|named| {
        let name = named.file_name()?.as_bytes();
        // A time that cannot be read is looked up all the same: the look-up explains what is wrong with it.
        let of = match yore_fs::split_time(name) {
            Some((of, _)) => of,
            None => &name[..name.iter().rposition(|byte| *byte == b'@').filter(|at| *at > 0)?],
        };
        let root = named.with_file_name(OsStr::from_bytes(of));
        let below = path.strip_prefix(named).ok()?;
        let found = fs::metadata(&root).ok()?;
        let is_root = match found.is_dir() {
            true => root.canonicalize().is_ok_and(|root| live::is_mounted(&root)),
            // A file of a mount has times of its own.
            false => below.as_os_str().is_empty() && !is_file_on_mount(&root),
        };
        let past = PathBuf::from(OsStr::from_bytes(&[b".", &name[of.len()..]].concat()));
        let past = if below.as_os_str().is_empty() { past } else { past.join(below) };
        is_root.then(|| (root, past.into_os_string()))
    })
}

/// What an operand names.
pub(super) struct Target {
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
        match (&self.location, &self.file) {
            (Location::Mounted { path, .. }, Some(file)) => path.join(file).display().to_string(),
            (location, _) => location.name(),
        }
    }
}

/// The directory and the name of a file of a mount, or of a file that is gone from one.
fn file_on_mount(operand: &OsStr) -> Option<(PathBuf, OsString)> {
    let path = Path::new(operand);
    let name = path.file_name()?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
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
pub(super) struct Opened<'a> {
    target: &'a Target,
    asked: Asked<'a>,
    /// The volume, if it is not mounted.
    volume: Option<&'a Volume>,
}

impl<'a> Opened<'a> {
    fn of(target: &'a Target, volume: Option<&'a Volume>) -> anyhow::Result<Opened<'a>> {
        let asked = match (&target.location, volume) {
            (Location::Mounted { dir, .. }, _) => Asked::on_mount(dir, target.file.as_deref()),
            (Location::Free(on), Some(volume)) => Asked::here(volume, &on.path)?,
            (Location::Free(on), None) => anyhow::bail!("{} is not open", on.volume.display()),
        };
        Ok(Opened { target, asked, volume })
    }

    pub(super) fn name(&self) -> String {
        self.target.name()
    }

    /// Adds the name to the error that nothing was found.
    fn found<T>(&self, found: yore_fs::Result<T>) -> anyhow::Result<T> {
        found.map_err(|error| match (&error, &self.target.location) {
            (Error::NotFound, Location::Free(on)) => error.on_path("cannot find", bytes_of(&on.path)).into(),
            (Error::NotFound, _) => error.on_path("cannot find", self.name().as_bytes()).into(),
            _ => error.into(),
        })
    }

    /// The snapshot as of which it is seen; `None` if it is of the present.
    fn seen(&self) -> anyhow::Result<Option<ListedEvent>> {
        self.found(self.asked.seen())
    }

    /// The user who asks, if the mount lets that user forget only snapshots that nobody else took.
    fn ordinary_user(&self) -> Option<u32> {
        let Location::Mounted { path, .. } = &self.target.location else { return None };
        let user = rustix::process::geteuid().as_raw();
        let may_all = user == 0 || live::mount_at(path).is_some_and(|mount| mount.user == user);
        (!may_all).then_some(user)
    }

    /// Forgets all of them or none. If there are too many for one request, an error leaves those of earlier
    /// requests forgotten.
    fn forget(&self, numbers: &[EventNo]) -> anyhow::Result<()> {
        self.asked.client().forget(numbers).map_err(refused)
    }

    /// Changes the description of a snapshot, or whether it is held.
    pub(super) fn describe(&self, event: &Event, saying: Saying) -> anyhow::Result<()> {
        self.asked.client().describe(event.number, saying).map_err(refused)
    }

    /// A snapshot of the directory's list, by its number.
    pub(super) fn numbered(&self, verb: &str, number: u64) -> anyhow::Result<ListedEvent> {
        let row = self.found(self.asked.numbered(EventNo(number)))?;
        row.with_context(|| {
            let name = self.name();
            format!("cannot {verb} snapshot {number}: {name} has none of that number; `yore snapshots --json {name}` lists them")
        })
    }

    /// Prints as JSON what a snapshot is now.
    pub(super) fn print(&self, verb: &str, number: EventNo) -> anyhow::Result<()> {
        let row = self.numbered(verb, number.0)?;
        let mut out = Out::new();
        out.line(serde_json::to_string_pretty(&json_row(&row, &Clock::new(false)))?)?;
        out.done()
    }

    /// The snapshot that the operand names, if it is one of that very directory. `verb` says in messages what
    /// the command does to it.
    pub(super) fn snapshot(&self, verb: &str, clock: &Clock) -> anyhow::Result<ListedEvent> {
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

fn no_time(verb: &str, name: &str) -> anyhow::Error {
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
pub(super) fn with_opened<T>(
    targets: &[Target],
    access: Access,
    work: impl FnOnce(&[Opened<'_>]) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    fn opened<'a>(targets: &'a [Target], volume: Option<&'a Volume>) -> anyhow::Result<Vec<Opened<'a>>> {
        targets.iter().map(|target| Opened::of(target, volume)).collect()
    }
    let Some(Location::Free(first)) = targets.first().map(|target| &target.location) else {
        return work(&opened(targets, None)?);
    };
    if is_file_on_mount(&first.volume) {
        anyhow::bail!("{} is not a directory; name the one that it is in", first.volume.display());
    }
    on_volume(&first.volume, access, |volume| work(&opened(targets, Some(volume))?))
}

/// Finds all operands. They must be on one volume, so that the command does all of its work or nothing.
pub(super) fn find_all(operands: &[OsString]) -> anyhow::Result<Vec<Target>> {
    let targets = operands.iter().map(|operand| Target::find(operand)).collect::<anyhow::Result<Vec<_>>>()?;
    for pair in targets.windows(2) {
        let same = match (&pair[0].location, &pair[1].location) {
            (Location::Free(a), Location::Free(b)) => a.volume == b.volume,
            (Location::Mounted { dir: a, .. }, Location::Mounted { dir: b, .. }) => device(a)? == device(b)?,
            _ => false,
        };
        if !same {
            return Err(status::usage(format!(
                "{} and {} are on different volumes; run the command once for each",
                pair[0].name(),
                pair[1].name()
            )));
        }
    }
    Ok(targets)
}

fn device(dir: &File) -> anyhow::Result<u64> {
    Ok(dir.metadata().context("cannot look at an open directory")?.dev())
}

/// Holds a snapshot, or releases it.
pub fn hold(args: &args::Hold, held: bool) -> Outcome {
    let verb = if held { "hold" } else { "release" };
    if !held && args.message.is_some() {
        return Err(status::usage("what is released has no reason; -m is for `yore hold`"));
    }
    let targets = find_all(std::slice::from_ref(&args.path))?;
    // Opening a volume for writing changes it, so what can be known to fail fails before.
    let clock = Clock::new(false);
    let row = with_opened(&targets, Access::Read, |opened| match args.number {
        Some(number) => opened[0].numbered(verb, number),
        None => opened[0].snapshot(verb, &clock),
    })?;
    with_opened(&targets, Access::Write, |opened| {
        let reason = held.then(|| args.message.clone().unwrap_or_default());
        let saying = Saying { hold: Some(reason), ..Saying::default() };
        opened[0]
            .describe(&row.event, saying)
            .with_context(|| format!("cannot {verb} {}", opened[0].name()))?;
        if args.json {
            opened[0].print(verb, row.event.number)
        } else {
            Ok(())
        }
    })?;
    Ok(status::OK)
}

/// A snapshot, and whether it is kept.
struct Judged {
    row: ListedEvent,
    /// Why it is kept. If there are no reasons, it is forgotten.
    reasons: Vec<Reason>,
}

/// How options choose what is forgotten.
struct Choice {
    rules: RetentionRules,
    /// Whether the rules also decide about snapshots that have a name.
    names: bool,
    before: Option<When>,
    after: Option<When>,
    below: bool,
}

impl Choice {
    fn of(args: &args::Forget) -> anyhow::Result<Option<Choice>> {
        let keep = &args.retention;
        let counts = [keep.last, keep.hourly, keep.daily, keep.weekly, keep.monthly, keep.yearly];
        if counts == [None; 6] && keep.within.is_none() && args.before.is_none() {
            let alone = [("--below", args.below), ("--names", args.names), ("--after", args.after.is_some())];
            return match alone.into_iter().find(|(_, given)| *given) {
                Some((option, _)) => Err(status::usage(format!(
                    "{option} says of which snapshots, but not which of them are kept or forgotten; add {CHOICES}"
                ))),
                None => Ok(None),
            };
        }
        let [last, hourly, daily, weekly, monthly, yearly] = counts.map(|count| count.unwrap_or(0));
        let within = keep.within.clone().unwrap_or_default();
        if keep.within.is_some() {
            parse_ago(&within, now(), &TimeZone::system())
                .map_err(|error| status::usage(format!("--keep-within: {error}")))?;
        }
        let time = |option: &str, text: &Option<String>| {
            let read = |text: &String| parse_begin(text, now(), &TimeZone::system());
            let read = text.as_ref().map(read).transpose();
            read.map_err(|error| status::usage(format!("{option}: {error}")))
        };
        Ok(Some(Choice {
            rules: RetentionRules { last, hourly, daily, weekly, monthly, yearly, within },
            names: args.names,
            before: time("--before", &args.before)?,
            after: time("--after", &args.after)?,
            below: args.below,
        }))
    }

    /// Decides which snapshots of a directory are kept, of those that the options concern.
    fn judge(&self, opened: &Opened<'_>) -> anyhow::Result<Vec<Judged>> {
        let name = opened.name();
        if opened.seen()?.is_some() {
            return Err(status::usage(format!(
                "{name} is of one snapshot; options choose among those of a directory or file as it is now, so name that without a time"
            )));
        }
        if self.below && opened.asked.is_file() {
            return Err(status::usage(format!("{name} is not a directory; --below is of directories")));
        }
        let rows = opened.found(opened.asked.list())?;
        // The first snapshot from a time on, or the one that has a name.
        let find = |option: &str, when: &Option<When>| match when {
            None => Ok(None),
            Some(When::At(time)) => Ok(rows.iter().find(|row| row.event.row.time >= *time)),
            Some(When::Last(count)) => {
                let counted =
                    rows.iter().rev().filter(|row| row.covers && row.event.row.kind != EventKind::Undo);
                counted.into_iter().nth(count.get() as usize - 1).map(Some).with_context(|| {
                    format!("{option}: {name} has not so many snapshots; `yore snapshots` lists those that there are")
                })
            }
            Some(When::Named(wanted)) => {
                // Its own, or the nearest above, before one of a directory below.
                let named = rows.iter().filter(|row| row.event.row.name == *wanted);
                let named = named.max_by_key(|row| {
                    (row.own, row.covers, row.path.as_ref().map(|path| path.as_os_str().len()))
                });
                named.map(Some).with_context(|| {
                    let names = rows.iter().map(|row| row.event.row.name.as_str()).filter(|name| !name.is_empty());
                    let near = nearest(wanted, names).map(|near| format!("; did you mean `{near}`?"));
                    format!(
                        "{option}: {name} has no snapshot named `{wanted}`{} `yore snapshots` lists those that there are",
                        near.as_deref().unwrap_or(";")
                    )
                })
            }
        };
        let end = find("--before", &self.before)?.map(|row| row.event.number);
        let begin = find("--after", &self.after)?.map(|row| row.event.number);
        let is_behind = |number: EventNo| match (&self.after, begin) {
            (None, _) => true,
            (Some(When::At(_)), begin) => begin.is_some_and(|begin| number >= begin),
            (Some(When::Last(_) | When::Named(_)), begin) => begin.is_some_and(|begin| number > begin),
        };
        let mut of_each: BTreeMap<_, Vec<ListedEvent>> = BTreeMap::new();
        for row in rows {
            // A listed snapshot that does not cover this directory is of one below, or of one that is gone.
            let wanted = row.own || (self.below && !row.covers);
            if wanted && is_behind(row.event.number) && end.is_none_or(|end| row.event.number < end) {
                let of = (row.event.row.root, row.event.row.root_incarnation);
                of_each.entry(of).or_default().push(row);
            }
        }
        let user = opened.ordinary_user();
        let mut judged = Vec::new();
        for rows in of_each.into_values() {
            let taken: Vec<Taken<'_>> = rows.iter().map(|row| Taken::of(&row.event, row.pinned)).collect();
            let found = reasons(&self.rules, self.names, &taken, &TimeZone::system())?;
            judged.extend(rows.into_iter().zip(found).map(|(row, mut reasons)| {
                let is_others = row.event.row.more.by.is_some_and(|by| user.is_some_and(|user| user != by));
                reasons.extend(is_others.then_some(Reason::Others));
                Judged { row, reasons }
            }));
        }
        Ok(judged)
    }
}

/// Refuses a snapshot that must stay. `name` is how the user named it.
fn check_free(row: ListedEvent, name: &str, opened: &Opened<'_>) -> anyhow::Result<Judged> {
    anyhow::ensure!(
        !row.event.row.held,
        "cannot forget {name}: it is held; release it first (yore release {name})"
    );
    anyhow::ensure!(!row.mounted, "cannot forget {name}: {}", mounted_on(&row, &opened.target.location));
    Ok(Judged { row, reasons: Vec::new() })
}

/// How a command names a snapshot of a place's volume: by the directory or file that the event is of, as of
/// its name or time. `None` if that directory or file is gone.
pub(super) fn named(location: &Location, row: &ListedEvent, clock: &Clock) -> Option<String> {
    let path = row.path.as_deref()?;
    let root = match location {
        Location::Mounted { path, .. } => live::mount_at(path)?.directory.display().to_string(),
        Location::Free(on) => format!("{}:", on.volume.display()),
    };
    let path = if path == Path::new("/") { "/.".into() } else { path.display().to_string() };
    // A name means this snapshot whatever is taken later; a time might not.
    let time = match row.event.row.name.as_str() {
        "" => clock.name(row.event.row.time, row.next),
        name => name.to_string(),
    };
    Some(format!("{root}{path}@{time}"))
}

/// Where a snapshot is mounted by itself, and what to do.
pub(super) fn mounted_on(row: &ListedEvent, location: &Location) -> String {
    let directory = match location {
        Location::Mounted { path, .. } => live::mount_at(path)
            .and_then(|mount| live::daemon_at(&mount.directory))
            .and_then(|daemon| daemon.snapshots.into_iter().find(|of| of.number == row.event.number.0)),
        Location::Free(_) => None,
    };
    match directory {
        Some(of) => format!(
            "it is mounted on {directory}; unmount it first (yore umount {directory})",
            directory = of.directory.display()
        ),
        None => "it is mounted; unmount it first".to_string(),
    }
}

/// Forgets snapshots.
pub fn forget(args: &args::Forget) -> Outcome {
    let choice = Choice::of(args)?;
    if !args.numbers.is_empty() && (choice.is_some() || args.paths.len() > 1) {
        return Err(status::usage(
            "--number is a snapshot in the list of one directory: give that, and no options that choose",
        ));
    }
    let has_time = |operand: &OsString| operand.as_bytes().contains(&b'@');
    let named = choice.is_none() && args.numbers.is_empty();
    if let Some(operand) = args.paths.iter().find(|operand| named && !has_time(operand)) {
        return Err(no_time("forget", &operand.to_string_lossy()));
    }
    let targets = find_all(&args.paths)?;
    let clock = Clock::new(args.utc);
    // Opening a volume for writing changes it, so what can be known to fail fails before.
    let judged = with_opened(&targets, Access::Read, |opened| judge(opened, args, choice.as_ref(), &clock))?;
    if args.dry_run {
        print(args, &judged.iter().collect::<Vec<_>>(), &clock)?;
        return Ok(status::OK);
    }
    let forgotten: Vec<&Judged> = judged.iter().filter(|judged| judged.reasons.is_empty()).collect();
    let progress = Progress::without_end(args.progress)?;
    with_opened(&targets, Access::Write, |opened| {
        let numbers: Vec<EventNo> = forgotten.iter().map(|judged| judged.row.event.number).collect();
        if let Some(first) = opened.first().filter(|_| !numbers.is_empty()) {
            let names = opened.iter().map(Opened::name).collect::<Vec<_>>().join(", ");
            first.forget(&numbers).with_context(|| format!("cannot forget snapshots of {names}"))?;
        }
        let printed = print(args, &forgotten, &clock);
        let freed = match opened.first().and_then(|first| first.volume) {
            Some(volume) => Some(give_back(volume, progress)?),
            None => None,
        };
        printed?;
        if !forgotten.is_empty() && !args.json {
            say_freed(freed)?;
        }
        if let Some(Location::Mounted { path, .. }) = opened.first().map(|first| &first.target.location) {
            // A path with a time leads nowhere any more, so the command asks the mount point.
            let there = path.ancestors().find(|above| above.is_dir()).and_then(live::mount_at);
            if let Some(root) = there.and_then(|mount| File::open(mount.directory).ok()) {
                while_given_back(&root, args.progress)?;
            }
        }
        Ok(())
    })?;
    Ok(status::OK)
}

fn judge(
    opened: &[Opened<'_>],
    args: &args::Forget,
    choice: Option<&Choice>,
    clock: &Clock,
) -> anyhow::Result<Vec<Judged>> {
    let mut judged = Vec::new();
    for opened in opened {
        match choice {
            Some(choice) => judged.extend(choice.judge(opened)?),
            None if args.numbers.is_empty() => {
                judged.push(check_free(opened.snapshot("forget", clock)?, &opened.name(), opened)?);
            }
            None => {
                for number in &args.numbers {
                    let name = format!("{} --number {number}", opened.name());
                    judged.push(check_free(opened.numbered("forget", *number)?, &name, opened)?);
                }
            }
        }
    }
    judged.sort_by_key(|judged| judged.row.event.number);
    let mut met = BTreeSet::new();
    judged.retain(|judged| met.insert(judged.row.event.number));
    Ok(judged)
}

fn print(args: &args::Forget, judged: &[&Judged], clock: &Clock) -> anyhow::Result<()> {
    let listing = args::Listing { json: args.json, null: false, utc: args.utc };
    let lines: Vec<Line<'_>> = judged
        .iter()
        .map(|judged| Line {
            row: &judged.row,
            kept: args.dry_run.then(|| judged.reasons.iter().map(|reason| reason.name()).collect()),
        })
        .collect();
    print_rows(listing, clock, &lines)
}

fn bytes(blocks: u64) -> u64 {
    blocks * yore_format::BLOCK_SIZE as u64
}

/// Gives back the space that forgotten snapshots held. Returns how many bytes.
///
/// # Errors
/// Damage and device errors; a signal that stops the command.
pub(super) fn give_back(volume: &Volume, mut progress: Progress) -> anyhow::Result<u64> {
    let stop = stop_wanted()?;
    let (mut before, mut stopped) = (Forgetting::default(), false);
    progress.now("giving back space");
    let done = volume.view().finish_forgetting(&mut |so_far| {
        progress.add(bytes(so_far.blocks.saturating_sub(before.blocks)));
        before = *so_far;
        stopped = stop.load(Ordering::Relaxed);
        if stopped {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    progress.finish();
    let done = done.context("it is forgotten, but not all of its space could be given back")?;
    let freed = bytes(done.blocks);
    if stopped && done.dying + done.expunging > 0 {
        let message = format!(
            "stopped: it is forgotten, and {} freed; the rest is given back when the volume is mounted, or by the \
             next `yore forget`",
            human(freed)
        );
        return Err(Ended { message, status: status::FAILED }.into());
    }
    Ok(freed)
}

pub(super) fn say_freed(freed: Option<u64>) -> anyhow::Result<()> {
    let mut out = Out::new();
    match freed {
        Some(bytes) => out.line(format_args!("{} freed", human(bytes)))?,
        None => out.line("their space is given back in the background")?,
    }
    out.done()
}
