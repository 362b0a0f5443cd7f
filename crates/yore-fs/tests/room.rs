//! Promises of a nearly full volume: a call that says how much it will take learns before it begins whether
//! giving up history would help. If it would not, nothing is written, and nothing is given up. That holds
//! where it is known what snapshots hold, where somebody has to walk through the versions for it, where
//! history shares blocks with the present, and with as many rows without keys as there may be.

use std::sync::Arc;
use std::time::Duration;
use yore_device::MemoryDevice;
use yore_fs::rollback::{Plan, Rights, Verb};
use yore_fs::{
    Error, EventNo, FallocateMode, File, MkfsOptions, MountOptions, NewSnapshot, OpenOptions, Result,
    SpaceRules, Volume,
};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
/// With so many rows without keys, a call that may add one waits until some have keys.
const BACKLOG: u64 = 64;
/// So many snapshots have a MiB each that may go.
const MAY_GO: usize = 6;

/// How it is found out what giving up would free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// It is known.
    Sums,
    /// By a walk through all versions.
    Walk,
    /// It is known, but for the files whose past shares blocks.
    Sharing,
}

fn snapshot(volume: &Volume, name: &str) -> EventNo {
    let new = NewSnapshot { wait: true, ..NewSnapshot::named(name) };
    volume.view().take_snapshot(volume.view().root(), &new).unwrap().number
}

/// 64 MiB with 1 MiB free: six snapshots that may go, with 1 MiB each alone; one with a name, with 6 MiB; and
/// in the present a file of some 40 MiB.
fn nearly_full(by: By) -> (Volume, EventNo) {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    Volume::create(device.clone(), &MkfsOptions::default()).unwrap().close().unwrap();
    let options = MountOptions { reading_lasts: Duration::ZERO, ..MountOptions::default() };
    let volume = Volume::open(device.clone(), &options).unwrap();
    volume.view().set_space_rules(SpaceRules { floor_seconds: 0, share_percent: 0 }).unwrap();
    volume.write("thesis", vec![9; 6 * MIB as usize]).unwrap();
    let keep = snapshot(&volume, "keep");
    volume.remove_file("thesis").unwrap();
    for n in 0..MAY_GO as u8 {
        for small in 0..60 {
            volume.write(format!("small{small}"), [n; 100]).unwrap();
        }
        volume.write("file", vec![n; MIB as usize]).unwrap();
        let event = snapshot(&volume, "");
        volume.write("file", vec![100; MIB as usize]).unwrap();
        if by == By::Sharing && n == 0 {
            // Forgetting this snapshot frees nothing of the file.
            let then = Volume::from_view(volume.view().as_of(event));
            let source = File::open(&then, "file").unwrap();
            let options = OpenOptions::new().write(true).create(true).clone();
            let to = options.open(&volume, "again").unwrap();
            assert_eq!(to.copy_from(&source, 0, MIB).unwrap(), MIB);
        }
        // Rows of names and inodes, more than may be without keys.
        for small in 0..60 {
            volume.remove_file(format!("small{small}")).unwrap();
        }
    }
    volume.write("target", "").unwrap();
    volume.sync().unwrap();
    let found = volume.view().statfs();
    let node = volume.write("filler", "").and_then(|()| volume.node("filler")).unwrap();
    let filled = (found.blocks_free - 256 - found.blocks_free / 50) * BLOCK;
    let mode = FallocateMode::Allocate { keep_size: false };
    volume.view().fallocate(node.inode(), 0, filled, mode).unwrap();
    volume.sync().unwrap();
    // A crash leaves all of these rows without keys, and more than this mount may have.
    let device = Arc::new(device.snapshot());
    let options = MountOptions { backlog: BACKLOG, ..options };
    let volume = Volume::open(device, &options).unwrap();
    volume.view().find_usage_by_walk(by == By::Walk);
    volume.view().what_would_free().unwrap();
    assert_eq!(volume.view().knows_usage(), by != By::Walk, "{by:?}");
    assert_eq!(volume.view().history_shares(), by == By::Sharing);
    assert_eq!(kept(&volume).len(), MAY_GO + 1);
    at_its_bound(&volume);
    (volume, keep)
}

/// As many rows have no keys as there may be: whoever records something waits until some have.
fn at_its_bound(volume: &Volume) {
    let rows = volume.view().rows_without_keys();
    assert!(rows >= BACKLOG, "{rows} rows have no keys");
}

fn kept(volume: &Volume) -> Vec<EventNo> {
    volume.view().events().unwrap().iter().map(|event| event.number).collect()
}

fn allocate(volume: &Volume, blocks: u64) -> Result<()> {
    let mode = FallocateMode::Allocate { keep_size: false };
    volume.view().fallocate(volume.node("target").unwrap().inode(), 0, blocks * BLOCK, mode)
}

