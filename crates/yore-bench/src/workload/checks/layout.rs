//! What it gives and costs to keep metadata together: the experiments of the paper on ffsck and rext3 (its
//! figures 12 to 18), on the simulated disk of 7,200 turns, on a volume as it is and on one whose blocks of
//! metadata lie anywhere (`simulated/scattered`). Data lies in the same places on both.
//!
//! Files that are read at random or in strides have a hole behind each block, and so an extent for each: that
//! is as much metadata for a byte as ext3's indirect blocks are, and more. A whole file has hardly any.

use super::run::{Found, Run};
use crate::report::{Cell, Column, Row, Table, Unit};
use crate::simulated::{Usage, DISKS};
use crate::workload::computed::{seconds, Computed};
use crate::workload::lines::{Goal, Line};
use crate::workload::mechanism::Mechanism;
use crate::workload::papers::{Experiment, Scale};
use crate::workload::postmark::PostMark;
use crate::workload::script::{Action, Calls as _, Per, Phase, Script, ROOT};
use crate::Result;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use std::time::Duration;
use yore_fs::{Durability, Engine};

/// One of the paper's experiments.
struct Figure {
    name: &'static str,
    script: Script,
}

const BLOCK: u64 = 4096;
const VOLUME_BYTES: u64 = 32 << 30;

pub(super) fn measure(run: &Run<'_>) -> Result<Found> {
    let scale = Scale { share: run.checks.layout, news: 0 };
    let mut found = Found::default();
    // Each round has other random places, and the same on both volumes.
    let rounds: Vec<Vec<Figure>> = (0..run.options.rounds as u64)
        .map(|round| figures(&scale, run.checks.seed + round))
        .collect::<Result<_>>()?;
    for (which, Figure { name, script }) in rounds.first().into_iter().flatten().enumerate() {
        let phases: Vec<&Phase> = script.phases.iter().filter(|phase| phase.table.is_some()).collect();
        let mut costs = [false, true].map(|_| vec![Vec::new(); phases.len()]);
        for round in run.rounds() {
            let round = round?;
            for (scattered, costs) in costs.iter_mut().enumerate() {
                let usages = on(&rounds[round][which].script, scattered == 1)?;
                costs.iter_mut().zip(usages).for_each(|(all, usage)| all.push(usage));
            }
        }
        for (i, phase) in phases.iter().enumerate() {
            let unit = match phase.per {
                Per::Operations(_) => Unit::PerSecond,
                Per::Bytes(_) => Unit::BytesPerSecond,
            };
            let name = format!("{name}, {}, metadata together / scattered", phase.column);
            let mut line = Line::new(name, unit, Goal::None);
            line.samples =
                [0, 1].map(|side| costs[side][i].iter().map(|usage| phase.rate(seconds(usage))).collect());
            found.lines.push(line);
        }
        found.tables.push(seeks(name, &phases, &costs));
    }
    Ok(found)
}

/// The cost of each phase that is measured.
fn on(script: &Script, scattered: bool) -> Result<Vec<Usage>> {
    let call = Duration::from_micros(10);
    let computed = Computed { call, bytes: VOLUME_BYTES, caches: None, scattered };
    Ok(computed.run(script, Mechanism::new(Engine::Snapshot, Durability::Async), 0)?.phases)
}

/// How often the arm moved, where that is what differs.
fn seeks(name: &str, phases: &[&Phase], costs: &[Vec<Vec<Usage>>; 2]) -> Table {
    let cell = |usages: &Vec<Usage>| Cell::new(usages.iter().map(|usage| usage.seeks as f64).collect());
    let row = |(target, costs): (&str, &Vec<Vec<Usage>>)| Row {
        target: target.into(),
        cells: costs.iter().map(cell).collect(),
    };
    Table {
        title: format!("Seeks of the {}: {name}", DISKS[0]),
        columns: phases.iter().map(|phase| Column::count(phase.column.clone())).collect(),
        rows: ["together", "scattered"].into_iter().zip(costs).map(row).collect(),
    }
}

