//! Promises of the tree of operations: rows come back, even after the volume was opened again; each class has
//! its own bound; the feature that older programs must know is there before the first row.

use std::sync::Arc;
use yore_check::{check, CheckOptions};
use yore_device::{Device, MemoryDevice};
use yore_fs::{
    EventNo, MkfsOptions, MountOptions, OperationKind, OperationRow, RowClass, Timestamp, View, Volume,
};

fn row(count: u64) -> OperationRow {
    OperationRow {
        time: Timestamp { seconds: count as i64, nanos: 5 },
        kind: OperationKind::Forget,
        uid: 1000,
        first: EventNo(3),
        last: EventNo(9),
        count,
        bytes: 4096,
        path: b"letters/to-\xffanna".to_vec(),
        note: "two lines\nof it".into(),
    }
}

#[test]
fn rows_return_and_are_bounded() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    View::mkfs(&device, &MkfsOptions::default()).unwrap();
    let volume = Volume::open(device.clone(), &MountOptions::default()).unwrap();
    let view = volume.view();
    assert_eq!(view.operations(RowClass::Done).unwrap(), []);
    view.note_operation(RowClass::GivenUp, &row(0)).unwrap();
    for count in 1..=5000 {
        view.note_operation(RowClass::Done, &row(count)).unwrap();
    }
    volume.close().unwrap();

    let report = check(&*device, &CheckOptions::default()).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let volume = Volume::open(device, &MountOptions::default()).unwrap();
    let view = volume.view();
    // What many operations pushed out of their own list is still in the other.
    assert_eq!(view.operations(RowClass::GivenUp).unwrap(), [(1, row(0))]);
    let rows = view.operations(RowClass::Done).unwrap();
    assert_eq!(rows.len(), 4096);
    let expected: Vec<(u64, OperationRow)> = (5000 - 4095..=5000).map(|count| (count, row(count))).collect();
    assert_eq!(rows, expected);
    volume.close().unwrap();
}
