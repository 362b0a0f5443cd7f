//! `check`.

use crate::args;
use crate::output::{print_json, Out};
use crate::progress::Progress;
use crate::status::{self, Outcome};
use crate::volume::{self, Access};
use yore_check::CheckOptions;
use yore_fs::LogPlace;

/// Checks a volume, and with `--repair` marks a sound one clean.
pub fn run(args: &args::Check) -> Outcome {
    let device = volume::open_device(&args.volume, Access::of(args.repair))?;
    let log = match args.without_journal {
        true => LogPlace::Without,
        false => volume::log_place(args.journal.as_deref(), Access::Read)?,
    };
    let options =
        CheckOptions { findings_max: args.max_findings, log, memory: args.memory, ..CheckOptions::default() };
    if args.estimate {
        return estimate(args, device.as_ref(), &options);
    }
    let mut shown = Progress::of_check(args.progress)?;
    let report = match shown.is_shown() {
        true => yore_check::check_watched(device.as_ref(), &options, &mut |at| shown.check(at)),
        false => yore_check::check(device.as_ref(), &options),
    };
    shown.clear();
    let report = report?;
    let clean = report.is_clean();
    let mut marked = false;
    if args.repair && clean && report.state != yore_format::VolumeState::Clean {
        yore_check::mark_checked(device.as_ref())?;
        marked = true;
    }
    if args.json {
        let mut value = serde_json::to_value(&report)?;
        value["volume"] = serde_json::json!(args.volume.to_string_lossy());
        value["clean"] = serde_json::json!(clean);
        value["marked_clean"] = serde_json::json!(marked);
        print_json(&value)?;
    } else {
        let mut out = Out::new();
        out.line(format_args!("{}: {report}", args.volume.display()))?;
        if marked {
            out.line(format_args!("{}: marked clean", args.volume.display()))?;
        }
        if args.repair && !clean {
            out.line(
                "nothing was repaired: only the volume's state can be repaired so far; copy what can be read \
                 (yore get -r) to another volume",
            )?;
        }
        out.done()?;
    }
    Ok(if clean { status::OK } else { status::FINDINGS })
}

/// Says how long a check would take.
fn estimate(args: &args::Check, device: &dyn yore_device::Device, options: &CheckOptions) -> Outcome {
    let estimate = yore_check::estimate(device, options)?;
    if args.json {
        let mut value = serde_json::to_value(estimate)?;
        value["volume"] = serde_json::json!(args.volume.to_string_lossy());
        print_json(&value)?;
        return Ok(status::OK);
    }
    let mut out = Out::new();
    let (seconds, blocks, zones) = (estimate.time.as_secs_f64(), estimate.blocks, estimate.zones);
    let volume = args.volume.display();
    out.line(format_args!("{volume}: about {seconds:.1} s for {blocks} metadata blocks in {zones} zones"))?;
    out.done()?;
    Ok(status::OK)
}
