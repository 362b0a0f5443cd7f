//! The file that takes a repair back, and the writing of a repair.
//!
//! The file holds, for each block that the repair changes, the number, the checksums of its contents before
//! and after, and the contents before. It is on stable storage, with its name, before the first block of the
//! volume is written. Then come the blocks, a flush, and last the one superblock that makes them count.
//!
//! # What a file may be used for
//!
//! The superblock that the repair writes says which of three cases there is. It is as before, or torn: the
//! repair was interrupted, and any of the other blocks may be old, new or torn. It is as the repair wrote it:
//! then every other block must be, too. It is another: somebody wrote to the volume since, and the file is of
//! no more use. The slot that the repair did not write must be as it was in every case, since a mount for
//! writing changes it first. If neither superblock could be used, the repair writes both slots, the other one
//! with zeros; then the volume cannot have been mounted as long as neither slot has a superblock. In the
//! first two cases the old contents are written back, the superblock last, and that may be interrupted and
//! repeated as often as it takes.

use crate::overlay::Overlay;
use crate::CheckError;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use yore_device::{AlignedBuf, Device};
use yore_format::layout::SUPERBLOCKS;
use yore_format::{checksum, checksum_except, Block, BlockNo, SlotState, Superblock, BLOCK_SIZE, ZERO_BLOCK};

const MAGIC: [u8; 8] = *b"YORE\x89UN\n";
const VERSION: u32 = 1;
/// Where the header's checksum stands in it.
const CRC_AT: usize = 12;
/// Bytes of the description of a block.
const ROW: usize = 16;

/// What the file's first block says.
struct Head {
    uuid: [u8; 16],
    /// That of the volume before the repair.
    generation: u64,
    size: u64,
    count: u64,
    /// The slot that the repair writes.
    slot: u64,
    /// The checksum of the other slot.
    other: u32,
    /// The checksum of the rows.
    rows: u32,
}

/// A block that a repair changes.
struct Row {
    block: u64,
    before: u32,
    after: u32,
}

impl Head {
    fn encode(&self) -> Box<Block> {
        let mut block = Box::new(ZERO_BLOCK);
        block[..8].copy_from_slice(&MAGIC);
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        block[16..32].copy_from_slice(&self.uuid);
        block[32..40].copy_from_slice(&self.size.to_le_bytes());
        block[40..48].copy_from_slice(&self.count.to_le_bytes());
        block[48..56].copy_from_slice(&self.slot.to_le_bytes());
        block[56..60].copy_from_slice(&self.other.to_le_bytes());
        block[60..64].copy_from_slice(&self.rows.to_le_bytes());
        block[64..72].copy_from_slice(&self.generation.to_le_bytes());
        let crc = checksum_except(&block[..], CRC_AT);
        block[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        block
    }

    fn decode(block: &Block) -> Result<Head, String> {
        if block[..8] != MAGIC {
            return Err("it is not the undo file of a repair".into());
        }
        if u32_at(block, CRC_AT) != checksum_except(&block[..], CRC_AT) {
            return Err("its first block is damaged".into());
        }
        if u32_at(block, 8) != VERSION {
            return Err(format!(
                "it is of version {}, and this program knows version {VERSION}",
                u32_at(block, 8)
            ));
        }
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&block[16..32]);
        let head = Head {
            uuid,
            size: u64_at(block, 32),
            count: u64_at(block, 40),
            slot: u64_at(block, 48),
            other: u32_at(block, 56),
            rows: u32_at(block, 60),
            generation: u64_at(block, 64),
        };
        if head.slot > 1 || head.count > head.size / BLOCK_SIZE as u64 {
            return Err("its first block cannot be".into());
        }
        Ok(head)
    }

