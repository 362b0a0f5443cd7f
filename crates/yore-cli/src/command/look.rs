//! `diff` and `status`; `log`, `deleted` and `du` are below. Of a mount by asking its daemon, of a volume
//! that is not mounted by opening it.
//!
//! **What is compared.** Directories are compared as the same inode at two times: the file system knows what
//! changed in between, and reads only what took the place of something else. What is compared must therefore
//! be one directory, under whatever names. Files are compared by reading them, since programs that save a
//! file often put another one in its place.

mod files;
pub mod log;
mod patch;
pub mod usage;

use super::files::on_volume;
use super::forget::find;
use super::snapshot::{is_file_on_mount, library_error, Place};
use crate::args;
use crate::opened;
use crate::output::{bytes_of, human, json_name, json_time, kind_name, printable, Clock, List, Out};
use crate::progress::{while_looking, Progress};
use crate::side::{self, Side};
use crate::status::{self, Outcome};
use crate::volume::{Access, OnVolume};
use anyhow::Context as _;
use patch::Patch;
use rustix::io::Errno;
use serde_json::{json, Value};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use yore_control::{Client as _, Mounted};
use yore_fs::{Change, Difference, EventNo, Facts, FileKind, Volume, What};
use yore_fuse::control;

/// What is done while one waits for differences.
const COMPARING: &str = "comparing";

/// Set in the numbers that a mount shows for files of the past.
const PAST: u64 = 1 << 63;

/// What a mount answered to a question about history.
pub(super) fn asked(error: io::Error) -> anyhow::Error {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::PERM) => anyhow::anyhow!(
            "what has changed in a directory is told to its owner, to root, and to the user who mounted the volume; what you may \
             read you can compare with `diff -r`"
        ),
        Some(Errno::STALE) => {
            anyhow::anyhow!("somebody forgot the snapshot meanwhile; look again with `yore snapshots`")
        }
        Some(Errno::INVAL) => anyhow::anyhow!(
            "the daemon of this mount is of another version, which does not know that question; unmount the volume and mount it again"
        ),
        Some(Errno::OVERFLOW) => anyhow::anyhow!(
            "that is more than a mount tells at once (64 MiB); ask for a directory below, or unmount the volume and ask that"
        ),
        _ => library_error(error),
    }
}

/// A path without the times in it. `is_past` says whether what a path leads to is of the past.
pub(super) fn without_times(path: &Path, is_past: &dyn Fn(&Path) -> bool) -> PathBuf {
    let (mut given, mut plain) = (PathBuf::new(), PathBuf::new());
    for component in path.components() {
        let name = component.as_os_str();
        given.push(name);
        match yore_fs::split_time(name.as_bytes()) {
            Some((of, _)) if is_past(&given) => plain.push(OsStr::from_bytes(of)),
            _ => plain.push(name),
        }
    }
    plain
}

pub(super) fn is_past_on_mount(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.ino() & PAST != 0)
}

pub(super) fn is_past_on(volume: &Volume, path: &Path) -> bool {
    volume.symlink_node(path).is_ok_and(|node| node.event().is_some())
}

fn no_time(name: &str) -> anyhow::Error {
    status::usage(format!(
        "{name}: since when? Name a time, as {name}@2026-11-20_14.05 or {name}@yesterday, or two (`yore snapshots` lists them; \
         `yore status` compares with the last)"
    ))
}

fn not_the_same(a: &str, b: &str) -> anyhow::Error {
    anyhow::anyhow!("{a} and {b} are not the same directory at two times; compare what is in them with diff(1): diff -r {a} {b}")
}

pub(super) fn not_both(name: &str) -> anyhow::Error {
    anyhow::anyhow!("cannot compare {name}: it was not there at both times, or is gone; `yore snapshots` lists when it can be seen")
}

/// Which directory a place is, and as of which event it is seen.
pub(super) type Identity = (yore_fs::InodeNo, yore_fs::Incarnation, Option<EventNo>);

/// A directory that is compared.
struct Compared<'a> {
    place: &'a Place,
    volume: Option<&'a Volume>,
}

