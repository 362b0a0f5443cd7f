//! Promise: a volume that shrinks moves the data of files that lies beyond its new end. If something does not
//! move, it says so, and changes nothing. The files have the same content before and after, including the
//! past, and the checker finds nothing.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use yore_check::{check, CheckOptions};
use yore_device::{Device, MemoryDevice};
use yore_fs::{
    Error, FallocateMode, File, MkfsOptions, MountOptions, NewSnapshot, OpenOptions, Progress, Scrub, Volume,
};

const MIB: u64 = 1 << 20;

fn options() -> MountOptions {
    MountOptions { commit_interval: Duration::from_secs(3600), ..MountOptions::default() }
}

fn made(size: u64) -> (Arc<MemoryDevice>, Volume) {
    made_with(size, false)
}

fn made_with(size: u64, data_checksums: bool) -> (Arc<MemoryDevice>, Volume) {
    let device = Arc::new(MemoryDevice::new(size));
    let mkfs = MkfsOptions { data_checksums, ..MkfsOptions::default() };
    Volume::create(device.clone(), &mkfs).unwrap().close().unwrap();
    let volume = Volume::open(device.clone(), &options()).unwrap();
    (device, volume)
}

/// This many bytes that show which file they belong to.
fn content(of: u64, len: u64) -> Vec<u8> {
    (0..len / 8).flat_map(|n| (n * 31 + of * 1_000_003).to_le_bytes()).collect()
}

