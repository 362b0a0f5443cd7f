//! `info`: asks the kernel and the daemon about a mount, and opens a volume that is not mounted.

use super::found::{json_finding, json_without, without_text};
use super::stopped;
use super::target::{Space, Target};
use crate::args;
use crate::inspect::superblock;
use crate::live::{self, Daemon};
use crate::output::{
    bytes_of, human, json_name, json_name_or_null, json_seconds, json_time, print_json, printable, Clock, Out,
};
use crate::status::{self, Outcome};
use crate::volume::{self, Access};
use anyhow::Context as _;
use serde_json::{json, Value};
use std::fs::File;
use std::path::Path;
use yore_control::{Client, Here, Mounted};
use yore_device::{FileDevice, OpenOptions};
use yore_fs::rollback::UnfinishedRollback;
use yore_fs::{ListedEvent, Stays};

/// Facts about a volume.
pub fn run(args: &args::Info) -> Outcome {
    let value = match Target::find(&args.target)? {
        Target::Mounted { directory, volume, daemon, is_trusted } => {
            of_mount(&directory, &volume, daemon, is_trusted)?
        }
        Target::Held { pid, command } => {
            let mut value = of_superblock(&args.target)?;
            value["pid"] = json!(pid);
            value["process"] = json!(command);
            value
        }
        Target::Free(open) => {
            let mut value = of_volume(&args.target, &open);
            let client = Here::new(open.view(), open.view().root());
            for (key, ask) in HISTORY {
                value[key] = ask(&client)?;
            }
            drop(client);
            open.close().with_context(|| format!("cannot close {}", args.target.display()))?;
            value
        }
    };
    match args.json {
        true => print_json(&value)?,
        false => print_text(&value, &Clock::new(args.utc))?,
    }
    Ok(status::OK)
}

/// Facts about a mounted volume: the daemon knows what it is, the kernel how full it is.
fn of_mount(
    directory: &Path,
    volume: &Path,
    daemon: Option<Box<Daemon>>,
    is_trusted: bool,
) -> anyhow::Result<Value> {
    let space = Space::of_mount(directory)?;
    let snapshot = daemon.as_ref().and_then(|daemon| daemon.snapshot_at(directory));
    // In the table of mounts, the time of a snapshot follows the volume's name.
    let volume = daemon.as_ref().map_or(volume, |daemon| &daemon.volume);
    let mut value = match &daemon {
        Some(daemon) => of_daemon(daemon, snapshot.is_some()),
        // The daemon is another user's. This has what the medium says, and who holds the volume.
        None if is_trusted => {
            let mut value = of_superblock(volume).unwrap_or_else(|_| json!({}));
            value["pid"] = json!(volume::holder(volume));
            value
        }
        // Whoever mounted it chose the name in the table, so this opens nothing of that name.
        None => json!({ "pid": Value::Null }),
    };
    json_name(&mut value, "volume", bytes_of(volume));
    json_name(&mut value, "directory", bytes_of(directory));
    let stopped = stopped::of_mount(directory);
    value["state"] = match &stopped {
        Ok(Some(_)) => json!("stopped writing"),
        Ok(None) if daemon.as_ref().is_some_and(|daemon| daemon.read_only) => {
            json!("in use, for reading only")
        }
        Ok(None) => json!("in use"),
        Err(_) => Value::Null,
    };
    value["stopped"] = stopped.ok().flatten().map_or(Value::Null, |stopped| stopped::json(&stopped));
    value["mounted"] = json!(true);
    value["at"] = json!(snapshot.map(|snapshot| &snapshot.at));
    value["mounted_snapshots"] = daemon.as_ref().map_or(Value::Null, |daemon| {
        let one = |of: &live::MountedSnapshot| {
            let mut value = json!({ "number": of.number, "at": of.at });
            json_name(&mut value, "directory", bytes_of(&of.directory));
            value
        };
        daemon.snapshots.iter().map(one).collect()
    });
    value["could_be"] = json_room(volume, Some(space.size));
    value["space"] = space.json();
    // A user who may not read the mount point gets the rest.
    let client = File::open(directory).map(Mounted).ok();
    for (key, ask) in HISTORY {
        value[key] = client.as_ref().and_then(|client| ask(client).ok()).unwrap_or(Value::Null);
    }
    Ok(value)
}

