//! `check`: says what is wrong with a volume, repairs it, and takes a repair back.
//!
//! A repair is planned in memory, shown, and written only if nothing would be found after it. What it
//! overwrites goes to the undo file first.

use crate::args::{self, Repair};
use crate::output::{print_json, Out};
use crate::progress::Progress;
use crate::status::{self, Outcome};
use crate::volume::{self, Access};
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use yore_check::{CheckOptions, Finding, Plan, Problem, Report};
use yore_device::Device;
use yore_fs::LogPlace;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Nothing was found, or only an estimate was asked for.
    Sound,
    /// What was found is repaired.
    Repaired,
    /// Something is wrong, and stays so.
    Findings,
}

/// Checks a volume, repairs it, or takes a repair back.
pub fn run(args: &args::Check) -> Outcome {
    Ok(match ending(args)? {
        Ending::Sound | Ending::Repaired => status::OK,
        Ending::Findings => status::FINDINGS,
    })
}

/// As [`run`], and says how it ended.
///
/// # Errors
/// The volume cannot be checked, or written.
pub fn ending(args: &args::Check) -> anyhow::Result<Ending> {
    let device = volume::open_device(&args.volume, Access::of(args.repair.is_some() || args.undo))?;
    let device = device.as_ref();
    if args.undo {
        return undo(args, device);
    }
    let log = match args.without_journal {
        true => LogPlace::Without,
        false => volume::log_place(args.journal.as_deref(), Access::Read)?,
    };
    let options = CheckOptions {
        findings_max: args.max_findings,
        log,
        memory: args.memory,
        give_up_past: args.give_up_past,
        shorten: args.shorten,
        ..CheckOptions::default()
    };
    if args.estimate {
        return estimate(args, device, &options);
    }
    let mut shown = Progress::of_check(args.progress)?;
    let report = match shown.is_shown() {
        true => yore_check::check_watched(device, &options, &mut |at| shown.check(at)),
        false => yore_check::check(device, &options),
    };
    shown.clear();
    let report = report?;
    if let (false, Some(how @ (Repair::All | Repair::Ask))) = (report.is_clean(), args.repair) {
        return repair(args, how, &report, device, &options);
    }
    let mut marked = false;
    if args.repair.is_some() && report.is_clean() && report.state != yore_format::VolumeState::Clean {
        yore_check::mark_checked(device)?;
        marked = true;
    }
    // What an earlier check of the volume in use has recorded does not hold any more.
    let recorded = match report.is_clean() {
        true => yore_check::recorded_findings(device)?,
        false => None,
    };
    let is_emptied = recorded.is_some() && args.repair.is_some() && yore_check::forget_findings(device)?;
    if args.json {
        let mut value = as_json(args, &report)?;
        value["marked_clean"] = json!(marked);
        value["record_emptied"] = json!(is_emptied);
        print_json(&value)?;
    } else {
        let mut out = Out::new();
        out.line(format_args!("{}: {report}", args.volume.display()))?;
        if marked {
            out.line(format_args!("{}: marked clean", args.volume.display()))?;
        }
        if let Some(record) = recorded {
            let (volume, count) = (args.volume.display(), record.count);
            match is_emptied {
                true => out.line(format_args!("{volume}: {count} recorded findings do not hold any more"))?,
                false => out.line(format_args!(
                    "{volume}: {count} findings are recorded that do not hold any more; --repair empties the record"
                ))?,
            }
        }
        out.done()?;
    }
    Ok(if report.is_clean() { Ending::Sound } else { Ending::Findings })
}

/// A report, and what a repair does about each finding.
fn as_json(args: &args::Check, report: &Report) -> anyhow::Result<Value> {
    let mut value = serde_json::to_value(report)?;
    as_found(&mut value, args, report.is_clean());
    for (i, finding) in report.findings.iter().enumerate() {
        value["findings"][i]["repair"] = json!(yore_check::repair_of(finding.problem));
    }
    Ok(value)
}

/// Adds what every report has as JSON.
pub fn as_found(value: &mut Value, args: &args::Check, is_clean: bool) {
    value["volume"] = json!(args.volume.to_string_lossy());
    value["clean"] = json!(is_clean);
    value["marked_clean"] = json!(false);
}

/// Where the undo file is.
fn undo_file(args: &args::Check) -> anyhow::Result<PathBuf> {
    if let Some(path) = &args.undo_file {
        return Ok(path.clone());
    }
    if !is_image(&args.volume) {
        let volume = args.volume.display();
        return Err(status::usage(format!(
            "{volume} is no image file; say where the undo file is with --undo-file PATH"
        )));
    }
    let mut name = args.volume.clone().into_os_string();
    name.push(".undo");
    Ok(name.into())
}

/// Whether a volume is in an image file, so that there is a place beside it.
pub fn is_image(volume: &Path) -> bool {
    volume.metadata().is_ok_and(|found| found.is_file())
}

