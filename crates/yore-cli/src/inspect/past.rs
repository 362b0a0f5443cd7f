//! Cells of the trees of the past as text, one line each.

use super::text::{entry_text, extent_text, root_text};
use crate::output::{kind_name, printable, Clock, Precision};
use yore_format::{
    key_parts, AnnalsCounts, AnnalsKey, AnnalsRow, Block, BlockKind, ContentKind, Corruption, EventNo,
    EventRow, ExtentValue, Features, FileKind, HintPlace, HistoryRoots, HistorySpace, HistoryTree, Inode,
    InodeIndexCell, InodeNo, NameIndexCell, OperationRow, PastName, PolicyRow, RowName, SpanCell, Version,
    HISTORY_SHARDS,
};

/// The highest bit of a key in the index of events: set if the key is by name.
const BY_NAME: u64 = 1 << 63;

/// Name and text of each root that leads to a tree, and how many blocks only the past has.
pub fn roots(block: &Block) -> Vec<(String, String)> {
    let named = HistoryTree::all().map(|tree| {
        let name = match tree {
            HistoryTree::Events => "events".to_string(),
            HistoryTree::EventIndex => "index of events".to_string(),
            HistoryTree::Versions(shard) => format!("versions {shard}"),
            HistoryTree::Names(shard) => format!("names {shard}"),
            HistoryTree::Changes(shard) => format!("changes {shard}"),
            HistoryTree::Forgotten => "forgotten events".to_string(),
            HistoryTree::Policies => "policies".to_string(),
            HistoryTree::Operations => "operations".to_string(),
            HistoryTree::Annals(shard) => format!("annals {shard}"),
            HistoryTree::InodeIndex => "index of the annals by inode".to_string(),
            HistoryTree::NameIndex => "index of the annals by name".to_string(),
            HistoryTree::Spans => "spans".to_string(),
        };
        (name, HistoryRoots::get(block, tree))
    });
    let existing = named.filter(|(_, (root, _))| !root.is_none());
    let HistorySpace { data, nodes, trees } = HistoryRoots::space(block);
    let held = [("held data blocks", data), ("held nodes", nodes), ("nodes of its own", trees)];
    let counts = held.into_iter().filter(|(_, count)| *count > 0);
    let counts = counts.map(|(name, count)| (name.to_string(), count.to_string()));
    let counts = counts.chain(annals(block));
    existing.map(|(name, (root, level))| (name, root_text(root, Some(level)))).chain(counts).collect()
}

/// What the roots say of the annals, if there are some.
fn annals(block: &Block) -> Vec<(String, String)> {
    let AnnalsCounts { annals_from, hint, moved, references } = HistoryRoots::annals_counts(block);
    if annals_from == EventNo(0) {
        return Vec::new();
    }
    let counts =
        [("annals from", annals_from.0), ("last move of a class", moved.0), ("references", references)];
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    let counts = counts.map(|(name, count)| (name.to_string(), count.to_string()));
    let marks = (0..HISTORY_SHARDS).map(|shard| (shard, HistoryRoots::watermark(block, shard)));
    let marks = marks.filter(|(_, AnnalsKey { end, .. })| *end >= annals_from);
    let marks = marks.map(|(shard, AnnalsKey { end, sequence })| {
        (format!("watermark {shard}"), format!("end {end}, row {sequence}"))
    });
    let hint = hint.map(|HintPlace { start, blocks, generation }| {
        ("hint".to_string(), format!("{blocks} blocks from {start}, of generation {generation}"))
    });
    counts.chain(hint).chain(marks).collect()
}

/// A cell in a leaf of a tree of this kind; `None` for trees that are not of the past.
///
/// # Errors
/// [`Corruption`] for an impossible key or value.
pub fn cell(kind: BlockKind, key: &[u8], value: &[u8]) -> Option<Result<String, Box<Corruption>>> {
    Some(match kind {
        BlockKind::Events => event(key, value),
        BlockKind::EventIndex => index(key, value),
        BlockKind::Versions => version(key, value),
        BlockKind::Names => name(key, value),
        BlockKind::Changes => change(key, value),
        BlockKind::Policies => policy(key, value),
        BlockKind::Operations => operation(key, value),
        BlockKind::Annals => row(key, value),
        BlockKind::InodeIndex => InodeIndexCell::decode(key, value).map(|cell| {
            let InodeIndexCell { inode, end, born, sequence } = cell;
            format!("inode {inode}, from {born} to before {end}: row {sequence}")
        }),
        BlockKind::NameIndex => NameIndexCell::decode(key, value).map(|cell| {
            let NameIndexCell { directory, cookie, death, birth, sequence, shard } = cell;
            format!(
                "in inode {directory} under {cookie:#x}, from {birth} to before {death}: row {sequence} of shard {shard}"
            )
        }),
        BlockKind::Spans => SpanCell::decode(key, value).map(|cell| {
            let SpanCell { class, first, last, data, nodes } = cell;
            format!("class {class}, events {first} to {last}: {data} data blocks, {nodes} nodes")
        }),
        _ => return None,
    })
}

