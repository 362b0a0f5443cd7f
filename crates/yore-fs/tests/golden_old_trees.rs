//! Promise: a past in old trees can be read, forgotten and gone on with for ever. Programs before format 2.3
//! recorded in trees of versions, of past names and of changes; programs from then on record in annals, and
//! the two images here are what is left to show that they use the old trees rightly.
//!
//! - `golden/volume-2.2-past.blocks` has a rich past: snapshots of several directories, versions that a
//!   policy made, a forgotten snapshot, an expunged file; sparse, scattered, hard-linked, renamed and removed
//!   files; and so many rows that each kind of tree has two levels. Tests of other crates begin from it, too.
//! - `golden/volume-2.2-sample.blocks` is the sample of `yore-faults` that has a past, with a snapshot that
//!   is to be forgotten.
//!
//! The `.txt` beside each describes what can be seen of it; of the many small files a hash. Neither image is
//! ever made again, and no program of today could. [`make`] is the first one's recipe, and `with_annals` in
//! `yore-faults/src/sample.rs` the other's: the last program that could record in old trees followed both,
//! and [`blocks::pack`] and [`seen`] wrote the files. What the recipes make today is in annals.

use crate::golden::blocks;
use crate::golden::event;
// Nothing makes these images any more.
#[allow(dead_code)]
use crate::golden::seen;

use blocks::unpack;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use seen::{gist, left_open, no, options, read_only, same, short, text, tree, tree_of, write};
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::Arc;
use yore_device::MemoryDevice;
use yore_fs::{
    EventNo, FallocateMode, MkfsOptions, NewSnapshot, OpenOptions, Policy, Retention, SetXattrMode,
    Versioning, View, Volume,
};

const PAST: (&[u8], &str) =
    (include_bytes!("golden/volume-2.2-past.blocks"), include_str!("golden/volume-2.2-past.txt"));
const SAMPLE: (&[u8], &str) =
    (include_bytes!("golden/volume-2.2-sample.blocks"), include_str!("golden/volume-2.2-sample.txt"));

const BLOCK: u64 = 4096;
/// How many small files there are in `many`.
const MANY: u64 = 240;

// ---- making it ----

fn event(volume: &Volume, path: &str, name: &str) -> EventNo {
    volume.view().take_snapshot(no(volume, path), &NewSnapshot::named(name)).unwrap().number
}

fn finish(view: &View) {
    view.finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
}

fn make() -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(256 << 20));
    let mkfs = MkfsOptions {
        uuid: *b"golden old trees",
        label: "Yore 2.2".into(),
        // Otherwise half of the image would be old records.
        log_size: Some(256 << 10),
        ..MkfsOptions::default()
    };
    Volume::create(device.clone(), &mkfs).unwrap().close().unwrap();
    let volume = Volume::open(device.clone(), &options()).unwrap();
    with_files(&volume);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(22);
    for round in 0..10 {
        event(&volume, "/", &format!("s{round}"));
        if round % 3 == 2 {
            event(&volume, "a", "");
            event(&volume, "a/c", "");
        }
        change_files(&volume, round, &mut rng);
        change_many(&volume, round);
        if round == 6 {
            let view = volume.view();
            let second = view.events().unwrap().into_iter().find(|event| event.row.name == "s1").unwrap();
            view.forget(&[second.number]).unwrap();
            finish(view);
        }
    }
    let secret = volume.node("secret").unwrap();
    volume.view().expunge(&[(secret.inode(), secret.attr().incarnation)]).unwrap();
    finish(volume.view());
    volume.view().sync().unwrap();
    left_open(&device, volume)
}

/// The files that [`change_files`] changes. Tests elsewhere use these names.
const FILES: [&str; 14] = [
    "f0",
    "f1",
    "f2",
    "f3",
    "f4",
    "f5",
    "d0/f1",
    "d0/e/f2",
    "d1/f0",
    "d1/f1.swp",
    "a/f",
    "b/g",
    "a/c/h",
    "a/c/d/i",
];

