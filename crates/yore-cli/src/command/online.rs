//! `check --online`: has the daemon of a mount check the volume while it is in use.

use super::check::as_found;
use super::target::Target;
use crate::args;
use crate::mount::beside::Beside;
use crate::output::{print_json, Out};
use crate::progress::Progress;
use crate::status::{self, Ended, Outcome};
use anyhow::Context as _;
use serde_json::{json, Value};
use std::fs::File;
use yore_control::{Client, Mounted};
use yore_fs::Error;

/// Checks a mounted volume.
pub fn run(args: &args::Check) -> Outcome {
    let shown = args.volume.display();
    let directory = match Target::find(&args.volume)? {
        Target::Mounted { directory, .. } => directory,
        Target::Held { pid, command } => {
            let who =
                pid.map_or_else(|| "another process".into(), |pid| format!("process {pid} ({command})"));
            anyhow::bail!("{shown} is in use by {who}, which has not mounted it; wait until that is done")
        }
        Target::Free(volume) => {
            volume.close()?;
            anyhow::bail!("{shown} is not mounted; check it without --online")
        }
    };
    let client: Box<dyn Client> = match Beside::at(&directory) {
        Some(beside) => Box::new(beside),
        None => {
            let dir =
                File::open(&directory).with_context(|| format!("cannot open {}", directory.display()))?;
            Box::new(Mounted(dir))
        }
    };
    let mut progress = Progress::of_check(args.progress)?;
    let max = args.max_findings as u64;
    let done = match progress.is_shown() {
        true => client.check(max, args.memory, Some(&mut |done, total| progress.online(done, total))),
        false => client.check(max, args.memory, None),
    };
    progress.clear();
    let found = done.map_err(|error| match error {
        Error::Refused(why) => anyhow::anyhow!("{shown}: {why}"),
        error => anyhow::Error::new(error).context(format!("cannot check {shown}")),
    })?;
    let Some(found) = found else {
        let message = format!(
            "{shown}: the check was broken off, because it is being unmounted; nothing was recorded, so check it again"
        );
        return Err(Ended { message, status: status::BROKEN_OFF }.into());
    };
    if args.json {
        let mut value: Value =
            serde_json::from_str(&found.json).context("the daemon's report is not understood")?;
        as_found(&mut value, args, found.is_clean);
        value["online"] = json!(true);
        print_json(&value)?;
    } else {
        let mut out = Out::new();
        out.line(format_args!("{shown}: {}", found.text))?;
        out.done()?;
    }
    Ok(if found.is_clean { status::OK } else { status::FINDINGS })
}
