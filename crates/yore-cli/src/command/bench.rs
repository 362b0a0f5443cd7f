//! `bench`.

use super::Outcome;
use crate::args::{Bench, BenchWhich};
use crate::output::Out;
use crate::status;
use yore_bench::FirstOptions;

/// Measures, and prints the report.
pub fn run(args: &Bench) -> Outcome {
    let BenchWhich::First { files, directories, rounds, work_dir, json } = &args.which;
    let defaults = FirstOptions::default();
    let options = FirstOptions {
        files: files.unwrap_or(defaults.files),
        directories: directories.unwrap_or(defaults.directories),
        rounds: rounds.unwrap_or(defaults.rounds),
        work_dir: work_dir.clone().unwrap_or(defaults.work_dir),
    };
    let report = yore_bench::first(&options)?;
    let mut out = Out::new();
    out.line(if *json { report.to_json() } else { report.to_markdown() })?;
    out.done()?;
    Ok(status::OK)
}