fn operation(key: &[u8], value: &[u8]) -> Result<String, Box<Corruption>> {
    let [class, sequence] = key_parts(key)?;
    let OperationRow { time, kind, uid, first, last, count, bytes, path, note } =
        OperationRow::decode(value)?;
    let time = Clock::new(false).text(time, Precision::Nanoseconds);
    let (path, note) = (printable(&path), printable(note.as_bytes()));
    Ok(format!(
        "class {class}, {sequence}: {} by user {uid} at {time}, events {} to {}, {count}, {bytes} bytes, {path} {note}",
        kind.name(),
        first.0,
        last.0
    ))
}

fn event(key: &[u8], value: &[u8]) -> Result<String, Box<Corruption>> {
    let [number] = key_parts(key)?;
    // A short row is one of a volume with annals, and no other row is as short.
    let event = EventRow::decode_with(value, Features::ANNALS)?;
    let name = match &event.name[..] {
        "" => String::new(),
        name => format!(" \"{}\"", printable(name.as_bytes())),
    };
    Ok(format!(
        "event {number}{name} at {}: {:?}, {:?}{}, of inode {} incarnation {}",
        Clock::new(false).text(event.time, Precision::Nanoseconds),
        event.kind,
        event.state,
        if event.held { ", held" } else { "" },
        event.root,
        event.root_incarnation
    ))
}

/// Checks that the cell of an index has no value.
fn nothing(value: &[u8]) -> Result<(), Box<Corruption>> {
    match value {
        [] => Ok(()),
        _ => Err(Corruption::new("cell of an index", "length", 0, value.len())),
    }
}

fn index(key: &[u8], value: &[u8]) -> Result<String, Box<Corruption>> {
    nothing(value)?;
    let [first, number] = key_parts(key)?;
    Ok(match first & BY_NAME {
        0 => format!("event {number} of inode {first}"),
        _ => format!("event {number} by its name"),
    })
}

fn change(key: &[u8], value: &[u8]) -> Result<String, Box<Corruption>> {
    nothing(value)?;
    let [number, inode, cookie] = key_parts(key)?;
    Ok(match cookie {
        0 => format!("inode {inode} changed or ended at {number}"),
        _ => format!("name {cookie:#x} of inode {inode} ended at {number}"),
    })
}

fn policy(key: &[u8], value: &[u8]) -> Result<String, Box<Corruption>> {
    let [inode] = key_parts(key)?;
    let PolicyRow { incarnation, policy, excluding_since } = PolicyRow::decode(value)?;
    let (versioning, retention) = (policy.versioning, policy.retention);
    let mut text = format!(
        "inode {inode} incarnation {incarnation}: versioning {versioning:?}, retention {retention:?}"
    );
    if let Some(patterns) = policy.exclude {
        text += &format!(", excludes {patterns:?} since {excluding_since}");
    }
    Ok(text)
}

fn version(key: &[u8], value: &[u8]) -> Result<String, Box<Corruption>> {
    let [number, born] = key_parts(key)?;
    let Version { end, inode } = Version::decode(InodeNo(number), EventNo(born), value)?;
    let incarnation = inode.incarnation;
    Ok(format!("inode {number} incarnation {incarnation}, from {born} to before {end}: {}", state(&inode)?))
}

/// What an inode was.
fn state(inode: &Inode) -> Result<String, Box<Corruption>> {
    let kind = FileKind::from_mode(inode.mode).map_or("unknown", kind_name);
    Ok(format!(
        "mode {:#o} ({kind}), {} links, {} bytes in {} blocks, attributes {}, {}",
        inode.mode,
        inode.links,
        inode.size,
        inode.blocks,
        root_text(inode.xattr_root, None),
        content(inode)?
    ))
}

