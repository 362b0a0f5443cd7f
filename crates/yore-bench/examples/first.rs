//! Runs the first measurement: `cargo run --release -p yore-bench --example first -- [FILES [DIRECTORIES [ROUNDS [WORK_DIR]]]]`.

use yore_bench::{first, FirstOptions};

fn main() -> anyhow::Result<()> {
    let mut options = FirstOptions::default();
    let mut arguments = std::env::args().skip(1);
    if let Some(files) = arguments.next() {
        options.files = files.parse()?;
    }
    if let Some(directories) = arguments.next() {
        options.directories = directories.parse()?;
    }
    if let Some(rounds) = arguments.next() {
        options.rounds = rounds.parse()?;
    }
    if let Some(work_dir) = arguments.next() {
        options.work_dir = work_dir.into();
    }
    let report = first(&options)?;
    println!("{}\n{}", report.to_markdown(), report.to_json());
    Ok(())
}
