//! `df`: how full mounts and volumes are.

use super::stopped;
use super::target::{Space, Target};
use crate::args;
use crate::live;
use crate::output::{bytes_of, human, json_name, json_name_or_null, print_json, printable, Out};
use crate::status::{self, Outcome};
use anyhow::Context as _;
use serde_json::Value;
use std::path::{Path, PathBuf};
use yore_control::Stopped;

/// Space on volumes.
pub fn run(args: &args::Df) -> Outcome {
    let targets = match args.targets.is_empty() {
        true => live::mounts().into_iter().map(|mount| mount.directory).collect(),
        false => args.targets.clone(),
    };
    let mut rows = Vec::new();
    let mut failed = false;
    for target in targets {
        match row(&target) {
            Ok(row) => rows.push(row),
            Err(error) if args.targets.len() == 1 => return Err(error),
            Err(error) => {
                // Somebody else's dead mount is worth a word, but nobody asked for it.
                failed |= !args.targets.is_empty();
                status::warn(&status::message(&error));
            }
        }
    }
    match args.json {
        true => print_json(&rows.iter().map(json_row).collect())?,
        false => print_rows(args.inodes, &rows)?,
    }
    for row in &rows {
        if let (Some(stopped), Some(directory)) = (&row.stopped, &row.directory) {
            status::warn(&stopped::message(directory, stopped));
        }
    }
    Ok(if failed { status::FAILED } else { status::OK })
}

/// A line of `df`.
struct Row {
    volume: PathBuf,
    directory: Option<PathBuf>,
    space: Space,
    /// An error has stopped all writing to it.
    stopped: Option<Stopped>,
}

fn row(target: &Path) -> anyhow::Result<Row> {
    match Target::find(target)? {
        Target::Mounted { directory, volume, .. } => {
            let space = Space::of_mount(&directory)?;
            // A user who may not open the directory gets only the space.
            let stopped = stopped::of_mount(&directory).ok().flatten();
            Ok(Row { volume, directory: Some(directory), space, stopped })
        }
        Target::Held { pid, command } => {
            let who = pid.map_or("another process".to_string(), |pid| format!("process {pid} ({command})"));
            anyhow::bail!("{} is in use by {who}; ask again when it is done", target.display())
        }
        Target::Free(open) => {
            let space = Space::of_volume(&open.statfs());
            open.close().with_context(|| format!("cannot close {}", target.display()))?;
            Ok(Row { volume: target.to_path_buf(), directory: None, space, stopped: None })
        }
    }
}

fn json_row(row: &Row) -> Value {
    let mut value = row.space.json();
    json_name(&mut value, "volume", bytes_of(&row.volume));
    json_name_or_null(&mut value, "directory", row.directory.as_deref().map(bytes_of));
    value["stopped"] = row.stopped.as_ref().map_or(Value::Null, stopped::json);
    value
}

fn print_rows(inodes: bool, rows: &[Row]) -> anyhow::Result<()> {
    let mut out = Out::new();
    let width = rows.iter().map(|row| row.volume.to_string_lossy().chars().count()).max().unwrap_or(0).max(6);
    let columns = |volume: &str, cells: &[String], percent: &str, directory: &str| {
        let cells: String = cells.iter().map(|cell| format!(" {cell:>10}")).collect();
        format!("{volume:<width$}{cells} {percent:>5} {directory}").trim_end().to_string()
    };
    let heads: &[&str] = match inodes {
        true => &["Inodes", "Used", "Available"],
        false => &["Size", "Live", "History", "Available"],
    };
    let heads: Vec<String> = heads.iter().map(|head| head.to_string()).collect();
    out.line(columns("Volume", &heads, "Use%", "Mounted on"))?;
    let unknown = || "-".to_string();
    for row in rows {
        let space = &row.space;
        let (used, available, cells) = match inodes {
            true => {
                let used = space.inodes.saturating_sub(space.inodes_free);
                let cells = [space.inodes, used, space.inodes_free].map(|n| n.to_string());
                (used, space.inodes_free, cells.to_vec())
            }
            false => {
                let live = space.live().map_or_else(unknown, human);
                let history = space.history.map_or_else(unknown, |history| human(history.bytes()));
                (
                    space.used(),
                    space.available,
                    vec![human(space.size), live, history, human(space.available)],
                )
            }
        };
        // What others do not let be looked at is all zero.
        let told = space.size > 0;
        let cells = if told { cells } else { cells.iter().map(|_| unknown()).collect() };
        // As df(1): of what can be used, rounded up.
        let usable = used.saturating_add(available).max(1);
        let percent = (u128::from(used) * 100).div_ceil(u128::from(usable));
        let percent = if told { format!("{percent}%") } else { unknown() };
        let directory = row.directory.as_ref().map_or(String::new(), |d| printable(bytes_of(d)));
        let volume = printable(bytes_of(&row.volume));
        out.line(columns(&volume, &cells, &percent, &directory))?;
    }
    out.done()
}
