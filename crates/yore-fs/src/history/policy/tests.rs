//! Events that are due.

use super::take_due_events;
use crate::{Error, EventKind, InodeNo, Policy, Versioning, Volume};
use std::collections::BTreeSet;
use std::time::Duration;
use yore_core::inode::InodeCell;
use yore_format::{BlockKind, Expect, GroupNo, Inode};

/// Damages an inode that is in use, and takes it out of memory.
fn damage(volume: &Volume, cell: &InodeCell) {
    let store = volume.view().store();
    let frame = store.meta.read(cell.no.addr(), &Expect::volume(BlockKind::Inodes)).unwrap();
    let reserved = store.reserve_freely(GroupNo(0), 0).unwrap();
    let mut op = store.meta.begin(reserved);
    op.change(&frame, |page| {
        page.apply(|block| {
            let (slot, range) = Inode::slot_mut(block, cell.no.slot());
            slot.fill(0xff);
            range
        });
    });
    drop(op);
    store.inodes.remove(cell);
}

/// An error for one directory that was due left out all others that were due at the same time: they got no
/// event until something below them changed again.
#[test]
fn an_error_of_one_leaves_the_others_due() {
    let volume = Volume::memory(64 << 20).unwrap();
    let view = volume.view();
    let hourly = Versioning::Interval(3_600_000_000_000);
    let policy = Policy { versioning: Some(hourly), ..Policy::default() };
    let mut sound = BTreeSet::new();
    for i in 0..12 {
        let name = format!("d{i}");
        volume.create_dir(&name).unwrap();
        let no = volume.node(&name).unwrap().inode();
        view.set_policy(no, &policy).unwrap();
        sound.insert(no);
    }
    volume.write("damaged", "text").unwrap();
    volume.sync().unwrap();
    let store = view.store();
    let cell = store.cell(volume.node("damaged").unwrap().inode()).unwrap();
    damage(&volume, &cell);
    let before = view.events().unwrap().last().unwrap().number;
    for no in sound.iter().chain([&cell.no]) {
        store.due.put(*no, Duration::ZERO);
    }
    let failed = take_due_events(store);
    assert!(matches!(failed, Err(Error::Corruption(_))), "{failed:?}");
    let taken = view.events().unwrap().into_iter().filter(|event| event.number > before);
    let taken: Vec<(InodeNo, EventKind)> = taken.map(|event| (event.row.root, event.row.kind)).collect();
    assert!(taken.iter().all(|(_, kind)| *kind == EventKind::Interval), "{taken:?}");
    assert_eq!(taken.into_iter().map(|(root, _)| root).collect::<BTreeSet<_>>(), sound);
    let next = store.due.next().expect("the damaged one is due again");
    assert!(next > Duration::from_secs(1), "{next:?}");
}
