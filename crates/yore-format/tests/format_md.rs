//! Promises: the tables and constants of `docs/FORMAT.md` are those of the code. Structures of fixed size are
//! compared with their definitions. Cells are encoded by hand, so their tables are compared with the bytes
//! that change when a field does.

use std::collections::BTreeMap;
use yore_format::layout::*;
use yore_format::*;

/// One row of a table of the page.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    offset: usize,
    /// `None` if the field has no fixed size.
    size: Option<usize>,
    field: String,
}

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/FORMAT.md");
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The cells of each row of the first table under the heading, without the two header lines.
fn table_under(heading: &str) -> Vec<Vec<String>> {
    let page = page();
    let (_, rest) = page
        .split_once(&format!("\n{heading}\n"))
        .unwrap_or_else(|| panic!("FORMAT.md has no heading `{heading}`"));
    rest.lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_string()).collect())
        .collect()
}

fn rows(heading: &str) -> Vec<Row> {
    table_under(heading)
        .iter()
        .map(|cells| Row {
            offset: cells[0].parse().unwrap_or_else(|_| panic!("{heading}: offset {:?}", cells[0])),
            size: match cells[1].as_str() {
                "–" => None,
                n => Some(n.parse().unwrap_or_else(|_| panic!("{heading}: size {n:?}"))),
            },
            field: cells[2].clone(),
        })
        .collect()
}

/// Promises that every structure of fixed size has a table with its fields, and that the fields leave no gap.
#[test]
fn tables_are_the_structs() {
    for layout in layout_tables() {
        let heading = format!("### {} ({} bytes)", layout.name, layout.size);
        let found = rows(&heading);
        let expected: Vec<Row> = layout
            .fields
            .iter()
            .map(|f| Row { offset: f.offset, size: Some(f.size), field: f.name.to_string() })
            .collect();
        assert_eq!(found, expected, "{heading}");
        let mut end = 0;
        for field in &layout.fields {
            assert_eq!(field.offset, end, "{}: gap before {}", layout.name, field.name);
            end += field.size;
        }
        assert_eq!(end, layout.size, "{}", layout.name);
    }
}

/// Promises that the page has no table of a structure that the code does not have.
#[test]
fn every_table_of_bytes_is_compared() {
    let known: Vec<String> = layout_tables().iter().map(|l| format!("### {} (", l.name)).collect();
    for line in page().lines().filter(|l| l.starts_with("### ") && l.ends_with("bytes)")) {
        assert!(known.iter().any(|k| line.starts_with(k)), "{line}");
    }
}

/// Promises the values of the constants.
#[test]
fn constants_are_the_constants() {
    let expected: BTreeMap<&str, u64> = [
        ("BLOCK_SIZE", BLOCK_SIZE as u64),
        ("FORMAT_MAJOR", FORMAT_MAJOR.into()),
        ("FORMAT_MINOR", FORMAT_MINOR.into()),
        ("GROUP_BLOCKS", GROUP_BLOCKS),
        ("ZONE_BLOCKS", ZONE_BLOCKS),
        ("ZONE_INDEXES", ZONE_INDEXES.into()),
        ("FIRST_SLOT", FIRST_SLOT),
        ("ZONE_TABLE_ENTRIES", ZONE_TABLE_ENTRIES as u64),
        ("ROOT_ZONES_MAX", ROOT_ZONES_MAX as u64),
        ("EXTRA_ZONES_PER_GROUP", EXTRA_ZONES_PER_GROUP as u64),
        ("VOLUME_BLOCKS_MIN", VOLUME_BLOCKS_MIN),
        ("VOLUME_BLOCKS_MAX", VOLUME_BLOCKS_MAX),
        ("BITS_PER_GROUP", BITS_PER_GROUP.into()),
        ("HEADER_BYTES", HEADER_BYTES as u64),
        ("INODE_BYTES", INODE_BYTES as u64),
        ("INODES_PER_BLOCK", INODES_PER_BLOCK as u64),
        ("INLINE_BYTES", INLINE_BYTES as u64),
        ("NODE_HEADER_BYTES", NODE_HEADER_BYTES as u64),
        ("NAME_MAX", NAME_MAX as u64),
        ("DIRENT_FIXED_BYTES", DIRENT_FIXED_BYTES as u64),
        ("EXTENT_VALUE_BYTES", EXTENT_VALUE_BYTES as u64),
        ("EXTENT_INLINE_BYTES", EXTENT_INLINE_BYTES as u64),
        ("EXTENT_LEN_MAX", EXTENT_LEN_MAX.into()),
        ("SYMLINK_CHUNK_BYTES", SYMLINK_CHUNK_BYTES as u64),
        ("SYMLINK_MAX", SYMLINK_MAX as u64),
        ("XATTR_CHUNK_BYTES", XATTR_CHUNK_BYTES as u64),
        ("XATTR_VALUE_MAX", XATTR_VALUE_MAX as u64),
        ("FILE_SIZE_MAX", FILE_SIZE_MAX),
        ("LOG_PATH_MAX", LOG_PATH_MAX as u64),
        ("EVENT_LIMIT", EVENT_LIMIT),
        ("INODE_LIMIT", INODE_LIMIT),
        ("ROW_BYTES_MAX", ROW_BYTES_MAX as u64),
        ("TABLE_ENTRIES", TABLE_ENTRIES as u64),
        ("TABLES_PER_GROUP", TABLES_PER_GROUP as u64),
    ]
    .into();
    let table = table_under("## Constants");
    let found: BTreeMap<&str, u64> =
        table.iter().map(|row| (row[0].as_str(), row[1].parse().expect("a number"))).collect();
    assert_eq!(found, expected);
}

