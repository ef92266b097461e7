//! What was measured beside what was published.

use kvzone_core::record::{Report, Run, Status};
use kvzone_core::report::summary::{Summary, summarize};
use kvzone_core::report::text::{grouped, or_dash, three_digits};
use kvzone_core::statistics::verdict::{Comparison, Verdict, compare};

use super::grid::{Claim, HELD, claims_markdown, claims_terminal};
use super::zdb::{Column, Published, STORES};
use crate::run::campaign::Campaign;

/// One row: a size of values, all stores.
#[derive(Debug)]
pub(super) struct Cell {
    column: &'static Column,
    operations: u64,
    /// Medians in operations a second, in the order of [`STORES`].
    rates: [Option<f64>; 3],
    versions: [Option<String>; 3],
    /// The first store against each of the others.
    ratios: [Option<Comparison>; 2],
    conditions: String,
}

/// A whole table.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) published: &'static Published,
    pub(super) scale: f64,
    pub(super) repeat: u32,
    pub(super) seed: u64,
    pub(super) cells: Vec<Cell>,
}

impl Cell {
    /// Takes what one campaign gave.
    pub(super) fn new(column: &'static Column, campaign: &Campaign, report: &Report) -> Cell {
        let summary = summarize(report, &campaign.stores()).into_iter().next();
        let row = |store: &str| {
            let rows = summary.iter().flat_map(|summary| &summary.rows);
            rows.into_iter().find(|row| row.store == store)
        };
        let ratio = |store: &str| {
            let summary = summary.as_ref()?;
            compare(&pairs(report, summary, store))
        };
        let load = &campaign.loads[0];
        Cell {
            column,
            operations: match load.until {
                kvzone_core::job::Until::Operations(count) => count,
                kvzone_core::job::Until::Seconds(_) => 0,
            },
            rates: STORES.map(|store| row(store)?.ops_per_second),
            versions: STORES.map(|store| row(store)?.version.clone()),
            ratios: [ratio(STORES[1]), ratio(STORES[2])],
            conditions: summary.map_or_else(String::new, |found| found.conditions.text()),
        }
    }

    fn published_ratio(&self, peer: usize) -> Option<f64> {
        let figures = self.column.published?;
        Some(figures[0] / figures[peer])
    }
}

/// The first store's rate and another's, in the rounds that both ended well.
fn pairs(report: &Report, summary: &Summary, store: &str) -> Vec<(f64, f64)> {
    let good = |name: &str| {
        let runs = report.runs.iter().filter(|run| {
            run.store == name && run.phase == summary.phase && run.status == Status::Ok
        });
        runs.collect::<Vec<&Run>>()
    };
    let others = good(store);
    let pair = |ours: &Run| {
        let theirs = others.iter().find(|run| run.repeat == ours.repeat)?;
        Some((ours.ops_per_second, theirs.ops_per_second))
    };
    good(STORES[0]).into_iter().filter_map(pair).collect()
}

fn ratio_text(comparison: Option<&Comparison>) -> String {
    let Some(found) = comparison else {
        return "-".to_string();
    };
    let range = found.interval.map_or_else(String::new, |interval| {
        let (low, high) = (three_digits(interval.low), three_digits(interval.high));
        format!(" [{low}, {high}]")
    });
    let doubt = match found.verdict {
        Verdict::Noise => " (noise)",
        Verdict::Unknown => " (fewer than five rounds)",
        Verdict::Higher | Verdict::Lower | Verdict::Equal => "",
    };
    format!("{}{range}{doubt}", three_digits(found.ratio))
}

impl Table {
    /// The heads of the columns; a store's has its version.
    fn heads(&self) -> Vec<String> {
        let version = |store: usize| {
            let known = self
                .cells
                .iter()
                .find_map(|cell| cell.versions[store].clone());
            known.map_or_else(String::new, |version| format!(" {version}"))
        };
        let mut heads = vec!["values of".to_string(), format!("zdb{}, ops/s", version(0))];
        for (store, name) in STORES.iter().enumerate().skip(1) {
            heads.push(format!("{name}{}, ops/s", version(store)));
            heads.push(format!("zdb : {name}"));
            heads.push("in the paper".to_string());
        }
        heads
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let row = |cell: &Cell| {
            let rate = |store: usize| or_dash(cell.rates[store], grouped);
            let mut row = vec![cell.column.title.to_string(), rate(0)];
            for peer in 1..STORES.len() {
                row.push(rate(peer));
                row.push(ratio_text(cell.ratios[peer - 1].as_ref()));
                row.push(or_dash(cell.published_ratio(peer), three_digits));
            }
            row
        };
        self.cells.iter().map(row).collect()
    }

