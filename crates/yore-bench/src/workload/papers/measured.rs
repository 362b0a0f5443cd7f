//! The experiments on the real disk: a thread for each client, a fresh file system for each experiment and
//! round, beside other file systems.

use super::experiment::Experiment;
use crate::compare::{Benchmark, Subject};
use crate::report::{Column, Report, Unit};
use crate::rival::{check_can_drop_caches, OnTarget};
use crate::workload::player::Player;
use crate::workload::script::{Phase, Script};
use crate::{compare, program, BenchError, CompareOptions, Result, RivalKind, Target};
use std::time::Instant;

/// What the script costs on `options.targets`, and what a program says that does the same on mounts.
///
/// # Errors
/// As [`compare`].
pub(super) fn measure(
    experiment: Experiment,
    script: &Script,
    dbench: Dbench<'_>,
    options: &CompareOptions,
) -> Result<Vec<Report>> {
    let options = CompareOptions { fresh: true, ..options.clone() };
    let mut reports = vec![compare(&Measured { experiment, script }, &options)?];
    if experiment == Experiment::Dbench {
        reports.push(compare(&dbench, &options)?);
    }
    Ok(reports)
}

struct Measured<'s> {
    experiment: Experiment,
    script: &'s Script,
}

impl Benchmark for Measured<'_> {
    fn name(&self) -> &'static str {
        self.experiment.name()
    }

    fn about(&self) -> String {
        format!("{} as the papers have it.", self.experiment.name())
    }

    fn options(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn tables(&self) -> Vec<(String, Vec<Column>)> {
        let table = |title: &'static str| {
            let mine = self.script.phases.iter().filter(|phase| phase.table == Some(title));
            let mut columns: Vec<Column> = mine.map(Phase::as_column).collect();
            columns.push(Column::fact("syncs afterwards", Unit::Seconds));
            (self.experiment.heading(title, "real disk"), columns)
        };
        self.script.tables().into_iter().map(table).collect()
    }

    fn check(&self, _: RivalKind) -> Result<()> {
        match self.script.phases.iter().any(|phase| phase.cold) {
            true => check_can_drop_caches(),
            false => Ok(()),
        }
    }

    fn round(&self, subject: &mut Subject<'_>, _: usize) -> Result<Vec<Vec<f64>>> {
        let titles = self.script.tables();
        let mut tables = vec![Vec::new(); titles.len()];
        let mut syncing = vec![0.0; titles.len()];
        for phase in &self.script.phases {
            if phase.cold {
                subject.0.chill()?;
            }
            let (working, sync) = subject.0.measure(OnePhase { script: self.script, phase })?;
            let Some(table) = titles.iter().position(|title| phase.table == Some(title)) else { continue };
            tables[table].push(phase.rate(working));
            syncing[table] += sync;
        }
        for (table, sync) in tables.iter_mut().zip(syncing) {
            table.push(sync);
        }
        Ok(tables)
    }
}

struct OnePhase<'s> {
    script: &'s Script,
    phase: &'s Phase,
}

impl OnTarget for OnePhase<'_> {
    /// Seconds of the phase, and of a sync behind it, so that none pays for another.
    type Output = (f64, f64);

    fn on<T: Target>(self, target: &T) -> Result<(f64, f64)> {
        let working = Player::new(self.script, target).with_threads(self.phase)?;
        let start = Instant::now();
        target.sync()?;
        Ok((working, start.elapsed().as_secs_f64()))
    }
}

/// Debian's program `dbench`, which has the processes and the calls of the original.
pub(super) struct Dbench<'p> {
    /// For which numbers of clients.
    pub(super) clients: &'p [u32],
    /// How long for each.
    pub(super) seconds: u32,
}

impl Benchmark for Dbench<'_> {
    fn name(&self) -> &'static str {
        "dbench"
    }

    fn about(&self) -> String {
        "The program dbench.".into()
    }

    fn options(&self) -> Vec<(String, String)> {
        vec![("seconds of dbench".into(), self.seconds.to_string())]
    }

    fn tables(&self) -> Vec<(String, Vec<Column>)> {
        let column = |clients: &u32| Column::throughput(format!("{clients} clients"));
        let columns = self.clients.iter().map(column).collect();
        vec![("dbench, the program: real disk".into(), columns)]
    }

    fn check(&self, kind: RivalKind) -> Result<()> {
        match kind.has_paths() {
            true => Ok(()),
            false => {
                Err(BenchError::impossible("dbench needs a mount", "its load is replayed in the library"))
            }
        }
    }

    fn round(&self, subject: &mut Subject<'_>, _: usize) -> Result<Vec<Vec<f64>>> {
        let path = subject.0.path()?;
        let mut figures = Vec::new();
        for clients in self.clients {
            let mut command = program::command("dbench");
            command.arg("-D").arg(&path).args(["-t", &self.seconds.to_string(), &clients.to_string()]);
            let said = program::run(&mut command, "dbench")?;
            figures.push(throughput(&said).ok_or_else(|| BenchError::Command {
                command: "dbench".into(),
                said: format!("no throughput in “{}”", said.trim()),
            })?);
        }
        Ok(vec![figures])
    }
}

/// Bytes a second, from a line like `Throughput 123.4 MB/sec  4 clients …`.
fn throughput(said: &str) -> Option<f64> {
    let line = said.lines().find_map(|line| line.strip_prefix("Throughput "))?;
    let megabytes: f64 = line.split_whitespace().next()?.parse().ok()?;
    // It says 0 when its time was over before it began to count.
    Some(megabytes * 1e6).filter(|bytes| *bytes > 0.0)
}

#[cfg(test)]
mod tests {
    use super::throughput;

    /// Its figure is found among its other lines.
    #[test]
    fn dbench_says_its_throughput() {
        let said =
            "   4  cleanup   1 sec\n\nThroughput 331.25 MB/sec  4 clients  4 procs  max_latency=19.1 ms\n";
        assert_eq!(throughput(said), Some(331.25e6));
        assert_eq!(throughput("dbench: no such file\n"), None);
        assert_eq!(throughput("Throughput 0 MB/sec  1 clients  1 procs  max_latency=0 ms\n"), None);
    }
}
