//! Promises of a full volume: what it gives up by itself, for what and for whom; that it gives up nothing in
//! vain; and that it tells the truth about what can be freed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use yore_device::{Device, MemoryDevice};
use yore_fs::time::When;
use yore_fs::{
    Behalf, Caller, Error, Event, EventKind, EventNo, FallocateMode, MkfsOptions, MountOptions, NewSnapshot,
    OpenOptions, OperationKind, Policy, RowClass, SetAttr, SpaceRules, Timestamp, Versioning, Volume,
    WriteMode,
};

const MIB: usize = 1 << 20;
const BLOCK: usize = 4096;

/// A volume on which the protection of history that is being read ends at once.
fn volume(mib: u64) -> Volume {
    volume_where_reading_lasts(mib, Duration::ZERO)
}

fn volume_where_reading_lasts(mib: u64, reading_lasts: Duration) -> Volume {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(mib << 20));
    Volume::create(device.clone(), &MkfsOptions::default()).unwrap().close().unwrap();
    Volume::open(device, &MountOptions { reading_lasts, ..MountOptions::default() }).unwrap()
}

fn rules(volume: &Volume, floor_seconds: u64, share_percent: u8) {
    volume.view().set_space_rules(SpaceRules { floor_seconds, share_percent }).unwrap();
}

fn event(volume: &Volume, directory: &str, name: &str) -> EventNo {
    let node = volume.node(directory).unwrap();
    volume
        .view()
        .take_snapshot(node.inode(), &NewSnapshot { wait: true, ..NewSnapshot::named(name) })
        .unwrap()
        .number
}

fn kept(volume: &Volume) -> Vec<EventNo> {
    volume.view().events().unwrap().iter().map(|event| event.number).collect()
}

fn is_full<T: std::fmt::Debug>(result: Result<T, Error>) {
    let error = result.expect_err("there is no room for it");
    assert!(matches!(error.root(), Error::NoSpace | Error::NeverFits { .. }), "{error}");
}

/// The thesis: 30 MiB on 64 MiB, a snapshot, and the file is removed. Copying the file back from the snapshot
/// used to fill the volume, which then gave up the snapshot that was the source. A named snapshot is never
/// given up; the copy is refused before it begins.
#[test]
fn a_copy_of_the_past_never_loses_its_source() {
    for name in ["keep", ""] {
        let volume = volume_where_reading_lasts(64, Duration::from_secs(3600));
        rules(&volume, 0, 0);
        let thesis: Vec<u8> = (0..30 * MIB).map(|i| (i / 4099) as u8).collect();
        volume.write("thesis", &thesis).unwrap();
        let keep = event(&volume, "/", name);
        volume.remove_file("thesis").unwrap();
        volume.sync().unwrap();
        // Without a name, the snapshot is kept because it is being read.
        let then = Volume::from_view(volume.view().as_of(keep));
        assert!(then.read("thesis").unwrap() == thesis);
        is_full(volume.write("thesis", &thesis));
        let mut at = 0;
        is_full(loop {
            let mut part = vec![0; MIB];
            let source = OpenOptions::new().read(true).open(&then, "thesis").unwrap();
            let n = source.read_at(&mut part, at).unwrap();
            let node = volume.node("thesis").unwrap();
            let mode = WriteMode { append: false, kill_set_id: false };
            match volume.view().write(node.inode(), at, &part[..n], mode) {
                Ok(_) => at += n as u64,
                Err(e) => break Err::<(), _>(e),
            }
        });
        assert_eq!(kept(&volume), [keep], "{name:?}");
        assert!(then.read("thesis").unwrap() == thesis, "{name:?}");
    }
}

