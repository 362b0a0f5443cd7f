//! The file that takes a repair back, and the writing of a repair.
//!
//! The file holds, for each block that the repair changes, the number, the checksums of its contents before
//! and after, and the contents before. It is on stable storage, with its name, before the first block of the
//! volume is written. Then come the blocks, a flush, and last the one superblock that makes them count.
//!
//! # The states of a volume
//!
//! Let S be the slot that the repair writes last, O the other one, and R all other blocks of the file. A
//! block is *old*, *new* (as the repair has it), or *torn* between the two.
//!
//! | state | S | O | R |
//! |---|---|---|---|
//! | whole repair | new | as it was | new |
//! | interrupted | old, or torn | as it was | old, new or torn |
//! | before the repair | old | as it was | old |
//! | anything else | | | somebody wrote to the volume since: the file is of no more use |
//!
//! A repair writes R, flushes, and writes S: it goes from *before* through *interrupted* to *whole*. Taking
//! it back writes S, flushes, and writes R: it goes the same way back. S is the first here, and not the last,
//! because a whole repair of which some of R are old is in no state of the table: nobody could tell it from
//! one that somebody wrote to. So both may break off at any write, and both may be repeated from there, as
//! often as it takes.
//!
//! O shows that nobody has written to the volume: a mount for writing changes it first. If neither superblock
//! could be used, the repair makes O zeros; then O is one of the blocks of the file, and may be old, new or
//! torn like R. In a volume of which S is old and O is not valid nobody can mount anything.
//!
//! A slot is torn between two superblocks if each sector is one that it had, or has the stamp of the later
//! one. What the slot is taken for then says nothing: behind an old first sector of zeros the rest is no
//! superblock at all.
//!
//! In an interrupted repair neither R nor S need say anything of this volume: both slots may have been zeros,
//! and so may R. So something else must show that it is this one: a superblock, a header of root zone 0, or
//! blocks of R with something in them.

use crate::overlay::Overlay;
use crate::CheckError;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use yore_device::{AlignedBuf, Device};
use yore_format::layout::{HEADER_SLOTS, SUPERBLOCKS};
use yore_format::{
    checksum, checksum_except, verify_header, Block, BlockNo, SlotState, Superblock, ZoneHeader, ZoneNo,
    BLOCK_SIZE, ZERO_BLOCK,
};

const MAGIC: [u8; 8] = *b"YORE\x89UN\n";
const VERSION: u32 = 1;
/// Where the header's checksum stands in it.
const CRC_AT: usize = 12;
/// Bytes of the description of a block.
const ROW: usize = 16;
/// What a device writes as a whole.
const SECTOR: usize = 512;
/// Where a sector of a superblock has its stamp: the generation.
const STAMP: usize = SECTOR - 8;
/// Why a file is refused.
const SINCE: &str = "somebody wrote to the volume since the repair";

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
#[derive(Clone, Copy)]
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

