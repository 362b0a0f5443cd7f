//! Promises: the tables and values of `docs/FORMAT.md`, "The log", are those of the code. Reading any bytes
//! gives what was written, or nothing.

use std::mem::{offset_of, size_of};

use super::*;

/// The rows of the table under a heading: offset, size, field.
fn rows(heading: &str) -> Vec<(usize, usize, String)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/FORMAT.md");
    let page = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let (_, rest) = page
        .split_once(&format!("\n{heading}\n"))
        .unwrap_or_else(|| panic!("FORMAT.md has no heading `{heading}`"));
    rest.lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let number = |n: usize| cells[n].parse().unwrap_or_else(|_| panic!("{heading}: {:?}", cells[n]));
            (number(0), number(1), cells[2].to_string())
        })
        .collect()
}

fn size_of_field<S, F>(_get: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// Compares a table with the fields of a structure, which leave no gap.
macro_rules! compare {
    ($heading:literal, $type:ty: $($field:ident),*) => {{
        let fields = [$((offset_of!($type, $field), size_of_field(|s: &$type| &s.$field), stringify!($field))),*];
        let expected: Vec<_> = fields.iter().map(|f| (f.0, f.1, f.2.to_string())).collect();
        let heading = format!("### {}, {} bytes", $heading, size_of::<$type>());
        assert_eq!(rows(&heading), expected, "{heading}");
        let mut end = 0;
        for (offset, size, field) in fields {
            assert_eq!(offset, end, "{heading}: gap before {field}");
            end += size;
        }
        assert_eq!(end, size_of::<$type>(), "{heading}");
    }};
}

#[test]
fn tables_are_the_structs() {
    compare!("Log batch header", BatchHeader: magic, version, header_crc, body_crc, count, length, gap, log, session,
        sequence, number, previous, block);
    compare!("Log record header", RecordHeader: number, time, length, reserved);
    compare!("Log position", RawPosition: number, sequence, block, chain);
    compare!("Log anchor", Anchor: magic, version, crc, generation, log, blocks, session, durable, oldest, owner);
}

#[test]
fn values_are_the_values() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/FORMAT.md");
    let page = std::fs::read_to_string(path).expect("FORMAT.md");
    let (_, log) = page.split_once("\n## The log\n").expect("a section on the log");
    // Line breaks in the document mean nothing.
    let log = log.split_whitespace().collect::<Vec<_>>().join(" ");
    let escape = |magic: [u8; 8]| magic.escape_ascii().to_string();
    for text in [
        format!("`{}`", escape(BATCH_MAGIC)),
        format!("`{}`", escape(ANCHOR_MAGIC)),
        format!("version {VERSION}"),
        format!("version {OWNED_VERSION}"),
        format!("version {KEPT_VERSION}"),
        format!("at most {BATCH_BYTES_MAX} bytes"),
        format!("version | {VERSION}, or {GAP_VERSION} if there is a gap"),
        format!("at most {GAP_BLOCKS_MAX} blocks"),
        format!("{} to {} blocks", crate::REGION_BLOCKS_MIN, crate::REGION_BLOCKS_MAX),
    ] {
        assert!(log.contains(&text), "the section on the log does not say {text}");
    }
}

/// Positions survive being turned into bytes and back, and the first bytes are the first field.
#[test]
fn positions_are_plain_data() {
    let position = Position { number: Lsn(1), sequence: u64::MAX, block: 3, chain: 0x0102_0304_0506_0708 };
    let bytes = position.to_bytes();
    assert_eq!(Position::from_bytes(&bytes), position);
    assert_eq!((bytes[0], bytes[24]), (1, 8));
    const { assert!(Position::BYTES <= 40) };
}

/// A header is found only if every bit of it is as it was written.
#[test]
fn a_changed_header_is_not_found() {
    let header = BatchHeader {
        magic: BATCH_MAGIC,
        version: VERSION.into(),
        header_crc: 0.into(),
        body_crc: 0.into(),
        count: 0.into(),
        length: 4096.into(),
        gap: 0.into(),
        log: 5.into(),
        session: 1.into(),
        sequence: 1.into(),
        number: 1.into(),
        previous: 0.into(),
        block: 7.into(),
    };
    let mut block = [9; BLOCK_SIZE];
    header.seal(&mut block);
    assert!(matches!(BatchHeader::find(&block, LogId(5), 7), Found::Batch(h) if h.body_is_whole(&block)));
    assert!(matches!(BatchHeader::find(&block, LogId(6), 7), Found::Nothing));
    assert!(matches!(BatchHeader::find(&block, LogId(5), 8), Found::Nothing));
    for bit in 0..BATCH_HEADER_BYTES * 8 {
        block[bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(BatchHeader::find(&block, LogId(5), 7), Found::Nothing), "bit {bit}");
        block[bit / 8] ^= 1 << (bit % 8);
    }
    for len in 0..BATCH_HEADER_BYTES {
        assert!(matches!(BatchHeader::find(&block[..len], LogId(5), 7), Found::Nothing));
    }
}
