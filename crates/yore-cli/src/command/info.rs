//! `info` and `df`: of a mount by asking the kernel and the daemon's file, of a volume by opening it.

use super::stopped;
use crate::args;
use crate::inspect::superblock;
use crate::live::{self, Daemon};
use crate::output::{bytes_of, human, json_name, json_seconds, json_time, Clock, Out};
use crate::status::{self, Outcome};
use crate::volume::{self, Access};
use anyhow::Context as _;
use serde_json::{json, Value};
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use yore_control::{Client, Here, HistoryBytes, Mounted, Stopped};
use yore_device::{DeviceError, FileDevice, OpenOptions};
use yore_fs::rollback::UnfinishedRollback;
use yore_fs::{ListedEvent, MountOptions, Statfs, Stays};

/// Space, from whoever knows.
struct Space {
    size: u64,
    free: u64,
    available: u64,
    inodes: u64,
    inodes_free: u64,
    /// What only history holds; `None`: the daemon does not say so, to this user.
    history: Option<HistoryBytes>,
}

impl Space {
    fn of_mount(directory: &Path) -> anyhow::Result<Space> {
        let found = rustix::fs::statvfs(directory).map_err(|error| {
            let directory = directory.display();
            match error {
                rustix::io::Errno::NOTCONN => anyhow::anyhow!(
                    "the daemon that served {directory} is dead; mount the volume again, or `yore umount {directory}`"
                ),
                error => anyhow::anyhow!("cannot ask {directory}: {error}"),
            }
        })?;
        Ok(Space {
            size: found.f_blocks * found.f_frsize,
            free: found.f_bfree * found.f_frsize,
            available: found.f_bavail * found.f_frsize,
            inodes: found.f_files,
            inodes_free: found.f_ffree,
            // The daemon lives, as the kernel has just asked it.
            history: File::open(directory).ok().and_then(|dir| Mounted(dir).history_bytes().ok()),
        })
    }

    /// Of a volume that was opened for reading only, on which nothing is available just now: what would be,
    /// if it were opened for writing, is about what is free.
    fn of_volume(found: &Statfs) -> Space {
        use yore_format::layout::{ZONE_BLOCKS, ZONE_INDEXES};
        let block = u64::from(found.block_size);
        let inodes_per_zone = u64::from(ZONE_INDEXES) * yore_format::INODES_PER_BLOCK as u64;
        let possible = found.blocks_free / ZONE_BLOCKS * inodes_per_zone;
        Space {
            size: found.blocks * block,
            free: found.blocks_free * block,
            available: found.blocks_free * block,
            inodes: found.inodes + possible,
            inodes_free: found.inodes_free + possible,
            history: Some(HistoryBytes::of(found)),
        }
    }

    fn used(&self) -> u64 {
        self.size.saturating_sub(self.free)
    }

    /// What is used and would be without history, too.
    fn live(&self) -> Option<u64> {
        self.history.map(|history| self.used().saturating_sub(history.bytes()))
    }

    fn json(&self) -> Value {
        let history = self.history.map(|history| {
            json!({
                "total": history.bytes(), "data": history.files.data, "metadata": history.files.metadata,
                "index": history.index,
            })
        });
        json!({
            "live": self.live(), "history": history,
            "size": self.size, "used": self.used(), "free": self.free, "available": self.available,
            "inodes": self.inodes, "inodes_free": self.inodes_free,
        })
    }
}

/// The mount on a directory, or the one that the directory lies in.
fn mount_above(path: &Path) -> Option<live::Mount> {
    // A dead mount cannot be looked at, so the path as it was written comes first.
    live::mount_at(path).or_else(|| {
        let path = path.canonicalize().ok()?;
        let device = path.metadata().ok()?.dev();
        // Another file system may be mounted in between.
        let same = |above: &&Path| above.metadata().is_ok_and(|found| found.dev() == device);
        path.ancestors().skip(1).take_while(same).find_map(live::mount_at)
    })
}

