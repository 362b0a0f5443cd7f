//! `du --history`: how much space each snapshot, or each state of a file, takes.

use super::log::{ask_about, at, json_logged, json_seen, log_time, never_seen};
use super::no_answer;
use crate::args;
use crate::output::{bytes_of, human, json_name, print_json, printable, Clock, List};
use crate::progress::until_stopped;
use crate::status::{self, Outcome};
use serde_json::{json, Value};
use std::ffi::OsStr;
use std::path::Path;
use yore_fs::{Error, EventUsage, Retained, StateUsage, UsageTotals};

/// What was found of one path.
enum Found {
    Directory(UsageTotals, Vec<EventUsage>),
    File(UsageTotals, Vec<StateUsage>),
}

/// Prints how much space the history of paths takes.
pub fn du(args: &args::Du) -> Outcome {
    if !args.history {
        return Err(status::usage(
            "what is in use is for du(1) on a mount to tell; `yore du --history` tells what history holds beside that",
        ));
    }
    let clock = Clock::new(args.listing.utc);
    let (mut failed, mut all) = (false, Vec::new());
    for path in &args.paths {
        match find_usage(path) {
            Ok(found) => all.push((path, found)),
            Err(error) if args.paths.len() == 1 => return Err(error),
            Err(error) => {
                failed = true;
                status::warn(&status::message(&error));
            }
        }
    }
    if args.listing.json {
        print_json(&all.iter().map(|(path, found)| json(path, found, &clock)).collect())?;
    } else {
        let mut list = List::new(args.listing);
        for (path, found) in &all {
            print(&mut list, path, found, &clock)?;
        }
        list.done()?;
    }
    Ok(if failed { status::FAILED } else { status::OK })
}

fn find_usage(operand: &OsStr) -> anyhow::Result<Found> {
    let shown = printable(bytes_of(Path::new(operand)));
    let told = |error: Error| match error.root() {
        Error::NotFound => never_seen(&shown),
        _ => no_answer(error).context(format!("cannot tell what history holds of {shown}")),
    };
    ask_about(operand, true, |client, name| {
        if name.is_empty() {
            let (totals, events) = until_stopped(client, |client| client.usage())?.map_err(told)?;
            return Ok(Found::Directory(totals, events));
        }
        let (totals, states) = until_stopped(client, |client| client.usage_of(name))?.map_err(told)?;
        Ok(Found::File(totals, states))
    })
}

fn json_held(held: &Retained) -> Value {
    json!({ "data": held.data, "metadata": held.metadata })
}

fn json(path: &OsStr, found: &Found, clock: &Clock) -> Value {
    let (Found::Directory(totals, _) | Found::File(totals, _)) = found;
    let mut value = json!({
        "live": totals.live,
        "history": json_held(&totals.history),
        "exclusive": json_held(&totals.exclusive),
    });
    json_name(&mut value, "path", bytes_of(Path::new(path)));
    match found {
        Found::Directory(_, events) => {
            let one = |event: &EventUsage| {
                let mut value = json_seen(Some(&event.seen), clock);
                value["exclusive"] = json_held(&event.exclusive);
                value["with_older"] = json_held(&event.with_older);
                value["shared"] = json!(event.shared);
                value
            };
            value["snapshots"] = events.iter().map(one).collect();
        }
        Found::File(_, states) => {
            let one = |found: &StateUsage| {
                let mut value = json_logged(&found.state, clock);
                value["exclusive"] = json_held(&found.exclusive);
                value["with_older"] = json_held(&found.with_older);
                value["shared"] = json!(found.shared);
                value
            };
            value["states"] = states.iter().map(one).collect();
        }
    }
    value
}

fn print(list: &mut List, path: &OsStr, found: &Found, clock: &Clock) -> anyhow::Result<()> {
    list.heading(format!("{:>10} {:>10} {:>10}  seen at", "exclusive", "with older", "shared").as_bytes())?;
    let sizes = |exclusive: &Retained, with_older: &Retained, shared: u64| {
        let [alone, older] = [exclusive, with_older].map(|held| human(held.bytes()));
        format!("{alone:>10} {older:>10} {:>10}  ", human(shared))
    };
    let totals = match found {
        Found::Directory(totals, events) => {
            for event in events {
                let name = match event.seen.event.row.name.as_str() {
                    "" => String::new(),
                    name => format!("  {name}"),
                };
                let before = sizes(&event.exclusive, &event.with_older, event.shared);
                // JSON is printed elsewhere, as one value for each path.
                list.entry(&before, at(&event.seen, clock).as_bytes(), &name, || Value::Null)?;
            }
            totals
        }
        Found::File(totals, states) => {
            for found in states {
                let path = found.state.path.as_deref().unwrap_or(&found.state.name);
                let before = sizes(&found.exclusive, &found.with_older, found.shared);
                let after = format!("  {}", printable(path));
                list.entry(&before, log_time(&found.state, clock).as_bytes(), &after, || Value::Null)?;
            }
            totals
        }
    };
    let what = match found {
        Found::Directory(..) => "snapshots",
        Found::File(..) => "states",
    };
    let sum = format!(
        "{}: {} live, {} only in history, {} of it in single {what}",
        printable(bytes_of(Path::new(path))),
        human(totals.live),
        human(totals.history.bytes()),
        human(totals.exclusive.bytes()),
    );
    list.heading(sum.as_bytes())
}