/// A write of 500 MiB to a volume of 64 MiB failed, and had first erased every snapshot.
#[test]
fn what_can_never_fit_gives_up_nothing() {
    let volume = volume(64);
    rules(&volume, 0, 0);
    let mut taken = Vec::new();
    for n in 0..5u8 {
        volume.write("file", vec![n; MIB]).unwrap();
        taken.push(event(&volume, "/", ""));
    }
    volume.sync().unwrap();
    let large = vec![7; 500 * MIB];
    is_full(volume.write("large", &large));
    volume.remove_file("large").unwrap();
    let file = volume.node("file").unwrap().inode();
    for len in [64 << 20, 500 << 20, 1 << 40] {
        let allocated = volume.view().fallocate(file, 0, len, FallocateMode::Allocate { keep_size: false });
        assert!(matches!(allocated, Err(Error::NeverFits { .. })), "{len}: {allocated:?}");
    }
    // A copy within the volume: its length is known before, too.
    volume.write("present", vec![1; 28 * MIB]).unwrap();
    is_full(volume.copy("present", "copy").map(|_| ()));
    assert_eq!(kept(&volume), taken);
}

/// History that is younger than the floor stays as long as history takes less than its share: then writing
/// fails. Older history goes, and no more of it than the write needs.
#[test]
fn the_floor_keeps_what_is_young() {
    let volume = volume(64);
    let mut taken = Vec::new();
    for n in 0..6u8 {
        volume.write("file", vec![n; 2 * MIB]).unwrap();
        taken.push(event(&volume, "/", ""));
    }
    volume.write("file", "").unwrap();
    volume.sync().unwrap();
    // 12 MiB of history are less than half of 64.
    let mut written = 0usize;
    let fill = |written: &mut usize| loop {
        let name = format!("fill{written}");
        match volume.write(&name, vec![9; MIB / 2]) {
            Ok(()) => *written += 1,
            Err(e) => return is_full(Err::<(), _>(e)),
        }
    };
    fill(&mut written);
    assert_eq!(kept(&volume), taken, "all of it is young");
    rules(&volume, 0, 50);
    volume.write("one-more", vec![9; MIB]).unwrap();
    assert_eq!(kept(&volume), taken[1..], "one was enough");
    fill(&mut written);
    assert!(kept(&volume).is_empty(), "all of it is old now: {:?}", kept(&volume));
}

/// A program that changes more than half of the volume a day can go on: above the share, the oldest snapshots
/// go although they are young. Held, named and pinned ones stay.
#[test]
fn above_its_share_young_history_goes_oldest_first() {
    let volume = volume(64);
    volume.write("small", "held").unwrap();
    let held = event(&volume, "/", "");
    volume.view().hold(held, true).unwrap();
    let named = event(&volume, "/", "named");
    let mut taken = Vec::new();
    for n in 0..40u8 {
        volume.write("file", vec![n; 6 * MIB]).unwrap();
        taken.push(event(&volume, "/", ""));
    }
    let kept = kept(&volume);
    assert_eq!(kept[..2], [held, named]);
    assert!(taken.ends_with(&kept[2..]), "the oldest went: {kept:?}");
    let history = volume.statfs().history_blocks() as usize * BLOCK;
    assert!(history >= 24 * MIB, "no more than was needed: {history}");
}

/// The share is of all that history takes, not of its data only. A volume whose history was nearly all rows
/// stayed full although history took far more than its share: what would free space compared the share with
/// the data, and said that nothing may go.
#[test]
fn rows_of_history_count_towards_its_share() {
    let volume = volume(64);
    rules(&volume, 24 * 60 * 60, 1);
    let files: Vec<_> = (0..300).map(|n| format!("empty{n}")).collect();
    for file in &files {
        volume.write(file, "").unwrap();
    }
    let mut taken = vec![event(&volume, "/", "")];
    for uid in 0..60 {
        let set = SetAttr { uid: Some(uid), ..SetAttr::default() };
        for file in &files {
            let node = volume.node(file).unwrap();
            volume.view().setattr(&Caller::superuser(), node.inode(), &set).unwrap();
        }
        taken.push(event(&volume, "/", ""));
    }
    let history = || volume.statfs().history_blocks() as usize * BLOCK;
    let (share, data) = (64 * MIB / 100, volume.statfs().history_data_blocks as usize * BLOCK);
    assert!(history() > share && data < share, "{} and {data}", history());
    // All room is taken; then names want some.
    let large = volume.write("large", "").and_then(|()| volume.node("large")).unwrap();
    let all = FallocateMode::Allocate { keep_size: false };
    let mut end = 0;
    for step in [MIB, BLOCK] {
        while volume.view().fallocate(large.inode(), end, step as u64, all).is_ok() {
            end += step as u64;
        }
    }
    assert_eq!(kept(&volume), taken, "who asks for data gets none of it: rows may free no block of data");
    let name = |n| format!("a name that is as long as names of files may be {n:0200}");
    for n in 0..20_000 {
        if let Err(error) = volume.write(name(n), "") {
            panic!("{error} after {n} files; history takes {} of {share}", history());
        }
        if kept(&volume) != taken {
            break;
        }
    }
    let left = kept(&volume);
    assert!(left.len() < taken.len() && taken.ends_with(&left), "the oldest went: {left:?}");
}

