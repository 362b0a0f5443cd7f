//! Batches of events that a full volume gives up.

use super::*;
use crate::history::policy::tests::damage;
use crate::{FallocateMode, MkfsOptions, MountOptions, NewSnapshot, SpaceRules, Volume};
use yore_device::{Device, MemoryDevice};

/// On a full volume with a million versions, each 256 that went were chosen by reading all of them anew, four
/// times. Now the second batch begins where the first one ended, and each event is asked again when its turn
/// comes: what was named, held or forgotten since the first batch does not go.
#[test]
fn batches_follow_one_another() {
    let volume = Volume::memory(64 << 20).unwrap();
    let view = volume.view();
    view.set_space_rules(SpaceRules { floor_seconds: 0, share_percent: 50 }).unwrap();
    let take = || view.take_snapshot(view.root(), &NewSnapshot::default()).unwrap().number;
    let taken: Vec<EventNo> = (0..2 * EVENTS + 100).map(|_| take()).collect();
    let store = view.store();
    let rule = Rule::new(store, Behalf::Owner);
    let mut plan = Plan::new(store, &rule).unwrap();
    let mut next = || -> Vec<EventNo> {
        plan.next_batch(u64::MAX).unwrap().into_iter().map(|event| event.number).collect()
    };
    assert_eq!(next(), taken[..EVENTS]);
    let [named, held, forgotten] = [EVENTS + 10, EVENTS + 11, 2 * EVENTS + 20].map(|at| taken[at]);
    view.describe(named, Some("named"), None).unwrap();
    view.hold(held, true).unwrap();
    view.forget(&[forgotten]).unwrap();
    take();
    let left: Vec<EventNo> =
        taken[EVENTS..].iter().copied().filter(|event| ![named, held, forgotten].contains(event)).collect();
    let (second, third) = left.split_at(EVENTS);
    assert_eq!(next(), second);
    assert_eq!(next(), third);
    assert!(next().is_empty());
}

/// A file that each snapshot has seen was damaged, so giving up a snapshot freed nothing. A call that had no
/// room would have given up all history, one batch after the other, for nothing. It fails with the damage now
/// when the first batch has freed nothing, and the snapshots behind that stay.
#[test]
fn damage_does_not_cost_all_history() {
    const BLOCK: u64 = BLOCK_SIZE as u64;
    const MIB: u64 = 1 << 20;
    const SNAPSHOTS: u8 = 8;
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 * MIB));
    Volume::create(device.clone(), &MkfsOptions::default()).unwrap().close().unwrap();
    let volume = Volume::open(device.clone(), &MountOptions::default()).unwrap();
    let view = volume.view();
    view.set_space_rules(SpaceRules { floor_seconds: 0, share_percent: 0 }).unwrap();
    for n in 0..SNAPSHOTS {
        volume.write("file", vec![n; MIB as usize]).unwrap();
        view.take_snapshot(view.root(), &NewSnapshot { wait: true, ..NewSnapshot::default() }).unwrap();
    }
    volume.write("file", vec![100; MIB as usize]).unwrap();
    volume.write("filler", "").unwrap();
    volume.write("target", "").unwrap();
    volume.sync().unwrap();
    let [file, filler, target] = ["file", "filler", "target"].map(|name| volume.node(name).unwrap().inode());
    let mode = FallocateMode::Allocate { keep_size: false };
    let free = volume.statfs().blocks_free;
    view.fallocate(filler, 0, (free - 256 - free / 50) * BLOCK, mode).unwrap();
    volume.close().unwrap();

    let volume = Volume::open(device, &MountOptions::default()).unwrap();
    let view = volume.view();
    let kept = || -> Vec<EventNo> { view.events().unwrap().iter().map(|event| event.number).collect() };
    let before = kept();
    assert_eq!(before.len(), usize::from(SNAPSHOTS));
    // What each snapshot holds is known, so nobody meets the damage before something is given up.
    view.what_would_free().unwrap();
    assert!(view.knows_usage());
    let found = volume.statfs();
    let wanted = found.blocks_free + 100;
    assert!(wanted <= found.blocks_available, "{found:?}");
    damage(&volume, &view.store().cell(file).unwrap());
    let refused = view.fallocate(target, 0, wanted * BLOCK, mode).unwrap_err();
    assert!(refused.is_damage(), "{refused}");
    let left = kept();
    let gone = before.len() - left.len();
    assert_eq!(left, before[gone..], "the oldest go first");
    assert!((1..=before.len() / 2).contains(&gone), "{gone} of {} went for nothing", before.len());
    // It says that the inode is damaged.
    drop(volume.close());
}

/// However many events may go, few batches are enough for all of them.
#[test]
fn a_batch_grows_with_what_may_go() {
    assert_eq!(most_events(0), EVENTS);
    assert_eq!(most_events(10_000), EVENTS);
    for many in [1_000_000, 30_000_000] {
        assert!(many / most_events(many) <= BATCHES, "{many}");
    }
}