/// Copies from an odd place, so that nothing can be shared. It went on until the volume was full, and only
/// then found out that giving up history would not help.
fn copy(volume: &Volume, blocks: u64) -> Result<()> {
    let view = volume.view();
    let [from, to] = ["filler", "target"].map(|name| volume.node(name).unwrap().inode());
    let (mut done, len) = (0, blocks * BLOCK - 1);
    while done < len {
        done += view.copy_file_range(from, 1 + done, to, done, len - done)?;
    }
    Ok(())
}

fn write(volume: &Volume, blocks: u64) -> Result<()> {
    volume.write("target", vec![1; (blocks * BLOCK) as usize])
}

const ALL: [By; 3] = [By::Sums, By::Walk, By::Sharing];

type Call = fn(&Volume, u64) -> Result<()>;
const CALLS: [(&str, Call); 3] = [("fallocate", allocate), ("copy", copy), ("write", write)];

/// What does not fit without the history that may go is refused; everything is as it was.
#[test]
fn nothing_begins_that_giving_up_would_not_help() {
    for by in ALL {
        let (volume, _) = nearly_full(by);
        let before = volume.view().statfs();
        // The history of the snapshot with a name does not go.
        let most = before.blocks_free + before.history_data_blocks - 5 * MIB / BLOCK;
        for (what, call) in CALLS {
            let all = kept(&volume);
            at_its_bound(&volume);
            let refused = call(&volume, most).expect_err("there is no room for it");
            assert!(matches!(refused.root(), Error::NeverFits { .. }), "{by:?}, {what}: {refused}");
            volume.sync().unwrap();
            let after = volume.view().statfs();
            assert_eq!(kept(&volume), all, "{by:?}, {what}");
            assert_eq!(after.history_data_blocks, before.history_data_blocks, "{by:?}, {what}");
            assert_eq!(volume.metadata("target").unwrap().len(), 0, "{by:?}, {what}");
            assert!(after.blocks_free >= before.blocks_free, "{by:?}, {what}: something was written");
        }
        volume.close().unwrap();
    }
}

/// What fits when some history goes is done, and no more goes than that needs.
#[test]
fn what_giving_up_helps_is_done_with_little() {
    for by in ALL {
        for (what, call) in CALLS {
            let (volume, keep) = nearly_full(by);
            let found = volume.view().statfs();
            // The MiB of two snapshots, beside what is free.
            let wanted = found.blocks_free + 2 * MIB / BLOCK - 64;
            assert!(wanted <= found.blocks_available, "{by:?}: {wanted} of {}", found.blocks_available);
            call(&volume, wanted).unwrap_or_else(|error| panic!("{by:?}, {what}: {error}"));
            volume.sync().unwrap();
            let left = kept(&volume);
            assert!(left.contains(&keep), "{by:?}, {what}");
            // The first one frees nothing where its blocks are shared. A little metadata may take one more.
            let most = 3 + usize::from(by == By::Sharing);
            assert!((1..=most).contains(&(MAY_GO + 1 - left.len())), "{by:?}, {what}: {left:?}");
            assert!(volume.metadata("target").unwrap().len() + 1 >= wanted * BLOCK);
            volume.close().unwrap();
        }
    }
}

/// What finds its blocks in the past, or in another file, needs no room of its own: nothing goes for a copy,
/// for what is put back, and for a rollback; and a rollback leaves what may go to those who need it.
#[test]
fn what_shares_its_blocks_gives_nothing_up() {
    for by in ALL {
        let (volume, keep) = nearly_full(by);
        let before = kept(&volume);
        let then = Volume::from_view(volume.view().as_of(keep));
        let source = File::open(&then, "thesis").unwrap();
        let create = OpenOptions::new().write(true).create(true).clone();
        // As `cp`, `restore` and `undelete` do it.
        for name in ["copy", "thesis"] {
            at_its_bound(&volume);
            let to = create.open(&volume, name).unwrap();
            assert_eq!(to.copy_from(&source, 0, 6 * MIB).unwrap(), 6 * MIB, "{by:?}, {name}");
        }
        volume.sync().unwrap();
        assert_eq!(kept(&volume), before, "{by:?}");
        ["copy", "thesis"]
            .iter()
            .for_each(|name| assert!(volume.read(name).unwrap() == then.read("thesis").unwrap()));
        volume.close().unwrap();

        let (volume, keep) = nearly_full(by);
        let plan = Plan { verb: Verb::Rollback, of: None, target: keep, others: None };
        volume.view().rollback(&Rights::All, volume.view().root(), &plan, &mut |_| ()).unwrap();
        assert!(volume.read("thesis").unwrap() == vec![9; 6 * MIB as usize], "{by:?}");
        let left = kept(&volume);
        assert!(before.iter().all(|event| left.contains(event)), "{by:?}: {left:?} of {before:?}");
        volume.close().unwrap();
    }
}
