//! Large volumes: distant groups are created when they are used, with the root zones that their table needs.
//! The work of making, opening and checking a volume does not depend on its size.

use std::sync::Arc;
use yore_device::{Device, MemoryDevice};
use yore_fs::{Caller, Error, FallocateMode, FileKind, MkfsOptions, MountOptions, View, WriteMode};

const TIB: u64 = 1 << 40;
const WRITE: WriteMode = WriteMode { append: false, kill_set_id: false };

fn volume(size: u64) -> (Arc<dyn Device>, View) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(size));
    let options = MkfsOptions { uuid: [5; 16], hash_seed: [6; 16], ..MkfsOptions::default() };
    View::mkfs(&device, &options).unwrap();
    let view = View::open(device.clone(), &MountOptions::default()).unwrap();
    (device, view)
}

fn assert_sound(device: &dyn Device) {
    let report = yore_check::check(device, &Default::default()).unwrap();
    assert!(report.is_clean(), "{report}");
}

/// A volume of 64 TiB is made, used, closed, checked and opened again.
#[test]
fn sixty_four_tebibytes() {
    let (device, view) = volume(64 * TIB);
    let caller = Caller::superuser();
    let file = view.create(&caller, view.root(), b"f", FileKind::Regular, 0o644, 0).unwrap();
    view.write(file.inode(), 15 * TIB, b"far out", WRITE).unwrap();
    assert!(matches!(view.write(file.inode(), 16 * TIB, b"x", WRITE), Err(Error::FileTooLarge)));
    view.close().unwrap();
    drop((file, view));
    assert_sound(&*device);
    let view = View::open(device, &MountOptions::default()).unwrap();
    let file = view.lookup(view.root(), b"f").unwrap();
    let mut back = [0; 7];
    view.read(file.inode(), 15 * TIB, &mut back).unwrap();
    assert_eq!(&back, b"far out");
}

/// Beyond group 36,720 (about 4.5 TiB) the zone table needs a second root zone, which lies in the first such
/// group.
#[test]
fn groups_beyond_the_first_root_zone() {
    let (device, view) = volume(5 * TIB);
    let caller = Caller::superuser();
    let file = view.create(&caller, view.root(), b"f", FileKind::Regular, 0o644, 0).unwrap();
    let len = 9 * TIB / 2 + TIB / 4;
    view.fallocate(file.inode(), 0, len, FallocateMode::Allocate { keep_size: false }).unwrap();
    view.sync().unwrap();
    assert_sound(&*device);
    let last = view.create(&caller, view.root(), b"g", FileKind::Regular, 0o644, 0).unwrap();
    view.write(last.inode(), 0, &[7; 100_000], WRITE).unwrap();
    view.close().unwrap();
    drop((file, last, view));
    assert_sound(&*device);
    let view = View::open(device.clone(), &MountOptions::default()).unwrap();
    view.unlink(view.root(), b"f").unwrap();
    view.close().unwrap();
    assert_sound(&*device);
}
