//! Crash tests from the command line: run many, or replay one.

use clap::{Args, Parser};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use yore_crash::campaign::{try_case, Campaign, Summary};
use yore_crash::case::Case;
use yore_crash::generate::Profile;
use yore_crash::totals::Totals;
use yore_fs::{Durability, Engine};

/// Crash tests: runs many, or replays one.
#[derive(Parser)]
#[command(name = "yore-crash")]
enum Command {
    /// Tries N crash states (20000)
    Run(Options),
    /// The same, with files expunged from snapshots
    Expunge(Options),
    /// Compares with the model
    Compare(Options),
    /// The same on volumes that are too small
    Full(Options),
    /// Tries crash states for that long or that many, goes on after failures; with a FILE to save to, goes on
    /// where the campaign in it was left
    Campaign(Options),
    /// Counts the cases of the systematic part
    Cases,
    /// Does again what a printed line names; it may lack the crash: then 2000 states are tried
    Replay {
        /// The line, in one word or several
        line: Vec<String>,
    },
    /// Prints the operations of a line
    Show {
        /// The line, in one word or several
        line: Vec<String>,
    },
}

fn main() -> ExitCode {
    match run(&Command::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("yore-crash: {message}");
            ExitCode::from(2)
        }
    }
}

fn run(command: &Command) -> Result<bool, String> {
    match command {
        Command::Replay { line } => replay(&line.join(" ")),
        Command::Show { line } => show(&line.join(" ")).map(|()| true),
        Command::Run(options) | Command::Expunge(options) => {
            let campaign = Campaign::crashes(options.seed, options.states.unwrap_or(20_000));
            let expunges = matches!(command, Command::Expunge(_));
            Ok(report(options.seed, options.apply(Campaign { expunges, ..campaign }).run()))
        }
        Command::Campaign(options) => campaign(options),
        Command::Cases => {
            let [ones, twos, threes] = yore_crash::systematic::counts();
            println!("{ones} of one operation, {twos} of two, {threes} of three");
            Ok(true)
        }
        Command::Compare(options) | Command::Full(options) => {
            let sequences = options.sequences.unwrap_or(200);
            let mut campaign = Campaign::comparisons(options.seed, sequences, 200, Engine::Snapshot);
            if matches!(command, Command::Full(_)) {
                campaign.profile = Profile::Full;
            }
            Ok(report(options.seed, options.apply(campaign).run()))
        }
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

#[derive(Args)]
struct Options {
    /// Crash states to try
    #[arg(long, value_name = "N")]
    states: Option<u64>,
    /// Sequences to compare (200)
    #[arg(long, value_name = "N")]
    sequences: Option<u64>,
    /// How long a campaign goes on
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Seed of the first sequence
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Operations of a sequence
    #[arg(long, value_name = "N")]
    ops: Option<usize>,
    /// Where a campaign keeps how far it is
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Where a campaign's sums go, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The engine of the volumes
    #[arg(long, value_name = "E", value_parser = engine)]
    engine: Option<Engine>,
    /// When calls return: async, sync or group
    #[arg(long, value_name = "D", value_parser = durability)]
    durability: Option<Durability>,
    /// The log is on another disk
    #[arg(long)]
    elsewhere: bool,
}

fn durability(name: &str) -> Result<Durability, String> {
    Durability::from_name(name).ok_or_else(|| format!("there is no durability `{name}`"))
}

fn engine(name: &str) -> Result<Engine, String> {
    Engine::from_name(name).ok_or_else(|| format!("there is no engine `{name}`"))
}

impl Options {
    fn apply(&self, campaign: Campaign) -> Campaign {
        Campaign {
            ops: self.ops.unwrap_or(campaign.ops),
            engine: self.engine.unwrap_or(campaign.engine),
            durability: self.durability.unwrap_or(campaign.durability),
            elsewhere: self.elsewhere,
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
