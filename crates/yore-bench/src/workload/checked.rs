//! `check`: how long checking a whole volume takes, with cold caches, and how much memory.
//!
//! Each file system gets the same tree once: many small files, some larger ones, in directories of up to a
//! thousand. Then each round unmounts it, drops the host's caches, and runs its checker on the image file:
//! `yore check`, or `e2fsck -fn`, which reads and checks everything and changes nothing. Time is that of the
//! process, from its start to its end; bytes are those that the disk had to give. Memory is the most that it
//! had at once, seen in a run after that. Before that, a part of the image is read as fast as one thread can
//! read it in requests of 1 MiB: what the checker read, for the time it took, is a share of that bandwidth.
//!
//! Yore's checker also says while it runs when it will end. Another run, after the one that is timed, notes
//! what it says; the table has how far the worst of it was off, of what was said between the tenth part of
//! the time and the end.

use crate::compare::{Benchmark, Subject};
use crate::program::command;
use crate::report::{Column, Unit};
use crate::rival::{check_can_drop_caches, drop_caches, OnTarget, RivalKind, Serving};
use crate::{BenchError, Result, Target};
use rand::{Rng as _, SeedableRng as _};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Checking whole volumes.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Files of 500 bytes to 16 KiB.
    pub files: usize,
    /// Files of 4 KiB to 2 MiB.
    pub large: usize,
    /// The content of all files is this many times as long.
    pub times: usize,
    /// Decides sizes.
    pub seed: u64,
}

impl Default for Checked {
    fn default() -> Checked {
        Checked { files: 200_000, large: 3000, times: 1, seed: 42 }
    }
}

const PER_DIRECTORY: usize = 1000;
/// How much is read to learn what the disk can give, and in which requests.
const BANDWIDTH_BYTES: u64 = 256 << 20;
const REQUEST_BYTES: usize = 1 << 20;

impl Benchmark for Checked {
    fn name(&self) -> &'static str {
        "check"
    }

    fn about(&self) -> String {
        "Checking a whole volume, with cold caches: yore check, e2fsck -fn.".into()
    }

    fn options(&self) -> Vec<(String, String)> {
        let options = [("files", self.files), ("larger files", self.large), ("times as long", self.times)];
        options.map(|(name, value)| (name.into(), value.to_string())).to_vec()
    }

    fn tables(&self) -> Vec<(String, Vec<Column>)> {
        let columns = vec![
            Column::time("check"),
            Column::fact("processor", Unit::Seconds),
            Column::bytes("memory"),
            Column::fact("read", Unit::Bytes),
            Column::fact("share of the bandwidth, %", Unit::Count),
            Column::fact("end said, off by at most, % (0: none said)", Unit::Count),
        ];
        vec![(String::new(), columns)]
    }

    fn check(&self, kind: RivalKind) -> Result<()> {
        check_can_drop_caches()?;
        let has_checker = matches!(kind, RivalKind::Ext2 | RivalKind::Ext3 | RivalKind::Ext4);
        match kind.is_ours() || has_checker {
            true => Ok(()),
            false => Err(BenchError::impossible(
                "its checker is not measured",
                "choose of the targets library, ext2, ext3 and ext4",
            )),
        }
    }

    fn round(&self, subject: &mut Subject<'_>, round: usize) -> Result<Vec<Vec<f64>>> {
        if round == 0 {
            subject.0.measure(Tree { checked: self })?;
        }
        let is_ours = subject.0.kind().is_ours();
        let yore = subject.0.serving().clone();
        subject.0.with_image(|image| {
            let checker = |more: &[&str]| match (is_ours, &yore) {
                (true, Serving::Program(yore)) => {
                    let mut checker = command(yore);
                    checker.args(["check", "-q"]).args(more).arg(image);
                    Ok(checker)
                }
                (true, Serving::InProcess) => Err(BenchError::impossible(
                    "a check needs a process of its own",
                    "measure with the yore command",
                )),
                (false, _) => {
                    let mut checker = command("e2fsck");
                    checker.arg("-fn").arg(image);
                    Ok(checker)
                }
            };
            let bandwidth = bandwidth(image)?;
            drop_caches()?;
            let used = Used::by(checker(&[])?)?;
            let off = match is_ours {
                true => {
                    drop_caches()?;
                    worst_prediction(checker(&["--progress-fd", "1", "--json"])?)?
                }
                false => 0.0,
            };
            let memory = peak_memory(checker(&[])?)?;
            let share = 100.0 * used.read / used.seconds / bandwidth;
            Ok(vec![vec![used.seconds, used.processor, memory, used.read, share, off]])
        })
    }
}

/// Makes the tree.
struct Tree<'c> {
    checked: &'c Checked,
}

