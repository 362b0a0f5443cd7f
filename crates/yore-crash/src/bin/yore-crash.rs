//! Crash tests from the command line: run many, or replay one.

use std::process::ExitCode;
use std::time::Duration;
use yore_crash::campaign::{try_case, Campaign, Summary};
use yore_crash::case::Case;
use yore_crash::generate::Profile;
use yore_fs::Engine;

const USAGE: &str = "\
usage: yore-crash run [--states N] [--seed S] [--ops N] [--engine E]   try N crash states (20000)
       yore-crash compare [--sequences N] [--seed S] [--ops N] [--engine E]   compare with the model
       yore-crash full [--sequences N] [--seed S] [--ops N] [--engine E]   the same on volumes that are too small
       yore-crash campaign --seconds N [--seed S] [--engine E]   try crash states for N seconds, go on after failures
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
        "run" => {
            let options = Options::parse(rest)?;
            let campaign = Campaign::crashes(options.seed, options.states.unwrap_or(20_000));
            Ok(report(options.apply(campaign).run()))
        }
        "campaign" => {
            let options = Options::parse(rest)?;
            let seconds = options.seconds.ok_or("campaign needs --seconds N")?;
            let campaign = Campaign {
                states: None,
                time: Some(Duration::from_secs(seconds)),
                failures: 100,
                ..Campaign::crashes(options.seed, 0)
            };
            Ok(report(options.apply(campaign).run()))
        }
        "compare" | "full" => {
            let options = Options::parse(rest)?;
            let sequences = options.sequences.unwrap_or(200);
            let mut campaign = Campaign::comparisons(options.seed, sequences, 200, Engine::Snapshot);
            if name == "full" {
                campaign.profile = Profile::Full;
            }
            Ok(report(options.apply(campaign).run()))
        }
        other => Err(format!("there is no command `{other}`")),
    }
}

/// What stands after a command.
#[derive(Default)]
struct Options {
    states: Option<u64>,
    sequences: Option<u64>,
    seconds: Option<u64>,
    seed: u64,
    ops: Option<usize>,
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

fn report(summary: Summary) -> bool {
    for failure in &summary.failures {
        println!("{failure}\n");
    }
    println!(
        "{} sequences, {} crash states in {:.1} s: {} failures",
        summary.sequences,
        summary.states,
        summary.time.as_secs_f64(),
        summary.failures.len()
    );
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
    let attempts = if case.disturb { 50 } else { 1 };
    if case.disturb {
        println!(
            "another thread syncs all the time, so the crash is looked for anew, up to {attempts} times"
        );
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