/// What a target turned out to be.
enum Target {
    /// A mount, and its daemon if that can be seen; whether what the table of mounts has for the volume can
    /// be believed.
    Mounted { directory: PathBuf, volume: PathBuf, daemon: Option<Box<Daemon>>, is_trusted: bool },
    /// A volume that another process holds without having it mounted where we can see it.
    Held { pid: Option<u32>, command: String },
    /// A volume that nobody writes to.
    Free(Box<yore_fs::Volume>),
}

impl Target {
    fn find(path: &Path) -> anyhow::Result<Target> {
        // A dead mount cannot be looked at, but the table of mounts knows it.
        if path.is_dir() || path.symlink_metadata().is_err() {
            if let Some(mount) = mount_above(path) {
                let daemon = live::daemon_at(&mount.directory).map(Box::new);
                return Ok(Target::Mounted {
                    is_trusted: mount.is_trusted(),
                    directory: mount.directory,
                    volume: mount.volume,
                    daemon,
                });
            }
            anyhow::ensure!(
                !path.is_dir(),
                "{} is a directory on which, and above which, no volume is mounted; name a volume or a mount",
                path.display()
            );
        }
        live::wait_until_closed(path);
        if let Some(daemon) = live::daemon_of_volume(path).filter(Daemon::is_mounted) {
            let directory = daemon.directory.clone();
            return Ok(Target::Mounted {
                is_trusted: true,
                directory,
                volume: daemon.volume.clone(),
                daemon: Some(Box::new(daemon)),
            });
        }
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        match FileDevice::open(path, options) {
            Err(DeviceError::Busy { holder, .. }) => {
                let (pid, command) = holder.map_or((None, String::new()), |h| (Some(h.pid), h.command));
                Ok(Target::Held { pid, command })
            }
            Err(error) => Err(volume::explain(path, Access::Read, error)),
            Ok(device) => {
                let options = MountOptions { read_only: true, ..MountOptions::default() };
                Ok(Target::Free(Box::new(volume::open_on(path, std::sync::Arc::new(device), &options)?)))
            }
        }
    }
}

/// Facts about a volume.
pub fn info(args: &args::Info) -> Outcome {
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
            value["snapshots"] = json_snapshots(&client.all_snapshots()?);
            value["unfinished"] = json_unfinished(&client.unfinished_rollbacks()?);
            value["when_full"] = json_when_full(&client)?;
            drop(client);
            open.close().with_context(|| format!("cannot close {}", args.target.display()))?;
            value
        }
    };
    let mut out = Out::new();
    match args.json {
        true => out.line(serde_json::to_string_pretty(&value)?)?,
        false => print_text(&mut out, &value, &Clock::new(args.utc))?,
    }
    out.done()?;
    Ok(status::OK)
}

