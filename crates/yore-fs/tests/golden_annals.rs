//! Promise: annals can be read for ever. `golden/volume-2.3-annals.blocks` is a volume as a program of the
//! first format with annals left it without closing it: rows of files, names and directories that ended, of
//! which the indexes have some; versions made when files were closed; a forgotten snapshot that took facts
//! out of rows; and the last change in the log alone. `golden/volume-2.3-annals.txt` describes what can be
//! seen of it. The test reads the image as it is, then indexes the rest, goes on recording, and gives
//! everything up.
//!
//! Neither file is ever made again. They were made by `cargo test -p yore-fs --test all
//! golden_annals::make_the_image -- --ignored`, which needs empty files there.

use crate::golden::blocks;
use crate::golden::seen;

use blocks::unpack;
use seen::{gist, left_open, make_files, no, options, read_only, same, text, tree, tree_of, write};
use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::Arc;
use yore_device::MemoryDevice;
use yore_fs::{EventNo, MkfsOptions, NewSnapshot, Policy, SetXattrMode, Versioning, View, Volume};

const IMAGE: &[u8] = include_bytes!("golden/volume-2.3-annals.blocks");
const SEEN: &str = include_str!("golden/volume-2.3-annals.txt");

fn snapshot(volume: &Volume, name: &str) -> EventNo {
    let root = volume.view().root();
    volume.view().take_snapshot(root, &NewSnapshot::named(name)).unwrap().number
}

fn forget(view: &View, events: &[EventNo]) {
    view.forget(events).unwrap();
    view.finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
}

fn make() -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(32 << 20));
    let mkfs = MkfsOptions { uuid: *b"golden, annals!!", label: "Yore 2.3".into(), ..MkfsOptions::default() };
    Volume::create(device.clone(), &mkfs).unwrap().close().unwrap();
    let volume = Volume::open(device.clone(), &options()).unwrap();
    let view = volume.view();
    for path in ["d", "d/sub", "closed"] {
        volume.create_dir(path).unwrap();
    }
    for i in 0..60 {
        volume.write(format!("d/file {i}"), format!("content {i}")).unwrap();
    }
    volume.write("d/large", text(1, 60_000)).unwrap();
    volume.hard_link("d/file 1", "d/sub/second name").unwrap();
    volume.symlink("large", "d/link").unwrap();
    view.setxattr(no(&volume, "d/file 2"), b"user.a", b"first", SetXattrMode::Any).unwrap();
    snapshot(&volume, "first");
    // Rows of both facts, of a version, of a name, of directories.
    for i in 0..20 {
        volume.remove_file(format!("d/file {i}")).unwrap();
    }
    for i in 20..30 {
        volume.rename(format!("d/file {i}"), format!("d/sub/moved {i}")).unwrap();
    }
    write(&volume, "d/large", 20_000, &text(2, 9_000));
    let between = snapshot(&volume, "between");
    for i in 30..40 {
        volume.rename(format!("d/file {i}"), format!("d/named {i}")).unwrap();
    }
    volume.truncate("d/large", 30_000).unwrap();
    view.index_history(50).unwrap();
    snapshot(&volume, "second");
    for i in 30..35 {
        volume.remove_file(format!("d/named {i}")).unwrap();
    }
    volume.remove_file("d/link").unwrap();
    // Some facts that only the forgotten snapshot has seen go, out of rows with keys and without.
    forget(view, &[between]);
    let close = Policy { versioning: Some(Versioning::Close), ..Policy::default() };
    view.set_policy(no(&volume, "closed"), &close).unwrap();
    for i in 0..4 {
        volume.write("closed/letter", format!("saved {i}")).unwrap();
        view.closed(no(&volume, "closed/letter")).unwrap();
    }
    view.index_history(30).unwrap();
    volume.rename("closed/letter", "closed/sent").unwrap();
    snapshot(&volume, "third");
    view.sync().unwrap();
    volume.write("d/file 50", "in the log").unwrap();
    view.fsync(no(&volume, "d/file 50"), false).unwrap();
    left_open(&device, volume)
}

#[test]
#[ignore = "makes the image where there is none"]
fn make_the_image() {
    make_files("2.3-annals", (IMAGE, SEEN), 0, make, described);
}

fn past(view: &View, events: &[EventNo]) -> String {
    let mut out = String::new();
    for event in view.events().unwrap().iter().filter(|event| events.contains(&event.number)) {
        writeln!(
            out,
            "event {} {:?} {:?} of {}",
            event.number, event.row.kind, event.row.name, event.row.root
        )
        .unwrap();
        tree_of(view, event, &mut out);
    }
    out
}

fn numbers(view: &View) -> Vec<EventNo> {
    view.events().unwrap().iter().map(|event| event.number).collect()
}

fn described(view: &View) -> String {
    let mut out = past(view, &numbers(view));
    out += "present\n";
    tree(view, view.root(), "", &mut out);
    out
}

#[test]
fn annals_are_read() {
    same(&described(&read_only(&unpack(IMAGE))), SEEN);
}

#[test]
fn annals_are_taken_on() {
    let device = Arc::new(unpack(IMAGE));
    let volume = Volume::open(device.clone(), &options()).unwrap();
    let view = volume.view();
    same(&described(view), SEEN);
    let events = numbers(view);
    let before = past(view, &events);
    view.index_history(10).unwrap();
    same(&past(view, &events), &before);
    volume.remove_dir_all("d").unwrap();
    volume.write("new", "new").unwrap();
    snapshot(&volume, "later");
    volume.rename("closed", "kept").unwrap();
    same(&past(view, &events), &before);
    volume.close().unwrap();
    same(&past(&read_only(&device), &events), &before);

    let view = View::open(device, &options()).unwrap();
    forget(&view, &events[..events.len() / 2]);
    let left = &events[events.len() / 2..];
    assert!(past(&view, left).lines().count() > 40);
    forget(&view, &numbers(&view));
    let left = view.statfs().history_data_blocks + view.statfs().history_metadata_blocks;
    assert_eq!((view.events().unwrap().len(), left), (0, 0));
    view.close().unwrap();
}

#[test]
fn an_image_made_today_is_as_rich() {
    let starts = ["event", "  \"/"];
    assert_eq!(gist(&described(&read_only(&make())), &starts), gist(SEEN, &starts));
}