    /// Where the contents of the i-th block stand.
    fn contents_at(&self, i: u64) -> u64 {
        let rows = (self.count * ROW as u64).div_ceil(BLOCK_SIZE as u64);
        (1 + rows + i) * BLOCK_SIZE as u64
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut n = [0; 4];
    n.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(n)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut n = [0; 8];
    n.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(n)
}

fn failed(path: &Path, doing: &str, e: &dyn std::fmt::Display) -> CheckError {
    CheckError::UndoFile { path: path.display().to_string(), reason: format!("{doing}: {e}") }
}

fn read(device: &dyn Device, block: u64) -> Result<AlignedBuf, CheckError> {
    let mut bytes = AlignedBuf::zeroed(1);
    device.read_at(block * BLOCK_SIZE as u64, &mut bytes)?;
    Ok(bytes)
}

/// Writes the undo file, and then what the overlay holds. Returns how many blocks were written.
pub(super) fn apply(
    device: &dyn Device,
    overlay: &Overlay<'_>,
    superblock: &Superblock,
    slot: u32,
    path: &Path,
) -> Result<u64, CheckError> {
    let blocks = overlay.differences()?;
    if blocks.is_empty() {
        return Ok(0);
    }
    let write = |e: std::io::Error| failed(path, "it cannot be written", &e);
    // Old blocks have names and attributes that not everybody may read.
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = opened.map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => {
            let why = "it exists, of another repair; take that back (check --undo), or move the file away";
            CheckError::UndoFile { path: path.display().to_string(), reason: why.into() }
        }
        _ => write(e),
    })?;
    let mut rows = Vec::with_capacity(blocks.len() * ROW);
    for (number, new) in &blocks {
        rows.extend_from_slice(&number.0.to_le_bytes());
        rows.extend_from_slice(&checksum(&read(device, number.0)?).to_le_bytes());
        rows.extend_from_slice(&checksum(&new[..]).to_le_bytes());
    }
    rows.resize(rows.len().next_multiple_of(BLOCK_SIZE), 0);
    let other = SUPERBLOCKS[1 - slot as usize];
    let head = Head {
        uuid: superblock.uuid,
        generation: superblock.generation.0,
        size: device.size(),
        count: blocks.len() as u64,
        slot: slot.into(),
        other: checksum(&read(device, other.0)?),
        rows: checksum(&rows),
    };
    file.write_all(&head.encode()[..]).and_then(|()| file.write_all(&rows)).map_err(write)?;
    for (number, _) in &blocks {
        file.write_all(&read(device, number.0)?).map_err(write)?;
    }
    file.sync_all().and_then(|()| sync_directory(path)).map_err(write)?;
    let last = SUPERBLOCKS[slot as usize];
    let contents = |bytes: &Block| AlignedBuf::from_slice(bytes);
    for (number, new) in blocks.iter().filter(|(number, _)| *number != last) {
        device.write_at(number.0 * BLOCK_SIZE as u64, &contents(new))?;
    }
    device.flush()?;
    for (number, new) in blocks.iter().filter(|(number, _)| *number == last) {
        device.write_at(number.0 * BLOCK_SIZE as u64, &contents(new))?;
    }
    device.flush()?;
    Ok(blocks.len() as u64)
}

