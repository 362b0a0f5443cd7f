//! `journal`: where a volume has its log, and how long that is.

use crate::args;
use crate::ground::{Ground, Wanted};
use crate::output::{bytes_of, human, json_name, print_json, Out};
use crate::status::{self, Outcome};
use crate::volume::{self, Access};
use anyhow::Context as _;
use serde_json::json;
use std::path::Path;
use yore_check::CheckOptions;
use yore_format::VolumeState;
use yore_fs::{Engine, LogDevice, LogPlace, MountOptions, MoveLog, VolumeInfo};
use yore_log::{REGION_BLOCKS_MAX, REGION_BLOCKS_MIN};

const BLOCK: u64 = yore_device::BLOCK_SIZE as u64;
/// Blocks of a log's device that hold no records.
const ANCHOR_BLOCKS: u64 = 2;

/// Shows or changes it.
pub fn run(args: &args::Journal) -> Outcome {
    if args.give_up {
        give_up(&args.volume)?;
        return Ok(status::OK);
    }
    let changes = args.to.is_some() || args.inside || args.size.is_some();
    let device = volume::open_device(&args.volume, Access::of(changes))?;
    let journal = volume::log_place(args.journal.as_deref(), Access::of(changes))?;
    let options = MountOptions { read_only: !changes, journal, ..MountOptions::default() };
    let volume = volume::open_on(&args.volume, device, &options)?;
    let moved = if changes { move_log(args, volume.view()) } else { Ok(()) };
    let info = volume.info();
    // A refusal has changed nothing, and the volume is closed in any case.
    let closed = volume.close();
    moved.with_context(|| format!("the log of {} stays where it is", args.volume.display()))?;
    closed.with_context(|| format!("cannot close {}", args.volume.display()))?;
    tell(args, &info)?;
    Ok(status::OK)
}

/// Where a log can be made on a path, and how long it will be.
///
/// # Errors
/// Why it cannot.
pub fn ground(path: &Path, size: Option<u64>, force: bool) -> anyhow::Result<Ground<'_>> {
    Ground::find(Wanted {
        path,
        what: "a log",
        file: ("file", "volume.log"),
        size,
        blocks: REGION_BLOCKS_MIN + ANCHOR_BLOCKS..=REGION_BLOCKS_MAX,
        force,
        is_private: true,
    })
}

fn move_log(args: &args::Journal, view: &yore_fs::View) -> anyhow::Result<()> {
    let info = view.info();
    let Some(path) = &args.to else {
        if !args.inside && info.log_path.is_some() {
            return Err(status::usage(
                "the log is not in the volume: say where it shall be, with --to PATH or --inside",
            ));
        }
        let usual = yore_meta::usual_log_blocks(info.engine, info.size / BLOCK);
        let blocks = args.size.map_or(usual, |size| size.div_ceil(BLOCK));
        return Ok(view.move_log(&MoveLog::Inside(blocks))?);
    };
    let usual = yore_meta::usual_log_blocks(info.engine, info.size / BLOCK) * BLOCK;
    let is_there = std::fs::metadata(path).is_ok();
    let ground = ground(path, args.size.or((!is_there).then_some(usual)), args.force)?;
    let on = LogDevice { device: ground.device()?, path: volume::absolute(path)? };
    // What is there was looked at, and may be overwritten; but not a log that serves another volume.
    let moved = view.move_log(&MoveLog::Elsewhere { on, force: args.force });
    if moved.is_err() && !is_there {
        ground.clear()?;
    }
    Ok(moved?)
}

fn tell(args: &args::Journal, info: &VolumeInfo) -> anyhow::Result<()> {
    if args.json {
        let mut value = json!({ "size": info.log_size, "elsewhere": info.log_path.is_some() });
        if let Some(path) = &info.log_path {
            json_name(&mut value, "path", bytes_of(path));
        }
        json_name(&mut value, "volume", bytes_of(&args.volume));
        return print_json(&value);
    }
    let mut out = Out::new();
    out.line(format_args!("{}: {}", args.volume.display(), text(info)))?;
    out.done()
}

/// Where the log is, for people.
pub fn text(info: &VolumeInfo) -> String {
    match &info.log_path {
        _ if info.log_size == 0 => "no log".into(),
        None => format!("a log of {} in the volume", human(info.log_size)),
        Some(path) if path.as_os_str().is_empty() => {
            format!("a log of {} on a device of its own", human(info.log_size))
        }
        Some(path) => format!("a log of {} on {}", human(info.log_size), path.display()),
    }
}

/// Forgets a log that is gone, if the volume is whole without it.
fn give_up(path: &Path) -> anyhow::Result<()> {
    let name = path.display();
    let device = volume::open_device(path, Access::Write)?;
    let found = crate::inspect::superblock::usable(path, device.as_ref())?;
    if found.external_log.is_some() && found.engine == Engine::Journal && found.state != VolumeState::Clean {
        // Blocks may have been written over since the last superblock.
        let options = CheckOptions { log: LogPlace::Without, ..CheckOptions::default() };
        let report = yore_check::check(device.as_ref(), &options)?;
        anyhow::ensure!(
            report.is_clean(),
            "{name} is not whole without its log: a check finds {} faults, since the volume was in use when the log went. Find the \
             log, restore a backup, or copy what can be read (`yore mount -o ro,journal=none`); nothing was changed",
            report.findings_count
        );
    }
    let info = yore_fs::View::give_up_log(&device)?;
    let lost = match found.state {
        VolumeState::Clean => "nothing is lost, for it was unmounted",
        _ => "what was only in the log is lost",
    };
    status::tell(format_args!(
        "{name}: the log is given up, and {lost}; the engine is {}",
        info.engine.name()
    ));
    Ok(())
}
