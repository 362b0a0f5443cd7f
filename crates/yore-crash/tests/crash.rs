//! Tries to break rules 11 to 13 of the architecture. With lock order and other assertions on, so with fewer
//! states than `make crash` tries without them.

use std::sync::Arc;
use yore_crash::campaign::{try_case, Campaign};
use yore_crash::case::Case;
use yore_crash::generate::Profile;
use yore_crash::record::record;
use yore_crash::volume;
use yore_device::simulated::SimulatedDevice;
use yore_device::{Device, MemoryDevice};
use yore_fs::{Caller, Durability, Engine, Error};

/// Each of 8,000 states that crashes could have left is clean, opens without repair, and has what was
/// promised. For some this is also checked after a second crash, during the mount. Others are used, and are
/// clean afterwards.
#[test]
fn every_crash_leaves_what_was_promised() {
    let summary = Campaign::crashes(1, 8_000).run();
    summary.must_be_good();
    assert!(summary.states >= 8_000, "only {} states were tried", summary.states);
}

/// Under `journal` crashes leave what they leave under `snapshot`, and no less if calls return when what they
/// changed is durable; and then that is there.
#[test]
fn every_crash_under_journal_leaves_what_was_promised() {
    for (durability, states) in
        [(Durability::Async, 2_000), (Durability::Group, 1_000), (Durability::Sync, 1_000)]
    {
        let summary = Campaign { engine: Engine::Journal, durability, ..Campaign::crashes(1, states) }.run();
        summary.must_be_good();
        assert!(summary.states >= states, "only {} states were tried", summary.states);
    }
}

/// And so they do with the log on another disk, of which a crash leaves what it likes, whatever it left of
/// the volume.
#[test]
fn every_crash_of_two_disks_leaves_what_was_promised() {
    for (engine, durability, states) in [
        (Engine::Journal, Durability::Async, 2_000),
        (Engine::Journal, Durability::Group, 1_000),
        (Engine::Journal, Durability::Sync, 1_000),
        (Engine::Snapshot, Durability::Async, 2_000),
    ] {
        let crashes = Campaign::crashes(1, states);
        let summary = Campaign { engine, durability, elsewhere: true, ..crashes }.run();
        summary.must_be_good();
        assert!(summary.states >= states, "only {} states were tried", summary.states);
    }
}

/// And so they do on volumes that keep checksums of file data: each block of the present and of the past that
/// is read has the bytes that its checksum is of.
#[test]
fn every_crash_with_checksums_leaves_what_was_promised() {
    for (engine, states) in [(Engine::Snapshot, 4_000), (Engine::Journal, 1_500)] {
        let summary = Campaign { engine, checksums: true, ..Campaign::crashes(3, states) }.run();
        summary.must_be_good();
        assert!(summary.states >= states, "only {} states were tried", summary.states);
    }
}

/// The same holds while files are expunged from snapshots and the power may fail. No snapshot shows any file
/// that a call had promised to expunge. If a call was under way, all snapshots show a file, or none does.
/// Everything else in them is as it was.
#[test]
fn what_was_expunged_stays_gone() {
    let summary = Campaign { expunges: true, ..Campaign::crashes(1, 5_000) }.run();
    summary.must_be_good();
    assert!(summary.states >= 5_000, "only {} states were tried", summary.states);
}

/// Recording a sequence twice gives the same entries, so that a printed line means the same crash again.
#[test]
fn a_recorded_sequence_can_be_replayed() {
    for seed in 0..5 {
        let case = Case::new(seed, 60, Profile::Crash);
        let record = || match record(&case) {
            Ok(recorded) => recorded,
            Err(wrong) => panic!("{case}: [{}] {}", wrong.class, wrong.message),
        };
        let (first, second) = (record(), record());
        assert_eq!(first.entries(), second.entries(), "{case}");
        for at in 0..=first.entries() {
            assert_eq!(first.bounds(at), second.bounds(at), "{case}, entry {at}");
        }
    }
}

/// Under `none` a volume that was not unmounted is refused, until a check found nothing.
#[test]
fn after_a_crash_under_none_a_check_is_needed() {
    let device = Arc::new(SimulatedDevice::new(MemoryDevice::new(volume::VOLUME_SIZE)));
    let shared: Arc<dyn Device> = device.clone();
    volume::make(&shared, Engine::None, 1).expect("a new volume");
    let view = volume::open(shared).expect("it was never used");
    view.mkdir(&Caller::superuser(), view.root(), b"a", 0o755).expect("there is room");
    view.sync().expect("the device works");
    let crashed: Arc<dyn Device> = Arc::new(device.snapshot());
    let refused = volume::open(crashed.clone()).err();
    assert!(matches!(refused, Some(Error::Refused(_))), "it opened, or failed otherwise: {refused:?}");
    yore_check::mark_checked(&*crashed).expect("everything had been written");
    let view = volume::open(crashed).expect("it was checked");
    view.lookup(view.root(), b"a").expect("it had been synced");
}

/// Cases in which crashes once left something other than what was promised, in all their states.
///
/// 128071: a file was overwritten in place, renamed over another, and synced. The log's record with the new
/// name was on the medium before the data was, so a crash in between showed the name with the old content.
///
/// 72619: a file was truncated within a block, appended to and synced. The record with the new size was on
/// the medium before the block was written in place, so a crash in between showed again what had been
/// truncated.
#[test]
fn what_once_was_lost_is_there() {
    for number in [128_071, 72_619] {
        let case = Case::systematic(number);
        if let Err(failure) = try_case(&case, 0, &mut |_| true) {
            panic!("{failure}");
        }
    }
}

/// A user who may not keep the bit truncated a set-user-id file, while generations began all the time. The
/// bit was dropped in a separate Op before the truncation, and a crash showed the old content under the new
/// mode.
#[test]
fn a_file_is_truncated_and_loses_its_privileges_in_one_instant() {
    let case: Case = "seed=8182 ops=60 profile=fsync log=24 commits".parse().expect("a case");
    for _ in 0..20 {
        if let Err(failure) = try_case(&case, 1000, &mut |_| true) {
            panic!("{failure}");
        }
    }
}