    /// The paper's order of stores at each size of values.
    fn claims(&self) -> Vec<Claim> {
        let mut claims = Vec::new();
        for cell in &self.cells {
            for (peer, name) in STORES.iter().enumerate().skip(1) {
                let Some(published) = cell.published_ratio(peer) else {
                    continue;
                };
                let order = if published > 1.0 { "faster" } else { "slower" };
                let paper = format!(
                    "values of {}: zdb is {order} than {name}, {} times its rate",
                    cell.column.title,
                    three_digits(published)
                );
                let ratio = cell.ratios[peer - 1].as_ref();
                let here = ratio.map(|found| {
                    let holds = (found.ratio > 1.0) == (published > 1.0);
                    (format!("{} times", ratio_text(Some(found))), holds)
                });
                let verdict = ratio.map(|found| found.verdict);
                claims.push(Claim {
                    is_doubtful: matches!(verdict, Some(Verdict::Noise | Verdict::Equal)),
                    ..Claim::new(paper, here)
                });
            }
        }
        claims
    }

    /// What the ratios hold for.
    fn conditions(&self) -> String {
        let mut text = format!(
            "Medians of {} rounds in which stores take turns (seed {}), ratios with their 95 % \
             intervals; workload {}, scale {}.\n",
            self.repeat, self.seed, self.published.workload, self.scale
        );
        for cell in &self.cells {
            text += &format!(
                "Values of {}: {} operations; {}.\n",
                cell.column.title,
                grouped(cell.operations as f64),
                cell.conditions
            );
        }
        text
    }

    /// For a terminal.
    pub(super) fn terminal(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_preset(comfy_table::presets::UTF8_FULL_CONDENSED);
        table.set_header(self.heads());
        for row in self.rows() {
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(comfy_table::CellAlignment::Right);
        }
        let claims = claims_terminal(&self.claims());
        let conditions = self.conditions();
        let title = self.published.title;
        format!("{title}\n{table}\n{HELD}\n{claims}{conditions}")
    }

    /// For a document, with the command that makes it above.
    pub(super) fn markdown(&self) -> String {
        let heads = self.heads();
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let mut text = format!(
            "```text\nkvzone reproduce {} --scale {} --repeat {}\n```\n\n",
            self.published.name, self.scale, self.repeat
        );
        text += &line(&heads);
        text += &format!("|---|{}\n", "---:|".repeat(heads.len() - 1));
        for row in self.rows() {
            text += &line(&row);
        }
        text += "\n";
        text += &claims_markdown(&self.claims());
        text += "\n";
        for sentence in self.conditions().lines() {
            text += &format!("- {sentence}\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::zdb::TABLES;
    use super::*;
    use kvzone_core::statistics::interval::Interval;

    fn table() -> Table {
        let cell = Cell {
            column: &TABLES[0].columns[0],
            operations: 10,
            rates: [Some(2000.0), Some(1000.0), None],
            versions: [Some("0.1".into()), Some("1.23".into()), None],
            ratios: [
                Some(Comparison {
                    ratio: 2.0,
                    interval: Some(Interval {
                        coverage: 0.9375,
                        low: 1.9,
                        high: 2.1,
                    }),
                    verdict: Verdict::Higher,
                    ratios: vec![1.9, 2.0, 2.1],
                }),
                None,
            ],
            conditions: "durability written".to_string(),
        };
        Table {
            published: &TABLES[0],
            scale: 0.5,
            repeat: 3,
            seed: 1,
            cells: vec![cell],
        }
    }

    #[test]
    fn ratios_stand_beside_the_papers_and_what_they_hold_for() {
        let markdown = table().markdown();
        let expected = "| 4 bytes | 2,000 | 1,000 | 2.00 [1.90, 2.10] | 0.85 | - | - | 0.86 |";
        assert!(markdown.contains(expected), "{markdown}");
        assert!(markdown.contains("| leveldb 1.23, ops/s | zdb : leveldb |"));
        assert!(markdown.contains("kvzone reproduce zdb/table1 --scale 0.5 --repeat 3"));
        assert!(markdown.contains("- Values of 4 bytes: 10 operations; durability written."));
        let terminal = table().terminal();
        assert!(terminal.contains("2.00 [1.90, 2.10]"));
        let expected = "does not hold here: values of 4 bytes: zdb is slower than leveldb";
        assert!(terminal.contains(expected), "{terminal}");
        assert!(terminal.contains("not measured: values of 4 bytes: zdb is slower than kyoto"));
    }

    #[test]
    fn every_line_of_the_markdown_table_has_as_many_columns() {
        let markdown = table().markdown();
        let bars = |line: &str| line.matches('|').count();
        let counts: Vec<usize> = markdown
            .lines()
            .filter(|line| line.starts_with('|'))
            .take_while(|line| !line.starts_with("| the paper"))
            .map(bars)
            .collect();
        assert_eq!(counts, [9, 9, 9]);
    }
}
