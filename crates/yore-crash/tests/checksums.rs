//! Checksums of file data: damage of a block on the medium is found when it is read, at the right place, and
//! nothing else suffers.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use yore_crash::volume::{must_be_sound, orders, Findings};
use yore_device::simulated::{CrashPlan, Fault, SimulatedDevice, Tearing};
use yore_device::{Device, MemoryDevice};
use yore_format::layout::ZONE_BLOCKS;
use yore_fs::{
    ChecksumsEntered, DataState, Engine, Error, FallocateMode, File, MkfsOptions, MountOptions, NewSnapshot,
    OpenOptions, Progress, Result, Scrub, ScrubFrom, Scrubbed, VerifyStates, Volume,
};

const BLOCK: usize = 4096;

fn made(engine: Engine) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let options = MkfsOptions { data_checksums: true, engine, ..MkfsOptions::default() };
    Volume::create(device.clone(), &options).unwrap().close().unwrap();
    device
}

fn open(device: &Arc<impl Device + 'static>) -> Volume {
    let options = MountOptions {
        commit_interval: Duration::from_secs(3600),
        defragment_after: None,
        ..MountOptions::default()
    };
    Volume::open(device.clone(), &options).unwrap()
}

/// The bytes of block `n` of a file: like those of no other block.
fn block(file: u8, n: usize) -> Vec<u8> {
    let mut bytes = vec![file; BLOCK];
    bytes[..8].copy_from_slice(&(n as u64 | u64::from(file) << 32).to_le_bytes());
    bytes
}

fn blocks(file: u8, count: usize) -> Vec<u8> {
    (0..count).flat_map(|n| block(file, n)).collect()
}

/// The one block of the device that has these bytes.
fn find(device: &MemoryDevice, bytes: &[u8]) -> u64 {
    let mut found = vec![0; BLOCK];
    let at = (0..device.size() / BLOCK as u64).find(|at| {
        device.read_at(at * BLOCK as u64, &mut found).unwrap();
        found == bytes
    });
    at.expect("some block has the bytes")
}

/// Flips a bit of that block.
fn damage(device: &MemoryDevice, bytes: &[u8]) -> u64 {
    let (at, mut wrong) = (find(device, bytes), bytes.to_vec());
    wrong[1000] ^= 4;
    device.write_at(at * BLOCK as u64, &wrong).unwrap();
    at
}

fn read(volume: &Volume, path: &str, at: usize, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let n = File::open(volume, path)?.read_at(&mut bytes, at as u64)?;
    bytes.truncate(n);
    Ok(bytes)
}

/// Asserts that this is the error of damaged data at an offset.
fn is_damage<T: std::fmt::Debug>(result: Result<T>, offset: usize, block: u64) {
    match result {
        Err(Error::Corruption(c)) => {
            assert_eq!((c.structure, c.field), ("file data", "checksum"), "{c}");
            let help = "(`yore log --verify FILE` names the last state that is whole)";
            assert!(c.found.ends_with(&format!(" at offset {offset} of the file {help}")), "{c}");
            assert_eq!(c.block.map(|block| block.0), Some(block));
            assert!(c.owner.is_some());
        }
        other => panic!("{other:?}"),
    }
}

/// Goes on so many times, and then breaks off.
fn breaks_off_after(times: u32) -> impl FnMut() -> ControlFlow<()> {
    let mut left = times;
    move || match left {
        0 => ControlFlow::Break(()),
        _ => {
            left -= 1;
            ControlFlow::Continue(())
        }
    }
}

/// Promises that a flipped bit in a block is an error with the offset, for large reads, small ones and
/// reading ahead; that all other blocks and files can be read; that a part of the block cannot be written
/// over, and the whole of it can, which ends the damage.
#[test]
fn damage_is_found_where_it_is() {
    const COUNT: usize = 700;
    let device = made(Engine::Snapshot);
    let volume = open(&device);
    volume.write("file", blocks(1, COUNT)).unwrap();
    volume.write("other", blocks(2, 40)).unwrap();
    volume.close().unwrap();
    let at = damage(&device, &block(1, 300));
    let volume = open(&device);
    is_damage(read(&volume, "file", 0, COUNT * BLOCK), 300 * BLOCK, at);
    is_damage(read(&volume, "file", 300 * BLOCK + 17, 5), 300 * BLOCK, at);
    drop(volume);
    let volume = open(&device);
    // As a program does that copies a file, so that threads read ahead.
    let whole = blocks(1, COUNT);
    for n in (0..COUNT).step_by(4) {
        let found = read(&volume, "file", n * BLOCK, 4 * BLOCK);
        match n == 300 {
            true => is_damage(found, 300 * BLOCK, at),
            false => assert!(found.unwrap() == whole[n * BLOCK..(n + 4) * BLOCK], "blocks from {n}"),
        }
    }
    assert!(read(&volume, "other", 0, 40 * BLOCK).unwrap() == blocks(2, 40));
    let file = OpenOptions::new().write(true).open(&volume, "file").unwrap();
    is_damage(file.write_at(b"part", (300 * BLOCK + 5) as u64), 300 * BLOCK, at);
    file.write_at(&block(3, 300), (300 * BLOCK) as u64).unwrap();
    drop(file);
    volume.close().unwrap();
    let volume = open(&device);
    let found = read(&volume, "file", 0, COUNT * BLOCK).unwrap();
    assert!(found[300 * BLOCK..301 * BLOCK] == block(3, 300));
}

