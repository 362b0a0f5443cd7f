//! The present on a mount, with mounts of a snapshot beside it: none, one and four that nobody uses, and one
//! whose files are all read over and over.
//!
//! There is one volume. Its mount stays for the whole run; the others come and go between the turns, outside
//! of the measured time. All files of the pool were overwritten once after the snapshot, so that no turn pays
//! for a first change. Each step is split into pieces, in which all take turns, forwards and backwards: the
//! first goes on for some time, and the others do as much. Before each turn as many snapshots are mounted as
//! there ever are, and the unwanted ones are unmounted again: the choice of processors for threads after that
//! matters more than what is measured.
//!
//! A reader of a mount takes processors, memory bandwidth and the volume's locks, whatever it reads. So a
//! mount of the past that is read is compared with none, and with reading the present in the same way, which
//! shows how much the past adds. Every file has been read once before the clock starts, so that the kernel
//! has the names of both. No goals are set for these.
//!
//! Before each read the kernel's cache of the file is dropped, because the kernel would otherwise read from
//! there without asking the mount. Threads of this process serve all mounts.

use super::mail;
use super::run::{Goal, Line, Run};
use super::volume::{unmount, Volume};
use crate::report::Unit;
use crate::target::SystemTarget;
use crate::workload::postmark::{Plan, PostMark, Run as Transactions};
use crate::workload::steps::{check_size, noise};
use crate::{BenchError, CompareOptions, Result, Target};
use rustix::fs::{Advice, Mode, OFlags};
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use yore_fs::{EventNo, InodeNo, PinnedBy, View};
use yore_fuse::{MountConfig, Session};

/// Bytes of each file of the pool.
const BYTES: usize = 4096;
/// How long a piece of a step lasts: short, so that other work on the machine slows all down alike.
const PIECE: Duration = Duration::from_millis(200);
/// How many times fewer transactions a piece of PostMark has than one run in the library.
const LESS_MAIL: usize = 100;
/// Files that are read over and over.
const READ: usize = 1000;
/// Operations between two looks at the clock.
const UNWATCHED: usize = 16;

/// Mounts beside that of the present.
#[derive(Clone, Copy)]
enum Others {
    Idle(usize),
    PastRead,
    /// No snapshot is mounted, and the present itself is read.
    PresentRead,
}

/// All, in the order of the samples.
const OTHERS: [Others; 5] =
    [Others::Idle(0), Others::Idle(1), Others::Idle(4), Others::PastRead, Others::PresentRead];
/// The pairs to compare, the name of each comparison, and the least ratio wanted.
const COMPARED: [(usize, usize, &str, Goal); 4] = [
    (1, 0, "a mount of a snapshot beside it, idle / none", Goal::Ratio(0.98)),
    (2, 0, "four mounts of a snapshot beside it, idle / none", Goal::Ratio(0.98)),
    (3, 0, "a mount of a snapshot beside it being read / none", Goal::None),
    (3, 4, "a mount of a snapshot beside it being read / the present being read", Goal::None),
];

#[derive(Clone, Copy)]
enum Step {
    Create,
    Read,
    Overwrite,
    PostMark,
}

const STEPS: [Step; 4] = [Step::Create, Step::Read, Step::Overwrite, Step::PostMark];

impl Step {
    fn name(self) -> &'static str {
        match self {
            Step::Create => "create",
            Step::Read => "read 4 KiB",
            Step::Overwrite => "overwrite 4 KiB",
            Step::PostMark => "PostMark's transactions",
        }
    }
}

/// When a piece ends.
#[derive(Clone, Copy)]
enum Until {
    Time(Duration),
    Count(usize),
}

/// The rows; none if nothing can be mounted, with the reason.
pub(super) fn measure(run: &Run<'_>) -> Result<std::result::Result<Vec<Line>, String>> {
    if let Err(error) = File::options().read(true).write(true).open("/dev/fuse") {
        return Ok(Err(format!("Snapshots were not mounted beside the present: /dev/fuse: {error}.")));
    }
    let live = Live::new(run)?;
    // Dropping a session unmounts it, whatever the outcome.
    let samples = live.samples(run)?;
    live.end()?;
    let line = |step: usize, (with, without, how, goal): (usize, usize, &str, Goal)| {
        let mut line = Line::new(format!("{}, {how}", STEPS[step].name()), Unit::PerSecond, goal);
        line.samples = [with, without].map(|others| samples[step][others].clone());
        line
    };
    Ok(Ok(COMPARED
        .into_iter()
        .flat_map(|compared| (0..STEPS.len()).map(move |step| (step, compared)))
        .map(|(step, compared)| line(step, compared))
        .collect()))
}