/// History that is being read stays for some time, however much room is needed.
#[test]
fn what_is_read_stays() {
    let volume = volume_where_reading_lasts(64, Duration::from_secs(3600));
    rules(&volume, 0, 0);
    let mut taken = Vec::new();
    for n in 0..6u8 {
        volume.write("file", vec![n; 6 * MIB]).unwrap();
        taken.push(event(&volume, "/", ""));
    }
    let then = Volume::from_view(volume.view().as_of(taken[0]));
    let mut entries = 0;
    then.view()
        .readdir(then.view().root(), 0, &mut |_| {
            entries += 1;
            true
        })
        .unwrap();
    for n in 0..10u8 {
        volume.write("file", vec![n; 6 * MIB]).unwrap();
        event(&volume, "/", "");
    }
    let kept = kept(&volume);
    assert!(kept[0] == taken[0] && kept[1] > taken[1], "{kept:?}");
    assert_eq!(then.read("file").unwrap(), vec![0; 6 * MIB]);
}

/// B allocated everything that was free and made the volume drop what A had kept, in nine milliseconds. For
/// users who cannot forget a snapshot with a command the volume does not give it up, and `statfs` does not
/// promise its room to them.
#[test]
fn others_do_not_make_a_volume_forget() {
    let volume = volume(64);
    rules(&volume, 0, 0);
    let root = volume.view();
    for (name, uid) in [("a", 1000), ("b", 1001)] {
        volume.create_dir(name).unwrap();
        let set = SetAttr { uid: Some(uid), ..SetAttr::default() };
        root.setattr(&Caller::superuser(), volume.node(name).unwrap().inode(), &set).unwrap();
        volume.write(format!("{name}/file"), vec![1; 8 * MIB]).unwrap();
    }
    let (of_a, of_b) = (event(&volume, "a", ""), event(&volume, "b", ""));
    for name in ["a", "b"] {
        volume.write(format!("{name}/file"), vec![2; 8 * MIB]).unwrap();
    }
    let of_root = event(&volume, "/", "");
    volume.sync().unwrap();
    let b = root.on_behalf_of(Behalf::User(1001));
    let nobody = root.on_behalf_of(Behalf::Nobody);
    let available = |view: &yore_fs::View| view.statfs().blocks_available as usize * BLOCK;
    assert!(available(&nobody) + 8 * MIB <= available(&b), "his own can go");
    assert!(available(&b) + 8 * MIB <= available(root), "and that of A cannot");
    volume.write("b/large", "").unwrap();
    let large = volume.node("b/large").unwrap().inode();
    let all = FallocateMode::Allocate { keep_size: false };
    is_full(nobody.fallocate(large, 0, available(&nobody) as u64 + (1 << 20), all));
    is_full(b.fallocate(large, 0, available(&b) as u64 + (1 << 20), all));
    assert_eq!(kept(&volume), [of_a, of_b, of_root]);
    let mut written = 0;
    let mode = WriteMode { append: true, kill_set_id: false };
    while b.write(large, 0, &vec![3; MIB], mode).is_ok() {
        written += 1;
    }
    assert_eq!(kept(&volume), [of_a, of_root], "after {written} MiB");
    root.write(large, 0, &vec![3; 4 * MIB], mode).unwrap();
    assert!(!kept(&volume).contains(&of_a), "root may");
}

