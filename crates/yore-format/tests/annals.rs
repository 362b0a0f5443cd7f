//! Promises: rows of the annals come back, whatever the inode is; any bytes are a row with this one encoding,
//! or refused; a row is never longer than its bound; and how many bytes usual rows take.

mod common;

use common::{inode, kind};
use proptest::collection::vec;
use proptest::prelude::*;
use std::borrow::Cow;
use yore_format::*;

const SEED: [u8; 16] = [3; 16];

/// An inode number that a key can have.
fn file() -> impl Strategy<Value = InodeNo> {
    common::file().prop_map(|no| InodeNo((no.0 % INODE_LIMIT) | (1 << 13)))
}

fn name_bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>().prop_filter("allowed", |b| !matches!(b, 0 | b'/')), 1..=NAME_MAX)
        .prop_filter("a name", |name| name != b"." && name != b"..")
}

/// A name as a call knows it, with a cookie that it can have.
#[derive(Clone, Debug)]
struct OwnedName {
    directory: InodeNo,
    age: u64,
    low: u8,
    kind: FileKind,
    name: Vec<u8>,
}

prop_compose! {
    fn owned_name()(
        directory in file(),
        age in 1u64..1 << 40,
        low in prop_oneof![Just(0u8), any::<u8>()],
        kind in kind(),
        name in name_bytes(),
    ) -> OwnedName {
        OwnedName { directory, age, low, kind, name }
    }
}

impl OwnedName {
    fn at(&self, end: EventNo) -> RowName<'_> {
        RowName {
            directory: self.directory,
            birth: EventNo(end.0 - self.age),
            cookie: name_cookie(&SEED, &self.name) | u64::from(self.low),
            kind: self.kind,
            name: &self.name,
        }
    }
}

