//! `postmark`: many small files with short lives, as mail and news servers have them (Katcher, NetApp
//! TR-3022).
//!
//! 1. A pool of files is created, of uniformly distributed sizes, each in a random directory.
//! 2. Each transaction is two steps: it reads a file of the pool whole or appends to one, and creates or
//!    deletes one, each choice by its bias. An append adds a random amount that keeps the file within the
//!    largest size; to a file of that size it adds nothing. Each step opens a file and closes it, and reads
//!    and writes in blocks of [`PostMark::block_bytes`].
//! 3. The rest of the pool is deleted, and the directories.
//!
//! The transactions depend on the seed alone, so all file systems and rounds get the same ones. They are
//! drawn before the clock starts ([`Plan`]), and so is the data.

use super::script::{Action, Calls as _, Per, Script};
use super::steps::{check, noise, timed};
use crate::compare::{Benchmark, Subject};
use crate::report::{Column, Unit};
use crate::rival::OnTarget;
use crate::{Result, Target};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::time::Instant;

/// Small files with short lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostMark {
    /// Transactions.
    pub transactions: usize,
    /// Files of the pool at the start.
    pub files: usize,
    /// Directories they are spread over.
    pub directories: usize,
    /// Bytes of a new file: from this …
    pub smallest: usize,
    /// … to this, which no append exceeds.
    pub largest: usize,
    /// Bytes of each read and write.
    pub block_bytes: usize,
    /// Of ten transactions, how many read instead of appending.
    pub read_bias: u32,
    /// Of ten transactions, how many create instead of deleting.
    pub create_bias: u32,
    /// Decides all random choices.
    pub seed: u64,
}

impl Default for PostMark {
    /// As for the metadata snapshotting of K42's file system: 100,000 transactions on 20,000 files of 500
    /// bytes to 16 KiB in 400 directories. The program's own blocks of 512 bytes pass through the buffer of
    /// C's standard library unless that is switched off, so what a file system sees are calls of 4 KiB.
    fn default() -> PostMark {
        PostMark {
            transactions: 100_000,
            files: 20_000,
            directories: 400,
            smallest: 500,
            largest: 16 << 10,
            block_bytes: 4096,
            read_bias: 5,
            create_bias: 5,
            seed: 42,
        }
    }
}

impl PostMark {
    /// As for Journaling versus Soft Updates (§7.3.4): PostMark's defaults of the time, 10,000 files and
    /// 20,000 transactions, no subdirectories.
    pub fn small() -> PostMark {
        PostMark { transactions: 20_000, files: 10_000, directories: 1, smallest: 512, ..PostMark::default() }
    }

    /// The larger one there: 150,000 files, about 1.1 GB.
    pub fn large() -> PostMark {
        PostMark { files: 150_000, ..PostMark::small() }
    }
}

impl PostMark {
    /// The same with this many transactions, and files and directories in proportion.
    pub fn with_transactions(&self, transactions: usize) -> PostMark {
        let share = transactions as f64 / self.transactions.max(1) as f64;
        let scaled = self.scaled(|full| ((full as f64 * share) as usize).max(1));
        PostMark { transactions, ..scaled }
    }

    /// The same with other numbers of transactions, files and directories.
    pub(super) fn scaled(&self, of: impl Fn(usize) -> usize) -> PostMark {
        let [transactions, files, directories] = [self.transactions, self.files, self.directories]
            .map(|full| if full > 1 { of(full) } else { full });
        PostMark { transactions, files, directories: directories.min(self.directories), ..self.clone() }
    }