/// After everything was deleted, a program that asks for free room must not get the answer that there is
/// none; and the room in the answer can be used.
#[test]
fn what_is_deleted_is_available() {
    let volume = volume(64);
    let empty = volume.statfs().blocks_available;
    for n in 0..13 {
        volume.write(format!("f{n}"), vec![n; 4 * MIB]).unwrap();
    }
    event(&volume, "/", "");
    for n in 0..13 {
        volume.remove_file(format!("f{n}")).unwrap();
    }
    volume.sync().unwrap();
    // History takes 52 MiB; 32 of them may stay.
    let available = volume.statfs().blocks_available as usize;
    assert!(available * BLOCK >= 19 * MIB && available < empty as usize, "{available} of {empty}");
    volume.write("new", vec![1; available * BLOCK]).unwrap();
}

/// A number that tells contents apart.
fn sum(content: &[u8]) -> u64 {
    use std::hash::Hasher as _;
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(content);
    hasher.finish()
}

/// The files of a volume, or of one of its snapshots.
fn sums(volume: &Volume) -> Vec<(String, u64)> {
    let names = (0..12).map(|n| format!("f{n}"));
    names.filter_map(|name| volume.read(&name).ok().map(|content| (name, sum(&content)))).collect()
}

/// At any time, as much can be written as `statfs` calls available, whatever is held, named and forgotten.
/// History that stays does not change, and named or held history stays.
#[test]
fn statfs_never_promises_too_much() {
    let seed = std::env::var("YORE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(4711u64);
    for round in 0..8u64 {
        let mut state = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round << 33 | 1);
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let volume = volume(48);
        rules(&volume, if random(2) == 0 { 0 } else { 86_400 }, [0, 20, 50][random(3) as usize]);
        let mut taken: HashMap<EventNo, Vec<(String, u64)>> = HashMap::new();
        for step in 0..60u32 {
            let name = format!("f{}", random(12));
            match random(10) {
                0..=3 => drop(volume.write(&name, vec![step as u8; random(3 << 20) as usize])),
                4 => drop(volume.remove_file(&name)),
                5 => {
                    if let Ok(file) = OpenOptions::new().write(true).open(&volume, &name) {
                        let len = random(1 << 20) as usize;
                        drop(file.write_at(&vec![step as u8; len], random(1 << 20)));
                    }
                }
                kind @ 6..=8 => {
                    let name = if kind == 6 { format!("n{step}") } else { String::new() };
                    if let Ok(event) =
                        volume.view().take_snapshot(volume.view().root(), &NewSnapshot::named(&name))
                    {
                        taken.insert(event.number, sums(&volume));
                    }
                }
                _ => {
                    let all = kept(&volume);
                    if !all.is_empty() {
                        let one = all[random(all.len() as u64) as usize];
                        let _ = volume.view().hold(one, random(2) == 0);
                    }
                }
            }
            if random(8) == 0 {
                let available = volume.statfs().blocks_available as usize;
                let written = volume.write("probe", vec![7; available * BLOCK]);
                // The name itself may need a block of metadata; then not even the file is made.
                if let Err(e) = &written {
                    let is_there = volume.metadata("probe").is_ok();
                    assert!(!is_there, "seed {seed}, round {round}, step {step}: {available} blocks: {e}");
                }
                drop(volume.remove_file("probe"));
            }
        }
        let kept: Vec<Event> = volume.view().events().unwrap();
        for (number, was) in taken {
            let event = kept.iter().find(|event| event.number == number);
            if let Some(event) =
                event.filter(|event| !event.row.name.is_empty() || event.row.held || number.0 % 3 == 0)
            {
                let then = Volume::from_view(volume.view().as_of(event.number));
                assert_eq!(sums(&then), was, "seed {seed}, round {round}: event {number}");
            }
        }
    }
}