/// What the daemon says of its mount.
fn of_daemon(daemon: &Daemon, is_past: bool) -> Value {
    json!({
        "label": daemon.label,
        "uuid": daemon.uuid,
        "format": format!("{}.{}", daemon.format.0, daemon.format.1),
        "engine": daemon.engine,
        "read_only": daemon.read_only || is_past,
        "options": daemon.options,
        "log": daemon.log,
        "pid": daemon.pid,
        "mount_id": daemon.mount_id,
        "state_found": daemon.state_found,
        "mounted_at": json_seconds(daemon.mounted_seconds),
        "intent_log": { "size": daemon.intent_log },
    })
}

/// Asks a client for one value of the JSON output.
type Ask = fn(&dyn Client) -> yore_fs::Result<Value>;

/// What `info` asks about history, of a mount and of a volume alike, by the keys in JSON.
const HISTORY: [(&str, Ask); 6] = [
    ("snapshots", json_snapshots),
    ("unfinished", json_unfinished),
    ("when_full", json_when_full),
    ("findings", json_findings),
    ("leaks", json_leaks),
    ("scrub", json_scrub),
];

/// What a crash may have left, and how far that is recounted.
fn json_leaks(client: &dyn Client) -> yore_fs::Result<Value> {
    let (pending, percent) = client.leaks()?;
    Ok(json!({ "pending": pending, "recounting": percent }))
}

/// The same for people; nothing if no leaks are pending.
fn leaks_text(of: &Value) -> Option<String> {
    of["pending"].as_bool().filter(|pending| *pending)?;
    Some(match of["recounting"].as_u64() {
        Some(percent) => format!("pending, recounting {percent} %"),
        None => "pending, and put right by a mount, or by `yore check --repair` when it is not mounted"
            .to_string(),
    })
}

/// How far a scrub is, and how the last one ended.
fn json_scrub(client: &dyn Client) -> yore_fs::Result<Value> {
    let (record, is_under_way) = client.scrubs()?;
    let bytes = |blocks: u64| blocks.saturating_mul(yore_device::BLOCK_SIZE as u64);
    let part = |at: &yore_fs::ScrubUnderWay| {
        json!({
            "began": json_seconds(at.began), "running": is_under_way,
            "metadata_bytes": bytes(at.metadata_blocks), "data_bytes": bytes(at.data_blocks),
            "damaged": at.damaged_metadata + at.candidates.len() as u64,
        })
    };
    let whole = |last: &yore_fs::ScrubEnded| {
        json!({
            "began": json_seconds(last.began), "ended": json_seconds(last.ended),
            "metadata_bytes": bytes(last.metadata_blocks), "data_bytes": bytes(last.data_blocks),
            "damaged_metadata": last.damaged_metadata, "damaged_data": last.damaged_data,
            "without_checksums": json_without(last.without.as_ref()),
        })
    };
    Ok(json!({
        "under_way": record.under_way.as_ref().map(part), "last": record.last.as_ref().map(whole),
        "damaged_blocks": record.known_damaged(),
    }))
}

/// The same for people.
fn scrub_texts(of: &Value, clock: &Clock) -> (Option<String>, Option<String>) {
    let read = |of: &Value| {
        let part = |key: &str| human(of[key].as_u64().unwrap_or(0));
        format!("read {} of metadata and {} of data", part("metadata_bytes"), part("data_bytes"))
    };
    let (at, last) = (&of["under_way"], &of["last"]);
    let at = clock.of_json(&at["began"]).map(|began| {
        let damaged = match at["damaged"].as_u64() {
            None | Some(0) => String::new(),
            Some(count) => format!(", {count} blocks seem damaged"),
        };
        let state = match at["running"].as_bool() {
            Some(true) => "is under way",
            _ => "did not come to its end: `yore scrub` goes on",
        };
        format!("that of {began} {state}; {}{damaged}", read(at))
    });
    let last = clock.of_json(&last["ended"]).map(|ended| {
        let count = |key: &str| last[key].as_u64().unwrap_or(0);
        let damaged = match (count("damaged_metadata"), count("damaged_data")) {
            (0, 0) => "nothing was damaged".to_string(),
            (metadata, data) => {
                format!(
                    "{metadata} blocks of metadata and {data} of data were damaged: `yore scrub` names them"
                )
            }
        };
        let without = match without_text(&last["without_checksums"]) {
            Some(text) => format!("; {text}"),
            None => String::new(),
        };
        format!("ended {ended}: {damaged}; {}{without}", read(last))
    });
    (at, last)
}

/// How many findings people are shown.
const FINDINGS_SHOWN: usize = 3;

