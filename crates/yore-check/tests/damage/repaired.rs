//! Promises of repair, for each damage there is: either nothing is found afterwards, files that the damage
//! did not concern are as they were, and taking the repair back leaves the medium as it was, byte for byte;
//! or the volume is refused and left alone.

use super::*;
use std::path::PathBuf;
use yore_check::{plan_repair, plan_repair_leaving, repair_of, undo_repair, CheckError, Plan};

/// A path for an undo file that goes with the test.
pub(super) struct UndoFile(pub(super) PathBuf);

impl UndoFile {
    pub(super) fn new(name: &str) -> UndoFile {
        let path = std::env::temp_dir().join(format!("yore-undo-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        UndoFile(path)
    }
}

impl Drop for UndoFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub(super) fn plan(device: &MemoryDevice) -> Plan<'_> {
    plan_with(device, false)
}

fn plan_with(device: &MemoryDevice, give_up_past: bool) -> Plan<'_> {
    let options = CheckOptions { give_up_past, ..CheckOptions::default() };
    plan_repair(device, &options).expect("the volume can be checked")
}

/// An inode by way of superblock, table and header.
pub(super) fn inode_of(device: &MemoryDevice, number: InodeNo) -> Option<Inode> {
    let (sb, _, _) = decode_slots([&read(device, 0), &read(device, 1)]).ok()?;
    let root = sb.root_zones[0]?;
    let sound = |block: u64, kind: BlockKind| {
        let bytes = read(device, block);
        let is_it = BlockHeader::of(&bytes).kind == kind as u8 && verify_checksum(&bytes).is_ok();
        is_it.then_some(bytes)
    };
    let header = |start: u64, slot: u8| {
        let block = sound(start + HEADER_SLOTS[usize::from(slot)], BlockKind::ZoneHeader)?;
        ZoneHeader::decode(&block).ok()
    };
    let table = u64::from(header(root.start.0, root.header_slot)?.map[0]);
    let table = sound(table, BlockKind::ZoneTable)?;
    let entry = ZoneTableRef::new(&table).entry(number.addr().zone().0 as usize);
    let zone = header(entry.start.get(), entry.header_slot)?;
    let block = read(device, entry.start.get() + u64::from(zone.map[usize::from(number.addr().index())]));
    Inode::decode(Inode::slot(&block, number.slot())).ok()
}

/// What this does, or that it panicked.
fn caught<T>(this: impl FnOnce() -> T) -> std::thread::Result<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(this))
}

/// Repairs a volume, which was `whole` before the damage if that is known, and takes that back. Returns what
/// would remain, if it is refused.
fn repaired(
    device: &MemoryDevice,
    whole: Option<&MemoryDevice>,
    undo_file: &UndoFile,
    give_up_past: bool,
) -> Result<(), String> {
    let before = device.snapshot();
    let plan = plan_with(device, give_up_past);
    assert_eq!(device.first_difference(&before), None, "a plan writes nothing");
    if !plan.is_complete() {
        let e = plan.apply(&undo_file.0).unwrap_err();
        assert!(matches!(e, CheckError::NotRepairable { .. }), "{e}");
        assert!(device.first_difference(&before).is_none() && !undo_file.0.exists());
        let left: BTreeSet<Problem> = plan.after.findings.iter().map(|f| f.problem).collect();
        return Err(format!("{left:?}"));
    }
    plan.apply(&undo_file.0).expect("the repair is written");
    let report = checked(device);
    assert!(report.is_clean(), "after the repair: {report}");
    let is_in_use = plan.before.state == VolumeState::InUse;
    assert_eq!(report.state, if is_in_use { VolumeState::InUse } else { VolumeState::Clean });
    let harmed: BTreeSet<InodeNo> = plan.done.iter().filter_map(|done| done.finding.inode).collect();
    // Damage to a block of inodes is damage to all of them.
    let is_of_block = |p: Problem| matches!(p, BlockDamaged | BlockStale);
    let blocks: BTreeSet<MetaAddr> = plan
        .done
        .iter()
        .filter(|done| is_of_block(done.finding.problem))
        .filter_map(|done| done.finding.addr)
        .collect();
    for number in [ROOT, INLINE, EXTENTS, BIG, SHORT, LONG, DEVICE, FIFO, ATTRS, SHRINKING, FAR].map(InodeNo)
    {
        // What damage to zones hides is as it was before the damage.
        let old = inode_of(&before, number).or_else(|| inode_of(whole?, number));
        let is_hidden = old.is_none() && whole.is_none();
        let is_changed = !is_hidden && old != inode_of(device, number);
        let is_harmed = harmed.contains(&number) || blocks.contains(&number.addr());
        assert!(!is_changed || is_harmed || number.0 == ROOT, "inode {number} has changed");
    }
    if plan.is_empty() {
        assert!(!undo_file.0.exists(), "nothing to take back");
        return Ok(());
    }
    undo_repair(device, &undo_file.0).expect("the repair is taken back");
    assert_eq!(device.first_difference(&before), None, "as before, byte for byte");
    Ok(())
}