/// A full volume gave up the removal of a file, which frees nothing, along with other history, and kept a
/// version that somebody held: then the file was shown at times at which it did not exist. Even if somebody
/// forgets the removal by itself, the name of the file tells when it was gone.
#[test]
fn a_removal_stays_with_what_it_ends() {
    let volume = volume(64);
    rules(&volume, 0, 0);
    let (view, root) = (volume.view(), volume.view().root());
    volume.write("doc", "").unwrap();
    let close = Policy { versioning: Some(Versioning::Close), ..Policy::default() };
    view.set_policy(volume.node("doc").unwrap().inode(), &close).unwrap();
    volume.write("doc", "the text").unwrap();
    let version = view.events().unwrap().last().unwrap().clone();
    assert_eq!(version.row.kind, EventKind::Close);
    view.hold(version.number, true).unwrap();
    volume.remove_file("doc").unwrap();
    let removed = view.events().unwrap().last().unwrap().clone();
    assert_eq!(removed.row.kind, EventKind::Removed);
    let mut taken = Vec::new();
    for n in 0..5u8 {
        volume.write("file", vec![n; 4 * MIB]).unwrap();
        taken.push(event(&volume, "/", ""));
    }
    let last = view.events().unwrap().last().unwrap().row.time;
    let mut fillers = 0;
    while volume.write(format!("fill{fillers}"), vec![9; MIB / 2]).is_ok() {
        fillers += 1;
    }
    let left = kept(&volume);
    assert!(!left.contains(&taken[0]), "history was given up: {left:?}");
    assert!(left.starts_with(&[version.number, removed.number]), "{left:?}");
    let doc = |time| {
        let node = view.lookup_at(root, b"doc", &When::At(time))?;
        let mut bytes = vec![0; node.attr().size as usize];
        node.read(0, &mut bytes).map(|_| bytes)
    };
    let later = Timestamp { seconds: last.seconds + 1000, nanos: 1 };
    for without in [false, true] {
        if without {
            view.forget(&[removed.number]).unwrap();
        }
        assert_eq!(doc(version.row.time).unwrap(), b"the text");
        for time in [removed.row.time, last, later] {
            let found = doc(time);
            assert!(matches!(found, Err(Error::NotFound)), "{time:?}, {without}: {found:?}");
        }
        view.finish_forgetting(&mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    }
    assert!(matches!(doc(later), Err(Error::NotFound)), "the removal is forgotten");
}

/// The volume records what was given up, when, and for what, and still knows it after it was opened again.
#[test]
fn what_was_given_up_is_recorded() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    let volume = Volume::create(device.clone(), &MkfsOptions::default()).unwrap();
    rules(&volume, 0, 0);
    volume.write("file", vec![1; 20 * MIB]).unwrap();
    let gone = event(&volume, "/", "");
    volume.write("file", vec![2; 20 * MIB]).unwrap();
    volume.write("more", vec![3; 20 * MIB]).unwrap();
    volume.close().unwrap();
    let volume = Volume::open(device, &MountOptions::default()).unwrap();
    assert_eq!(volume.view().space_rules(), SpaceRules { floor_seconds: 0, share_percent: 0 });
    let rows = volume.view().operations(RowClass::GivenUp).unwrap();
    let [(_, row)] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.kind, row.first, row.last, row.count), (OperationKind::GaveUp, gone, gone, 1));
    assert!(row.bytes >= 20 << 20, "{row:?}");
    assert!(row.note.contains("for a write of"), "{row:?}");
}