/// What the last check found and left.
fn json_findings(client: &dyn Client) -> yore_fs::Result<Value> {
    let Some(record) = client.findings()? else { return Ok(Value::Null) };
    Ok(json!({
        "count": record.count, "generation": record.generation.0, "time": json_seconds(record.seconds),
        "findings": record.findings.iter().map(json_finding).collect::<Vec<_>>(),
    }))
}

/// The same for people.
fn findings_text(of: &Value, clock: &Clock) -> Option<String> {
    let count = of["count"].as_u64()?;
    let one = |found: &Value| {
        let code = text(&found["problem"]).unwrap_or_default();
        match (text(&found["path"]), &found["block"]) {
            (Some(path), _) => format!("{code} {path}"),
            (None, Value::Number(block)) => format!("{code} at block {block}"),
            _ => code,
        }
    };
    let all = of["findings"].as_array().map_or(&[][..], Vec::as_slice);
    let shown: Vec<String> = all.iter().take(FINDINGS_SHOWN).map(one).collect();
    let more = if count > shown.len() as u64 { ", …" } else { "" };
    let time = clock.of_json(&of["time"]).unwrap_or_default();
    Some(format!(
        "{count} of the check of {time}: {}{more}. `yore check --repair` repairs the volume when it is not mounted",
        shown.join(", ")
    ))
}

/// Rollbacks that are not finished, with the paths of their directories on the volume.
fn json_unfinished(client: &dyn Client) -> yore_fs::Result<Value> {
    let one = |(of, path): &(UnfinishedRollback, Option<Vec<u8>>)| {
        let mut value = json!({ "name": of.name, "stopped": of.stopped });
        json_name_or_null(&mut value, "path", path.as_deref());
        value
    };
    Ok(client.unfinished_rollbacks()?.iter().map(one).collect())
}

/// How long a volume could be, if its file or device is longer than the volume; `null` if it is not, or if
/// nobody can tell.
fn json_room(volume: &Path, size: Option<u64>) -> Value {
    let length = super::resize::length(volume).ok();
    let room = length.zip(size).and_then(|(length, size)| super::resize::room_beyond(length, size));
    room.map_or(Value::Null, |room| json!(room))
}

/// What the volume does when it is full, what would free more, and what it gave up last.
fn json_when_full(client: &dyn Client) -> yore_fs::Result<Value> {
    let rules = client.space_rules()?;
    // A user who may not ask this gets the rest.
    let would_free = client.what_would_free().ok();
    let bytes = |blocks: u64| blocks.saturating_mul(yore_device::BLOCK_SIZE as u64);
    let more = would_free.as_ref().map(|found| {
        let one = |(why, count, blocks): &(Option<Stays>, u64, u64)| json!({ "why": why_text(*why), "count": count, "bytes": bytes(*blocks) });
        found.more.iter().map(one).collect::<Vec<_>>()
    });
    let last = client.given_up()?.pop();
    let last =
        last.map(|(_, row)| json!({ "time": json_time(row.time), "bytes": row.bytes, "note": row.note }));
    let missed = client.missed_versions()?;
    Ok(json!({
        "floor_seconds": rules.floor_seconds, "share_percent": rules.share_percent,
        "gives_up": would_free.as_ref().map(|found| bytes(found.by_itself)), "stays": more, "last": last,
        "missed": missed.map(|missed| json!({ "count": missed.count, "since": json_time(missed.since) })),
    }))
}

/// Why history stays.
fn why_text(why: Option<Stays>) -> &'static str {
    match why {
        None => "young",
        Some(Stays::Held) => "held",
        Some(Stays::Named) => "named",
        Some(Stays::Pinned) => "mounted or needed",
        Some(Stays::Read) => "being read",
        Some(Stays::Others) => "of others",
    }
}

/// The same for people.
fn when_full_text(of: &Value, clock: &Clock) -> (Option<String>, Option<String>) {
    let text = of["gives_up"].as_u64().map(|bytes| {
        let stays: Vec<String> = of["stays"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| {
                let bytes = human(one["bytes"].as_u64().unwrap_or(0));
                format!("{} {} would free {bytes} more", one["count"], one["why"].as_str().unwrap_or("?"))
            })
            .collect();
        let stays = if stays.is_empty() {
            String::new()
        } else {
            format!("; forgetting the {}", stays.join(", the "))
        };
        format!("{} of history may go{stays}. `yore resize` makes the volume longer", human(bytes))
    });
    let last = of["last"].as_object().map(|last| {
        let time = clock.of_json(&last["time"]);
        let note = printable(last["note"].as_str().unwrap_or_default().as_bytes());
        format!("{}, {}: {note}", time.unwrap_or_default(), human(last["bytes"].as_u64().unwrap_or(0)))
    });
    (text, last)
}