/// Promises for each damage what the head of this file says. Those that are refused are printed, and so are
/// the problems without a repair.
#[test]
fn every_damage_is_repaired_or_refused() {
    let undo_file = UndoFile::new("each");
    let (mut refused, mut count) = (Vec::new(), 0);
    for (of, (volume, plants)) in volumes().into_iter().enumerate() {
        for (story, problems, plant) in plants {
            let mut b = volume();
            plant(&mut b);
            let device = b.finish();
            let _ = std::fs::remove_file(&undo_file.0);
            count += 1;
            let outcome = caught(|| repaired(&device, Some(&volume().finish()), &undo_file, false));
            match outcome {
                Ok(Ok(())) => {}
                Ok(Err(left)) => refused.push((of, *story, *problems, left)),
                Err(_) => panic!("{story} ({problems:?})"),
            }
        }
    }
    println!("{} of {count} damages are refused:", refused.len());
    for (_, story, problems, left) in &refused {
        println!("  {story}: {problems:?}, left {left}");
    }
    let without: Vec<_> = Problem::ALL.iter().filter(|problem| repair_of(**problem).is_none()).collect();
    println!("{} problems have no repair yet: {without:?}", without.len());
    for (of, story, problems, left) in &refused {
        let in_part = if *of == 0 { REPAIRED_IN_PART } else { OF_THE_PAST };
        let is_in_part = |p: &Problem| repair_of(*p).is_none() || in_part.contains(p);
        let excused = problems.iter().any(is_in_part);
        assert!(excused, "{story} has rules for all of {problems:?}, and is refused: {left}");
    }
}

/// Problems whose rule helps some of those that have them.
const REPAIRED_IN_PART: &[Problem] = &[BlockWrong, SpaceOwnedTwice];

/// Problems whose rule does not help where a branch or a root of the past has them.
const OF_THE_PAST: &[Problem] = &[BlockDamaged, BlockWrong, BlockMissing, BlockReachedTwice, TreeKeyWidth];

/// Promises that a volume whose device lost its end is left alone unless it may be shortened; then it is
/// sound, what is lost is named, what lay before the end is as it was, and that can be taken back.
#[test]
fn a_device_that_lost_its_end_is_shortened_when_asked() {
    for blocks in [GROUP_BLOCKS, GROUP_BLOCKS + 3000, 2 * GROUP_BLOCKS, BLOCKS - 1] {
        let whole = sound().finish();
        let device = MemoryDevice::new(blocks * 4096);
        for block in 0..blocks {
            write(&device, block, &read(&whole, block));
        }
        let before = device.snapshot();
        let refused = plan(&device);
        assert!(!refused.is_complete() && refused.after.has(DeviceTooShort), "{blocks}: {}", refused.after);
        let options = CheckOptions { shorten: true, ..CheckOptions::default() };
        let plan = plan_repair(&device, &options).unwrap();
        assert!(plan.is_complete(), "{blocks}: {}", plan.after);
        let undo_file = UndoFile::new("shorten");
        plan.apply(&undo_file.0).unwrap();
        let report = checked(&device);
        assert!(report.is_clean(), "{blocks}: {report}");
        for number in [ROOT, INLINE, DEVICE, FIFO].map(InodeNo) {
            let is_same = inode_of(&device, number).map(|inode| inode.incarnation)
                == inode_of(&whole, number).map(|inode| inode.incarnation);
            assert!(is_same, "{blocks}: inode {number}");
        }
        let says =
            |what: &str| plan.lost.iter().any(|lost| lost.path.contains(what) || lost.what.contains(what));
        assert!(says("the end of the volume"), "{:?}", plan.lost);
        assert_eq!(blocks == GROUP_BLOCKS, says("the name far"), "{blocks}: {:?}", plan.lost);
        undo_repair(&device, &undo_file.0).unwrap();
        assert_eq!(device.first_difference(&before), None, "as before, byte for byte");
    }
}

/// Promises that names are kept that lead to what another rule of the same repair brings back.
#[test]
fn names_of_what_comes_back_are_kept() {
    let mut b = sound();
    header(&mut b, 2, |h| h.inode_free[1] = NOT_INODES);
    let device = b.finish();
    let plan = plan(&device);
    assert!(plan.is_complete() && plan.lost.is_empty(), "{plan:?}");
    assert!(
        plan.before.has(EntryDangling) && plan.done.iter().all(|done| done.finding.problem != InodeUnnamed)
    );
}

