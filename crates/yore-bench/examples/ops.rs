//! Metadata operations of the library by one thread, beside the same calls on mounted directories, in turns.
//!
//! `cargo run --release -p yore-bench --example ops -- [KEY=VALUE]...` with
//! - `volume=FILE` the volume, made anew; without it a memory device of 4 GiB,
//! - `rivals=DIR,DIR` directories of other file systems to measure in the same rounds,
//! - `engines=snapshot,none` one library target for each,
//! - `data_cache=256`, `metadata_cache=256` MiB of the library's caches (other file systems take what the
//!   machine has),
//! - `files=20000`, `directories=100`, `rounds=5`,
//! - `snapshots=rename,unlink` a snapshot is taken before each of these phases (library only),
//! - `every=1` and, while these phases go on, each so many seconds,
//! - `asked=1` there is a snapshot, and somebody has asked before what each holds, which is kept up from then
//!   on (`asked=0`: there is, and nobody has),
//! - `only=create,stat,rename,unlink,pairs,write,postmark` (with one of the first four, files are created and
//!   removed in any case; `pairs` is create and unlink in turn; `write` creates files of 2 KiB; `postmark` is
//!   PostMark's mix: 20,000 files of 500 bytes to 16 KiB in 400 directories, 100,000 transactions;
//!   `transactions=` sets another count); and, of the library alone, `overwrite` and `remove`: a block of
//!   each of the files, which have two and which a snapshot has seen, is written over, with write-back and a
//!   generation at the end, and then, behind another snapshot, they are removed.
//!
//! For each workload it prints the median over the rounds in thousand calls a second, and the processor time
//! that this thread spent on a call, which other work on the machine disturbs less. Each phase is a function
//! of its own, so that `valgrind --tool=callgrind` counts its instructions:
//! `--toggle-collect='*phase_create*'`.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::fs::{AtFlags, Mode, OFlags};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use yore_device::{CreateOptions, Device, FileDevice, MemoryDevice};
use yore_fs::{
    Caller, Engine, FileKind, InodeNo, MkfsOptions, MountOptions, NewSnapshot, Node, Policy, RenameMode,
    View, WriteMode,
};

type Done = anyhow::Result<()>;

/// What the workloads need. Directories are numbered.
trait Fs {
    fn mkdirs(&mut self, count: usize) -> Done;
    fn rmdirs(&mut self) -> Done;
    fn create(&mut self, dir: usize, name: &str) -> Done;
    fn stat(&mut self, dir: usize, name: &str) -> Done;
    fn rename(&mut self, dir: usize, name: &str, new: &str) -> Done;
    fn unlink(&mut self, dir: usize, name: &str) -> Done;
    fn write_new(&mut self, dir: usize, name: &str, data: &[u8]) -> Done;
    fn append(&mut self, dir: usize, name: &str, data: &[u8]) -> Done;
    fn read(&mut self, dir: usize, name: &str, buffer: &mut [u8]) -> Done;
    fn snapshot(&mut self) -> Done;
    /// Asks what each snapshot holds, and has that kept up from then on.
    fn ask(&mut self) -> Done {
        Ok(())
    }
    fn overwrite(&mut self, _dir: usize, _name: &str, _data: &[u8]) -> Done {
        anyhow::bail!("only the library is measured here")
    }
    fn sync(&mut self) -> Done {
        anyhow::bail!("only the library is measured here")
    }
}

struct Library {
    view: View,
    me: Caller,
    dirs: Vec<(String, Node)>,
}