/// The pool's names.
struct Pool {
    files: usize,
    directories: usize,
}

impl Pool {
    fn directory(i: usize) -> String {
        format!("d{i}")
    }

    fn file(&self, i: usize) -> (usize, String) {
        (i % self.directories, format!("file{i:07}"))
    }
}

/// The mount of the present.
struct Live {
    session: Session,
    view: View,
    root: InodeNo,
    event: EventNo,
    pool: Pool,
    image: PathBuf,
    mountpoint: PathBuf,
    /// Where the others are mounted.
    beside: Vec<PathBuf>,
}

impl Live {
    fn new(run: &Run<'_>) -> Result<Live> {
        let pool = Pool { files: run.history.live.max(1), directories: run.history.directories.max(1) };
        let volume = Volume::make(run.options, run.dir, "beside")?.with_dirs(pool.directories)?;
        let write = |seed: u64, created: bool| -> Result<()> {
            let data = noise(BYTES, seed);
            for i in 0..pool.files {
                let (dir, name) = pool.file(i);
                let file = match created {
                    false => volume.target.create(&volume.dirs[dir], &name)?,
                    true => volume.target.open(&volume.dirs[dir], &name)?,
                };
                volume.target.write_at(&file, 0, &data)?;
            }
            volume.target.sync()
        };
        write(1, false)?;
        let event = volume.snapshot(false)?;
        write(2, true)?;
        let (view, image) = volume.into_parts();
        let make = |name: &str| {
            let path = run.dir.join(name);
            fs::create_dir(&path).map(|()| path).map_err(BenchError::system("making a mount point"))
        };
        let mountpoint = make("present")?;
        let most = OTHERS.iter().map(|others| others.mounts()).max().unwrap_or(0);
        let beside = (0..most).map(|i| make(&format!("past{i}"))).collect::<Result<Vec<_>>>()?;
        let session = yore_fuse::mount(view.clone(), &MountConfig::new(&mountpoint, name_of(&image)))?;
        let root = view.root();
        Ok(Live { session, view, root, event, pool, image, mountpoint, beside })
    }

    /// For each step, and each kind of mounts beside it: operations a second in each round.
    fn samples(&self, run: &Run<'_>) -> Result<Vec<Vec<Vec<f64>>>> {
        let mut samples = vec![vec![Vec::new(); OTHERS.len()]; STEPS.len()];
        let mut work = Work::new(run, &self.mountpoint, &self.pool)?;
        // After this the kernel has the pool's names in every case.
        work.piece(Step::Read, Until::Count(self.pool.files))?;
        let pieces = run.history.step.div_duration_f64(PIECE).ceil().max(1.0) as u32;
        for round in run.rounds() {
            let round = round?;
            for (i, (step, samples)) in STEPS.into_iter().zip(&mut samples).enumerate() {
                let mut all = [(0usize, 0f64); OTHERS.len()];
                for piece in 0..pieces {
                    let mut until = Until::Time(run.history.step / pieces);
                    for turn in 0..OTHERS.len() {
                        run.options.check_stop()?;
                        let along = if piece % 2 == 0 { turn } else { OTHERS.len() - turn };
                        let now = (round + i + piece as usize / 2 + along) % OTHERS.len();
                        let beside = self.beside(OTHERS[now])?;
                        let done = work.piece(step, until);
                        beside.end()?;
                        let (count, seconds) = done?;
                        all[now] = (all[now].0 + count, all[now].1 + seconds);
                        until = Until::Count(count);
                    }
                }
                for (samples, (count, seconds)) in samples.iter_mut().zip(all) {
                    samples.push(count as f64 / seconds);
                }
            }
        }
        Ok(samples)
    }