/// Makes a file's name durable.
fn sync_directory(path: &Path) -> std::io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Puts back what a repair overwrote. Returns how many blocks that was.
pub(super) fn take_back(device: &dyn Device, path: &Path) -> Result<u64, CheckError> {
    let mut file = File::open(path).map_err(|e| failed(path, "it cannot be opened", &e))?;
    let (head, rows) = read_file(&mut file, path)?;
    let refuse = |why: String| CheckError::UndoRefused { device: device.describe(), reason: why };
    if head.size != device.size() {
        return Err(refuse(format!(
            "the repair was of a device of {} bytes, this one has {}",
            head.size,
            device.size()
        )));
    }
    let other_slot = SUPERBLOCKS[1 - head.slot as usize];
    let other = read(device, other_slot.0)?;
    let since = "somebody wrote to the volume since the repair";
    let writes_both = rows.iter().any(|row| row.block == other_slot.0);
    if checksum(&other) != head.other && !writes_both {
        return Err(refuse(format!("{since}, or it is another volume")));
    }
    let last = SUPERBLOCKS[head.slot as usize];
    let of_superblock = rows.iter().find(|row| row.block == last.0);
    let now = read(device, last.0)?;
    let sum = checksum(&now);
    let Some(row) = of_superblock else {
        return Err(failed(path, "it cannot be used", &"it lacks the superblock"));
    };
    let mut block = ZERO_BLOCK;
    block.copy_from_slice(&now);
    let state = Superblock::decode(&block, head.slot as u32);
    let is_torn = match writes_both {
        true => {
            block.copy_from_slice(&other);
            let states = [state, Superblock::decode(&block, 1 - head.slot as u32)];
            !states.iter().any(|state| matches!(state, SlotState::Valid(_)))
        }
        false => matches!(state, SlotState::Torn(_)),
    };
    if sum == row.after && sum != row.before {
        for row in &rows {
            if checksum(&read(device, row.block)?) != row.after {
                return Err(refuse(format!("{since}: block {} is not as the repair left it", row.block)));
            }
        }
    } else if sum != row.before && !is_torn {
        return Err(refuse(since.to_string()));
    }
    // All contents are compared with their checksums before the first of them is written.
    for is_writing in [false, true] {
        for (i, row) in rows.iter().enumerate() {
            let old = old_contents(&mut file, path, &head, i as u64, row)?;
            if is_writing && row.block != last.0 {
                device.write_at(row.block * BLOCK_SIZE as u64, &old)?;
            }
        }
    }
    device.flush()?;
    for (i, row) in rows.iter().enumerate().filter(|(_, row)| row.block == last.0) {
        let old = old_contents(&mut file, path, &head, i as u64, row)?;
        device.write_at(row.block * BLOCK_SIZE as u64, &old)?;
    }
    device.flush()?;
    Ok(rows.len() as u64)
}

fn old_contents(
    file: &mut File,
    path: &Path,
    head: &Head,
    i: u64,
    row: &Row,
) -> Result<AlignedBuf, CheckError> {
    let mut old = AlignedBuf::zeroed(1);
    file.seek(SeekFrom::Start(head.contents_at(i)))
        .and_then(|_| file.read_exact(&mut old))
        .map_err(|e| failed(path, "it cannot be read", &e))?;
    match checksum(&old) == row.before {
        true => Ok(old),
        false => Err(failed(path, "it is damaged", &format!("the old contents of block {}", row.block))),
    }
}

fn read_file(file: &mut File, path: &Path) -> Result<(Head, Vec<Row>), CheckError> {
    let broken = |e: std::io::Error| failed(path, "it cannot be read", &e);
    let mut first = ZERO_BLOCK;
    file.read_exact(&mut first).map_err(broken)?;
    let head = Head::decode(&first).map_err(|e| failed(path, "it cannot be used", &e))?;
    let length = file.metadata().map_err(broken)?.len();
    if length != head.contents_at(head.count) {
        let what = format!("{length} bytes instead of {}", head.contents_at(head.count));
        return Err(failed(path, "it is not whole", &what));
    }
    let mut bytes = vec![0; (head.contents_at(0) - BLOCK_SIZE as u64) as usize];
    file.read_exact(&mut bytes).map_err(broken)?;
    if checksum(&bytes) != head.rows {
        return Err(failed(path, "it is damaged", &"the list of blocks"));
    }
    let rows: Vec<Row> = bytes
        .chunks_exact(ROW)
        .take(head.count as usize)
        .map(|row| Row { block: u64_at(row, 0), before: u32_at(row, 8), after: u32_at(row, 12) })
        .collect();
    if let Some(row) = rows.iter().find(|row| BlockNo(row.block).0 >= head.size / BLOCK_SIZE as u64) {
        return Err(failed(path, "it cannot be used", &format!("it has a block {}", row.block)));
    }
    Ok((head, rows))
}