impl Library {
    fn new(volume: Option<&str>, engine: Engine, o: &Options) -> anyhow::Result<Library> {
        let size = 4 << 30;
        let device: Arc<dyn Device> = match volume {
            Some(path) => {
                let options = CreateOptions { overwrite: true, ..CreateOptions::default() };
                Arc::new(FileDevice::create(path, size, options)?)
            }
            None => Arc::new(MemoryDevice::new(size)),
        };
        let options = MkfsOptions {
            uuid: [7; 16],
            hash_seed: [5; 16],
            label: "ops".into(),
            engine,
            owner: (0, 0),
            permissions: 0o755,
            log_size: None,
            policy: Policy::default(),
            journal: None,
            data_checksums: false,
            force: true,
        };
        View::mkfs(&device, &options)?;
        let mount = MountOptions {
            data_cache: o.data_cache << 20,
            metadata_cache: o.metadata_cache << 20,
            ..MountOptions::default()
        };
        let view = View::open(device, &mount)?;
        Ok(Library { view, me: Caller::superuser(), dirs: Vec::new() })
    }

    fn at(&self, dir: usize) -> InodeNo {
        self.dirs[dir].1.inode()
    }

    fn make(&self, dir: usize, name: &str) -> anyhow::Result<Node> {
        Ok(self.view.create(&self.me, self.at(dir), name.as_bytes(), FileKind::Regular, 0o644, 0)?)
    }
}

impl Fs for Library {
    fn ask(&mut self) -> Done {
        self.view.usage(self.view.root(), &mut |_| ControlFlow::Continue(()))?;
        anyhow::ensure!(self.view.knows_usage(), "it is not known");
        Ok(())
    }

    fn overwrite(&mut self, dir: usize, name: &str, data: &[u8]) -> Done {
        let mode = WriteMode { append: false, kill_set_id: false };
        self.view.lookup(self.at(dir), name.as_bytes())?.write(0, data, mode)?;
        Ok(())
    }

    fn sync(&mut self) -> Done {
        Ok(self.view.sync()?)
    }

    fn mkdirs(&mut self, count: usize) -> Done {
        for i in 0..count {
            let name = format!("directory {i}");
            let node = self.view.mkdir(&self.me, self.view.root(), name.as_bytes(), 0o755)?;
            self.dirs.push((name, node));
        }
        Ok(())
    }

    fn rmdirs(&mut self) -> Done {
        for (name, _) in std::mem::take(&mut self.dirs) {
            self.view.rmdir(self.view.root(), name.as_bytes())?;
        }
        Ok(())
    }

    fn create(&mut self, dir: usize, name: &str) -> Done {
        self.make(dir, name).map(drop)
    }

    fn stat(&mut self, dir: usize, name: &str) -> Done {
        std::hint::black_box(self.view.lookup(self.at(dir), name.as_bytes())?.attr().size);
        Ok(())
    }

    fn rename(&mut self, dir: usize, name: &str, new: &str) -> Done {
        let at = self.at(dir);
        Ok(self.view.rename(at, name.as_bytes(), at, new.as_bytes(), RenameMode::Replace)?)
    }

    fn unlink(&mut self, dir: usize, name: &str) -> Done {
        Ok(self.view.unlink(self.at(dir), name.as_bytes())?)
    }

    fn write_new(&mut self, dir: usize, name: &str, data: &[u8]) -> Done {
        let node = self.make(dir, name)?;
        self.view.write(node.inode(), 0, data, WriteMode { append: false, kill_set_id: false })?;
        Ok(())
    }

    fn append(&mut self, dir: usize, name: &str, data: &[u8]) -> Done {
        let node = self.view.lookup(self.at(dir), name.as_bytes())?;
        self.view.write(node.inode(), 0, data, WriteMode { append: true, kill_set_id: false })?;
        Ok(())
    }

    fn read(&mut self, dir: usize, name: &str, buffer: &mut [u8]) -> Done {
        let node = self.view.lookup(self.at(dir), name.as_bytes())?;
        std::hint::black_box(self.view.read(node.inode(), 0, buffer)?);
        Ok(())
    }

    fn snapshot(&mut self) -> Done {
        self.view.take_snapshot(self.view.root(), &NewSnapshot::default())?;
        Ok(())
    }
}

