//! `micro`: the cost of each basic call.
//!
//! Files go to the directories in turn, like those of a program that fills many directories at once. This
//! favours no file system that is good at one hot directory. Each thread works in directories of its own, or
//! all in the same ones ([`Micro::shared`]). All threads begin a step together; its rate is all threads'
//! operations over the time until the last thread is done. Names are generated before the clock starts,
//! because that is not the file system's work.
//!
//! The steps, with their sources: FUSE's costs by call (mkdir to unlink); 50,000 empty files each created and
//! at once deleted (Journaling versus Soft Updates §7.2); files of 4 KiB, each made durable before the next
//! (the cost of fsync).

use super::steps::{check, check_size, noise, timed};
use crate::compare::{Benchmark, Subject};
use crate::report::Column;
use crate::rival::OnTarget;
use crate::{Result, Target};
use std::sync::Barrier;
use std::time::Instant;
use strum::{EnumString, IntoStaticStr, VariantArray};

/// Bytes of each durable file.
const DURABLE_BYTES: usize = 4096;

/// A step of [`Micro`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum MicroStep {
    /// Directories made within the directories, a tenth as many as files.
    Mkdir,
    /// Empty files created.
    Create,
    /// Names listed.
    Readdir,
    /// Files examined by name.
    Stat,
    /// Files renamed within their directory.
    Rename,
    /// Empty files removed.
    Unlink,
    /// Files of [`Micro::file_bytes`] created and written.
    Write,
    /// The same files opened, read and closed, warm.
    Read,
    /// The same files removed.
    UnlinkWritten,
    /// Empty files, each created and at once removed.
    CreateUnlink,
    /// Files of 4 KiB, each durable before the next, a tenth as many.
    Durable,
}

impl MicroStep {
    /// All, in the order in which they run.
    pub const ALL: &[MicroStep] = MicroStep::VARIANTS;

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The step of that name.
    pub fn from_name(name: &str) -> Option<MicroStep> {
        name.parse().ok()
    }

    fn heading(self) -> &'static str {
        match self {
            MicroStep::Write => "create + write",
            MicroStep::UnlinkWritten => "unlink written",
            MicroStep::CreateUnlink => "create + unlink",
            MicroStep::Durable => "create + 4 KiB + fsync",
            other => other.name(),
        }
    }
}

/// What each basic call costs.
#[derive(Clone, Debug)]
pub struct Micro {
    /// Files per step; a tenth of them for [`MicroStep::Mkdir`] and [`MicroStep::Durable`].
    pub files: usize,
    /// Directories they are spread over.
    pub directories: usize,
    /// Bytes of each file in [`MicroStep::Write`] and [`MicroStep::Read`].
    pub file_bytes: usize,
    /// One table for each of these numbers of threads.
    pub threads: Vec<usize>,
    /// All threads in the same directories.
    pub shared: bool,
    /// What is reported. Steps that others need are run all the same.
    pub steps: Vec<MicroStep>,
}

impl Default for Micro {
    fn default() -> Micro {
        Micro {
            files: 20_000,
            directories: 100,
            file_bytes: 1024,
            threads: vec![1],
            shared: false,
            steps: MicroStep::ALL.to_vec(),
        }
    }
}

impl Benchmark for Micro {
    fn name(&self) -> &'static str {
        "micro"
    }

    fn about(&self) -> String {
        "Basic calls: operations per second.".into()
    }

    fn options(&self) -> Vec<(String, String)> {
        vec![
            ("files".into(), self.files.to_string()),
            ("directories".into(), self.directories.to_string()),
            ("bytes of a written file".into(), self.file_bytes.to_string()),
            ("directories shared by threads".into(), if self.shared { "yes" } else { "no" }.into()),
        ]
    }

    fn tables(&self) -> Vec<(String, Vec<Column>)> {
        let columns = || self.reported().map(|step| Column::rate(step.heading())).collect();
        let title = |threads: usize| match (threads, self.threads.len()) {
            (1, 1) => String::new(),
            (1, _) => "1 thread".to_string(),
            (n, _) => format!("{n} threads"),
        };
        self.threads.iter().map(|&threads| (title(threads), columns())).collect()
    }

    fn round(&self, subject: &mut Subject<'_>, round: usize) -> Result<Vec<Vec<f64>>> {
        self.threads.iter().map(|&threads| subject.0.measure(Round { micro: self, threads, round })).collect()
    }
}