/// Versions that the full volume did not make.
fn missed_text(of: &Value, clock: &Clock) -> Option<String> {
    let count = of["count"].as_u64()?;
    let since = clock.of_json(&of["since"])?;
    Some(format!("{count} versions that policies ask for were not made since {since}: the volume is full"))
}

/// How many snapshots there are, and between which times.
fn json_snapshots(client: &dyn Client) -> yore_fs::Result<Value> {
    let rows = client.all_snapshots()?;
    let time = |row: Option<&ListedEvent>| row.map_or(Value::Null, |row| json_time(row.event.row.time));
    Ok(json!({ "count": rows.len(), "oldest": time(rows.first()), "newest": time(rows.last()) }))
}

/// What the superblock says, read without the lock.
fn of_superblock(volume: &Path) -> anyhow::Result<Value> {
    let options = OpenOptions { read_only: true, lock: false, ..OpenOptions::default() };
    let device =
        FileDevice::open(volume, options).map_err(|error| volume::explain(volume, Access::Read, error))?;
    let found = superblock::usable(volume, &device)?;
    let mut value = json!({
        "mounted": false,
        "label": found.label,
        "uuid": uuid::Uuid::from_bytes(found.uuid).to_string(),
        "engine": found.engine.name(),
        "generation": found.generation.0,
        "mount_id": found.mount_id,
        "size": found.volume_blocks * yore_device::BLOCK_SIZE as u64,
        "intent_log": { "size": found.log_blocks * yore_device::BLOCK_SIZE as u64 },
    });
    if let Some(log) = &found.external_log {
        json_name(&mut value["intent_log"], "path", &log.path);
    }
    json_name(&mut value, "volume", bytes_of(volume));
    Ok(value)
}

/// Facts about a volume that is not mounted.
fn of_volume(name: &Path, volume: &yore_fs::Volume) -> Value {
    let info = volume.info();
    let mut value = json!({
        "mounted": false,
        "pid": null,
        "label": info.label,
        "uuid": uuid::Uuid::from_bytes(info.uuid).to_string(),
        "format": format!("{}.{}", info.format.0, info.format.1),
        "engine": info.engine.name(),
        "state": info.state,
        "generation": info.generation,
        "mount_id": info.mount_id,
        "size": info.size,
        "groups": info.groups,
        "zones": info.zones,
        "metadata_blocks": info.metadata_blocks,
        "intent_log": { "size": info.log_size, "records_to_replay": volume.view().log_status().replayed },
        "created": json_seconds(info.created_seconds),
        "written": json_seconds(info.written_seconds),
        "space": Space::of_volume(&volume.statfs()).json(),
    });
    if let Some(path) = &info.log_path {
        json_name(&mut value["intent_log"], "path", bytes_of(path));
    }
    value["could_be"] = json_room(name, Some(info.size));
    json_name(&mut value, "volume", bytes_of(name));
    value
}

/// A line for people: a heading, and what is known.
type Line = (&'static str, Option<String>);

/// The same for people: one line for each fact that is known.
fn print_text(value: &Value, clock: &Clock) -> anyhow::Result<()> {
    let mut out = Out::new();
    let groups = [identity_lines(value, clock), space_lines(value, clock), past_lines(value, clock)];
    for (name, value) in groups.into_iter().flatten() {
        if let Some(value) = value {
            out.line(format_args!("{:<12}{value}", format!("{name}:")))?;
        }
    }
    out.done()
}

/// A fact as text.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(printable(text.as_bytes())),
        other => Some(other.to_string()),
    }
}

/// What the volume is, in which state, where it is mounted, and who serves it.
fn identity_lines(value: &Value, clock: &Clock) -> Vec<Line> {
    let pid = text(&value["pid"]).map(|pid| match text(&value["process"]) {
        Some(process) => format!("{pid} ({process})"),
        None => pid,
    });
    let (scrub, last_scrub) = scrub_texts(&value["scrub"], clock);
    vec![
        ("Volume", text(&value["volume"])),
        ("Label", text(&value["label"])),
        ("UUID", text(&value["uuid"])),
        ("Format", text(&value["format"])),
        ("Engine", text(&value["engine"])),
        ("State", text(&value["state"])),
        ("Stopped", stopped::text(&value["stopped"], clock)),
        ("Findings", findings_text(&value["findings"], clock)),
        ("Leaks", leaks_text(&value["leaks"])),
        ("Scrub", scrub),
        ("Last scrub", last_scrub),
        ("Left as", text(&value["state_found"])),
        ("As of", text(&value["at"])),
        ("Mounted on", text(&value["directory"])),
        ("Since", clock.of_json(&value["mounted_at"])),
        ("Daemon", pid),
        ("Options", text(&value["options"])),
        ("Log", text(&value["log"])),
    ]
}

