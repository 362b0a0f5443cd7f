//! How long a disk takes: two models with a virtual clock.
//!
//! The clock counts the device's own time. It advances with each request and stands still otherwise, so what
//! it shows is the cost of the I/O and nothing else, the same on every machine. One request or batch is
//! served at a time; what a batch holds may be served in any order, or at once where the device can.
//!
//! # The disk ([`HardDisk`])
//! A 3.5-inch disk of 1 TB at 7,200 turns a minute, with the figures that data sheets of such disks give
//! (Seagate Barracuda 7200.12 and Western Digital Caviar Blue of that size are alike within a tenth): average
//! seek of a read 8.5 ms, from track to track 1.0 ms, over the whole disk 17 ms, 8.33 ms a turn, 125 MB/s at
//! the medium, 32 MiB of cache, 300 MB/s at the interface. One zone: the rate is the mean over the disk.
//!
//! - *Seek:* `a + b·√d` for short distances, where the arm accelerates and brakes, and `c + e·d` for long
//!   ones, where it coasts (Ruemmler and Wilkes, "An introduction to disk drive modeling", 1994). The
//!   constants follow from the three figures above and from the curve being continuous where its halves meet.
//! - *Rotation:* the platter's angle follows from the clock, a sector's angle from its place. Tracks are
//!   skewed by what changing to the next takes, so a sequential transfer goes on without losing a turn.
//! - *Cache:* writes are held in it and acknowledged; a flush, or a full cache, writes them out in one sweep
//!   of the arm, neighbours together. A read that continues the one before finds the disk reading ahead;
//!   blocks still held are read from the cache.
//!
//! # The solid-state disk ([`SolidState`])
//! A SATA disk as sold to consumers, with the figures of a Samsung 860 EVO's data sheet: 13,000 reads and
//! 36,000 writes of 4 KiB a second one at a time (a latency of 77 and 28 µs), 98,000 and 90,000 with 32
//! outstanding (its parallelism), 550 and 520 MB/s. What a flush costs no data sheet says; 1 ms is of the
//! order that disks without a capacitor show, and 50 µs where there is nothing to flush.

use std::collections::BTreeSet;

/// Nanoseconds of virtual time.
pub type Nanos = u64;

const BLOCK: u64 = 4096;
const SECOND: f64 = 1e9;

/// A place and a length, in bytes; whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// From the start of the device.
    pub offset: u64,
    /// How many.
    pub len: u64,
}

/// What a device has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time it was busy.
    pub busy: Nanos,
    /// Requests to read, each of a batch counted.
    pub reads: u64,
    /// Requests to write.
    pub writes: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Flushes.
    pub flushes: u64,
    /// Movements of the arm.
    pub seeks: u64,
}

impl Usage {
    /// What was done since `before`.
    pub fn since(&self, before: &Usage) -> Usage {
        Usage {
            busy: self.busy - before.busy,
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
            bytes_read: self.bytes_read - before.bytes_read,
            bytes_written: self.bytes_written - before.bytes_written,
            flushes: self.flushes - before.flushes,
            seeks: self.seeks - before.seeks,
        }
    }

    /// What two disks did that worked side by side: the time of the one that was busy longer, and everything
    /// else added.
    pub fn beside(&self, other: &Usage) -> Usage {
        Usage {
            busy: self.busy.max(other.busy),
            reads: self.reads + other.reads,
            writes: self.writes + other.writes,
            bytes_read: self.bytes_read + other.bytes_read,
            bytes_written: self.bytes_written + other.bytes_written,
            flushes: self.flushes + other.flushes,
            seeks: self.seeks + other.seeks,
        }
    }
}

/// A model of a device; its clock is [`Usage::busy`].
pub trait Model: Send {
    /// Serves a batch of reads.
    fn read(&mut self, batch: &[Range]);
    /// Serves a batch of writes.
    fn write(&mut self, batch: &[Range]);
    /// Makes what was written durable.
    fn flush(&mut self);
    /// Nobody asks for anything for a while: what the device has not written it writes now. Its time counts,
    /// so that who never flushes pays for the medium, too.
    fn idle(&mut self);
    /// As [`yore_device::Device::blocks_gone_by`].
    fn blocks_gone_by(&self, next: u64) -> u64;
    /// What was done so far.
    fn usage(&self) -> Usage;
}

fn count(batch: &[Range]) -> (u64, u64) {
    (batch.len() as u64, batch.iter().map(|range| range.len).sum())
}

fn nanos(bytes: u64, per_second: f64) -> Nanos {
    (bytes as f64 / per_second * SECOND) as Nanos
}