impl Compared<'_> {
    fn name(&self) -> String {
        self.place.name()
    }

    fn identity_of(&self, path: &Path) -> anyhow::Result<Identity> {
        if let Some(volume) = self.volume {
            let node = volume.node(path)?;
            anyhow::ensure!(
                node.attr().kind == FileKind::Directory,
                "{} is not a directory; directories and files cannot be compared",
                path.display()
            );
            return Ok((node.inode(), yore_fs::Incarnation(node.attr().incarnation), node.event()));
        }
        let dir =
            opened::file_or_directory(path).with_context(|| format!("cannot open {}", path.display()))?;
        let found = control::look::identity(&dir).map_err(asked)?;
        Ok((found.inode, found.incarnation, found.event))
    }

    /// How what is in it is read.
    fn side(&self) -> Box<dyn Side> {
        match (self.volume, self.place) {
            (Some(volume), Place::Free(on)) => {
                Box::new(side::OnVolume { volume: volume.clone(), name: on.volume.clone() })
            }
            _ => Box::new(side::Host),
        }
    }

    /// Its path on its side.
    fn path(&self) -> &Path {
        match self.place {
            Place::Mounted { path, .. } => path,
            Place::Free(on) => &on.path,
        }
    }

    fn identity(&self) -> anyhow::Result<Identity> {
        self.identity_of(self.path())
    }

    /// Where it is now, if that is what its path says without times.
    fn present(&self, of: &Identity) -> Option<PathBuf> {
        let path = match self.volume {
            Some(volume) => without_times(self.path(), &|path| is_past_on(volume, path)),
            None => without_times(self.path(), &is_past_on_mount),
        };
        let found = self.identity_of(&path).ok()?;
        (found == (of.0, of.1, None)).then_some(path)
    }

    fn differences(
        &self,
        of: &Identity,
        to: Option<EventNo>,
        wanted: args::Progress,
    ) -> anyhow::Result<Vec<Difference>> {
        match (self.place, self.volume) {
            (Place::Mounted { dir, .. }, _) => {
                let mut progress = Progress::of_looking(wanted)?;
                progress.now(COMPARING);
                let found =
                    control::look::compare(dir, of.2, to, &mut |done, total| progress.set(done, total));
                progress.finish();
                found.map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
                    Some(Errno::NOENT) => not_both(&self.name()),
                    _ => asked(error).context(format!("cannot compare {}", self.name())),
                })
            }
            (Place::Free(_), volume) => {
                let volume = volume.context("the volume is not open")?;
                while_looking(wanted, COMPARING, |progress| {
                    let mut all = Vec::new();
                    let done = volume.view().compare(of.0, of.2, to, progress, &mut |found| {
                        all.push(found);
                        ControlFlow::Continue(())
                    });
                    match done {
                        Ok(()) => Ok(all),
                        Err(yore_fs::Error::NotFound) => Err(not_both(&self.name())),
                        Err(error) => Err(error.on_path("cannot compare", bytes_of(self.path())).into()),
                    }
                })
            }
        }
    }
}

/// What an operand of `diff` names.
enum Operand {
    Place(Place),
    /// On a mount.
    File(PathBuf),
}

impl Operand {
    fn find(operand: &OsStr) -> anyhow::Result<Operand> {
        let path = Path::new(operand);
        match is_file_on_mount(path) {
            true => Ok(Operand::File(path.into())),
            false => find(operand).map(Operand::Place),
        }
    }

    fn name(&self) -> String {
        match self {
            Operand::Place(place) => place.name(),
            Operand::File(path) => path.display().to_string(),
        }
    }
}

/// Prints what differs between two times.
pub fn diff(args: &args::Diff) -> Outcome {
    let first = Operand::find(&args.first)?;
    let second = args.second.as_deref().map(Operand::find).transpose()?;
    match (&first, &second) {
        (Operand::File(first), None) => {
            let present = without_times(first, &is_past_on_mount);
            if present == *first {
                return Err(no_time(&first.display().to_string()));
            }
            two_files(args, &side::Host, first, &present)
        }
        (Operand::File(first), Some(Operand::File(second))) => two_files(args, &side::Host, first, second),
        (Operand::Place(a @ Place::Mounted { .. }), None) => {
            directories(args, &Compared { place: a, volume: None }, None)
        }
        (Operand::Place(a @ Place::Mounted { .. }), Some(Operand::Place(b @ Place::Mounted { .. }))) => {
            directories(
                args,
                &Compared { place: a, volume: None },
                Some(&Compared { place: b, volume: None }),
            )
        }
        (Operand::Place(a @ Place::Free(on)), None) => {
            on_volume(&on.volume, Access::Read, |volume| on_free(args, volume, (a, on), None))
        }
        (Operand::Place(a @ Place::Free(on)), Some(Operand::Place(b @ Place::Free(other))))
            if on.volume == other.volume =>
        {
            on_volume(&on.volume, Access::Read, |volume| on_free(args, volume, (a, on), Some((b, other))))
        }
        (a, Some(b)) => Err(status::usage(format!(
            "{} and {} are on different volumes, or a file and a directory; compare them with diff(1)",
            a.name(),
            b.name()
        ))),
    }
}