/// Promises the numbers of the kinds of blocks.
#[test]
fn kinds_are_the_kinds() {
    let names: Vec<(u8, String)> = page()
        .lines()
        .skip_while(|l| !l.starts_with("| kind | what |"))
        .skip(2)
        .take_while(|l| l.starts_with('|'))
        .map(|l| {
            let cells: Vec<&str> = l.trim_matches('|').split('|').map(str::trim).collect();
            (cells[0].parse().expect("a number"), cells[1].to_string())
        })
        .collect();
    assert_eq!(names.len(), (0..=255).filter_map(BlockKind::from_repr).count());
    for (kind, name) in names {
        let kind = BlockKind::from_repr(kind).unwrap_or_else(|| panic!("no kind {kind}"));
        // The code's names, which messages use, are shorter than those of the page.
        let short = name.replace("attribute", "xattr").replace("symbolic link", "symlink");
        assert_eq!(kind.name(), short);
    }
}

/// Promises that the page lists the reserved features with their bits, and that this version supports none of
/// them.
#[test]
fn reserved_features_are_the_features() {
    let page: Vec<(u64, String)> = table_under("### Features reserved for 2.3")
        .iter()
        .map(|row| (row[0].parse().expect("a number"), row[1].clone()))
        .collect();
    let reserved = Features::all() - Features::SUPPORTED;
    let code: Vec<(u64, String)> =
        reserved.iter_names().map(|(name, bit)| (bit.bits(), name.to_string())).collect();
    assert_eq!(page, code);
}

/// Promises the roots of the trees of the past, and the bytes of their keys.
#[test]
fn trees_of_the_past_are_the_table() {
    let page: Vec<(String, String)> =
        table_under("## The past").iter().map(|row| (row[0].clone(), row[3].clone())).collect();
    let root = |tree: HistoryTree| match tree {
        HistoryTree::Versions(_) => "2 + 3·s".to_string(),
        HistoryTree::Names(_) => "3 + 3·s".to_string(),
        HistoryTree::Changes(_) => "4 + 3·s".to_string(),
        HistoryTree::Annals(_) => "53 + s".to_string(),
        tree => tree.index().to_string(),
    };
    let mut code = Vec::new();
    for tree in HistoryTree::all() {
        let row = (root(tree), tree.key_width().to_string());
        if !code.contains(&row) {
            code.push(row);
        }
        assert!(tree.kind().key_width().is_none_or(|width| width == tree.key_width()));
    }
    assert_eq!(HistoryTree::Annals(0).index(), 53);
    assert_eq!(page, code);
}

