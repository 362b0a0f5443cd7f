//! Checkers of whole volumes as processes: what they take, and what the disk could give.

use crate::program::command;
use crate::rival::{drop_caches, Serving};
use crate::{BenchError, Result};
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How much is read to learn what the disk can give, and in which requests.
const BANDWIDTH_BYTES: usize = 512 << 20;
const REQUEST_BYTES: usize = 1 << 20;

/// `yore check` of an image.
///
/// # Errors
/// [`BenchError::Impossible`] if this program cannot start itself.
pub(super) fn yore(serving: &Serving, more: &[&str], image: &Path) -> Result<Command> {
    let Serving::Program(yore) = serving else {
        return Err(BenchError::impossible(
            "a check needs a process of its own",
            "measure with the yore command",
        ));
    };
    let mut checker = command(yore);
    checker.args(["check", "-q"]).args(more).arg(image);
    Ok(checker)
}

/// `e2fsck -fn` of an image: it reads and checks everything and changes nothing.
pub(super) fn e2fsck(image: &Path) -> Command {
    let mut checker = command("e2fsck");
    checker.arg("-fn").arg(image);
    checker
}

/// What a process used.
pub(super) struct Used {
    pub(super) seconds: f64,
    pub(super) processor: f64,
    pub(super) read: f64,
}

impl Used {
    /// Runs a checker, which must find nothing.
    pub(super) fn by(mut checker: Command) -> Result<Used> {
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
pub(super) fn peak_memory(mut checker: Command) -> Result<f64> {
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
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(peak)
}

/// What a check says while it runs and at its end.
pub(super) struct Told {
    /// By how much the end was off that it said, in percent of the whole time: the worst of what was said
    /// after the first tenth.
    pub(super) off: f64,
    /// Bytes of all blocks of metadata that the volume has, headers of zones included.
    pub(super) metadata: f64,
}

impl Told {
    /// Runs a check with `--progress-fd 1 --json`.
    pub(super) fn by(mut checker: Command) -> Result<Told> {
        let output = checker.output().map_err(BenchError::system("starting a check"))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines: Vec<serde_json::Value> =
            serde_json::Deserializer::from_str(&said).into_iter().map_while(|value| value.ok()).collect();
        let times: Vec<(f64, f64)> = lines
            .iter()
            .filter_map(|line| Some((line["elapsed"].as_f64()?, line["left"].as_f64()?)))
            .collect();
        let off = times.last().map_or(0.0, |(whole, _)| {
            let off = |(elapsed, left): &(f64, f64)| 100.0 * ((elapsed + left) / whole - 1.0).abs();
            times.iter().filter(|(elapsed, _)| *elapsed >= whole / 10.0).map(off).fold(0.0, f64::max)
        });
        let metadata = lines.iter().rev().find_map(|line| {
            let counts = &line["counts"];
            Some(4096.0 * (counts["metadata_blocks"].as_f64()? + counts["zones"].as_f64()?))
        });
        let failed = || BenchError::Command { command: "yore check --json".into(), said: said.clone() };
        Ok(Told { off, metadata: metadata.ok_or_else(failed)? })
    }
}

/// A file beside images that the disk's speed is measured with.
pub(super) struct Bandwidth {
    file: PathBuf,
}

impl Bandwidth {
    /// Writes the file.
    pub(super) fn new(directory: &Path) -> Result<Bandwidth> {
        let file = directory.join("sequential");
        let failed = || BenchError::system("making a file to measure the disk");
        let mut made = File::create(&file).map_err(failed())?;
        let data = crate::workload::steps::noise(REQUEST_BYTES, 3);
        for _ in 0..BANDWIDTH_BYTES / REQUEST_BYTES {
            made.write_all(&data).map_err(failed())?;
        }
        made.sync_all().map_err(failed())?;
        Ok(Bandwidth { file })
    }

    /// Bytes a second that the disk gives to one reader who reads what follows, with cold caches.
    pub(super) fn measure(&self) -> Result<f64> {
        drop_caches()?;
        let failed = || BenchError::system("reading a file to measure the disk");
        let file = File::open(&self.file).map_err(failed())?;
        let mut buffer = vec![0; REQUEST_BYTES];
        let started = Instant::now();
        for i in 0..BANDWIDTH_BYTES / REQUEST_BYTES {
            file.read_exact_at(&mut buffer, (i * REQUEST_BYTES) as u64).map_err(failed())?;
        }
        Ok(BANDWIDTH_BYTES as f64 / started.elapsed().as_secs_f64())
    }
}