/// Of a volume that is mounted: the daemon knows what it is, the kernel how full.
fn of_mount(
    directory: &Path,
    volume: &Path,
    daemon: Option<Box<Daemon>>,
    is_trusted: bool,
) -> anyhow::Result<Value> {
    let space = Space::of_mount(directory)?;
    let snapshot = daemon.as_ref().and_then(|daemon| daemon.snapshot_at(directory));
    // The table of mounts has the time of a snapshot behind the volume's name.
    let volume = daemon.as_ref().map_or(volume, |daemon| &daemon.volume);
    let mut value = match &daemon {
        Some(daemon) => json!({
            "label": daemon.label,
            "uuid": daemon.uuid,
            "format": format!("{}.{}", daemon.format.0, daemon.format.1),
            "engine": daemon.engine,
            "read_only": daemon.read_only || snapshot.is_some(),
            "options": daemon.options,
            "log": daemon.log,
            "pid": daemon.pid,
            "mount_id": daemon.mount_id,
            "state_found": daemon.state_found,
            "mounted_at": json_seconds(daemon.mounted_seconds),
            "intent_log": { "size": daemon.intent_log },
        }),
        // Another user's daemon: what the medium says, and who holds it.
        None if is_trusted => {
            let mut value = of_superblock(volume).unwrap_or_else(|_| json!({}));
            value["pid"] = json!(volume::holder(volume));
            value
        }
        // Whoever mounted it chose what stands in the table: nothing of that name is opened.
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
    // Who may not read the mount point is told the rest.
    value["snapshots"] = File::open(directory)
        .map_err(anyhow::Error::new)
        .and_then(|dir| Ok(Mounted(dir).all_snapshots()?))
        .map_or(Value::Null, |rows| json_snapshots(&rows));
    value["unfinished"] = File::open(directory)
        .map_err(anyhow::Error::new)
        .and_then(|dir| Ok(Mounted(dir).unfinished_rollbacks()?))
        .map_or(Value::Null, |all| json_unfinished(&all));
    let when_full = File::open(directory).map(|dir| json_when_full(&Mounted(dir)));
    value["when_full"] = when_full.ok().and_then(Result::ok).unwrap_or(Value::Null);
    Ok(value)
}

/// Rollbacks that are not finished, with the paths on the volume of their directories.
fn json_unfinished(all: &[(UnfinishedRollback, Option<Vec<u8>>)]) -> Value {
    let one = |(of, path): &(UnfinishedRollback, Option<Vec<u8>>)| {
        let mut value = json!({ "name": of.name, "stopped": of.stopped, "path": Value::Null });
        if let Some(path) = path {
            json_name(&mut value, "path", path);
        }
        value
    };
    all.iter().map(one).collect()
}

/// How long a volume could be, if its file or device is longer than it; `null` if not, or if that cannot be
/// seen.
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
        let time = last["time"].as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
        let time =
            time.and_then(|time| u64::try_from(time.as_second()).ok()).map(|seconds| clock.seconds(seconds));
        let note = crate::output::printable(last["note"].as_str().unwrap_or_default().as_bytes());
        format!("{}, {}: {note}", time.unwrap_or_default(), human(last["bytes"].as_u64().unwrap_or(0)))
    });
    (text, last)
}

/// Versions that the full volume did not make.
fn missed_text(of: &Value, clock: &Clock) -> Option<String> {
    let count = of["count"].as_u64()?;
    let since = of["since"].as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok())?;
    let since = clock.seconds(u64::try_from(since.as_second()).ok()?);
    Some(format!("{count} versions that policies ask for were not made since {since}: the volume is full"))
}

/// How many there are, and between which times.
fn json_snapshots(rows: &[ListedEvent]) -> Value {
    let time = |row: Option<&ListedEvent>| row.map_or(Value::Null, |row| json_time(row.event.row.time));
    json!({ "count": rows.len(), "oldest": time(rows.first()), "newest": time(rows.last()) })
}

/// What the superblock says, without asking whoever holds the volume.
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
    json_name(&mut value, "volume", bytes_of(volume));
    Ok(value)
}

/// Of a volume that is not mounted.
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
    value["could_be"] = json_room(name, Some(info.size));
    json_name(&mut value, "volume", bytes_of(name));
    value
}

