//! `stream`: one large file.
//!
//! 1. It is written in sequence, and made durable: the time includes the fsync.
//! 2. It is read in sequence after all caches are dropped: the file system is mounted (or opened) anew, and
//!    the host's page cache dropped.
//! 3. Blocks of 4 KiB at random places are read, cold again.
//! 4. Blocks of 4 KiB at random places are overwritten, and the file is made durable.
//!
//! The random places are the same for all. Only root can drop the page cache, so only root can run this.

use super::steps::{check, noise, timed};
use crate::compare::{Benchmark, Subject};
use crate::report::Column;
use crate::rival::{check_can_drop_caches, OnTarget, RivalKind};
use crate::{Result, Target};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const SMALL: usize = 4096;
const LARGE: usize = 1 << 20;
const NAME: &str = "stream";

/// One large file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Its size; rounded up to whole MiB.
    pub bytes: u64,
    /// Random reads, and as many overwrites.
    pub random: usize,
    /// Decides the random places.
    pub seed: u64,
}

impl Default for Stream {
    fn default() -> Stream {
        Stream { bytes: 1 << 30, random: 20_000, seed: 42 }
    }
}

impl Stream {
    fn pieces(&self) -> usize {
        self.bytes.div_ceil(LARGE as u64).max(1) as usize
    }

    /// The places, in small blocks.
    fn offsets(&self) -> Vec<u64> {
        let blocks = (self.pieces() * (LARGE / SMALL)) as u64;
        let mut random = StdRng::seed_from_u64(self.seed);
        (0..self.random).map(|_| random.random_range(0..blocks) * SMALL as u64).collect()
    }
}

impl Benchmark for Stream {
    fn name(&self) -> &'static str {
        "stream"
    }

    fn about(&self) -> String {
        "One large file: sequential in pieces of 1 MiB, random in blocks of 4 KiB; writes include the fsync, reads are cold.".into()
    }

    fn options(&self) -> Vec<(String, String)> {
        vec![
            ("bytes".into(), (self.pieces() * LARGE).to_string()),
            ("random blocks".into(), self.random.to_string()),
            ("seed".into(), self.seed.to_string()),
        ]
    }

    fn tables(&self) -> Vec<(String, Vec<Column>)> {
        let columns = vec![
            Column::throughput("write"),
            Column::throughput("read, cold"),
            Column::rate("random read, cold"),
            Column::rate("random overwrite"),
        ];
        vec![(String::new(), columns)]
    }

    fn check(&self, _: RivalKind) -> Result<()> {
        check_can_drop_caches()
    }

    fn round(&self, subject: &mut Subject<'_>, _: usize) -> Result<Vec<Vec<f64>>> {
        let bytes = (self.pieces() * LARGE) as f64;
        let rival = &mut *subject.0;
        let mut step = |step: Step, cold: bool| {
            if cold {
                rival.chill()?;
            }
            rival.measure(Run { stream: self, step })
        };
        let write = bytes / step(Step::Write, false)?;
        let read = bytes / step(Step::Read, true)?;
        let random_read = self.random as f64 / step(Step::RandomRead, true)?;
        let random_write = self.random as f64 / step(Step::RandomWrite, false)?;
        step(Step::Remove, false)?;
        Ok(vec![vec![write, read, random_read, random_write]])
    }
}

#[derive(Clone, Copy)]
enum Step {
    Write,
    Read,
    RandomRead,
    RandomWrite,
    Remove,
}

/// One step; its output is seconds.
struct Run<'s> {
    stream: &'s Stream,
    step: Step,
}

impl OnTarget for Run<'_> {
    type Output = f64;

    fn on<T: Target>(self, target: &T) -> Result<f64> {
        let (pieces, offsets) = (self.stream.pieces(), self.stream.offsets());
        let root = target.root()?;
        match self.step {
            Step::Write => {
                let data = noise(LARGE, self.stream.seed);
                let file = target.create(&root, NAME)?;
                timed(pieces + 1, |i| match i < pieces {
                    true => target.write_at(&file, (i * LARGE) as u64, &data),
                    false => target.fsync(&file),
                })
            }
            Step::Read => {
                let mut buffer = vec![0; LARGE];
                let file = target.open(&root, NAME)?;
                timed(pieces, |i| full(target.read_at(&file, (i * LARGE) as u64, &mut buffer)?, LARGE))
            }
            Step::RandomRead => {
                let mut buffer = vec![0; SMALL];
                let file = target.open(&root, NAME)?;
                timed(offsets.len(), |i| full(target.read_at(&file, offsets[i], &mut buffer)?, SMALL))
            }
            Step::RandomWrite => {
                let data = noise(SMALL, self.stream.seed + 1);
                let file = target.open(&root, NAME)?;
                timed(offsets.len() + 1, |i| match offsets.get(i) {
                    Some(offset) => target.write_at(&file, *offset, &data),
                    None => target.fsync(&file),
                })
            }
            Step::Remove => target.unlink(&root, NAME).map(|()| 0.0),
        }
    }
}

fn full(found: usize, expected: usize) -> Result<()> {
    check(found == expected, format_args!("a read of {found} bytes"), format_args!("{expected} bytes"))
}