/// Promises that damage of a block that only the past has is found there, and nowhere else; and that laying
/// together and making a volume shorter take damage with them and do not make it right.
#[test]
fn damage_stays_damage_wherever_it_goes() {
    const COUNT: usize = 64;
    let device = made(Engine::Snapshot);
    let volume = open(&device);
    volume.write("file", blocks(1, COUNT)).unwrap();
    let event = volume.view().take_snapshot(volume.view().root(), &NewSnapshot::default()).unwrap().number;
    let file = OpenOptions::new().write(true).open(&volume, "file").unwrap();
    file.write_at(&block(2, 7), 7 * BLOCK as u64).unwrap();
    drop(file);
    volume.close().unwrap();
    let past = damage(&device, &block(1, 7));
    let volume = open(&device);
    assert!(read(&volume, "file", 7 * BLOCK, BLOCK).unwrap() == block(2, 7));
    let then = Volume::from_view(volume.view().as_of(event));
    is_damage(read(&then, "file", 7 * BLOCK, BLOCK), 7 * BLOCK, past);
    assert!(read(&then, "file", 8 * BLOCK, 20 * BLOCK).unwrap() == blocks(1, COUNT)[8 * BLOCK..28 * BLOCK]);
    drop(then);

    // A file in many pieces, near the end of the volume.
    let taken = volume.view().statfs().blocks_free * 3 / 4;
    volume.write("filler", vec![9; taken as usize * BLOCK]).unwrap();
    volume.view().sync().unwrap();
    for n in (0..COUNT).rev() {
        let file = OpenOptions::new().write(true).create(true).open(&volume, "scattered").unwrap();
        file.write_at(&block(5, n), (n * BLOCK) as u64).unwrap();
        file.sync_all().unwrap();
        volume.view().sync().unwrap();
    }
    volume.close().unwrap();
    let before = damage(&device, &block(5, 20));
    let volume = open(&device);
    volume.remove_file("filler").unwrap();
    volume.view().sync().unwrap();
    let damaged_at = |volume: &Volume| match read(volume, "scattered", 20 * BLOCK, BLOCK) {
        Err(Error::Corruption(c)) => c.block.expect("the block is named").0,
        other => panic!("{:?}", other.map(|bytes| bytes.len())),
    };
    assert_eq!(damaged_at(&volume), before);
    let root = volume.view().root();
    let go_on = &mut || ControlFlow::Continue(());
    volume.view().defragment(root, 1, &Progress::default(), go_on).unwrap();
    volume.view().shorten(40 << 20, &mut |_, _| {}).unwrap();
    assert_ne!(damaged_at(&volume), before, "it has moved");
    assert!(read(&volume, "scattered", 0, 20 * BLOCK).unwrap() == blocks(5, COUNT)[..20 * BLOCK]);
    volume.close().unwrap();
    assert!(yore_check::check(&*device, &Default::default()).unwrap().is_clean());
}

