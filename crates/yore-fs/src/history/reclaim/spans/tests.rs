//! Promises about sums that are made ahead of the first question.

use super::{is_known, make_ahead, seen, Patience};
use crate::{MkfsOptions, MountOptions, NewSnapshot, Volume};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use yore_device::{Device, MemoryDevice};
use yore_format::{EventNo, InodeNo};

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