fn with_files(volume: &Volume) {
    let view = volume.view();
    for path in ["d0", "d1", "d0/e", "a", "b", "a/c", "b/c", "a/c/d", "saved", "many"] {
        volume.create_dir(path).unwrap();
    }
    for (i, path) in FILES.into_iter().enumerate() {
        volume.write(path, text(i, 6000 + 500 * i)).unwrap();
    }
    // Holes and preallocated blocks.
    write(volume, "f5", 3 << 20, b"behind a hole");
    volume.truncate("f4", 1 << 20).unwrap();
    let keep = FallocateMode::Allocate { keep_size: true };
    view.fallocate(no(volume, "f3"), 8 * BLOCK, 40 * BLOCK, keep).unwrap();
    volume.write("scattered", text(50, 24 * BLOCK as usize)).unwrap();
    volume.write("secret", text(51, 5000)).unwrap();
    volume.hard_link("a/f", "b/linked").unwrap();
    volume.symlink("l".repeat(3000), "d1/long link").unwrap();
    view.setxattr(no(volume, "b/g"), b"user.large", &text(52, 9000), SetXattrMode::Any).unwrap();
    let close = Policy {
        versioning: Some(Versioning::Close),
        retention: Some(Retention::Everything),
        ..Policy::default()
    };
    view.set_policy(no(volume, "saved"), &close).unwrap();
    for i in 0..MANY {
        volume.write(format!("many/{i}"), format!("content {i}")).unwrap();
    }
}

/// Changes of the larger files, of many kinds.
fn change_files(volume: &Volume, round: u64, rng: &mut Xoshiro256PlusPlus) {
    let view = volume.view();
    for path in FILES {
        if rng.random_range(0..3) > 0 {
            continue;
        }
        let at = rng.random_range(0..4) * BLOCK;
        let inode = no(volume, path);
        match rng.random_range(0..6) {
            0 => volume.truncate(path, at + 700).unwrap(),
            1 => view.fallocate(inode, at, 2 * BLOCK, FallocateMode::PunchHole).unwrap(),
            2 => volume.set_permissions(path, 0o600 + round as u32).unwrap(),
            3 => view.setxattr(inode, b"user.round", &text(round as usize, 40), SetXattrMode::Any).unwrap(),
            _ => write(volume, path, at + round, &text(round as usize, 3000)),
        }
    }
    for block in (round % 5..24).step_by(5) {
        write(volume, "scattered", block * BLOCK, &text(60 + round as usize, BLOCK as usize));
    }
    write(volume, "secret", 100 * round, b"changed");
    let (old, new) = (format!("d1/moves {round}"), format!("d0/moves {}", round + 1));
    match round % 2 {
        0 => volume.write(&new, format!("round {round}")).unwrap(),
        _ => volume.rename(format!("d0/moves {round}"), format!("d1/moves {}", round + 1)).unwrap(),
    }
    if round % 4 == 2 {
        volume.remove_file(&old).unwrap();
    }
    let large = text(70 + round as usize, 5000 + 500 * round as usize);
    match round {
        3 => volume.rename("a/c/d", "b/c/d").unwrap(),
        4 => view.setxattr(no(volume, "b/g"), b"user.large", &large, SetXattrMode::Any).unwrap(),
        5 => volume.rename("b/c/d", "a/c/d").unwrap(),
        7 => volume.remove_file("d1/long link").unwrap(),
        _ => {}
    }
    if round == 2 || round == 8 {
        for i in 0..2 {
            volume.write("saved/letter", format!("saved {i} in round {round}")).unwrap();
            view.closed(no(volume, "saved/letter")).unwrap();
        }
        volume.rename("saved/letter", format!("saved/sent {round}")).unwrap();
    }
}