/// Promises that a block which was allocated and never written is zeros, whatever it held before and whatever
/// its table says; that it has a checksum as soon as it is written; and the same of a range that became
/// zeros.
#[test]
fn what_was_not_written_is_zeros() {
    let device = made(Engine::Journal);
    let volume = open(&device);
    for round in 0..3u8 {
        volume.write("file", blocks(round, 200)).unwrap();
        volume.view().sync().unwrap();
        volume.remove_file("file").unwrap();
        volume.view().sync().unwrap();
        drop(volume.remove_file("new"));
        let file = OpenOptions::new().read(true).write(true).create(true).open(&volume, "new").unwrap();
        let (view, inode) = (volume.view(), file.inode());
        let all = FallocateMode::Allocate { keep_size: false };
        view.fallocate(inode, 0, 300 * BLOCK as u64, all).unwrap();
        assert!(read(&volume, "new", 0, 300 * BLOCK).unwrap() == vec![0; 300 * BLOCK]);
        file.write_at(&block(77, 1), 100 * BLOCK as u64).unwrap();
        file.sync_all().unwrap();
        let zeros = FallocateMode::ZeroRange { keep_size: true };
        view.fallocate(inode, 90 * BLOCK as u64, 20 * BLOCK as u64, zeros).unwrap();
        file.write_at(&block(78, 2), 101 * BLOCK as u64).unwrap();
        drop(file);
        volume.view().sync().unwrap();
    }
    volume.close().unwrap();
    let volume = open(&device);
    let found = read(&volume, "new", 0, 300 * BLOCK).unwrap();
    assert!(found[101 * BLOCK..102 * BLOCK] == block(78, 2));
    assert!(found[..101 * BLOCK].iter().chain(&found[102 * BLOCK..]).all(|byte| *byte == 0));
}

fn scrub(volume: &Volume) -> Scrubbed {
    let go_on = &mut || ControlFlow::Continue(());
    volume.view().scrub(Scrub::default(), &Progress::default(), go_on).unwrap()
}

/// Promises that a scrub finds nothing on a sound volume, whatever stale entries its tables have; that it
/// finds damage of the present and of the past, each with its file and offset, and which state of the file
/// has other, sound bytes there; that it goes on where it was stopped; and that it finds damaged metadata.
#[test]
fn a_scrub_finds_exactly_what_is_damaged() {
    const COUNT: usize = 600;
    let device = made(Engine::Snapshot);
    let volume = open(&device);
    volume.write("gone", blocks(9, 900)).unwrap();
    volume.view().sync().unwrap();
    volume.remove_file("gone").unwrap();
    volume.view().sync().unwrap();
    volume.write("file", blocks(1, COUNT)).unwrap();
    let file = OpenOptions::new().write(true).create(true).open(&volume, "reserved").unwrap();
    let all = FallocateMode::Allocate { keep_size: false };
    volume.view().fallocate(file.inode(), 0, 700 * BLOCK as u64, all).unwrap();
    volume.view().take_snapshot(volume.view().root(), &NewSnapshot::default()).unwrap();
    let file = OpenOptions::new().write(true).open(&volume, "file").unwrap();
    for n in [20, 21, 400] {
        file.write_at(&block(2, n), (n * BLOCK) as u64).unwrap();
    }
    drop(file);
    volume.view().sync().unwrap();
    let sound = scrub(&volume);
    assert!(sound.is_clean() && sound.keeps_checksums && sound.goes_on.is_none(), "{sound:?}");
    assert!(sound.data_blocks >= COUNT as u64 + 3 && sound.metadata_blocks > 8, "{sound:?}");
    volume.close().unwrap();

    let (now, then, both) =
        (damage(&device, &block(2, 400)), damage(&device, &block(1, 20)), damage(&device, &block(1, 5)));
    let volume = open(&device);
    let found = scrub(&volume);
    let mut told: Vec<_> =
        found.data.iter().map(|d| (d.offset, d.block, d.until.is_some(), d.sound_until.is_some())).collect();
    told.sort_unstable();
    let at = |n: usize| (n * BLOCK) as u64;
    assert_eq!(told, [(at(5), both, false, false), (at(20), then, true, false), (at(400), now, false, true)]);
    assert!(found.data.iter().all(|d| d.path.as_deref() == Some(b"/file")), "{found:?}");
    assert!(found.metadata.is_empty() && !found.is_clean());

    // In parts: each damaged block is found once.
    let (mut how, mut times, mut blocks) =
        (Scrub { begin: ScrubFrom::Block(0), ..Scrub::default() }, 0, Vec::new());
    loop {
        let few = &mut breaks_off_after(4);
        let part = volume.view().scrub(how, &Progress::default(), few).unwrap();
        blocks.extend(part.data.iter().map(|d| d.block));
        let Some(next) = part.goes_on else { break };
        assert!(!part.is_noted);
        (how.begin, times) = (ScrubFrom::Block(next.max(1)), times + 1);
    }
    blocks.sort_unstable();
    let mut all = [now, then, both];
    all.sort_unstable();
    assert!(times > 0 && blocks == all, "{times} times: {blocks:?}");
    volume.close().unwrap();
}

