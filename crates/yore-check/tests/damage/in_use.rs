//! Promises about volumes that were in use under an engine that orders changes: what closing them would write
//! hides nothing that a check of a closed volume finds.

use super::repaired::*;
use super::*;
use std::sync::atomic::{AtomicBool, Ordering};
use yore_check::{mark_checked, undo_repair, CheckError};
use yore_device::wrapped::{Hook, Request, Wrapped};
use yore_device::{Device, DeviceError};

/// The sound volume as a crash leaves it under such an engine.
fn in_use(engine: Engine) -> Builder {
    let mut b = sound();
    (b.sb.engine, b.sb.state) = (engine, VolumeState::InUse);
    b.sb.set_in_place_since(Generation(GENERATION.0 - 2));
    b
}

/// What closing such a volume would write lies in front of the other superblock slot, so whatever was there
/// was not found, and the volume was marked clean. Promises that it is found, first of all and with the words
/// for a closed volume, and that a repair puts a superblock there.
#[test]
fn rubbish_in_the_other_slot_is_found_in_a_volume_in_use() {
    let undo_file = UndoFile::new("in-use-slot");
    for (engine, more) in [(Engine::SoftUpdates, 0), (Engine::Sync, 0), (Engine::SoftUpdates, 1)] {
        let device = in_use(engine).finish();
        let report = checked(&device);
        assert!(report.is_clean(), "{report}");
        let mut b = in_use(engine);
        b.inode(BIG).blocks += more;
        raw(&mut b, 0, |slot| slot.fill(7));
        let device = b.finish();
        let closed = {
            let mut b = sound();
            raw(&mut b, 0, |slot| slot.fill(7));
            checked(&b.finish()).findings
        };
        for scan_from in [0, u64::MAX] {
            let options = CheckOptions { scan_from, ..CheckOptions::default() };
            let report = check(&device, &options).expect("the volume can be checked");
            assert_eq!(report.findings[..1], closed[..], "{report}");
            assert_eq!((report.findings_count, report.proved), (1 + more, false), "{report}");
        }
        let e = mark_checked(&device).unwrap_err();
        assert!(matches!(e, CheckError::NotClean { .. }), "{e}");
        let before = device.snapshot();
        let plan = plan(&device);
        assert!(plan.is_complete(), "{}", plan.after);
        assert_eq!(plan.before.findings[0], closed[0]);
        let done: Vec<Problem> = plan.done.iter().map(|done| done.finding.problem).collect();
        assert_eq!(done[0], OtherSuperblock);
        assert_eq!(done.len() as u64, 1 + more, "{done:?}");
        let _ = std::fs::remove_file(&undo_file.0);
        plan.apply(&undo_file.0).expect("the repair is written");
        let report = checked(&device);
        assert!(report.is_clean() && report.state == VolumeState::Clean, "{report}");
        undo_repair(&device, &undo_file.0).expect("the repair is taken back");
        assert_eq!(device.first_difference(&before), None, "as before, byte for byte");
    }
}

/// A device that returns one block wrong when it is read for the first time.
#[derive(Debug)]
struct WrongOnce {
    block: u64,
    is_over: AtomicBool,
}

impl Hook for WrongOnce {
    fn request(&self, request: Request<'_>, below: &dyn Device) -> Result<(), DeviceError> {
        let (offset, buf) = match request {
            Request::Read { offset, buf } => (offset, buf),
            other => return other.pass(below),
        };
        below.read_at(offset, buf)?;
        let at = (self.block * BLOCK_SIZE as u64).checked_sub(offset).filter(|at| *at < buf.len() as u64);
        if let Some(at) = at.filter(|_| !self.is_over.swap(true, Ordering::Relaxed)) {
            buf[at as usize + 1000] ^= 1;
        }
        Ok(())
    }
}

/// A block had been written over since its header, and did not verify when its zone was settled, because it
/// was read wrong. So what it should be was not known any more, and it was reported as stale, though it was
/// sound ever after. Promises that it is read once more before that.
#[test]
fn a_block_that_was_read_wrong_once_is_read_again() {
    let at = GROUP_BLOCKS + 6;
    let mut b = in_use(Engine::SoftUpdates);
    b.after.push(Box::new(move |device| {
        let mut bytes = read(device, at);
        let slot = InodeNo(FAR).slot();
        let mut inode = Inode::decode(Inode::slot(&bytes, slot)).unwrap();
        inode.mtime.seconds += 1;
        inode.encode(Inode::slot_mut(&mut bytes, slot).0);
        seal(&mut bytes, GENERATION);
        write(device, at, &bytes);
    }));
    let device = b.finish();
    let report = checked(&device);
    assert!(report.is_clean(), "{report}");
    for scan_from in [0, u64::MAX] {
        let wrong = WrongOnce { block: at, is_over: AtomicBool::new(false) };
        let device = Wrapped::new(device.snapshot(), wrong);
        let options = CheckOptions { scan_from, ..CheckOptions::default() };
        let report = check(&device, &options).expect("the volume can be checked");
        assert!(device.hook.is_over.load(Ordering::Relaxed), "the block was read");
        assert!(report.is_clean(), "{report}");
    }
}
