//! `mount-time`: how long opening a volume takes after a crash, with cold caches.
//!
//! A process of its own fills the volume, syncs, changes some more without syncing, says so, and is killed: a crash of the file
//! system's process, which leaves on the medium what a crash leaves and closes nothing. Then the caches are dropped and the volume
//! is opened. Each round crashes it again after some more changes, and is followed by an opening of the volume that was closed
//! cleanly, for comparison.

use crate::program::command;
use crate::report::{Cell, Column, Report, Row, Table, TargetInfo, Unit};
use crate::rival::{drop_caches, library, make_image, Serving};
use crate::{BenchError, CompareOptions, LibraryTarget, Result, Target};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Instant;
use yore_device::{Device, FileDevice, OpenOptions};

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

/// What the process that fills says when it may be killed.
const FILLED: &str = "filled";

/// Creates `files` files and syncs, creates `unsynced` more, says so on standard output and waits to be killed: what the measurement
/// of mount times has a process of its own do. `round` keeps names apart.
///
/// # Errors
/// What failed. Ends without one when its standard input is closed.
pub fn fill(image: &Path, round: usize, files: usize, unsynced: usize) -> Result<()> {
    let view = library::open(image)?;
    let target = LibraryTarget::new(view);
    let root = target.root()?;
    let mut directory = None;
    for i in 0..files + unsynced {
        if i % PER_DIRECTORY == 0 {
            let name = format!("d{round}-{}", i / PER_DIRECTORY);
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
    let told = BenchError::system("saying that the volume is filled");
    let mut out = std::io::stdout().lock();
    writeln!(out, "{FILLED}").and_then(|()| out.flush()).map_err(told)?;
    // Whoever asked kills this process; should it be gone itself, its end of the pipe closes.
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(BenchError::system("waiting for the end"))?;
    Ok(())
}

impl Startup {
    /// Measures, as root: only root can drop the host's caches.
    ///
    /// # Errors
    /// [`BenchError::Impossible`] without root or without a program that fills; what failed.
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
        let device: Arc<dyn Device> = Arc::new(FileDevice::open(&image, OpenOptions::default())?);
        library::mkfs(&device, yore_fs::Engine::Snapshot, None)?;
        drop(device);
        let (mut crashed, mut clean) = (Vec::new(), Vec::new());
        for round in 0..options.rounds {
            options.check_stop()?;
            // Once the volume has its files, a round only changes it.
            let files = if round == 0 { self.files } else { self.unsynced };
            crash(yore, &image, round, files, self.unsynced)?;
            crashed.push(open_cold(&image)?);
            clean.push(open_cold(&image)?);
        }
        let columns = vec![
            Column::time("after a crash"),
            Column::time("after a clean end"),
            Column::fact("inodes found", Unit::Count),
            Column::fact("log records replayed", Unit::Count),
            Column::fact("log records replayed after a clean end", Unit::Count),
        ];
        let samples = |of: &[Opened], what: fn(&Opened) -> f64| Cell::new(of.iter().map(what).collect());
        let cells = vec![
            samples(&crashed, |opened| opened.seconds),
            samples(&clean, |opened| opened.seconds),
            samples(&crashed, |opened| opened.inodes as f64),
            samples(&crashed, |opened| opened.replayed as f64),
            samples(&clean, |opened| opened.replayed as f64),
        ];
        let rows = vec![Row { target: "library".into(), cells }];
        let table = Table { title: String::new(), columns, rows };
        let told = [("files", self.files), ("files created after the sync", self.unsynced)];
        let told = told.into_iter().map(|(name, value)| (name.to_string(), value.to_string()));
        let info = TargetInfo {
            name: "library".into(),
            description: crate::RivalKind::Library.description().into(),
            version: None,
            ours: true,
        };
        let about = "Time to open a volume after its process was killed, and after a clean end; cold caches.";
        Ok(options.report(
            ("mount-time", about.into()),
            told.chain(options.describe()).collect(),
            (vec![info], Vec::new()),
            vec![table],
            Vec::new(),
        ))
    }
}

/// Fills the volume in another process, and kills it.
fn crash(yore: &Path, image: &Path, round: usize, files: usize, unsynced: usize) -> Result<()> {
    let numbers = [round, files, unsynced].map(|number| number.to_string());
    let mut filler = command(yore);
    filler.args(["bench", "fill"]).arg(image).args(numbers).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child =
        filler.spawn().map_err(BenchError::system("starting the process that fills the volume"))?;
    let mut line = String::new();
    let heard = match child.stdout.take() {
        Some(out) => BufReader::new(out).read_line(&mut line),
        None => Ok(0),
    };
    let killed = child.kill();
    let waited = child.wait();
    heard.map_err(BenchError::system("hearing of the process that fills the volume"))?;
    killed.and(waited).map_err(BenchError::system("killing the process that fills the volume"))?;
    match line.trim() {
        FILLED => Ok(()),
        _ => {
            let said = "it ended before the volume was filled (its message is above)".to_string();
            Err(BenchError::Command { command: "yore bench fill".into(), said })
        }
    }
}

/// A volume that was opened, and closed again.
struct Opened {
    /// How long opening it took.
    seconds: f64,
    inodes: u64,
    /// Records of the intent log that it replayed.
    replayed: u64,
}

fn open_cold(image: &Path) -> Result<Opened> {
    drop_caches()?;
    let start = Instant::now();
    let view = library::open(image)?;
    let seconds = start.elapsed().as_secs_f64();
    let opened = Opened { seconds, inodes: view.info().inodes, replayed: view.log_status().replayed };
    view.close().map_err(BenchError::library("closing the volume"))?;
    Ok(opened)
}
