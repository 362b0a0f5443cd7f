//! Promises for files of very many extents: a range of which others have parts is zeroed, in steps, and such
//! a file can be removed when there is hardly any room for metadata, so a volume that is full can be emptied.

use std::sync::Arc;
use yore_check::{check, CheckOptions};
use yore_device::{Device, MemoryDevice};
use yore_fs::{
    Error, EventNo, FallocateMode, File, MkfsOptions, MountOptions, NewSnapshot, OpenOptions, Policy,
    SetXattrMode, Volume,
};

const CHUNK: u64 = 32 << 10;

fn volume(bytes: u64) -> (Arc<dyn Device>, Volume) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(bytes));
    let options = MkfsOptions { policy: Policy::default(), ..MkfsOptions::default() };
    Volume::create(device.clone(), &options).unwrap().close().unwrap();
    let volume = Volume::open(device.clone(), &MountOptions::default()).unwrap();
    (device, volume)
}

fn must_be_sound(device: &Arc<dyn Device>) {
    let report = check(&**device, &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{report}");
}

/// Another file has every second part of a file. Zeroing all of it in one Op made more extents than it had
/// reserved room for, and panicked; of a file with a tree it failed for want of room on a volume that is
/// nearly empty, and gave up history for that.
#[test]
fn a_file_of_which_others_have_parts_is_zeroed() {
    for chunks in [128, 1000] {
        let (device, volume) = volume(256 << 20);
        let view = volume.view();
        let size = chunks * CHUNK;
        volume.write("old", "old").unwrap();
        let event = view.take_snapshot(view.root(), &NewSnapshot::default()).unwrap().number;
        volume.write("a", vec![7; size as usize]).unwrap();
        volume.sync().unwrap();
        volume.write("b", "").unwrap();
        let ino = |name: &str| volume.node(name).unwrap().inode();
        volume.truncate("b", size).unwrap();
        let half = CHUNK / 2;
        for k in 0..chunks {
            let copied = view.copy_file_range(ino("a"), k * CHUNK, ino("b"), k * CHUNK, half).unwrap();
            assert_eq!(copied, half);
        }
        volume.sync().unwrap();
        for name in ["a", "b"] {
            let mode = FallocateMode::ZeroRange { keep_size: true };
            view.fallocate(ino(name), 0, size, mode).unwrap();
            assert!(volume.read(name).unwrap().iter().all(|byte| *byte == 0));
        }
        volume.close().unwrap();
        must_be_sound(&device);
        let volume = Volume::open(device.clone(), &MountOptions::default()).unwrap();
        assert!(volume.read("b").unwrap().iter().all(|byte| *byte == 0));
        assert!(Volume::from_view(volume.view().as_of(event)).exists("old").unwrap(), "given up");
        volume.close().unwrap();
    }
}

fn is_full(error: &Error) -> bool {
    matches!(error.root(), Error::NoSpace | Error::NeverFits { .. })
}

/// Creates files with attributes until there is no room for metadata.
fn fill_metadata(volume: &Volume) {
    let mut n = 0;
    for len in [40_000, 3000, 900] {
        loop {
            let name = format!("{n}");
            let made = volume
                .write(&name, "")
                .and_then(|()| volume.set_xattr(&name, "user.a", vec![n as u8; len], SetXattrMode::Any));
            n += 1;
            match made {
                Ok(()) => {}
                Err(error) if is_full(&error) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// A file of many extents that a snapshot has seen is removed when no zone has room for the nodes that its
/// removal copies at once. It stayed listed, closing failed, and no mount for writing succeeded any more.
#[test]
fn a_full_volume_can_be_emptied_of_them() {
    let (device, volume) = volume(64 << 20);
    let view = volume.view();
    let big = File::create(&volume, "big").unwrap();
    for k in 0..900 {
        big.write_at(&[7; 4096], k * 8192).unwrap();
    }
    drop(big);
    volume.sync().unwrap();
    let event = view.take_snapshot(view.root(), &NewSnapshot::default()).unwrap().number;
    let fill = File::create(&volume, "fill").unwrap();
    let available = volume.statfs().blocks_available;
    fill.write_at(&vec![1; (available as usize - 16) * 4096], 0).unwrap();
    fill.sync_all().unwrap();
    drop(fill);
    fill_metadata(&volume);
    assert!(view.events().unwrap().iter().any(|kept| kept.number == event), "the snapshot was given up");
    volume.remove_file("big").unwrap();
    volume.close().unwrap();
    let volume = Volume::open(device.clone(), &MountOptions::default()).unwrap();
    volume.remove_file("fill").unwrap();
    volume.close().unwrap();
    let volume = Volume::open(device.clone(), &MountOptions::default()).unwrap();
    volume.write("new", [5; 5000]).unwrap();
    volume.close().unwrap();
    must_be_sound(&device);
}

/// Each block that is written over lies in another leaf, which a snapshot has seen, so each write needs the
/// copy of a leaf. A promise counted a node for each fifty blocks: writes were accepted, and writing them
/// back failed for want of room.
#[test]
fn what_is_accepted_over_a_leaf_that_the_past_has_is_written_back() {
    let (device, volume) = volume(256 << 20);
    let view = volume.view();
    let big = File::create(&volume, "big").unwrap();
    const EXTENTS: u64 = 24_000;
    for k in 0..EXTENTS {
        big.write_at(&[7; 4096], k * 8192).unwrap();
    }
    volume.sync().unwrap();
    let event = view.take_snapshot(view.root(), &NewSnapshot::default()).unwrap().number;
    let fill = File::create(&volume, "fill").unwrap();
    let available = volume.statfs().blocks_available;
    fill.write_at(&vec![1; (available as usize - 700) * 4096], 0).unwrap();
    fill.sync_all().unwrap();
    drop(fill);
    fill_metadata(&volume);
    for n in 0..10 {
        volume.remove_file(format!("{n}")).unwrap();
    }
    volume.sync().unwrap();
    let mut accepted = Vec::new();
    for k in (0..EXTENTS).step_by(59) {
        match big.write_at(&[8; 4096], k * 8192) {
            Ok(_) => accepted.push(k),
            Err(error) if is_full(&error) => break,
            Err(error) => panic!("{error}"),
        }
    }
    println!("{} accepted, {:?}", accepted.len(), volume.statfs());
    assert!(view.events().unwrap().iter().any(|kept| kept.number == event), "the snapshot was given up");
    big.sync_all().unwrap();
    drop(big);
    volume.close().unwrap();
    must_be_sound(&device);
}

/// A volume with what `before` makes, which a snapshot has seen, and with what `then` does behind that. In
/// the end there is hardly any room left, neither for data nor for metadata.
fn full_behind_a_snapshot(
    bytes: u64,
    options: &MountOptions,
    before: impl FnOnce(&Volume),
    then: impl FnOnce(&Volume),
) -> (Arc<dyn Device>, Volume, EventNo) {
    let (device, volume) = volume(bytes);
    volume.close().unwrap();
    let volume = Volume::open(device.clone(), options).unwrap();
    before(&volume);
    volume.sync().unwrap();
    let view = volume.view();
    let event = view.take_snapshot(view.root(), &NewSnapshot::default()).unwrap().number;
    then(&volume);
    volume.sync().unwrap();
    let fill = File::create(&volume, "fill").unwrap();
    let available = volume.statfs().blocks_available;
    fill.write_at(&vec![1; (available as usize - 700) * 4096], 0).unwrap();
    fill.sync_all().unwrap();
    drop(fill);
    fill_metadata(&volume);
    (device, volume, event)
}

/// Each block lies in an extent of its own, and so does the hole behind it.
fn write_extents(volume: &Volume, extents: u64) {
    let big = File::create(volume, "big").unwrap();
    for k in 0..extents {
        big.write_at(&[7; 4096], k * 8192).unwrap();
    }
}

fn must_have(volume: &Volume, event: EventNo) {
    let kept = volume.view().events().unwrap().iter().any(|kept| kept.number == event);
    assert!(kept, "the snapshot was given up");
}

/// One leaf has all extents of the file, and the snapshot has it, too. A truncation reserved a copy of the
/// leaf for each extent: there was no room for so much, so it gave up history, or failed. So did the removal
/// of a large attribute.
#[test]
fn what_removes_much_needs_few_copies() {
    let make = |volume: &Volume| {
        write_extents(volume, 100);
        volume.set_xattr("big", "user.large", vec![9; 65_536], SetXattrMode::Any).unwrap();
    };
    let (device, volume, event) = full_behind_a_snapshot(64 << 20, &MountOptions::default(), make, |_| ());
    volume.truncate("big", 3 * 8192).unwrap();
    must_have(&volume, event);
    volume.remove_xattr("big", "user.large").unwrap();
    must_have(&volume, event);
    volume.sync().unwrap();
    assert_eq!(volume.metadata("big").unwrap().len(), 3 * 8192);
    let then = Volume::from_view(volume.view().as_of(event));
    assert_eq!(then.metadata("big").unwrap().len(), 99 * 8192 + 4096);
    assert_eq!(then.get_xattr("big", "user.large").unwrap().unwrap(), vec![9; 65_536]);
    drop(then);
    volume.close().unwrap();
    must_be_sound(&device);
}

/// Each hole lies in another leaf, which a snapshot has, so each needs the copy of a leaf, until there is no
/// room for one. That was found when the range read as zeros already: the call failed, writing the file back
/// failed from then on, and after the next mount the old bytes were there again.
#[test]
fn a_hole_is_made_or_nothing_changes() {
    const EXTENTS: u64 = 12_000;
    let options = MountOptions { keep_history: true, ..MountOptions::default() };
    let make = |volume: &Volume| write_extents(volume, EXTENTS);
    // From here on the snapshot has a version of the file, so the holes need no room for one.
    let change = |volume: &Volume| {
        let big = OpenOptions::new().write(true).open(volume, "big").unwrap();
        big.write_at(&[7; 4096], 0).unwrap();
    };
    let (device, volume, _) = full_behind_a_snapshot(128 << 20, &options, make, change);
    let big = OpenOptions::new().write(true).open(&volume, "big").unwrap();
    let view = volume.view();
    let (mut made, mut refused) = (Vec::new(), None);
    for k in (0..EXTENTS).step_by(59) {
        match view.fallocate(big.inode(), k * 8192, 4096, FallocateMode::PunchHole) {
            Ok(()) => made.push(k),
            Err(error) if is_full(&error) => {
                refused = Some(k);
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    let refused = refused.expect("some time there is no room for a copy");
    assert!(made.len() > 10, "{made:?}");
    let mut kept = vec![refused];
    let mode = FallocateMode::ZeroRange { keep_size: true };
    match view.fallocate(big.inode(), (refused + 1) * 8192, 4096, mode) {
        Ok(()) => made.push(refused + 1),
        Err(error) if is_full(&error) => kept.push(refused + 1),
        Err(error) => panic!("{error}"),
    }
    let must_be_whole = |volume: &Volume| {
        let content = volume.read("big").unwrap();
        let is_all = |k: u64, byte: u8| content[k as usize * 8192..][..4096].iter().all(|b| *b == byte);
        assert!(made.iter().all(|k| is_all(*k, 0)), "a hole is not there");
        assert!(kept.iter().all(|k| is_all(*k, 7)), "a call that failed has changed something");
    };
    must_be_whole(&volume);
    big.sync_all().unwrap();
    drop(big);
    volume.close().unwrap();
    must_be_sound(&device);
    let volume = Volume::open(device, &options).unwrap();
    must_be_whole(&volume);
    volume.close().unwrap();
}