/// Repairs what was found, if all of it can be.
fn repair(
    args: &args::Check,
    how: Repair,
    report: &Report,
    device: &dyn Device,
    options: &CheckOptions,
) -> anyhow::Result<Ending> {
    let undo_file = undo_file(args)?;
    let mut plan = yore_check::plan_repair(device, options)?;
    if !args.json {
        let mut out = Out::new();
        out.line(format_args!("{}: {report}", args.volume.display()))?;
        show(args, &plan, &mut out)?;
        out.done()?;
    }
    let mut is_wanted = plan.is_complete();
    if is_wanted && how == Repair::Ask {
        let left = ask(args, &plan, &undo_file)?;
        is_wanted = left.as_ref().is_some_and(|left| left.len() < plan.before.findings.len());
        if let Some(left) = left.filter(|left| !left.is_empty() && is_wanted) {
            plan = yore_check::plan_repair_leaving(device, options, &left)?;
            is_wanted = plan.is_complete();
            if !args.json {
                let mut out = Out::new();
                out.line("with what is left as it is:")?;
                show(args, &plan, &mut out)?;
                out.done()?;
            }
        }
    }
    let written = match is_wanted {
        true => Some(plan.apply(&undo_file)?),
        false => None,
    };
    if args.json {
        let mut value = as_json(args, report)?;
        add_effects(&mut value, report, &plan)?;
        value["repair"] = json!({
            "complete": plan.is_complete(),
            "done": plan.done,
            "lost": plan.lost,
            "log_records": plan.log_records,
            "remaining": plan.remaining().collect::<Vec<_>>(),
            "left": plan.left(),
            "blocks_written": written.unwrap_or(0),
            "undo_file": written.map(|_| undo_file.to_string_lossy()),
        });
        print_json(&value)?;
    } else if let Some(blocks) = written {
        let (volume, path) = (args.volume.display(), undo_file.display());
        let mut out = Out::new();
        out.line(format_args!(
            "{volume}: repaired, {blocks} blocks written; until it is mounted for writing, \
             `yore check --undo --undo-file {path} {volume}` takes that back"
        ))?;
        out.done()?;
    }
    Ok(if written.is_some() && plan.left().is_empty() { Ending::Repaired } else { Ending::Findings })
}

/// Says what a repair does, what is lost, and what it cannot do.
fn show(args: &args::Check, plan: &Plan<'_>, out: &mut Out) -> anyhow::Result<()> {
    if plan.log_records > 0 {
        out.line(format_args!("repair: {} records of the log are put in place first", plan.log_records))?;
    }
    let mut done: BTreeMap<(yore_check::Problem, &str), u64> = BTreeMap::new();
    for step in &plan.done {
        *done.entry((step.finding.problem, step.repair)).or_default() += 1;
    }
    for ((problem, words), count) in done {
        out.line(format_args!("repair: {count} times {}: {words}", problem.text()))?;
    }
    for lost in &plan.lost {
        out.line(format_args!("lost: {}: {}", lost.path, lost.what))?;
    }
    if plan.is_complete() {
        return Ok(());
    }
    for finding in plan.remaining() {
        let why = match yore_check::repair_of(finding.problem) {
            _ if !plan.left().is_empty() => "this cannot be repaired as long as what is left is there",
            None => "this finding has no repair yet",
            Some(_) => "this finding cannot be repaired here",
        };
        out.line(format_args!("{why}: {finding}"))?;
    }
    if !args.give_up_past && plan.remaining().any(yore_check::Finding::is_of_past) {
        out.line("perhaps --give-up-past helps: it gives up the past, and repairs the present")?;
    }
    if !args.shorten && plan.remaining().any(|finding| finding.problem == Problem::DeviceTooShort) {
        out.line(
            "bring the rest of the device or image back if that can be; if not, --shorten gives up what lay there, and \
             repairs the rest",
        )?;
    }
    out.line("nothing was written; copy what can be read (yore get -r) to another volume")?;
    Ok(())
}

/// Adds to each finding what the repair does about it, and what is lost by that.
fn add_effects(value: &mut Value, report: &Report, plan: &Plan<'_>) -> anyhow::Result<()> {
    let mut effects: BTreeMap<String, Value> = BTreeMap::new();
    for step in &plan.done {
        let effect = json!({ "repair": step.repair, "round": step.round, "lost": step.lost });
        effects.entry(serde_json::to_string(&step.finding)?).or_insert(effect);
    }
    for (i, finding) in report.findings.iter().enumerate() {
        let effect = effects.get(&serde_json::to_string(finding)?);
        value["findings"][i]["effect"] = effect.cloned().unwrap_or(Value::Null);
    }
    Ok(())
}

