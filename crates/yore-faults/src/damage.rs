//! Changes metadata blocks and puts the chain of checksums right.
//!
//! This is what an enemy, or a bug, can write: each block passes its checksum, and whatever leads to it names
//! that checksum.

use crate::survey::{read, Field, Site};
use crate::{mend, Chance};
use yore_device::{Device, MemoryDevice};
use yore_format::{checksum, checksum_except, seal, Block, BlockHeader, BlockNo, Generation, BLOCK_SIZE};

/// One field, and the value it gets.
#[derive(Clone, Debug)]
pub struct Change {
    /// The block.
    pub site: Site,
    /// The field.
    pub field: Field,
    /// The new value; only as many bytes of it count as the field has.
    pub value: u64,
}

impl Change {
    /// A name that describes the change completely.
    pub fn name(&self) -> String {
        format!("{} at {}: {} = {:#x}", self.site.name(), self.site.block, self.field.name, self.value)
    }

    /// The volume with this change, and right checksums.
    pub fn apply(&self, sound: &MemoryDevice) -> MemoryDevice {
        let device = sound.snapshot();
        let mut block = read(&device, self.site.block);
        put(&mut block, &self.field, self.value);
        write(&device, &self.site, &mut block);
        mend(&device);
        device
    }
}

impl Change {
    /// The volume with this change of a block of its log, and the log's checksums right.
    ///
    /// # Panics
    /// If the device, which is memory, cannot be written.
    pub fn apply_to_log(&self, sound: &MemoryDevice) -> MemoryDevice {
        let device = sound.snapshot();
        let mut block = read(&device, self.site.block);
        put(&mut block, &self.field, self.value);
        device.write_at(self.site.block.0 * BLOCK_SIZE as u64, &block[..]).expect("memory can be written");
        mend_log(sound, &device);
        device
    }
}

/// A batch of a volume's log: its first block, and how many it has.
type Batch = (u64, u64);

