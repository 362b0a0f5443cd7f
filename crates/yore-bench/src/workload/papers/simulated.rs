//! The experiments in the library, on disks whose time is computed.
//!
//! How time passes there `computed` says.

use super::experiment::Experiment;
use crate::report::{Cell, Column, Row, Table};
use crate::simulated::{Usage, DISKS};
use crate::workload::computed::{seconds, Computed, Cost};
use crate::workload::mechanism::Mechanism;
use crate::workload::script::{Phase, Script};
use crate::{CompareOptions, Result};

/// On each disk.
type Costs = [Cost; DISKS.len()];

/// What runs on them.
pub(super) struct SimulatedDisks<'a> {
    pub(super) engines: &'a [Mechanism],
    /// How they run.
    pub(super) computed: Computed,
}

impl SimulatedDisks<'_> {
    /// A table for each of the script's and each disk, and one of all requests.
    pub(super) fn run(
        &self,
        experiment: Experiment,
        script: &Script,
        options: &CompareOptions,
    ) -> Result<Vec<Table>> {
        let mut engines = Vec::new();
        for &mechanism in self.engines {
            let mut costs = Costs::default();
            for (disk, costs) in costs.iter_mut().enumerate() {
                options.check_stop()?;
                *costs = self.computed.run(script, mechanism, disk)?;
            }
            engines.push((mechanism.info().name, costs));
        }
        let mut tables = Vec::new();
        for title in script.tables() {
            for (disk, name) in DISKS.iter().enumerate() {
                let mine = |phase: &&Phase| phase.table == Some(title);
                let measured = || script.phases.iter().filter(|phase| phase.table.is_some());
                let cell = |(phase, cost): (&Phase, &Usage)| Cell::new(vec![phase.rate(seconds(cost))]);
                let row = |(engine, costs): &(String, Costs)| Row {
                    target: engine.clone(),
                    cells: measured()
                        .zip(&costs[disk].phases)
                        .filter(|(phase, _)| mine(phase))
                        .map(cell)
                        .collect(),
                };
                tables.push(Table {
                    title: experiment.heading(title, &format!("simulated {name}")),
                    columns: measured().filter(mine).map(Phase::as_column).collect(),
                    rows: engines.iter().map(row).collect(),
                });
            }
        }
        for (disk, name) in DISKS.iter().enumerate() {
            tables.push(totals(
                experiment.heading("all requests", &format!("simulated {name}")),
                disk,
                &engines,
            ));
        }
        Ok(tables)
    }
}

/// What all phases cost together.
fn totals(title: String, disk: usize, engines: &[(String, Costs)]) -> Table {
    let columns = vec![
        Column::time("time"),
        Column::count("writes"),
        Column::bytes("written"),
        Column::count("reads"),
        Column::bytes("read"),
        Column::count("flushes"),
        Column::count("seeks"),
        Column::count("rounds"),
        Column::count("rolled back"),
    ];
    let row = |(engine, costs): &(String, Costs)| {
        let sum = |of: fn(&Usage) -> u64| costs[disk].phases.iter().map(of).sum::<u64>() as f64;
        let figures = [
            costs[disk].phases.iter().map(seconds).sum(),
            sum(|usage| usage.writes),
            sum(|usage| usage.bytes_written),
            sum(|usage| usage.reads),
            sum(|usage| usage.bytes_read),
            sum(|usage| usage.flushes),
            sum(|usage| usage.seeks),
            costs[disk].passes.rounds as f64,
            costs[disk].passes.rollbacks as f64,
        ];
        let cells = figures.into_iter().map(|figure| Cell::new(vec![figure])).collect();
        Row { target: engine.clone(), cells }
    };
    Table { title, columns, rows: engines.iter().map(row).collect() }
}