    /// Mounts what is to be beside it, and begins to read that.
    fn beside(&self, others: Others) -> Result<Beside> {
        let mut beside = Beside { sessions: Vec::new(), reader: None };
        for mountpoint in &self.beside {
            let pin = self
                .view
                .pin(self.event, PinnedBy::Mount)
                .map_err(BenchError::library("keeping the snapshot"))?;
            let config = MountConfig::new(mountpoint, format!("{}@{}", name_of(&self.image), self.event.0));
            let handle = self.session.handle();
            beside.sessions.push(yore_fuse::mount_snapshot(pin, self.root, &config, Some(&handle))?);
            // It has been used.
            let target = SystemTarget::new(mountpoint)?;
            target.list(&target.root()?)?;
        }
        beside.sessions.drain(others.mounts()..).try_for_each(unmount)?;
        beside.reader = match others {
            Others::Idle(_) => None,
            Others::PastRead => Some(Reader::start(&self.beside[0], &self.pool)?),
            Others::PresentRead => Some(Reader::start(&self.mountpoint, &self.pool)?),
        };
        Ok(beside)
    }

    fn end(self) -> Result<()> {
        unmount(self.session)?;
        drop(self.view);
        for mountpoint in self.beside.iter().chain([&self.mountpoint]) {
            fs::remove_dir(mountpoint).map_err(BenchError::system("removing a mount point"))?;
        }
        fs::remove_file(&self.image).map_err(BenchError::system("removing the image"))
    }
}

fn name_of(image: &Path) -> String {
    image.display().to_string()
}

impl Others {
    /// Mounts of the past.
    fn mounts(self) -> usize {
        match self {
            Others::Idle(count) => count,
            Others::PastRead => 1,
            Others::PresentRead => 0,
        }
    }
}

/// The mounts beside the present for a turn.
struct Beside {
    sessions: Vec<Session>,
    reader: Option<Reader>,
}

impl Beside {
    fn end(self) -> Result<()> {
        let read = self.reader.map_or(Ok(()), Reader::end);
        self.sessions.into_iter().try_for_each(unmount)?;
        read
    }
}

/// Reads files of the pool below a directory, over and over.
struct Reader {
    thread: Option<JoinHandle<Result<()>>>,
    stop: Arc<AtomicBool>,
}

impl Reader {
    /// Reads all files once, and goes on in the background.
    fn start(root: &Path, pool: &Pool) -> Result<Reader> {
        let stop = Arc::<AtomicBool>::default();
        let (target, stopped) = (SystemTarget::new(root)?, stop.clone());
        let pool = Pool { files: pool.files.min(READ), directories: pool.directories };
        read_all(&target, &pool, &stop)?;
        let read = move || -> Result<()> {
            while !stopped.load(Ordering::Relaxed) {
                read_all(&target, &pool, &stopped)?;
            }
            Ok(())
        };
        let thread = std::thread::Builder::new().name("reader".into()).spawn(read);
        Ok(Reader { thread: Some(thread.map_err(BenchError::system("starting a thread"))?), stop })
    }

    fn end(mut self) -> Result<()> {
        match self.join() {
            Some(Ok(read)) => read,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(()),
        }
    }

    fn join(&mut self) -> Option<std::thread::Result<Result<()>>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join)
    }
}

impl Drop for Reader {
    /// Runs after a failure that is already being reported.
    fn drop(&mut self) {
        let _ = self.join();
    }
}

/// Lists the directories of a pool, and reads its files, unless it is to stop.
fn read_all(target: &SystemTarget, pool: &Pool, stop: &AtomicBool) -> Result<()> {
    let (root, mut buffer) = (target.root()?, vec![0; BYTES]);
    for d in 0..pool.directories {
        let dir = target.open_dir(&root, &Pool::directory(d))?;
        target.list(&dir)?;
        for i in (d..pool.files).step_by(pool.directories) {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            read_file(target, &dir, &pool.file(i).1, &mut buffer)?;
        }
    }
    Ok(())
}

/// Opens a file of the pool for reading, drops the kernel's cache of it, and reads it.
fn read_file(target: &SystemTarget, dir: &OwnedFd, name: &str, buffer: &mut [u8]) -> Result<()> {
    let file = rustix::fs::openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| BenchError::system("opening a file")(error.into()))?;
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)
        .map_err(|error| BenchError::system("dropping what is cached of a file")(error.into()))?;
    check_size(target.read_at(&file, 0, buffer)? as u64, BYTES as u64)
}

