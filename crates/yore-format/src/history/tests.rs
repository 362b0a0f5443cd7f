//! Promises: what is encoded can be decoded; keys sort as what they stand for; any bytes are decoded or
//! refused.

use super::*;
use crate::*;
use proptest::prelude::*;

fn row(name: &str) -> EventRow {
    EventRow {
        time: Timestamp { seconds: -5, nanos: 999_999_999 },
        kind: EventKind::Close,
        state: EventState::Kept,
        held: true,
        root: InodeNo(77),
        root_incarnation: Incarnation(9),
        name: name.into(),
        more: EventMore::default(),
    }
}

#[test]
fn an_event_is_decoded_as_it_was_encoded() {
    for name in ["", "before the upgrade", &"x".repeat(EVENT_NAME_MAX)] {
        assert_eq!(EventRow::decode(&row(name).encode()).unwrap(), row(name));
    }
    for wrong in ["a/b", "a@b", "a\0b"] {
        assert!(EventRow::decode(&row(wrong).encode()).is_err(), "{wrong:?}");
    }
}

fn full() -> EventMore {
    EventMore {
        by: Some(1000),
        description: "before the upgrade,\nby hand".into(),
        hold_reason: "audit".into(),
        held_by: Some(0),
        held_until: Some(-1),
        forgotten_for: Some(ForgottenFor::Space),
    }
}

fn operation() -> OperationRow {
    OperationRow {
        time: Timestamp { seconds: 7, nanos: 8 },
        kind: OperationKind::Rollback,
        uid: u32::MAX,
        first: EventNo(3),
        last: EventNo(4),
        count: 2,
        bytes: 1 << 40,
        path: vec![b'x'; OPERATION_PATH_MAX],
        note: "of an hour ago".into(),
    }
}

/// A row has one encoding, and a row of format 2.1 is also one of 2.2: no changed byte gives another encoding
/// of the same row.
#[test]
fn tagged_fields_have_one_encoding() {
    for more in [EventMore::default(), EventMore { held_until: Some(5), ..EventMore::default() }, full()] {
        let row = EventRow { more, ..row("a name") };
        let bytes = row.encode();
        assert_eq!(EventRow::decode(&bytes).unwrap(), row);
        for at in 0..bytes.len() {
            for flip in [1u8, 2, 0x80, 0xff] {
                let mut other = bytes.clone();
                other[at] ^= flip;
                if let Ok(read) = EventRow::decode(&other) {
                    assert_eq!(read.encode(), other, "byte {at}");
                }
            }
        }
        for length in 0..bytes.len() {
            assert!(EventRow::decode(&bytes[..length]).is_err(), "{length} bytes of {row:?}");
        }
    }
    assert_eq!(row("x").encode().len(), EVENT_FIXED_BYTES + 1);
}

#[test]
fn an_operation_is_decoded_as_it_was_encoded() {
    let bytes = operation().encode();
    assert_eq!(OperationRow::decode(&bytes).unwrap(), operation());
    for length in 0..bytes.len() {
        assert!(OperationRow::decode(&bytes[..length]).is_err(), "{length} bytes");
    }
    let mut other = bytes.clone();
    other[48] = 0;
    assert!(OperationRow::decode(&other).is_err(), "of no kind");
}

#[test]
fn a_version_is_decoded_with_its_own_key_only() {
    let inode = Inode { mode: 0o100_644, incarnation: Incarnation(3), born: EventNo(7), ..Inode::free() };
    let version = Version { end: EventNo(9), inode };
    let bytes = version.encode();
    assert_eq!(Version::decode(InodeNo(20), EventNo(7), &bytes).unwrap(), version);
    assert!(Version::decode(InodeNo(20), EventNo(6), &bytes).is_err(), "another birth");
    let early = Version { end: EventNo(7), ..version };
    assert!(Version::decode(InodeNo(20), EventNo(7), &early.encode()).is_err(), "ends when it begins");
}

