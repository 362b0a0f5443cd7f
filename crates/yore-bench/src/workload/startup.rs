//! `mount-time`: how long opening a volume takes after a crash, with cold caches.
//!
//! A process of its own changes the volume, reports that, and is killed: a crash of the file system's
//! process, which leaves the medium as any crash does and closes nothing. Then the caches are dropped and the
//! volume is opened. Three times a round:
//! - after files were created and synced, and more were created that were not synced: the log is empty;
//! - after a clean end, for comparison;
//! - after so many small files were written and fsynced, each in a directory of its own choice, that the log
//!   is as full as it gets before a generation empties it ([`LOG_FULL`]).

use crate::program::command;
use crate::report::{Cell, Column, Report, Row, Table, Unit};
use crate::rival::{drop_caches, library, make_image, Serving};
use crate::{BenchError, CompareOptions, LibraryTarget, Result, RivalKind, Target};
use rand::{Rng as _, SeedableRng as _};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

/// How long opening takes after a crash.
#[derive(Clone, Debug)]
pub struct Startup {
    /// Files on the volume.
    pub files: usize,
    /// Files created after the last sync, which the crash may take.
    pub unsynced: usize,
}

impl Default for Startup {
    fn default() -> Startup {
        Startup { files: 1_000_000, unsynced: 1000 }
    }
}

const PER_DIRECTORY: usize = 1000;

/// What the filling process prints when it may be killed.
const FILLED: &str = "filled";

/// The share of the log, in hundredths, that counts as full. A quarter of the log is kept free for what a
/// generation carries over, and a generation begins before the rest is used up.
const LOG_FULL: u64 = 70;

/// Fsyncs after which a filling process gives up.
const FSYNCS_MOST: usize = 1_000_000;

/// The task of a filling process.
#[derive(Clone, Copy, Debug)]
pub enum Fill {
    /// Creates files, syncs, and creates some more.
    Files {
        /// Before the sync.
        files: usize,
        /// After it.
        unsynced: usize,
    },
    /// Writes and fsyncs files of 4 KiB until the log is full.
    Log {
        /// How many directories of round 0 they are spread over.
        directories: usize,
    },
}

/// Does what `what` says, reports on standard output how much of the log is used, and waits to be killed: the
/// separate process of the measurement of mount times. `round` keeps names apart.
///
/// # Errors
/// What failed. Ends without an error when its standard input is closed.
pub fn fill(image: &Path, round: usize, what: Fill) -> Result<()> {
    let target = LibraryTarget::new(library::open(image)?);
    match what {
        Fill::Files { files, unsynced } => create_files(&target, round, files, unsynced)?,
        Fill::Log { directories } => fill_log(&target, round, directories)?,
    }
    let used = target.view().log_status().used;
    let told = BenchError::system("saying that the volume is filled");
    let mut out = std::io::stdout().lock();
    writeln!(out, "{FILLED} {used}").and_then(|()| out.flush()).map_err(told)?;
    // The parent kills this process; if the parent is gone itself, its end of the pipe closes.
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(BenchError::system("waiting for the end"))?;
    Ok(())
}

fn directory_name(round: usize, index: usize) -> String {
    format!("d{round}-{index}")
}

fn create_files(target: &LibraryTarget, round: usize, files: usize, unsynced: usize) -> Result<()> {
    let root = target.root()?;
    let mut directory = None;
    for i in 0..files + unsynced {
        if i % PER_DIRECTORY == 0 {
            let name = directory_name(round, i / PER_DIRECTORY);
            target.mkdir(&root, &name)?;
            directory = Some(target.open_dir(&root, &name)?);
        }
        if let Some(directory) = &directory {
            target.create(directory, &format!("file-{i}"))?;
        }
        if i + 1 == files {
            target.sync()?;
        }
    }
    Ok(())
}

fn fill_log(target: &LibraryTarget, round: usize, directories: usize) -> Result<()> {
    let root = target.root()?;
    let mut random = rand::rngs::StdRng::seed_from_u64(round as u64);
    let data = [0x59; 4096];
    for i in 0..FSYNCS_MOST {
        let log = target.view().log_status();
        if log.used * 100 >= log.blocks * LOG_FULL {
            return Ok(());
        }
        let directory = target.open_dir(&root, &directory_name(0, random.random_range(0..directories)))?;
        let file = target.create(&directory, &format!("durable{round}-{i}"))?;
        target.write_at(&file, 0, &data)?;
        target.fsync(&file)?;
    }
    let said = format!("a generation emptied it before it was full, in {FSYNCS_MOST} fsyncs");
    Err(BenchError::impossible("the log cannot be filled", said))
}

