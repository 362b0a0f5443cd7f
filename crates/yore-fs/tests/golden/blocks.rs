//! Images in files that have only the blocks that are not zero. Numbers are little-endian: eight bytes
//! `YoreBlks`, the volume's length in blocks (u64), how many blocks follow (u64), and then each block with
//! its number (u64) and its 4,096 bytes.

use yore_device::{Device, MemoryDevice};

const MAGIC: &[u8; 8] = b"YoreBlks";
const BLOCK: usize = 4096;

// Not every test that unpacks an image makes one.
#[allow(dead_code)]
pub fn pack(device: &MemoryDevice) -> Vec<u8> {
    let bytes = device.to_bytes();
    let blocks: Vec<(usize, &[u8])> =
        bytes.chunks(BLOCK).enumerate().filter(|(_, block)| block.iter().any(|b| *b != 0)).collect();
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&((bytes.len() / BLOCK) as u64).to_le_bytes());
    out.extend_from_slice(&(blocks.len() as u64).to_le_bytes());
    for (no, block) in blocks {
        out.extend_from_slice(&(no as u64).to_le_bytes());
        out.extend_from_slice(block);
    }
    out
}

pub fn unpack(packed: &[u8]) -> MemoryDevice {
    let number = |at: usize| u64::from_le_bytes(packed[at..at + 8].try_into().unwrap());
    assert_eq!((&packed[..8], packed.len()), (&MAGIC[..], 24 + number(16) as usize * (8 + BLOCK)));
    let device = MemoryDevice::new(number(8) * BLOCK as u64);
    for record in 0..number(16) as usize {
        let at = 24 + record * (8 + BLOCK);
        device.write_at(number(at) * BLOCK as u64, &packed[at + 8..at + 8 + BLOCK]).unwrap();
    }
    device
}
