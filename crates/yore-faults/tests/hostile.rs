//! Promises (R15): a volume with any metadata block changed in any field, or filled with noise, and all
//! checksums right, can be opened, walked, read, written, emptied, closed and checked with typed errors: no
//! panic in any thread, no hang, no memory beyond a bound.
//!
//! The tests run every n-th case; `YORE_HOSTILE=1` runs all, `YORE_SEED=n` others. A failure prints the case,
//! and `YORE_CASE=text` runs only the cases whose name contains the text.

use yore_device::MemoryDevice;
use yore_faults::watch::{Counting, Watch};
use yore_faults::{damage, exercise, mend, sample, survey, Chance};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The kinds of blocks that hold history in old trees.
const PAST: [&str; 7] = [
    "events node",
    "event index node",
    "version node",
    "past name node",
    "change node",
    "policy node",
    "roots of the history",
];

/// The kinds that come with annals.
const ANNALS: [&str; 3] = ["annals node", "inode index node", "name index node"];

/// Memory limit of one case: the smallest caches are 4 MiB and 1 MiB, and the device is memory too.
const MEMORY: usize = 96 << 20;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

/// Every how many cases one is run.
fn stride(usual: usize) -> usize {
    let named = std::env::var("YORE_CASE").is_ok();
    setting("YORE_HOSTILE").map_or(if named { 1 } else { usual }, |every| every.max(1) as usize)
}

fn seed() -> u64 {
    let seed = setting("YORE_SEED").unwrap_or(1);
    println!("YORE_SEED={seed}");
    seed
}

fn is_wanted(name: &str) -> bool {
    std::env::var("YORE_CASE").map_or(true, |wanted| name.contains(&wanted))
}

