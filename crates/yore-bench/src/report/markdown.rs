//! The report as Markdown, which is what the terminal shows.

use super::{Cell, Column, Report, Table};
use std::fmt::{self, Write};

impl Report {
    /// The report as Markdown: medians, the spread over the rounds, ratios.
    pub fn to_markdown(&self) -> String {
        let mut out = String::new();
        self.write_markdown(&mut out).expect("writing to a string cannot fail");
        out
    }

    fn write_markdown(&self, out: &mut String) -> fmt::Result {
        let machine = &self.machine;
        let options: Vec<String> =
            self.options.iter().map(|(name, value)| format!("{name} {value}")).collect();
        writeln!(out, "{}\n", self.about)?;
        writeln!(
            out,
            "{}; Linux {}, {} processors, images on {}. Medians; in brackets how far the rounds lie apart.",
            options.join(", "),
            machine.kernel,
            machine.processors,
            machine.host_file_system,
        )?;
        if machine.debug_build {
            writeln!(out, "\nThis is a build without optimisation: its figures say nothing.")?;
        }
        for table in &self.tables {
            self.write_table(out, table)?;
        }
        for (what, list) in [("Not measured", &self.left_out), ("FAILED while it was measured", &self.failed)]
        {
            for left_out in list {
                writeln!(out, "\n{what}: {} ({}).", left_out.target, left_out.reason)?;
            }
        }
        for note in &self.notes {
            writeln!(out, "\n{note}")?;
        }
        Ok(())
    }

    fn write_table(&self, out: &mut String, table: &Table) -> fmt::Result {
        if !table.title.is_empty() {
            write!(out, "\n{}:\n", table.title)?;
        }
        let figures = table.rows.iter().map(|row| {
            let cells =
                row.cells.iter().zip(&table.columns).map(|(cell, column)| show(cell, column)).collect();
            (row.target.clone(), cells)
        });
        write_grid(out, &table.columns, figures.collect())?;
        let ratios = self.ratios(table);
        if !ratios.is_empty() {
            write!(out, "\nTimes as good (above 1 is better; median of the rounds' ratios):\n")?;
            let cell = |ratio: Option<f64>| ratio.map_or("–".to_string(), |ratio| format!("{ratio:.2}"));
            let rows = ratios.into_iter().map(|(name, row)| (name, row.into_iter().map(cell).collect()));
            write_grid(out, &table.columns, rows.collect())?;
        }
        Ok(())
    }
}

fn show(cell: &Cell, column: &Column) -> String {
    match cell.samples.len() {
        0 => "–".to_string(),
        1 => cell.show(cell.median, column),
        _ => format!("{} ({:.0} %)", cell.show(cell.median, column), cell.spread()),
    }
}

/// A Markdown table whose columns stand below each other in a terminal as well.
fn write_grid(out: &mut String, columns: &[Column], rows: Vec<(String, Vec<String>)>) -> fmt::Result {
    let headings = columns.iter().map(|column| format!("{}{}", column.name, column.unit.suffix()));
    let mut grid: Vec<Vec<String>> = vec![std::iter::once(String::new()).chain(headings).collect()];
    grid.extend(rows.into_iter().map(|(name, cells)| std::iter::once(name).chain(cells).collect()));
    let width =
        |i: usize| grid.iter().map(|row| row.get(i).map_or(0, |c| c.chars().count())).max().unwrap_or(0);
    let widths: Vec<usize> = (0..=columns.len()).map(width).collect();
    out.push('\n');
    for (i, row) in grid.iter().enumerate() {
        out.push('|');
        for (cell, width) in row.iter().zip(&widths) {
            write!(out, " {cell:<width$} |")?;
        }
        out.push('\n');
        if i == 0 {
            out.push('|');
            for width in &widths {
                write!(out, "{}|", "-".repeat(width + 2))?;
            }
            out.push('\n');
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::report::tests::sample;

    /// A row for each target, a ratio for each of ours to each base, what was left out and why.
    #[test]
    fn markdown_has_rows_and_ratios() {
        let text = sample().to_markdown();
        assert!(text.contains("| mount | 600 (33 %)"), "{text}");
        assert!(text.contains("| 28 k (36 %)"), "{text}");
        assert!(text.contains("| mount / ext4 | 0.03"), "{text}");
        assert!(text.contains("Not measured: xfs (no mkfs.xfs)."), "{text}");
        assert!(text.contains("FAILED while it was measured: btrfs (it broke)."), "{text}");
        assert!(text.contains("a note"), "{text}");
    }
}
