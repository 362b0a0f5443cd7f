//! `check`.

use crate::args;
use crate::output::{print_json, Out};
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
    let options = CheckOptions { findings_max: args.max_findings, log };
    let report = yore_check::check(device.as_ref(), &options)?;
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