impl Startup {
    /// Measures, as root: only root can drop the host's caches.
    ///
    /// # Errors
    /// [`BenchError::Impossible`] without root or without a program that fills the volume; what failed.
    pub fn run(&self, options: &CompareOptions) -> Result<Report> {
        crate::rival::check_can_drop_caches()?;
        let Serving::Program(yore) = &options.serving else {
            return Err(BenchError::impossible(
                "a crash needs a process of its own",
                "measure with the yore command",
            ));
        };
        let work = options.make_work_dir()?;
        let image = work.path().join("image");
        make_image(&image, &options.environment(work.path().to_path_buf()))?;
        library::mkfs_in(&image, yore_fs::Engine::Snapshot)?;
        // The crash may take those that came after the sync.
        let directories = self.files.div_ceil(PER_DIRECTORY);
        let mut opened: [Vec<Opened>; 3] = Default::default();
        for round in 0..options.rounds {
            options.check_stop()?;
            // Once the volume has its files, a round only changes it.
            let files = if round == 0 { self.files } else { self.unsynced };
            let used = crash(yore, &image, round, Fill::Files { files, unsynced: self.unsynced })?;
            opened[0].push(open_cold(&image, used)?);
            opened[1].push(open_cold(&image, 0)?);
            let used = crash(yore, &image, round, Fill::Log { directories })?;
            opened[2].push(open_cold(&image, used)?);
        }
        let columns = vec![
            Column::time("opening"),
            Column::fact("inodes found", Unit::Count),
            Column::fact("blocks of the log in use", Unit::Count),
            Column::fact("log records replayed", Unit::Count),
        ];
        let names = ["after a crash, log empty", "after a clean end", "after a crash, log full"];
        let row = |name: &str, of: &[Opened]| {
            let samples = |what: fn(&Opened) -> f64| Cell::new(of.iter().map(what).collect());
            let cells = vec![
                samples(|opened| opened.seconds),
                samples(|opened| opened.inodes as f64),
                samples(|opened| opened.log_used as f64),
                samples(|opened| opened.replayed as f64),
            ];
            Row { target: name.into(), cells }
        };
        let rows = names.iter().zip(&opened).map(|(name, of)| row(name, of)).collect();
        let table = Table { title: String::new(), columns, rows };
        let told = [("files", self.files), ("files created after the sync", self.unsynced)];
        let told = told.into_iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let about = "Time to open a volume after its process was killed, and after a clean end; cold caches.";
        Ok(options.report(
            ("mount-time", about.into()),
            told.chain(options.describe()).collect(),
            (vec![RivalKind::Library.info(None)], Vec::new()),
            vec![table],
            Vec::new(),
        ))
    }
}

/// Changes the volume in another process, and kills that. Returns the number of blocks of the log in use
/// then.
fn crash(yore: &Path, image: &Path, round: usize, what: Fill) -> Result<u64> {
    let numbers = match what {
        Fill::Files { files, unsynced } => vec![round, files, unsynced],
        Fill::Log { directories } => vec![round, directories],
    };
    let mut filler = command(yore);
    filler.args(["bench", "fill"]).arg(image).args(numbers.iter().map(ToString::to_string));
    let mut child = filler
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(BenchError::system("starting the process that fills the volume"))?;
    let mut line = String::new();
    let heard = match child.stdout.take() {
        Some(out) => BufReader::new(out).read_line(&mut line),
        None => Ok(0),
    };
    let killed = child.kill();
    let waited = child.wait();
    heard.map_err(BenchError::system("hearing of the process that fills the volume"))?;
    killed.and(waited).map_err(BenchError::system("killing the process that fills the volume"))?;
    let used = line.trim().strip_prefix(FILLED).and_then(|used| used.trim().parse().ok());
    used.ok_or_else(|| {
        let said = "it ended before the volume was filled (its message is above)".to_string();
        BenchError::Command { command: "yore bench fill".into(), said }
    })
}

/// A volume that was opened, and closed again.
struct Opened {
    /// How long opening it took.
    seconds: f64,
    inodes: u64,
    /// Blocks of the intent log in use at the crash.
    log_used: u64,
    /// Records of it that were replayed.
    replayed: u64,
}

fn open_cold(image: &Path, log_used: u64) -> Result<Opened> {
    drop_caches()?;
    let start = Instant::now();
    let view = library::open(image)?;
    let seconds = start.elapsed().as_secs_f64();
    let opened =
        Opened { seconds, inodes: view.info().inodes, log_used, replayed: view.log_status().replayed };
    view.close().map_err(BenchError::library("closing the volume"))?;
    Ok(opened)
}
