//! `expunge`: gives up all history of files.
//!
//! **Nothing happens before all is known.** The command first looks at each operand: what it is, how much
//! would go, whether the caller may. Then it asks the user, unless `--yes` is given. Then it gives up one
//! operand after the other, each as a whole. A typing error must not destroy what nothing brings back.
//!
//! **Only what was found is given up.** A name can mean another file when the user has read the question: an
//! editor has saved it, or `@10min` is later. So the request says which files were found, and it is refused
//! if the name covers others by then.

use super::forget::{give_back, say_freed};
use super::operand::{mounted_on, named};
use super::snapshot::Location;
use crate::args;
use crate::live;
use crate::opened::directory_of;
use crate::output::{human, json_name, kind_name, Clock, List};
use crate::progress::{until_stopped, while_given_back, Progress};
use crate::status::{self, Outcome};
use crate::timed_path::root_of;
use crate::volume::{Access, OnVolume};
use anyhow::Context as _;
use serde_json::json;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead as _, IsTerminal as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use yore_control::{Client, Known, KnownFile, Named, Shown};
use yore_fs::{Error, EventNo, ListedEvent};

/// How often the command finds files anew because somebody else has changed what the name covers.
const TRIES: usize = 5;

/// What was found of an operand.
type Found = (Known, Vec<KnownFile>);

/// An operand: the directory that has the name, and the name, which may have a time.
struct Operand {
    location: Location,
    name: OsString,
    shown: String,
}

impl Operand {
    fn find(operand: &OsStr) -> anyhow::Result<Operand> {
        let shown = operand.to_string_lossy().into_owned();
        let on = OnVolume::split_unless_there(operand);
        let path = on.as_ref().map_or(Path::new(operand), |on| &on.path);
        let is_root = on.is_none() && path.canonicalize().is_ok_and(|path| live::is_mounted(&path));
        let Some(name) = path.file_name().filter(|_| !is_root) else {
            return Err(status::usage(format!(
                "{shown}: which file? The history of a whole volume is its snapshots: `yore forget` gives those up"
            )));
        };
        let (name, parent) = (name.to_os_string(), directory_of(path));
        let location = match &on {
            Some(on) => Location::Free(OnVolume { path: parent.into(), ..on.clone() }),
            None => Location::of_mount(parent)?,
        };
        Ok(Operand { location, name, shown })
    }

    fn named(&self, args: &args::Expunge) -> Named {
        Named { name: self.name.as_bytes().to_vec(), below: args.recursive, others: args.all_under_name }
    }

    /// The history of the operand.
    fn find_files(&self, args: &args::Expunge) -> anyhow::Result<Found> {
        let found = self.location.ask(Access::Read, |client| {
            Ok(until_stopped(client, |client| client.history_of(&self.named(args)))??)
        });
        found.map_err(|error| self.explain(error))
    }

    /// Gives up the history that was found. Returns how much space that freed, if that is known by then.
    fn expunge(&self, args: &args::Expunge, found: &mut Found) -> anyhow::Result<Option<u64>> {
        let progress = Progress::without_end(args.progress)?;
        let done = self.location.ask_with(Access::Write, |client, volume| {
            self.give_up(client, args, found)?;
            volume.map(|volume| give_back(volume, progress)).transpose()
        });
        done.map_err(|error| self.explain(error))
    }

    /// Gives up the history that was found, or what is left of it: an operand before this one, or forgetting
    /// in the background, may have taken a part. If the name covers other files by now, this fails. But with
    /// `--yes` the user has agreed to none in particular: then it takes those that the name covers now, and
    /// they count as found.
    fn give_up(&self, client: &dyn Client, args: &args::Expunge, found: &mut Found) -> anyhow::Result<()> {
        let named = self.named(args);
        let mut shown = Shown::of(&found.1);
        for _ in 0..TRIES {
            if client.expunge_shown(&named, shown)?.is_some() {
                return Ok(());
            }
            let now = until_stopped(client, |client| client.history_of(&named))??;
            shown = Shown::of(&now.1);
            if !are_among(&now.1, &found.1) {
                if !args.yes {
                    break;
                }
                *found = now;
            }
        }
        anyhow::bail!(
            "it means other files than a moment ago; nothing of it was expunged: look again, and repeat the command"
        )
    }

