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

use super::operand::{find_all, find_one, mounted_on, no_time, with_opened, Opened, CHOICES};
use super::snapshot::{print_rows, Line};
use crate::args;
use crate::nearest::nearest;
use crate::output::{human, now, print_line, Clock};
use crate::progress::{stop_wanted, while_given_back, Progress};
use crate::status::{self, Ended, Outcome};
use crate::volume::Access;
use anyhow::Context as _;
use jiff::tz::TimeZone;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::Ordering;
use yore_control::Saying;
use yore_fs::retention::{reasons, Reason, Taken};
use yore_fs::time::{parse_ago, parse_begin, When};
use yore_fs::{EventKind, EventNo, Forgetting, ListedEvent, RetentionRules, Volume};

/// Holds a snapshot, or releases it.
pub fn hold(args: &args::Hold, held: bool) -> Outcome {
    let verb = if held { "hold" } else { "release" };
    if !held && args.message.is_some() {
        return Err(status::usage("what is released has no reason; -m is for `yore hold`"));
    }
    let (targets, row) = find_one(verb, &args.path, args.number)?;
    with_opened(&targets, Access::Write, |opened| {
        let reason = held.then(|| args.message.clone().unwrap_or_default());
        let saying = Saying { hold: Some(reason), ..Saying::default() };
        opened[0]
            .describe(&row.event, saying)
            .with_context(|| format!("cannot {verb} {}", opened[0].name()))?;
        match args.json {
            true => opened[0].print(verb, row.event.number),
            false => Ok(()),
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
        if self.below && opened.is_file() {
            return Err(status::usage(format!("{name} is not a directory; --below is of directories")));
        }
        let rows = opened.list()?;
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
    anyhow::ensure!(!row.mounted, "cannot forget {name}: {}", mounted_on(&row, opened.location()));
    Ok(Judged { row, reasons: Vec::new() })
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
    // Opening a volume for writing changes it. So whatever is known to fail fails before that.
    let judged = with_opened(&targets, Access::Read, |opened| judge(opened, args, choice.as_ref(), &clock))?;
    if args.dry_run {
        print(args, &judged.iter().collect::<Vec<_>>(), &clock)?;
        return Ok(status::OK);
    }
    let forgotten: Vec<&Judged> = judged.iter().filter(|judged| judged.reasons.is_empty()).collect();
    let progress = Progress::without_end(args.progress)?;
    with_opened(&targets, Access::Write, |opened| {
        // A path with a time leads nowhere afterwards, so the command asks the mount point.
        let mount = opened.first().and_then(|first| first.location().mount());
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
        if let Some(root) = mount.and_then(|mount| File::open(mount.directory).ok()) {
            while_given_back(&root, args.progress)?;
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
    match freed {
        Some(bytes) => print_line(format_args!("{} freed", human(bytes))),
        None => print_line("their space is given back in the background"),
    }
}
