//! Promises about repairs that break off, and about taking them back: that breaks off, too, and goes on.

use super::repaired::*;
use super::*;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use yore_check::{plan_repair, undo_repair, CheckError};
use yore_device::{Device, DeviceError, Operation};

/// Which half of a write reaches the medium.
#[derive(Clone, Copy, Debug)]
enum Half {
    First,
    Second,
}

/// A device that fails at its n-th write, half of which reaches the medium.
#[derive(Debug)]
struct Failing<'a> {
    device: &'a MemoryDevice,
    left: AtomicUsize,
    half: Half,
}

impl Failing<'_> {
    fn new(device: &MemoryDevice, write: usize, half: Half) -> Failing<'_> {
        Failing { device, left: AtomicUsize::new(write), half }
    }
}

impl Device for Failing<'_> {
    fn size(&self) -> u64 {
        self.device.size()
    }
    fn read_only(&self) -> bool {
        false
    }
    fn describe(&self) -> String {
        "a device that fails".into()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            let mut torn = read(self.device, offset / 4096);
            let half = match self.half {
                Half::First => 0..2048,
                Half::Second => 2048..4096,
            };
            torn[half.clone()].copy_from_slice(&buf[half]);
            self.device.write_at(offset, &torn[..])?;
            let (operation, len) = (Operation::Write, 4096);
            return Err(DeviceError::NoSpace { operation, offset, len, device: self.describe() });
        }
        self.device.write_at(offset, buf)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// A volume with several damages, and one more.
fn damaged(more: fn(&mut Builder)) -> MemoryDevice {
    let mut b = sound();
    b.data(3);
    (b.inode(INLINE).links, b.inode(BIG).blocks) = (1, 0);
    more(&mut b);
    b.finish()
}

/// Neither superblock can be used.
fn lose_superblocks(b: &mut Builder) {
    spare(b);
    raw(b, 0, |slot| slot.fill(7));
    raw(b, 1, |slot| slot[130] ^= 1);
}

/// The slot that a repair writes is zeros. Half a superblock there is none, as its first sector says.
fn blank_slot(b: &mut Builder) {
    raw(b, 0, |slot| slot.fill(0));
}

/// What else is wrong, and how many writes a repair has at least.
type Case = (fn(&mut Builder), usize);

/// All cases, with each half of a write.
fn cases() -> impl Iterator<Item = (Case, Half)> {
    let cases: [Case; 3] = [(|_| {}, 5), (blank_slot, 5), (lose_superblocks, 6)];
    cases.into_iter().flat_map(|case| [(case, Half::First), (case, Half::Second)])
}

/// Promises that a repair that breaks off at any write can be taken back, and made once more instead; also
/// where neither superblock can be used, and both are written. Behind the last write, of which the second
/// half had arrived in a slot of zeros, it could not be taken back.
#[test]
fn a_repair_that_breaks_off_is_taken_back_or_made_again() {
    let (first, second) = (UndoFile::new("first"), UndoFile::new("second"));
    for ((more, least), half) in cases() {
        let before = damaged(more);
        let mut write = 1;
        loop {
            let device = before.snapshot();
            let (_, _) = (std::fs::remove_file(&first.0), std::fs::remove_file(&second.0));
            let failing = Failing::new(&device, write, half);
            let plan = plan_repair(&failing, &CheckOptions::default()).unwrap();
            if plan.apply(&first.0).is_ok() {
                break;
            }
            let broken_off = device.snapshot();
            undo_repair(&device, &first.0).unwrap();
            assert_eq!(device.first_difference(&before), None, "taken back at write {write}, {half:?}");
            let again = plan_repair(&broken_off, &CheckOptions::default()).unwrap();
            assert!(again.is_complete(), "write {write}, {half:?}: {}", again.after);
            again.apply(&second.0).unwrap();
            assert!(checked(&broken_off).is_clean(), "made again after write {write}, {half:?}");
            write += 1;
        }
        assert!(write > least, "only {write} writes");
    }
}

/// Whoever took a whole repair back and broke that off could not go on: the superblock of the repair was
/// there until the end, and not all of the rest was as the repair had left it. Promises that it goes on from
/// any write, also where both superblocks had been lost.
#[test]
fn taking_back_breaks_off_and_goes_on() {
    let undo_file = UndoFile::new("undo-breaks-off");
    for ((more, least), half) in cases() {
        let before = damaged(more);
        let repaired = before.snapshot();
        let _ = std::fs::remove_file(&undo_file.0);
        plan(&repaired).apply(&undo_file.0).unwrap();
        let mut write = 1;
        loop {
            let device = repaired.snapshot();
            let is_done = undo_repair(&Failing::new(&device, write, half), &undo_file.0).is_ok();
            if !is_done {
                // Once more it breaks off, elsewhere.
                let _ = undo_repair(&Failing::new(&device, write.div_ceil(2), half), &undo_file.0);
                undo_repair(&device, &undo_file.0).unwrap_or_else(|e| panic!("write {write}, {half:?}: {e}"));
            }
            assert_eq!(device.first_difference(&before), None, "write {write}, {half:?}");
            if is_done {
                break;
            }
            write += 1;
        }
        assert!(write > least, "only {write} writes");
    }
}