/// The part of an inode that a row keeps.
fn kept(mut inode: Inode) -> Inode {
    inode.atime = inode.mtime;
    inode.own_event = EventNo(0);
    if inode.is_directory() {
        inode.set_inline(b"");
    }
    inode
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Promises that no inode is too strange: numbers of any size, impossible extents, blocks anywhere.
    #[test]
    fn rows_come_back(
        no in file(),
        inode in inode(),
        end in 1u64 << 40..1 << 48,
        age in 1u64..1 << 40,
        name in prop::option::of(owned_name()),
        same_place in any::<bool>(),
        no_place in any::<bool>(),
        has_version in any::<bool>(),
        usual in any::<bool>(),
        name_is_reclaimed in any::<bool>(),
    ) {
        let end = EventNo(end);
        let mut inode = Inode { born: EventNo(end.0 - age), ..inode };
        if usual {
            inode.ctime = inode.mtime;
            inode.btime = inode.mtime;
            inode.links = 1 + u32::from(inode.is_directory());
            inode.rdev = 0;
        }
        if no_place {
            (inode.parent, inode.parent_incarnation, inode.parent_cookie) = (InodeNo::NONE, Incarnation(0), 0);
        }
        let has_version = has_version || name.is_none();
        let name = name.as_ref().map(|name| name.at(end));
        if let (Some(name), true) = (&name, same_place) {
            (inode.parent, inode.parent_cookie) = (name.directory, name.cookie);
        }
        let row = AnnalsRow {
            end,
            inode: no,
            incarnation: inode.incarnation,
            name,
            name_is_reclaimed: name_is_reclaimed && has_version && name.is_some(),
            version: has_version.then_some(Cow::Borrowed(&inode)),
        };
        let bytes = row.encode();
        let found = AnnalsRow::decode(end, &bytes, &SEED).unwrap();
        prop_assert_eq!(&found.version, &has_version.then(|| Cow::Owned(kept(inode.clone()))));
        prop_assert_eq!(&AnnalsRow { version: None, ..found.clone() }, &AnnalsRow { version: None, ..row });
        prop_assert_eq!(&found.encode()[..], &bytes[..]);
        halves_are_no_longer(&found)?;
    }

    /// Promises that bytes that decode to a row are the only encoding of that row.
    #[test]
    fn any_bytes_are_a_row_or_refused(
        head in prop::sample::select(vec![1u8, 2, 3, 7, 0x82, 0x8a, 0x43, 0x83]),
        bytes in vec(prop_oneof![any::<u8>(), 0u8..8], 0..120),
    ) {
        let bytes = [vec![head], bytes].concat();
        if let Ok(row) = AnnalsRow::decode(EventNo(1 << 20), &bytes, &SEED) {
            prop_assert_eq!(&row.encode()[..], &bytes[..]);
        }
    }

    /// Promises the same of rows in which a few bytes are wrong, and that no part of a row is a row.
    #[test]
    fn changed_rows_are_rows_or_refused(
        inode in inode(),
        name in prop::option::of(owned_name()),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        prefix in any::<prop::sample::Index>(),
    ) {
        let end = EventNo(1 << 41);
        let inode = Inode { born: EventNo(1 << 40), ..inode };
        let name = name.as_ref().map(|name| name.at(end));
        let (incarnation, version) = (inode.incarnation, Some(Cow::Borrowed(&inode)));
        let no = InodeNo(1 << 20);
        let row = AnnalsRow { end, inode: no, incarnation, name, name_is_reclaimed: false, version };
        let mut bytes = row.encode().to_vec();
        prop_assert!(AnnalsRow::decode(end, &bytes[..prefix.index(bytes.len())], &SEED).is_err());
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(row) = AnnalsRow::decode(end, &bytes, &SEED) {
            prop_assert_eq!(&row.encode()[..], &bytes[..]);
        }
    }

    #[test]
    fn keys_come_back_and_sort_as_what_they_mean(
        a in (0..INODE_LIMIT, any::<u64>(), 0..EVENT_LIMIT, 0..EVENT_LIMIT, any::<u32>()),
        b in (0..INODE_LIMIT, any::<u64>(), 0..EVENT_LIMIT, 0..EVENT_LIMIT, any::<u32>()),
    ) {
        let annals = |k: (u64, u64, u64, u64, u32)| AnnalsKey { end: EventNo(k.2), sequence: k.4 };
        prop_assert_eq!(AnnalsKey::decode(&annals(a).encode()).unwrap(), annals(a));
        prop_assert_eq!(annals(a).encode().cmp(&annals(b).encode()), annals(a).cmp(&annals(b)));
        let inode = |k: (u64, u64, u64, u64, u32)| InodeIndexCell::key(InodeNo(k.0), EventNo(k.2));
        prop_assert_eq!(inode(a).cmp(&inode(b)), (a.0, a.2).cmp(&(b.0, b.2)));
        let name = |k: (u64, u64, u64, u64, u32)| NameIndexCell::key(InodeNo(k.0), k.1, EventNo(k.2));
        prop_assert_eq!(name(a).cmp(&name(b)), (a.0, a.1, a.2).cmp(&(b.0, b.1, b.2)));
        let span = |k: (u64, u64, u64, u64, u32)| SpanCell::key(InodeNo(k.0), EventNo(k.2), EventNo(k.3));
        prop_assert_eq!(span(a).cmp(&span(b)), (a.0, a.2, a.3).cmp(&(b.0, b.2, b.3)));
        // A key of another tree is not a key here.
        prop_assert!(AnnalsKey::decode(&inode(a)).is_err() && InodeIndexCell::decode(&name(a), &[1, 0]).is_err());
        prop_assert!(NameIndexCell::decode(&span(a), &[1, 0]).is_err());
    }

    #[test]
    fn cells_come_back(
        (inode, cookie, sequence, shard) in (0..INODE_LIMIT, any::<u64>(), any::<u32>(), 0..HISTORY_SHARDS),
        (end, age) in (1..EVENT_LIMIT).prop_flat_map(|end| (Just(EventNo(end)), 1..=end)),
        (data, nodes) in any::<(u64, u64)>(),
        extra in any::<u8>(),
    ) {
        let (inode, began) = (InodeNo(inode), EventNo(end.0 - age));
        let cell = InodeIndexCell { inode, end, born: began, sequence };
        let (key, value) = (InodeIndexCell::key(inode, end), cell.value());
        prop_assert_eq!(InodeIndexCell::decode(&key, &value).unwrap(), cell);
        prop_assert!(InodeIndexCell::decode(&key, &[&value[..], &[extra]].concat()).is_err());
        let cell = NameIndexCell { directory: inode, cookie, death: end, birth: began, sequence, shard };
        let (key, value) = (NameIndexCell::key(inode, cookie, end), cell.value());
        prop_assert_eq!(NameIndexCell::decode(&key, &value).unwrap(), cell);
        prop_assert!(NameIndexCell::decode(&key, &value[..value.len() - 1]).is_err());
        let cell = SpanCell { class: inode, first: began, last: end, data, nodes };
        prop_assert_eq!(SpanCell::decode(&SpanCell::key(inode, began, end), &cell.value()).unwrap(), cell);
        prop_assert!(SpanCell::decode(&SpanCell::key(inode, end, began), &cell.value()).is_err());
    }

    #[test]
    fn cells_of_noise_never_panic(bytes in vec(any::<u8>(), 0..24), key in vec(any::<u8>(), 19)) {
        if let Ok(cell) = InodeIndexCell::decode(&key[..11], &bytes) {
            prop_assert_eq!(&cell.value()[..], &bytes[..]);
        }
        if let Ok(cell) = NameIndexCell::decode(&key, &bytes) {
            prop_assert_eq!(&cell.value()[..], &bytes[..]);
        }
        if let Ok(cell) = SpanCell::decode(&key[..17], &bytes) {
            prop_assert_eq!(&cell.value()[..], &bytes[..]);
        }
    }
}