fn sound(device: &dyn Device) {
    let report = check(device, &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{report}");
}

/// All data has a checksum, if the volume keeps them, and each is right.
fn verified(volume: &Volume) {
    let go_on = || ControlFlow::Continue(());
    let found = volume.view().scrub(Scrub::default(), &Progress::default(), &mut go_on.clone()).unwrap();
    assert!(found.is_clean(), "{found:?}");
    if found.keeps_checksums {
        assert_eq!(
            volume.view().data_without_checksums(&mut go_on.clone()).unwrap(),
            Some(yore_fs::WithoutChecksums::default())
        );
    }
}

/// The reason for a refusal; checks that nothing was changed by it.
fn refused(volume: &Volume, bytes: u64) -> String {
    let before = (volume.info().size, volume.statfs().blocks_free);
    let Err(Error::Refused(why)) = volume.view().shorten(bytes, &mut |_, _| ()) else {
        panic!("not refused")
    };
    assert_eq!((volume.info().size, volume.statfs().blocks_free), before);
    assert!(why.contains("beyond the new end"), "{why}");
    why
}

/// Shortens the volume; returns how many bytes moved.
fn shorten(volume: &Volume, bytes: u64) -> u64 {
    let mut moved = (0, 0);
    assert!(volume.view().shorten(bytes, &mut |done, all| moved = (done, all)).unwrap());
    assert_eq!(moved.0, moved.1, "all that was to be moved has moved");
    assert_eq!(volume.info().size, bytes);
    moved.0
}

fn event(volume: &Volume, name: &str) -> yore_fs::EventNo {
    volume
        .view()
        .take_snapshot(volume.view().root(), &NewSnapshot { wait: true, ..NewSnapshot::named(name) })
        .unwrap()
        .number
}

fn forget(volume: &Volume, events: &[yore_fs::EventNo]) {
    volume.view().forget(events).unwrap();
    volume.view().finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
}

/// A volume whose first half was emptied is made half as long. These files move: whole ones, one with holes,
/// one that was allocated and never written, one with two names, and one that has no name and is open.
#[test]
fn what_files_have_moves() {
    [false, true].into_iter().for_each(move_what_files_have);
}

fn move_what_files_have(checksums: bool) {
    let (device, volume) = made_with(256 * MIB, checksums);
    let (mut n, len) = (0, 5 * MIB);
    while volume.write(format!("f{n}"), content(n, len)).is_ok() {
        n += 1;
    }
    assert!(n > 40, "{n}");
    volume.remove_file(format!("f{n}")).unwrap();
    volume.remove_file(format!("f{}", n - 1)).unwrap();
    let sparse = File::create(&volume, "sparse").unwrap();
    for at in 0..40 {
        sparse.write_at(&content(at, 4096), at * 3 * 4096).unwrap();
    }
    File::create(&volume, "allocated").unwrap();
    let allocated = volume.node("allocated").unwrap().inode();
    volume.view().fallocate(allocated, 0, MIB, FallocateMode::Allocate { keep_size: false }).unwrap();
    volume.write("open", content(77, MIB)).unwrap();
    let open = OpenOptions::new().read(true).open(&volume, "open").unwrap();
    volume.sync().unwrap();
    volume.remove_file("open").unwrap();
    volume.hard_link(format!("f{}", n - 2), "second").unwrap();
    let why = refused(&volume, 128 * MIB);
    assert!(why.contains("bytes are missing") && why.contains("yore forget"), "{why}");
    for gone in 0..n / 2 + 1 {
        volume.remove_file(format!("f{gone}")).unwrap();
    }
    let blocks = |name: &str| volume.metadata(name).unwrap().attr().blocks_512;
    let before = (blocks("sparse"), blocks("allocated"));
    let times = volume.metadata("sparse").unwrap().attr().mtime;
    let moved = shorten(&volume, 128 * MIB);
    assert!(moved > 50 * MIB, "{moved}");
    assert_eq!((blocks("sparse"), blocks("allocated")), before);
    assert_eq!(volume.metadata("sparse").unwrap().attr().mtime, times);
    let mut read = vec![0; MIB as usize];
    open.read_at(&mut read, 0).unwrap();
    assert!(read == content(77, MIB));
    drop((open, sparse));
    volume.close().unwrap();
    sound(&*device);
    let volume = Volume::open(device.clone(), &options()).unwrap();
    for kept in n / 2 + 1..n - 1 {
        assert!(volume.read(format!("f{kept}")).unwrap() == content(kept, len), "f{kept}");
    }
    assert!(volume.read("second").unwrap() == content(n - 2, len));
    let sparse = volume.read("sparse").unwrap();
    for at in 0..40 {
        assert!(sparse[at * 3 * 4096..][..4096] == content(at as u64, 4096), "{at}");
    }
    assert!(volume.read("allocated").unwrap() == vec![0; MIB as usize]);
    assert!(!volume.exists("open").unwrap());
    verified(&volume);
}

/// Blocks that only the past has do not move, nor do those that a changed file shares with its past: the
/// refusal names both, and what frees them. Blocks that a snapshot has seen and that nobody changed since
/// move, and the past shows them as before.
#[test]
fn a_snapshot_in_the_way() {
    let (device, volume) = made(64 * MIB);
    volume.write("filler", content(0, 24 * MIB)).unwrap();
    let names: Vec<String> = (0..80).map(|n| format!("changed{n}")).collect();
    names.iter().for_each(|name| volume.write(name, content(1, MIB / 16)).unwrap());
    volume.write("gone", content(2, MIB)).unwrap();
    volume.write("same", content(3, MIB)).unwrap();
    volume.sync().unwrap();
    let one = event(&volume, "one");
    for name in &names {
        OpenOptions::new().write(true).open(&volume, name).unwrap().write_at(b"new", 0).unwrap();
    }
    volume.remove_file("gone").unwrap();
    volume.remove_file("filler").unwrap();
    let two = event(&volume, "two");
    forget(&volume, &[two]);
    let why = refused(&volume, 24 * MIB);
    for words in ["/changed", " … and ", "bytes of history alone", "yore forget", "bytes long"] {
        assert!(why.contains(words), "{words}: {why}");
    }
    // It can be made as short as the message says.
    let least: u64 = why.split("can be made ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((24 * MIB..64 * MIB).contains(&least), "{why}");
    shorten(&volume, least);
    assert!(volume.read(".@one/gone").unwrap() == content(2, MIB));
    forget(&volume, &[one]);
    let three = event(&volume, "three");
    assert!(shorten(&volume, 24 * MIB) > 0);
    for at in ["same", ".@three/same"] {
        assert!(volume.read(at).unwrap() == content(3, MIB), "{at}");
    }
    volume.write("same", "another").unwrap();
    assert!(volume.read(".@three/same").unwrap() == content(3, MIB));
    forget(&volume, &[three]);
    volume.close().unwrap();
    sound(&*device);
}

/// Files that share blocks beyond the new end move, and share them afterwards: two copies of a whole file,
/// and one of a part at another place. Where a version shares a block, too, the volume stays as it is, and
/// the files are named.
#[test]
fn what_files_share_moves() {
    [false, true].into_iter().for_each(move_what_files_share);
}

fn move_what_files_share(checksums: bool) {
    let (device, volume) = made_with(300 * MIB, checksums);
    volume.write("filler", content(0, 140 * MIB)).unwrap();
    volume.sync().unwrap();
    volume.write("one", content(1, 6 * MIB)).unwrap();
    volume.write("part", content(2, 3 * MIB)).unwrap();
    volume.sync().unwrap();
    volume.copy("one", "two").unwrap();
    volume.copy("one", "three").unwrap();
    let inode = |name: &str| volume.node(name).unwrap().inode();
    let copied = volume.view().copy_file_range(inode("one"), MIB, inode("part"), 2 * MIB, MIB / 2).unwrap();
    assert_eq!(copied, MIB / 2);
    OpenOptions::new().write(true).open(&volume, "two").unwrap().write_at(&content(3, MIB), MIB).unwrap();
    volume.sync().unwrap();
    let mut part = content(2, 3 * MIB);
    part[2 * MIB as usize..][..MIB as usize / 2]
        .copy_from_slice(&content(1, 6 * MIB)[MIB as usize..][..MIB as usize / 2]);
    let mut two = content(1, 6 * MIB);
    two[MIB as usize..2 * MIB as usize].copy_from_slice(&content(3, MIB));
    let same = |volume: &Volume, below: &str| {
        for (name, is) in [("one", content(1, 6 * MIB)), ("two", two.clone()), ("three", content(1, 6 * MIB))]
        {
            assert!(volume.read(format!("{below}{name}")).unwrap() == is, "{below}{name}");
        }
        assert!(volume.read(format!("{below}part")).unwrap() == part, "{below}part");
    };
    same(&volume, "");
    volume.remove_file("filler").unwrap();
    volume.sync().unwrap();

    // A version of one file shares blocks with another one.
    let seen = event(&volume, "seen");
    volume.remove_file("three").unwrap();
    volume.sync().unwrap();
    let why = refused(&volume, 64 * MIB);
    assert!(why.contains("/one") && why.contains("yore forget"), "{why}");
    forget(&volume, &[seen]);
    volume.copy("one", "three").unwrap();
    volume.sync().unwrap();

    let free = |volume: &Volume| volume.statfs().blocks_free * 4096;
    let used = volume.info().size - free(&volume);
    let moved = shorten(&volume, 128 * MIB);
    assert!(moved > 17 * MIB, "{moved}: each reference counts");
    assert!(volume.info().size - free(&volume) < used + MIB, "what was shared is shared");
    same(&volume, "");
    volume.close().unwrap();
    sound(&*device);
    let volume = Volume::open(device.clone(), &options()).unwrap();
    same(&volume, "");
    verified(&volume);
}

/// An event has seen files that share blocks, and nobody has changed them since. Each gets blocks of its own,
/// and is there as of the event all the same.
#[test]
fn what_files_share_and_an_event_has_seen_moves() {
    let (device, volume) = made(64 * MIB);
    volume.write("filler", content(0, 24 * MIB)).unwrap();
    volume.sync().unwrap();
    volume.write("one", content(1, 3 * MIB)).unwrap();
    volume.sync().unwrap();
    volume.copy("one", "two").unwrap();
    volume.remove_file("filler").unwrap();
    let event = event(&volume, "event");
    let moved = shorten(&volume, 24 * MIB);
    assert!(moved > 4 * MIB, "{moved}");
    for at in ["one", "two", ".@event/one", ".@event/two"] {
        assert!(volume.read(at).unwrap() == content(1, 3 * MIB), "{at}");
    }
    volume.write("one", "another").unwrap();
    for at in ["two", ".@event/one", ".@event/two"] {
        assert!(volume.read(at).unwrap() == content(1, 3 * MIB), "{at}");
    }
    forget(&volume, &[event]);
    volume.close().unwrap();
    sound(&*device);
}

/// A version has blocks of a file that were allocated and never written. When the present frees those blocks,
/// others get them. The blocks may then lie beyond the volume's end: the version reads as zeros nevertheless,
/// and the checker finds nothing.
#[test]
fn what_a_version_has_and_nobody_wrote() {
    let (device, volume) = made(64 * MIB);
    volume.write("filler", content(0, 20 * MIB)).unwrap();
    volume.sync().unwrap();
    File::create(&volume, "f").unwrap();
    let inode = volume.node("f").unwrap().inode();
    volume.view().fallocate(inode, 0, MIB, FallocateMode::Allocate { keep_size: false }).unwrap();
    volume.remove_file("filler").unwrap();
    volume.sync().unwrap();
    event(&volume, "one");
    OpenOptions::new().write(true).open(&volume, "f").unwrap().set_len(0).unwrap();
    volume.sync().unwrap();
    shorten(&volume, 24 * MIB);
    assert!(volume.read(".@one/f").unwrap() == vec![0; MIB as usize]);
    volume.close().unwrap();
    sound(&*device);
}

/// Groups beyond the new end have checksum tables, and go: at whatever length the volume ends, also exactly
/// where a group begins, whose tables once stayed and made the volume refuse. Then it grows again, and data
/// there has checksums.
#[test]
fn groups_with_checksum_tables_go() {
    // Data in all groups, and what is between.
    let fill = |volume: &Volume| {
        let mut n = 0;
        while volume.statfs().blocks_free * 4096 > 60 * MIB {
            let inode = File::create(volume, format!("filler{n}")).unwrap().inode();
            let mode = FallocateMode::Allocate { keep_size: false };
            volume.view().fallocate(inode, 0, 40 * MIB, mode).unwrap();
            volume.write(format!("f{n}"), content(n, 2 * MIB)).unwrap();
            volume.sync().unwrap();
            n += 1;
        }
        n
    };
    for (from, to) in [(256, 128), (384, 128), (300, 200)] {
        let (device, volume) = made_with(from * MIB, true);
        let files = fill(&volume);
        (0..files).for_each(|n| volume.remove_file(format!("filler{n}")).unwrap());
        (0..files - 1).step_by(2).for_each(|n| volume.remove_file(format!("f{n}")).unwrap());
        assert!(shorten(&volume, to * MIB) >= 2 * MIB, "{from} to {to}");
        let is_same = |volume: &Volume, n| volume.read(format!("f{n}")).unwrap() == content(n, 2 * MIB);
        assert!((1..files).step_by(2).all(|n| is_same(&volume, n)), "{from} to {to}");
        volume.close().unwrap();
        sound(&*device);
        let volume = Volume::open(device.clone(), &options()).unwrap();
        verified(&volume);
        volume.view().lengthen(from * MIB).unwrap();
        let files = fill(&volume);
        verified(&volume);
        assert!((0..files).all(|n| is_same(&volume, n)), "{from} to {to}");
        volume.close().unwrap();
        sound(&*device);
    }
}

struct Rng(u64);

impl Rng {
    fn next(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// Random changes, snapshots and lengths: the volume shrinks or says why not, and files and snapshots agree
/// with a model.
#[test]
fn agrees_with_a_model_at_any_length() {
    let mut shortened = 0;
    for seed in [0x5eed_0001, 0x5eed_0002, 0x5eed_0003] {
        println!("seed {seed:#x} (fixed in the test)");
        let mut rng = Rng(seed);
        let (device, mut volume) = made_with(96 * MIB, seed == 0x5eed_0002);
        let mut model: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut past: Option<(yore_fs::EventNo, BTreeMap<String, Vec<u8>>)> = None;
        for round in 0..10 {
            // A part in front of the rest is removed later, so that something must move.
            let filled =
                volume.write("filler", content(round, 10 * MIB)).and_then(|()| volume.sync()).is_ok();
            for step in 0..25 {
                change(&mut rng, &volume, &mut model, round * 100 + step);
            }
            volume.sync().unwrap();
            if filled || volume.exists("filler").unwrap() {
                volume.remove_file("filler").unwrap();
            }
            match (rng.next(4), past.take()) {
                (0, None) => past = Some((event(&volume, "past"), model.clone())),
                (0 | 1, Some((event, _))) => forget(&volume, &[event]),
                (_, kept) => past = kept,
            }
            let size = volume.info().size;
            let in_use = volume.statfs().blocks - volume.statfs().blocks_free;
            let wanted = (in_use * 4096 / MIB + rng.next(10)).max(16) * MIB;
            let mut moved = 0;
            match volume.view().shorten(wanted, &mut |done, _| moved = done) {
                Ok(true) => shortened += u32::from(moved > 0),
                Ok(false) => assert!(wanted >= size),
                Err(Error::Refused(why)) => {
                    assert!(why.contains("beyond the new end"), "{why}");
                    assert_eq!(volume.info().size, size);
                }
                Err(e) => panic!("{e}"),
            }
            compare(&volume, "", &model);
            if let Some((_, then)) = &past {
                compare(&volume, ".@past/", then);
            }
            volume.close().unwrap();
            sound(&*device);
            volume = Volume::open(device.clone(), &options()).unwrap();
            compare(&volume, "", &model);
            verified(&volume);
            if volume.info().size < 48 * MIB || rng.next(3) == 0 {
                volume.view().lengthen(96 * MIB).unwrap();
            }
        }
    }
    println!("{shortened} times something moved");
    assert!(shortened > 3);
}

fn change(rng: &mut Rng, volume: &Volume, model: &mut BTreeMap<String, Vec<u8>>, stamp: u64) {
    let name = format!("f{}", rng.next(16));
    match rng.next(6) {
        0 => {
            if model.remove(&name).is_some() {
                volume.remove_file(&name).unwrap();
            }
        }
        1 => {
            if let Some(is) = model.get_mut(&name) {
                let len = rng.next(is.len() as u64 + 100_000);
                let open = OpenOptions::new().write(true).open(volume, &name).unwrap();
                open.set_len(len).unwrap();
                is.resize(len as usize, 0);
            }
        }
        2 => {
            if let Some(is) = model.get_mut(&name) {
                let (at, len) = (rng.next(2 * MIB), 1 + rng.next(MIB));
                let inode = volume.node(&name).unwrap().inode();
                let mode = FallocateMode::Allocate { keep_size: false };
                if volume.view().fallocate(inode, at, len, mode).is_ok() {
                    let end = ((at + len) as usize).max(is.len());
                    is.resize(end, 0);
                }
            }
        }
        _ => {
            let (at, len) = (rng.next(2 * MIB), 8 * (1 + rng.next(MIB / 8)));
            let data = content(stamp, len);
            let open = OpenOptions::new().write(true).create(true).open(volume, &name).unwrap();
            let is = model.entry(name).or_default();
            match open.write_at(&data, at) {
                Ok(_) => {
                    let end = (at as usize + data.len()).max(is.len());
                    is.resize(end, 0);
                    is[at as usize..][..data.len()].copy_from_slice(&data);
                }
                Err(e) => {
                    assert!(matches!(e.root(), Error::NoSpace | Error::NeverFits { .. }), "{e}");
                }
            }
        }
    }
}

fn compare(volume: &Volume, below: &str, model: &BTreeMap<String, Vec<u8>>) {
    for (name, is) in model {
        assert!(volume.read(format!("{below}{name}")).unwrap() == *is, "{below}{name}");
    }
}
