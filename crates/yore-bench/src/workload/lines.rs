//! Rows of a report that compare two things: the figure with what is measured and the one without it, their
//! ratio, and a goal.

use crate::report::{Cell, Column, Row, Table, Unit};
use crate::stats::{median, paired_ratio};
use crate::Result;

/// The goal for a figure.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    /// The ratio, at least.
    Ratio(f64),
    /// The figure with it, at most.
    Most(f64),
    /// Nothing was set.
    None,
}

/// A row: what something is with what is measured and without it, one sample of each per round.
pub(crate) struct Line {
    pub(crate) measure: String,
    pub(crate) unit: Unit,
    pub(crate) goal: Goal,
    /// With, without.
    pub(crate) samples: [Vec<f64>; 2],
}

impl Line {
    pub(crate) fn new(measure: impl Into<String>, unit: Unit, goal: Goal) -> Line {
        Line { measure: measure.into(), unit, goal, samples: Default::default() }
    }

    /// Adds a round's sample of each side.
    pub(crate) fn push(&mut self, round: [f64; 2]) {
        for (samples, sample) in self.samples.iter_mut().zip(round) {
            samples.push(sample);
        }
    }

    /// Higher rates are better, and lower times.
    fn higher_is_better(&self) -> bool {
        matches!(self.unit, Unit::PerSecond | Unit::BytesPerSecond)
    }

    pub(crate) fn into_row(self) -> Row {
        let higher = self.higher_is_better();
        let [with, without] = self.samples;
        let ratio = |(with, without): (&f64, &f64)| paired_ratio(&[*with], &[*without], higher);
        let ratios = with.iter().zip(&without).filter_map(ratio).collect();
        let goal = match self.goal {
            Goal::Ratio(ratio) => Cell::new(vec![ratio]),
            Goal::Most(most) => Cell::in_unit(vec![most], self.unit),
            Goal::None => Cell::new(Vec::new()),
        };
        let [with, without] = [with, without].map(|samples| Cell::in_unit(samples, self.unit));
        Row { target: self.measure, cells: vec![with, without, Cell::new(ratios), goal] }
    }
}

/// With (0) and without (1), in the order of this turn.
pub(crate) fn turns(turn: usize) -> [usize; 2] {
    match turn % 2 {
        0 => [0, 1],
        _ => [1, 0],
    }
}

/// What is measured of each side this many times in a round, by turns: the median.
pub(crate) fn medians(
    round: usize,
    times: usize,
    mut measure: impl FnMut(usize) -> Result<f64>,
) -> Result<[f64; 2]> {
    let mut figures: [Vec<f64>; 2] = Default::default();
    for side in (0..times).flat_map(|turn| turns(round + turn)) {
        figures[side].push(measure(side)?);
    }
    Ok(figures.map(|figures| median(&figures)))
}

/// A table of such rows, whose first columns have these names.
pub(crate) fn table(title: &str, [with, without]: [&str; 2], lines: Vec<Line>) -> Table {
    let columns = [with, without, "ratio", "goal"].map(|name| Column::fact(name, Unit::Count));
    let rows = lines.into_iter().map(Line::into_row).collect();
    Table { title: title.into(), columns: columns.to_vec(), rows }
}
