//! `defrag`: lays the pieces of scattered files together.

use super::operand::find_file_too;
use super::snapshot::Location;
use crate::args;
use crate::mount::beside::Beside;
use crate::output::{bytes_of, human, json_name, print_json, printable};
use crate::progress::while_searching;
use crate::status::{self, Outcome};
use crate::volume::Access;
use anyhow::Context as _;
use serde_json::{json, Value};
use std::ffi::OsStr;
use std::path::Path;
use yore_control::Client;
use yore_fs::{Defragmented, Error, Scattered};

const BLOCK: u64 = yore_device::BLOCK_SIZE as u64;

/// Lays files together, or says what that takes.
pub fn run(args: &args::Defrag) -> Outcome {
    let (mut failed, mut rows) = (false, Vec::new());
    for path in &args.paths {
        match one(args, path) {
            Ok(row) => rows.push(row),
            Err(error) if args.paths.len() == 1 => return Err(error),
            Err(error) => {
                failed = true;
                status::warn(&status::message(&error));
            }
        }
    }
    if args.json {
        print_json(&Value::Array(rows))?;
    }
    Ok(if failed { status::FAILED } else { status::OK })
}

/// Works on one path. Returns the row that JSON has of it.
fn one(args: &args::Defrag, operand: &OsStr) -> anyhow::Result<Value> {
    let shown = printable(bytes_of(Path::new(operand)));
    let refused = |error: Error| match error {
        Error::Refused(why) => anyhow::anyhow!("{shown}: {why}"),
        Error::ReadOnly => {
            anyhow::anyhow!("cannot lay {shown} together: it is of the past, or is mounted read-only")
        }
        error => anyhow::Error::new(error).context(format!("cannot lay {shown} together")),
    };
    let lay = |client: &dyn Client| -> anyhow::Result<Value> {
        let before = client.scattered().map_err(refused)?;
        if !args.json {
            status::tell(format_args!("{shown}: {}", takes(&before)));
        }
        if args.dry_run || before.scattered == 0 {
            return Ok(row(operand, &before, None));
        }
        let what = format!("laying {shown} together");
        let done =
            while_searching(args.progress, &what, |watch| client.defragment(watch))?.map_err(refused)?;
        if !args.json {
            status::tell(format_args!("{shown}: {}", told(&done)));
        }
        Ok(row(operand, &done.before, Some(&done)))
    };
    let location = find_file_too(operand)?;
    match beside(&location).with_context(|| format!("cannot ask about {shown}"))? {
        Some(beside) => {
            drop(location);
            lay(&beside)
        }
        None => location.ask(Access::of(!args.dry_run), |client| lay(client)),
    }
}

/// The daemon of the mount that a location is on, if it can be asked beside that: then nothing must be open
/// that keeps the mount busy.
fn beside(location: &Location) -> std::io::Result<Option<Beside>> {
    match (location.mount(), location.dir()) {
        (Some(mount), Some(opened)) => Beside::about(&mount, opened),
        _ => Ok(None),
    }
}

fn files(count: u64) -> String {
    match count {
        1 => "1 file".into(),
        count => format!("{count} files"),
    }
}

/// What laying files together takes.
fn takes(found: &Scattered) -> String {
    if found.scattered == 0 {
        return format!("{}, none of them scattered", files(found.files));
    }
    format!(
        "{} of {} scattered, in {} pieces; laying together takes {} ({} blocks), and history grows by {}",
        found.scattered,
        files(found.files),
        found.pieces,
        human(found.blocks * BLOCK),
        found.blocks,
        human(found.history * BLOCK)
    )
}

/// What was done.
fn told(done: &Defragmented) -> String {
    let left = match done.left {
        0 => String::new(),
        left => format!(
            "; {left} of them are still scattered: free space is scattered, too, or somebody wrote to them meanwhile"
        ),
    };
    format!(
        "{} pieces now, {} before; {} were moved{left}",
        done.pieces,
        done.before.pieces,
        human(done.moved * BLOCK)
    )
}

fn row(path: &OsStr, before: &Scattered, done: Option<&Defragmented>) -> Value {
    let mut object = json!({
        "files": before.files,
        "scattered": before.scattered,
        "pieces_before": before.pieces,
        "pieces": done.map(|done| done.pieces),
        "takes": before.blocks * BLOCK,
        "history_grows": before.history * BLOCK,
        "moved": done.map_or(0, |done| done.moved) * BLOCK,
        "still_scattered": done.map(|done| done.left),
    });
    json_name(&mut object, "path", bytes_of(Path::new(path)));
    object
}