/// The batches of the log, from where the superblock says, and the chain value before the first.
fn batches(device: &dyn Device) -> (Vec<Batch>, u64) {
    let slots = [0, 1].map(|slot| read(device, BlockNo(slot)));
    let Ok((superblock, ..)) = yore_format::decode_slots([&slots[0], &slots[1]]) else {
        return (Vec::new(), 0);
    };
    let mut found = Vec::new();
    let mut at = superblock.log_position;
    while at < superblock.log_blocks {
        let block = superblock.log_start.0 + at;
        let header = read(device, BlockNo(block));
        let [log, own_block] = [32, 72].map(|at| word(&header[..], at));
        if &header[..8] != b"YORE\x89LB\n" || log != superblock.log_id || own_block != at {
            break;
        }
        let blocks = u64::from(u32::from_le_bytes([header[24], header[25], header[26], header[27]]));
        let blocks = blocks.div_ceil(BLOCK_SIZE as u64).clamp(1, superblock.log_blocks - at);
        found.push((block, blocks));
        at += blocks;
    }
    (found, superblock.log_chain)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// The blocks of the batches in the log.
pub fn log_blocks(device: &dyn Device) -> Vec<Site> {
    let all = batches(device).0.into_iter().flat_map(|(first, count)| first..first + count);
    all.map(|block| Site { block: BlockNo(block), kind: None }).collect()
}

/// Repairs checksums and chain of the batches that `sound` has.
fn mend_log(sound: &dyn Device, device: &MemoryDevice) {
    let mix = |x: u64| Chance::seeded(x).number();
    let (batches, mut chain) = batches(sound);
    for (first, count) in batches {
        let mut bytes: Vec<u8> =
            (first..first + count).flat_map(|block| *read(device, BlockNo(block))).collect();
        let body = checksum(&bytes[80..]);
        bytes[16..20].copy_from_slice(&body.to_le_bytes());
        bytes[64..72].copy_from_slice(&chain.to_le_bytes());
        let header = checksum_except(&bytes[..80], 12);
        bytes[12..16].copy_from_slice(&header.to_le_bytes());
        device.write_at(first * BLOCK_SIZE as u64, &bytes).expect("memory can be written");
        chain = mix(chain ^ mix(u64::from(header) << 32 | u64::from(body)));
    }
}

/// The value of a field.
pub fn get(block: &Block, field: &Field) -> u64 {
    let mut bytes = [0; 8];
    bytes[..field.size].copy_from_slice(&block[field.offset..field.offset + field.size]);
    u64::from_le_bytes(bytes)
}

/// Sets a field.
pub fn put(block: &mut Block, field: &Field, value: u64) {
    block[field.offset..field.offset + field.size].copy_from_slice(&value.to_le_bytes()[..field.size]);
}

/// Seals a block as if it were sound, and writes it.
///
/// # Panics
/// If the device, which is memory, cannot be written.
pub fn write(device: &MemoryDevice, site: &Site, block: &mut Block) {
    if site.kind.is_none() {
        let crc = checksum_except(block, 16);
        block[16..20].copy_from_slice(&crc.to_le_bytes());
    } else {
        let generation = Generation(BlockHeader::of(block).generation.get());
        seal(block, generation);
    }
    device.write_at(site.block.0 * BLOCK_SIZE as u64, &block[..]).expect("memory can be written");
}

/// The extremes of a field: zero, one, all bits, half of them, one more and one less than the present value.
/// If the value may name something, also the names of other things that exist.
pub fn extremes(site: &Site, field: &Field, block: &Block, names: &[u64]) -> Vec<Change> {
    let max = u64::MAX >> (64 - 8 * field.size as u32);
    let now = get(block, field);
    let mut values =
        vec![0, 1, max, max / 2, max / 2 + 1, now.wrapping_add(1) & max, now.wrapping_sub(1) & max];
    values.extend(names.iter().filter(|name| field.size >= 4 && **name <= max));
    values.sort_unstable();
    values.dedup();
    values.retain(|value| *value != now);
    values.into_iter().map(|value| Change { site: *site, field: field.clone(), value }).collect()
}

/// Names of things that exist on a volume with these blocks: addresses of metadata, inodes, data.
pub fn names(device: &dyn Device, sites: &[Site]) -> Vec<u64> {
    let mut names = vec![16, 17, 18, 1024, 4096];
    for site in sites.iter().filter(|site| site.kind.is_some()) {
        let block = read(device, site.block);
        let addr = BlockHeader::of(&block).addr.get();
        if !names.contains(&addr) && names.len() < 14 {
            names.push(addr);
        }
    }
    names
}

/// Changes some bytes of a block in ways that code is likely to read.
pub fn any(chance: &mut Chance<'_>, device: &dyn Device, sites: &[Site], site: &Site, block: &mut Block) {
    let fields = crate::survey::fields(site, block);
    let at = chance.below(BLOCK_SIZE - 8);
    match chance.below(7) {
        0 => block[at] = chance.number() as u8,
        1 => block[at] ^= 1 << chance.below(8),
        2 => {
            // Not from the very start: a superblock that is none, or a block without magic, is detected at
            // once.
            let from = (*chance.pick(&[64, 72, 80, 128, 512])).min(BLOCK_SIZE);
            block[from..].iter_mut().for_each(|byte| *byte = chance.number() as u8);
        }
        3 => {
            // The content of another block under the identity of this one.
            let other = read(device, chance.pick(sites).block);
            block[64..].copy_from_slice(&other[64..]);
        }
        4 => {
            let len = chance.below(BLOCK_SIZE - at);
            block[at..at + len].fill(*chance.pick(&[0, 0xff, 1]));
        }
        _ => {
            if !fields.is_empty() {
                let field = chance.pick(&fields).clone();
                let names = names(device, sites);
                let changes = extremes(site, &field, block, &names);
                let value = match chance.below(3) {
                    0 => chance.number(),
                    _ => changes[chance.below(changes.len())].value,
                };
                put(block, &field, value);
            }
        }
    }
}
