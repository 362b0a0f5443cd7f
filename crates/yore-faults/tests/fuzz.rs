//! Promises: the fuzzers' targets end without a panic on the committed corpus, and on mutations of it that a
//! short loop derives from a seed. `YORE_SEED=n` and `YORE_ROUNDS=n` produce others; the campaign is
//! `make campaign-fuzz BUDGET=600`.
//!
//! `cargo test -p yore-faults --test fuzz -- --ignored make_the_corpus` creates the corpus if there is none.

use std::path::{Path, PathBuf};
use yore_device::Device;
use yore_faults::targets::TARGETS;
use yore_faults::watch::{Counting, Watch};
use yore_faults::{sample, survey, Chance};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MEMORY: usize = 96 << 20;

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(corpus(target)).expect("the corpus is part of the source");
    let mut seeds: Vec<_> = entries
        .map(|entry| {
            let path = entry.unwrap().path();
            (path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(path).unwrap())
        })
        .collect();
    seeds.sort();
    assert!(!seeds.is_empty());
    seeds
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

fn mutate(chance: &mut Chance<'_>, bytes: &mut Vec<u8>, others: &[(String, Vec<u8>)]) {
    for _ in 0..1 + chance.below(6) {
        let at = chance.below(bytes.len().max(1));
        match chance.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at.min(bytes.len()), chance.number() as u8),
            2 => {
                let other = &chance.pick(others).1;
                let from = chance.below(other.len().max(1)).min(other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = match chance.below(3) {
                        0 => byte.wrapping_add(1),
                        1 => *byte ^ 1 << chance.below(8),
                        _ => chance.number() as u8,
                    };
                }
            }
        }
    }
    bytes.truncate(8192);
}

#[test]
fn targets_on_the_corpus_and_near_it() {
    let seed = setting("YORE_SEED").unwrap_or(1);
    println!("YORE_SEED={seed}");
    for (name, target) in TARGETS {
        let mut watch = Watch::new(MEMORY);
        let seeds = seeds(name);
        // Samples are made once, and must not count as a case's memory.
        watch.case(format!("{name} on nothing"), || target(b""));
        for (file, bytes) in &seeds {
            watch.case(format!("{name} on {file}"), || target(bytes));
        }
        let usual = if name == "format" { 3000 } else { 200 };
        for round in 0..setting("YORE_ROUNDS").unwrap_or(usual) {
            let mut chance = Chance::seeded(seed << 32 | round);
            let mut bytes = chance.pick(&seeds).1.clone();
            mutate(&mut chance, &mut bytes, &seeds);
            watch.case(format!("{name}, seed {seed} round {round}"), || target(&bytes));
        }
        watch.finish();
    }
}

/// For `format` one block of each kind, from a sample volume and its log; for the others short strings of
/// decisions.
#[test]
#[ignore = "writes the committed corpus: to be run when the format changes (docs/TESTING.md)"]
fn make_the_corpus() {
    let device = sample::with_intents().unwrap();
    let put = |target: &str, name: &str, bytes: &[u8]| {
        std::fs::create_dir_all(corpus(target)).unwrap();
        let path = corpus(target).join(name);
        if !path.exists() {
            std::fs::write(path, bytes).unwrap();
        }
    };
    let mut kinds = std::collections::BTreeSet::new();
    let mut sites = survey::sites(&device);
    sites.reverse();
    for site in sites {
        if kinds.insert(site.name()) {
            let block = survey::read(&device, site.block);
            let end = block.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
            put("format", &site.name().replace(' ', "-"), &block[..end]);
        }
    }
    if let Some(site) = yore_faults::damage::log_blocks(&device).get(1) {
        let mut block = vec![0; 4096];
        device.read_at(site.block.0 * 4096, &mut block).unwrap();
        put("format", "log-batch", &block);
        put("format", "intent-record", &block[104..]);
    }
    for n in 0..24u64 {
        let mut chance = Chance::seeded(n);
        let bytes: Vec<u8> = (0..12 + 2 * n).map(|_| chance.number() as u8).collect();
        put("mount", &format!("decisions-{n:02}"), &bytes);
        put("log", &format!("decisions-{n:02}"), &bytes);
    }
}
