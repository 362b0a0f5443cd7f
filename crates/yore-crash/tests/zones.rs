//! Zones come and go with their content. The story: a directory of a million files made ten times the zones
//! that it needed, because each Op that found the near zones full made one and then went on to another. Once
//! the files were gone the zones stayed, each for one empty inode block.

use crate::common::tree::tree;
use std::ops::ControlFlow;
use std::sync::Arc;
use yore_device::simulated::CrashPlan;
use yore_device::{Device, MemoryDevice, SimulatedDevice};
use yore_fs::{Caller, FileKind, MkfsOptions, MountOptions, View};

#[test]
fn as_many_zones_as_files_need_and_none_when_they_are_gone() {
    const FILES: u64 = 120_000;
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(512 << 20));
    View::mkfs(&device, &MkfsOptions::default()).unwrap();
    let view = View::open(device.clone(), &MountOptions::default()).unwrap();
    let (caller, root) = (Caller::superuser(), view.root());
    let before = view.statfs();
    for i in 0..FILES {
        view.create(&caller, root, format!("{i}").as_bytes(), FileKind::Regular, 0o644, 0).unwrap();
    }
    let info = view.info();
    let needed = info.metadata_blocks.div_ceil(510) as u32;
    assert!(
        info.zones <= needed + needed / 8 + 6,
        "{} zones for {} blocks",
        info.zones,
        info.metadata_blocks
    );
    for i in 0..FILES {
        view.unlink(root, format!("{i}").as_bytes()).unwrap();
    }
    view.close().unwrap();
    drop(view);
    let report = yore_check::check(&*device, &Default::default()).unwrap();
    assert!(report.is_clean(), "{report}");
    let view = View::open(device, &MountOptions::default()).unwrap();
    // Root zone and the first zones of the groups.
    assert!(view.info().zones <= 1 + 4, "{} zones are left", view.info().zones);
    assert_eq!(view.statfs().blocks_free, before.blocks_free);
}

/// Whatever a crash leaves while zones are made, emptied and given back, the volume is whole (rule 11).
#[test]
fn a_crash_while_zones_come_and_go_leaves_a_whole_volume() {
    const FILES: u64 = 24_000;
    let device = Arc::new(SimulatedDevice::new(MemoryDevice::new(64 << 20)));
    let as_device: Arc<dyn Device> = device.clone();
    View::mkfs(&as_device, &MkfsOptions::default()).unwrap();
    let view = View::open(as_device, &MountOptions::default()).unwrap();
    let (caller, root) = (Caller::superuser(), view.root());
    let few = view.info().zones;
    device.restart_trace();
    for i in 0..FILES {
        view.create(&caller, root, format!("{i}").as_bytes(), FileKind::Regular, 0o644, 0).unwrap();
        if i % 6_000 == 0 {
            view.sync().unwrap();
        }
    }
    view.sync().unwrap();
    assert!(view.info().zones > few + 2, "no zones were made");
    for i in 0..FILES {
        view.unlink(root, format!("{i}").as_bytes()).unwrap();
        if i % 6_000 == 0 {
            view.sync().unwrap();
        }
    }
    view.close().unwrap();
    assert_eq!(view.info().zones, few);
    let plan = CrashPlan { samples: 2, exhaustive_max: 2, ..CrashPlan::default() };
    let trace = device.trace();
    let mut states = 0;
    for case in trace.crash_states(&plan).step_by(2) {
        states += 1;
        let report = yore_check::check(&case.materialise(), &Default::default())
            .unwrap_or_else(|e| panic!("{}: {e}", case.state()));
        assert!(report.is_clean(), "{}: {report}", case.state());
    }
    println!("{states} crash states");
}

/// Whatever a crash leaves while zones are laid together, the volume is whole, and has exactly what it had:
/// no call has changed anything.
#[test]
fn a_crash_while_zones_are_laid_together_changes_nothing() {
    const FILES: u64 = 12_000;
    let device = Arc::new(SimulatedDevice::new(MemoryDevice::new(64 << 20)));
    let as_device: Arc<dyn Device> = device.clone();
    View::mkfs(&as_device, &MkfsOptions::default()).unwrap();
    let options = MountOptions { defragment_after: None, ..MountOptions::default() };
    let view = View::open(as_device, &options).unwrap();
    let (caller, root) = (Caller::superuser(), view.root());
    for i in 0..FILES {
        view.create(&caller, root, format!("{i}").as_bytes(), FileKind::Regular, 0o644, 0).unwrap();
    }
    view.sync().unwrap();
    // Inodes lie 16 in a block. What is left of them lies far apart.
    for i in (0..FILES).filter(|i| i / 160 % 8 != 7) {
        view.unlink(root, format!("{i}").as_bytes()).unwrap();
    }
    view.sync().unwrap();
    let before = tree(&view, root);
    device.restart_trace();
    let laid = view.lay_metadata_together(&mut || ControlFlow::Continue(())).unwrap();
    assert!(laid.zones >= 1 && laid.blocks >= 50, "{laid:?}");
    let again = view.lay_metadata_together(&mut || ControlFlow::Continue(())).unwrap();
    assert_eq!(again, Default::default());
    assert!(tree(&view, root) == before);
    let trace = device.trace();
    let plan = CrashPlan { samples: 4, exhaustive_max: 4, ..CrashPlan::default() };
    let mut states = 0;
    for case in trace.crash_states(&plan) {
        states += 1;
        let left: Arc<dyn Device> = Arc::new(case.materialise());
        let report = yore_check::check(&*left, &Default::default())
            .unwrap_or_else(|e| panic!("{}: {e}", case.state()));
        assert!(report.is_clean(), "{}: {report}", case.state());
        let view = View::open(left, &MountOptions { read_only: true, ..options.clone() }).unwrap();
        assert!(tree(&view, root) == before, "{}", case.state());
    }
    println!("{states} crash states, {laid:?}");
    assert!(states > 30, "only {states} states");
}