/// What is known of the data of the states of a file, the latest first.
fn verified(volume: &Volume, name: &str, which: VerifyStates) -> Vec<Option<DataState>> {
    let (view, mut states) = (volume.view(), Vec::new());
    let log = view.log(view.root(), name.as_bytes(), &mut |state| {
        states.push(state);
        ControlFlow::Continue(())
    });
    log.unwrap();
    let go_on = &mut || ControlFlow::Continue(());
    view.verify_states(&mut states, which, &Progress::default(), go_on).unwrap();
    states.iter().map(|state| state.data).collect()
}

/// Promises that a block which the device cannot read is damage like any other, of data and of metadata: a
/// scrub names the file, reads what lies behind, and comes to its end; and the log of the file goes on to its
/// last whole state. Both used to end there with the error of the device, each time. Only a device that reads
/// nothing any more ends a scrub.
#[test]
fn a_scrub_reads_on_behind_what_cannot_be_read() {
    const COUNT: usize = 1500;
    let device = made(Engine::Snapshot);
    let volume = open(&device);
    volume.write("file", blocks(1, COUNT)).unwrap();
    volume.view().take_snapshot(volume.view().root(), &NewSnapshot::default()).unwrap();
    let file = OpenOptions::new().write(true).open(&volume, "file").unwrap();
    file.write_at(&block(2, 7), 7 * BLOCK as u64).unwrap();
    drop(file);
    volume.write("behind", blocks(3, 40)).unwrap();
    volume.close().unwrap();
    let (first, bad) = (find(&device, &block(1, 0)), find(&device, &block(2, 7)));
    let wrong = damage(&device, &block(3, 30));
    let device = Arc::new(SimulatedDevice::new(device.snapshot()));
    let cannot_read = |from: u64, blocks: u64| {
        let (offset, len) = (from * BLOCK as u64, blocks * BLOCK as u64);
        device.fail(Fault::UnreadableRange { offset, len }.into());
    };
    cannot_read(bad, 1);
    let volume = open(&device);
    let view = volume.view();
    let at = |n: usize| (n * BLOCK) as u64;
    let states = [Some(DataState::Damaged { offset: at(7), block: bad }), Some(DataState::Whole)];
    assert_eq!(verified(&volume, "file", VerifyStates::Yes), states);
    let found = scrub(&volume);
    let mut told: Vec<_> = found.data.iter().map(|d| (d.path.as_deref(), d.offset, d.block)).collect();
    told.sort_unstable();
    assert_eq!(told, [(Some(&b"/behind"[..]), at(30), wrong), (Some(&b"/file"[..]), at(7), bad)]);
    assert!(found.metadata.is_empty() && found.goes_on.is_none() && found.data_blocks > COUNT as u64);
    assert!(view.scrubs().unwrap().last.is_some_and(|last| last.damaged_data == 2));
    assert_eq!(verified(&volume, "file", VerifyStates::WhereDamaged), states);

    // Metadata of the first zone; memory has all of it by now.
    cannot_read(ZONE_BLOCKS + 4, 40);
    let found = scrub(&volume);
    assert!(found.metadata.iter().any(|what| what.contains("cannot be read")), "{found:?}");
    assert!(found.data.len() == 1 && found.goes_on.is_none(), "{found:?}");

    cannot_read(first, device.size() / BLOCK as u64 - first);
    let gone = view.scrub(Scrub::default(), &Progress::default(), &mut || ControlFlow::Continue(()));
    assert!(matches!(gone, Err(Error::Device(_))), "{gone:?}");
}

