//! Promises about sums that are made ahead of the first question, and kept over a mount.

use super::{is_known, make_ahead, seen, Patience};
use crate::EventUsage;
use crate::{MkfsOptions, MountOptions, NewSnapshot, Volume};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use yore_device::BLOCK_SIZE;
use yore_device::{Device, MemoryDevice};
use yore_format::{EventNo, HintPlace, InodeNo};

const FILES: usize = 200;

fn name(i: usize) -> String {
    format!("file{i}")
}

/// A volume that was just opened, with more versions than a step looks at, and its two events.
fn opened() -> (Volume, [EventNo; 2]) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    Volume::create(device.clone(), &MkfsOptions::default()).unwrap().close().unwrap();
    let options = MountOptions { commit_interval: Duration::from_secs(3600), ..MountOptions::default() };
    let volume = Volume::open(device.clone(), &options).unwrap();
    let events = ["one", "two"].map(|content| {
        (0..FILES).for_each(|i| drop(volume.write(name(i), content.repeat(3000))));
        volume.sync().unwrap();
        let view = volume.view();
        view.take_snapshot(view.root(), &NewSnapshot::named(content)).unwrap().number
    });
    (0..FILES).for_each(|i| volume.write(name(i), "three").unwrap());
    volume.close().unwrap();
    (Volume::open(device, &options).unwrap(), events)
}

fn step(volume: &Volume) -> bool {
    make_ahead(volume.view().store(), Duration::ZERO).unwrap()
}

/// Whoever asks first gets what was found out ahead, whatever happened since it was begun.
#[test]
fn the_first_question_needs_no_walk() {
    let (volume, [first, _]) = opened();
    let store = volume.view().store().clone();
    assert!(step(&volume) && !is_known(&store), "there is more than one step");
    // What a walk is on its way to is noted, or found.
    (0..FILES).step_by(3).for_each(|i| volume.remove_file(name(i)).unwrap());
    while step(&volume) {}
    assert!(is_known(&store));
    let known = seen(&store, Patience::None).unwrap().expect("nobody waits for a walk");
    let space = store.past.space();
    assert_eq!(known.freed(|_| true).data, space.data);
    let before = known.freed(|event| event == first).data;
    volume.view().forget(&[first]).unwrap();
    volume.view().finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(space.data - store.past.space().data, before);
    assert!(is_known(&store), "what is forgotten changes no sum");
}

/// A question goes on with what was begun, to the end.
#[test]
fn a_question_goes_on_with_what_was_begun() {
    let (volume, _) = opened();
    let store = volume.view().store().clone();
    assert!(step(&volume));
    assert!(seen(&store, Patience::None).unwrap().is_none(), "half of the sums is no answer");
    let known = seen(&store, Patience::Walk).unwrap().expect("a walk has an answer");
    assert_eq!(known.freed(|_| true).data, store.past.space().data);
    assert_eq!(known.kept.of(InodeNo::ROOT).len(), 2);
}

/// What is given up while sums are being made ends them, and they are made anew.
#[test]
fn what_is_given_up_meanwhile_ends_what_was_begun() {
    let (volume, [first, _]) = opened();
    let store = volume.view().store().clone();
    assert!(step(&volume));
    volume.view().forget(&[first]).unwrap();
    volume.view().finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
    assert!(!step(&volume) && !is_known(&store), "what was begun comes to nothing");
    while step(&volume) {}
    let known = seen(&store, Patience::None).unwrap().expect("it was made anew");
    assert_eq!(known.freed(|_| true).data, store.past.space().data);
}

fn options() -> MountOptions {
    MountOptions { commit_interval: Duration::from_secs(3600), ..MountOptions::default() }
}

/// A device with a volume of which somebody has asked what snapshots hold, and which was closed then.
fn closed_with_hint() -> (Arc<MemoryDevice>, [EventNo; 2]) {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    Volume::create(device.clone(), &MkfsOptions::default()).unwrap().close().unwrap();
    let volume = Volume::open(device.clone(), &options()).unwrap();
    let events = ["one", "two"].map(|content| {
        (0..FILES).for_each(|i| drop(volume.write(name(i), content.repeat(3000))));
        volume.sync().unwrap();
        volume.view().take_snapshot(volume.view().root(), &NewSnapshot::named(content)).unwrap().number
    });
    (0..FILES).for_each(|i| volume.write(name(i), "three").unwrap());
    volume.sync().unwrap();
    usage(&volume);
    // What changes behind the question is in the hint, too.
    (0..FILES).step_by(2).for_each(|i| volume.remove_file(name(i)).unwrap());
    volume.close().unwrap();
    (device, events)
}

fn open(device: &Arc<MemoryDevice>) -> Volume {
    Volume::open(device.clone(), &options()).unwrap()
}

fn usage(volume: &Volume) -> Vec<EventUsage> {
    let mut all = Vec::new();
    let each = &mut |event| {
        all.push(event);
        ControlFlow::Continue(())
    };
    volume.view().usage(volume.view().root(), each).unwrap();
    all
}

fn by_walk(volume: &Volume) -> Vec<EventUsage> {
    volume.view().find_usage_by_walk(true);
    let all = usage(volume);
    volume.view().find_usage_by_walk(false);
    all
}