/// Promises a row of the annals and a short event, byte for byte, as the page describes them.
#[test]
fn rows_of_the_annals_are_the_table() {
    let seed = [3; 16];
    let no = InodeNo(0x4_0003);
    let mut inode = Inode {
        mode: 0o100_644,
        links: 1,
        uid: 1000,
        gid: 999,
        size: 300,
        blocks: 1,
        incarnation: Incarnation(200),
        mtime: Timestamp { seconds: 64, nanos: 5 },
        ctime: Timestamp { seconds: 65, nanos: 6 },
        btime: Timestamp { seconds: 64, nanos: 5 },
        parent: InodeNo(0x4_0000),
        parent_incarnation: Incarnation(199),
        parent_cookie: name_cookie(&seed, b"ab") | 9,
        born: EventNo(7),
        ..Inode::free()
    };
    let birth = EventNo(6);
    let extent = ExtentValue { start: BlockNo(130), len: 1, unwritten: true, shared: false, birth };
    ExtentValue::encode_inline(&mut inode, &[(2, extent)]);
    let name = RowName {
        directory: InodeNo(0x4_0000),
        birth: EventNo(8),
        cookie: inode.parent_cookie,
        kind: FileKind::Regular,
        name: b"ab",
    };
    let row = AnnalsRow {
        end: EventNo(10),
        inode: no,
        incarnation: inode.incarnation,
        name: Some(name),
        name_is_reclaimed: false,
        version: Some(std::borrow::Cow::Borrowed(&inode)),
    };
    let bytes = [
        &[0b1011, 0x83, 0x80, 0x10, 0xc8, 1][..], // head, inode, incarnation
        &[5, 2, 9, 2, b'a', b'b'],                // directory −3, age, low, length, name
        &[1, 3, 0xa4, 0x81, 0xe8, 7, 1, 0xac, 2, 1], // has, age, mode, uid, gid −1, size, blocks
        &[0x80, 1, 5, 0, 0, 0, 1, 6, 0, 0, 0],    // mtime, ctime −1
        &[1, 2 | (1 << 2), 2, 0x82, 1, 3, 2],     // incarnation of the parent −1, content, extent
    ]
    .concat();
    assert_eq!(&row.encode()[..], &bytes[..]);
    let event = EventRow {
        time: Timestamp { seconds: -1, nanos: 7 },
        kind: EventKind::Interval,
        state: EventState::Dying,
        held: true,
        root: InodeNo::ROOT,
        root_incarnation: Incarnation(128),
        name: String::new(),
        more: EventMore::default(),
    };
    assert_eq!(event.encode_with(Features::ANNALS), [3 | (2 << 3) | (1 << 5), 1, 7, 0, 0, 0, 16, 0x80, 1]);
}

/// The range of bytes in which two encodings of one length differ.
fn differing(a: &[u8], b: &[u8]) -> std::ops::Range<usize> {
    assert_eq!(a.len(), b.len());
    let first = (0..a.len()).find(|i| a[*i] != b[*i]).expect("they differ");
    let last = (0..a.len()).rfind(|i| a[*i] != b[*i]).expect("they differ");
    first..last + 1
}

/// Compares the table with the range of bytes that changes with each field; reserved fields have no range.
fn compare(heading: &str, changes: &[(&str, std::ops::Range<usize>)]) {
    let rows = rows(heading);
    let mut end = 0;
    for row in &rows {
        assert_eq!(row.offset, end, "{heading}: {}", row.field);
        end = row.offset + row.size.unwrap_or(0);
        if row.field == "reserved" {
            continue;
        }
        let (_, range) = changes
            .iter()
            .find(|(name, _)| *name == row.field)
            .unwrap_or_else(|| panic!("{heading}: nothing changes {}", row.field));
        assert_eq!(range.start, row.offset, "{heading}: {}", row.field);
        if let Some(size) = row.size {
            assert_eq!(range.len(), size, "{heading}: {}", row.field);
        }
    }
    assert_eq!(rows.iter().filter(|r| r.field != "reserved").count(), changes.len(), "{heading}");
}