/// The undo file of a repair that had written both superblocks was taken for any device of its size that had
/// none, which was written over. Promises that something must show that it is the volume of the repair.
#[test]
fn undo_must_see_its_own_volume() {
    let undo_file = UndoFile::new("own");
    let before = damaged(lose_superblocks);
    let repaired = before.snapshot();
    plan(&repaired).apply(&undo_file.0).unwrap();
    let strange = MemoryDevice::new(before.size());
    for block in 0..40 {
        write(&strange, block, &[0x11; BLOCK_SIZE]);
    }
    // The same slots say nothing: what was lost there may have been written by whoever has lost others, too.
    let with_slots = strange.snapshot();
    for slot in 0..2 {
        write(&with_slots, slot, &read(&before, slot));
    }
    // A blank device has what free slots had before the repair.
    let blank = MemoryDevice::new(before.size());
    for slot in 0..2 {
        write(&blank, slot, &read(&before, slot));
    }
    for other in [strange, with_slots, blank] {
        let as_it_was = other.snapshot();
        let e = undo_repair(&other, &undo_file.0).unwrap_err();
        assert!(matches!(e, CheckError::UndoRefused { .. }), "{e}");
        assert_eq!(other.first_difference(&as_it_was), None);
    }
    undo_repair(&repaired, &undo_file.0).unwrap();
    assert_eq!(repaired.first_difference(&before), None);
}

/// A device that cannot be read any more once an undo file is there.
#[derive(Debug)]
struct FailsBeside<'a>(&'a MemoryDevice, PathBuf);

impl Device for FailsBeside<'_> {
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn read_only(&self) -> bool {
        false
    }
    fn describe(&self) -> String {
        "a device that fails".into()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        if self.1.exists() {
            let (operation, len) = (Operation::Read, 4096);
            return Err(DeviceError::NoSpace { operation, offset, len, device: self.describe() });
        }
        self.0.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.0.write_at(offset, buf)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// An undo file that could not be written to its end stayed, of no use, and in the way of the next repair.
/// Promises that it goes, and that nothing of the volume was written.
#[test]
fn an_undo_file_that_is_not_whole_goes() {
    let undo_file = UndoFile::new("not-whole");
    let device = damaged(|_| {});
    let before = device.snapshot();
    let failing = FailsBeside(&device, undo_file.0.clone());
    let plan = plan_repair(&failing, &CheckOptions::default()).unwrap();
    let e = plan.apply(&undo_file.0).unwrap_err();
    assert!(matches!(e, CheckError::Device(_)), "{e}");
    assert!(!undo_file.0.exists() && device.first_difference(&before).is_none());
    plan.apply(&undo_file.0).unwrap_err();
    assert!(!undo_file.0.exists());
}

/// Promises that a repair is not taken back once somebody else has written to the volume, nor on another
/// volume, nor from a file that is damaged; and that the volume is then left alone.
#[test]
fn undo_refuses_what_is_not_its_own() {
    let undo_file = UndoFile::new("refused");
    let mut b = sound();
    b.data(1);
    let device = b.finish();
    plan(&device).apply(&undo_file.0).unwrap();
    let SlotState::Valid(sb) = Superblock::decode(&read(&device, 0), 0) else { panic!() };
    let mounted = device.snapshot();
    write(&mounted, 1, &Superblock { generation: Generation(sb.generation.0 + 1), ..*sb.clone() }.encode(1));
    let again = device.snapshot();
    write(&again, 0, &Superblock { mount_id: 77, ..*sb }.encode(0));
    for other in [mounted, again, sound().finish()] {
        let before = other.snapshot();
        let e = undo_repair(&other, &undo_file.0).unwrap_err();
        assert!(matches!(e, CheckError::UndoRefused { .. }), "{e}");
        assert_eq!(other.first_difference(&before), None);
    }
    let whole = std::fs::read(&undo_file.0).unwrap();
    let before = device.snapshot();
    for at in [0, 20, 70, 4096 + 3, whole.len() - 9] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        std::fs::write(&undo_file.0, &bytes).unwrap();
        let e = undo_repair(&device, &undo_file.0).unwrap_err();
        assert!(matches!(e, CheckError::UndoFile { .. }), "{at}: {e}");
    }
    std::fs::write(&undo_file.0, &whole[..whole.len() - 1]).unwrap();
    assert!(matches!(undo_repair(&device, &undo_file.0), Err(CheckError::UndoFile { .. })));
    assert_eq!(device.first_difference(&before), None);
    std::fs::write(&undo_file.0, &whole).unwrap();
    undo_repair(&device, &undo_file.0).unwrap();
}
