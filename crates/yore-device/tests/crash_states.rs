//! Promises that the states of the simulated device are exactly those of its fault model, that a state's name
//! produces it again, and that no state contradicts what the device said of a flush.

mod common;

use std::collections::BTreeSet;

use common::{at, pattern, read};
use yore_device::simulated::{
    Choice, CrashPlan, CrashState, CrashStateError, SimulatedDevice, Tearing, Trace, TraceEntry,
};
use yore_device::{AlignedBuf, Device, MemoryDevice, BLOCK_SIZE};

const SECTOR: usize = 512;
/// Stands for garbage: its actual bytes do not matter here.
const GARBAGE: &[u8] = &[0xee; SECTOR];

/// A small generator for the tests' own choices.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

/// A trace of a few entries on three blocks, in which every sector ever written is recognisable.
fn small_trace(seed: u64, discards: bool) -> Trace {
    let mut random = Random(seed);
    let device = SimulatedDevice::new(MemoryDevice::from_bytes(&pattern(seed + 1, 3)));
    for number in 0..12 {
        match random.below(if discards { 8 } else { 7 }) {
            0 => device.flush().unwrap(),
            1 => device.mark(number),
            7 => device.discard(at(random.below(3)), at(1)).unwrap(),
            _ => {
                // One or two blocks as they are, with one or two sectors changed.
                let first = random.below(2);
                let mut data = read(&device, first, 1 + random.below(2) as usize);
                let sectors = data.len() / SECTOR;
                for change in 0..1 + random.below(2) {
                    let fresh = pattern(1000 * seed + 10 * number + change + 99, 1);
                    let sector = random.below(sectors as u64) as usize * SECTOR;
                    data[sector..sector + SECTOR].copy_from_slice(&fresh[..SECTOR]);
                }
                device.write_at(at(first), &data).unwrap();
            }
        }
    }
    device.trace()
}

/// The fault model, written down a second time as plainly as possible: all images that a crash after `k`
/// entries can leave, with `GARBAGE` in place of sectors of garbage. `None` if there are too many to go
/// through.
fn oracle(trace: &Trace, k: usize, cell: usize) -> Option<BTreeSet<Vec<u8>>> {
    let entries = &trace.entries()[..k];
    let flushed = entries.iter().rposition(|entry| *entry == TraceEntry::Flush).map_or(0, |last| last + 1);
    let mut durable = trace.initial().to_bytes();
    for entry in &entries[..flushed] {
        match entry {
            TraceEntry::Write { offset, data } => {
                durable[*offset as usize..][..data.len()].copy_from_slice(data)
            }
            TraceEntry::Discard { offset, len } => durable[*offset as usize..][..*len as usize].fill(0),
            TraceEntry::Flush | TraceEntry::FlushRange { .. } | TraceEntry::Mark(_) => {}
        }
    }
    let pending = &entries[flushed..];
    let mut below = vec![durable];
    for entry in pending {
        if let TraceEntry::Discard { offset, len } = entry {
            let range = *offset as usize..(*offset + *len) as usize;
            let mut more = below.clone();
            more.iter_mut().for_each(|image| image[range.clone()].fill(0));
            let mut most = below.clone();
            most.iter_mut().for_each(|image| image[range.clone()].fill(GARBAGE[0]));
            below.extend(more);
            below.extend(most);
        }
    }
    let mut images = BTreeSet::new();
    for image in below {
        let mut of_this = BTreeSet::from([image.clone()]);
        for start in (0..image.len()).step_by(cell) {
            let mut outcomes: BTreeSet<Vec<u8>> = BTreeSet::new();
            for entry in pending {
                let TraceEntry::Write { offset, data } = entry else { continue };
                let offset = *offset as usize;
                if (offset..offset + data.len()).contains(&start) {
                    outcomes.insert(data[start - offset..][..cell].to_vec());
                }
            }
            let before: Vec<_> = of_this.iter().cloned().collect();
            for outcome in outcomes {
                of_this.extend(before.iter().map(|image| {
                    let mut image = image.clone();
                    image[start..start + cell].copy_from_slice(&outcome);
                    image
                }));
            }
            if of_this.len() > 600 {
                return None;
            }
        }
        images.extend(of_this);
    }
    Some(images)
}

