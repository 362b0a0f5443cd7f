//! Promises: a volume is marked clean only if it has no findings, and is in a state that a check can end. The
//! marking survives a crash at any write.

mod common;

use common::*;
use yore_check::{check, mark_checked, CheckError, CheckOptions};
use yore_device::{Device, DeviceError, MemoryDevice};
use yore_format::*;

fn volume(state: VolumeState, engine: Engine) -> Builder {
    let mut b = sound();
    (b.sb.state, b.sb.engine) = (state, engine);
    b
}

fn slots(device: &dyn Device) -> [SlotState; 2] {
    [0, 1].map(|slot| Superblock::decode(&read(device, slot), slot as u32))
}

/// Promises that marking leaves two valid superblocks of new generations, which differ from the old one in
/// state and time only.
#[test]
fn a_sound_volume_is_marked() {
    for (state, engine) in [
        (VolumeState::MustBeChecked, Engine::None),
        (VolumeState::InUse, Engine::None),
        (VolumeState::InUse, Engine::Sync),
        (VolumeState::InUse, Engine::SoftUpdates),
        (VolumeState::LeaksPending, Engine::SoftUpdates),
    ] {
        let device = volume(state, engine).finish();
        let [_, SlotState::Valid(before)] = slots(&device) else { panic!() };
        mark_checked(&device).unwrap();
        // Slot 1 was the one that counted, so slot 0 is written first.
        for (after, generation) in slots(&device).into_iter().zip([8, 9]) {
            let SlotState::Valid(after) = after else { panic!("{after:?}") };
            let expected = Superblock {
                generation: Generation(generation),
                state: VolumeState::Clean,
                written_seconds: after.written_seconds,
                ..(*before).clone()
            };
            assert_eq!(*after, expected);
        }
        assert!(check(&device, &CheckOptions::default()).unwrap().is_clean());
    }
}

/// Promises that a clean volume is not written to, and that a volume in a state that a check cannot end is
/// refused and left alone.
#[test]
fn what_a_check_does_not_end_is_left_alone() {
    let clean = volume(VolumeState::Clean, Engine::None).finish();
    let before = slots(&clean);
    mark_checked(&clean).unwrap();
    assert_eq!(slots(&clean), before);
    for engine in [Engine::Snapshot, Engine::Journal] {
        let device = volume(VolumeState::InUse, engine).finish();
        let before = slots(&device);
        let e = mark_checked(&device).unwrap_err();
        assert!(matches!(e, CheckError::NotMarkable { .. }), "{e}");
        assert_eq!(slots(&device), before);
    }
    let mut damaged = volume(VolumeState::MustBeChecked, Engine::None);
    damaged.inode(BIG).blocks += 1;
    let device = damaged.finish();
    let before = slots(&device);
    let e = mark_checked(&device).unwrap_err();
    assert!(matches!(e, CheckError::NotClean { findings: 1, .. }), "{e}");
    assert_eq!(slots(&device), before);
}

/// Promises an error instead of a generation that starts over.
#[test]
fn the_last_generation_is_not_passed() {
    let device = volume(VolumeState::MustBeChecked, Engine::None).finish();
    let [_, SlotState::Valid(sb)] = slots(&device) else { panic!() };
    write(&device, 1, &Superblock { generation: Generation(u64::MAX - 1), ..*sb }.encode(1));
    let e = mark_checked(&device).unwrap_err();
    assert!(matches!(e, CheckError::GenerationsUsedUp { .. }), "{e}");
}

/// A device that loses power at its n-th write, half of which reaches the medium.
#[derive(Debug)]
struct Crashing {
    inner: MemoryDevice,
    left: std::sync::atomic::AtomicUsize,
}

impl Device for Crashing {
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn read_only(&self) -> bool {
        false
    }
    fn describe(&self) -> String {
        "a device that loses power".into()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        use std::sync::atomic::Ordering::Relaxed;
        if self.left.fetch_sub(1, Relaxed) == 1 {
            let mut torn = read(&self.inner, offset / 4096);
            torn[1024..].copy_from_slice(&buf[1024..]);
            self.inner.write_at(offset, &torn[..])?;
            return Err(DeviceError::NoSpace {
                operation: yore_device::Operation::Write,
                offset,
                len: 4096,
                device: self.describe(),
            });
        }
        self.inner.write_at(offset, buf)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// Promises that a marking that is torn at either write leaves a volume in the old state or in the new one.
#[test]
fn a_torn_marking_leaves_one_superblock_whole() {
    for (left, state) in [(1, VolumeState::MustBeChecked), (2, VolumeState::Clean)] {
        let inner = volume(VolumeState::MustBeChecked, Engine::None).finish();
        let device = Crashing { inner, left: left.into() };
        let e = mark_checked(&device).unwrap_err();
        assert!(matches!(e, CheckError::Device(_)), "{e}");
        let report = check(&device, &CheckOptions::default()).unwrap();
        assert!(report.is_clean(), "{report}");
        assert_eq!(report.state, state);
        mark_checked(&device).unwrap();
        assert_eq!(check(&device, &CheckOptions::default()).unwrap().state, VolumeState::Clean);
    }
}