/// Whether the volume knows as soon as it is open. What it knows must be right.
fn knows(device: &Arc<MemoryDevice>) -> bool {
    let volume = open(device);
    let knows = volume.view().knows_usage();
    assert_eq!(usage(&volume), by_walk(&volume));
    // No new hint is written.
    volume.view().store().meta.close().unwrap();
    drop(volume.close());
    knows
}

fn place(device: &Arc<MemoryDevice>) -> HintPlace {
    let options = MountOptions { read_only: true, ..options() };
    let volume = Volume::open(device.clone(), &options).unwrap();
    let place = volume.view().store().past.hint().expect("there is a hint");
    volume.close().unwrap();
    place
}

/// Changes the bytes of the hint.
fn on_hint(device: &Arc<MemoryDevice>, change: impl FnOnce(&mut [u8])) {
    let place = place(device);
    let mut bytes = vec![0; usize::from(place.blocks) * BLOCK_SIZE];
    device.read_at(place.start.0 * BLOCK_SIZE as u64, &mut bytes).unwrap();
    change(&mut bytes);
    device.write_at(place.start.0 * BLOCK_SIZE as u64, &bytes).unwrap();
}

/// What is known when a volume is closed is known when it is opened, for writing or not; and each mount that
/// follows adds what happens in it.
#[test]
fn what_is_known_stays_known_over_mounts() {
    let (device, [first, _]) = closed_with_hint();
    let read_only = MountOptions { read_only: true, ..options() };
    let volume = Volume::open(device.clone(), &read_only).unwrap();
    assert!(volume.view().knows_usage());
    assert_eq!(usage(&volume), by_walk(&volume));
    volume.close().unwrap();
    for round in 0..4 {
        let volume = open(&device);
        assert!(volume.view().knows_usage(), "round {round}");
        match round {
            0 => (1..FILES).step_by(4).for_each(|i| volume.truncate(name(i), 0).unwrap()),
            1 => {
                volume.view().forget(&[first]).unwrap();
                volume.view().finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
            }
            2 => drop(volume.view().take_snapshot(volume.view().root(), &NewSnapshot::default()).unwrap()),
            _ => (3..FILES).step_by(4).for_each(|i| volume.remove_file(name(i)).unwrap()),
        }
        assert_eq!(usage(&volume), by_walk(&volume), "round {round}");
        assert_eq!(volume.view().refuted_usage(), 0);
        volume.close().unwrap();
    }
}

/// A hint that is damaged, or another volume's, is a walk for whoever asks first, and nothing else.
#[test]
fn a_hint_that_cannot_be_is_not_believed() {
    let (device, _) = closed_with_hint();
    assert!(knows(&Arc::new(device.snapshot())));
    for at in [0, 9, 14, 17, 33, 41, 49, 57, 61, 65, 80] {
        let device = Arc::new(device.snapshot());
        on_hint(&device, |bytes| bytes[at] ^= 0x10);
        assert!(!knows(&device), "byte {at}");
    }
    let other = closed_with_hint().0;
    let (from, to) = (place(&other), place(&device));
    assert_eq!(from.blocks, to.blocks);
    let mut bytes = vec![0; usize::from(from.blocks) * BLOCK_SIZE];
    other.read_at(from.start.0 * BLOCK_SIZE as u64, &mut bytes).unwrap();
    on_hint(&device, |hint| hint.copy_from_slice(&bytes));
    assert!(!knows(&device));
}

/// A hint is of the close that wrote it, whatever has happened since: a crash, or a mount by a program that
/// keeps where the hint is, and writes none.
#[test]
fn a_hint_of_another_close_is_not_believed() {
    let (device, _) = closed_with_hint();
    let written = place(&device);
    let crashed = {
        let volume = open(&device);
        (0..FILES).step_by(3).for_each(|i| drop(volume.remove_file(name(i))));
        volume.sync().unwrap();
        let crashed = Arc::new(device.snapshot());
        // As a program that does not know hints closes a volume. Nothing can be written behind it.
        volume.view().store().meta.close().unwrap();
        drop(volume.close());
        crashed
    };
    for device in [crashed, device] {
        assert_eq!(place(&device), written, "the hint itself is where it was");
        assert!(!knows(&device));
        // Whoever closes a volume without sums says that there is no hint.
        open(&device).close().unwrap();
        let volume = open(&device);
        assert_eq!(volume.view().store().past.hint(), None);
        volume.close().unwrap();
    }
}

/// A full volume has no room for a hint, closes all the same, and finds out again.
#[test]
fn a_full_volume_has_no_hint() {
    let (device, _) = closed_with_hint();
    let volume = open(&device);
    let store = volume.view().store().clone();
    while store.alloc.take_beside(&store.meta, yore_format::BlockNo(0), 1).unwrap().is_some() {}
    assert!(volume.view().knows_usage());
    volume.close().unwrap();
    let volume = open(&device);
    assert!(!volume.view().knows_usage() && volume.view().store().past.hint().is_none());
    assert_eq!(usage(&volume), by_walk(&volume));
    volume.close().unwrap();
    assert!(knows(&device));
}
