//! A volume whose log moves between three disks, of which a crash takes what it likes at any moment.

use std::sync::Arc;
use yore_check::{check, CheckOptions};
use yore_crash::volume::{used_device, NEVER, VOLUME_SIZE};
use yore_device::simulated::{CrashPlan, SimulatedDevice};
use yore_device::{Device, MemoryDevice, Part};
use yore_fs::{
    Caller, Engine, FileKind, LogDevice, LogPlace, MkfsOptions, MountOptions, MoveLog, View, WriteMode,
};

const LOG_SIZE: u64 = 256 << 10;
/// Logs beside the volume.
const LOGS: u64 = 2;

/// A volume and two disks for logs, in one order of time.
#[derive(Clone)]
struct Disks(Arc<dyn Device>);

impl Disks {
    fn volume(&self) -> Arc<dyn Device> {
        Arc::new(Part::new(self.0.clone(), 0, VOLUME_SIZE))
    }

    fn log(&self, n: u64) -> LogDevice {
        let part = Part::new(self.0.clone(), VOLUME_SIZE + n * LOG_SIZE, LOG_SIZE);
        LogDevice { device: Arc::new(part), path: Vec::new() }
    }

    fn places(&self) -> Vec<LogPlace> {
        let logs = (0..LOGS).map(|n| LogPlace::On(self.log(n)));
        std::iter::once(LogPlace::Recorded).chain(logs).collect()
    }
}

fn options(journal: LogPlace) -> MountOptions {
    MountOptions { commit_interval: NEVER, access_times: false, journal, ..MountOptions::default() }
}

fn name(n: u64) -> String {
    format!("file {n}")
}

/// A file whose content is durable when this returns.
fn keep(view: &View, device: &SimulatedDevice, n: u64) {
    let root = view.root();
    let made = view.create(&Caller::superuser(), root, name(n).as_bytes(), FileKind::Regular, 0o644, 0);
    let no = made.unwrap().inode();
    // Some of them in the log alone, some with blocks.
    let content = vec![n as u8; if n.is_multiple_of(2) { 3_000 } else { 40_000 }];
    view.write(no, 0, &content, WriteMode { append: false, kill_set_id: false }).unwrap();
    view.fsync(no, false).unwrap();
    device.mark(n);
}

fn try_state(medium: MemoryDevice, promised: u64, text: &str) {
    let disks = Disks(Arc::new(medium));
    let mut accepted = 0;
    for place in disks.places() {
        // Looking changes nothing, so all places can be tried.
        let options = MountOptions { read_only: true, ..options(place.clone()) };
        let Ok(view) = View::open(disks.volume(), &options) else { continue };
        drop(view);
        accepted += 1;
        let checked =
            check(&*disks.volume(), &CheckOptions { log: place.clone(), ..CheckOptions::default() });
        let report = checked.unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(report.is_clean(), "{text}: {report}");
    }
    assert_eq!(accepted, 1, "{text}: so many places have the log that counts");
    for place in disks.places() {
        let Ok(view) = View::open(disks.volume(), &options(place)) else { continue };
        for n in 1..=promised {
            let found = view.lookup(view.root(), name(n).as_bytes());
            let no = found.unwrap_or_else(|error| panic!("{text}: {}: {error}", name(n))).inode();
            let mut content = vec![0; view.getattr(no).unwrap().size as usize];
            view.read(no, 0, &mut content).unwrap();
            let is_whole = content.len() >= 3_000 && content.iter().all(|byte| *byte == n as u8);
            assert!(is_whole, "{text}: {}", name(n));
        }
        view.close().unwrap();
        return;
    }
    panic!("{text}: no place is accepted for writing");
}

/// Moves the log of a volume about, and tries crashes of that. Returns how many.
///
/// # Panics
/// If not exactly one log counts, or something is missing with it.
pub fn crashes_while_it_moves(engine: Engine) -> u64 {
    let medium = MemoryDevice::new(VOLUME_SIZE + LOGS * LOG_SIZE);
    let used = used_device();
    let mut bytes = vec![0; VOLUME_SIZE as usize];
    used.read_at(0, &mut bytes).unwrap();
    medium.write_at(0, &bytes).unwrap();
    let device = Arc::new(SimulatedDevice::new(medium));
    let disks = Disks(device.clone());
    let options_of_volume = MkfsOptions { engine, log_size: Some(LOG_SIZE), ..MkfsOptions::default() };
    View::mkfs(&disks.volume(), &options_of_volume).unwrap();
    device.restart_trace();
    let view = View::open(disks.volume(), &options(LogPlace::Recorded)).unwrap();
    let elsewhere = |n| MoveLog::Elsewhere { on: disks.log(n), force: false };
    let steps = [elsewhere(0), elsewhere(1), MoveLog::Inside(100), MoveLog::Inside(40), elsewhere(0)];
    keep(&view, &device, 1);
    let mut n = 1;
    for to in &steps {
        view.move_log(to).unwrap();
        keep(&view, &device, n + 1);
        keep(&view, &device, n + 2);
        n += 2;
    }
    view.close().unwrap();
    drop(view);
    let trace = device.trace();
    let plan = CrashPlan { exhaustive_max: 8, samples: 3, at_marks: true, ..CrashPlan::default() };
    let mut states = 0;
    for case in trace.crash_states(&plan) {
        let promised = trace.marks_before(case.after_entry()).max().unwrap_or(0);
        try_state(case.materialise(), promised, &format!("{engine:?}, {}", case.state()));
        states += 1;
    }
    states
}