impl Micro {
    fn reported(&self) -> impl Iterator<Item = MicroStep> + '_ {
        MicroStep::ALL.iter().copied().filter(|step| self.steps.contains(step))
    }
}

struct Round<'m> {
    micro: &'m Micro,
    threads: usize,
    round: usize,
}

/// One thread's share.
struct Share {
    /// The directories it works in, by index.
    directories: Vec<usize>,
    /// Its files' names, and those they are renamed to.
    old: Vec<String>,
    new: Vec<String>,
    /// How many of the names serve for steps with a tenth of the files.
    tenth: usize,
}

impl OnTarget for Round<'_> {
    type Output = Vec<f64>;

    fn on<T: Target>(self, target: &T) -> Result<Vec<f64>> {
        let directories = self.micro.directories.max(1).max(if self.micro.shared { 1 } else { self.threads });
        let root = target.root()?;
        let names: Vec<String> = (0..directories).map(|d| format!("round{}-{d:04}", self.round)).collect();
        let dirs = target.new_dirs(&root, &names)?;
        let shares: Vec<Share> = (0..self.threads).map(|thread| self.share(thread, directories)).collect();
        let barrier = Barrier::new(self.threads);
        let outcomes: Vec<Result<Vec<Span>>> = std::thread::scope(|scope| {
            let workers: Vec<_> = shares
                .iter()
                .map(|share| {
                    let work = Work { micro: self.micro, target, dirs: &dirs, share, barrier: &barrier };
                    scope.spawn(move || work.run())
                })
                .collect();
            // A panic in a worker becomes this program's.
            workers.into_iter().map(|w| w.join().unwrap_or_else(|p| std::panic::resume_unwind(p))).collect()
        });
        let spans = outcomes.into_iter().collect::<Result<Vec<_>>>()?;
        drop(dirs);
        for name in &names {
            target.rmdir(&root, name)?;
        }
        Ok(self.micro.reported().enumerate().map(|(i, _)| rate(spans.iter().map(|s| &s[i]))).collect())
    }
}

impl Round<'_> {
    fn share(&self, thread: usize, directories: usize) -> Share {
        let files = (self.micro.files / self.threads).max(1);
        let names = |prefix: &str| (0..files).map(|i| format!("{prefix}-{thread}-{i:07}")).collect();
        let mine = |d: &usize| self.micro.shared || d % self.threads == thread;
        Share {
            directories: (0..directories).filter(mine).collect(),
            old: names("file"),
            new: names("renamed"),
            tenth: (files / 10).max(1),
        }
    }
}

/// When one thread did a step, and how many operations it was.
struct Span {
    start: Instant,
    end: Instant,
    operations: usize,
}

fn rate<'s>(spans: impl Iterator<Item = &'s Span> + Clone) -> f64 {
    let operations: usize = spans.clone().map(|s| s.operations).sum();
    let (start, end) = (spans.clone().map(|s| s.start).min(), spans.map(|s| s.end).max());
    match (start, end) {
        (Some(start), Some(end)) => operations as f64 / end.duration_since(start).as_secs_f64(),
        _ => 0.0,
    }
}

/// One thread's work.
struct Work<'w, T: Target> {
    micro: &'w Micro,
    target: &'w T,
    dirs: &'w [T::Dir],
    share: &'w Share,
    barrier: &'w Barrier,
}

