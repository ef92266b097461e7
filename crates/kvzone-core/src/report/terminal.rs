//! A summary as a table for a terminal: what stores reached, beneath it what
//! they had in common, how they compare, and what weakens that.

use crate::record::{Phase, Status};
use crate::report::grid::Grid;
use crate::report::recovery::Recovery;
use crate::report::summary::{Row, Summary};
use crate::report::text::{bytes, duration, grouped, or_dash, three_digits};

/// Columns: name, and what fills it.
type Column = (&'static str, fn(&Row) -> String);

const COLUMNS: &[Column] = &[
    ("store", Row::named),
    ("ops/s", |row| or_dash(row.ops_per_second, grouped)),
    ("rate kept", |row| or_dash(row.rate_kept, grouped)),
    ("p50", |row| or_dash(row.p50, duration)),
    ("p99", |row| or_dash(row.p99, duration)),
    ("p99.9", |row| or_dash(row.p999, duration)),
    ("CPU µs/op", |row| {
        or_dash(row.cpu_us_per_operation, three_digits)
    }),
    ("write amp", |row| {
        or_dash(row.write_amplification, three_digits)
    }),
    ("read amp", |row| {
        or_dash(row.read_amplification, three_digits)
    }),
    ("reads/get", |row| {
        or_dash(row.device_reads_per_lookup, three_digits)
    }),
    ("over time", |row| sparkline(&row.over_time)),
    ("space", |row| or_dash(row.space_bytes, bytes)),
    ("space amp", |row| {
        or_dash(row.space_amplification, three_digits)
    }),
    ("peak memory", |row| or_dash(row.peak_memory_bytes, bytes)),
    ("debt", |row| {
        or_dash(row.settle_seconds, |seconds| duration(seconds * 1e9))
    }),
    ("reopen", |row| {
        row.recovery
            .as_ref()
            .map_or("-".to_string(), Recovery::time)
    }),
    ("lost by kill", |row| {
        row.recovery
            .as_ref()
            .map_or("-".to_string(), Recovery::loss)
    }),
];

/// Columns that are left out where no store has anything in them.
const SOMETIMES: [&str; 4] = ["over time", "rate kept", "reopen", "lost by kill"];

/// Characters of a sparkline at most.
const SPARKS: usize = 16;

/// Values over time as bars of one line, from 0 to the largest; nothing of one
/// value, which has no course.
pub fn sparkline(values: &[f64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let largest = values.iter().copied().fold(0.0, f64::max);
    if values.len() < 2 || largest <= 0.0 {
        return String::new();
    }
    let count = values.len().min(SPARKS);
    let bar = |place: usize| {
        let part = &values[place * values.len() / count..(place + 1) * values.len() / count];
        let mean = part.iter().sum::<f64>() / part.len().max(1) as f64;
        BARS[((mean / largest * 7.0).round() as usize).min(7)]
    };
    (0..count).map(bar).collect()
}

/// A row a store, for a terminal and for a page.
pub(super) fn grid(summary: &Summary) -> Grid {
    let is_shown = |(name, fill): &&Column| {
        let empty = |row: &Row| matches!(fill(row).as_str(), "" | "-");
        !SOMETIMES.contains(name) || !summary.rows.iter().all(empty)
    };
    let columns: Vec<&Column> = COLUMNS.iter().filter(is_shown).collect();
    let rows = summary.rows.iter();
    Grid {
        heads: columns.iter().map(|(name, _)| name.to_string()).collect(),
        words: 1,
        rows: rows
            .map(|row| columns.iter().map(|(_, fill)| fill(row)).collect())
            .collect(),
    }
}

/// The whole summary as text that ends with a new line.
pub fn render(summary: &Summary) -> String {
    let table = grid(summary).terminal();
    let rounds = summary.rows.iter().map(|row| row.rounds).max().unwrap_or(0);
    let mut text = format!(
        "{} ({}), medians of {rounds} round{}\n{table}",
        summary.workload,
        match summary.phase {
            Phase::Load => "its load is measured",
            _ => "measured after the load",
        },
        if rounds == 1 { "" } else { "s" },
    );
    text += &format!("  {}\n", summary.conditions.text());
    for row in &summary.rows {
        text += &format!("  {}\n", outcome(row));
        let after_kill = row.recovery.as_ref().and_then(|found| found.after_kill);
        if let Some(found) = after_kill {
            let words = found.text(summary.conditions.durability);
            text += &format!("    {words}\n");
        }
    }
    for line in &summary.lines {
        text += &format!("  {}\n", line.text);
    }
    for warning in &summary.warnings {
        text += &format!("  Warning: {warning}\n");
    }
    text
}

/// The store with its version, and what went wrong first.
fn outcome(row: &Row) -> String {
    let named = row.named();
    match &row.failure {
        // Such a reason names the store itself.
        Some((Status::Missing | Status::Unsupported, reason)) => reason.clone(),
        Some((status, reason)) => format!("{named}: {} in a round: {reason}", status.name()),
        None => named,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::summary::summarize;
    use crate::report::summary::tests::{report, run};

    #[test]
    fn sparklines_show_the_course_from_zero_on() {
        assert_eq!(sparkline(&[0.0, 5.0, 10.0]), "▁▅█");
        assert_eq!(sparkline(&[7.0]), "");
        assert_eq!(sparkline(&[0.0, 0.0]), "");
        assert_eq!(sparkline(&[1.0; 100]).chars().count(), SPARKS);
    }

    #[test]
    fn the_table_has_every_store_its_figures_and_what_they_hold_for() {
        let mut broken = run("b", 0, 0.0);
        broken.status = Status::Hung;
        broken.error = Some("no operation ended for 60 s".to_string());
        let runs = vec![run("a", 0, 1_234_567.0), broken];
        let stores = ["a".to_string(), "b".to_string()];
        let text = render(&summarize(&report(runs), &stores)[0]);
        for part in [
            "fill-random (its load is measured), medians of 1 round\n",
            "1,234,567",
            "25.0",
            "durability written, no memory limit, memory budget 64 MiB",
            "b 1.0: hung in a round: no operation ended for 60 s",
            "b 1.0 : a 1.0: not ranked",
            "Warning: 1 round: fewer than the 5",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
