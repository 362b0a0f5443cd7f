//! Errors of the device: who gets them, and what stays as it was.

use super::*;
use crate::history::read::at_time;
use crate::history::record::Taking;
use yore_format::EventMore;

/// A device that fails: whoever syncs gets the error, memory still has the data, and counts stay exact.
#[test]
fn write_errors_are_told_and_stop_writing() {
    let device = Arc::new(SimulatedDevice::new(MemoryDevice::new(32 * MIB)));
    let any: Arc<dyn Device> = device.clone();
    format(&any);
    let store = open(&any, 16 * MIB);
    let file = new_file(&store, "f");
    let cell = &file.cell;
    write(&*store, cell, 0, &vec![1; 3 << 20], false, &mut touch).unwrap();
    device.fail(FaultPlan::none().and(Fault::WriteError { nth: 1 }));
    write_back(&store, cell).unwrap_err();
    assert!(cell.state.read().data.is_busy());
    let promised = cell.state.read().data.delayed_blocks();
    assert_eq!((promised, store.alloc.promised()), (3 << 8, 3 << 8));
    assert_eq!(contents(&store, cell), vec![1; 3 << 20]);
    flush_file(&*store, cell).unwrap_err();
    assert!(matches!(store.meta.sync(), Err(yore_meta::MetaError::Stopped { .. })));
    drop(file);
    store.close().unwrap_err();
}

/// A read failed while the file was written back in the background, and worked when it was tried again. The
/// file can be changed after a snapshot, and its next fsync returns the error. The change once waited for
/// ever, until the error was reported first.
#[test]
fn an_error_not_yet_told_does_not_keep_a_version_from_being_made() {
    let device = make(64 * MIB);
    let store = open(&device, 8 * MIB);
    let file = new_file(&store, "f");
    let cell = &file.cell;
    write(&*store, cell, 0, &[1; 5000], false, &mut touch).unwrap();
    super::flush::note_failed(&store, cell, &crate::Error::NoDataThere);
    let unnamed = Taking {
        kind: EventKind::Snapshot,
        name: "",
        held: false,
        more: EventMore::default(),
        time: None,
        user: None,
    };
    let event = at_time::take(&store, InodeNo::ROOT, unnamed, false).unwrap().number;
    write(&*store, cell, 0, &[2; 5000], false, &mut touch).unwrap();
    assert_eq!(contents(&store, cell), [2; 5000]);
    let mut then = [0; 5000];
    at_time::read(&store, cell.no, event, 0, &mut then).unwrap();
    assert_eq!(then, [1; 5000]);
    assert!(matches!(flush_file(&*store, cell), Err(crate::Error::NoDataThere)));
    flush_file(&*store, cell).unwrap();
    drop(file);
    store.close().unwrap();
}

/// A block cannot be read. Pages before it were read along with it, and were said to be unreadable, too.
#[test]
fn a_page_that_cannot_be_read_costs_itself_alone() {
    let device = Arc::new(SimulatedDevice::new(MemoryDevice::new(64 * MIB)));
    let any: Arc<dyn Device> = device.clone();
    format(&any);
    let store = open(&any, 16 * MIB);
    let file = new_file(&store, "file");
    let cell = &file.cell;
    write(&*store, cell, 0, &vec![5; 8 * PAGE as usize], false, &mut touch).unwrap();
    write_back(&store, cell).unwrap();
    let block = map_block(&store, cell.no, &cell.state.read(), 5).unwrap().extent.unwrap().start;
    device.fail(Fault::UnreadableRange { offset: block.0 * PAGE, len: PAGE }.into());
    for len in [PAGE, 2 * PAGE] {
        evict(&store);
        let mut buf = vec![0; len as usize];
        for page in (0..8).step_by((len / PAGE) as usize) {
            let has_bad = (page..page + len / PAGE).contains(&5);
            let outcome = read(&store, cell, page * PAGE, &mut buf);
            assert_eq!(outcome.is_err(), has_bad, "page {page}: {outcome:?}");
            assert!(has_bad || buf.iter().all(|byte| *byte == 5));
        }
    }
}