/// Promises that a scrub which was broken off goes on where it was, from mount to mount, also on a volume
/// that is open for reading only, and tells at the end all that it has found; that one whose process ended
/// without a word goes on where the volume says; that there is one scrub at a time; and that the volume knows
/// how the last one ended.
#[test]
fn a_scrub_goes_on_by_itself() {
    const COUNT: usize = 4000;
    let device = made(Engine::Snapshot);
    let volume = open(&device);
    volume.write("file", blocks(1, COUNT)).unwrap();
    volume.view().sync().unwrap();
    let whole = scrub(&volume);
    let first = volume.view().scrubs().unwrap();
    let last = first.last.unwrap();
    assert!(first.under_way.is_none() && last.began <= last.ended);
    assert_eq!((last.metadata_blocks, last.data_blocks), (whole.metadata_blocks, whole.data_blocks));
    volume.close().unwrap();
    let mut damaged: Vec<u64> = [3, 4, 700, 3990].map(|n| damage(&device, &block(1, n))).into();
    damaged.sort_unstable();
    let (mut parts, mut began) = (0, None);
    let (found, parts) = loop {
        // Every other time nothing may be written but through a device of its own.
        let read_only = parts % 2 == 1;
        let options = MountOptions { read_only, ..MountOptions::default() };
        let volume = Volume::open(device.clone(), &options).unwrap();
        let (view, mut goes_on) = (volume.view(), breaks_off_after(3));
        let few = &mut || {
            let other = view.scrub(Scrub::default(), &Progress::default(), &mut || unreachable!());
            assert!(other.unwrap_err().to_string().contains("being scrubbed already"));
            goes_on()
        };
        if read_only {
            view.write_scrubs_to(device.clone());
        }
        let part = view.scrub(Scrub::default(), &Progress::default(), few).unwrap();
        assert_eq!(part.since, began);
        let record = view.scrubs().unwrap();
        volume.close().unwrap();
        if part.goes_on.is_none() {
            assert!(record.under_way.is_none());
            let last = record.last.unwrap();
            assert_eq!((last.damaged_metadata, last.damaged_data), (0, 4));
            break (part, parts);
        }
        assert!(part.is_noted && part.data.is_empty(), "{part:?}");
        assert_eq!(record.last, Some(last));
        began = record.under_way.map(|at| at.began);
        parts += 1;
    };
    let mut told: Vec<u64> = found.data.iter().map(|d| d.block).collect();
    told.sort_unstable();
    assert!(parts > 2 && told == damaged, "{parts} parts: {found:?}");
    assert_eq!(found.data_blocks, whole.data_blocks);

    // Nobody says where it was broken off: the process is gone.
    let volume = open(&device);
    let how = Scrub { every: Duration::ZERO, ..Scrub::default() };
    let (mut asked, view) = (0, volume.view());
    let killed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let many = &mut || {
            asked += 1;
            assert!(asked < 9);
            ControlFlow::Continue(())
        };
        view.scrub(how, &Progress::default(), many)
    }));
    assert!(killed.is_err());
    let at = view.scrubs().unwrap().under_way.unwrap();
    assert!(at.data_blocks > 0 && at.candidates.len() >= 2, "{at:?}");
    let found = scrub(&volume);
    assert!(found.since.is_some() && found.data.len() == 4, "{found:?}");
    // And begins anew if it is told to.
    let few = &mut || ControlFlow::Break(());
    view.scrub(how, &Progress::default(), few).unwrap();
    let go_on = &mut || ControlFlow::Continue(());
    let anew = Scrub { begin: ScrubFrom::Anew, ..how };
    let found = view.scrub(anew, &Progress::default(), go_on).unwrap();
    assert!(found.since.is_none() && found.data.len() == 4, "{found:?}");
    volume.close().unwrap();
}

/// Promises that a scrub which was broken off goes on with more damaged blocks than the volume can note, and
/// with damaged metadata, and tells all of it.
#[test]
fn a_scrub_of_much_damage_goes_on() {
    const COUNT: usize = 2000;
    let device = made(Engine::Snapshot);
    let volume = open(&device);
    volume.write("file", blocks(1, COUNT)).unwrap();
    volume.close().unwrap();
    for n in (0..COUNT).step_by(80) {
        damage(&device, &block(1, n));
    }
    let volume = open(&device);
    let mut limit = 4;
    let found = loop {
        let few = &mut breaks_off_after(limit);
        let part = volume.view().scrub(Scrub::default(), &Progress::default(), few).unwrap();
        if part.goes_on.is_none() {
            break part;
        }
        limit += 1;
    };
    assert_eq!((found.data.len(), found.further), (COUNT / 80, 0));
    assert!(found.since.is_some());
    volume.close().unwrap();
}

/// A scrub that had read everything could not be broken off any more: whoever closed the volume waited until
/// it had asked all files for the damaged blocks. Promises that it is broken off there, too, that this is
/// recorded, and that the next one goes on and tells what is damaged.
#[test]
fn a_scrub_is_broken_off_while_it_asks_whose_damage_it_is() {
    let device = made(Engine::Snapshot);
    let volume = open(&device);
    for n in 0..300 {
        volume.write(format!("{n}"), block(1, n)).unwrap();
    }
    volume.close().unwrap();
    let damaged = damage(&device, &block(1, 7));
    let volume = open(&device);
    let (view, whole) = (volume.view(), scrub(&volume));
    assert_eq!(whole.data.len(), 1);
    let (mut limit, mut broken_off) = (0, 0);
    loop {
        let few = &mut breaks_off_after(limit);
        let how = Scrub { begin: ScrubFrom::Anew, ..Scrub::default() };
        let part = view.scrub(how, &Progress::default(), few).unwrap();
        if part.goes_on.is_none() {
            break;
        }
        assert!(part.is_noted && part.data.is_empty(), "{limit}: {part:?}");
        if part.data_blocks == whole.data_blocks {
            let rest = scrub(&volume);
            assert_eq!(rest.data.iter().map(|d| d.block).collect::<Vec<_>>(), [damaged], "{limit}");
            assert!(rest.since.is_some() && rest.goes_on.is_none() && rest.further == 0, "{rest:?}");
            broken_off += 1;
        }
        limit += 1;
    }
    // The first time it had just read the last block.
    assert!(broken_off > 3, "{broken_off} times");
    volume.close().unwrap();
}

