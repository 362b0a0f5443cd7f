//! What checksums cost, counted by the device: the requests of whoever reads through a file or scrubs, and
//! what is written.

use crate::{File, MkfsOptions, MountOptions, OpenOptions, Progress, Scrub, Volume};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;
use yore_device::wrapped::{Hook, Request, Wrapped};
use yore_device::{Device, DeviceError, MemoryDevice};

const BLOCK: usize = 4096;

/// The bytes of block `n` of a file: like those of no other block.
fn block(file: u8, n: usize) -> Vec<u8> {
    let mut bytes = vec![file; BLOCK];
    bytes[..8].copy_from_slice(&(n as u64).to_le_bytes());
    bytes
}

fn blocks(file: u8, count: usize) -> Vec<u8> {
    (0..count).flat_map(|n| block(file, n)).collect()
}

fn open(device: &Arc<Wrapped<MemoryDevice, Counted>>) -> Volume {
    let options = MountOptions {
        commit_interval: Duration::from_secs(3600),
        defragment_after: None,
        ..MountOptions::default()
    };
    Volume::open(device.clone(), &options).unwrap()
}

/// Counts what the device has to do.
#[derive(Debug, Default)]
struct Counted {
    /// Blocks of data, and requests for metadata.
    reads: AtomicU64,
    bytes_written: AtomicU64,
    flushes: AtomicU64,
}

impl Hook for Counted {
    fn request(&self, request: Request<'_>, below: &dyn Device) -> std::result::Result<(), DeviceError> {
        let counted = match &request {
            Request::Read { .. } => Some((&self.reads, 1)),
            Request::Write { .. } => Some((&self.bytes_written, request.len())),
            Request::Flush => Some((&self.flushes, 1)),
            Request::Discard { .. } => None,
        };
        if let Some((count, by)) = counted {
            count.fetch_add(by, Ordering::Relaxed);
        }
        request.pass(below)
    }
}

fn counted(data_checksums: bool) -> (Arc<Wrapped<MemoryDevice, Counted>>, Volume) {
    let device = Arc::new(Wrapped::new(MemoryDevice::new(64 << 20), Counted::default()));
    let options = MkfsOptions { data_checksums, ..MkfsOptions::default() };
    Volume::create(device.clone(), &options).unwrap().close().unwrap();
    let volume = open(&device);
    (device, volume)
}

/// Promises that whoever reads a large file from its beginning to its end reads the tables of a group
/// together, and that a scrub finds nothing in what was written. Each table used to cost a request, for which
/// the reader waited.
#[test]
fn the_tables_of_a_group_are_read_together() {
    const COUNT: usize = 10_000;
    let reads = [false, true].map(|keeps| {
        let (device, volume) = counted(keeps);
        volume.write("file", blocks(1, COUNT)).unwrap();
        volume.close().unwrap();
        let count = || device.hook.reads.swap(0, Ordering::Relaxed);
        let volume = open(&device);
        let file = File::open(&volume, "file").unwrap();
        count();
        let mut bytes = vec![0; 8 * BLOCK];
        for at in (0..COUNT).step_by(8) {
            assert_eq!(file.read_at(&mut bytes, (at * BLOCK) as u64).unwrap(), bytes.len());
            assert!(bytes.chunks(BLOCK).zip(at..).all(|(bytes, n)| bytes == block(1, n)), "at {at}");
        }
        let reads = count();
        drop(file);
        let go_on = &mut || ControlFlow::Continue(());
        let scrub = volume.view().scrub(Scrub::default(), &Progress::default(), go_on).unwrap();
        assert!(scrub.is_clean() && (scrub.data_blocks >= COUNT as u64) == keeps, "{scrub:?}");
        volume.close().unwrap();
        reads
    });
    println!("reads without checksums, and with: {reads:?}");
    // The file has ten tables: the first one is read alone, and then those behind it together.
    assert!(reads[1] <= reads[0] + 4, "{reads:?}");
}

/// Promises that a large file is written with hardly more bytes and flushes than where no checksums are kept.
/// What makes the first tables of a group durable is a generation, in place of a record of the log.
#[test]
fn checksums_of_a_large_file_cost_little_to_write() {
    const COUNT: usize = 10_000;
    let written = [false, true].map(|keeps| {
        let (device, volume) = counted(keeps);
        let file = OpenOptions::new().write(true).create(true).open(&volume, "file").unwrap();
        let hook = &device.hook;
        let count = || [&hook.bytes_written, &hook.flushes].map(|count| count.swap(0, Ordering::Relaxed));
        count();
        for at in (0..COUNT).step_by(250) {
            let bytes: Vec<u8> = (at..at + 250).flat_map(|n| block(1, n)).collect();
            file.write_at(&bytes, (at * BLOCK) as u64).unwrap();
        }
        file.sync_all().unwrap();
        let counts = count();
        drop(file);
        volume.close().unwrap();
        counts
    });
    let [[bytes, flushes], [bytes_with, flushes_with]] = written;
    println!("bytes and flushes without checksums, and with: {written:?}");
    assert!(flushes_with <= flushes + 2, "{written:?}");
    assert!(bytes_with <= bytes + bytes / 100, "{written:?}");
}
