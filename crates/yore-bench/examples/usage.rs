//! What the question costs how much each snapshot holds (`du --history` of a volume): time, and requests to
//! the device.
//!
//! `cargo run --release -p yore-bench --example usage -- [KEY=VALUE]...` with
//! - `files=10000` files in directories of 1,000,
//! - `events=100` snapshots, before each of which ten files change,
//! - `shared=0` files that are restored from the first snapshot, so that they share blocks with the past.
//!
//! The volume is in memory. It is opened anew, with nothing in its caches, before the first question, which
//! walks through the versions. The second one does not. Then 1,000 blocks change before the third one. The
//! volume is closed, which leaves what it knows as a hint, and opened, asked and closed once more. How long
//! it takes to close and to open it before anything is known is there for comparison. Instructions of the
//! questions: `valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*ask_known*'`.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use yore_device::wrapped::{Hook, Request, Wrapped};
use yore_device::{Device, DeviceError, MemoryDevice};
use yore_fs::{File, MkfsOptions, MountOptions, NewSnapshot, OpenOptions, View, Volume, WriteMode};

#[derive(Debug, Default)]
struct Reads(AtomicU64);

impl Hook for Reads {
    fn request(&self, request: Request<'_>, below: &dyn Device) -> Result<(), DeviceError> {
        self.0.fetch_add(u64::from(matches!(request, Request::Read { .. })), Ordering::Relaxed);
        request.pass(below)
    }
}

struct Options {
    files: usize,
    events: usize,
    shared: usize,
}

fn options() -> anyhow::Result<Options> {
    let mut options = Options { files: 10_000, events: 100, shared: 0 };
    for argument in std::env::args().skip(1) {
        match argument.split_once('=') {
            Some(("files", value)) => options.files = value.parse()?,
            Some(("events", value)) => options.events = value.parse()?,
            Some(("shared", value)) => options.shared = value.parse()?,
            _ => anyhow::bail!("{argument}: not one of files=, events=, shared="),
        }
    }
    Ok(options)
}

fn name(file: usize) -> String {
    format!("d{}/f{file}", file / 1000)
}

fn open(device: &Arc<dyn Device>) -> anyhow::Result<Volume> {
    let options = MountOptions { commit_interval: Duration::from_secs(3600), ..MountOptions::default() };
    Ok(Volume::open(device.clone(), &options)?)
}

fn change(volume: &Volume, file: usize, byte: u8) -> anyhow::Result<()> {
    let mode = WriteMode { append: false, kill_set_id: false };
    volume.node(name(file))?.write(0, &[byte; 4096], mode)?;
    Ok(())
}

fn fill(device: &Arc<dyn Device>, o: &Options) -> anyhow::Result<()> {
    let volume = open(device)?;
    for file in 0..o.files {
        if file % 1000 == 0 {
            volume.create_dir(format!("d{}", file / 1000))?;
        }
        volume.write(name(file), "some data")?;
    }
    let changed = o.files.min(1000);
    for file in 0..changed {
        volume.write(name(file), vec![1; 5 * 4096])?;
    }
    let mut first = None;
    for event in 0..o.events {
        let taken = volume.view().take_snapshot(volume.view().root(), &NewSnapshot::default())?;
        first.get_or_insert(taken.number);
        for i in 0..10 {
            change(&volume, (event * 10 + i) % changed, event as u8)?;
        }
    }
    if let Some(first) = first {
        let then = Volume::from_view(volume.view().as_of(first));
        for file in 0..o.shared.min(changed) {
            let to = OpenOptions::new().write(true).create(true).open(&volume, name(file))?;
            to.copy_from(&File::open(&then, name(file))?, 0, 5 * 4096)?;
        }
    }
    Ok(volume.close()?)
}

fn ask(volume: &Volume) -> anyhow::Result<usize> {
    let mut count = 0;
    volume.view().usage(volume.view().root(), &mut |_| {
        count += 1;
        ControlFlow::Continue(())
    })?;
    Ok(count)
}

#[inline(never)]
fn ask_known(volume: &Volume) -> anyhow::Result<usize> {
    ask(volume)
}

fn main() -> anyhow::Result<()> {
    let o = options()?;
    let device = Arc::new(Wrapped::new(MemoryDevice::new(8 << 30), Reads::default()));
    let reads = device.clone();
    let device: Arc<dyn Device> = device;
    View::mkfs(&device, &MkfsOptions::default())?;
    fill(&device, &o)?;
    let timed = |what: &str, work: &mut dyn FnMut() -> anyhow::Result<()>| -> anyhow::Result<()> {
        let (before, began) = (reads.hook.0.load(Ordering::Relaxed), Instant::now());
        work()?;
        let read = reads.hook.0.load(Ordering::Relaxed) - before;
        println!("{what}: {} us, {read} reads", began.elapsed().as_micros());
        Ok(())
    };
    let volume = open(&device)?;
    timed("closing, with nothing known", &mut || Ok(volume.close()?))?;
    let reopened = |what: &str| -> anyhow::Result<Volume> {
        let mut opened = None;
        timed(what, &mut || {
            opened = Some(open(&device)?);
            Ok(())
        })?;
        opened.ok_or_else(|| anyhow::anyhow!("it was opened"))
    };
    let volume = reopened("opening, with nothing known")?;
    let measured = |what: &str, ask: fn(&Volume) -> anyhow::Result<usize>| -> anyhow::Result<()> {
        let (before, began) = (reads.hook.0.load(Ordering::Relaxed), Instant::now());
        let events = ask(&volume)?;
        let took = began.elapsed();
        let read = reads.hook.0.load(Ordering::Relaxed) - before;
        let (files, shared) = (o.files, o.shared);
        let micros = took.as_micros();
        println!("{files} files, {events} events, {shared} shared: {what}: {micros} us, {read} reads");
        Ok(())
    };
    measured("first question", ask)?;
    measured("second question", ask_known)?;
    for file in 0..o.files.min(1000) {
        change(&volume, file, 7)?;
    }
    volume.sync()?;
    measured("after 1,000 changes", ask_known)?;
    timed("closing, with what is known and 1,000 changes", &mut || Ok(volume.close()?))?;
    let volume = reopened("opening, with what is known")?;
    timed("first question of this mount", &mut || ask_known(&volume).map(drop))?;
    timed("closing, with what is known", &mut || Ok(volume.close()?))?;
    Ok(())
}
