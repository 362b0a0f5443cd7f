//! A device whose volume does not have its metadata together.
//!
//! Yore keeps metadata in zones, 4 MiB each, one at the start of each allocation group. Here the blocks of
//! these zones change places with each other, at random over the whole volume: what the file system writes
//! side by side lies anywhere. Data stays where it is. So all requests and all bytes are the same, and only
//! distances differ. Further zones, which groups get when they have many small files, stay together; so does
//! the root zone with its superblocks.

use rand::seq::SliceRandom as _;
use rand::SeedableRng as _;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use yore_device::{Device, DeviceError, ReadRequest, WriteRequest, BLOCK_SIZE};
use yore_format::layout::{GROUP_BLOCKS, ZONE_BLOCKS};

/// The device `below`, on which blocks of zones are elsewhere than asked for.
#[derive(Debug)]
pub(crate) struct Scattered<D> {
    below: D,
    /// Of each block of the first zones, in their order: which of them has its bytes.
    places: Vec<u32>,
}

/// Where the first zone of a group begins. The root zone is before that of group 0.
fn first_zone(group: u64) -> u64 {
    match group {
        0 => ZONE_BLOCKS,
        group => group * GROUP_BLOCKS,
    }
}

/// A part of a request that is contiguous below: its offset, and which bytes of the request.
type Piece = (u64, Range<usize>);

impl<D: Device> Scattered<D> {
    /// The same `seed` scatters in the same way.
    pub(crate) fn new(below: D, seed: u64) -> Scattered<D> {
        let blocks = below.size() / BLOCK_SIZE as u64;
        let groups = (0..).take_while(|group| first_zone(*group) + ZONE_BLOCKS <= blocks).count() as u32;
        let mut places: Vec<u32> = (0..groups * ZONE_BLOCKS as u32).collect();
        places.shuffle(&mut rand::rngs::StdRng::seed_from_u64(seed));
        Scattered { below, places }
    }

    /// The block that has the bytes of `block`.
    fn place(&self, block: u64) -> u64 {
        let group = block / GROUP_BLOCKS;
        let of_zone = |within: u64| {
            let place = u64::from(*self.places.get((group * ZONE_BLOCKS + within) as usize)?);
            Some(first_zone(place / ZONE_BLOCKS) + place % ZONE_BLOCKS)
        };
        let within = block.wrapping_sub(first_zone(group));
        if within < ZONE_BLOCKS {
            of_zone(within).unwrap_or(block)
        } else {
            block
        }
    }

    fn pieces(&self, offset: u64, len: usize) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        for i in 0..len / BLOCK_SIZE {
            let bytes = i * BLOCK_SIZE..(i + 1) * BLOCK_SIZE;
            let at = self.place(offset / BLOCK_SIZE as u64 + i as u64) * BLOCK_SIZE as u64;
            match pieces.last_mut() {
                Some((start, last)) if *start + last.len() as u64 == at => last.end = bytes.end,
                _ => pieces.push((at, bytes)),
            }
        }
        pieces
    }
}

/// Splits `buf` where the pieces end.
fn parts<'b>(pieces: &[Piece], mut buf: &'b mut [u8], reads: &mut Vec<ReadRequest<'b>>) {
    for (offset, bytes) in pieces {
        let (part, rest) = buf.split_at_mut(bytes.len());
        reads.push(ReadRequest { offset: *offset, buf: part });
        buf = rest;
    }
}

impl<D: Device> Device for Scattered<D> {
    fn size(&self) -> u64 {
        self.below.size()
    }

    fn read_only(&self) -> bool {
        self.below.read_only()
    }