fn on_free(
    args: &args::Diff,
    volume: &Volume,
    (a, on): (&Place, &OnVolume),
    b: Option<(&Place, &OnVolume)>,
) -> Outcome {
    if volume.node(&on.path)?.attr().kind == FileKind::Directory {
        let second = b.map(|(place, _)| Compared { place, volume: Some(volume) });
        return directories(args, &Compared { place: a, volume: Some(volume) }, second.as_ref());
    }
    let present = || without_times(&on.path, &|path| is_past_on(volume, path));
    let other = b.map_or_else(present, |(_, other)| other.path.clone());
    if b.is_none() && other == on.path {
        return Err(no_time(&a.name()));
    }
    two_files(args, &side::OnVolume { volume: volume.clone(), name: on.volume.clone() }, &on.path, &other)
}

fn directories(args: &args::Diff, a: &Compared<'_>, b: Option<&Compared<'_>>) -> Outcome {
    let of = a.identity()?;
    let (to, to_path) = match b {
        Some(b) => {
            let other = b.identity()?;
            if (other.0, other.1) != (of.0, of.1) {
                return Err(not_the_same(&a.name(), &b.name()));
            }
            (other.2, Some(b.path().to_path_buf()))
        }
        None if of.2.is_none() => return Err(no_time(&a.name())),
        None => (None, a.present(&of)),
    };
    let found = a.differences(&of, to, args.progress)?;
    let side = a.side();
    print(args, &found, &*side, &|patch, difference| {
        let to = to_path.as_deref().with_context(|| {
            format!(
                "{}: its content now is not under that name; give the new one as the second operand",
                a.name()
            )
        })?;
        patch.difference(difference, a.path(), to)
    })
}

/// Adds a difference to a patch.
type AddTo<'a> = dyn Fn(&mut Patch<'_>, &Difference) -> anyhow::Result<()> + 'a;

/// Prints differences as the options say; the exit status.
fn print(args: &args::Diff, found: &[Difference], side: &dyn Side, add: &AddTo<'_>) -> Outcome {
    if args.stat {
        stat(args.listing, found)?;
    } else if args.patch {
        let mut patch = Patch::new(side);
        for difference in found {
            add(&mut patch, difference)?;
        }
        patch.done()?;
    } else {
        let mut list = List::new(args.listing);
        for difference in found {
            line(&mut list, difference)?;
        }
        list.done()?;
    }
    Ok(if args.exit_code && !found.is_empty() { status::FINDINGS } else { status::OK })
}

/// Prints in what two files differ.
fn two_files(args: &args::Diff, side: &dyn Side, first: &Path, second: &Path) -> Outcome {
    let found = files::difference(side, first, second)?;
    print(args, found.as_slice(), side, &|patch, difference| {
        let size = |facts: Option<yore_fs::Facts>| facts.map_or(0, |facts| facts.size);
        patch.pair(
            difference.what,
            Some((bytes_of(first), first.to_path_buf(), size(difference.before))),
            Some((bytes_of(second), second.to_path_buf(), size(difference.after))),
        )
    })
}

/// The letters of a difference.
fn letters(difference: &Difference) -> &'static str {
    match (difference.change, difference.what.is_empty()) {
        (Change::Added, _) => "+",
        (Change::Removed, _) => "-",
        (Change::Modified, _) => "M",
        (Change::Renamed, true) => "R",
        (Change::Renamed, false) => "RM",
    }
}

/// What of a file changed, in words.
fn words(what: What) -> Vec<&'static str> {
    let mut words = Vec::new();
    for (flag, word) in [
        (What::CONTENT, "content"),
        (What::METADATA, "metadata"),
        (What::XATTRS, "attributes"),
        (What::TIME, "time"),
        (What::LINKS, "links"),
    ] {
        if what.contains(flag) {
            words.push(word);
        }
    }
    words
}

/// A path below the directory that was asked: `.` for itself.
fn shown(path: &[u8]) -> &[u8] {
    match path {
        b"" => b".",
        path => path,
    }
}

pub(super) fn line(list: &mut List, difference: &Difference) -> anyhow::Result<()> {
    let old = difference.old_path.as_deref().map(|old| format!("{} -> ", printable(old))).unwrap_or_default();
    let before = format!("{:<3}{old}", letters(difference));
    let slash = if difference.kind == FileKind::Directory && !difference.path.is_empty() { "/" } else { "" };
    // Where the content changed, times did, and nobody asks for them.
    let told = match difference.what.contains(What::CONTENT) {
        true => difference.what - What::CONTENT - What::TIME - What::LINKS,
        false if (difference.what - What::TIME).is_empty() => difference.what,
        false => difference.what - What::TIME - What::LINKS,
    };
    let after = match words(told).join(", ") {
        told if told.is_empty() => slash.to_string(),
        told => format!("{slash}  ({told})"),
    };
    list.entry(&before, shown(&difference.path), &after, || json_difference(difference))
}

