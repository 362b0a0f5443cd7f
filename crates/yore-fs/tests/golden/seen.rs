//! What the tests of golden images of the past share: they make content, and describe everything that can be
//! seen.

use super::blocks::pack;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use yore_device::MemoryDevice;
use yore_format::{
    verify_checksum, Block, BlockHeader, BlockKind, EventRow, EventState, Features, NodeRef, BLOCK_SIZE,
};
use yore_fs::{Event, EventKind, FileKind, InodeFlags, InodeNo, MountOptions, View, Volume, WriteMode};

pub fn options() -> MountOptions {
    let commit_interval = Duration::from_secs(3600);
    MountOptions { commit_interval, access_times: false, ..MountOptions::default() }
}

pub fn no(volume: &Volume, path: &str) -> InodeNo {
    volume.node(path).unwrap().inode()
}

pub fn write(volume: &Volume, path: &str, offset: u64, bytes: &[u8]) {
    let mode = WriteMode { append: false, kill_set_id: false };
    volume.view().write(no(volume, path), offset, bytes, mode).unwrap();
}

/// Text that differs from place to place.
pub fn text(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| b'a' + ((i * 7 + i / 251 + seed * 13) % 26) as u8).collect()
}

pub fn read_only(device: &MemoryDevice) -> View {
    let options = MountOptions { read_only: true, ..options() };
    View::open(Arc::new(device.snapshot()), &options).unwrap()
}

/// Describes everything that can be seen of an inode, and of what is below it.
pub fn tree(view: &View, no: InodeNo, path: &str, out: &mut String) {
    let attr = view.getattr(no).unwrap();
    let times = [attr.mtime, attr.ctime].map(|time| (time.seconds, time.nanos));
    write!(
        out,
        "  {path:?} {no} {:?} {:o} {}:{} {} links, {} bytes, {times:?}",
        attr.kind, attr.permissions, attr.uid, attr.gid, attr.links, attr.size
    )
    .unwrap();
    let flags = attr.flags & InodeFlags::CHOSEN;
    if !flags.is_empty() {
        write!(out, ", {flags:?}").unwrap();
    }
    for name in view.listxattr(no).unwrap() {
        let value = view.getxattr(no, &name).unwrap();
        write!(out, ", {} = {}", String::from_utf8_lossy(&name), short(&value)).unwrap();
    }
    match attr.kind {
        FileKind::Regular => {
            let mut content = vec![0; attr.size as usize];
            assert_eq!(view.read(no, 0, &mut content).unwrap(), content.len());
            writeln!(out, ": {}", short(&content)).unwrap();
        }
        FileKind::Symlink => writeln!(out, " -> {}", short(&view.readlink(no).unwrap())).unwrap(),
        FileKind::Directory => {
            writeln!(out).unwrap();
            let mut entries = Vec::new();
            view.readdir(no, 0, &mut |item| {
                if item.name != b"." && item.name != b".." {
                    entries.push((String::from_utf8(item.name.to_vec()).unwrap(), item.inode));
                }
                true
            })
            .unwrap();
            entries.sort();
            for (name, no) in entries {
                tree(view, no, &format!("{path}/{name}"), out);
            }
        }
        _ => writeln!(out).unwrap(),
    }
}

/// Bytes as text if they are few, else a hash of them (FNV-1a).
pub fn short(bytes: &[u8]) -> String {
    if bytes.len() <= 40 {
        return format!("{:?}", String::from_utf8_lossy(bytes));
    }
    let sum = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |sum, b| (sum ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3));
    format!("{} bytes, {sum:016x}", bytes.len())
}

#[track_caller]
pub fn same(found: &str, expected: &str) {
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.lines().count(), expected.lines().count());
}

/// What is on the device while the volume is still open, as a power failure would leave it.
pub fn left_open(device: &MemoryDevice, volume: Volume) -> MemoryDevice {
    let left = device.snapshot();
    volume.close().unwrap();
    left
}

/// Writes the image that `make` makes, and the description that `seen` gives of it, to the files of a format.
/// These must be empty: neither is ever made again. The background thread also finishes tasks that have
/// begun, so this makes the image again until `left` tasks are still unfinished.
pub fn make_files(
    format: &str,
    there: (&[u8], &str),
    left: usize,
    make: fn() -> MemoryDevice,
    seen: fn(&View) -> String,
) {
    assert!(there.0.is_empty() && there.1.is_empty(), "they are there, and never made anew");
    let device = (0..100).map(|_| make()).find(|device| begun(device).len() == left).unwrap();
    let path = |kind| format!("{}/tests/golden/volume-{format}.{kind}", env!("CARGO_MANIFEST_DIR"));
    std::fs::write(path("txt"), seen(&read_only(&device))).unwrap();
    std::fs::write(path("blocks"), pack(&device)).unwrap();
}

/// Describes what an event has seen.
pub fn tree_of(view: &View, event: &Event, out: &mut String) {
    let then = view.as_of(event.number);
    match then.getattr(event.row.root) {
        Ok(_) => tree(&then, event.row.root, "", out),
        Err(error) => writeln!(out, "  {error:?}").unwrap(),
    }
}

/// The first words of lines that begin with one of `starts`, and how many such lines there are: two volumes
/// that are made the same way have this much in common.
pub fn gist(text: &str, starts: &[&str]) -> (Vec<String>, usize) {
    let of = |line: &str| line.split(' ').take(3).collect::<Vec<_>>().join(" ");
    let lines = text.lines().filter(|line| starts.iter().any(|start| line.starts_with(start)));
    (lines.map(of).collect(), text.lines().count())
}

/// The tasks of giving up that have begun, by the newest rows of the table of events on the medium.
pub fn begun(device: &MemoryDevice) -> Vec<EventKind> {
    let mut newest: BTreeMap<u64, (u64, Block)> = BTreeMap::new();
    for block in device.to_bytes().chunks_exact(BLOCK_SIZE) {
        let block: &Block = block.try_into().unwrap();
        let header = BlockHeader::of(block);
        if header.kind != BlockKind::Events as u8 || header.level != 0 || verify_checksum(block).is_err() {
            continue;
        }
        let (addr, generation) = (header.addr.get(), header.generation.get());
        if newest.get(&addr).is_none_or(|(other, _)| *other < generation) {
            newest.insert(addr, (generation, *block));
        }
    }
    let mut kinds = Vec::new();
    for (_, block) in newest.values() {
        let node = NodeRef::new(block);
        for i in 0..node.count() {
            // Short rows are those of volumes with annals; to others they are damage.
            let row = EventRow::decode_with(node.value(i), Features::SUPPORTED).unwrap();
            if row.state == EventState::Dying {
                kinds.push(row.kind);
            }
        }
    }
    kinds
}