    fn describe(&self) -> String {
        format!("{} with scattered zones", self.below.describe())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.read_batch(&mut [ReadRequest { offset, buf }])
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<(), DeviceError> {
        self.write_batch(&[WriteRequest { offset, data: buf }])
    }

    fn read_batch(&self, reads: &mut [ReadRequest<'_>]) -> Result<(), DeviceError> {
        let mut below = Vec::new();
        for read in reads {
            let pieces = self.pieces(read.offset, read.buf.len());
            parts(&pieces, read.buf, &mut below);
        }
        self.below.read_batch(&mut below)
    }

    fn write_batch(&self, writes: &[WriteRequest<'_>]) -> Result<(), DeviceError> {
        let piece = |write: &WriteRequest<'_>| self.pieces(write.offset, write.data.len());
        let pieces: Vec<_> = writes.iter().map(|write| (piece(write), write.data)).collect();
        let below: Vec<_> = pieces
            .iter()
            .flat_map(|(pieces, data)| pieces.iter().map(move |piece| (piece, data)))
            .map(|((offset, bytes), data)| WriteRequest { offset: *offset, data: &data[bytes.clone()] })
            .collect();
        self.below.write_batch(&below)
    }

    /// As one request where it is one below.
    fn read_vectored_at(&self, offset: u64, bufs: &mut [IoSliceMut<'_>]) -> Result<(), DeviceError> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        if let [(at, _)] = self.pieces(offset, len)[..] {
            return self.below.read_vectored_at(at, bufs);
        }
        let mut at = offset;
        for buf in bufs {
            self.read_at(at, buf)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    /// As one request where it is one below.
    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), DeviceError> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        if let [(at, _)] = self.pieces(offset, len)[..] {
            return self.below.write_vectored_at(at, bufs);
        }
        let mut at = offset;
        for buf in bufs {
            self.write_at(at, buf)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.below.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        for (at, bytes) in self.pieces(offset, len as usize) {
            self.below.discard(at, bytes.len() as u64)?;
        }
        Ok(())
    }

    fn can_discard(&self) -> bool {
        self.below.can_discard()
    }

    fn blocks_gone_by(&self, next: u64) -> u64 {
        self.below.blocks_gone_by(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yore_device::MemoryDevice;

    const GROUPS: u64 = 3;

    fn device() -> Scattered<MemoryDevice> {
        Scattered::new(MemoryDevice::new(GROUPS * GROUP_BLOCKS * BLOCK_SIZE as u64), 1)
    }

    /// Each block has a place of its own; blocks of zones change places with each other, and no others.
    #[test]
    fn blocks_of_zones_change_places() {
        let device = device();
        let is_zone = |block: u64| {
            (0..GROUPS).any(|group| (first_zone(group)..first_zone(group) + ZONE_BLOCKS).contains(&block))
        };
        let blocks = GROUPS * GROUP_BLOCKS;
        let mut seen = std::collections::BTreeSet::new();
        let mut moved = 0;
        for block in 0..blocks {
            let place = device.place(block);
            assert!(place < blocks && seen.insert(place));
            assert!(if is_zone(block) { is_zone(place) } else { place == block }, "{block} {place}");
            moved += u64::from(place != block);
        }
        assert!(moved > GROUPS * ZONE_BLOCKS * 9 / 10, "{moved}");
    }

    /// What is written is read again, in requests of any length, beside zones and across them.
    #[test]
    fn bytes_come_back() {
        let device = device();
        let start = (GROUP_BLOCKS - 3) * BLOCK_SIZE as u64;
        let data: Vec<u8> = (0..40 * BLOCK_SIZE).map(|i| (i / BLOCK_SIZE * 7 + i) as u8).collect();
        device.write_at(start, &data).unwrap();
        let mut found = vec![0; data.len()];
        device.read_at(start, &mut found).unwrap();
        assert_eq!(found, data);
        for i in 0..40 {
            let mut block = [0; BLOCK_SIZE];
            device.read_at(start + (i * BLOCK_SIZE) as u64, &mut block).unwrap();
            assert_eq!(block[..], data[i * BLOCK_SIZE..(i + 1) * BLOCK_SIZE], "block {i}");
        }
        // The first three are data and lie where they should.
        let mut below = vec![0; 3 * BLOCK_SIZE];
        device.below.read_at(start, &mut below).unwrap();
        assert_eq!(below, data[..3 * BLOCK_SIZE]);
    }
}