fn block(device: &dyn Device, at: BlockNo) -> Result<Box<Block>, CheckError> {
    let mut block = Box::new(ZERO_BLOCK);
    block.copy_from_slice(&read(device, at.0)?);
    Ok(block)
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
    let written = write_file(&mut file, path, device, &blocks, (superblock, slot));
    drop(file);
    if let Err(error) = written {
        // Nothing of the volume was written, so nobody needs it, and it would be in the way of the next one.
        return Err(match std::fs::remove_file(path) {
            Ok(()) => error,
            Err(e) => failed(path, "it is not whole, and cannot be removed", &format!("{e} ({error})")),
        });
    }
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

/// Writes the undo file, to stable storage.
fn write_file(
    file: &mut File,
    path: &Path,
    device: &dyn Device,
    blocks: &[(BlockNo, Arc<Block>)],
    (superblock, slot): (&Superblock, u32),
) -> Result<(), CheckError> {
    let write = |e: std::io::Error| failed(path, "it cannot be written", &e);
    let mut rows = Vec::with_capacity(blocks.len() * ROW);
    for (number, new) in blocks {
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
    for (number, _) in blocks {
        file.write_all(&read(device, number.0)?).map_err(write)?;
    }
    file.sync_all().and_then(|()| sync_directory(path)).map_err(write)
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
    let mut undo = Undo { device, path, file, head, rows };
    undo.must_fit()?;
    undo.write_back()
}

/// A repair that is taken back.
struct Undo<'a> {
    device: &'a dyn Device,
    path: &'a Path,
    file: File,
    head: Head,
    rows: Vec<Row>,
}

impl Undo<'_> {
    fn refuse(&self, why: impl Into<String>) -> CheckError {
        CheckError::UndoRefused { device: self.device.describe(), reason: why.into() }
    }

    /// The slot that the repair wrote last, and the other one.
    fn slots(&self) -> (BlockNo, BlockNo) {
        let last = self.head.slot as usize;
        (SUPERBLOCKS[last], SUPERBLOCKS[1 - last])
    }

    /// Which row a block has.
    fn row_of(&self, block: BlockNo) -> Option<usize> {
        self.rows.iter().position(|row| row.block == block.0)
    }

    /// Where the row of the superblock is.
    fn row_of_last(&self) -> Result<usize, CheckError> {
        let row = self.row_of(self.slots().0);
        row.ok_or_else(|| failed(self.path, "it cannot be used", &"it lacks the superblock"))
    }

    /// Refuses a volume that is in none of the states of a repair.
    fn must_fit(&mut self) -> Result<(), CheckError> {
        let (size, expected) = (self.device.size(), self.head.size);
        if size != expected {
            let why = format!("the repair was of a device of {expected} bytes, this one has {size}");
            return Err(self.refuse(why));
        }
        if !self.is_other_slot_right()? {
            return Err(self.refuse(format!("{SINCE}, or it is another volume")));
        }
        let row = self.row_of_last()?;
        let now = read(self.device, self.slots().0 .0)?;
        let (sum, Row { before, after, .. }) = (checksum(&now), self.rows[row]);
        if sum == after && sum != before {
            return self.must_be_whole();
        }
        if sum != before && !is_torn(&now, &self.old(row)?, self.head.generation) {
            return Err(self.refuse(SINCE));
        }
        if !self.is_this_volume()? {
            return Err(self.refuse("nothing on it shows that it is the volume of the repair"));
        }
        Ok(())
    }

    /// Whether the slot that the repair did not write, or made zeros, is as that left it.
    fn is_other_slot_right(&mut self) -> Result<bool, CheckError> {
        let at = self.slots().1;
        let now = read(self.device, at.0)?;
        let Some(row) = self.row_of(at) else { return Ok(checksum(&now) == self.head.other) };
        let old = self.old(row)?;
        let mut sectors = now.chunks(SECTOR).zip(old.chunks(SECTOR));
        Ok(sectors.all(|(now, old)| now == old || now.iter().all(|byte| *byte == 0)))
    }

    /// Refuses a volume that was written to since a repair that is whole.
    fn must_be_whole(&self) -> Result<(), CheckError> {
        for row in &self.rows {
            if checksum(&read(self.device, row.block)?) != row.after {
                let why = format!("{SINCE}: block {} is not as the repair left it", row.block);
                return Err(self.refuse(why));
            }
        }
        Ok(())
    }

    /// Whether anything shows that this is the volume of the repair.
    fn is_this_volume(&self) -> Result<bool, CheckError> {
        for (slot, at) in (0..).zip(SUPERBLOCKS) {
            let state = Superblock::decode(&*block(self.device, at)?, slot);
            if matches!(state, SlotState::Valid(sb) if sb.uuid == self.head.uuid) {
                return Ok(true);
            }
        }
        let (root, tag) = (ZoneHeader::addr(ZoneNo::root(0)), u32_at(&self.head.uuid, 0));
        for at in HEADER_SLOTS.map(BlockNo) {
            let found = block(self.device, at)?;
            let header = verify_header(&found, root, tag, at).and_then(|()| ZoneHeader::decode(&found));
            if header.is_ok_and(|header| header.uuid == self.head.uuid) {
                return Ok(true);
            }
        }
        let (last, other) = self.slots();
        let (mut known, mut strange) = (0, 0);
        for row in self.rows.iter().filter(|row| ![last.0, other.0].contains(&row.block)) {
            let now = read(self.device, row.block)?;
            let sum = checksum(&now);
            // What any device may have says nothing.
            let is_blank = now.iter().all(|byte| *byte == now[0]);
            match sum == row.before || sum == row.after {
                true => known += u64::from(!is_blank),
                false => strange += 1,
            }
        }
        Ok(known > strange)
    }

    /// Writes the old contents of all blocks. All are compared with their checksums before the first of them
    /// is written.
    fn write_back(&mut self) -> Result<u64, CheckError> {
        for row in 0..self.rows.len() {
            self.old(row)?;
        }
        // From here on it is a repair that was interrupted.
        let last = self.row_of_last()?;
        self.restore(last)?;
        self.device.flush()?;
        for row in (0..self.rows.len()).filter(|row| *row != last) {
            self.restore(row)?;
        }
        self.device.flush()?;
        Ok(self.rows.len() as u64)
    }

    fn restore(&mut self, row: usize) -> Result<(), CheckError> {
        let old = self.old(row)?;
        Ok(self.device.write_at(self.rows[row].block * BLOCK_SIZE as u64, &old)?)
    }

    /// The old contents of a block.
    fn old(&mut self, row: usize) -> Result<AlignedBuf, CheckError> {
        let mut old = AlignedBuf::zeroed(1);
        let at = self.head.contents_at(row as u64);
        self.file
            .seek(SeekFrom::Start(at))
            .and_then(|_| self.file.read_exact(&mut old))
            .map_err(|e| failed(self.path, "it cannot be read", &e))?;
        let Row { block, before, .. } = self.rows[row];
        match checksum(&old) == before {
            true => Ok(old),
            false => Err(failed(self.path, "it is damaged", &format!("the old contents of block {block}"))),
        }
    }
}

/// Whether a slot is torn between what it was and a superblock of this generation or a later one.
fn is_torn(now: &[u8], old: &[u8], least: u64) -> bool {
    let (mut kept, mut stamp) = (0, None);
    for (now, old) in now.chunks(SECTOR).zip(old.chunks(SECTOR)) {
        if now == old {
            kept += 1;
            continue;
        }
        let own = u64_at(now, STAMP);
        if own < least || *stamp.get_or_insert(own) != own {
            return false;
        }
    }
    kept > 0
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
