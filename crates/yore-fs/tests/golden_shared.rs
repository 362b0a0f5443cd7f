//! Promise: blocks that several files share can be read for ever. `golden/volume-2.3-shared.blocks` is a
//! volume as a program of the first format with count tables left it without closing it: a file and its copy,
//! a part of it in a third file, a file that came back from a snapshot, and copies of which one side was
//! changed, the last only in the log. `golden/volume-2.3-shared.txt` describes what can be seen of it. The
//! test reads the image as it is, then uses it, changes what is shared, and gives everything up.
//!
//! Neither file is ever made again. They were made by `cargo test -p yore-fs --test all
//! golden_shared::make_the_image -- --ignored`, which needs empty files there.

use crate::golden::blocks;
use crate::golden::seen;

use blocks::unpack;
use seen::{gist, left_open, make_files, no, options, read_only, same, text, tree, tree_of, write};
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::Arc;
use yore_device::MemoryDevice;
use yore_fs::{EventNo, MkfsOptions, NewSnapshot, View, Volume};

const IMAGE: &[u8] = include_bytes!("golden/volume-2.3-shared.blocks");
const SEEN: &str = include_str!("golden/volume-2.3-shared.txt");
const BLOCK: u64 = 4096;

fn make() -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(32 << 20));
    let mkfs = MkfsOptions { uuid: *b"golden, shared!!", label: "Yore 2.3".into(), ..MkfsOptions::default() };
    Volume::create(device.clone(), &mkfs).unwrap().close().unwrap();
    let volume = Volume::open(device.clone(), &options()).unwrap();
    let view = volume.view();
    volume.write("original", text(1, 100_000)).unwrap();
    volume.write("gone", text(2, 50_000)).unwrap();
    view.sync().unwrap();
    volume.copy("original", "copy").unwrap();
    let event = view.take_snapshot(view.root(), &NewSnapshot { name: "before", ..NewSnapshot::default() });
    let event = event.unwrap().number;
    volume.remove_file("gone").unwrap();
    volume.copy("original", "changed").unwrap();
    write(&volume, "changed", 3 * BLOCK + 100, b"other bytes in the middle");
    volume.write("part", text(3, 30_000)).unwrap();
    view.copy_file_range(no(&volume, "original"), BLOCK, no(&volume, "part"), 4 * BLOCK, 10 * BLOCK).unwrap();
    volume.write("back", "").unwrap();
    let then = view.as_of(event);
    let was = then.lookup(then.root(), b"gone").unwrap().inode();
    view.copy_from(&then, (was, 0), (no(&volume, "back"), 0), (u64::MAX, 0)).unwrap();
    view.sync().unwrap();
    volume.remove_file("original").unwrap();
    write(&volume, "copy", 0, b"in the log alone");
    view.fsync(no(&volume, "copy"), false).unwrap();
    left_open(&device, volume)
}

#[test]
#[ignore = "makes the image where there is none"]
fn make_the_image() {
    make_files("2.3-shared", (IMAGE, SEEN), 0, make, described);
}

fn described(view: &View) -> String {
    let mut out = String::new();
    tree(view, view.root(), "", &mut out);
    for event in view.events().unwrap() {
        writeln!(out, "as of {}", event.number).unwrap();
        tree_of(view, &event, &mut out);
    }
    out
}

#[test]
fn what_is_shared_is_read() {
    let device = unpack(IMAGE);
    let view = read_only(&device);
    same(&described(&view), SEEN);
}

#[test]
fn what_is_shared_is_changed_and_given_up() {
    let device = Arc::new(unpack(IMAGE));
    let volume = Volume::open(device.clone(), &options()).unwrap();
    let before: Vec<_> = ["copy", "changed", "part", "back"].map(|name| volume.read(name).unwrap()).into();
    // Each file is changed by itself, and no other changes with it.
    for (i, name) in ["copy", "changed", "part", "back"].into_iter().enumerate() {
        write(&volume, name, 5 * BLOCK, &[i as u8 + 1; 5000]);
        volume.sync().unwrap();
    }
    for (i, name) in ["copy", "changed", "part", "back"].into_iter().enumerate() {
        let mut expected = before[i].clone();
        expected[5 * BLOCK as usize..][..5000].fill(i as u8 + 1);
        assert!(volume.read(name).unwrap() == expected, "{name}");
    }
    let events: Vec<EventNo> = volume.view().events().unwrap().iter().map(|event| event.number).collect();
    for name in ["copy", "changed", "part", "back"] {
        volume.remove_file(name).unwrap();
    }
    volume.view().forget(&events).unwrap();
    volume.view().finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
    volume.sync().unwrap();
    assert_eq!(volume.statfs().history_data_blocks, 0);
    let free = volume.statfs().blocks_free;
    volume.write("new", text(4, 20 << 20)).unwrap();
    volume.remove_file("new").unwrap();
    volume.sync().unwrap();
    assert_eq!(volume.statfs().blocks_free, free, "all blocks were free");
    volume.close().unwrap();
}

#[test]
fn an_image_made_today_is_as_rich() {
    let starts = ["  \"/", "as of"];
    assert_eq!(gist(&described(&read_only(&make())), &starts), gist(SEEN, &starts));
}