/// The same for people: one line for each fact that is known.
fn print_text(out: &mut Out, value: &Value, clock: &Clock) -> anyhow::Result<()> {
    let text = |key: &str| match &value[key] {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(crate::output::printable(text.as_bytes())),
        other => Some(other.to_string()),
    };
    let seconds = |value: &Value| {
        let instant: jiff::Timestamp = value.as_str()?.parse().ok()?;
        Some(clock.seconds(u64::try_from(instant.as_second()).ok()?))
    };
    let time = |key: &str| seconds(&value[key]);
    let room = value["could_be"].as_u64().map(|size| {
        format!("{}: the file or device is longer than the volume, `yore resize` uses all of it", human(size))
    });
    let snapshots = value["snapshots"]["count"].as_u64().map(|count| {
        let times = (seconds(&value["snapshots"]["oldest"]), seconds(&value["snapshots"]["newest"]));
        match (count, times) {
            (0, _) => "none".to_string(),
            (count, (Some(oldest), Some(newest))) => format!("{count}, from {oldest} to {newest}"),
            (count, _) => count.to_string(),
        }
    });
    let bytes = |value: &Value| value.as_u64().map(|bytes| format!("{} ({bytes} bytes)", human(bytes)));
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
    let metadata = value["zones"].as_u64().map(|zones| {
        format!("{} blocks in {zones} zones, {} groups", value["metadata_blocks"], value["groups"])
    });
    let inodes = space["inodes"].as_u64().map(|inodes| {
        let free = space["inodes_free"].as_u64().unwrap_or(0);
        format!("{} in use, {free} more possible", inodes.saturating_sub(free))
    });
    let pid = text("pid").map(|pid| match text("process") {
        Some(process) => format!("{pid} ({process})"),
        None => pid,
    });
    let intent_log = value["intent_log"]["size"].as_u64().map(|size| {
        let size = if size == 0 { "none".to_string() } else { human(size) };
        match value["intent_log"]["records_to_replay"].as_u64() {
            Some(records) if records > 0 => format!("{size}, {records} records to replay at the next mount"),
            _ => size,
        }
    });
    let others = value["mounted_snapshots"].as_array().filter(|all| !all.is_empty()).map(|all| {
        let one = |of: &Value| {
            let text = |key: &str| crate::output::printable(of[key].as_str().unwrap_or_default().as_bytes());
            format!("{} on {}", text("at"), text("directory"))
        };
        all.iter().map(one).collect::<Vec<_>>().join(", ")
    });
    let unfinished = value["unfinished"].as_array().filter(|all| !all.is_empty()).map(|all| {
        let one = |of: &Value| {
            let text = |key: &str| crate::output::printable(of[key].as_str().unwrap_or("?").as_bytes());
            let what = match of["stopped"].as_bool() {
                Some(true) => "did not end: do it again to finish it, or go back to before it",
                _ => "was interrupted: mounting finishes it",
            };
            format!("{} in {} {what}", text("name"), text("path"))
        };
        all.iter().map(one).collect::<Vec<_>>().join("; ")
    });
    let (when_full, given_up) = when_full_text(&value["when_full"], clock);
    let lines = [
        ("Volume", text("volume")),
        ("Label", text("label")),
        ("UUID", text("uuid")),
        ("Format", text("format")),
        ("Engine", text("engine")),
        ("State", text("state")),
        ("Stopped", stopped::text(&value["stopped"], clock)),
        ("Left as", text("state_found")),
        ("As of", text("at")),
        ("Mounted on", text("directory")),
        ("Since", time("mounted_at")),
        ("Daemon", pid),
        ("Options", text("options")),
        ("Log", text("log")),
        ("Size", bytes(&value["size"])),
        ("Could be", room),
        ("Space", use_of_space),
        ("History", history),
        ("When full", when_full),
        ("Given up", given_up),
        ("Missing", missed_text(&value["when_full"]["missed"], clock)),
        ("Inodes", inodes),
        ("Metadata", metadata),
        ("Intent log", intent_log),
        ("Snapshots", snapshots),
        ("Unfinished", unfinished),
        ("Mounted", others),
        ("Generation", text("generation")),
        ("Mounts", text("mount_id")),
        ("Created", time("created")),
        ("Written", time("written")),
    ];
    for (name, value) in lines {
        if let Some(value) = value {
            out.line(format_args!("{:<12}{value}", format!("{name}:")))?;
        }
    }
    Ok(())
}

/// Space on volumes.
pub fn df(args: &args::Df) -> Outcome {
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
    let mut out = Out::new();
    match args.json {
        true => out.line(serde_json::to_string_pretty(&rows.iter().map(json_row).collect::<Vec<_>>())?)?,
        false => print_rows(&mut out, args.inodes, &rows)?,
    }
    out.done()?;
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
    match &row.directory {
        Some(directory) => json_name(&mut value, "directory", bytes_of(directory)),
        None => value["directory"] = Value::Null,
    }
    value["stopped"] = row.stopped.as_ref().map_or(Value::Null, stopped::json);
    value
}

fn print_rows(out: &mut Out, inodes: bool, rows: &[Row]) -> anyhow::Result<()> {
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
        let directory =
            row.directory.as_ref().map_or(String::new(), |d| crate::output::printable(bytes_of(d)));
        let volume = crate::output::printable(bytes_of(&row.volume));
        out.line(columns(&volume, &cells, &percent, &directory))?;
    }
    Ok(())
}