impl<T: Target> Work<'_, T> {
    /// Runs all steps; returns the spans of those that are reported. A thread that failed keeps meeting the
    /// others at the barrier, so that none waits for ever, and fails at the end.
    fn run(&self) -> Result<Vec<Span>> {
        let mut spans = Vec::new();
        let mut outcome = Ok(());
        for &step in MicroStep::ALL {
            if !self.needed(step) {
                continue;
            }
            self.barrier.wait();
            if outcome.is_err() {
                continue;
            }
            let start = Instant::now();
            let done = self.step(step);
            let end = Instant::now();
            match done {
                Ok(operations) if self.micro.steps.contains(&step) => {
                    spans.push(Span { start, end, operations })
                }
                Ok(_) => {}
                Err(error) => outcome = Err(error),
            }
            // The clean-up after a step counts in no figure, and disturbs none.
            self.barrier.wait();
            if outcome.is_ok() {
                outcome = self.clean_up(step);
            }
        }
        outcome.map(|()| spans)
    }

    /// Whether a step runs: steps that create files for others, or remove them, always do.
    fn needed(&self, step: MicroStep) -> bool {
        use MicroStep::*;
        let any = |steps: &[MicroStep]| steps.iter().any(|s| self.micro.steps.contains(s));
        match step {
            Create | Unlink => any(&[Create, Readdir, Stat, Rename, Unlink]),
            Write | UnlinkWritten => any(&[Write, Read, UnlinkWritten]),
            other => any(&[other]),
        }
    }

    fn dir(&self, i: usize) -> &T::Dir {
        &self.dirs[self.share.directories[i % self.share.directories.len()]]
    }

    /// Runs a step; returns the number of operations.
    fn step(&self, step: MicroStep) -> Result<usize> {
        let (target, share) = (self.target, self.share);
        let (old, new) = (&share.old, &share.new);
        let files = old.len();
        // Without the step that renames, the files still have their old names.
        let last = if self.needed(MicroStep::Rename) { new } else { old };
        match step {
            MicroStep::Mkdir => each(share.tenth, |i| target.mkdir(self.dir(i), &old[i])),
            MicroStep::Create => each(files, |i| target.create(self.dir(i), &old[i]).map(drop)),
            MicroStep::Readdir => self.list(),
            MicroStep::Stat => each(files, |i| target.stat(self.dir(i), &old[i]).map(drop)),
            MicroStep::Rename => each(files, |i| target.rename(self.dir(i), &old[i], self.dir(i), &new[i])),
            MicroStep::Unlink => each(files, |i| target.unlink(self.dir(i), &last[i])),
            MicroStep::Write => {
                let data = noise(self.micro.file_bytes, 1);
                each(files, |i| {
                    let file = target.create(self.dir(i), &old[i])?;
                    target.write_at(&file, 0, &data)
                })
            }
            MicroStep::Read => self.read(),
            MicroStep::UnlinkWritten => each(files, |i| target.unlink(self.dir(i), &old[i])),
            MicroStep::CreateUnlink => each(files, |i| {
                drop(target.create(self.dir(i), &old[i])?);
                target.unlink(self.dir(i), &old[i])
            }),
            MicroStep::Durable => {
                let data = noise(DURABLE_BYTES, 2);
                each(share.tenth, |i| {
                    let file = target.create(self.dir(i), &old[i])?;
                    target.write_at(&file, 0, &data)?;
                    target.fsync(&file)
                })
            }
        }
    }

    /// Lists this thread's directories; if directories are shared, a share of them.
    fn list(&self) -> Result<usize> {
        let mut listed = 0;
        for &directory in &self.share.directories {
            listed += self.target.list(&self.dirs[directory])?;
        }
        let least = self.share.old.len();
        check(listed >= least, format_args!("{listed} names listed"), format_args!("at least {least}"))?;
        Ok(listed)
    }

    fn read(&self) -> Result<usize> {
        let size = self.micro.file_bytes;
        let mut buffer = vec![0; size];
        each(self.share.old.len(), |i| {
            let file = self.target.open(self.dir(i), &self.share.old[i])?;
            let count = self.target.read_at(&file, 0, &mut buffer)?;
            check_size(count as u64, size as u64)
        })
    }

    /// Removes what a step left and no other step needs, after checking that it is correct.
    fn clean_up(&self, step: MicroStep) -> Result<()> {
        let (target, old) = (self.target, &self.share.old);
        match step {
            MicroStep::Mkdir => each(self.share.tenth, |i| target.rmdir(self.dir(i), &old[i])).map(drop),
            MicroStep::Durable => each(self.share.tenth, |i| {
                check_size(target.stat(self.dir(i), &old[i])?, DURABLE_BYTES as u64)?;
                target.unlink(self.dir(i), &old[i])
            })
            .map(drop),
            _ => Ok(()),
        }
    }
}

fn each(count: usize, step: impl FnMut(usize) -> Result<()>) -> Result<usize> {
    timed(count, step).map(|_| count)
}
