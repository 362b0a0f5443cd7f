//! `bench`.

use crate::args::bench::{
    Bench, BenchWhich, Common, HistorySize, MicroSize, Output, PostMarkSize, Preset, SimulatedKind, Targets,
};
use crate::output::Out;
use crate::progress::stop_wanted;
use crate::status::{self, Outcome};
use anyhow::Context as _;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use yore_bench::{
    compare, Benchmark, Checks, CompareOptions, Fill, History, HistoryPart, Latency, Micro, MicroStep,
    Papers, PostMark, Report, Resident, RivalKind, Serving, Simulated, SimulatedWorkload, Startup, Stream,
    Tree, Waited,
};

/// Measures, and prints the report.
pub fn run(args: &Bench) -> Outcome {
    match &args.which {
        BenchWhich::First { size, common } => {
            use MicroStep::{Create, Durable, Rename, Stat, Unlink};
            let steps = vec![Create, Stat, Rename, Unlink, Durable];
            comparison(&Micro { steps, ..micro(size) }, common, &EVERYWHERE, 5)
        }
        BenchWhich::Micro { size, file_size, threads, shared, steps, common } => {
            let defaults = micro(size);
            let steps = if steps.is_empty() { defaults.steps.clone() } else { steps.clone() };
            let file_bytes =
                usize::try_from(*file_size).context("--file-size is more than memory can hold")?;
            let benchmark =
                Micro { file_bytes, threads: threads.clone(), shared: *shared, steps, ..defaults };
            comparison(&benchmark, common, &EVERYWHERE, 5)
        }
        BenchWhich::Postmark { size, common } => comparison(&postmark(size)?, common, &EVERYWHERE, 5),
        BenchWhich::Stream { size, random, seed, common } => {
            let stream = Stream { bytes: *size, random: *random, seed: *seed };
            comparison(&stream, common, &EVERYWHERE, 5)
        }
        BenchWhich::Tree { sources, common } => {
            let tree = Tree::new(sources, &work_dir(&common.output))?;
            comparison(&tree, common, &EVERYWHERE[1..], 5)
        }
        BenchWhich::Fill { image, round, files, unsynced } => {
            let what = match *unsynced {
                Some(unsynced) => Fill::Files { files: *files, unsynced },
                None => Fill::Log { directories: *files },
            };
            yore_bench::fill(image, *round, what)?;
            Ok(status::OK)
        }
        BenchWhich::Papers { quick, minutes, experiments, simulated, real, share, news, common } => {
            let mut papers = if *quick { Papers::quick() } else { Papers::full() };
            if !experiments.is_empty() {
                papers.experiments.clone_from(experiments);
            }
            if let Some(minutes) = minutes {
                papers.within = Some(Duration::from_secs(*minutes as u64 * 60));
            }
            papers.scale.share = share.unwrap_or(papers.scale.share);
            papers.scale.news = news.unwrap_or(papers.scale.news);
            if *real {
                papers.engines.clear();
            }
            let mut options = options(common, &Papers::TARGETS, if *quick { 1 } else { 3 })?;
            if *simulated {
                options.targets.clear();
            }
            print(&papers.run(&options, &begins)?, &common.output)
        }
        BenchWhich::ServeMemory { directory } => {
            yore_bench::serve_memory(directory)?;
            Ok(status::OK)
        }
        BenchWhich::Latency { seconds, probe_seconds, load, alive, common } => {
            let [duration, probe] = [seconds, probe_seconds].map(|s| Duration::from_secs(*s as u64));
            let latency = Latency { duration, probe, load: *load, alive: *alive, ..Latency::default() };
            comparison(&latency, common, &[RivalKind::Library], 1)
        }
        BenchWhich::Memory { files, directories, common } => {
            let resident = Resident { files: *files, directories: *directories };
            comparison(&resident, common, &[RivalKind::Mount, RivalKind::MemoryFuse], 1)
        }
        BenchWhich::Check {
            quick,
            parts,
            files,
            large,
            levels,
            inodes,
            transactions,
            stream_size,
            layout,
            common,
        } => {
            let mut checks = if *quick { Checks::quick() } else { Checks::full() };
            if !parts.is_empty() {
                checks.parts.clone_from(parts);
            }
            checks.files = files.unwrap_or(checks.files);
            checks.large = large.unwrap_or(checks.files * 15 / 1000);
            checks.levels = levels.unwrap_or(checks.levels);
            checks.inodes = inodes.unwrap_or(checks.inodes);
            checks.stream_bytes = stream_size.unwrap_or(checks.stream_bytes);
            checks.layout = layout.unwrap_or(checks.layout);
            if let Some(transactions) = *transactions {
                checks.postmark = checks.postmark.with_transactions(transactions);
            }
            let options = options(common, &Checks::TARGETS, if *quick { 3 } else { 5 })?;
            print(&checks.run(&options, &begins)?, &common.output)
        }
        BenchWhich::MountTime { files, unsynced, common } => {
            mount_time(&Startup { files: *files, unsynced: *unsynced }, common)
        }
        BenchWhich::History { size, parts, rounds, volume_size, output } => {
            let options = CompareOptions {
                rounds: *rounds,
                volume_bytes: volume_size.next_multiple_of(4096),
                work_dir: work_dir(output),
                stop: stop_wanted()?,
                ..CompareOptions::default()
            };
            print(&history(size, parts).run(&options)?, output)
        }
        BenchWhich::Simulated { workload, files, directories, transactions, batch, seed, output } => {
            let options = CompareOptions {
                work_dir: work_dir(output),
                stop: stop_wanted()?,
                ..CompareOptions::default()
            };
            let defaults = Waited::default();
            let report = match workload {
                SimulatedKind::Durable => {
                    Waited { files: files.unwrap_or(defaults.files), ..defaults }.run(&options)?
                }
                SimulatedKind::Micro | SimulatedKind::Postmark => {
                    let postmark = matches!(workload, SimulatedKind::Postmark);
                    simulated(postmark, *files, *directories, *transactions, *batch, *seed).run(&options)?
                }
            };
            print(&report, output)
        }
    }
}