fn figures(scale: &Scale, seed: u64) -> Result<Vec<Figure>> {
    let postmark = PostMark {
        transactions: scale.of(2000, 100),
        files: scale.of(500, 50),
        directories: 50,
        smallest: 4 << 10,
        largest: 4 << 20,
        block_bytes: 64 << 10,
        seed,
        ..PostMark::default()
    };
    let mut figures = vec![
        Figure { name: "sequential read (figure 12)", script: in_sequence(scale, true) },
        Figure { name: "sequential write (figure 13)", script: in_sequence(scale, false) },
        Figure { name: "random read (figure 14)", script: at_random(scale, seed) },
        Figure { name: "strided read (figures 15 and 16)", script: in_strides(scale, seed) },
        Figure { name: "PostMark (figure 17)", script: postmark.script() },
    ];
    for (name, experiment) in [
        ("fileserver (figure 18)", Experiment::Fileserver),
        ("webserver (figure 18)", Experiment::Webserver),
        ("varmail (figure 18)", Experiment::Varmail),
    ] {
        figures.push(Figure { name, script: experiment.script(scale)? });
    }
    Ok(figures)
}

/// Files of one size after the other, written, or read with cold caches.
fn in_sequence(scale: &Scale, reads: bool) -> Script {
    let mut script = Script::default();
    let total = scale.of(256 << 20, 1 << 20) as u64;
    for (name, bytes) in [
        ("12 KiB", 12 << 10),
        ("100 KiB", 100 << 10),
        ("1 MiB", 1 << 20),
        ("10 MiB", 10 << 20),
        ("100 MiB", 100 << 20),
        ("1 GiB", 1 << 30),
    ] {
        let bytes = scale.of(bytes, (bytes).min(1 << 20)) as u64;
        let count = (total / bytes).clamp(1, 2000);
        let directory = script.directory(ROOT, name);
        script.prepare(vec![Action::MakeDirectory(directory)]);
        let files: Vec<u32> = (0..count).map(|i| script.file(directory, format!("f{i}"))).collect();
        let mut write = Vec::new();
        files.iter().for_each(|file| write.make(*file, bytes));
        let mut read = Vec::new();
        files.iter().for_each(|file| read.read_whole(*file, bytes));
        let per = Per::Bytes(bytes * count);
        if reads {
            script.prepare(write);
            script.measure("", name, per, read);
            script.cold();
        } else {
            script.measure("", name, per, write);
        }
    }
    script
}

/// Adds a file of so many blocks with a hole behind each. Returns it.
fn with_holes(script: &mut Script, blocks: u64) -> u32 {
    let file = script.file(ROOT, "with-holes");
    let mut write = vec![Action::Create(file)];
    write.extend((0..blocks).map(|i| Action::Write { file, at: 2 * i * BLOCK, bytes: BLOCK as u32 }));
    write.push(Action::Close(file));
    script.prepare(write);
    file
}

/// So many blocks at random places, with cold caches.
fn at_random(scale: &Scale, seed: u64) -> Script {
    let mut script = Script::default();
    let blocks = scale.of((2 << 30) / BLOCK as usize / 2, 2048) as u64;
    let file = with_holes(&mut script, blocks);
    let mut random = StdRng::seed_from_u64(seed);
    for count in [128, 256, 512, 1024, 2048, 4096] {
        let mut read = vec![Action::Open(file)];
        read.extend((0..count).map(|_| {
            let at = 2 * random.random_range(0..blocks) * BLOCK;
            Action::Read { file, at, bytes: BLOCK as u32 }
        }));
        read.push(Action::Close(file));
        script.measure("", format!("{count} reads"), Per::Bytes(count * BLOCK), read);
        script.cold();
    }
    script
}

/// One block of each 4 MiB, which ext3 has an indirect block for, in ascending order.
fn in_strides(scale: &Scale, seed: u64) -> Script {
    let mut script = Script::default();
    let blocks = scale.of((2 << 30) / BLOCK as usize / 2, 2048) as u64;
    let file = with_holes(&mut script, blocks);
    let mut random = StdRng::seed_from_u64(seed);
    let stride = 512;
    let mut read = vec![Action::Open(file)];
    let strides = blocks.div_ceil(stride);
    for first in (0..blocks).step_by(stride as usize) {
        let block = random.random_range(first..(first + stride).min(blocks));
        read.push(Action::Read { file, at: 2 * block * BLOCK, bytes: BLOCK as u32 });
    }
    read.push(Action::Close(file));
    script.measure("", "a block of each 4 MiB", Per::Bytes(strides * BLOCK), read);
    script.cold();
    script
}