    /// The same as a script of file system calls.
    pub(super) fn script(&self) -> Script {
        let plan = Plan::new(self);
        let mut script = Script::default();
        let directories = script.make_directories("s", self.directories);
        let files: Vec<u32> = (plan.directories.iter().enumerate())
            .map(|(file, directory)| script.file(directories[*directory], file.to_string()))
            .collect();
        let mut sizes = vec![0u64; files.len()];
        let mut calls = |steps: &[Step]| {
            let mut actions = Vec::new();
            for step in steps {
                match *step {
                    Step::Create { file, bytes, .. } => {
                        actions.make(files[file], bytes as u64);
                        sizes[file] = bytes as u64;
                    }
                    Step::Delete { file } => actions.push(Action::Remove(files[file])),
                    Step::Read { file } => actions.read_whole(files[file], sizes[file]),
                    Step::Append { bytes: 0, .. } => {}
                    Step::Append { file, at, bytes } => {
                        actions.append_to(files[file], at as u64, bytes as u64);
                        sizes[file] += bytes as u64;
                    }
                }
            }
            actions
        };
        let operations = |steps: &[Step], each| Per::Operations((steps.len() / each) as u64);
        for (column, steps, each) in [
            ("create pool", &plan.pool, 1),
            ("transactions", &plan.transactions, 2),
            ("delete pool", &plan.rest, 1),
        ] {
            script.measure("", column, operations(steps, each), calls(steps));
        }
        script
    }
}

/// One step on a file of the pool, by its number: files are numbered in the order of their creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Create { file: usize, directory: usize, bytes: usize },
    Delete { file: usize },
    Read { file: usize },
    Append { file: usize, at: usize, bytes: usize },
}

/// All that is done, in order.
pub(super) struct Plan {
    pub(super) pool: Vec<Step>,
    pub(super) transactions: Vec<Step>,
    pub(super) rest: Vec<Step>,
    /// The directory of each file, by its number.
    directories: Vec<usize>,
}

/// How many steps of a kind, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    created: usize,
    deleted: usize,
    read: usize,
    appended: usize,
    bytes_read: u64,
    bytes_written: u64,
}

impl Plan {
    pub(super) fn new(options: &PostMark) -> Plan {
        let mut random = StdRng::seed_from_u64(options.seed);
        let mut plan =
            Plan { pool: Vec::new(), transactions: Vec::new(), rest: Vec::new(), directories: Vec::new() };
        // Sizes by number; numbers of the files that are there.
        let (mut sizes, mut there) = (Vec::new(), Vec::new());
        let mut create = |random: &mut StdRng, sizes: &mut Vec<usize>, there: &mut Vec<usize>| {
            let file = sizes.len();
            let bytes = random.random_range(options.smallest..=options.largest.max(options.smallest));
            let directory = random.random_range(0..options.directories.max(1));
            sizes.push(bytes);
            there.push(file);
            plan.directories.push(directory);
            Step::Create { file, directory, bytes }
        };
        for _ in 0..options.files {
            let step = create(&mut random, &mut sizes, &mut there);
            plan.pool.push(step);
        }
        for _ in 0..options.transactions {
            // Ends early when all files are deleted, as PostMark does: with equal biases that takes a very
            // small pool.
            if there.is_empty() {
                break;
            }
            let file = there[random.random_range(0..there.len())];
            let size = sizes[file];
            if random.random_range(0..10) < options.read_bias {
                plan.transactions.push(Step::Read { file });
            } else {
                let room = options.largest.saturating_sub(size);
                let bytes = if room > 0 { random.random_range(1..=room) } else { 0 };
                sizes[file] += bytes;
                plan.transactions.push(Step::Append { file, at: size, bytes });
            }
            if random.random_range(0..10) < options.create_bias {
                let step = create(&mut random, &mut sizes, &mut there);
                plan.transactions.push(step);
            } else {
                let file = there.swap_remove(random.random_range(0..there.len()));
                plan.transactions.push(Step::Delete { file });
            }
        }
        plan.rest = there.into_iter().map(|file| Step::Delete { file }).collect();
        plan
    }

    fn totals(&self, steps: &[Step]) -> Totals {
        let mut sizes = vec![0; self.directories.len()];
        let mut totals = Totals::default();
        let before = if std::ptr::eq(steps, &self.pool[..]) { &[][..] } else { &self.pool[..] };
        for (step, counts) in before.iter().map(|s| (s, false)).chain(steps.iter().map(|s| (s, true))) {
            let counted = usize::from(counts);
            match *step {
                Step::Create { file, bytes, .. } => {
                    sizes[file] = bytes as u64;
                    totals.created += counted;
                    totals.bytes_written += bytes as u64 * counted as u64;
                }
                Step::Delete { .. } => totals.deleted += counted,
                Step::Read { file } => {
                    totals.read += counted;
                    totals.bytes_read += sizes[file] * counted as u64;
                }
                Step::Append { file, bytes, .. } => {
                    sizes[file] += bytes as u64;
                    totals.appended += counted;
                    totals.bytes_written += bytes as u64 * counted as u64;
                }
            }
        }
        totals
    }
}