struct Mounted {
    root: OwnedFd,
    dirs: Vec<(String, OwnedFd)>,
}

impl Mounted {
    fn new(path: &str) -> anyhow::Result<Mounted> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Mounted { root: rustix::fs::open(path, flags, Mode::empty())?, dirs: Vec::new() })
    }

    fn open(&self, dir: usize, name: &str, flags: OFlags) -> anyhow::Result<OwnedFd> {
        Ok(rustix::fs::openat(&self.dirs[dir].1, name, flags | OFlags::CLOEXEC, Mode::from(0o644))?)
    }
}

const NEW: OFlags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL);

fn write_all(file: &OwnedFd, mut data: &[u8]) -> Done {
    while !data.is_empty() {
        let written = rustix::io::write(file, data)?;
        data = &data[written..];
    }
    Ok(())
}

impl Fs for Mounted {
    fn mkdirs(&mut self, count: usize) -> Done {
        for i in 0..count {
            let name = format!("directory {i}");
            rustix::fs::mkdirat(&self.root, &name, Mode::from(0o755))?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(&self.root, &name, flags, Mode::empty())?;
            self.dirs.push((name, opened));
        }
        Ok(())
    }

    fn rmdirs(&mut self) -> Done {
        for (name, _) in std::mem::take(&mut self.dirs) {
            rustix::fs::unlinkat(&self.root, &name, AtFlags::REMOVEDIR)?;
        }
        Ok(())
    }

    fn create(&mut self, dir: usize, name: &str) -> Done {
        self.open(dir, name, NEW).map(drop)
    }

    fn stat(&mut self, dir: usize, name: &str) -> Done {
        let found = rustix::fs::statat(&self.dirs[dir].1, name, AtFlags::SYMLINK_NOFOLLOW)?;
        std::hint::black_box(found.st_size);
        Ok(())
    }

    fn rename(&mut self, dir: usize, name: &str, new: &str) -> Done {
        let at = &self.dirs[dir].1;
        Ok(rustix::fs::renameat(at, name, at, new)?)
    }

    fn unlink(&mut self, dir: usize, name: &str) -> Done {
        Ok(rustix::fs::unlinkat(&self.dirs[dir].1, name, AtFlags::empty())?)
    }

    fn write_new(&mut self, dir: usize, name: &str, data: &[u8]) -> Done {
        write_all(&self.open(dir, name, NEW)?, data)
    }

    fn append(&mut self, dir: usize, name: &str, data: &[u8]) -> Done {
        write_all(&self.open(dir, name, OFlags::WRONLY | OFlags::APPEND)?, data)
    }

    fn read(&mut self, dir: usize, name: &str, buffer: &mut [u8]) -> Done {
        std::hint::black_box(rustix::io::read(self.open(dir, name, OFlags::RDONLY)?, buffer)?);
        Ok(())
    }

    fn snapshot(&mut self) -> Done {
        anyhow::bail!("snapshots are taken in the library only")
    }
}

/// The names of a round.
struct Names {
    directories: usize,
    old: Vec<String>,
    new: Vec<String>,
    /// Whether the files have their new names.
    renamed: bool,
    /// How often the phase at hand takes a snapshot; `None`: never.
    every: Option<Duration>,
}

impl Names {
    /// Makes a call for each file, with a snapshot when one is due: the first one at once.
    #[inline(always)]
    fn each(&self, fs: &mut dyn Fs, call: impl Fn(&mut dyn Fs, usize, usize) -> Done) -> Done {
        let (start, mut due) = (Instant::now(), Duration::ZERO);
        for i in 0..self.old.len() {
            if let Some(every) = self.every.filter(|_| i % 16 == 0 && start.elapsed() >= due) {
                fs.snapshot()?;
                due = due.saturating_add(every);
            }
            call(fs, i % self.directories, i)?;
        }
        Ok(())
    }
}

