//! The order of changes, proved without an engine (docs/EDGES.md, "The judge").
//!
//! `EDGE_STATES=n` judges n states of each sequence, `EDGE_SEED=n` other ones.

use std::sync::Arc;
use yore_crash::edges::{demanded, record, sequences};
use yore_crash::volume::{make, used_device, NEVER};
use yore_device::Device;
use yore_fs::{Engine, MountOptions, NewSnapshot, OpenOptions, Volume};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Every state that an ordered engine may leave is sound but for what such an engine may leave.
#[test]
fn every_closed_set_of_changes_is_a_sound_volume() {
    let (states, seed) = (number("EDGE_STATES").unwrap_or(100) as usize, number("EDGE_SEED").unwrap_or(1));
    let mut wrong = Vec::new();
    for name in sequences() {
        let recorded = record(name).unwrap_or_else(|wrong| panic!("{name}: {}", wrong.message));
        match recorded.judge(states, seed) {
            Ok(judged) => println!("{name}: {} changes, {judged} states", recorded.changes()),
            Err(error) => wrong.push(error.message),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Without one kind of edges some state is wrong.
#[test]
fn every_kind_of_edge_is_missed() {
    let mut left: Vec<_> = demanded().collect();
    for name in sequences() {
        let mut recorded = record(name).unwrap_or_else(|wrong| panic!("{name}: {}", wrong.message));
        left.retain(|kind| !recorded.misses(*kind, 12));
    }
    assert!(left.is_empty(), "nobody misses these kinds of edges: {left:?}");
}

/// How many edges so many calls make.
fn edges_of(calls: usize, prepare: &dyn Fn(&Volume), call: &dyn Fn(&Volume, usize)) -> usize {
    let device: Arc<dyn Device> = Arc::new(used_device());
    make(&device, Engine::Snapshot, 1).unwrap_or_else(|wrong| panic!("{}", wrong.message));
    let options = MountOptions {
        engine: Some(Engine::None),
        commit_interval: NEVER,
        access_times: false,
        defragment_after: None,
        ..MountOptions::default()
    };
    let volume = Volume::open(device, &options).unwrap();
    prepare(&volume);
    volume.view().record_order().unwrap();
    (0..calls).for_each(|number| call(&volume, number));
    volume.view().recorded_order().unwrap().edges.len()
}

/// Edges grew with the square of the calls of a generation. They grow with the calls.
#[test]
fn edges_grow_with_the_calls() {
    const CALLS: usize = 200;
    let write = |volume: &Volume, block: usize| {
        let file = OpenOptions::new().write(true).open(volume, "f").unwrap();
        file.write_at(&[block as u8; 4096], block as u64 * 8192).unwrap();
        file.sync_data().unwrap();
    };
    let names = |volume: &Volume| {
        volume.write("f", "").unwrap();
        volume.create_dir("d").unwrap();
    };
    let large = |volume: &Volume| {
        volume.write("f", "").unwrap();
        (0..2 * CALLS).for_each(|block| write(volume, block));
        volume.sync().unwrap();
        let view = volume.view();
        view.take_snapshot(view.root(), &NewSnapshot::named("one")).unwrap();
    };
    let swap = |volume: &Volume, name: &str, number: usize| {
        let other = format!("{name}2");
        let (from, to) = if number.is_multiple_of(2) { (name, &*other) } else { (&*other, name) };
        volume.rename(from, to).unwrap();
    };
    let rename_file = |volume: &Volume, number: usize| swap(volume, "f", number);
    let rename_directory = |volume: &Volume, number: usize| swap(volume, "d", number);
    let link = |volume: &Volume, _: usize| {
        volume.hard_link("f", "d/l").unwrap();
        volume.remove_file("d/l").unwrap();
    };
    // Each block once, here and there.
    let overwrite = |volume: &Volume, number: usize| write(volume, number * 7 % (2 * CALLS));
    type Prepare<'a> = &'a dyn Fn(&Volume);
    type Call<'a> = &'a dyn Fn(&Volume, usize);
    let works: [(&str, Prepare<'_>, Call<'_>); 4] = [
        ("a file gets other names", &names, &rename_file),
        ("a directory gets other names", &names, &rename_directory),
        ("a name comes and goes", &names, &link),
        ("a file that a snapshot has is written over", &large, &overwrite),
    ];
    for (name, prepare, call) in works {
        let (few, many) = (edges_of(CALLS, prepare, call), edges_of(2 * CALLS, prepare, call));
        assert!(few > CALLS && many < 3 * few, "{name}: {few} edges, and {many} of twice as many calls");
    }
}