/// The image of a medium, with every sector that nobody wrote replaced by `GARBAGE`.
fn normal(trace: &Trace, medium: &MemoryDevice) -> Vec<u8> {
    let mut known: BTreeSet<Vec<u8>> = BTreeSet::from([vec![0; SECTOR]]);
    known.extend(trace.initial().to_bytes().chunks(SECTOR).map(<[u8]>::to_vec));
    for entry in trace.entries() {
        if let TraceEntry::Write { data, .. } = entry {
            known.extend(data.chunks(SECTOR).map(<[u8]>::to_vec));
        }
    }
    let mut image = medium.to_bytes();
    for sector in image.chunks_mut(SECTOR) {
        if !known.contains(sector) {
            sector.copy_from_slice(GARBAGE);
        }
    }
    image
}

/// For many small traces, at every point, the enumeration gives the oracle's set: nothing is missing and
/// nothing is impossible. Samples and the special states are in the set, too.
#[test]
fn enumeration_equals_the_oracle() {
    let mut compared = 0;
    for seed in 0..60 {
        let trace = small_trace(seed, seed % 2 == 1);
        for tearing in [Tearing::Sectors, Tearing::Blocks] {
            let cell = if tearing == Tearing::Sectors { SECTOR } else { BLOCK_SIZE };
            for point in trace.crash_points(0) {
                let k = point.after_entry();
                let Some(expected) = oracle(&trace, k, cell) else { continue };
                let what = format!("trace of seed {seed}, {tearing:?}, after entry {k}");
                if let Some(count) = point.state_count(tearing).filter(|&count| count <= 600) {
                    let produce = |index| point.materialise(Choice::Index(index), tearing).unwrap();
                    let states: BTreeSet<_> =
                        (0..count).map(|index| normal(&trace, &produce(index))).collect();
                    assert!(states == expected, "{what}: {} of {}", states.len(), expected.len());
                    let beyond = point.materialise(Choice::Index(count), tearing);
                    assert!(matches!(beyond, Err(CrashStateError::NoSuchIndex { .. })), "{what}");
                    compared += 1;
                }
                let sampled = CrashPlan { exhaustive_max: 0, samples: 8, tearing, ..CrashPlan::default() };
                for choice in point.choices(&sampled) {
                    let medium = point.materialise(choice, tearing).unwrap();
                    assert!(expected.contains(&normal(&trace, &medium)), "{what}: {choice:?}");
                }
            }
        }
    }
    assert!(compared > 500, "only {compared} points were small enough");
}

/// Without discards and with few changed sectors, no two numbers name the same contents.
#[test]
fn enumeration_has_no_duplicates() {
    for seed in (0..60).step_by(2) {
        let trace = small_trace(seed, false);
        for point in trace.crash_points(0) {
            let count = point.state_count(Tearing::Sectors).unwrap();
            if count <= 1000 {
                let produce = |index| point.materialise(Choice::Index(index), Tearing::Sectors).unwrap();
                let states: BTreeSet<_> = (0..count).map(|index| produce(index).to_bytes()).collect();
                assert_eq!(states.len() as u64, count, "seed {seed} after {}", point.after_entry());
            }
        }
    }
}

/// A longer trace, with more pending writes than can be enumerated.
fn long_trace() -> Trace {
    let mut random = Random(5);
    let device = SimulatedDevice::new(MemoryDevice::new(at(4096)));
    for number in 0..200 {
        match random.below(20) {
            0 => device.flush().unwrap(),
            1 => device.discard(at(random.below(4000)), at(20)).unwrap(),
            2 => device.mark(number),
            _ => device.write_at(at(random.below(4000)), &pattern(number + 1, 3)).unwrap(),
        }
    }
    device.trace()
}

/// The printed name of a state produces the same contents again, with another copy of the trace and without
/// going through earlier states.
#[test]
fn names_replay() {
    let trace = long_trace();
    let again = long_trace();
    assert_eq!(trace.entries(), again.entries());
    let plan = CrashPlan { samples: 4, ..CrashPlan::default() };
    let mut states = 0;
    for case in trace.crash_states(&plan).step_by(7) {
        let name = case.state().to_string();
        let state: CrashState = name.parse().unwrap();
        assert_eq!(state, case.state());
        let medium = again.materialise(&state).unwrap();
        assert_eq!(medium.first_difference(&case.materialise()), None, "{name}");
        states += 1;
    }
    assert!(states > 100);
}

/// A seed keeps its meaning from version to version: reports of failures name states by seed.
#[test]
fn seeds_keep_their_meaning() {
    let trace = long_trace();
    let digest = |name: &str| {
        let medium = trace.materialise(&name.parse().unwrap()).unwrap();
        let bytes = medium.to_bytes().into_iter();
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    };
    assert_eq!(digest("crash=60:seed=42"), 14785993114666659675);
    assert_eq!(digest("crash=150:seed=43:blocks"), 14309505761001190114);
}