impl OnTarget for Tree<'_> {
    type Output = ();

    fn on<T: Target>(self, target: &T) -> Result<()> {
        let Checked { files, large, times, seed } = *self.checked;
        let mut random = rand::rngs::StdRng::seed_from_u64(seed);
        let data: Vec<u8> = (0..times.max(1) * (2 << 20)).map(|i| (i * 31 + i / 4096) as u8).collect();
        let root = target.root()?;
        let mut directory = None;
        // The larger ones lie among the others.
        let every = (files / large.max(1)).max(1);
        let mut left = large;
        for i in 0..files {
            if i % PER_DIRECTORY == 0 {
                let name = format!("directory-{}", i / PER_DIRECTORY);
                target.mkdir(&root, &name)?;
                directory = Some(target.open_dir(&root, &name)?);
            }
            let Some(directory) = &directory else { continue };
            let write = |name: String, size: usize| {
                let file = target.create(directory, &name)?;
                target.write_at(&file, 0, &data[..size * times.max(1)])
            };
            write(format!("file-{i}"), random.random_range(500..=16 << 10))?;
            if left > 0 && i % every == 0 {
                left -= 1;
                write(format!("larger-{i}"), random.random_range(4 << 10..=2 << 20))?;
            }
        }
        target.sync()
    }
}

/// What a process used.
struct Used {
    seconds: f64,
    processor: f64,
    read: f64,
}

impl Used {
    /// Runs a checker, which must find nothing.
    fn by(mut checker: Command) -> Result<Used> {
        let name = checker.get_program().to_string_lossy().into_owned();
        let started = Instant::now();
        let child = checker.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.map_err(BenchError::system(format!("starting {name}")))?;
        let mut status = 0;
        // SAFETY: all bits zero are a valid `rusage`, which has integers only.
        let mut used: libc::rusage = unsafe { std::mem::zeroed() };
        let pid = libc::pid_t::try_from(child.id()).unwrap_or(-1);
        // SAFETY: both pointers are to locals of these types, and nobody else waits for this child.
        let waited = unsafe { libc::wait4(pid, &mut status, 0, &mut used) };
        let seconds = started.elapsed().as_secs_f64();
        if waited != pid {
            let doing = format!("waiting for {name}");
            return Err(BenchError::system(doing)(std::io::Error::last_os_error()));
        }
        if status != 0 {
            let expected = "a volume in which nothing is wrong".to_string();
            return Err(BenchError::Wrong { found: format!("{name} ended with status {status}"), expected });
        }
        let time = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6;
        Ok(Used {
            seconds,
            processor: time(used.ru_utime) + time(used.ru_stime),
            read: used.ru_inblock as f64 * 512.0,
        })
    }
}

/// The most memory that a process has, as seen every millisecond. (What the system keeps of a process that
/// ended counts what its parent had when it was started.)
fn peak_memory(mut checker: Command) -> Result<f64> {
    let name = checker.get_program().to_string_lossy().into_owned();
    let failed = || BenchError::system(format!("watching {name}"));
    let mut child = checker.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(failed())?;
    let (path, mut peak) = (format!("/proc/{}/status", child.id()), 0.0);
    while child.try_wait().map_err(failed())?.is_none() {
        let status = std::fs::read_to_string(&path).unwrap_or_default();
        let field = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        // Before the program is started this is the parent's memory; what is seen later counts.
        if let Some(kilobytes) = field.and_then(|field| field.parse::<f64>().ok()) {
            peak = kilobytes * 1024.0;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Ok(peak)
}

/// Bytes a second that the disk gives to one reader who reads what follows.
fn bandwidth(image: &Path) -> Result<f64> {
    drop_caches()?;
    let failed = || BenchError::system(format!("reading {}", image.display()));
    let file = File::open(image).map_err(failed())?;
    let length = file.metadata().map_err(failed())?.len().min(BANDWIDTH_BYTES);
    let mut buffer = vec![0; REQUEST_BYTES];
    let (started, mut at) = (Instant::now(), 0);
    while at < length {
        at += file.read_at(&mut buffer, at).map_err(failed())?.max(1) as u64;
    }
    Ok(length as f64 / started.elapsed().as_secs_f64())
}

/// Runs a check that says on its standard output how far it is. Returns by how much the end was off that it
/// said, in percent of the whole time: the worst of what was said after the first tenth.
fn worst_prediction(mut checker: Command) -> Result<f64> {
    let output = checker.output().map_err(BenchError::system("starting a check"))?;
    let said: Vec<(f64, f64)> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter_map(|line| Some((line["elapsed"].as_f64()?, line["left"].as_f64()?)))
        .collect();
    let Some((whole, _)) = said.last().copied() else { return Ok(0.0) };
    let off = said
        .iter()
        .filter(|(elapsed, _)| *elapsed >= whole / 10.0)
        .map(|(elapsed, left)| 100.0 * ((elapsed + left) / whole - 1.0).abs());
    Ok(off.fold(0.0, f64::max))
}