/// Filling and emptying a volume again and again under `version=close` took more than six times as long as
/// without, because each small write to the full volume waited until one snapshot was forgotten. This counts
/// the generations that the work takes: they are what it waits for, on any machine. The test prints the
/// ratio.
#[test]
fn filling_and_emptying_gives_up_many_at_once() {
    let work = [(32, None), (32, Some(Versioning::Close)), (1024, Some(Versioning::Close))].map(
        |(mib, versioning)| {
            let volume = volume(mib);
            let policy = Policy { versioning, ..Policy::default() };
            volume.view().set_policy(volume.view().root(), &policy).unwrap();
            let (began, before) = (std::time::Instant::now(), volume.info().generation);
            let mut written = 0;
            for round in 0..6u8 {
                let mut n = 0;
                while n < 100 && volume.write(format!("f{n}"), vec![round; 200_000]).is_ok() {
                    n += 1;
                }
                written += n;
                for n in 0..n {
                    volume.remove_file(format!("f{n}")).unwrap();
                }
                drop(volume.remove_file(format!("f{n}")));
                volume.sync().unwrap();
            }
            let micros = began.elapsed().as_secs_f64() / f64::from(written) * 1e6;
            (written, volume.info().generation - before, micros)
        },
    );
    let [without, with, with_room] = work;
    println!(
        "files, generations, microseconds a file: without {without:.0?}, with {with:.0?}, with, where it never fills up, {with_room:.0?}; \
         ratio {:.2}",
        with.2 / without.2
    );
    assert!(with.0 * 3 >= without.0, "at least what is not history's share can be written: {work:?}");
    // One batch for each 64th of the volume that is written, and as many again for metadata.
    assert!(with.1 <= u64::try_from(with.0).unwrap() * 200_000 * 64 / (32 << 20) * 2, "{work:?}");
}

/// A full volume with a policy that makes a version at each close wrote one error to its log for each close.
/// Now it counts the versions that it does not make, and forgets the count when there is room again.
#[test]
fn versions_that_have_no_room_are_counted() {
    let volume = volume(16);
    let close = Policy { versioning: Some(Versioning::Close), ..Policy::default() };
    volume.write("file", "0").unwrap();
    volume.create_dir("full").unwrap();
    let file = volume.node("file").unwrap().inode();
    volume.view().set_policy(file, &close).unwrap();
    volume.write("file", "1").unwrap();
    assert_eq!(volume.view().missed_versions(), None);
    is_full(volume.write("large", vec![1; 32 * MIB]));
    is_full((0..).try_for_each(|n| volume.write(format!("full/{n}"), "inode")));
    let mut closes = 0;
    while volume.view().missed_versions().is_none() {
        closes += 1;
        assert!(closes < 10_000, "it never was full");
        volume.write("file", format!("{closes}")).unwrap();
    }
    eprintln!("{closes}");
    for n in 0..10 {
        drop(volume.write("file", format!("again {n}")));
    }
    let missed = volume.view().missed_versions().unwrap();
    eprintln!("{missed:?}");
    assert!(missed.count >= 5, "{missed:?}");
    volume.remove_file("large").unwrap();
    volume.remove_dir_all("full").unwrap();
    volume.sync().unwrap();
    volume.write("file", "there is room").unwrap();
    assert_eq!(volume.view().missed_versions(), None);
}

/// Data that a snapshot has cannot become zeros where it is. On a full volume the call failed when the data
/// had been zeroed already. Now it promises the blocks first, and changes nothing without them.
#[test]
fn zeroing_without_room_changes_nothing() {
    let volume = volume(64);
    let data = vec![7; 6 * MIB];
    volume.write("file", &data).unwrap();
    event(&volume, "/", "keep");
    let mut fillers = 0;
    for size in [4 * MIB, 256 << 10, BLOCK] {
        while volume.write(format!("filler {fillers}"), vec![1; size]).is_ok() {
            fillers += 1;
        }
        drop(volume.remove_file(format!("filler {fillers}")));
    }
    volume.sync().unwrap();
    let mode = FallocateMode::ZeroRange { keep_size: true };
    let inode = volume.node("file").unwrap().inode();
    // From within a page to within another one.
    let (from, len) = (1000, 5 * MIB as u64);
    is_full(volume.view().fallocate(inode, from, len, mode));
    assert!(volume.read("file").unwrap() == data, "the call failed, and has zeroed data");
    for filler in 0..fillers {
        volume.remove_file(format!("filler {filler}")).unwrap();
    }
    volume.sync().unwrap();
    volume.view().fallocate(inode, from, len, mode).unwrap();
    let mut zeroed = data;
    zeroed[from as usize..(from + len) as usize].fill(0);
    assert!(volume.read("file").unwrap() == zeroed);
    volume.close().unwrap();
}
