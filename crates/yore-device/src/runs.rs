//! Many single blocks: those that follow one another are written together, and those that lie near each
//! other are read together.

use crate::{AlignedBuf, Device, DeviceError, SharedBuf, WriteRequest, BLOCK_SIZE};
use std::io::IoSlice;

/// Blocks of the longest request: 4 MiB. The host splits it into pieces that are under way at once.
const REQUEST: usize = 1024;
/// A run with at least this many blocks has its own request; shorter runs go to the device together.
const RUN_LONG: usize = 64;

/// Blocks that follow one another: the number of the first, and what each is to hold.
type Run<'a> = (u64, Vec<&'a SharedBuf>);

/// Of blocks whose numbers ascend: how many of the first ones one request reads, and how many blocks that
/// takes, with those in between. `gap` blocks between two are read rather than left out; a request reads at
/// most `most`.
pub fn near(blocks: impl IntoIterator<Item = u64>, gap: u64, most: u64) -> (usize, u64) {
    let mut blocks = blocks.into_iter();
    let Some(first) = blocks.next() else { return (0, 0) };
    let (mut count, mut last) = (1, first);
    for block in blocks {
        if block - last > gap || block - first >= most {
            break;
        }
        (count, last) = (count + 1, block);
    }
    (count, last - first + 1)
}

/// Stores blocks, each under its number, with one request for what lies together. Sorts `blocks`.
///
/// # Errors
/// As [`Device::write_batch`]: each of the blocks may or may not have been stored.
pub fn write_blocks(device: &dyn Device, blocks: &mut [(u64, &SharedBuf)]) -> Result<(), DeviceError> {
    blocks.sort_unstable_by_key(|(number, _)| *number);
    let mut runs: Vec<Run<'_>> = Vec::new();
    for (number, bytes) in blocks.iter() {
        match runs.last_mut() {
            Some((first, run)) if *first + run.len() as u64 == *number && run.len() < REQUEST => {
                run.push(bytes);
            }
            _ => runs.push((*number, vec![bytes])),
        }
    }
    let (long, short): (Vec<_>, Vec<_>) =
        runs.iter().partition(|(_, run)| run.len() >= RUN_LONG || runs.len() == 1);
    for (first, run) in long {
        let slices: Vec<IoSlice<'_>> = run.iter().map(|bytes| IoSlice::new(bytes)).collect();
        device.write_vectored_at(first * BLOCK_SIZE as u64, &slices)?;
    }
    if short.is_empty() {
        return Ok(());
    }
    // Each request of a batch is one piece of memory: copying some blocks together costs little compared with
    // waiting for each run.
    let together: Vec<Option<AlignedBuf>> = short.iter().map(|(_, run)| joined(run)).collect();
    let requests: Vec<WriteRequest<'_>> = short
        .iter()
        .zip(&together)
        .map(|((first, run), joined)| {
            let data = joined.as_ref().map_or(&run[0][..], |buf| &buf[..]);
            WriteRequest { offset: first * BLOCK_SIZE as u64, data }
        })
        .collect();
    device.write_batch(&requests)
}

/// The bytes of several blocks in one buffer; `None` if there is only one block.
fn joined(run: &[&SharedBuf]) -> Option<AlignedBuf> {
    if run.len() == 1 {
        return None;
    }
    let mut buf = AlignedBuf::zeroed(run.len());
    buf.chunks_mut(BLOCK_SIZE).zip(run).for_each(|(to, bytes)| to.copy_from_slice(bytes));
    Some(buf)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    /// Whatever the order and the gaps, each block holds its own bytes, and no other block changes.
    #[test]
    fn each_block_gets_its_bytes() {
        let device = MemoryDevice::new(4 << 20);
        let numbers: Vec<u64> = (100..300).chain([7, 900, 901, 5, 6, 1023]).collect();
        let bytes: Vec<SharedBuf> = numbers
            .iter()
            .map(|number| SharedBuf::new(AlignedBuf::from_slice(&[(*number % 251) as u8 + 1; BLOCK_SIZE])))
            .collect();
        let mut blocks: Vec<_> = numbers.iter().copied().zip(&bytes).collect();
        write_blocks(&device, &mut blocks).unwrap();
        let mut found = AlignedBuf::zeroed(1);
        for number in 0..1024 {
            device.read_at(number * BLOCK_SIZE as u64, &mut found).unwrap();
            let expected = if numbers.contains(&number) { (number % 251) as u8 + 1 } else { 0 };
            assert!(found.iter().all(|byte| *byte == expected), "block {number}");
        }
    }
}
