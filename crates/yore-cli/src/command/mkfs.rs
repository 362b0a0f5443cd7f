//! `mkfs`: makes a volume, but not over something that somebody wants to keep ([`crate::ground`]).

use super::policy;
use crate::args;
use crate::ground::{Ground, Wanted};
use crate::live;
use crate::output::{human, Out};
use crate::status::{self, Outcome};
use crate::volume;
use anyhow::Context as _;
use yore_format::layout::{VOLUME_BLOCKS_MAX, VOLUME_BLOCKS_MIN};
use yore_fs::{LogDevice, LogPlace, MkfsOptions, MountOptions, Policy, View};

/// Makes a volume.
pub fn run(args: &args::Mkfs) -> Outcome {
    let name = args.volume.display();
    let ground = Ground::find(Wanted {
        path: &args.volume,
        what: "a volume",
        file: ("image file", "volume.yore"),
        size: args.size,
        blocks: VOLUME_BLOCKS_MIN..=VOLUME_BLOCKS_MAX,
        force: args.force,
        is_private: true,
    })?;
    if args.label.len() > 64 {
        return Err(status::usage(format!(
            "the label has {} bytes; at most 64 are possible",
            args.label.len()
        )));
    }
    let policy = match args.policy.as_deref() {
        None => MkfsOptions::usual_policy(),
        Some(settings) => policy::of_new_volume(settings)?,
    };
    let rules =
        super::history::changed(yore_fs::DEFAULT_RULES, args.history_floor.as_deref(), args.history_share)?;
    live::wait_until_closed(&args.volume);
    let device = ground.device()?;
    let usual = || {
        let blocks = device.size() / yore_device::BLOCK_SIZE as u64;
        yore_meta::usual_log_blocks(args.engine.into(), blocks) * yore_device::BLOCK_SIZE as u64
    };
    let elsewhere = args.journal.as_deref().map(|path| {
        let size = args.log_size.or_else(|| std::fs::metadata(path).is_err().then(usual));
        let ground = super::journal::ground(path, size, args.force)?;
        let on = LogDevice { device: ground.device()?, path: volume::absolute(path)? };
        anyhow::Ok((ground, on))
    });
    let (journal_ground, journal) = match elsewhere.transpose() {
        Ok(elsewhere) => elsewhere.unzip(),
        Err(error) => {
            drop(device);
            ground.clear()?;
            return Err(error);
        }
    };
    let place = journal.clone().map_or(LogPlace::Recorded, LogPlace::On);
    let defaults = MkfsOptions::default();
    let options = MkfsOptions {
        uuid: args.uuid.map_or(defaults.uuid, |uuid| uuid.into_bytes()),
        label: args.label.clone(),
        engine: args.engine.into(),
        log_size: args.log_size,
        policy: policy.clone(),
        journal,
        data_checksums: args.data_checksums,
        // What is there was checked above, and may be overwritten.
        force: true,
        ..defaults
    };
    let made = View::mkfs(&device, &options).and_then(|info| {
        if let Some(rules) = rules {
            let options = MountOptions { journal: place, ..MountOptions::default() };
            let view = View::open(device.clone(), &options)?;
            view.set_space_rules(rules)?;
            view.close()?;
        }
        Ok(info)
    });
    let info = match made {
        Ok(info) => info,
        Err(error) => {
            drop((device, options));
            ground.clear()?;
            if let Some(ground) = &journal_ground {
                ground.clear()?;
            }
            return Err(error).with_context(|| format!("cannot make a volume on {name}"));
        }
    };
    let mut out = Out::new();
    let label = if info.label.is_empty() { String::new() } else { format!(" {:?}", info.label) };
    out.line(format_args!(
        "{name}: volume{label} of {}, engine {}, uuid {}",
        human(info.size),
        info.engine.name(),
        uuid::Uuid::from_bytes(info.uuid)
    ))?;
    if info.log_path.is_some() {
        out.line(format_args!("{name}: {}", super::journal::text(&info)))?;
    }
    match policy == Policy::default() {
        true => out.line("history: only the snapshots that somebody takes")?,
        false => out.line(format_args!("history:{}", policy::settings_text(&policy)))?,
    }
    out.done()?;
    Ok(status::OK)
}