fn json_facts(facts: &Facts) -> Value {
    json!({
        "mode": format!("{:04o}", facts.mode & 0o7777),
        "uid": facts.uid,
        "gid": facts.gid,
        "links": facts.links,
        "size": facts.size,
        "modified": json_time(facts.mtime),
    })
}

fn json_difference(difference: &Difference) -> Value {
    let mut value = json!({
        "change": match difference.change {
            Change::Added => "added",
            Change::Removed => "removed",
            Change::Modified => "modified",
            Change::Renamed => "renamed",
        },
        "type": kind_name(difference.kind),
        "inode": difference.inode.0,
        "incarnation": difference.incarnation.0,
        "what": words(difference.what),
        "before": difference.before.as_ref().map(json_facts),
        "after": difference.after.as_ref().map(json_facts),
    });
    json_name(&mut value, "path", shown(&difference.path));
    match &difference.old_path {
        Some(old) => json_name(&mut value, "old_path", old),
        None => value["old_path"] = Value::Null,
    }
    value
}

/// How many of each kind, and the bytes of files that came and went.
fn stat(listing: args::Listing, found: &[Difference]) -> anyhow::Result<()> {
    let count = |change: Change| found.iter().filter(|found| found.change == change).count();
    let size = |facts: &Option<Facts>, kind: FileKind| match (facts, kind) {
        (Some(facts), FileKind::Regular) => facts.size,
        _ => 0,
    };
    let (mut more, mut less) = (0u64, 0u64);
    for one in found {
        let (before, after) = (size(&one.before, one.kind), size(&one.after, one.kind));
        more = more.saturating_add(after.saturating_sub(before));
        less = less.saturating_add(before.saturating_sub(after));
    }
    let [added, removed, modified, renamed] =
        [Change::Added, Change::Removed, Change::Modified, Change::Renamed].map(count);
    let mut out = Out::new();
    match listing.json {
        true => out.line(serde_json::to_string_pretty(&json!({
            "added": added, "removed": removed, "modified": modified, "renamed": renamed,
            "bytes_more": more, "bytes_less": less,
        }))?)?,
        false => out.line(format_args!(
            "{added} added, {removed} removed, {modified} modified, {renamed} renamed; {} more, {} less",
            human(more),
            human(less)
        ))?,
    }
    out.done()
}

/// Prints what changed since the last snapshot.
pub fn status(args: &args::Status) -> Outcome {
    let place = find(&args.path)?;
    match &place {
        Place::Mounted { dir, .. } => {
            let rows =
                Mounted(dir).all_snapshots().with_context(|| format!("cannot compare {}", place.name()))?;
            let last = rows.iter().rfind(|row| row.covers).map(|row| (row.event.clone(), row.next));
            since_last(args, &Compared { place: &place, volume: None }, last)
        }
        Place::Free(on) => on_volume(&on.volume, Access::Read, |volume| {
            let node = volume.node(&on.path)?;
            let view = volume.view();
            let last = match view.last_event(node.inode()) {
                Ok(number) => Some(view.kept_event(number)?),
                Err(yore_fs::Error::NotFound) => None,
                Err(error) => return Err(error.into()),
            };
            let last = match last {
                Some(event) => {
                    let (page, _) = view.list_events(node.inode(), event.number)?;
                    page.into_iter().next().map(|row| (row.event, row.next))
                }
                None => None,
            };
            since_last(args, &Compared { place: &place, volume: Some(volume) }, last)
        }),
    }
}

fn since_last(
    args: &args::Status,
    compared: &Compared<'_>,
    last: Option<(yore_fs::Event, Option<yore_fs::Timestamp>)>,
) -> Outcome {
    let name = compared.name();
    let (inode, incarnation, event) = compared.identity()?;
    if event.is_some() {
        return Err(status::usage(format!(
            "{name} is of the past, which does not change; for what changed since then: yore diff {name}"
        )));
    }
    let Some((event, next)) = last else {
        anyhow::bail!("no snapshot has seen {name}; take one with `yore snapshot {name}`")
    };
    let found = compared.differences(&(inode, incarnation, Some(event.number)), None, args.progress)?;
    let time = Clock::new(args.listing.utc).name(event.row.time, next);
    let mut list = List::new(args.listing);
    let named = match event.row.name.as_str() {
        "" => String::new(),
        name => format!(" ({name})"),
    };
    list.heading(format!("since {time}{named}").as_bytes())?;
    for difference in &found {
        line(&mut list, difference)?;
    }
    list.done()?;
    Ok(if args.exit_code && !found.is_empty() { status::FINDINGS } else { status::OK })
}