/// How large it is, and what takes room.
fn space_lines(value: &Value, clock: &Clock) -> Vec<Line> {
    let size = value["size"].as_u64().map(|bytes| format!("{} ({bytes} bytes)", human(bytes)));
    let room = value["could_be"].as_u64().map(|size| {
        format!("{}: the file or device is longer than the volume, `yore resize` uses all of it", human(size))
    });
    let space = &value["space"];
    let use_of_space = space["size"].as_u64().map(|size| {
        let part = |key: &str| human(space[key].as_u64().unwrap_or(0));
        format!("{} used of {}, {} available", part("used"), human(size), part("available"))
    });
    let history = space["history"]["total"].as_u64().map(|total| {
        let part = |key: &str| human(space["history"][key].as_u64().unwrap_or(0));
        match total {
            0 => "none".to_string(),
            total => format!(
                "{}: {} of data, {} of metadata, {} to find them",
                human(total),
                part("data"),
                part("metadata"),
                part("index")
            ),
        }
    });
    let inodes = space["inodes"].as_u64().map(|inodes| {
        let free = space["inodes_free"].as_u64().unwrap_or(0);
        format!("{} in use, {free} more possible", inodes.saturating_sub(free))
    });
    let metadata = value["zones"].as_u64().map(|zones| {
        format!("{} blocks in {zones} zones, {} groups", value["metadata_blocks"], value["groups"])
    });
    let intent_log = value["intent_log"]["size"].as_u64().map(|size| {
        let size = match text(&value["intent_log"]["path"]) {
            _ if size == 0 => "none".to_string(),
            Some(path) => format!("{} on {path}", human(size)),
            None => human(size),
        };
        match value["intent_log"]["records_to_replay"].as_u64() {
            Some(records) if records > 0 => format!("{size}, {records} records to replay at the next mount"),
            _ => size,
        }
    });
    let (when_full, given_up) = when_full_text(&value["when_full"], clock);
    vec![
        ("Size", size),
        ("Could be", room),
        ("Space", use_of_space),
        ("History", history),
        ("When full", when_full),
        ("Given up", given_up),
        ("Missing", missed_text(&value["when_full"]["missed"], clock)),
        ("Inodes", inodes),
        ("Metadata", metadata),
        ("Intent log", intent_log),
    ]
}

/// Its snapshots, and what it has been through.
fn past_lines(value: &Value, clock: &Clock) -> Vec<Line> {
    let snapshots = &value["snapshots"];
    let count = snapshots["count"].as_u64().map(|count| {
        match (count, clock.of_json(&snapshots["oldest"]), clock.of_json(&snapshots["newest"])) {
            (0, ..) => "none".to_string(),
            (count, Some(oldest), Some(newest)) => format!("{count}, from {oldest} to {newest}"),
            (count, ..) => count.to_string(),
        }
    });
    let all = |key: &str, parted: &str, one: &dyn Fn(&Value) -> String| {
        let all = value[key].as_array().filter(|all| !all.is_empty());
        all.map(|all| all.iter().map(one).collect::<Vec<_>>().join(parted))
    };
    let part = |of: &Value, key: &str| text(&of[key]).unwrap_or_else(|| "?".into());
    let unfinished = all("unfinished", "; ", &|of| {
        let what = match of["stopped"].as_bool() {
            Some(true) => "did not end: do it again to finish it, or go back to before it",
            _ => "was interrupted: mounting finishes it",
        };
        format!("{} in {} {what}", part(of, "name"), part(of, "path"))
    });
    let others =
        all("mounted_snapshots", ", ", &|of| format!("{} on {}", part(of, "at"), part(of, "directory")));
    vec![
        ("Snapshots", count),
        ("Unfinished", unfinished),
        ("Mounted", others),
        ("Generation", text(&value["generation"])),
        ("Mounts", text(&value["mount_id"])),
        ("Created", clock.of_json(&value["created"])),
        ("Written", clock.of_json(&value["written"])),
    ]
}
