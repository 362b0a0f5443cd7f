//! `scrub`: reads everything and tells what is damaged; `checksums`: whether file data has checksums.

use super::found::{json_without, without_text};
use super::operand::find;
use super::snapshot::Location;
use crate::args;
use crate::mount::beside::Beside;
use crate::output::{
    bytes_of, human, json_name, json_seconds, now, print_json, print_line, printable, Clock, Out,
};
use crate::progress::{stop_wanted, while_searching};
use crate::status::{self, Outcome};
use crate::volume::Access;
use anyhow::Context as _;
use jiff::tz::TimeZone;
use serde_json::{json, Value};
use std::path::Path;
use std::sync::Arc;
use yore_control::Client;
use yore_device::{FileDevice, OpenOptions};
use yore_fs::time::parse_ago;
use yore_fs::{ChecksumsEntered, DamagedBlock, Scrub, ScrubFrom, ScrubRecord, Scrubbed};

const BLOCK: u64 = yore_device::BLOCK_SIZE as u64;

/// Reads everything on a volume.
pub fn scrub(args: &args::ScrubArgs) -> Outcome {
    let shown = printable(bytes_of(Path::new(&args.path)));
    let begin = match args.from {
        Some(block) => ScrubFrom::Block(block),
        None if args.restart => ScrubFrom::Anew,
        None => ScrubFrom::GoOn,
    };
    let how = Scrub { rate: args.rate.unwrap_or(0), begin, ..Scrub::default() };
    let due = args.due.as_deref().map(since).transpose()?;
    let stop = stop_wanted()?;
    let location = find(&args.path)?;
    let scrub = |client: &dyn Client| {
        if let Some(since) = due {
            let (record, is_under_way) = client.scrubs().with_context(|| format!("cannot ask {shown}"))?;
            if let Some(not_due) = not_due(&record, is_under_way, since) {
                return Ok(Err(not_due));
            }
        }
        let what = format!("scrubbing {shown}");
        let found = while_searching(args.progress, &what, |watch| client.scrub(how, &stop, watch))?;
        found.map(Ok).with_context(|| format!("cannot scrub {shown}"))
    };
    if let Some(beside) = beside(&location) {
        drop(location);
        return told(args, &shown, &scrub(&beside)?);
    }
    let found = location.ask_with(Access::Read, |client, volume| {
        if let (Some(volume), Location::Free(on)) = (volume, &location) {
            // This process holds the volume for reading, so nobody has it open for writing. Others may read
            // it meanwhile.
            let options = OpenOptions { lock: false, ..OpenOptions::default() };
            if let Ok(device) = FileDevice::open(&on.volume, options) {
                volume.view().write_scrubs_to(Arc::new(device));
            }
        }
        scrub(client)
    })?;
    told(args, &shown, &found)
}

/// The time that is so long ago, in seconds since 1970.
fn since(age: &str) -> anyhow::Result<u64> {
    let now = now();
    let wrong = |why: String| status::usage(format!("--due {age}: {why}"));
    let then = parse_ago(age, now, &TimeZone::UTC).map_err(|error| wrong(error.to_string()))?;
    u64::try_from(then.seconds).map_err(|_| wrong("that is before 1970".into()))
}

/// Why no scrub is due, if none is: the last one ended since then, or one is under way.
fn not_due(record: &ScrubRecord, is_under_way: bool, since: u64) -> Option<NotDue> {
    if is_under_way {
        return Some(NotDue::UnderWay);
    }
    let ended = record.last.filter(|_| record.under_way.is_none())?.ended;
    // The clock may have been wrong then, and far ahead.
    let now = u64::try_from(now().seconds).unwrap_or(0);
    (since < ended && ended <= now).then_some(NotDue::Ended(ended))
}

/// Why no scrub is due.
enum NotDue {
    /// One is under way.
    UnderWay,
    /// One ended then, in seconds since 1970.
    Ended(u64),
}

/// Prints what was found, and returns the exit status.
fn told(args: &args::ScrubArgs, shown: &str, found: &Result<Scrubbed, NotDue>) -> Outcome {
    let found = match (found, args.json) {
        (Ok(found), _) => found,
        (Err(_), true) => {
            print_json(&json!({ "due": false }))?;
            return Ok(status::OK);
        }
        (Err(NotDue::UnderWay), false) => {
            print_line(format_args!("{shown}: is being scrubbed already"))?;
            return Ok(status::OK);
        }
        (Err(NotDue::Ended(ended)), false) => {
            let ended = Clock::new(false).seconds(*ended);
            print_line(format_args!("{shown}: no scrub is due, the last one ended {ended}"))?;
            return Ok(status::OK);
        }
    };
    match args.json {
        true => print_json(&as_json(found))?,
        false => tell(shown, found)?,
    }
    if found.goes_on.is_some() {
        return Ok(status::BROKEN_OFF);
    }
    Ok(if found.is_clean() { status::OK } else { status::FINDINGS })
}