    /// Erases what is left on its volume of everything that is gone. Returns how many free blocks were left
    /// out.
    fn shred(&self) -> anyhow::Result<u64> {
        let done =
            self.location.ask(Access::Write, |client| Ok(until_stopped(client, |client| client.shred())??));
        done.with_context(|| {
            format!(
                "{}: its history is given up, but not erased; --shred does that also later, of any file",
                self.shown
            )
        })
    }

    /// A snapshot of the volume, or a version of the file, and its name, as far as they can be found.
    fn name_of(&self, event: u64) -> (Option<ListedEvent>, Option<String>) {
        let (from, name) = (EventNo(event), self.name.as_bytes());
        let root = Location::find(self.location.root().as_os_str());
        let of_root = root.and_then(|root| root.ask(Access::Read, |client| Ok(client.snapshots(from)?)));
        let of_file = self.location.ask(Access::Read, |client| Ok(client.versions(name, from)?));
        let mut rows = [of_root, of_file].into_iter().flatten().flat_map(|page| page.rows);
        let row = rows.find(|row| row.event.number == from);
        let named = row.as_ref().and_then(|row| named(&self.location, row, &Clock::new(false)));
        (row, named)
    }

    /// Adds to an error what to do.
    fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        let shown = &self.shown;
        match root_of(&error) {
            Some(Error::NotFound | Error::Stale) => status::unreadable(shown, || {
                match yore_fs::split_time(self.name.as_bytes()).is_some() {
                    true => anyhow::anyhow!(
                        "cannot expunge {shown}: no such file at that time; `yore log` tells when one can be seen, and `yore \
                         deleted` what is gone"
                    ),
                    false => anyhow::anyhow!(
                        "cannot expunge {shown}: no such file; one that is gone is named with a time, as NAME@yesterday \
                         (`yore deleted` lists what is gone)"
                    ),
                }
            }),
            Some(Error::IsADirectory) => status::usage(format!(
                "cannot expunge {shown}: it is a directory; with -r it goes with the history of all that was ever in it \
                 (--dry-run lists what that is)"
            )),
            Some(Error::Held { event } | Error::HeldUntil { event, .. }) => match self.name_of(*event) {
                (_, Some(named)) => anyhow::anyhow!(
                    "cannot expunge {shown}: the snapshot {named} is held and has seen it; release it first (yore release {named})"
                ),
                (_, None) => anyhow::anyhow!(
                    "cannot expunge {shown}: snapshot {event}, of what is gone, is held and has seen it; release it first (yore \
                     release --number {event}, of the volume)"
                ),
            },
            Some(Error::Pinned { event }) => match self.name_of(*event) {
                (Some(row), Some(named)) => anyhow::anyhow!(
                    "cannot expunge {shown}: the snapshot {named} has seen it; {}",
                    mounted_on(&row, &self.location)
                ),
                _ => anyhow::anyhow!(
                    "cannot expunge {shown}: snapshot {event} is mounted and has seen it; unmount that first"
                ),
            },
            Some(Error::TakenByOthers { event }) => anyhow::anyhow!(
                "cannot expunge {shown}: the snapshot {} has seen it, and somebody else took that; ask root to do it, or to mount the \
                 volume with -o expunge_others",
                self.name_of(*event).1.unwrap_or_else(|| format!("number {event}"))
            ),
            Some(Error::Invalid { .. }) => anyhow::anyhow!(
                "cannot expunge {shown}: it is the root directory; forget the volume's snapshots instead (yore forget)"
            ),
            _ => error.context(format!("cannot expunge {shown}")),
        }
    }
}

/// Whether all of these files are among those.
fn are_among(these: &[KnownFile], those: &[KnownFile]) -> bool {
    let identity = |file: &KnownFile| (file.inode, file.incarnation);
    let those: HashSet<_> = those.iter().map(identity).collect();
    these.iter().all(|file| those.contains(&identity(file)))
}