/// The samples are sound, and have the content that they are for.
#[test]
fn samples_are_sound() {
    let mut watch = Watch::new(256 << 20);
    watch.case("small", || {
        let device = sample::small().unwrap();
        assert!(exercise::is_sound(&device));
        let seen = exercise::all(&device);
        assert_eq!(seen.opened, [true, true]);
        assert_eq!(seen.findings, [Some(0), Some(0)]);
        let kinds: std::collections::BTreeSet<_> = survey::sites(&device).iter().map(|s| s.name()).collect();
        assert_eq!(kinds.len(), 10, "{kinds:?}");
    });
    for (name, sample, has) in [
        ("with old trees", Ok(sample::with_old_trees()), &PAST[..]),
        ("with annals", sample::with_annals(), &ANNALS),
        ("with both", sample::with_old_trees_and_annals(), &[&PAST[..], &ANNALS].concat()),
    ] {
        watch.case(name, || {
            let device = sample.unwrap();
            assert!(exercise::is_sound(&device));
            let seen = exercise::all(&device);
            assert_eq!((seen.opened, seen.findings), ([true, true], [Some(0), Some(0)]));
            let kinds: std::collections::BTreeSet<_> =
                survey::sites(&device).iter().map(|s| s.name()).collect();
            assert!(has.iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
        });
    }
    watch.case("with further zones", || {
        let device = sample::with_further_zones().unwrap();
        let headers = survey::sites(&device).iter().filter(|s| s.name() == "zone header").count();
        assert!(headers >= 3, "{headers} zones");
        assert_eq!(exercise::all(&device).findings, [Some(0), Some(0)]);
    });
    watch.finish();
}

fn every_field(sound: &MemoryDevice, usual: usize, kinds: &[&str]) {
    let mut chance = Chance::seeded(seed());
    let sites = survey::sites(sound);
    let names = damage::names(sound, &sites);
    let mut watch = Watch::new(MEMORY);
    let every = stride(usual);
    for site in sites.iter().filter(|site| kinds.is_empty() || kinds.contains(&site.name())) {
        let block = survey::read(sound, site.block);
        for field in survey::fields(site, &block) {
            for change in damage::extremes(site, &field, &block, &names) {
                if chance.below(every) == 0 && is_wanted(&change.name()) {
                    watch.case(change.name(), || {
                        exercise::all(&change.apply(sound));
                    });
                }
            }
        }
    }
    println!("{} cases", watch.cases());
    watch.finish();
}

/// Every field of superblocks, zone headers, the zone table, bitmaps and inodes.
#[test]
fn fields_of_fixed_structures() {
    let kinds = ["superblock", "zone header", "zone table block", "bitmap", "inode block"];
    every_field(&sample::small().unwrap(), 250, &kinds);
}

/// Every field of a superblock whose log has records.
#[test]
fn fields_of_a_superblock_with_a_log() {
    every_field(&sample::with_intents().unwrap(), 8, &["superblock"]);
}

/// Every field of nodes of trees.
#[test]
fn fields_of_trees() {
    let kinds = ["directory node", "extent node", "xattr node", "symlink node", "orphan node"];
    let sites = survey::sites(&sample::small().unwrap());
    for kind in kinds {
        assert!(sites.iter().any(|site| site.name() == kind), "{kind}");
    }
    every_field(&sample::small().unwrap(), 60, &kinds);
}

/// Every field of blocks that hold history.
#[test]
fn fields_of_the_past() {
    every_field(&sample::with_old_trees(), 60, &PAST);
    let kinds = [&ANNALS[..], &["roots of the history", "events node"]].concat();
    every_field(&sample::with_annals().unwrap(), 30, &kinds);
    every_field(&sample::with_old_trees_and_annals().unwrap(), 120, &[&PAST[..], &ANNALS].concat());
}

/// The fields of zones and their table on a volume whose group has several zones.
#[test]
fn fields_of_further_zones() {
    every_field(
        &sample::with_further_zones().unwrap(),
        40,
        &["superblock", "zone header", "zone table block"],
    );
}

/// Every word of the log's first batches, with all checksums of the log right: what records say is verified,
/// too.
#[test]
fn words_of_the_log() {
    let sound = sample::with_intents().unwrap();
    let mut chance = Chance::seeded(seed());
    let mut watch = Watch::new(MEMORY);
    watch.case("as it is", || {
        let seen = exercise::all(&sound);
        assert_eq!((seen.opened, seen.findings[1]), ([true, true], Some(0)));
    });
    let blocks = damage::log_blocks(&sound);
    assert!(blocks.len() > 3, "the log has {} blocks", blocks.len());
    let every = stride(1500);
    for site in blocks {
        let block = survey::read(&sound, site.block);
        for offset in (0..4096 - 8).step_by(4) {
            for size in [4, 8] {
                let field = survey::Field { name: format!("word at {offset}"), offset, size };
                for change in damage::extremes(&site, &field, &block, &[16, 1024]) {
                    let name = format!("log, {}", change.name());
                    if chance.below(every) == 0 && is_wanted(&name) {
                        watch.case(name, || {
                            exercise::all(&change.apply_to_log(&sound));
                        });
                    }
                }
            }
        }
    }
    println!("{} cases", watch.cases());
    watch.finish();
}

/// Noise, and blocks under another's identity, a few at a time.
#[test]
fn random_damage() {
    let seed = seed();
    let mut watch = Watch::new(MEMORY);
    for sound in [sample::small().unwrap(), sample::with_further_zones().unwrap()] {
        let sites = survey::sites(&sound);
        for round in 0..setting("YORE_ROUNDS").unwrap_or(150) {
            let name = format!("seed {seed} round {round}");
            watch.case(name, || {
                let mut chance = Chance::seeded(seed << 32 | round);
                let device = sound.snapshot();
                for _ in 0..1 + chance.below(4) {
                    let site = chance.pick(&sites);
                    let mut block = survey::read(&device, site.block);
                    damage::any(&mut chance, &device, &sites, site, &mut block);
                    damage::write(&device, site, &mut block);
                }
                if chance.below(8) > 0 {
                    mend(&device);
                }
                exercise::all(&device);
            });
        }
    }
    watch.finish();
}