fn tell(shown: &str, found: &Scrubbed) -> anyhow::Result<()> {
    let mut out = Out::new();
    if let Some(since) = found.since {
        let since = Clock::new(false).seconds(since);
        out.line(format_args!("{shown}: went on with the scrub of {since} (--restart begins anew)"))?;
    }
    for damaged in &found.metadata {
        out.line(format_args!("{shown}: {damaged}"))?;
    }
    for damaged in &found.data {
        out.line(format_args!("{shown}: {}", text(damaged)))?;
    }
    if found.is_noted && found.further > 0 {
        out.line(format_args!(
            "{shown}: {} blocks of data seem damaged; the end of the scrub says whose",
            found.further
        ))?;
    } else if found.further > 0 {
        out.line(format_args!("{shown}: {} further findings", found.further))?;
    }
    let read = format!("{} of metadata", human(found.metadata_blocks * BLOCK));
    match found.keeps_checksums {
        true => out.line(format_args!("{shown}: read {read} and {} of data", human(found.data_blocks * BLOCK)))?,
        false => out.line(format_args!(
            "{shown}: read {read}; file data has no checksums on this volume and was not read (yore checksums --enable)"
        ))?,
    }
    if let Some(text) = without_text(&json_without(found.without.as_ref())) {
        out.line(format_args!("{shown}: {text}"))?;
    }
    match (found.goes_on, found.is_clean()) {
        (Some(_), _) if found.is_noted => out.line(format_args!(
            "{shown}: broken off; yore scrub goes on there (yore info says how far it is)"
        ))?,
        (Some(at), _) => out.line(format_args!("{shown}: broken off; yore scrub --from {at} goes on"))?,
        (None, true) => out.line(format_args!("{shown}: nothing is damaged"))?,
        (None, false) => out.line(format_args!(
            "{shown}: damaged; metadata: yore check, data: restore it from the past or a backup, or remove it"
        ))?,
    }
    out.done()?;
    Ok(())
}

fn text(damaged: &DamagedBlock) -> String {
    let name = match &damaged.path {
        Some(path) => printable(path).to_string(),
        None => format!("inode {}, which has no name now,", damaged.inode),
    };
    let state = match damaged.until {
        Some(event) => format!(" in the state that ended with event {}", event.0),
        None => String::new(),
    };
    let sound = match damaged.sound_until {
        Some(event) => {
            format!("; until event {} it had another block there, which is sound (yore log)", event.0)
        }
        None => String::new(),
    };
    format!(
        "{name}: the data at offset {} is damaged{state} (block {}){sound}",
        damaged.offset, damaged.block
    )
}

fn as_json(found: &Scrubbed) -> Value {
    let row = |damaged: &DamagedBlock| {
        let mut object = json!({
            "inode": damaged.inode.0,
            "offset": damaged.offset,
            "block": damaged.block,
            "until_event": damaged.until.map(|event| event.0),
            "sound_until_event": damaged.sound_until.map(|event| event.0),
        });
        match &damaged.path {
            Some(path) => json_name(&mut object, "path", path),
            None => object["path"] = Value::Null,
        }
        object
    };
    json!({
        "clean": found.is_clean() && found.goes_on.is_none(),
        "data_checksums": found.keeps_checksums,
        "metadata_bytes": found.metadata_blocks * BLOCK,
        "data_bytes": found.data_blocks * BLOCK,
        "damaged_metadata": found.metadata,
        "damaged_data": found.data.iter().map(row).collect::<Vec<_>>(),
        "without_checksums": json_without(found.without.as_ref()),
        "further_findings": found.further,
        "goes_on": found.goes_on,
        "position_recorded": found.is_noted,
        "went_on_since": found.since.map(json_seconds),
    })
}

/// The daemon of the mount that a location is on, if it can be asked beside that: then nothing must be open
/// that keeps the mount busy.
fn beside(location: &Location) -> Option<Beside> {
    location.mount().and_then(|mount| Beside::at(&mount.directory))
}

/// Has a volume keep checksums of file data.
fn enable_checksums(args: &args::ChecksumsArgs, location: Location) -> anyhow::Result<ChecksumsEntered> {
    let shown = printable(bytes_of(Path::new(&args.path)));
    let stop = stop_wanted()?;
    let enable = |client: &dyn Client| {
        let what = format!("computing checksums of {shown}");
        let entered = while_searching(args.progress, &what, |watch| client.enable_checksums(&stop, watch))?;
        entered.with_context(|| format!("cannot give {shown} checksums"))
    };
    match beside(&location) {
        Some(beside) => {
            drop(location);
            enable(&beside)
        }
        None => location.ask(Access::of(true), |client| enable(client)),
    }
}

/// Tells whether a volume keeps checksums of file data, or has it begin to.
pub fn checksums(args: &args::ChecksumsArgs) -> Outcome {
    let shown = printable(bytes_of(Path::new(&args.path)));
    let location = find(&args.path)?;
    let (kept, entered) = match args.enable {
        true => (true, Some(enable_checksums(args, location)?)),
        false => {
            let asked = location.ask(Access::Read, |client| {
                client.keeps_checksums().with_context(|| format!("cannot ask {shown}"))
            });
            (asked?, None)
        }
    };
    let done = entered.unwrap_or_default();
    if args.json {
        print_json(&json!({
            "data_checksums": kept,
            "entered": done.blocks * BLOCK,
            "without": done.left * BLOCK,
            "broken_off": done.broken_off,
        }))?;
    } else {
        let mut out = Out::new();
        match (kept, entered) {
            (false, _) => out.line(format_args!("{shown}: file data has no checksums (--enable)"))?,
            (true, None) => out.line(format_args!("{shown}: keeps checksums of file data"))?,
            (true, Some(done)) => {
                let size = human(done.blocks * BLOCK);
                out.line(format_args!("{shown}: keeps checksums of file data; {size} got theirs"))?;
            }
        }
        if done.left > 0 {
            let size = human(done.left * BLOCK);
            out.line(format_args!("{shown}: {size} have none yet: do it again when less is being written"))?;
        }
        if done.broken_off {
            out.line(format_args!("{shown}: broken off; what is left gets checksums when it is done again"))?;
        }
        out.done()?;
    }
    Ok(if done.broken_off { status::FAILED } else { status::OK })
}
