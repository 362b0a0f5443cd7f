//! Promises of commands on a nearly full volume: what giving up history would not help begins nothing and
//! gives nothing up; what some of it helps is done, and gives up what may go and nothing else; and what finds
//! its blocks in the past needs no room.
//!
//! The library's part, with rows without keys at their bound, is in `yore-fs/tests/room.rs`.

use crate::common;

use common::{fails, ok, text, Scratch};
use std::fs;
use std::sync::Arc;
use yore_device::{Device, FileDevice, OpenOptions};
use yore_fs::{FallocateMode, MountOptions, NewSnapshot, SpaceRules, Volume};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
/// So many snapshots without a name have a MiB each alone.
const MAY_GO: u8 = 6;
/// Files of three blocks share none when they are put back: so many fit if some history goes, and so many do
/// not.
const FEW: usize = 250;
const MANY: usize = 1200;

fn open(scratch: &Scratch) -> Volume {
    let device = FileDevice::open(&scratch.volume, OpenOptions::default()).unwrap();
    let device: Arc<dyn Device> = Arc::new(device);
    Volume::open(device, &MountOptions::default()).unwrap()
}

fn small(n: usize) -> Vec<u8> {
    vec![n as u8; 3 * BLOCK as usize]
}

fn directory(volume: &Volume, name: &str, files: usize) {
    volume.create_dir(name).unwrap();
    (0..files).for_each(|n| volume.write(format!("{name}/{n}"), small(n)).unwrap());
}

/// 64 MiB with 1 MiB free. A snapshot with a name has a large file, two directories of small ones, which are
/// gone now, and one that is empty now; six may go, with a MiB each.
fn nearly_full() -> Scratch {
    let scratch = Scratch::new();
    let volume = open(&scratch);
    let view = volume.view();
    view.set_space_rules(SpaceRules { floor_seconds: 0, share_percent: 0 }).unwrap();
    volume.write("thesis", vec![9; 6 * MIB as usize]).unwrap();
    directory(&volume, "few", FEW);
    directory(&volume, "many", MANY);
    directory(&volume, "emptied", FEW);
    let take = |name: &str| {
        view.take_snapshot(view.root(), &NewSnapshot { wait: true, ..NewSnapshot::named(name) }).unwrap()
    };
    take("keep");
    volume.remove_file("thesis").unwrap();
    volume.remove_dir_all("few").unwrap();
    volume.remove_dir_all("many").unwrap();
    (0..FEW).for_each(|n| volume.remove_file(format!("emptied/{n}")).unwrap());
    for n in 0..MAY_GO {
        volume.write("file", vec![n; MIB as usize]).unwrap();
        take("");
        volume.write("file", vec![100; MIB as usize]).unwrap();
    }
    volume.sync().unwrap();
    volume.write("filler", "").unwrap();
    let filled = (view.statfs().blocks_free - 256 - view.statfs().blocks_free / 50) * BLOCK;
    let mode = FallocateMode::Allocate { keep_size: false };
    view.fallocate(volume.node("filler").unwrap().inode(), 0, filled, mode).unwrap();
    volume.close().unwrap();
    scratch
}

/// How many snapshots there are without those that commands take, how many blocks of data history has, and
/// how many are free.
fn state(scratch: &Scratch) -> (usize, u64, u64) {
    let volume = open(scratch);
    let events = volume.view().events().unwrap();
    let own = events.iter().filter(|event| matches!(&event.row.name[..], "" | "keep")).count();
    let found = volume.view().statfs();
    volume.close().unwrap();
    (own, found.history_data_blocks, found.blocks_free)
}

/// What does not fit, even if all history went that may go.
#[test]
fn commands_that_giving_up_would_not_help_change_nothing() {
    let scratch = nearly_full();
    let large = scratch.path("large");
    fs::File::create(&large).unwrap().set_len(20 * MIB).unwrap();
    fs::write(&large, vec![5; 20 * MIB as usize]).unwrap();
    let before = state(&scratch);
    assert_eq!(before.0, usize::from(MAY_GO) + 1);
    let on = |path: &str| scratch.on(path);
    for command in [
        vec!["put".to_string(), text(&large).to_string(), on("/large")],
        vec!["restore".to_string(), on("/many@keep")],
        vec!["undelete".to_string(), on("/many")],
        vec!["rollback".to_string(), on("/.@keep")],
    ] {
        let said = fails(3, &command);
        assert!(said.contains("missing"), "{command:?}: {said}");
        let after = state(&scratch);
        assert_eq!((after.0, after.1), (before.0, before.1), "{command:?}");
        assert!(after.2 >= before.2, "{command:?}: {after:?}, and it was {before:?}");
    }
    ok(["check", text(&scratch.volume)]);
}

/// What fits when some of it goes.
#[test]
fn commands_that_giving_up_helps_are_done_with_little() {
    for what in ["put", "cp", "restore", "undelete", "rollback"] {
        let scratch = nearly_full();
        let before = state(&scratch);
        let on = |path: &str| scratch.on(path);
        match what {
            "put" => {
                let large = scratch.file("large", vec![5; 5 * MIB as usize / 2]);
                ok(["put", text(&large), &on("/put")]);
            }
            "cp" => drop(ok(["cp", "-r", &on("/few@keep"), &on("/copies")])),
            "restore" => drop(ok(["restore", &on("/few@keep")])),
            "rollback" => drop(ok(["rollback", &on("/emptied@keep")])),
            _ => drop(ok(["undelete", &on("/few")])),
        }
        let (left, ..) = state(&scratch);
        assert!(left < before.0, "{what} fits only if some goes");
        assert!(left + 4 >= before.0, "{what}: {left} of {} are left", before.0);
        let volume = open(&scratch);
        let of = |n: usize| match what {
            "put" => None,
            "cp" => Some(format!("copies/{n}")),
            "rollback" => Some(format!("emptied/{n}")),
            _ => Some(format!("few/{n}")),
        };
        for n in 0..FEW {
            assert!(of(n).is_none_or(|path| volume.read(path).unwrap() == small(n)), "{what}: {n}");
        }
        let then = volume.view().events().unwrap().into_iter().find(|event| event.row.name == "keep");
        let then = Volume::from_view(volume.view().as_of(then.expect("it has a name").number));
        assert_eq!(then.read("thesis").unwrap().len() as u64, 6 * MIB);
        drop(then);
        volume.close().unwrap();
        drop(volume);
        ok(["check", text(&scratch.volume)]);
    }
}

/// What has its blocks in the past, or in another file, needs none of its own: nothing goes.
#[test]
fn what_shares_its_blocks_gives_nothing_up() {
    for what in ["cp", "restore", "undelete"] {
        let scratch = nearly_full();
        let before = state(&scratch);
        let (on, mut path) = (|path: &str| scratch.on(path), "thesis");
        match what {
            "cp" => {
                ok(["cp", &on("/thesis@keep"), &on("/copy")]);
                path = "copy";
            }
            "restore" => drop(ok(["restore", &on("/thesis@keep")])),
            _ => drop(ok(["undelete", &on("/thesis")])),
        }
        let (left, ..) = state(&scratch);
        assert_eq!(left, before.0, "{what}");
        let volume = open(&scratch);
        assert!(volume.read(path).unwrap() == vec![9; 6 * MIB as usize], "{what}");
        volume.close().unwrap();
        drop(volume);
        ok(["check", text(&scratch.volume)]);
    }
}