/// Gives up all history of files.
pub fn run(args: &args::Expunge) -> Outcome {
    let operands = args.paths.iter().map(|path| Operand::find(path)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut found =
        operands.iter().map(|operand| operand.find_files(args)).collect::<anyhow::Result<Vec<_>>>()?;
    if args.dry_run {
        print(args, &operands, &found)?;
        return Ok(status::OK);
    }
    if !args.yes && !confirmed(&operands, &found, args.shred)? {
        status::tell("nothing was changed");
        return Ok(status::FAILED);
    }
    let mut freed = Some(0);
    for (operand, found) in operands.iter().zip(&mut found) {
        let of_this = operand.expunge(args, found)?;
        freed = freed.zip(of_this).map(|(all, one)| all + one);
    }
    if args.shred {
        shred_all(&operands)?;
    }
    print(args, &operands, &found)?;
    if !args.listing.json && !args.listing.null {
        say_freed(freed)?;
        for (operand, (known, _)) in operands.iter().zip(&found).filter(|(_, (known, _))| known.others > 0) {
            let files = if known.others == 1 { "file" } else { "files" };
            status::tell(format_args!(
                "the name {} meant {} other {files} at other times, whose history is kept: `yore log` shows it, \
                 --all-under-name gives it up, too",
                operand.shown, known.others
            ));
        }
    }
    watch(&operands, args.progress)?;
    Ok(status::OK)
}

/// Shows how far the daemons of the operands' mounts are with giving back space.
fn watch(operands: &[Operand], progress: args::Progress) -> anyhow::Result<()> {
    let mut mounts = HashSet::new();
    for operand in operands {
        let Some(dir) = operand.location.dir() else { continue };
        if mounts.insert(operand.location.root()) {
            while_given_back(dir, progress)?;
        }
    }
    Ok(())
}

/// Erases on each volume of the operands, once.
fn shred_all(operands: &[Operand]) -> anyhow::Result<()> {
    let mut volumes = HashSet::new();
    for operand in operands {
        if volumes.insert(operand.location.root()) {
            let left = operand.shred()?;
            anyhow::ensure!(
                left == 0,
                "{}: {left} free blocks could not be erased, for the volume is nearly full and busy; do it again later",
                operand.shown
            );
        }
    }
    Ok(())
}

/// What expunging does not do.
const REMAINS: &str = "Parts of what is given up stay readable in the image or device until something else takes their place: contents, names, \
                       targets of links. --shred erases them, too.";

/// And what `--shred` does not do either: copies share blocks with the file.
const COPIES: &str =
    "Copies of it are other files and keep all they have, also those that restore, undelete and cp made.";

/// Asks the user.
fn confirmed(operands: &[Operand], found: &[Found], shred: bool) -> anyhow::Result<bool> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(status::usage(
            "expunging cannot be undone: look with --dry-run, then say --yes (there is no terminal to ask on)",
        ));
    }
    for (operand, (known, _)) in operands.iter().zip(found) {
        status::tell(format_args!("{}: {}", operand.shown, amount(known)));
    }
    if !shred {
        status::tell(REMAINS);
    }
    status::tell(COPIES);
    status::ask("Give up all of this history? Nothing brings it back. [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).context("cannot read the answer")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn amount(known: &Known) -> String {
    let many = |count: u64, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let (files, versions) = (many(known.files, "file"), many(known.versions, "version"));
    format!("{files}, {versions} of {} in all", human(known.bytes))
}

/// Prints what would go, or went, with a line for each file.
fn print(args: &args::Expunge, operands: &[Operand], found: &[Found]) -> anyhow::Result<()> {
    let mut list = List::new(args.listing);
    for (operand, (_, entries)) in operands.iter().zip(found) {
        for entry in entries {
            let mut path = operand.shown.clone().into_bytes();
            if !entry.path.is_empty() {
                path.extend(b"/");
                path.extend(&entry.path);
            }
            let versions = if entry.versions == 1 { "version" } else { "versions" };
            let before = format!(
                "{:<16} {:>6} {versions:<8} {:>10}  ",
                kind_name(entry.kind),
                entry.versions,
                human(entry.bytes)
            );
            let after = if entry.in_use { "  (the present stays)" } else { "" };
            list.entry(&before, &path, after, || {
                let mut value = json!({
                    "type": kind_name(entry.kind),
                    "inode": entry.inode.0,
                    "incarnation": entry.incarnation.0,
                    "versions": entry.versions,
                    "bytes": entry.bytes,
                    "in_use": entry.in_use,
                });
                json_name(&mut value, "path", &path);
                value
            })?;
        }
    }
    list.done()
}