#[inline(never)]
fn phase_create(fs: &mut dyn Fs, names: &Names) -> Done {
    names.each(fs, |fs, dir, i| fs.create(dir, &names.old[i]))
}

#[inline(never)]
fn phase_stat(fs: &mut dyn Fs, names: &Names) -> Done {
    names.each(fs, |fs, dir, i| fs.stat(dir, &names.old[i]))
}

#[inline(never)]
fn phase_rename(fs: &mut dyn Fs, names: &Names) -> Done {
    names.each(fs, |fs, dir, i| fs.rename(dir, &names.old[i], &names.new[i]))
}

#[inline(never)]
fn phase_unlink(fs: &mut dyn Fs, names: &Names) -> Done {
    let last = if names.renamed { &names.new } else { &names.old };
    names.each(fs, |fs, dir, i| fs.unlink(dir, &last[i]))
}

#[inline(never)]
fn phase_pairs(fs: &mut dyn Fs, names: &Names) -> Done {
    names.old.iter().enumerate().try_for_each(|(i, name)| {
        fs.create(i % names.directories, name)?;
        fs.unlink(i % names.directories, name)
    })
}

#[inline(never)]
fn phase_write(fs: &mut dyn Fs, names: &Names) -> Done {
    let data = [0x5a; 2048];
    names.old.iter().enumerate().try_for_each(|(i, name)| fs.write_new(i % names.directories, name, &data))
}

/// With write-back and a generation at the end.
#[inline(never)]
fn phase_overwrite(fs: &mut dyn Fs, names: &Names) -> Done {
    let data = [0xa5; 4096];
    let all = || names.old.iter().enumerate();
    all().try_for_each(|(i, name)| fs.overwrite(i % names.directories, name, &data))?;
    fs.sync()
}

#[inline(never)]
fn phase_remove(fs: &mut dyn Fs, names: &Names) -> Done {
    names.old.iter().enumerate().try_for_each(|(i, name)| fs.unlink(i % names.directories, name))
}

const POSTMARK_DIRECTORIES: usize = 400;
const POSTMARK_FILES: usize = 20_000;

/// PostMark's transactions (Katcher, 1997): each reads a file or appends to one, and creates one or deletes
/// one.
struct Postmark {
    random: StdRng,
    files: Vec<(usize, String)>,
    made: usize,
    data: Vec<u8>,
    buffer: Vec<u8>,
}

impl Postmark {
    fn new(seed: u64) -> Postmark {
        let random = StdRng::seed_from_u64(seed);
        let (data, buffer) = (vec![0xa5; 16 << 10], vec![0; 64 << 10]);
        Postmark { random, files: Vec::new(), made: 0, data, buffer }
    }

    fn size(&mut self) -> usize {
        self.random.random_range(500..=16 << 10)
    }

    fn create(&mut self, fs: &mut dyn Fs) -> Done {
        let name = format!("{:07}", self.made);
        self.made += 1;
        let dir = self.random.random_range(0..POSTMARK_DIRECTORIES);
        let size = self.size();
        fs.write_new(dir, &name, &self.data[..size])?;
        self.files.push((dir, name));
        Ok(())
    }

    fn delete(&mut self, fs: &mut dyn Fs) -> Done {
        let which = self.random.random_range(0..self.files.len());
        let (dir, name) = self.files.swap_remove(which);
        fs.unlink(dir, &name)
    }

    fn transaction(&mut self, fs: &mut dyn Fs) -> Done {
        let which = self.random.random_range(0..self.files.len());
        if self.random.random() {
            let (dir, name) = &self.files[which];
            fs.read(*dir, name, &mut self.buffer)?;
        } else {
            let size = self.size();
            let (dir, name) = &self.files[which];
            fs.append(*dir, name, &self.data[..size])?;
        }
        match self.random.random() {
            true => self.create(fs),
            false => self.delete(fs),
        }
    }
}