impl Benchmark for PostMark {
    fn name(&self) -> &'static str {
        "postmark"
    }

    fn about(&self) -> String {
        "PostMark: many small files with short lives.".into()
    }

    fn options(&self) -> Vec<(String, String)> {
        let number = |name: &str, value: usize| (name.to_string(), value.to_string());
        vec![
            number("transactions", self.transactions),
            number("files", self.files),
            number("directories", self.directories),
            number("smallest file", self.smallest),
            number("largest file", self.largest),
            number("block bytes", self.block_bytes),
            number("read bias of 10", self.read_bias as usize),
            number("create bias of 10", self.create_bias as usize),
            ("seed".into(), self.seed.to_string()),
        ]
    }

    fn tables(&self) -> Vec<(String, Vec<Column>)> {
        vec![(
            String::new(),
            vec![
                Column::rate("transactions"),
                Column::rate("create pool"),
                Column::rate("delete pool"),
                Column::throughput("read"),
                Column::throughput("written"),
                Column::time("total"),
                Column::fact("sync afterwards", Unit::Seconds),
            ],
        )]
    }

    fn round(&self, subject: &mut Subject<'_>, round: usize) -> Result<Vec<Vec<f64>>> {
        let plan = Plan::new(self);
        subject.0.measure(Round { options: self, plan: &plan, round }).map(|samples| vec![samples])
    }
}

struct Round<'p> {
    options: &'p PostMark,
    plan: &'p Plan,
    round: usize,
}

impl OnTarget for Round<'_> {
    type Output = Vec<f64>;

    fn on<T: Target>(self, target: &T) -> Result<Vec<f64>> {
        let (options, plan) = (self.options, self.plan);
        let dir_names: Vec<String> =
            (0..options.directories.max(1)).map(|d| format!("s{}-{d}", self.round)).collect();
        let root = target.root()?;
        let start = Instant::now();
        let dirs = target.new_dirs(&root, &dir_names)?;
        let mut run = Run::new(options, plan, target, &dirs);
        let creating = run.all(&plan.pool)?;
        let transacting = run.all(&plan.transactions)?;
        let deleting = run.all(&plan.rest)?;
        drop(run);
        drop(dirs);
        for name in &dir_names {
            target.rmdir(&root, name)?;
        }
        let total = start.elapsed().as_secs_f64();
        let start = Instant::now();
        target.sync()?;
        let syncing = start.elapsed().as_secs_f64();
        let totals = plan.totals(&plan.transactions);
        Ok(vec![
            plan.transactions.len() as f64 / 2.0 / transacting,
            plan.pool.len() as f64 / creating,
            plan.rest.len() as f64 / deleting,
            totals.bytes_read as f64 / transacting,
            totals.bytes_written as f64 / transacting,
            total,
            syncing,
        ])
    }
}

/// A plan being carried out.
pub(super) struct Run<'r, T: Target> {
    options: &'r PostMark,
    plan: &'r Plan,
    target: &'r T,
    dirs: &'r [T::Dir],
    /// Of files, by number.
    names: Vec<String>,
    data: Vec<u8>,
    buffer: Vec<u8>,
}

