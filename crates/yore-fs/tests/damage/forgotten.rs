//! Damage among the times of events that were forgotten long ago.

use super::*;
use std::time::Duration;
use yore_fs::SpaceRules;

const MIB: u64 = 1 << 20;
/// So many snapshots have a MiB each that may go.
const MAY_GO: u8 = 6;

/// Whoever forgets an event counts the times of the forgotten ones first. One node of them could not be read,
/// so events stayed dying, and a full volume made no room: whatever somebody wrote failed, because of times
/// that nobody asks for.
#[test]
fn a_full_volume_makes_room_beside_damaged_times() {
    let device = Arc::new(MemoryDevice::new(SIZE));
    Volume::create(device.clone(), &MkfsOptions::default()).unwrap().close().unwrap();
    let options = MountOptions { reading_lasts: Duration::ZERO, ..MountOptions::default() };
    let volume = Volume::open(device.clone(), &options).unwrap();
    let view = volume.view();
    view.set_space_rules(SpaceRules { floor_seconds: 0, share_percent: 0 }).unwrap();
    let snapshot = || view.take_snapshot(view.root(), &NewSnapshot::default()).unwrap().number;
    let old: Vec<EventNo> = (0..400).map(|_| snapshot()).collect();
    view.forget(&old).unwrap();
    view.finish_forgetting(&mut |_| ControlFlow::Continue(())).unwrap();
    for n in 0..MAY_GO {
        volume.write("file", vec![n; MIB as usize]).unwrap();
        snapshot();
    }
    volume.write("file", vec![100; MIB as usize]).unwrap();
    volume.write("target", "").unwrap();
    volume.write("filler", "").unwrap();
    volume.sync().unwrap();
    let free = volume.statfs().blocks_free;
    let mode = FallocateMode::Allocate { keep_size: false };
    let filled = (free - 256 - free / 50) * BLOCK_SIZE as u64;
    view.fallocate(volume.node("filler").unwrap().inode(), 0, filled, mode).unwrap();
    volume.close().unwrap();

    let device = device.snapshot();
    let (_, roots) = find(&device, chain_superblock(&device).history_root, BlockKind::HistoryRoots);
    let (root, level) = HistoryRoots::get(&roots, HistoryTree::Forgotten);
    assert_eq!(level, 1, "the last times are in a node of their own");
    let (_, node) = find(&device, root, BlockKind::Events);
    let (first, _) = find(&device, NodeRef::new(&node).child(0).unwrap(), BlockKind::Events);
    device.write_at(first, &[0xa5; BLOCK_SIZE]).unwrap();

    let volume = Volume::open(Arc::new(device), &options).unwrap();
    let before = volume.view().events().unwrap().len();
    assert_eq!(before, usize::from(MAY_GO));
    let found = volume.statfs();
    // The MiB of two snapshots, beside what is free.
    let wanted = found.blocks_free + 2 * MIB / BLOCK_SIZE as u64 - 64;
    assert!(wanted <= found.blocks_available, "{found:?}");
    volume.write("target", vec![1; wanted as usize * BLOCK_SIZE]).unwrap();
    volume.sync().unwrap();
    assert!(volume.view().events().unwrap().len() < before, "nothing was given up");
    assert_eq!(volume.view().forgetting(), None, "what was given up is forgotten");
    assert_eq!(volume.metadata("target").unwrap().len(), wanted * BLOCK_SIZE as u64);
    volume.close().unwrap();
}