/// A row of the annals. Cookies are left out: they depend on the seed of the volume.
fn row(key: &[u8], value: &[u8]) -> Result<String, Box<Corruption>> {
    let AnnalsKey { end, sequence } = AnnalsKey::decode(key)?;
    let AnnalsRow { inode, incarnation, name, name_is_reclaimed, version, .. } =
        AnnalsRow::decode(end, value, &[0; 16])?;
    let mut text = format!("row {sequence} to before {end}: inode {inode} incarnation {incarnation}");
    if let Some(RowName { directory, birth, kind, name, .. }) = name {
        let reclaimed = if name_is_reclaimed { ", reclaimed" } else { "" };
        let (name, kind) = (printable(name), kind_name(kind));
        text += &format!("; name \"{name}\" ({kind}) in inode {directory} from {birth}{reclaimed}");
    }
    if let Some(inode) = version {
        text += &format!("; state from {}: {}", inode.born, state(&inode)?);
    }
    Ok(text)
}

fn content(inode: &Inode) -> Result<String, Box<Corruption>> {
    Ok(match inode.content_kind {
        ContentKind::Empty => "no content".to_string(),
        ContentKind::Inline => format!("\"{}\"", printable(inode.inline())),
        ContentKind::Extents => {
            let extents = ExtentValue::decode_inline(inode)?;
            extents.iter().map(|(key, extent)| extent_text(*key, extent)).collect::<Vec<_>>().join("; ")
        }
        ContentKind::Tree => format!("tree {}", root_text(inode.tree_root(), Some(inode.content_level))),
    })
}