#[inline(never)]
fn phase_postmark(fs: &mut dyn Fs, postmark: &mut Postmark, transactions: usize) -> Done {
    (0..transactions).try_for_each(|_| postmark.transaction(fs))
}

/// Wall and thread time of one phase.
fn timed(f: impl FnOnce() -> Done) -> anyhow::Result<(Duration, Duration)> {
    let thread = || {
        let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `t` is a timespec to be written to, and lives across the call.
        let done = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut t) };
        assert_eq!(done, 0, "a thread has a clock of its own");
        Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
    };
    let (wall, before) = (Instant::now(), thread());
    f()?;
    Ok((wall.elapsed(), thread() - before))
}

const WORKLOADS: [&str; 9] =
    ["create", "stat", "rename", "unlink", "pairs", "write", "postmark", "overwrite", "remove"];
/// Those that take files with data and a snapshot.
const PAST: [&str; 2] = ["overwrite", "remove"];

struct Options {
    volume: Option<String>,
    rivals: Vec<String>,
    engines: Vec<String>,
    files: usize,
    directories: usize,
    rounds: usize,
    transactions: usize,
    only: Vec<String>,
    data_cache: u64,
    metadata_cache: u64,
    snapshots: Vec<String>,
    every: Duration,
    asked: Option<bool>,
}

fn options() -> anyhow::Result<Options> {
    let mut o = Options {
        volume: None,
        rivals: Vec::new(),
        engines: vec!["snapshot".into()],
        files: 20_000,
        directories: 100,
        rounds: 5,
        transactions: 100_000,
        only: WORKLOADS.iter().filter(|w| !PAST.contains(w)).map(|w| w.to_string()).collect(),
        data_cache: 256,
        metadata_cache: 256,
        snapshots: Vec::new(),
        every: Duration::MAX,
        asked: None,
    };
    let list = |value: &str| value.split(',').map(String::from).collect();
    for argument in std::env::args().skip(1) {
        match argument.split_once('=') {
            Some(("volume", v)) => o.volume = Some(v.into()),
            Some(("rivals", v)) => o.rivals = list(v),
            Some(("engines", v)) => o.engines = list(v),
            Some(("files", v)) => o.files = v.parse()?,
            Some(("directories", v)) => o.directories = v.parse()?,
            Some(("rounds", v)) => o.rounds = v.parse()?,
            Some(("transactions", v)) => o.transactions = v.parse()?,
            Some(("data_cache", v)) => o.data_cache = v.parse()?,
            Some(("metadata_cache", v)) => o.metadata_cache = v.parse()?,
            Some(("only", v)) => o.only = list(v),
            Some(("asked", v)) => o.asked = Some(v == "1"),
            Some(("snapshots", v)) => o.snapshots = list(v),
            Some(("every", v)) => o.every = Duration::from_secs_f64(v.parse()?),
            _ => anyhow::bail!("{argument:?}: see the head of ops.rs"),
        }
    }
    Ok(o)
}

