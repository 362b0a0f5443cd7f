//! What all structures are made of: the block and its checksum, and how many blocks and inodes an address
//! counts.

/// Bytes in a block, the unit of all addresses and of all metadata.
pub const BLOCK_SIZE: usize = 4096;

/// One block's bytes.
pub type Block = [u8; BLOCK_SIZE];

/// A block of zeros.
pub const ZERO_BLOCK: Block = [0; BLOCK_SIZE];

/// Logical metadata blocks in a zone.
pub const ZONE_INDEXES: u32 = 510;
/// Inodes in an inode block.
pub const INODES_PER_BLOCK: usize = 16;

/// crc32c (Castagnoli) of `bytes`, the checksum of every structure on the medium.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// crc32c of `block` with the four bytes at `at` taken as zero (the field that holds the checksum itself).
pub fn checksum_except(block: &[u8], at: usize) -> u32 {
    let crc = crc32c::crc32c(&block[..at]);
    let crc = crc32c::crc32c_append(crc, &[0; 4]);
    crc32c::crc32c_append(crc, &block[at + 4..])
}