/// Blocks that were recorded as damaged fell out of the record when a scrub began anew, or when reading had
/// met many others with smaller numbers. Promises that they stay until a scrub has found out what they are.
#[test]
fn what_is_recorded_as_damaged_stays_recorded() {
    const COUNT: usize = 2000;
    let device = made(Engine::Snapshot);
    let volume = open(&device);
    volume.write("file", blocks(1, COUNT)).unwrap();
    volume.close().unwrap();
    let recorded = damage(&device, &block(1, COUNT - 1));
    let volume = open(&device);
    assert_eq!(scrub(&volume).data.len(), 1);
    assert_eq!(volume.view().scrubs().unwrap().known_damaged(), [recorded]);
    volume.close().unwrap();
    let met = (0..20).map(|n| 10 * n);
    met.clone().for_each(|n| assert!(damage(&device, &block(1, n)) < recorded));
    let volume = open(&device);
    for n in met {
        assert!(read(&volume, "file", n * BLOCK, BLOCK).is_err());
    }
    let view = volume.view();
    let is_recorded = || {
        let record = view.scrubs().unwrap();
        let known = record.known_damaged();
        assert!(known.len() == 13 && known.contains(&recorded), "{record:?}");
    };
    for begin in [ScrubFrom::Anew, ScrubFrom::Anew, ScrubFrom::GoOn] {
        let how = Scrub { begin, ..Scrub::default() };
        let part = view.scrub(how, &Progress::default(), &mut || ControlFlow::Break(())).unwrap();
        assert!(part.is_noted, "{part:?}");
        is_recorded();
    }
    assert_eq!(scrub(&volume).data.len(), 21);
    is_recorded();
    volume.close().unwrap();
}