impl<'r, T: Target> Run<'r, T> {
    /// In `dirs`, of which there are as many as `options` says.
    pub(super) fn new(
        options: &'r PostMark,
        plan: &'r Plan,
        target: &'r T,
        dirs: &'r [T::Dir],
    ) -> Run<'r, T> {
        let names = (0..plan.directories.len()).map(|file| file.to_string()).collect();
        let data = noise(options.largest.max(options.smallest).max(1), options.seed);
        Run { options, plan, target, dirs, names, data, buffer: vec![0; options.block_bytes.max(1)] }
    }

    /// Seconds for all of `steps`.
    pub(super) fn all(&mut self, steps: &[Step]) -> Result<f64> {
        timed(steps.len(), |i| self.step(steps[i]))
    }

    fn step(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Create { file, directory, bytes } => {
                let open = self.target.create(&self.dirs[directory], &self.names[file])?;
                self.write(&open, 0, bytes)
            }
            Step::Delete { file } => self.target.unlink(self.dir(file), &self.names[file]),
            Step::Read { file } => self.read(file),
            Step::Append { file, at, bytes } => {
                // As PostMark does, which knows the size from its own table.
                if bytes == 0 {
                    return Ok(());
                }
                let open = self.target.open(self.dir(file), &self.names[file])?;
                self.write(&open, at, bytes)
            }
        }
    }

    fn dir(&self, file: usize) -> &T::Dir {
        &self.dirs[self.plan.directories[file]]
    }

    fn write(&self, open: &T::File, at: usize, bytes: usize) -> Result<()> {
        for (i, block) in self.data[..bytes].chunks(self.options.block_bytes.max(1)).enumerate() {
            self.target.write_at(open, (at + i * self.options.block_bytes) as u64, block)?;
        }
        Ok(())
    }

    /// Reads to the end, which it finds by reading.
    fn read(&mut self, file: usize) -> Result<()> {
        let open = self.target.open(self.dir(file), &self.names[file])?;
        let mut at = 0;
        loop {
            let count = self.target.read_at(&open, at, &mut self.buffer)?;
            at += count as u64;
            if count < self.buffer.len() {
                break;
            }
        }
        check(at > 0, format_args!("an empty file"), format_args!("what was written"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny() -> PostMark {
        PostMark { transactions: 1000, files: 200, directories: 10, ..PostMark::default() }
    }

    /// The same seed gives the same plan, and another seed another plan.
    #[test]
    fn the_plan_follows_from_the_seed() {
        let steps = |seed| Plan::new(&PostMark { seed, ..tiny() }).transactions;
        assert_eq!(steps(7), steps(7));
        assert_ne!(steps(7), steps(8));
    }

    /// Equal biases give each kind of step half of its pairs, within chance (5 standard deviations), and
    /// every file that was created is deleted in the end.
    #[test]
    fn the_mix_is_even_and_leaves_nothing() {
        let options = tiny();
        let plan = Plan::new(&options);
        assert_eq!(plan.transactions.len(), 2 * options.transactions);
        let totals = plan.totals(&plan.transactions);
        assert_eq!(totals.read + totals.appended, options.transactions);
        assert_eq!(totals.created + totals.deleted, options.transactions);
        for count in [totals.read, totals.created] {
            assert!((420..=580).contains(&count), "{totals:?}");
        }
        assert_eq!(plan.directories.len(), options.files + totals.created);
        assert_eq!(plan.rest.len() + totals.deleted, options.files + totals.created);
        assert!(totals.bytes_read > 0 && totals.bytes_written > 0);
    }

    /// No file is made, or grows by appends, beyond the bounds; each step is on a file that is there, with
    /// its size.
    #[test]
    fn sizes_stay_within_bounds() {
        let options = tiny();
        let plan = Plan::new(&options);
        let mut sizes = std::collections::HashMap::new();
        for step in plan.pool.iter().chain(&plan.transactions).chain(&plan.rest) {
            match *step {
                Step::Create { file, bytes, directory } => {
                    assert!((options.smallest..=options.largest).contains(&bytes));
                    assert!(directory < options.directories && plan.directories[file] == directory);
                    assert!(sizes.insert(file, bytes).is_none());
                }
                Step::Append { file, at, bytes } => {
                    let size = sizes.get_mut(&file).unwrap();
                    assert_eq!(*size, at);
                    *size += bytes;
                    assert!(*size <= options.largest);
                }
                Step::Read { file } => assert!(sizes.contains_key(&file)),
                Step::Delete { file } => assert!(sizes.remove(&file).is_some()),
            }
        }
        assert!(sizes.is_empty());
    }

    /// A bias of 0 or 10 leaves one kind of step only; a pool that runs dry ends the transactions.
    #[test]
    fn biases_go_to_the_ends() {
        let plan = Plan::new(&PostMark { read_bias: 10, create_bias: 0, ..tiny() });
        let totals = plan.totals(&plan.transactions);
        assert_eq!((totals.appended, totals.created), (0, 0));
        assert_eq!((totals.read, totals.deleted), (200, 200));
        assert!(plan.rest.is_empty());
    }
}