/// What is done on the mount of the present.
struct Work<'r> {
    options: &'r CompareOptions,
    pool: &'r Pool,
    target: SystemTarget,
    dirs: Vec<OwnedFd>,
    data: Vec<u8>,
    buffer: Vec<u8>,
    mail: PostMark,
    plan: Plan,
    /// Number of pieces so far that created directories of their own.
    made: usize,
}

impl<'r> Work<'r> {
    fn new(run: &Run<'r>, mountpoint: &Path, pool: &'r Pool) -> Result<Work<'r>> {
        let target = SystemTarget::new(mountpoint)?;
        let root = target.root()?;
        let open = |d| target.open_dir(&root, &Pool::directory(d));
        let dirs = (0..pool.directories).map(open).collect::<Result<Vec<_>>>()?;
        let mail = mail::options(run.history.transactions / LESS_MAIL);
        let plan = Plan::new(&mail);
        let (data, buffer) = (noise(BYTES, 3), vec![0; BYTES]);
        Ok(Work { options: run.options, pool, target, dirs, data, buffer, mail, plan, made: 0 })
    }

    /// Runs a piece of a step. Returns the number of operations, and the seconds they took. Everything is on
    /// the medium when it returns.
    fn piece(&mut self, step: Step, until: Until) -> Result<(usize, f64)> {
        let done = match step {
            Step::Create => self.creates(until),
            Step::Read => timed_until(self.options, until, |i| {
                let (dir, name) = self.pool.file(i % self.pool.files);
                read_file(&self.target, &self.dirs[dir], &name, &mut self.buffer)
            }),
            Step::Overwrite => timed_until(self.options, until, |i| {
                let (dir, name) = self.pool.file(i % self.pool.files);
                let file = self.target.open(&self.dirs[dir], &name)?;
                self.target.write_at(&file, 0, &self.data)
            }),
            Step::PostMark => self.mail(),
        }?;
        self.target.sync()?;
        Ok(done)
    }

    /// A name for a directory of this piece alone.
    fn fresh(&mut self) -> String {
        self.made += 1;
        format!("piece{}", self.made)
    }

    /// Creates files in a directory that is removed with them afterwards.
    fn creates(&mut self, until: Until) -> Result<(usize, f64)> {
        let (root, name) = (self.target.root()?, self.fresh());
        self.target.mkdir(&root, &name)?;
        let dir = self.target.open_dir(&root, &name)?;
        let created =
            timed_until(self.options, until, |i| self.target.create(&dir, &i.to_string()).map(drop))?;
        (0..created.0).try_for_each(|i| self.target.unlink(&dir, &i.to_string()))?;
        self.target.rmdir(&root, &name)?;
        Ok(created)
    }

    fn mail(&mut self) -> Result<(usize, f64)> {
        let (root, name) = (self.target.root()?, self.fresh());
        let names: Vec<String> = (0..self.mail.directories).map(|d| format!("{name}-{d}")).collect();
        let dirs = self.target.new_dirs(&root, &names)?;
        let mut run = Transactions::new(&self.mail, &self.plan, &self.target, &dirs);
        run.all(&self.plan.pool)?;
        let seconds = run.all(&self.plan.transactions)?;
        run.all(&self.plan.rest)?;
        names.iter().try_for_each(|name| self.target.rmdir(&root, name))?;
        Ok((self.plan.transactions.len() / 2, seconds))
    }
}

fn timed_until(
    options: &CompareOptions,
    until: Until,
    mut operation: impl FnMut(usize) -> Result<()>,
) -> Result<(usize, f64)> {
    let start = Instant::now();
    let mut count = 0;
    loop {
        if count % UNWATCHED == 0 {
            options.check_stop()?;
            if count > 0 && matches!(until, Until::Time(most) if start.elapsed() >= most) {
                break;
            }
        }
        if matches!(until, Until::Count(most) if count == most) {
            break;
        }
        operation(count)?;
        count += 1;
    }
    Ok((count, start.elapsed().as_secs_f64()))
}