/// Promises what rewriting a row in place relies on: no change that a row may undergo makes it longer.
fn halves_are_no_longer(row: &AnnalsRow<'_>) -> Result<(), TestCaseError> {
    let whole = row.encode().len();
    let (Some(name), Some(_)) = (row.name, &row.version) else { return Ok(()) };
    let reclaimed = AnnalsRow { name_is_reclaimed: true, ..row.clone() };
    prop_assert_eq!(reclaimed.encode().len(), whole);
    let later = RowName { birth: EventNo(row.end.0 - 1), ..name };
    let later = AnnalsRow { name: Some(later), ..row.clone() };
    prop_assert!(later.encode().len() <= whole);
    if !row.name_is_reclaimed {
        let half = row.clone().without_version();
        let bytes = half.encode();
        prop_assert!(bytes.len() < whole);
        prop_assert_eq!(AnnalsRow::decode(row.end, &bytes, &SEED).unwrap(), half);
    }
    Ok(())
}

/// Promises that a state that was born when it ended, or later, is encoded like any other, and refused when
/// it is read.
#[test]
fn a_damaged_birth_is_refused_when_it_is_read() {
    let (end, no) = (EventNo(9), InodeNo(77));
    for born in [9, 10, u64::MAX] {
        let inode =
            Inode { mode: 0o100_644, incarnation: Incarnation(3), born: EventNo(born), ..Inode::free() };
        let (incarnation, version) = (inode.incarnation, Some(Cow::Borrowed(&inode)));
        let row = AnnalsRow { end, inode: no, incarnation, name: None, name_is_reclaimed: false, version };
        let c = AnnalsRow::decode(end, &row.encode(), &SEED).unwrap_err();
        assert_eq!(c.field, "birth");
    }
}

/// An inode in which each field has its longest encoding.
fn worst(no: InodeNo) -> Inode {
    let far = i64::MIN;
    let time = |seconds: i64| Timestamp { seconds, nanos: 999_999_999 };
    let mut inode = Inode {
        mode: 0o120_777,
        links: u32::MAX,
        uid: u32::MAX,
        gid: u32::MAX / 2,
        size: u64::MAX,
        blocks: u64::MAX,
        incarnation: Incarnation(u32::MAX),
        flags: InodeFlags::all(),
        mtime: time(far),
        ctime: time(0),
        btime: time(0),
        parent: InodeNo(no.0 ^ 1 << 63),
        parent_incarnation: Incarnation(u32::MAX / 2),
        parent_cookie: 7,
        born: EventNo(0),
        has_policy: true,
        rdev: u32::MAX,
        xattr_root: MetaAddr::new(ZoneNo((1 << 30) - 1), 509),
        ..Inode::free()
    };
    inode.set_inline(&[0xff; INLINE_BYTES]);
    inode.content_kind = ContentKind::Extents;
    inode.content_count = 4;
    inode.content[96..].fill(0);
    inode
}

/// Promises that the longest row there can be is within the bound, and comes back.
#[test]
fn the_longest_row_is_within_the_bound() {
    let (no, end, longest) =
        (InodeNo((INODE_LIMIT - 1) & !0x1fff), EventNo(EVENT_LIMIT - 1), [b'x'; NAME_MAX]);
    let inode = worst(no);
    let cookie = name_cookie(&SEED, &longest) | 1;
    let kind = FileKind::Regular;
    let name = RowName { directory: InodeNo::ROOT, birth: EventNo(0), cookie, kind, name: &longest };
    let row = AnnalsRow {
        end,
        inode: no,
        incarnation: inode.incarnation,
        name: Some(name),
        name_is_reclaimed: false,
        version: Some(Cow::Borrowed(&inode)),
    };
    let bytes = row.encode();
    assert!((480..=ROW_BYTES_MAX).contains(&bytes.len()), "{} bytes", bytes.len());
    assert_eq!(AnnalsRow::decode(end, &bytes, &SEED).unwrap().version.unwrap().into_owned(), kept(inode));
}