/// Tells whoever looks on what begins, for these experiments take long.
fn begins(what: &str) {
    if std::io::stderr().is_terminal() {
        status::tell(format_args!("{what} …"));
    }
}

fn mount_time(startup: &Startup, common: &Common) -> Outcome {
    if !common.targets.is_empty() && kinds(&common.targets) != [RivalKind::Library] {
        return Err(status::usage("mount-time is measured on the library only: leave out --targets"));
    }
    let report = startup.run(&options(common, &[RivalKind::Library], 5)?)?;
    print(&report, &common.output)
}

/// The file systems that are measured by default.
const EVERYWHERE: [RivalKind; 4] =
    [RivalKind::Library, RivalKind::Mount, RivalKind::MemoryFuse, RivalKind::Ext4];

fn simulated(
    is_postmark: bool,
    files: Option<usize>,
    directories: usize,
    transactions: usize,
    batch: usize,
    seed: u64,
) -> Simulated {
    let defaults = Simulated::default();
    Simulated {
        workload: match is_postmark {
            true => SimulatedWorkload::PostMark,
            false => SimulatedWorkload::Micro,
        },
        files: files.unwrap_or(defaults.files),
        directories,
        batch,
        postmark: PostMark {
            transactions,
            files: files.unwrap_or(defaults.postmark.files),
            directories,
            seed,
            ..defaults.postmark
        },
        ..defaults
    }
}

fn history(size: &HistorySize, parts: &[HistoryPart]) -> History {
    History {
        parts: if parts.is_empty() { HistoryPart::ALL.to_vec() } else { parts.to_vec() },
        files: size.files,
        takes: size.takes,
        step: Duration::from_secs(size.seconds as u64),
        live: size.live,
        snapshots: size.snapshots,
        large_bytes: size.large_size,
        forgotten: size.forgotten,
        transactions: size.transactions,
        idle: Duration::from_secs(size.idle),
        ..History::default()
    }
}

fn micro(size: &MicroSize) -> Micro {
    Micro { files: size.files, directories: size.directories, ..Micro::default() }
}

fn postmark(size: &PostMarkSize) -> anyhow::Result<PostMark> {
    let preset = match size.preset {
        Preset::Snapshotting => PostMark::default(),
        Preset::Small => PostMark::small(),
        Preset::Large => PostMark::large(),
    };
    let block = size.block_size.map(usize::try_from).transpose().context("--block-size is too large")?;
    if block == Some(0) {
        return Err(status::usage("--block-size must be above zero"));
    }
    Ok(PostMark {
        transactions: size.transactions.unwrap_or(preset.transactions),
        files: size.files.unwrap_or(preset.files),
        directories: size.directories.unwrap_or(preset.directories),
        block_bytes: block.unwrap_or(preset.block_bytes),
        seed: size.seed.unwrap_or(preset.seed),
        ..preset
    })
}

/// Runs a benchmark on the targets and for the rounds asked for, or else these.
fn comparison(benchmark: &dyn Benchmark, common: &Common, targets: &[RivalKind], rounds: usize) -> Outcome {
    let report = compare(benchmark, &options(common, targets, rounds)?)?;
    print(&report, &common.output)
}

fn options(common: &Common, targets: &[RivalKind], rounds: usize) -> anyhow::Result<CompareOptions> {
    Ok(CompareOptions {
        targets: if common.targets.is_empty() { targets.to_vec() } else { kinds(&common.targets) },
        bases: kinds(&common.base),
        rounds: common.rounds.unwrap_or(rounds),
        fresh: common.fresh,
        volume_bytes: common.volume_size.next_multiple_of(4096),
        preallocate: common.preallocate,
        serving: Serving::Program(this_program()?),
        mount_options: common.mount_options.clone(),
        work_dir: work_dir(&common.output),
        stop: stop_wanted()?,
        until: None,
    })
}

fn work_dir(output: &Output) -> PathBuf {
    output.work_dir.clone().unwrap_or_else(std::env::temp_dir)
}

fn this_program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("cannot find this program, to start it as the server of mounts")
}

/// Each target once, in the order given.
fn kinds(targets: &[Targets]) -> Vec<RivalKind> {
    let mut kinds = Vec::new();
    for kind in targets.iter().flat_map(|targets| &targets.0) {
        if !kinds.contains(kind) {
            kinds.push(*kind);
        }
    }
    kinds
}

fn print(report: &Report, output: &Output) -> Outcome {
    let mut out = Out::new();
    if let Some(path) = &output.html {
        write(path, &report.to_html())?;
    }
    match &output.json {
        Some(path) if path == Path::new("-") => out.line(report.to_json())?,
        Some(path) => {
            write(path, &report.to_json())?;
            out.line(report.to_markdown())?;
        }
        None => out.line(report.to_markdown())?,
    }
    out.done()?;
    for left_out in &report.left_out {
        status::warn(&format!("{} was not measured: {}", left_out.target, left_out.reason));
    }
    for failed in &report.failed {
        status::warn(&format!("{} failed while it was measured: {}", failed.target, failed.reason));
    }
    Ok(if report.failed.is_empty() { status::OK } else { status::FAILED })
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