/// What reading had met damaged was forgotten if the process ended before the volume was closed. Promises
/// that the volume has it some seconds later, whatever becomes of the process, also while a scrub is under
/// way that writes the same record; and that a scrub finds out what it is.
#[test]
fn what_reading_has_met_is_recorded_soon() {
    let device = made(Engine::Snapshot);
    let volume = open(&device);
    volume.write("file", blocks(1, 100)).unwrap();
    volume.close().unwrap();
    let damaged = [5, 60].map(|n| damage(&device, &block(1, n)));
    let volume = open(&device);
    let view = volume.view();
    let recorded = |wanted: &[u64]| {
        let begun = Instant::now();
        while view.scrubs().unwrap().known_damaged() != wanted {
            assert!(begun.elapsed() < Duration::from_secs(120), "{:?}", view.scrubs());
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    assert!(read(&volume, "file", 5 * BLOCK, BLOCK).is_err());
    recorded(&damaged[..1]);
    let mut asked = 0;
    let how = Scrub { every: Duration::ZERO, ..Scrub::default() };
    let stops = &mut || {
        asked += 1;
        if asked == 1 {
            assert!(read(&volume, "file", 60 * BLOCK, BLOCK).is_err());
            recorded(&damaged);
        }
        match asked > 2 {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    assert!(view.scrub(how, &Progress::default(), stops).unwrap().is_noted);
    recorded(&damaged);
    // The process is gone.
    let later = open(&Arc::new(device.snapshot()));
    assert_eq!(later.view().damaged_blocks().unwrap().into_iter().collect::<Vec<_>>(), damaged);
    assert_eq!(scrub(&later).data.len(), 2);
    drop(volume);
    later.close().unwrap();
}

/// Promises that a volume gets checksums of what it has, while it is used and with a past; that it takes
/// several calls if they are broken off; and that what is written later has them, too.
#[test]
fn a_volume_gets_checksums_of_what_it_has() {
    const COUNT: usize = 900;
    let device = Arc::new(MemoryDevice::new(64 << 20));
    Volume::create(device.clone(), &MkfsOptions::default()).unwrap().close().unwrap();
    let volume = open(&device);
    volume.write("file", blocks(1, COUNT)).unwrap();
    volume.view().take_snapshot(volume.view().root(), &NewSnapshot::default()).unwrap();
    let file = OpenOptions::new().write(true).open(&volume, "file").unwrap();
    file.write_at(&block(2, 7), 7 * BLOCK as u64).unwrap();
    volume.view().sync().unwrap();
    let before = scrub(&volume);
    assert!(!before.keeps_checksums && before.is_clean() && before.data_blocks == 0, "{before:?}");
    // Accepted before, and not written back.
    file.write_at(&block(3, 8), 8 * BLOCK as u64).unwrap();
    let (mut times, mut entered) = (0, 0);
    loop {
        let few = &mut breaks_off_after(4);
        let done = volume.view().enable_data_checksums(&Progress::default(), few).unwrap();
        (times, entered) = (times + 1, entered + done.blocks);
        assert_eq!(done.left, 0);
        if !done.broken_off {
            break;
        }
    }
    assert!(times > 1 && volume.view().keeps_data_checksums());
    file.write_at(&block(4, 9), 9 * BLOCK as u64).unwrap();
    drop(file);
    volume.view().sync().unwrap();
    assert!(entered >= COUNT as u64, "{entered} blocks in {times} times");
    let after = scrub(&volume);
    assert!(after.is_clean() && after.data_blocks >= COUNT as u64 + 2, "{after:?}");
    volume.close().unwrap();
    assert!(yore_check::check(&*device, &Default::default()).unwrap().is_clean());
    let damaged =
        [damage(&device, &block(1, 7)), damage(&device, &block(1, 500)), damage(&device, &block(4, 9))];
    let found = scrub(&open(&device));
    for block in damaged {
        assert!(found.data.iter().any(|d| d.block == block), "{block}: {found:?}");
    }
    assert_eq!(found.data.len(), 3);
}

fn enable(volume: &Volume, ask: &mut dyn FnMut() -> ControlFlow<()>) -> ChecksumsEntered {
    volume.view().enable_data_checksums(&Progress::default(), ask).unwrap()
}

fn without(volume: &Volume) -> u64 {
    volume.view().data_without_checksums(&mut || ControlFlow::Continue(())).unwrap().unwrap().blocks
}

/// What is promised of a volume on which a crash met `yore checksums --enable`.
#[derive(Default)]
struct Enabled {
    states: u32,
    /// The volume kept no checksums yet; it kept some; all data had one.
    none: u32,
    some: u32,
    all: u32,
}

const ENABLED: u64 = 1;
const OVERWRITTEN: u64 = 2;
const BLOCKS: usize = 300;
const STATES: usize = 40;

/// A volume with a past, shared blocks and data that is only in memory gets checksums while files change. The
/// power fails anywhere.
fn crash_while_enabling(engine: Engine) -> Enabled {
    let findings = Findings::behind_a_crash_under(engine);
    let simulated = Arc::new(SimulatedDevice::new(MemoryDevice::new(24 << 20)));
    let options = MkfsOptions { engine, ..MkfsOptions::default() };
    Volume::create(simulated.clone(), &options).unwrap().close().unwrap();
    let volume = open(&simulated);
    volume.write("past", blocks(1, BLOCKS)).unwrap();
    volume.write("same", blocks(2, BLOCKS)).unwrap();
    volume.write("changes", blocks(3, BLOCKS)).unwrap();
    volume.copy("same", "copy").unwrap();
    volume.sync().unwrap();
    volume.view().take_snapshot(volume.view().root(), &NewSnapshot::named("then")).unwrap();
    let put = |name: &str, file: u8, n: usize| {
        let open = OpenOptions::new().write(true).create(true).open(&volume, name).unwrap();
        open.write_at(&block(file, n), (n * BLOCK) as u64).unwrap();
        open
    };
    (0..BLOCKS).step_by(7).for_each(|n| drop(put("past", 4, n)));
    volume.sync().unwrap();
    simulated.restart_trace();
    // Accepted before the volume keeps checksums: in memory, and in the log.
    drop(put("changes", 5, 11));
    put("changes", 5, 12).sync_all().unwrap();
    let mut step = 0;
    let mut ask = || {
        step += 1;
        match step {
            2 => drop(put("changes", 5, 13)),
            3 => put("changes", 5, 14).sync_all().unwrap(),
            4 => volume.write("new", blocks(6, 40)).unwrap(),
            5 => volume.sync().unwrap(),
            6 => put("changes", 5, 200).sync_all().unwrap(),
            9 => return ControlFlow::Break(()),
            _ => {}
        }
        if step == 3 {
            simulated.mark(OVERWRITTEN);
        }
        ControlFlow::Continue(())
    };
    assert!(enable(&volume, &mut ask).broken_off);
    let done = enable(&volume, &mut ask);
    assert!(done.left == 0 && !done.broken_off && step > 10, "{done:?}, {step} steps");
    simulated.mark(ENABLED);
    drop(put("changes", 5, 250));
    volume.sync().unwrap();

    let mut found = Enabled::default();
    let trace = simulated.trace();
    // An engine that writes in place needs blocks that are not torn.
    let tearing = if orders(engine) { Tearing::Blocks } else { Tearing::Sectors };
    let plan = CrashPlan { exhaustive_max: 6, samples: 2, tearing, ..CrashPlan::default() };
    let cases: Vec<_> = trace.crash_states(&plan).collect();
    let each = cases.len().div_ceil(STATES);
    for case in cases.into_iter().step_by(each) {
        let has = |which| trace.marks_before(case.after_entry()).any(|mark| mark == which);
        let (enabled, overwritten) = (has(ENABLED), has(OVERWRITTEN));
        let state = format!("{engine:?}, {}", case.state());
        let medium = Arc::new(case.materialise());
        must_be_sound(&*medium, findings, "as the crash left it")
            .unwrap_or_else(|wrong| panic!("{state}: {}", wrong.message));
        let volume = open(&medium);
        let whole = |volume: &Volume, when: &str| {
            let mut past = blocks(1, BLOCKS);
            assert!(volume.read(".@then/past").unwrap() == past, "{state}, {when}");
            (0..BLOCKS).step_by(7).for_each(|n| past[n * BLOCK..][..BLOCK].copy_from_slice(&block(4, n)));
            assert!(volume.read("past").unwrap() == past, "{state}, {when}");
            for name in ["same", "copy"] {
                assert!(volume.read(name).unwrap() == blocks(2, BLOCKS), "{state}, {when}: {name}");
            }
            for (n, bytes) in volume.read("changes").unwrap().chunks(BLOCK).enumerate() {
                let (may, must) = match n {
                    12 => (true, overwritten),
                    14 => (true, overwritten),
                    11 | 13 | 200 => (true, enabled),
                    250 => (true, false),
                    _ => (false, false),
                };
                let is = (bytes == block(3, n), bytes == block(5, n));
                assert!(is.0 && !must || is.1 && may, "{state}, {when}: block {n}: {is:?}");
            }
        };
        whole(&volume, "as it was found");
        let sound = scrub(&volume);
        assert!(sound.is_clean(), "{state}: {sound:?}");
        let missing = without(&volume);
        match (volume.view().keeps_data_checksums(), missing) {
            (false, _) => found.none += 1,
            (true, 0) => found.all += 1,
            (true, _) => found.some += 1,
        }
        assert!(!enabled || volume.view().keeps_data_checksums() && missing == 0, "{state}: {missing}");
        let again = enable(&volume, &mut || ControlFlow::Continue(()));
        assert!(again.left == 0 && !again.broken_off, "{state}: {again:?}");
        volume.sync().unwrap();
        assert_eq!(without(&volume), 0, "{state}");
        volume.close().unwrap();
        must_be_sound(&*medium, findings, "after it was enabled again")
            .unwrap_or_else(|wrong| panic!("{state}: {}", wrong.message));
        let volume = open(&medium);
        whole(&volume, "opened again");
        let sound = scrub(&volume);
        assert!(sound.is_clean() && sound.data_blocks >= 3 * BLOCKS as u64, "{state}: {sound:?}");
        found.states += 1;
    }
    found
}

/// Promises that a crash while a volume gets checksums loses nothing: every file is what it was, as is the
/// past; a checksum that is there is right; what had returned is there; and who enables again finishes it.
#[test]
fn a_crash_while_a_volume_gets_checksums() {
    for engine in [Engine::Snapshot, Engine::Journal, Engine::SoftUpdates, Engine::Sync] {
        let found = crash_while_enabling(engine);
        let Enabled { states, none, some, all } = found;
        println!("{engine:?}: {states} states: {none} before it, {some} with a part, {all} with all");
        assert!(states > 25 && none > 2 && some > 4 && all > 2, "{engine:?}");
    }
}

/// Promises that the engine that keeps no order is refused, when the volume is made and when it is opened.
#[test]
fn the_engine_without_order_is_refused() {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let options = MkfsOptions { data_checksums: true, engine: Engine::None, ..MkfsOptions::default() };
    assert!(matches!(Volume::create(device, &options), Err(Error::Refused(why)) if why.contains("none")));
    let options = MountOptions { engine: Some(Engine::None), ..MountOptions::default() };
    let refused = Volume::open(made(Engine::Snapshot), &options);
    assert!(matches!(refused, Err(Error::Refused(why)) if why.contains("checksums")));
}
