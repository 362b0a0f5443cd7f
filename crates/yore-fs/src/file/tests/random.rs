//! Random runs on a file agree with a vector of bytes. They print their seed; to replay one, call
//! `random_run` with that seed alone.

use super::*;

fn check_seek(store: &Store, cell: &InodeCell, model: &[u8], rng: &mut Rng) {
    if model.is_empty() {
        return;
    }
    let at = rng.below(model.len() as u64);
    let data = match seek(store, cell, at, SeekTo::Data) {
        Ok(data) => data,
        Err(Error::NoDataThere) => model.len() as u64,
        Err(e) => panic!("{e}"),
    };
    assert!(model[at as usize..data as usize].iter().all(|b| *b == 0), "a hole at {at} with data in it");
    let hole = seek(store, cell, at, SeekTo::Hole).unwrap();
    assert!(hole >= at && hole <= model.len() as u64);
}

/// One step of a random run on the file and its model.
fn random_step(store: &Arc<Store>, cell: &Arc<InodeCell>, model: &mut Vec<u8>, rng: &mut Rng, most: u64) {
    let at = rng.below(most);
    let len = match rng.below(4) {
        0 => 1 + rng.below(200),
        1 => 4096 * (1 + rng.below(6)),
        _ => 1 + rng.below(30_000),
    };
    let at = if rng.below(3) == 0 { at / 4096 * 4096 } else { at };
    let end = (at + len) as usize;
    match rng.below(16) {
        0..=5 => {
            let byte = 1 + rng.below(255) as u8;
            let append = rng.below(6) == 0;
            let at = if append { model.len() as u64 } else { at };
            let end = (at + len) as usize;
            model.resize(model.len().max(end), 0);
            model[at as usize..end].fill(byte);
            let data = vec![byte; len as usize];
            assert_eq!(write(&**store, cell, at, &data, append, &mut touch).unwrap(), at);
        }
        6 => {
            let size = if rng.below(4) == 0 { rng.below(200) } else { at };
            model.resize(size as usize, 0);
            truncate(store, cell, size, &mut touch).unwrap();
        }
        7 => {
            let stop = end.min(model.len());
            if (at as usize) < stop {
                model[at as usize..stop].fill(0);
            }
            fallocate(&**store, cell, at, len, FallocateMode::PunchHole, &mut touch).unwrap();
        }
        8 => {
            let keep_size = rng.below(2) == 0;
            if !keep_size {
                model.resize(model.len().max(end), 0);
            }
            let stop = end.min(model.len());
            if (at as usize) < stop {
                model[at as usize..stop].fill(0);
            }
            fallocate(&**store, cell, at, len, FallocateMode::ZeroRange { keep_size }, &mut touch).unwrap();
        }
        9 => {
            let keep_size = rng.below(2) == 0;
            if !keep_size {
                model.resize(model.len().max(end), 0);
            }
            fallocate(&**store, cell, at, len, FallocateMode::Allocate { keep_size }, &mut touch).unwrap();
        }
        10 => flush_file(&**store, cell).unwrap(),
        11 => evict(store),
        12 => store.meta.sync().unwrap(),
        13 => check_seek(store, cell, model, rng),
        _ => {
            let mut buf = vec![0xee; len as usize];
            let n = read(store, cell, at, &mut buf).unwrap();
            let expected = model.get(at as usize..end.min(model.len())).unwrap_or(&[]);
            assert!(buf[..n] == *expected, "read of {len} bytes at {at} of {}", model.len());
        }
    }
    assert_eq!(cell.state.read().inode.size, model.len() as u64);
}

fn random_run(seed: u64, steps: u32, most: u64) {
    println!("random_run({seed:#x}, {steps}, {most})");
    let mut rng = Rng(seed);
    let device = make(96 * MIB);
    let mut store = open(&device, MIB);
    let free = store.alloc.free_blocks();
    let mut file = new_file(&store, "f");
    let mut model = Vec::new();
    for step in 0..steps {
        random_step(&store, &file.cell, &mut model, &mut rng, most);
        if step % 25 == 24 {
            assert!(contents(&store, &file.cell) == model, "seed {seed:#x}, step {step}");
        }
        if rng.below(120) == 0 {
            // A remount forgets everything in memory.
            let no = file.cell.no;
            drop(file);
            store.close().unwrap();
            drop(store);
            store = open(&device, MIB);
            let cell = store.cell(no).unwrap();
            let attr = cell.state.read().attr(no);
            file = InUse::new(&store, cell, attr);
        }
    }
    flush_file(&*store, &file.cell).unwrap();
    evict(&store);
    assert!(contents(&store, &file.cell) == model, "seed {seed:#x} at the end");
    check_counts(&store);
    truncate(&store, &file.cell, 0, &mut touch).unwrap();
    assert_eq!(file.cell.state.read().inode.blocks, 0, "seed {seed:#x}");
    store.meta.sync().unwrap();
    assert_eq!(store.alloc.free_blocks(), free, "seed {seed:#x}");
    drop(file);
    store.close().unwrap();
}

/// Files under random writes, truncations, punches, allocations, evictions and remounts agree with a vector
/// of bytes.
#[test]
fn agrees_with_a_vector() {
    for seed in 1..=6 {
        random_run(seed * 0x9e37_79b9, 400, 300_000);
    }
    for seed in 1..=4 {
        random_run(seed * 0x51_7cc1, 250, 3_000);
    }
    random_run(77, 400, 6_000_000);
}

/// The same for an hour.
#[test]
#[ignore = "long"]
fn agrees_with_a_vector_for_long() {
    for seed in 1..=150 {
        random_run(seed * 0x1234_5677, 500, 400_000);
        random_run(seed * 0x2345_6789, 200, 2_000);
        random_run(seed * 0x3456_789b, 500, 12_000_000);
    }
}