const DAY: i64 = 86_400;
const NOW: i64 = 1_790_000_000;

/// A file of a volume of some 100 GiB: its inode's number has 4 bytes, its incarnation 3.
const FILE: InodeNo = InodeNo(1_000 * 8192 + 16 * 70 + 3);
const DIRECTORY: InodeNo = InodeNo(1_000 * 8192 + 16 * 3);
const END: EventNo = EventNo(2_200);

fn usual(mode: u32, extents: usize) -> Inode {
    let mut inode = Inode {
        mode,
        links: 1,
        uid: 1000,
        gid: 1000,
        size: 4096 * 12 + 700,
        blocks: 13,
        incarnation: Incarnation(300_000),
        mtime: Timestamp { seconds: NOW, nanos: 123_456_789 },
        ctime: Timestamp { seconds: NOW, nanos: 123_456_789 },
        btime: Timestamp { seconds: NOW - 20 * DAY, nanos: 987_654_321 },
        parent: DIRECTORY,
        parent_incarnation: Incarnation(299_000),
        parent_cookie: name_cookie(&SEED, b"twelve bytes"),
        born: EventNo(END.0 - 300),
        ..Inode::free()
    };
    match extents {
        0 => {}
        1..=4 => {
            let extent = |i: u64| {
                let (start, birth) = (BlockNo(20_000_000 + i * 5_000), EventNo(END.0 - 310));
                (i * 3, ExtentValue { start, len: 3, unwritten: false, shared: false, birth })
            };
            let extents: Vec<_> = (0..extents as u64).map(extent).collect();
            ExtentValue::encode_inline(&mut inode, &extents);
        }
        _ => inode.set_tree_root(MetaAddr::new(ZoneNo(1_000), 77), 0),
    }
    inode
}

/// Promises how many bytes usual rows take (ANNALS.md, 3.3); `--nocapture` prints the figures.
#[test]
fn usual_rows_are_short() {
    let version = |inode: &Inode, name: Option<RowName<'_>>| {
        let (incarnation, version) = (inode.incarnation, Some(Cow::Borrowed(inode)));
        let row = AnnalsRow { end: END, inode: FILE, incarnation, name, name_is_reclaimed: false, version };
        row.encode().len()
    };
    let name = |kind, name| {
        let (birth, cookie) = (EventNo(END.0 - 310), name_cookie(&SEED, name));
        RowName { directory: DIRECTORY, birth, cookie, kind, name }
    };
    let twelve = name(FileKind::Regular, &b"twelve bytes"[..]);
    let alone = AnnalsRow {
        end: END,
        inode: FILE,
        incarnation: Incarnation(300_000),
        name: Some(twelve),
        name_is_reclaimed: false,
        version: None,
    };
    let mut directory = Inode { links: 7, size: 90, blocks: 2, ..usual(0o040_755, 0) };
    directory.content_kind = ContentKind::Empty;
    let mut small = usual(0o100_644, 0);
    small.set_inline(&[b'x'; 60]);
    let rows = [
        ("version of a file, 1 extent", version(&usual(0o100_644, 1), None), 57),
        ("version of a file, 2 extents", version(&usual(0o100_644, 2), None), 64),
        ("version of a file, 3 extents", version(&usual(0o100_644, 3), None), 71),
        ("version of a file, 4 extents", version(&usual(0o100_644, 4), None), 78),
        ("version of a file, 5 or 6 extents (a tree)", version(&usual(0o100_644, 6), None), 53),
        ("version of a file, 60 bytes inline", version(&small, None), 111),
        ("version of a directory", version(&directory, None), 49),
        ("name of 12 bytes", alone.encode().len(), 25),
        ("both, 1 extent, name of 12 bytes", version(&usual(0o100_644, 1), Some(twelve)), 64),
    ];
    for (what, bytes, _) in rows {
        println!("{what}: {bytes}");
    }
    for (what, bytes, expected) in rows {
        assert_eq!(bytes, expected, "{what}");
    }
}