/// What findings are asked about together: those of an inode, or those of one kind in a zone.
fn group_of(finding: &Finding) -> (Option<u64>, Option<Problem>, Option<u32>) {
    match finding.inode {
        Some(inode) => (Some(inode.0), None, None),
        None => (None, Some(finding.problem), finding.addr.map(|addr| addr.zone().0)),
    }
}

/// Findings of a group that are shown.
const SHOWN_MAX: usize = 5;

/// Asks about each group of findings whether to repair it: of all that the repair has found, however many
/// are shown. Returns those that are to be left; `None` if nothing is to be written.
fn ask(args: &args::Check, plan: &Plan<'_>, undo_file: &Path) -> anyhow::Result<Option<Vec<Finding>>> {
    let before = &plan.before;
    if before.findings_count > before.findings.len() as u64 {
        let (volume, count) = (args.volume.display(), before.findings_count);
        let most = before.findings.len();
        anyhow::bail!(
            "{volume} was left as it is: it has {count} findings, and --repair=ask can ask about {most}; repair all \
             with --repair, which --undo takes back"
        );
    }
    let mut groups: Vec<Vec<&Finding>> = Vec::new();
    let mut places = BTreeMap::new();
    for finding in &before.findings {
        let at = *places.entry(group_of(finding)).or_insert(groups.len());
        if at == groups.len() {
            groups.push(Vec::new());
        }
        groups[at].push(finding);
    }
    status::tell(format_args!("What the repair overwrites goes to {}.", undo_file.display()));
    let (mut left, count) = (Vec::new(), groups.len());
    for (n, group) in groups.into_iter().enumerate() {
        for finding in group.iter().take(SHOWN_MAX) {
            status::tell(format_args!("{finding}"));
        }
        if group.len() > SHOWN_MAX {
            status::tell(format_args!("and {} more of the same place", group.len() - SHOWN_MAX));
        }
        let of_group = plan.done.iter().filter(|step| group.contains(&&step.finding));
        let (mut said, mut lost) = (Vec::new(), Vec::new());
        for step in of_group {
            if !said.contains(&step.repair) {
                said.push(step.repair);
            }
            lost.extend(step.lost.iter().filter(|loss| !lost.contains(loss)).collect::<Vec<_>>());
        }
        match said.is_empty() {
            true => status::tell("  the repair of other findings puts that right"),
            false => status::tell(format_args!("  repair: {}", said.join("; "))),
        }
        for loss in lost {
            status::tell(format_args!("  lost: {}: {}", loss.path, loss.what));
        }
        match answer(&format!("Repair this ({} of {count})? [y/n/a/q] ", n + 1))? {
            Answer::Yes => {}
            Answer::No => left.extend(group.into_iter().cloned()),
            Answer::All => break,
            Answer::Quit => return Ok(None),
        }
    }
    Ok(Some(left))
}

/// What people say.
enum Answer {
    Yes,
    No,
    All,
    Quit,
}

/// Asks until there is an answer. The end of the input is one, too.
fn answer(question: &str) -> anyhow::Result<Answer> {
    loop {
        status::ask(question);
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line)? == 0 {
            return Ok(Answer::Quit);
        }
        match line.trim().to_lowercase().as_str() {
            "y" | "yes" => return Ok(Answer::Yes),
            "n" | "no" => return Ok(Answer::No),
            "a" | "all" => return Ok(Answer::All),
            "q" | "quit" => return Ok(Answer::Quit),
            _ => status::tell(
                "y: repair it, n: leave it as it is, a: repair this and all that follow, q: write nothing",
            ),
        }
    }
}

/// Takes a repair back.
fn undo(args: &args::Check, device: &dyn Device) -> anyhow::Result<Ending> {
    let undo_file = undo_file(args)?;
    let blocks = yore_check::undo_repair(device, &undo_file)?;
    if args.json {
        print_json(&json!({
            "volume": args.volume.to_string_lossy(),
            "undo_file": undo_file.to_string_lossy(),
            "blocks_written": blocks,
        }))?;
        return Ok(Ending::Sound);
    }
    let mut out = Out::new();
    out.line(format_args!("{}: as before the repair, {blocks} blocks written", args.volume.display()))?;
    out.done()?;
    Ok(Ending::Sound)
}

/// Says how long a check would take.
fn estimate(args: &args::Check, device: &dyn Device, options: &CheckOptions) -> anyhow::Result<Ending> {
    let estimate = yore_check::estimate(device, options)?;
    if args.json {
        let mut value = serde_json::to_value(estimate)?;
        value["volume"] = json!(args.volume.to_string_lossy());
        print_json(&value)?;
        return Ok(Ending::Sound);
    }
    let mut out = Out::new();
    let (seconds, blocks, zones) = (estimate.time.as_secs_f64(), estimate.blocks, estimate.zones);
    let volume = args.volume.display();
    out.line(format_args!("{volume}: about {seconds:.1} s for {blocks} metadata blocks in {zones} zones"))?;
    out.done()?;
    Ok(Ending::Sound)
}