fn name(key: &[u8], value: &[u8]) -> Result<String, Box<Corruption>> {
    let [directory, cookie, birth] = key_parts(key)?;
    let PastName { death, entry } = PastName::decode(EventNo(birth), value)?;
    Ok(format!(
        "in inode {directory} under {cookie:#x}, from {birth} to before {death}: {}",
        entry_text(&entry)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use yore_format::{
        event_index_by_name, event_index_by_root, name_end_key, name_key, version_end_key, version_key,
        BlockHeader, BlockNo, DirEntry, EventKind, EventState, HistoryGrowth, Incarnation, MetaAddr,
        Timestamp, ZERO_BLOCK,
    };

    fn text(kind: BlockKind, key: &[u8], value: &[u8]) -> String {
        cell(kind, key, value).expect("a tree of the past").expect("a sound cell")
    }

    /// Promises that each kind of cell says what it is about, and that damage is an error.
    #[test]
    fn cells_of_the_past_are_readable() {
        let row = EventRow {
            time: Timestamp { seconds: 1_700_000_000, nanos: 5 },
            kind: EventKind::Snapshot,
            state: EventState::Dying,
            held: true,
            root: InodeNo::ROOT,
            root_incarnation: Incarnation(1),
            name: "before".into(),
            more: Default::default(),
        };
        let event = text(BlockKind::Events, &7u64.to_be_bytes(), &row.encode());
        for part in ["event 7 \"before\" at 2023-11-", "Snapshot, Dying, held", "inode 16 incarnation 1"] {
            assert!(event.contains(part), "{event}");
        }
        let key = event_index_by_root(InodeNo::ROOT, EventNo(7));
        assert_eq!(text(BlockKind::EventIndex, &key, &[]), "event 7 of inode 16");
        let key = event_index_by_name(&[3; 16], "before", EventNo(7));
        assert_eq!(text(BlockKind::EventIndex, &key, &[]), "event 7 by its name");
        let key = name_end_key(EventNo(8), InodeNo::ROOT, 0x500);
        assert_eq!(text(BlockKind::Changes, &key, &[]), "name 0x500 of inode 16 ended at 8");
        let key = version_end_key(EventNo(8), InodeNo(17));
        assert_eq!(text(BlockKind::Changes, &key, &[]), "inode 17 changed or ended at 8");
        assert!(cell(BlockKind::Changes, &key, &[0]).is_some_and(|text| text.is_err()));
        let entry = DirEntry {
            inode: InodeNo(17),
            incarnation: Incarnation(4),
            birth: EventNo(2),
            kind: FileKind::Regular,
            name: b"was",
        };
        let value = PastName { death: EventNo(8), entry }.encode();
        let name = text(BlockKind::Names, &name_key(InodeNo::ROOT, 0x500, EventNo(2)), &value);
        let expected =
            "in inode 16 under 0x500, from 2 to before 8: \"was\" inode 17 incarnation 4 (file), birth 2";
        assert_eq!(name, expected);
        assert!(cell(BlockKind::Directory, &key, &[]).is_none());
    }

    /// Promises that the text of a version has its span, and the attributes it had.
    #[test]
    fn a_version_says_when_and_what_it_was() {
        let mut inode = Inode::free();
        (inode.mode, inode.links, inode.size, inode.blocks) = (0o100_644, 1, 8192, 2);
        (inode.incarnation, inode.born) = (Incarnation(4), EventNo(2));
        let extent =
            ExtentValue { start: BlockNo(5000), len: 2, unwritten: false, shared: false, birth: EventNo(1) };
        ExtentValue::encode_inline(&mut inode, &[(0, extent)]);
        let value = Version { end: EventNo(8), inode }.encode();
        let version = text(BlockKind::Versions, &version_key(InodeNo(17), EventNo(2)), &value);
        for part in ["inode 17 incarnation 4, from 2 to before 8", "(file)", "blocks 5000 to 5001, birth 1"] {
            assert!(version.contains(part), "{version}");
        }
        assert!(cell(BlockKind::Versions, &version_key(InodeNo(17), EventNo(3)), &value).unwrap().is_err());
    }

    /// Promises that the cells of annals and their indexes say what they are about.
    #[test]
    fn cells_of_the_annals_are_readable() {
        let key = AnnalsKey { end: EventNo(9), sequence: 3 };
        let row = AnnalsRow {
            end: key.end,
            inode: InodeNo(17),
            incarnation: Incarnation(4),
            name: Some(RowName {
                directory: InodeNo::ROOT,
                birth: EventNo(2),
                cookie: 0x500,
                kind: FileKind::Regular,
                name: b"thesis",
            }),
            name_is_reclaimed: false,
            version: None,
        };
        assert_eq!(
            text(BlockKind::Annals, &key.encode(), &row.encode()),
            "row 3 to before 9: inode 17 incarnation 4; name \"thesis\" (file) in inode 16 from 2"
        );
        let cell = InodeIndexCell { inode: InodeNo(17), end: EventNo(9), born: EventNo(7), sequence: 3 };
        let key = InodeIndexCell::key(cell.inode, cell.end);
        assert_eq!(text(BlockKind::InodeIndex, &key, &cell.value()), "inode 17, from 7 to before 9: row 3");
        let (directory, cookie, death) = (InodeNo::ROOT, 0x500, EventNo(9));
        let cell = NameIndexCell { directory, cookie, death, birth: EventNo(2), sequence: 3, shard: 5 };
        assert_eq!(
            text(BlockKind::NameIndex, &NameIndexCell::key(directory, cookie, death), &cell.value()),
            "in inode 16 under 0x500, from 2 to before 9: row 3 of shard 5"
        );
    }

    /// Promises that the roots that lead to a tree are named, and no others.
    #[test]
    fn roots_of_the_past_are_named() {
        let mut block = ZERO_BLOCK;
        BlockHeader::init(
            &mut block,
            BlockKind::HistoryRoots,
            0,
            MetaAddr(9),
            InodeNo::HISTORY,
            Incarnation(0),
            1,
            EventNo(0),
        );
        assert!(roots(&block).is_empty());
        HistoryRoots::set(&mut block, HistoryTree::Events, MetaAddr(20), 0);
        HistoryRoots::set(&mut block, HistoryTree::Names(15), MetaAddr(600), 2);
        HistoryRoots::set(&mut block, HistoryTree::Forgotten, MetaAddr(21), 0);
        HistoryRoots::count(&mut block, HistoryGrowth { data: 7, trees: 3, ..HistoryGrowth::default() });
        let counts = AnnalsCounts { annals_from: EventNo(5), references: 7, ..AnnalsCounts::default() };
        HistoryRoots::set_annals_counts(&mut block, counts);
        HistoryRoots::set_watermark(&mut block, 2, AnnalsKey { end: EventNo(4), sequence: u32::MAX });
        HistoryRoots::set_watermark(&mut block, 3, AnnalsKey { end: EventNo(6), sequence: 1 });
        let named = [
            ("events", "0:20, level 0"),
            ("names 15", "1:88, level 2"),
            ("forgotten events", "0:21, level 0"),
            ("held data blocks", "7"),
            ("nodes of its own", "3"),
            ("annals from", "5"),
            ("references", "7"),
            ("watermark 3", "end 6, row 1"),
        ];
        assert_eq!(roots(&block), named.map(|(name, text)| (name.to_string(), text.to_string())));
    }
}