/// Promises the bytes of directory entries.
#[test]
fn directory_entries_are_the_table() {
    let encode = |inode: u64, incarnation, birth, kind, name: &[u8]| {
        let (inode, incarnation, birth) = (InodeNo(inode), Incarnation(incarnation), EventNo(birth));
        let mut bytes = vec![];
        DirEntry { inode, incarnation, birth, kind, name }.encode(&mut bytes);
        bytes
    };
    let base = encode(0, 0, 0, FileKind::Regular, b"ab");
    let long = encode(0, 0, 0, FileKind::Regular, b"abc");
    compare(
        "### Directory entry",
        &[
            ("inode", differing(&base, &encode(u64::MAX, 0, 0, FileKind::Regular, b"ab"))),
            ("incarnation", differing(&base, &encode(0, u32::MAX, 0, FileKind::Regular, b"ab"))),
            ("birth", differing(&base, &encode(0, 0, u64::MAX, FileKind::Regular, b"ab"))),
            ("kind", differing(&base, &encode(0, 0, 0, FileKind::Fifo, b"ab"))),
            ("name_length", differing(&base, &long[..base.len()])),
            ("name", differing(&base, &encode(0, 0, 0, FileKind::Regular, b"xy"))),
        ],
    );
    assert_eq!(base[20], 8);
}

/// Promises the bytes and bits of extents.
#[test]
fn extents_are_the_table() {
    let extent = |start, len, unwritten, shared, birth| {
        ExtentValue { start: BlockNo(start), len, unwritten, shared, birth: EventNo(birth) }.encode()
    };
    let base = extent(0, 1, false, false, 0);
    let full = extent(0, EXTENT_LEN_MAX - 1, true, true, 0);
    compare(
        "### Extent",
        &[
            ("start", differing(&base, &extent(u64::MAX, 1, false, false, 0))),
            ("len_and_flags", differing(&base, &full)),
            ("birth", differing(&base, &extent(0, 1, false, false, u64::MAX))),
        ],
    );
    assert_eq!(extent(0, 1, true, false, 0)[8..12], (1u32 | 1 << 30).to_le_bytes());
    assert_eq!(extent(0, 1, false, true, 0)[8..12], (1u32 | 1 << 31).to_le_bytes());
}

/// Promises the bytes of attributes' cells.
#[test]
fn attributes_are_the_tables() {
    let first = |namespace, name: &[u8], value_len, chunk: &[u8]| {
        XattrCell::First { namespace, name, value_len, chunk }.encode()
    };
    let base = first(XattrNamespace::User, b"ab", 0, b"");
    let other_kind = XattrCell::Rest(&base[1..]).encode();
    compare(
        "### Attribute, first chunk",
        &[
            ("kind", differing(&base, &other_kind)),
            ("namespace", differing(&base, &first(XattrNamespace::System, b"ab", 0, b""))),
            ("name_length", differing(&base[..10], &first(XattrNamespace::User, b"abc", 0, b"")[..10])),
            ("value_length", differing(&base, &first(XattrNamespace::User, b"ab", u32::MAX, b""))),
            ("name_and_value", differing(&base, &first(XattrNamespace::User, b"xy", 0, b""))),
        ],
    );
    let rest = XattrCell::Rest(b"ab").encode();
    compare(
        "### Attribute, further chunk",
        &[
            ("kind", differing(&rest, &[1, b'a', b'b'])),
            ("value", differing(&rest, &XattrCell::Rest(b"xy").encode())),
        ],
    );
    assert_eq!(rest[0], 0);
}

/// Promises the bytes of cells in a node.
#[test]
fn cells_are_the_table() {
    let cell = |key: u64, value: &[u8], live: bool| {
        let mut block = ZERO_BLOCK;
        let kind = BlockKind::Extents;
        BlockHeader::init(&mut block, kind, 0, MetaAddr(5), InodeNo(16), Incarnation(1), 9, EventNo(0));
        let mut node = NodeMut::init(&mut block, 8);
        node.insert(0, &key.to_be_bytes(), value);
        if !live {
            node.remove(0);
        }
        block[BLOCK_SIZE - 12 - value.len()..].to_vec()
    };
    let base = cell(0, b"ab", true);
    let high = cell(0, &[0; 0x0110], true);
    compare(
        "### Cell",
        &[
            ("size", differing(&base[..4], &high[..4])),
            ("flags", differing(&base, &cell(0, b"ab", false))),
            ("key", differing(&base, &cell(u64::MAX, b"ab", true))),
            ("value", differing(&base, &cell(0, b"xy", true))),
        ],
    );
    assert_eq!((base[2], base[3]), (1, 0));
}