/// An inode has one encoding: no word is zero, no word lies beyond the inode, nothing follows the words.
#[test]
fn a_version_has_the_words_that_are_not_zero() {
    let mut inode = Inode { mode: 0o100_644, incarnation: Incarnation(3), born: EventNo(7), ..Inode::free() };
    let decode = |bytes: &[u8]| Version::decode(InodeNo(20), EventNo(7), bytes);
    let small = Version { end: EventNo(9), inode: inode.clone() }.encode();
    assert!(small.len() < 64, "{} bytes", small.len());
    for len in 0..small.len() {
        assert!(decode(&small[..len]).is_err(), "{len} bytes of it");
    }
    assert!(decode(&[&small[..], &[0; 4]].concat()).is_err(), "more than it says");
    for bit in 0..64 {
        let mut other = small.clone();
        other[8 + bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&other).is_err(), "word {bit} there or not");
        if small[8 + bit / 8] & (1 << (bit % 8)) == 0 {
            other.extend([0; 4]);
            assert!(decode(&other).is_err(), "word {bit} or a later one is zero");
        }
    }
    inode.set_inline(&[0xff; crate::INLINE_BYTES]);
    inode.size = crate::INLINE_BYTES as u64;
    let full = Version { end: EventNo(9), inode };
    assert_eq!(decode(&full.encode()).unwrap(), full);
}

#[test]
fn a_past_name_is_decoded_with_its_own_key_only() {
    let entry = DirEntry {
        inode: InodeNo(33),
        incarnation: Incarnation(2),
        birth: EventNo(4),
        kind: FileKind::Regular,
        name: b"a name",
    };
    let bytes = PastName { death: EventNo(5), entry }.encode();
    assert_eq!(PastName::decode(EventNo(4), &bytes).unwrap(), PastName { death: EventNo(5), entry });
    assert!(PastName::decode(EventNo(3), &bytes).is_err(), "another birth");
    assert!(PastName::decode(EventNo(4), &PastName { death: EventNo(4), entry }.encode()).is_err());
}

#[test]
fn each_tree_has_a_root_of_its_own() {
    let mut block = crate::ZERO_BLOCK;
    for (i, tree) in HistoryTree::all().enumerate() {
        assert_eq!(tree.index(), i);
        HistoryRoots::set(&mut block, tree, MetaAddr(600 + i as u64), 3);
    }
    assert_eq!(HistoryTree::all().count(), HISTORY_ROOTS);
    for (i, tree) in HistoryTree::all().enumerate() {
        assert_eq!(HistoryRoots::get(&block, tree), (MetaAddr(600 + i as u64), 3));
    }
}

proptest! {
    #[test]
    fn keys_sort_as_what_they_mean(a in any::<[u64; 3]>(), b in any::<[u64; 3]>()) {
        let name = |k: [u64; 3]| name_key(InodeNo(k[0]), k[1], EventNo(k[2]));
        prop_assert_eq!(name(a).cmp(&name(b)), a.cmp(&b));
        prop_assert_eq!(key_parts::<3>(&name(a)).unwrap(), a);
        let version = |k: [u64; 3]| version_key(InodeNo(k[0]), EventNo(k[1]));
        prop_assert_eq!(version(a).cmp(&version(b)), a[..2].cmp(&b[..2]));
        let name_end = |k: [u64; 3]| name_end_key(EventNo(k[0]), InodeNo(k[1]), k[2]);
        prop_assert_eq!(name_end(a).cmp(&name_end(b)), a.cmp(&b));
        prop_assert_eq!(key_parts::<3>(&name_end(a)).unwrap(), a);
        prop_assert_eq!(version_end_key(EventNo(a[0]), InodeNo(a[1])), name_end([a[0], a[1], 0]));
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400), number in 0..9u64) {
        let _ = EventRow::decode(&bytes);
        let _ = OperationRow::decode(&bytes);
        let _ = Version::decode(InodeNo(16), EventNo(number), &bytes);
        let _ = PastName::decode(EventNo(number), &bytes);
        let _ = key_parts::<2>(&bytes);
    }
}

#[test]
fn rollbacks_return() {
    for others in [None, Some((EventNo(4), EventNo(u64::MAX)))] {
        let intent = RollbackIntent { before: EventNo(7), target: EventNo(3), others };
        assert_eq!(RollbackIntent::decode(&intent.encode()), Ok(intent));
        assert_eq!(intent.needs().count(), if others.is_some() { 4 } else { 2 });
    }
    for other in ["", "7", "7 3 4", "7 3 4 5 6", "7  3", "07 3", "+7 3", "0 3", "7 -3", "7 x", "7 3 "] {
        assert!(RollbackIntent::decode(other).is_err(), "{other:?}");
    }
}
