//! Promises of a repair of a volume whose engine writes in place and orders changes: what a mount of it shows
//! is there afterwards, whatever led to it was lost; and the repair may break off at any write.

use crate::repaired_log::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use yore_check::{check, plan_repair, undo_repair};
use yore_device::{Device, DeviceError, MemoryDevice, Operation};
use yore_format::layout::HEADER_SLOTS;
use yore_format::{Generation, ZoneHeader};
use yore_fs::{Caller, Engine, FileKind, View};

/// Names in the directory of [`changed_in_place`].
const MANY: usize = 120;

/// A volume that a crash has met under an engine that orders changes. Inodes of files were written over since
/// it was opened last, and nothing else, or, with `is_more`, blocks have come, too.
fn changed_in_place(engine: Engine, is_more: bool) -> Volume {
    let volume = Volume::make(engine, false);
    let view = volume.open();
    let caller = Caller::superuser();
    let many = view.mkdir(&caller, view.root(), b"many", 0o755).unwrap().inode();
    let make = |view: &View, name: &str, content: &[u8]| {
        let node = view.create(&caller, many, name.as_bytes(), FileKind::Regular, 0o644, 0).unwrap();
        view.write(node.inode(), 0, content, PLAIN).unwrap();
    };
    for n in 0..MANY {
        make(&view, &format!("file {n}"), &bytes(n, 30));
    }
    let pieces = create(&view, "pieces").inode();
    for n in 0..20 {
        view.write(pieces, n * 3 * 4096, &bytes(n as usize, 4096), PLAIN).unwrap();
    }
    view.close().unwrap();

    let view = volume.open();
    for n in 0..MANY {
        let node = view.lookup(many, format!("file {n}").as_bytes()).unwrap();
        view.write(node.inode(), 0, &bytes(n + 1000, 30), PLAIN).unwrap();
        if n == MANY / 2 {
            view.sync().unwrap();
        }
    }
    if is_more {
        for n in 0..MANY {
            make(&view, &format!("more {n}"), &bytes(n + 2000, 30));
        }
    }
    view.sync().unwrap();
    volume.crashed()
}

/// What a mount of a copy shows.
fn shown(volume: &Volume) -> Vec<Option<Vec<u8>>> {
    let view = volume.crashed().open();
    let many = view.lookup(view.root(), b"many").unwrap().inode();
    let names = (0..MANY).flat_map(|n| [format!("file {n}"), format!("more {n}")]);
    let mut found: Vec<_> = names.map(|name| content_in(&view, many, &name)).collect();
    found.push(content(&view, "pieces"));
    view.close().unwrap();
    found
}

/// A repair knew nothing of the engine's rules for a zone that it had to find, because the table or the
/// header that counts was damaged: it took whatever had been written over since the volume was closed last
/// for the wrong copy, and gave it up. Promises that nothing is lost.
#[test]
fn what_was_written_in_place_survives_the_loss_of_table_and_headers() {
    type Damage = (&'static str, bool, fn(&Volume));
    let damages: [Damage; 4] = [
        ("table", false, |volume| volume.flip(volume.table(0).0)),
        ("table-more", true, |volume| volume.flip(volume.table(0).0)),
        ("header", false, |volume| {
            let (_, entry) = volume.table(0);
            let start = entry.start.get();
            let other = volume.block(start + HEADER_SLOTS[usize::from(1 - entry.header_slot)]);
            let (than, since) = (Generation(entry.generation.get()), volume.superblock().1.in_place_since);
            // Without it none counts.
            assert!(!ZoneHeader::decode(&other).is_ok_and(|header| header.replaces((than, 0), since)));
            volume.flip(start + HEADER_SLOTS[usize::from(entry.header_slot)]);
        }),
        ("headers", true, |volume| {
            let start = volume.table(0).1.start.get();
            HEADER_SLOTS.iter().for_each(|slot| volume.flip(start + slot));
        }),
    ];
    for engine in [Engine::SoftUpdates, Engine::Sync] {
        let volumes = [false, true].map(|is_more| changed_in_place(engine, is_more));
        for (what, is_more, damage) in damages {
            let story = format!("{}-{what}", engine.name());
            let left = volumes[usize::from(is_more)].crashed();
            assert!(left.superblock().1.in_place_since.0 > 0, "{story}: it is in use");
            let expected = shown(&left);
            assert_eq!(expected[0], Some(bytes(1000, 30)), "{story}");
            damage(&left);
            let before = left.device.snapshot();
            let plan = plan_repair(&*left.device, &left.options()).unwrap();
            assert!(plan.is_complete() && !plan.before.is_clean(), "{story}: {}", plan.after);
            // A header with a round counts for sure. Of one without, or one that was made, nobody can say
            // that it is the last one.
            let is_of_zone = |lost: &yore_check::Loss| lost.path.starts_with("zone ");
            assert!(plan.lost.iter().all(is_of_zone), "{story}: {:?}", plan.lost);
            assert!(what != "table-more" || plan.lost.is_empty(), "{story}: {:?}", plan.lost);
            let undo_file = UndoFile::new(&format!("in-place-{story}"));
            plan.apply(&undo_file.0).unwrap();
            let report = check(&*left.device, &left.options()).unwrap();
            assert!(report.is_clean(), "{story}: {report}");
            assert!(shown(&left) == expected, "{story}: as a mount without the damage shows it");
            undo_repair(&*left.device, &undo_file.0).unwrap();
            assert_eq!(left.device.first_difference(&before), None, "{story}");
        }
    }
}

/// A device that fails from its n-th write on.
#[derive(Debug)]
struct Failing<'a>(&'a MemoryDevice, AtomicUsize);

impl Device for Failing<'_> {
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
        self.0.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        if self.1.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err() {
            let (operation, len) = (Operation::Write, buf.len() as u64);
            return Err(DeviceError::NoSpace { operation, offset, len, device: self.describe() });
        }
        self.0.write_at(offset, buf)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// A repair of a volume that was in use under an engine that orders changes wrote over the header, the table
/// and the superblock that counted; when it broke off there, nobody could mount the volume. Promises that a
/// mount shows the same at each write, and that the repair is taken back byte for byte from there.
#[test]
fn a_repair_of_a_volume_in_use_may_break_off() {
    for engine in [Engine::SoftUpdates, Engine::Sync] {
        let left = changed_in_place(engine, true);
        let expected = shown(&left);
        left.damage();
        let undo_file = UndoFile::new(&format!("in-use-{}", engine.name()));
        let mut writes = 0;
        loop {
            let story = format!("{}, {writes} writes", engine.name());
            let broken_off = left.crashed();
            let _ = std::fs::remove_file(&undo_file.0);
            let failing = Failing(&broken_off.device, AtomicUsize::new(writes));
            let plan = plan_repair(&failing, &left.options()).unwrap();
            assert!(plan.is_complete(), "{story}: {}", plan.after);
            let is_whole = plan.apply(&undo_file.0).is_ok();
            assert!(shown(&broken_off) == expected, "{story}");
            undo_repair(&*broken_off.device, &undo_file.0).unwrap();
            assert_eq!(broken_off.device.first_difference(&left.device), None, "{story}");
            if is_whole {
                break;
            }
            writes += 1;
        }
        assert!(writes >= 4, "two headers, a block of the table and the superblock: {writes}");
    }
}