/// Changes of the many small files: each round has versions of more than half of them, and past names.
fn change_many(volume: &Volume, round: u64) {
    for i in 0..MANY {
        let (path, other) = (format!("many/{i}"), format!("many/{i} has another name"));
        let (path, other) = if volume.exists(&path).unwrap() { (path, other) } else { (other, path) };
        match (i + 3 * round) % 8 {
            0 | 1 => volume.rename(path, other).unwrap(),
            2 => {
                volume.remove_file(path).unwrap();
                volume.write(other, format!("new in round {round}")).unwrap();
            }
            3..=5 => {
                let mut file = OpenOptions::new().append(true).open(volume, path).unwrap();
                std::io::Write::write_all(&mut file, b"+").unwrap();
            }
            _ => {}
        }
    }
}

// ---- what is seen ----

/// Describes a tree; lines of what is in `many` become a count and a hash.
fn described(whole: &str) -> String {
    let (mut out, mut many) = (String::new(), Vec::new());
    for line in whole.lines().chain([""]) {
        if line.starts_with("  \"/many/") {
            many.push(line);
            continue;
        }
        if !many.is_empty() {
            writeln!(out, "  \"/many\" has {}: {}", many.len(), short(many.join("\n").as_bytes())).unwrap();
            many.clear();
        }
        if !line.is_empty() {
            writeln!(out, "{line}").unwrap();
        }
    }
    out
}

/// Describes events up to this one, and what each has seen.
fn past(view: &View, last: EventNo) -> String {
    let mut out = String::new();
    for event in view.events().unwrap().iter().filter(|event| event.number <= last) {
        event::event(view, event, &mut out);
    }
    described(&out)
}

fn last_of(view: &View) -> EventNo {
    view.events().unwrap().last().unwrap().number
}

fn seen(view: &View) -> String {
    let mut out = past(view, last_of(view));
    let mut present = "present\n".to_string();
    tree(view, view.root(), "", &mut present);
    out += &described(&present);
    out
}

#[test]
fn old_trees_are_read() {
    for (image, text) in [PAST, SAMPLE] {
        same(&seen(&read_only(&unpack(image))), text);
    }
}

/// The test goes on using the volumes. What was recorded in old trees is seen as before beside annals,
/// whatever changes; events of it are forgotten one by one, and the others stay; and when all are, nothing is
/// left.
#[test]
fn old_trees_are_taken_on() {
    for (image, text) in [PAST, SAMPLE] {
        let device = Arc::new(unpack(image));
        let volume = Volume::open(device.clone(), &options()).unwrap();
        let view = volume.view();
        same(&seen(view), text);
        let last = last_of(view);
        let before = past(view, last);
        finish(view);
        same(&past(view, last), &before);
        volume.remove_dir_all("many").unwrap();
        for path in ["scattered", "few/a", "inline", "f0"] {
            if volume.exists(path).unwrap() {
                volume.write(path, "changed").unwrap();
            }
        }
        event(&volume, "/", "later");
        volume.write("new", "new").unwrap();
        if volume.exists("d0").unwrap() {
            volume.remove_dir_all("d0").unwrap();
            volume.rename("a", "renamed").unwrap();
        }
        same(&past(view, last), &before);
        volume.close().unwrap();
        same(&past(&read_only(&device), last), &before);

        let volume = Volume::open(device, &options()).unwrap();
        let view = volume.view();
        let of = |view: &View| -> Vec<(EventNo, String)> {
            let one = |event: &yore_fs::Event| {
                let mut out = String::new();
                tree_of(view, event, &mut out);
                (event.number, out)
            };
            view.events().unwrap().iter().map(one).collect()
        };
        let mut all = of(view);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        while !all.is_empty() {
            let (number, _) = all.remove(rng.random_range(0..all.len()));
            view.hold(number, false).unwrap();
            view.forget(&[number]).unwrap();
            finish(view);
            assert!(of(view) == all, "without event {number}");
        }
        let left = view.statfs().history_data_blocks + view.statfs().history_metadata_blocks;
        assert_eq!(left, 0);
        volume.close().unwrap();
    }
}

/// The recipe still makes a volume that looks the same.
#[test]
fn a_past_made_today_is_as_rich() {
    assert_eq!(gist(&seen(&read_only(&make())), &["event"]), gist(PAST.1, &["event"]));
}
