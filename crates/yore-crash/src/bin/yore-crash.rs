//! Crash tests from the command line: run many, or replay one.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use yore_crash::campaign::{try_case, Campaign, Summary};
use yore_crash::case::Case;
use yore_crash::generate::Profile;
use yore_crash::totals::Totals;
use yore_fs::Engine;

const USAGE: &str = "\
usage: yore-crash run [--states N] [--seed S] [--ops N] [--engine E]   try N crash states (20000)
       yore-crash expunge [--states N] [--seed S] [--ops N] [--engine E]   the same, with files expunged from snapshots
       yore-crash compare [--sequences N] [--seed S] [--ops N] [--engine E]   compare with the model
       yore-crash full [--sequences N] [--seed S] [--ops N] [--engine E]   the same on volumes that are too small
       yore-crash campaign [--seconds N] [--states N] [--seed S] [--save FILE] [--json FILE] [--engine E]
                                try crash states for that long or that many, go on after failures; with a FILE to save
                                to, go on where the campaign in it was left
       yore-crash cases         count the cases of the systematic part
       yore-crash replay LINE   do again what a printed line names; LINE may lack the crash: then 2000 states are tried
       yore-crash show LINE     print the operations of a line";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match command(&arguments) {
        Ok(good) => match good {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        },
        Err(message) => {
            eprintln!("yore-crash: {message}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn command(arguments: &[String]) -> Result<bool, String> {
    let (name, rest) = arguments.split_first().ok_or("a command is missing")?;
    match name.as_str() {
        "replay" => replay(&rest.join(" ")),
        "show" => show(&rest.join(" ")).map(|()| true),
        "run" | "expunge" => {
            let options = Options::parse(rest)?;
            let campaign = Campaign::crashes(options.seed, options.states.unwrap_or(20_000));
            let campaign = Campaign { expunges: name == "expunge", ..campaign };
            Ok(report(options.seed, options.apply(campaign).run()))
        }
        "campaign" => campaign(&Options::parse(rest)?),
        "cases" => {
            let [ones, twos, threes] = yore_crash::systematic::counts();
            println!("{ones} of one operation, {twos} of two, {threes} of three");
            Ok(true)
        }
        "compare" | "full" => {
            let options = Options::parse(rest)?;
            let sequences = options.sequences.unwrap_or(200);
            let mut campaign = Campaign::comparisons(options.seed, sequences, 200, Engine::Snapshot);
            if name == "full" {
                campaign.profile = Profile::Full;
            }
            Ok(report(options.seed, options.apply(campaign).run()))
        }
        other => Err(format!("there is no command `{other}`")),
    }
}

/// Runs part after part until enough was tried, and keeps what was done.
fn campaign(options: &Options) -> Result<bool, String> {
    const PART: u64 = 400;
    if options.seconds.is_none() && options.states.is_none() {
        return Err("campaign needs --seconds N or --states N".into());
    }
    let mut totals = match &options.save {
        Some(path) if path.exists() => {
            let text =
                std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
            Totals::parse(&text).map_err(|error| format!("{}: {error}", path.display()))?
        }
        _ => Totals::new(options.seed),
    };
    let begin = Instant::now();
    let mut failures = 0;
    loop {
        let left =
            options.seconds.map(|seconds| Duration::from_secs(seconds).saturating_sub(begin.elapsed()));
        if left.is_some_and(|left| left.is_zero())
            || options.states.is_some_and(|most| totals.states() >= most)
            || failures >= 100
        {
            break;
        }
        let part = Campaign {
            first: totals.next,
            states: None,
            sequences: Some(PART),
            time: left,
            failures: 100,
            ..Campaign::crashes(totals.seed, 0)
        };
        let summary = options.apply(part).run();
        for failure in &summary.failures {
            println!("{failure}\n");
        }
        failures += summary.failures.len();
        totals.add(&summary);
        if let Some(path) = &options.save {
            totals.save(path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    if let Some(path) = &options.json {
        std::fs::write(path, totals.json()).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    println!("{totals}");
    Ok(failures == 0)
}

/// What stands after a command.
#[derive(Default)]
struct Options {
    states: Option<u64>,
    sequences: Option<u64>,
    seconds: Option<u64>,
    seed: u64,
    ops: Option<usize>,
    save: Option<PathBuf>,
    json: Option<PathBuf>,
    engine: Option<Engine>,
}

impl Options {
    fn parse(words: &[String]) -> Result<Options, String> {
        let mut options = Options::default();
        for pair in words.chunks(2) {
            let [name, value] = pair else { return Err(format!("`{}` needs a value", pair[0])) };
            let number = || value.parse::<u64>().map_err(|_| format!("`{value}` is not a number"));
            match name.as_str() {
                "--states" => options.states = Some(number()?),
                "--sequences" => options.sequences = Some(number()?),
                "--seconds" => options.seconds = Some(number()?),
                "--seed" => options.seed = number()?,
                "--ops" => options.ops = Some(number()? as usize),
                "--save" => options.save = Some(value.into()),
                "--json" => options.json = Some(value.into()),
                "--engine" => {
                    let engine = Engine::from_name(value);
                    options.engine = Some(engine.ok_or_else(|| format!("there is no engine `{value}`"))?);
                }
                other => return Err(format!("there is no option `{other}`")),
            }
        }
        Ok(options)
    }

    fn apply(&self, campaign: Campaign) -> Campaign {
        Campaign {
            ops: self.ops.unwrap_or(campaign.ops),
            engine: self.engine.unwrap_or(campaign.engine),
            ..campaign
        }
    }
}

fn report(seed: u64, summary: Summary) -> bool {
    for failure in &summary.failures {
        println!("{failure}\n");
    }
    let mut totals = Totals::new(seed);
    totals.add(&summary);
    println!("{totals}");
    summary.failures.is_empty()
}

fn show(line: &str) -> Result<(), String> {
    let case: Case = line.parse().map_err(|error| format!("{error}"))?;
    for (number, op) in case.operations().iter().enumerate() {
        println!("{number:4}  {op}");
    }
    Ok(())
}

fn replay(line: &str) -> Result<bool, String> {
    show(line)?;
    let mut case: Case = line.parse().map_err(|error| format!("{error}"))?;
    let attempts = if case.depends_on_schedule() { 50 } else { 1 };
    if case.depends_on_schedule() {
        println!("another thread takes part, so the crash is looked for anew, up to {attempts} times");
        case.crash = None;
    }
    for _ in 0..attempts {
        if let Err(failure) = try_case(&case, 2000, &mut |_| true) {
            println!("\n{failure}");
            return Ok(false);
        }
    }
    println!("\nnothing is wrong");
    Ok(true)
}