/// A disk with an arm and platters. See the module for the figures' source.
#[derive(Debug)]
pub struct HardDisk {
    usage: Usage,
    cylinder: u64,
    /// Where the last read ended, if the disk has done nothing else since.
    reading: Option<u64>,
    /// Blocks that were written and are in the cache only.
    held: BTreeSet<u64>,
}

impl Default for HardDisk {
    fn default() -> HardDisk {
        HardDisk::new()
    }
}

impl HardDisk {
    /// 7,200 turns a minute.
    const TURN: Nanos = 8_333_333;
    /// At the medium.
    const MEDIUM_RATE: f64 = 125e6;
    /// At the interface.
    const INTERFACE_RATE: f64 = 300e6;
    /// To the next track of a cylinder or the next cylinder.
    const SWITCH: Nanos = 1_000_000;
    /// To understand a request.
    const COMMAND: Nanos = 50_000;
    const CACHE_BLOCKS: usize = (32 << 20) / BLOCK as usize;
    /// What passes under a head in one turn: 125 MB/s for 8.33 ms.
    const TRACK: u64 = 1_040_384;
    const CYLINDER: u64 = 4 * Self::TRACK;
    /// Cylinders of 1 TB.
    const CYLINDERS: f64 = 240_000.0;
    /// Where the seek curve's halves meet, as a share of the cylinders.
    const MEETING: f64 = 0.25;

    /// The arm at the start, the cache empty.
    pub fn new() -> HardDisk {
        HardDisk { usage: Usage::default(), cylinder: 0, reading: None, held: BTreeSet::new() }
    }

    /// The time for the arm to go over `distance` cylinders.
    pub fn seek_time(distance: u64) -> Nanos {
        // Long: through (a third of the disk, 8.5 ms), which is the average seek, and (the whole disk, 17
        // ms).
        let slope = (17.0 - 8.5) / (Self::CYLINDERS * 2.0 / 3.0);
        let long = |d: f64| 17.0 - slope * (Self::CYLINDERS - d);
        // Short: through (1 cylinder, 1 ms), meeting the long half.
        let meeting = Self::CYLINDERS * Self::MEETING;
        let b = (long(meeting) - 1.0) / (meeting.sqrt() - 1.0);
        let short = |d: f64| 1.0 + b * (d.sqrt() - 1.0);
        let milliseconds = match distance as f64 {
            0.0 => 0.0,
            d if d < meeting => short(d),
            d => long(d),
        };
        (milliseconds * 1e6) as Nanos
    }

    /// Moves the arm, waits for the platter, transfers.
    fn access(&mut self, range: Range) {
        let cylinder = range.offset / Self::CYLINDER;
        if cylinder != self.cylinder {
            self.usage.seeks += 1;
            self.usage.busy += Self::seek_time(cylinder.abs_diff(self.cylinder));
        }
        let track = range.offset / Self::TRACK;
        let in_track = range.offset % Self::TRACK;
        let angle = (nanos(in_track, Self::MEDIUM_RATE) + track * Self::SWITCH) % Self::TURN;
        let now = self.usage.busy % Self::TURN;
        self.usage.busy += (angle + Self::TURN - now) % Self::TURN;
        self.transfer(range);
    }

    /// Transfers from where the head is.
    fn transfer(&mut self, range: Range) {
        let last = range.offset + range.len.max(1) - 1;
        let switches = last / Self::TRACK - range.offset / Self::TRACK;
        self.usage.busy += nanos(range.len, Self::MEDIUM_RATE) + switches * Self::SWITCH;
        self.cylinder = last / Self::CYLINDER;
    }

    /// Writes out what is held, in one sweep upwards from the arm and one from the start.
    fn write_out(&mut self) {
        let held = std::mem::take(&mut self.held);
        let from = self.cylinder * Self::CYLINDER / BLOCK;
        let mut run: Option<Range> = None;
        let sweep: Vec<u64> = held.range(from..).chain(held.range(..from)).copied().collect();
        for block in sweep {
            let offset = block * BLOCK;
            match &mut run {
                Some(run) if run.offset + run.len == offset => run.len += BLOCK,
                _ => {
                    if let Some(run) = run.replace(Range { offset, len: BLOCK }) {
                        self.access(run);
                    }
                }
            }
        }
        if let Some(run) = run {
            self.access(run);
            self.reading = None;
        }
    }

    fn is_held(&self, range: Range) -> bool {
        let blocks = range.offset / BLOCK..(range.offset + range.len) / BLOCK;
        !self.held.is_empty() && self.held.range(blocks.clone()).count() as u64 == blocks.end - blocks.start
    }
}