/// A point with many states gives none, all, all but one and samples; different seeds give different states.
#[test]
fn sampling_has_the_extremes() {
    let device = SimulatedDevice::new(MemoryDevice::new(at(64)));
    for block in 0..40 {
        device.write_at(at(block), &pattern(block + 1, 1)).unwrap();
    }
    let trace = device.trace();
    let plan = CrashPlan { after_events: Some(40..=40), samples: 50, ..CrashPlan::default() };
    let cases: Vec<_> = trace.crash_states(&plan).collect();
    assert!(cases.iter().all(|case| case.after_entry() == 40));
    let choices: Vec<_> = cases.iter().map(|case| case.state().choice).collect();
    assert_eq!(choices[..2], [Choice::None, Choice::All]);
    assert_eq!(choices[2..42], (0..40).map(Choice::AllBut).collect::<Vec<_>>()[..]);
    assert_eq!(choices[42..], (0..50).map(Choice::Seed).collect::<Vec<_>>()[..]);
    assert_eq!(cases[0].materialise().first_difference(trace.initial()), None);
    assert_eq!(cases[1].materialise().first_difference(&device.snapshot()), None);
    let but_seven = cases[9].materialise();
    for block in 0..40 {
        let expected = if block == 7 { AlignedBuf::zeroed(1) } else { pattern(block + 1, 1) };
        assert_eq!(read(&but_seven, block, 1), expected);
    }
    let samples: BTreeSet<_> = cases[42..].iter().map(|case| case.materialise().to_bytes()).collect();
    assert!(samples.len() > 45, "{} different samples of 50", samples.len());
    let few = CrashPlan { samples: 3, ..plan };
    let last = trace.crash_states(&few).map(|case| case.state().choice).nth(4);
    assert_eq!(last, Some(Choice::AllBut(39)), "the latest is always left out once");
}

/// Flushed data is in every state; marks say what had been announced; marks need not count as points for
/// crashes.
#[test]
fn flushed_data_and_marks() {
    let device = SimulatedDevice::new(MemoryDevice::new(at(8)));
    device.mark(10);
    device.write_at(0, &pattern(1, 2)).unwrap();
    device.flush().unwrap();
    device.mark(11);
    device.write_at(at(1), &pattern(2, 1)).unwrap();
    let trace = device.trace();
    assert_eq!(trace.len(), 5);
    let marks = |k| trace.marks_before(k).collect::<Vec<_>>();
    assert_eq!((marks(0), marks(1), marks(4), marks(9)), (vec![], vec![10], vec![10, 11], vec![10, 11]));
    for case in trace.crash_states(&CrashPlan::default()) {
        let medium = case.materialise();
        if case.after_entry() >= 3 {
            assert_eq!(read(&medium, 0, 1)[..], pattern(1, 2)[..BLOCK_SIZE], "{}", case.state());
        }
    }
    let plan = CrashPlan { at_marks: false, ..CrashPlan::default() };
    let points: BTreeSet<_> = trace.crash_states(&plan).map(|case| case.after_entry()).collect();
    assert_eq!(points, BTreeSet::from([0, 2, 5]));
    let nowhere = CrashState { after_entry: 6, choice: Choice::All, tearing: Tearing::Sectors };
    let error = trace.materialise(&nowhere).unwrap_err();
    assert_eq!(error, CrashStateError::NoSuchEntry { after_entry: 6, entries: 5 });
    let nobody = CrashState { after_entry: 5, choice: Choice::AllBut(1), tearing: Tearing::Sectors };
    assert!(matches!(trace.materialise(&nobody), Err(CrashStateError::NoSuchPending { .. })));
    let before = device.restart_trace();
    assert_eq!(before.entries(), trace.entries());
    assert!(device.trace().is_empty());
    assert_eq!(device.trace().initial().first_difference(&device.snapshot()), None);
}

/// States are independent of each other, and of the device, which goes on.
#[test]
fn states_do_not_share_writes() {
    let device = SimulatedDevice::new(MemoryDevice::from_bytes(&pattern(1, 8)));
    device.write_at(0, &pattern(2, 1)).unwrap();
    let trace = device.trace();
    let case = trace.crash_states(&CrashPlan::default()).last().unwrap();
    let (one, two) = (case.materialise(), case.materialise());
    one.write_at(at(3), &pattern(3, 1)).unwrap();
    device.write_at(at(4), &pattern(4, 1)).unwrap();
    assert_eq!(one.first_difference(&two), Some(at(3)));
    assert_eq!(read(&two, 4, 1)[..], pattern(1, 8)[at(4) as usize..at(5) as usize]);
    assert_eq!(trace.len(), 1);
}
