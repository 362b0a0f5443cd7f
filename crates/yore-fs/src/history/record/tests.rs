//! Cases that callers cannot bring about: events that come in between.

use super::{OldName, Prepared};
use crate::{dir, InodeNo, NewSnapshot, Volume};
use yore_core::btree::Pins;
use yore_format::EventNo;

/// An event is taken while a name that was just made is about to be removed again. What was prepared before
/// anybody notices should be thrown away. But the preparation was refused as damage, because an end of that
/// name with the same number existed already, from an earlier move of the name.
#[test]
fn a_name_does_not_end_twice_with_one_number() {
    let volume = Volume::memory(64 << 20).unwrap();
    let view = volume.view();
    let event =
        |volume: &Volume| volume.view().take_snapshot(view.root(), &NewSnapshot::default()).unwrap().number;
    volume.write("a", "content").unwrap();
    event(&volume);
    volume.rename("a", "b").unwrap();
    volume.rename("b", "a").unwrap();
    let store = view.store();
    let number = store.number();
    let root = store.cell(InodeNo::ROOT).unwrap();
    assert_eq!(event(&volume), number, "what comes between");
    let state = root.state.write();
    let mut pins = Pins::new();
    let found = dir::lookup_to_change(store, &state, InodeNo::ROOT, b"a", &mut pins).unwrap();
    let dir::Lookup::Taken(found, _) = found else { panic!("it is there") };
    let old_name = OldName {
        excluded: false,
        directory: &root,
        inode: &state.inode,
        cookie: found.cookie,
        entry: found.entry(b"a"),
        cover: EventNo(0),
    };
    assert_eq!(found.birth, number);
    let prepared = store.past.prepare(store, number, &[], &[old_name]).unwrap();
    let Prepared::Ready(recording) = prepared else { panic!("there is nothing in the way") };
    assert!(recording.is_empty(), "nobody has seen it");
}