impl Model for HardDisk {
    fn read(&mut self, batch: &[Range]) {
        let (reads, bytes) = count(batch);
        self.usage.reads += reads;
        self.usage.bytes_read += bytes;
        let mut sweep = batch.to_vec();
        sweep.sort_by_key(|range| range.offset);
        for range in sweep {
            self.usage.busy += Self::COMMAND;
            if self.is_held(range) {
                self.usage.busy += nanos(range.len, Self::INTERFACE_RATE);
            } else if self.reading == Some(range.offset) {
                self.transfer(range);
                self.reading = Some(range.offset + range.len);
            } else {
                self.access(range);
                self.reading = Some(range.offset + range.len);
            }
        }
    }

    fn write(&mut self, batch: &[Range]) {
        let (writes, bytes) = count(batch);
        self.usage.writes += writes;
        self.usage.bytes_written += bytes;
        for range in batch {
            self.usage.busy += Self::COMMAND + nanos(range.len, Self::INTERFACE_RATE);
            self.held.extend(range.offset / BLOCK..(range.offset + range.len) / BLOCK);
            if self.held.len() > Self::CACHE_BLOCKS {
                self.write_out();
            }
        }
    }

    fn flush(&mut self) {
        self.usage.flushes += 1;
        self.usage.busy += Self::COMMAND;
        self.write_out();
    }

    fn idle(&mut self) {
        self.write_out();
    }

    fn blocks_gone_by(&self, next: u64) -> u64 {
        yore_device::blocks_gone_by(next)
    }

    fn usage(&self) -> Usage {
        self.usage
    }
}

/// A disk of flash memory. See the module for the figures' source.
#[derive(Debug, Default)]
pub struct SolidState {
    usage: Usage,
    /// Something was written since the last flush.
    dirty: bool,
}

impl SolidState {
    const READ_LATENCY: Nanos = 77_000;
    const WRITE_LATENCY: Nanos = 28_000;
    /// Between operations that are served at once.
    const READ_GAP: Nanos = 10_200;
    const WRITE_GAP: Nanos = 11_100;
    const READ_RATE: f64 = 550e6;
    const WRITE_RATE: f64 = 520e6;
    const FLUSH: Nanos = 1_000_000;
    const EMPTY_FLUSH: Nanos = 50_000;

    /// Nothing held.
    pub fn new() -> SolidState {
        SolidState::default()
    }

    fn serve(&mut self, (operations, bytes): (u64, u64), latency: Nanos, gap: Nanos, rate: f64) {
        if operations > 0 {
            self.usage.busy += latency + nanos(bytes, rate).max((operations - 1) * gap);
        }
    }
}

impl Model for SolidState {
    fn read(&mut self, batch: &[Range]) {
        let (reads, bytes) = count(batch);
        self.usage.reads += reads;
        self.usage.bytes_read += bytes;
        self.serve((reads, bytes), Self::READ_LATENCY, Self::READ_GAP, Self::READ_RATE);
    }

    fn write(&mut self, batch: &[Range]) {
        let (writes, bytes) = count(batch);
        self.usage.writes += writes;
        self.usage.bytes_written += bytes;
        self.dirty |= writes > 0;
        self.serve((writes, bytes), Self::WRITE_LATENCY, Self::WRITE_GAP, Self::WRITE_RATE);
    }

    fn flush(&mut self) {
        self.usage.flushes += 1;
        let dirty = std::mem::take(&mut self.dirty);
        self.usage.busy += if dirty { Self::FLUSH } else { Self::EMPTY_FLUSH };
    }

    /// Writing to the medium goes on beside requests, and is part of the rates.
    fn idle(&mut self) {
        self.dirty = false;
    }

    fn blocks_gone_by(&self, _next: u64) -> u64 {
        0
    }

    fn usage(&self) -> Usage {
        self.usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};

    const MIB: u64 = 1 << 20;

    fn seconds(usage: Usage) -> f64 {
        usage.busy as f64 / SECOND
    }

    /// 1,000 blocks in sequence, and at random places of 100 GiB.
    fn both(mut new: impl FnMut() -> Box<dyn Model>, write: bool) -> (f64, f64) {
        let mut random = rand::rngs::StdRng::seed_from_u64(1);
        let mut run = |offset_of: &mut dyn FnMut(u64) -> u64| {
            let mut model = new();
            for i in 0..1000 {
                let range = Range { offset: offset_of(i) * BLOCK, len: BLOCK };
                match write {
                    true => model.write(&[range]),
                    false => model.read(&[range]),
                }
            }
            model.flush();
            seconds(model.usage())
        };
        (run(&mut |i| i), run(&mut |_| random.random_range(0..25_000_000)))
    }

