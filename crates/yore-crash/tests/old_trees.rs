//! Promise: wherever the power fails while a volume with a past in old trees goes on in annals, the volume is
//! sound, and what its events have seen in the old trees is what it was. That holds while annals begin, while
//! what old versions have is removed, renamed and shared, and while events and a file are given up. Whatever
//! state a crash leaves, all of the past can be given up from there, and nothing of it is left.

use crate::common::copies;
use crate::common::old_trees;

use copies::{copy, Tree};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use yore_check::{check, CheckOptions, Report};
use yore_device::simulated::{CrashPlan, SimulatedDevice};
use yore_device::Device;
use yore_fs::rollback::{Plan, Rights, Verb};
use yore_fs::{EventNo, InodeNo, MountOptions, NewSnapshot, OpenOptions, View, Volume};

/// The promises that an event is forgotten, and that a file has gone from all events.
const FORGOTTEN: u64 = 1;
const EXPUNGED: u64 = 2;

fn options() -> MountOptions {
    MountOptions { commit_interval: Duration::from_secs(3600), ..MountOptions::default() }
}

fn sound(device: &dyn Device, state: &str) -> Report {
    let report = check(device, &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{state}: {report}");
    report
}

/// What each of these events has seen; events that are gone are left out.
fn past(view: &View, events: &[(EventNo, InodeNo)]) -> BTreeMap<EventNo, Tree> {
    let kept: Vec<EventNo> = view.events().unwrap().iter().map(|event| event.number).collect();
    let of = |&(event, root): &(EventNo, InodeNo)| {
        // Of a file that was removed the event has seen nothing.
        let then = view.as_of(event);
        (event, then.getattr(root).map_or(Tree::new(), |_| copy(&then, root)))
    };
    events.iter().filter(|(event, _)| kept.contains(event)).map(of).collect()
}

struct Sequence {
    volume: Volume,
    device: Arc<SimulatedDevice>,
}

impl Sequence {
    /// Generations are completed between the steps.
    fn finish(&self) {
        let mut sync = |_: &_| {
            self.volume.sync().unwrap();
            ControlFlow::Continue(())
        };
        self.volume.view().finish_forgetting(&mut sync).unwrap();
    }

    fn write(&self, path: &str, byte: u8) {
        let file = OpenOptions::new().write(true).create(true).open(&self.volume, path).unwrap();
        file.write_at(&[byte; 5000], 3000).unwrap();
        file.sync_all().unwrap();
    }

    /// Goes on with the volume. Gives up this event, and this file, on the way.
    fn run(&self, event: EventNo, file: (InodeNo, u32)) {
        let (volume, view) = (&self.volume, self.volume.view());
        // The first change begins annals.
        self.write("f0", 1);
        self.write("d1/f0", 2);
        for i in 0..60 {
            for name in [format!("many/{i}"), format!("many/{i} has another name")] {
                if volume.exists(&name).unwrap() {
                    volume.remove_file(name).unwrap();
                }
            }
        }
        volume.rename("a/c", "b/was c").unwrap();
        view.take_snapshot(view.root(), &NewSnapshot { wait: true, ..NewSnapshot::named("later") }).unwrap();
        volume.remove_file("scattered").unwrap();
        self.write("f0", 3);
        volume.copy("scattered@s0", "shared").unwrap();
        volume.sync().unwrap();
        view.forget(&[event]).unwrap();
        self.device.mark(FORGOTTEN);
        self.finish();
        view.expunge(&[file]).unwrap();
        self.device.mark(EXPUNGED);
        self.finish();
        let first = view.events().unwrap()[0].number;
        let plan = Plan { verb: Verb::Rollback, of: None, target: first, others: None };
        let d0 = volume.node("d0").unwrap().inode();
        view.rollback(&Rights::All, d0, &plan, &mut |_| ()).unwrap();
        view.index_history(u64::MAX).unwrap();
        volume.close().unwrap();
    }
}

#[test]
fn a_crash_at_any_write() {
    let device = Arc::new(SimulatedDevice::new(old_trees::device()));
    let volume = Volume::open(device.clone(), &options()).unwrap();
    let events: Vec<(EventNo, InodeNo)> =
        volume.view().events().unwrap().iter().map(|event| (event.number, event.row.root)).collect();
    let before = past(volume.view(), &events);
    let expunged = "f1";
    let file = *volume.node(expunged).unwrap().attr();
    let forgotten = volume.view().events().unwrap().iter().find(|e| e.row.name == "s3").unwrap().number;
    volume.sync().unwrap();
    device.restart_trace();
    let sequence = Sequence { volume, device: device.clone() };
    sequence.run(forgotten, (file.inode, file.incarnation));
    let trace = device.trace();
    let plan = CrashPlan { samples: 1, exhaustive_max: 1, ..CrashPlan::default() };
    let (mut cases, mut with_annals) = (0, 0);
    for case in trace.crash_states(&plan) {
        let state = case.state().to_string();
        let promised = |promise| trace.marks_before(case.after_entry()).any(|mark| mark == promise);
        let medium = Arc::new(case.materialise());
        sound(&*medium, &state);
        let volume = Volume::open(medium.clone(), &options()).unwrap();
        let view = volume.view();
        let found = past(view, &events);
        for (event, was) in &before {
            let Some(now) = found.get(event) else {
                assert!(*event == forgotten, "{state}: event {event} is gone");
                continue;
            };
            assert!(*event != forgotten || !promised(FORGOTTEN), "{state}: event {event} is there again");
            for (path, copied) in was {
                let may_be_gone = path.as_os_str() == expunged;
                let is = now.get(path);
                assert!(
                    is == Some(copied) || (is.is_none() && may_be_gone),
                    "{state}: {} as of {event}",
                    path.display()
                );
                assert!(is.is_none() || !may_be_gone || !promised(EXPUNGED), "{state}: expunged, and there");
            }
            assert!(now.keys().all(|path| was.contains_key(path)), "{state}: more as of {event}");
        }
        with_annals += usize::from(volume.exists("b/was c").unwrap());
        let all: Vec<EventNo> = view.events().unwrap().iter().map(|event| event.number).collect();
        view.forget(&all).unwrap();
        view.finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
        volume.close().unwrap();
        let counts = sound(&*medium, &state).counts;
        let left = (counts.versions, counts.past_names, counts.history_data_blocks, counts.history_nodes);
        assert_eq!(left, (0, 0, 0, 0), "{state}: something of the past is left");
        cases += 1;
    }
    println!("{cases} states, {with_annals} of them with rows of annals");
    assert!(with_annals > 20 && cases - with_annals > 2, "{with_annals} of {cases}");
}