/// Promises that inodes without a name get one in lost+found, and that nothing of them changes but where they
/// are.
#[test]
fn what_has_no_name_goes_to_lost_and_found() {
    let undo_file = UndoFile::new("unnamed");
    let mut b = sound();
    new_root(&mut b, |cells| cells.retain(|c| !c.1.ends_with(b"far") && !c.1.ends_with(b"directory")));
    let device = b.finish();
    let before = inode_of(&device, InodeNo(FAR)).unwrap();
    let plan = plan(&device);
    assert!(plan.is_complete(), "{}", plan.after);
    plan.apply(&undo_file.0).unwrap();
    let after = inode_of(&device, InodeNo(FAR)).unwrap();
    assert_eq!(after.content, before.content);
    assert_eq!((after.size, after.links, after.mode), (before.size, 1, before.mode));
    let place = inode_of(&device, after.parent).unwrap();
    assert_eq!((place.size, place.links, place.parent), (2, 3, InodeNo::ROOT));
    assert_eq!(inode_of(&device, InodeNo(DIRECTORY)).unwrap().parent, after.parent);
    let rest = &place.inline()[8..];
    let (entry, _) = DirEntry::decode_prefix(rest).unwrap();
    assert!(entry.name.starts_with(b"#"), "{entry:?}");
}

/// Promises that a sound volume needs no repair.
#[test]
fn a_sound_volume_is_left_alone() {
    for volume in [sound, common::past::past, common::past::annals] {
        let device = volume().finish();
        let plan = plan(&device);
        assert!(plan.is_complete() && plan.is_empty() && plan.done.is_empty(), "{plan:?}");
    }
}

/// Promises for damages planted together that a repair ends, and leaves a volume in which nothing is found,
/// or none of its changes.
fn several_at_once(seeds: std::ops::Range<u64>) {
    let undo_file = UndoFile::new(&format!("several-{}", seeds.start));
    let mut complete = [0, 0];
    let count = seeds.end - seeds.start;
    for seed in seeds {
        // SplitMix64: a seed says all.
        let mut state = seed;
        let mut random = |below: usize| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) % below as u64) as usize
        };
        let all = volumes();
        let (volume, plants) = &all[random(all.len())];
        let mut b = volume();
        let chosen: Vec<usize> = (0..2 + random(3)).map(|_| random(plants.len())).collect();
        let stories: Vec<&str> = chosen.iter().map(|i| plants[*i].0).collect();
        // Some damages cannot be planted on others.
        let planted = caught(|| {
            chosen.iter().for_each(|i| plants[*i].2(&mut b));
            b.finish()
        });
        let Ok(device) = planted else { continue };
        let _ = std::fs::remove_file(&undo_file.0);
        if plan_repair(&device, &CheckOptions::default()).is_err() {
            continue;
        }
        for give_up_past in [false, true] {
            let _ = std::fs::remove_file(&undo_file.0);
            match caught(|| repaired(&device, None, &undo_file, give_up_past)) {
                Ok(outcome) => complete[usize::from(give_up_past)] += u64::from(outcome.is_ok()),
                Err(_) => panic!("seed {seed}: {stories:?}"),
            }
        }
    }
    println!("{} of {count} were repaired, {} if the past may be given up", complete[0], complete[1]);
}

/// Promises for two damages of which one is to be left that the other is repaired, and nothing is found then
/// but what was left; or that the volume is refused, and what remains is said.
#[test]
fn what_is_to_be_left_stays() {
    let undo_file = UndoFile::new("left");
    let plants: Vec<&Plant> = [INODES, NAMES, SPACE, SUPERBLOCKS_AND_ZONES].into_iter().flatten().collect();
    let (mut repaired, mut refused) = (0, 0);
    for (i, (story, _, plant)) in plants.iter().enumerate() {
        let (other_story, _, other) = plants[(i * 7 + 3) % plants.len()];
        let alone = {
            let mut b = sound();
            plant(&mut b);
            checked(&b.finish()).findings
        };
        let planted = caught(|| {
            let mut b = sound();
            plant(&mut b);
            other(&mut b);
            b.finish()
        });
        let Ok(device) = planted else { continue };
        let _ = std::fs::remove_file(&undo_file.0);
        let before = device.snapshot();
        let plan = plan_repair_leaving(&device, &CheckOptions::default(), &alone).unwrap();
        if !plan.is_complete() {
            assert!(plan.remaining().next().is_some(), "{story}, {other_story}");
            plan.apply(&undo_file.0).unwrap_err();
            assert_eq!(device.first_difference(&before), None, "{story}, {other_story}");
            refused += 1;
            continue;
        }
        plan.apply(&undo_file.0).unwrap();
        let is_left = |f: &yore_check::Finding| {
            alone
                .iter()
                .any(|l| (l.problem, l.addr, l.block, l.inode) == (f.problem, f.addr, f.block, f.inode))
        };
        let report = checked(&device);
        assert!(report.findings.iter().all(is_left), "{story}, left, {other_story}: {report}");
        repaired += 1;
    }
    println!("{repaired} were repaired but for what was left, {refused} refused");
    assert!(repaired > refused, "{repaired} repaired, {refused} refused");
}

#[test]
fn several_damages_at_once() {
    several_at_once(0..150);
}

#[test]
#[ignore = "takes minutes"]
fn many_damages_at_once() {
    several_at_once(1000..20_000);
}
