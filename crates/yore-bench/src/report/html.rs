//! The report as one HTML page that needs nothing else: tables, and a plot of each column as inline SVG.
//!
//! A plot has a bar per target, as long as its median, and a line from the lowest to the highest round.
//! Scales begin at zero and are linear; each column has its own. If one target is so far ahead that others
//! vanish, the figures beside the bars still show them.

use super::{Better, Cell, Column, Report, Table};
use std::fmt::{self, Write};

/// Pixels of a plot: the names on the left, the bars, the figures on the right; and each bar's share of the
/// height.
const NAMES: f64 = 110.0;
const BARS: f64 = 300.0;
const FIGURES: f64 = 80.0;
const BAR: f64 = 22.0;

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;color:#222;background:#fff;max-width:72rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2rem}\
table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto}\
th,td{border-bottom:1px solid #ddd;padding:.3rem .7rem;text-align:right;white-space:nowrap}\
th:first-child,td:first-child{text-align:left}small{color:#666}\
.plots{display:flex;flex-wrap:wrap;gap:1.5rem}figure{margin:0}figcaption{font-weight:600}\
.warning{background:#fff3cd;border:1px solid #e0c060;padding:.5rem 1rem}\
.ours{fill:#6fa3dd}.other{fill:#b9c4d0}.range{stroke:#222;stroke-width:1.5}svg text{font-size:12px;fill:#222}";

impl Report {
    /// The report as a page.
    pub fn to_html(&self) -> String {
        let mut out = String::new();
        self.write_html(&mut out).expect("writing to a string cannot fail");
        out
    }

    fn write_html(&self, out: &mut String) -> fmt::Result {
        let name = escape(&self.benchmark);
        write!(
            out,
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<title>yore bench {name}</title>\n\
             <style>{STYLE}</style>\n<h1>yore bench {name}</h1>\n<p>{}</p>\n",
            escape(&self.about)
        )?;
        if self.machine.debug_build {
            out.push_str("<p class=\"warning\">A build without optimisation: its figures say nothing.</p>\n");
        }
        for (what, list) in [("Not measured", &self.left_out), ("Failed while it was measured", &self.failed)]
        {
            for left_out in list {
                let (target, reason) = (escape(&left_out.target), escape(&left_out.reason));
                writeln!(out, "<p class=\"warning\">{what}: <b>{target}</b> ({reason}).</p>")?;
            }
        }
        for table in &self.tables {
            self.write_html_table(out, table)?;
        }
        for note in &self.notes {
            writeln!(out, "<p>{}</p>", escape(note))?;
        }
        self.write_legend(out)?;
        out.write_str("</html>\n")
    }

    fn write_html_table(&self, out: &mut String, table: &Table) -> fmt::Result {
        if !table.title.is_empty() {
            writeln!(out, "<h2>{}</h2>", escape(&table.title))?;
        }
        let rows = table.rows.iter().map(|row| {
            let cells = row.cells.iter().zip(&table.columns).map(|(cell, column)| show(cell, column));
            (escape(&row.target), cells.collect())
        });
        write_grid(out, &table.columns, rows.collect())?;
        let ratios = self.ratios(table);
        if !ratios.is_empty() {
            out.push_str("<p>Times as good (above 1 is better; median of the rounds' ratios):</p>\n");
            let cell = |ratio: Option<f64>| ratio.map_or("–".to_string(), |ratio| format!("{ratio:.2}"));
            let rows =
                ratios.iter().map(|(name, row)| (escape(name), row.iter().copied().map(cell).collect()));
            write_grid(out, &table.columns, rows.collect())?;
        }
        out.push_str("<div class=\"plots\">\n");
        for (index, column) in table.columns.iter().enumerate() {
            self.write_plot(out, table, column, index)?;
        }
        out.write_str("</div>\n")
    }

    fn write_plot(&self, out: &mut String, table: &Table, column: &Column, index: usize) -> fmt::Result {
        let cells: Vec<(&str, &Cell)> = table
            .rows
            .iter()
            .filter_map(|row| Some((row.target.as_str(), row.cells.get(index)?)))
            // A cell that counts something else has no place on the column's scale.
            .filter(|(_, cell)| !cell.samples.is_empty() && cell.unit.is_none())
            .collect();
        let most = cells.iter().map(|(_, cell)| cell.highest).fold(0.0, f64::max);
        if cells.is_empty() || most <= 0.0 {
            return Ok(());
        }
        let (width, height) = (NAMES + BARS + FIGURES, BAR * cells.len() as f64 + 4.0);
        let better = match column.better {
            Better::Higher => "higher is better",
            Better::Lower => "lower is better",
            Better::Neither => "",
        };
        writeln!(
            out,
            "<figure><figcaption>{}{} <small>{better}</small></figcaption>\n\
             <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">",
            escape(&column.name),
            column.unit.suffix()
        )?;
        for (i, (target, cell)) in cells.iter().enumerate() {
            let scale = |value: f64| BARS * value / most;
            let top = BAR * i as f64 + 2.0;
            let (middle, text) = (top + BAR / 2.0, top + BAR / 2.0 + 4.0);
            let class = if self.is_ours(target) { "ours" } else { "other" };
            writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{text:.1}\" text-anchor=\"end\">{}</text>\
                 <rect class=\"{class}\" x=\"{NAMES}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>\
                 <line class=\"range\" x1=\"{:.1}\" y1=\"{middle:.1}\" x2=\"{:.1}\" y2=\"{middle:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{text:.1}\">{}</text>",
                NAMES - 6.0,
                escape(target),
                top + 3.0,
                scale(cell.median).max(1.0),
                BAR - 6.0,
                NAMES + scale(cell.lowest),
                NAMES + scale(cell.highest),
                NAMES + scale(cell.highest).max(1.0) + 6.0,
                escape(&column.unit.show(cell.median)),
            )?;
        }
        out.write_str("</svg></figure>\n")
    }

    /// What the names mean, the parameters, and the machine.
    fn write_legend(&self, out: &mut String) -> fmt::Result {
        out.push_str("<h2>Targets</h2>\n<table>\n");
        for target in &self.targets {
            let version = target.version.as_deref().unwrap_or("");
            let (name, what) = (escape(&target.name), escape(&target.description));
            writeln!(out, "<tr><td>{name}</td><td>{what}</td><td>{}</td></tr>", escape(version))?;
        }
        out.push_str("</table>\n<h2>Parameters</h2>\n<table>\n");
        let machine = &self.machine;
        let facts = [
            ("kernel", format!("Linux {}", machine.kernel)),
            ("processors", format!("{} ({})", machine.processors, machine.processor)),
            ("memory", super::Unit::Bytes.show(machine.memory_bytes as f64)),
            ("images are on", machine.host_file_system.clone()),
            ("Yore", machine.yore.clone()),
        ];
        let options = self.options.iter().map(|(name, value)| (name.as_str(), value.clone()));
        for (name, value) in options.chain(facts) {
            writeln!(out, "<tr><td>{}</td><td>{}</td></tr>", escape(name), escape(&value))?;
        }
        out.write_str("</table>\n")
    }
}

fn show(cell: &Cell, column: &Column) -> String {
    match cell.samples.len() {
        0 => "–".to_string(),
        1 => cell.show(cell.median, column),
        _ => format!(
            "{}<br><small>{} to {}</small>",
            cell.show(cell.median, column),
            cell.show(cell.lowest, column),
            cell.show(cell.highest, column)
        ),
    }
}

fn write_grid(out: &mut String, columns: &[Column], rows: Vec<(String, Vec<String>)>) -> fmt::Result {
    out.push_str("<table>\n<tr><th></th>");
    for column in columns {
        write!(out, "<th>{}{}</th>", escape(&column.name), column.unit.suffix())?;
    }
    out.push_str("</tr>\n");
    for (name, cells) in rows {
        write!(out, "<tr><td>{name}</td>")?;
        for cell in cells {
            write!(out, "<td>{cell}</td>")?;
        }
        out.push_str("</tr>\n");
    }
    out.write_str("</table>\n")
}

/// Text as HTML shows it unchanged.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use crate::report::tests::sample;

    /// A row and a bar for each target, the ratios, what is missing; text cannot become markup, and nothing
    /// is loaded.
    #[test]
    fn html_has_every_row() {
        let report = sample();
        let page = report.to_html();
        for row in &report.tables[0].rows {
            assert!(page.contains(&format!("<tr><td>{}</td><td>", row.target)), "{page}");
        }
        assert_eq!(page.matches("<rect ").count(), 4, "two targets, two columns");
        assert!(page.contains("mount / ext4"), "{page}");
        assert!(page.contains("<b>xfs</b> (no mkfs.xfs)") && page.contains("<b>btrfs</b>"), "{page}");
        assert!(page.contains("About &amp; so on.") && page.contains("1 &lt;2&gt;"), "{page}");
        let loads = ["<script", "src=", "href=", "url(", "@import"];
        assert!(loads.iter().all(|load| !page.contains(load)), "{page}");
    }
}
