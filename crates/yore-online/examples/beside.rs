//! What a check of a volume in use costs the work beside it:
//! `beside DIRECTORY [ROUNDS] [TRANSACTIONS] [FILES]`.
//!
//! Many small files are made, read, appended to and removed, as PostMark does it, through the library, on an
//! image file in the directory. In each round the same number of transactions is done without a check, and
//! then beside checks that follow one another without a pause: the worst that can be asked for. The second of
//! each pair comes first in every other round.

use rand::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::error::Error;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use yore_device::{CreateOptions, FileDevice};
use yore_fs::{MkfsOptions, OpenOptions, Volume};
use yore_online::{check, OnlineOptions};

const DIRECTORIES: u64 = 100;

struct Work<'v> {
    volume: &'v Volume,
    rng: Xoshiro256PlusPlus,
    files: Vec<u64>,
    next: u64,
    bytes: Vec<u8>,
}

impl Work<'_> {
    fn path(no: u64) -> String {
        format!("{}/{no}", no % DIRECTORIES)
    }

    fn create(&mut self) -> yore_fs::Result<()> {
        let len = self.rng.random_range(500..10_000);
        self.volume.write(Self::path(self.next), &self.bytes[..len])?;
        self.files.push(self.next);
        self.next += 1;
        Ok(())
    }

    fn transaction(&mut self) -> yore_fs::Result<()> {
        let at = self.rng.random_range(0..self.files.len());
        let path = Self::path(self.files[at]);
        if self.rng.random() {
            self.volume.read(&path)?;
        } else {
            let file = OpenOptions::new().append(true).open(self.volume, &path)?;
            let end = file.metadata()?.len();
            file.write_at(&self.bytes[..self.rng.random_range(500..5000)], end)?;
        }
        if self.rng.random() {
            self.create()
        } else {
            let at = self.rng.random_range(0..self.files.len());
            let no = self.files.swap_remove(at);
            self.volume.remove_file(Self::path(no))
        }
    }

    fn run(&mut self, transactions: u64) -> yore_fs::Result<Duration> {
        let begun = Instant::now();
        for _ in 0..transactions {
            self.transaction()?;
        }
        Ok(begun.elapsed())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let directory = args.next().ok_or("name a directory")?;
    let mut number = |default: u64| args.next().map_or(Ok(default), |n| n.parse());
    let (rounds, transactions, files) = (number(8)?, number(100_000)?, number(20_000)?);
    let path = std::path::Path::new(&directory).join("beside.yore");
    let device = FileDevice::create(&path, 2 << 30, CreateOptions::default())?;
    let volume = Volume::create(Arc::new(device), &MkfsOptions::default())?;
    let bytes = (0..10_000u32).map(|i| i as u8).collect();
    let rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut work = Work { volume: &volume, rng, files: Vec::new(), next: 0, bytes };
    for no in 0..DIRECTORIES {
        volume.create_dir(no.to_string())?;
    }
    for _ in 0..files {
        work.create()?;
    }
    volume.sync()?;
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let (mut alone, mut beside, mut checks) = (Duration::ZERO, Duration::ZERO, 0);
        let mut kept = 0;
        for turn in 0..2 {
            if (round + turn) % 2 == 0 {
                alone = work.run(transactions)?;
                continue;
            }
            let stop = AtomicBool::new(false);
            beside = std::thread::scope(|scope| -> Result<Duration, Box<dyn Error>> {
                let (view, stop) = (volume.view(), &stop);
                let checker = scope.spawn(move || -> Result<(u64, u64), yore_online::OnlineError> {
                    let (mut checks, mut kept) = (0, 0);
                    while !stop.load(Ordering::Relaxed) {
                        let go_on = &mut |_: &yore_check::Progress| ControlFlow::Continue(());
                        let found = check(view, &OnlineOptions::default(), go_on)?;
                        assert!(found.is_clean(), "{}", found.report);
                        checks += 1;
                        kept += found.kept_blocks;
                    }
                    Ok((checks, kept))
                });
                let took = work.run(transactions);
                stop.store(true, Ordering::Relaxed);
                (checks, kept) = checker.join().map_err(|_| "a check has panicked")??;
                Ok(took?)
            })?;
        }
        let per_second = |took: Duration| transactions as f64 / took.as_secs_f64();
        let ratio = per_second(beside) / per_second(alone);
        println!(
            "round {round}: {:.0}/s alone, {:.0}/s beside {checks} checks ({kept} blocks kept): {ratio:.3}",
            per_second(alone),
            per_second(beside)
        );
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median {:.3}, least {:.3}", ratios[ratios.len() / 2], ratios[0]);
    volume.close()?;
    std::fs::remove_file(path)?;
    Ok(())
}