/// One round: the times of the workloads wanted, each with the number of calls.
fn round(fs: &mut dyn Fs, o: &Options, round: usize) -> anyhow::Result<Vec<Option<(f64, f64)>>> {
    let wants = |w: &str| o.only.iter().any(|only| only == w);
    let name = |prefix: &str| (0..o.files).map(|i| format!("{prefix}-{round}-{i:07}")).collect();
    let mut names = Names {
        directories: o.directories,
        old: name("file"),
        new: name("renamed"),
        renamed: false,
        every: None,
    };
    let mut figures = vec![None; WORKLOADS.len()];
    let mut note = |w: &str, calls: usize, (wall, cpu): (Duration, Duration)| {
        let at = WORKLOADS.iter().position(|x| *x == w).expect("a workload of the list");
        let calls = calls as f64;
        figures[at] = wants(w).then(|| (calls / wall.as_secs_f64(), cpu.as_secs_f64() / calls));
    };
    let every = |phase: &str| o.snapshots.iter().any(|at| at == phase).then_some(o.every);
    fs.mkdirs(o.directories)?;
    if o.asked.is_some() {
        fs.snapshot()?;
    }
    if o.asked == Some(true) {
        fs.ask()?;
    }
    if PAST.iter().any(|w| wants(w)) {
        for (i, name) in names.old.iter().enumerate() {
            fs.write_new(i % o.directories, name, &[0x5a; 8192])?;
        }
        fs.sync()?;
        fs.snapshot()?;
        note("overwrite", o.files, timed(|| phase_overwrite(fs, &names))?);
        fs.snapshot()?;
        note("remove", o.files, timed(|| phase_remove(fs, &names))?);
    }
    if ["create", "stat", "rename", "unlink"].iter().any(|w| wants(w)) {
        names.every = every("create");
        note("create", o.files, timed(|| phase_create(fs, &names))?);
        names.every = every("stat");
        if wants("stat") {
            note("stat", o.files, timed(|| phase_stat(fs, &names))?);
        }
        names.every = every("rename");
        if wants("rename") {
            note("rename", o.files, timed(|| phase_rename(fs, &names))?);
            names.renamed = true;
        }
        names.every = every("unlink");
        note("unlink", o.files, timed(|| phase_unlink(fs, &names))?);
    }
    if wants("pairs") {
        note("pairs", o.files, timed(|| phase_pairs(fs, &names))?);
    }
    if wants("write") {
        note("write", o.files, timed(|| phase_write(fs, &names))?);
        for (i, name) in names.old.iter().enumerate() {
            fs.unlink(i % o.directories, name)?;
        }
    }
    fs.rmdirs()?;
    if wants("postmark") {
        let mut postmark = Postmark::new(round as u64);
        fs.mkdirs(POSTMARK_DIRECTORIES)?;
        for _ in 0..POSTMARK_FILES {
            postmark.create(fs)?;
        }
        note("postmark", o.transactions, timed(|| phase_postmark(fs, &mut postmark, o.transactions))?);
        while !postmark.files.is_empty() {
            postmark.delete(fs)?;
        }
        fs.rmdirs()?;
    }
    Ok(figures)
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn main() -> anyhow::Result<()> {
    let o = options()?;
    let mut targets: Vec<(String, Box<dyn Fs>)> = Vec::new();
    for (i, name) in o.engines.iter().enumerate() {
        let engine = match name.as_str() {
            "snapshot" => Engine::Snapshot,
            "none" => Engine::None,
            other => anyhow::bail!("no engine {other:?}: snapshot or none"),
        };
        let volume = o.volume.as_ref().map(|v| format!("{v}.{i}"));
        targets.push((name.clone(), Box::new(Library::new(volume.as_deref(), engine, &o)?)));
    }
    for rival in &o.rivals {
        targets.push((rival.clone(), Box::new(Mounted::new(rival)?)));
    }
    let mut all = vec![vec![Vec::new(); WORKLOADS.len()]; targets.len()];
    for r in 0..o.rounds {
        for turn in 0..targets.len() {
            let t = (r + turn) % targets.len();
            for (all, figure) in all[t].iter_mut().zip(round(targets[t].1.as_mut(), &o, r)?) {
                all.extend(figure);
            }
        }
    }
    println!("| target | workload | 1,000 a second | ns of thread time a call |");
    println!("|---|---|---:|---:|");
    for ((name, _), all) in targets.iter().zip(all) {
        for (workload, figures) in WORKLOADS.iter().zip(all).filter(|(_, f)| !f.is_empty()) {
            let rate = median(figures.iter().map(|f| f.0).collect());
            let cpu = median(figures.iter().map(|f| f.1).collect());
            println!("| {name} | {workload} | {:.1} | {:.0} |", rate / 1e3, cpu * 1e9);
        }
    }
    Ok(())
}
