//! Results, as a table or as JSON.

use std::io::Write;

use serde::{Deserialize, Serialize};

use crate::Result;

/// One row of the table. Speeds and ratios are medians; a ratio over one means the subject is ahead.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// What is done.
    pub work: String,
    /// Whom it is compared with.
    pub peer: String,
    /// The subject's median by the peer's; for a limit, the limit by what was measured.
    pub ratio: Option<f64>,
    /// What the ratio should reach; none for rows printed for orientation.
    pub at_least: Option<f64>,
    /// Whether it did; none where there is nothing to reach or nothing was measured.
    pub met: Option<bool>,
    /// The subject's median.
    pub ours: Option<f64>,
    /// The peer's median, or the limit.
    pub theirs: Option<f64>,
    /// Of both.
    pub unit: String,
    /// Each round of the subject.
    pub ours_rounds: Vec<f64>,
    /// Each round of the peer; empty for a limit.
    pub theirs_rounds: Vec<f64>,
    /// Who was measured as the subject.
    pub subject: String,
    /// Why there is no ratio.
    pub error: Option<String>,
}

impl Row {
    /// A row not measured yet.
    pub fn new(work: &str, peer: &str, at_least: Option<f64>, unit: &str) -> Self {
        Row {
            work: work.into(),
            peer: peer.into(),
            ratio: None,
            at_least,
            met: None,
            ours: None,
            theirs: None,
            unit: unit.into(),
            ours_rounds: Vec::new(),
            theirs_rounds: Vec::new(),
            subject: crate::subject::name().into(),
            error: None,
        }
    }

    /// The row of two sides where more is better.
    pub fn compared(mut self, ours: &[f64], theirs: &[f64]) -> Self {
        self.ours_rounds = ours.to_vec();
        self.theirs_rounds = theirs.to_vec();
        let (ours, theirs) = (median(ours), median(theirs));
        self.judged(ours, theirs, ours / theirs)
    }

    /// The row of a limit, where less is better.
    pub fn limited(mut self, measured: &[f64], limit: f64) -> Self {
        self.ours_rounds = measured.to_vec();
        let measured = median(measured);
        self.judged(measured, limit, limit / measured)
    }

    /// The row of a measurement that failed.
    pub fn failed(mut self, error: impl ToString) -> Self {
        self.error = Some(error.to_string());
        self
    }

    fn judged(mut self, ours: f64, theirs: f64, ratio: f64) -> Self {
        self.ours = Some(ours);
        self.theirs = Some(theirs);
        self.ratio = Some(ratio);
        self.met = self.at_least.map(|at_least| ratio >= at_least);
        self
    }
}

/// The middle value; the mean of the middle two of an even number; NaN of none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => f64::midpoint(sorted[even / 2 - 1], sorted[even / 2]),
    }
}

/// One JSON object a line.
pub fn print_json(rows: &[Row]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for row in rows {
        serde_json::to_writer(&mut out, row)?;
        writeln!(out)?;
    }
    Ok(())
}

/// A table in Markdown, ready for `docs/BENCHMARKS.md`.
pub fn print_text(rows: &[Row]) -> Result<()> {
    let mut cells = vec![["work", "peer", "ours", "peer's", "unit", "ratio", "at least", "met"].map(String::from)];
    cells.extend(rows.iter().map(|row| {
        [
            row.work.clone(),
            row.peer.clone(),
            row.ours.map_or("-".into(), short),
            row.theirs.map_or("-".into(), short),
            row.unit.clone(),
            row.ratio.map_or("-".into(), |ratio| format!("{ratio:.2} x")),
            row.at_least.map_or("-".into(), |at_least| format!("{at_least} x")),
            match (row.met, &row.error) {
                (_, Some(error)) => format!("not measured: {error}"),
                (Some(true), None) => "yes".into(),
                (Some(false), None) => "NO".into(),
                (None, None) => "-".into(),
            },
        ]
    }));
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 8] = std::array::from_fn(|column| if column == 7 { 3 } else { width(column) });
    let mut out = std::io::stdout().lock();
    for (line, row) in cells.iter().enumerate() {
        for (cell, width) in row.iter().zip(widths) {
            write!(out, "| {cell:width$} ")?;
        }
        writeln!(out, "|")?;
        if line == 0 {
            widths.iter().try_for_each(|width| write!(out, "|{}", "-".repeat(width + 2)))?;
            writeln!(out, "|")?;
        }
    }
    Ok(())
}

fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 => format!("{:.2} M", value / 1e6),
        v if v >= 1e4 => format!("{:.1} k", value / 1e3),
        v if v >= 100.0 => format!("{value:.0}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn a_limit_is_met_from_below() {
        let row = Row::new("open", "limit", Some(1.0), "s").limited(&[0.4], 0.8);
        assert_eq!((row.ratio, row.met), (Some(2.0), Some(true)));
    }
}