    /// The seek curve goes through the data sheet's three figures, rises, and has no step.
    #[test]
    fn seeks_follow_the_data_sheet() {
        let ms = |cylinders| HardDisk::seek_time(cylinders) as f64 / 1e6;
        assert_eq!(ms(0), 0.0);
        for (distance, expected) in [(1, 1.0), (80_000, 8.5), (240_000, 17.0)] {
            assert!((ms(distance) - expected).abs() < 0.001, "{distance}: {}", ms(distance));
        }
        let mut last = 0.0;
        for distance in (1..240_000).step_by(97) {
            assert!(ms(distance) >= last && ms(distance) - last < 1.1, "{distance}");
            last = ms(distance);
        }
    }

    /// Random reads cost the average seek over their span and half a turn; sequential ones the medium's rate.
    #[test]
    fn the_disk_reads_in_sequence_much_faster() {
        let (sequential, random) = both(|| Box::new(HardDisk::new()), false);
        // 4 MB at 125 MB/s, 1,000 commands, track changes.
        assert!((0.08..0.12).contains(&sequential), "{sequential}");
        // Some 5 ms of seek over a tenth of the disk, 4.17 ms of rotation.
        assert!((7.0..11.0).contains(&random), "{random}");
    }

    /// The cache makes sequential writes one transfer, and random ones one sweep, cheaper than as many reads.
    #[test]
    fn the_disk_writes_in_sweeps() {
        let (sequential, random) = both(|| Box::new(HardDisk::new()), true);
        let (_, reads) = both(|| Box::new(HardDisk::new()), false);
        assert!(sequential < random / 20.0, "{sequential} {random}");
        assert!(random < reads, "{random} {reads}");
    }

    /// A large transfer keeps the data sheet's rate, less the changes of track.
    #[test]
    fn the_disk_streams() {
        let mut disk = HardDisk::new();
        for i in 0..256 {
            disk.read(&[Range { offset: i * MIB, len: MIB }]);
        }
        let rate = (256 * MIB) as f64 / seconds(disk.usage());
        assert!((100e6..125e6).contains(&rate), "{rate}");
        assert_eq!(disk.usage().reads, 256);
    }

    /// What is written costs the arm nothing before the flush, is read from the cache until then, and is on
    /// the medium after.
    #[test]
    fn a_flush_is_accounted() {
        let mut disk = HardDisk::new();
        let range = Range { offset: 1000 * MIB, len: BLOCK };
        disk.write(&[range]);
        disk.read(&[range]);
        assert_eq!(disk.usage().seeks, 0);
        let before = disk.usage();
        assert!(before.busy < 1_000_000, "{before:?}");
        disk.flush();
        let flush = disk.usage().since(&before);
        assert_eq!((flush.flushes, flush.seeks), (1, 1));
        assert!(flush.busy >= HardDisk::seek_time(1000 * MIB / HardDisk::CYLINDER), "{flush:?}");
        let before = disk.usage();
        disk.flush();
        assert_eq!(disk.usage().since(&before).busy, HardDisk::COMMAND, "nothing left to write");
        let mut ssd = SolidState::new();
        ssd.flush();
        assert_eq!(ssd.usage().busy, SolidState::EMPTY_FLUSH);
        ssd.write(&[range]);
        let before = ssd.usage();
        ssd.flush();
        assert_eq!(ssd.usage().since(&before).busy, SolidState::FLUSH);
    }

    /// One at a time and many at once, as on the data sheet; large transfers at the interface's rate.
    #[test]
    fn the_solid_state_disk_is_parallel() {
        let ranges: Vec<Range> = (0..32).map(|i| Range { offset: i * 7 * MIB, len: BLOCK }).collect();
        let per_second = |batches: &[&[Range]]| {
            let mut ssd = SolidState::new();
            batches.iter().for_each(|batch| ssd.read(batch));
            ssd.usage().reads as f64 / seconds(ssd.usage())
        };
        let one: Vec<&[Range]> = ranges.chunks(1).collect();
        assert!((11e3..13.1e3).contains(&per_second(&one)), "{}", per_second(&one));
        assert!(per_second(&[&ranges]) > 75e3, "{}", per_second(&[&ranges]));
        let mut ssd = SolidState::new();
        ssd.write(&[Range { offset: 0, len: 512 * MIB }]);
        let rate = (512 * MIB) as f64 / seconds(ssd.usage());
        assert!((515e6..520e6).contains(&rate), "{rate}");
    }
}
