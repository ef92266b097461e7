//! The page of a report.
//!
//! For each workload: the table of medians, how stores compare, what weakens that, and the
//! charts ([`super::charts`]). Below, the settings of each store, each run that did not end
//! well, and the machine.

use std::collections::BTreeMap;

use crate::record::{Phase, Report, Run, Status};
use crate::report::charts::{charts, over_sweep};
use crate::report::grid::Grid;
use crate::report::page::Page;
use crate::report::summary::{Row, Summary, conditions, sweeps};
use crate::report::table::{grid, place};
use crate::report::text::grouped;

/// The page of a report; as Markdown it suits the summary of a continuous integration.
pub fn page(report: &Report, summaries: &[Summary], command: &str) -> Page {
    let mut page = Page::new("KVZone report", command);
    for sweep in sweeps(summaries) {
        page.heading(&sweep[0].workload);
        page.table(grid(sweep), |_| "");
        page.chart(over_sweep(sweep));
        for summary in sweep {
            if sweep.len() > 1 {
                page.subheading(&place(sweep, summary));
            }
            section(&mut page, report, summary);
        }
    }
    outcomes(&mut page, report);
    page.appendix();
    page.text(
        "Each round gives every store a fresh process and an empty folder, in an order that the \
        seed decides. Points are rounds, strokes and tables their medians. A drag zooms into a \
        chart, a double click goes back.",
    );
    settings(&mut page, report);
    page.heading("Machine");
    page.code(&serde_json::to_string_pretty(&report.machine).unwrap_or_default());
    page.text(&format!("Seed {}, schema {}.", report.seed, report.schema));
    page
}

fn section(page: &mut Page, report: &Report, summary: &Summary) {
    let rounds = summary.rows.iter().map(|row| row.rounds).max().unwrap_or(0);
    let rounds = match rounds {
        1 => "One round".to_string(),
        rounds => format!("Medians of {rounds} rounds"),
    };
    let measured = match summary.phase {
        Phase::Load => " of the load",
        _ => "",
    };
    let conditions = conditions(&summary.conditions);
    page.text(&format!("{rounds}{measured}: {conditions}"));
    let lines = summary.lines.iter().map(|line| line.text.clone());
    page.list(lines.collect(), summary.warnings.clone());
    after_kill(page, summary);
    for chart in charts(report, summary) {
        page.chart(chart);
    }
}

/// What was acknowledged, and what survived; nothing where no store was killed.
fn after_kill(page: &mut Page, summary: &Summary) {
    let durability = summary.conditions.durability;
    let row = |row: &Row| {
        let recovery = row.recovery.as_ref()?;
        let found = recovery.after_kill?;
        let counts = [found.acknowledged, found.survived, found.lost];
        let [acknowledged, survived, lost] = counts.map(|count| grouped(count as f64));
        let verdict = found.verdict(durability);
        let name = row.store.clone();
        Some([name, acknowledged, survived, lost, recovery.time(), verdict].to_vec())
    };
    let table = Grid {
        heads: ["store", "acknowledged", "survived", "lost", "opened in", ""]
            .map(str::to_string)
            .to_vec(),
        words: 1,
        rows: summary.rows.iter().filter_map(row).collect(),
    };
    if table.rows.is_empty() {
        return;
    }
    let broke = |row: &[String]| match row[3] != "0" || row[5].starts_with("damaged") {
        true => "warning",
        false => "",
    };
    page.subheading(&format!(
        "After a kill: what was acknowledged as {durability}, and what is there"
    ));
    page.text(
        "Each process was killed while it wrote. Of each key the last write that was acknowledged \
        is looked up in the store that was opened again.",
    );
    page.table(table, broke);
}

/// What each store was opened with, once a store.
fn settings(page: &mut Page, report: &Report) {
    let mut stores: BTreeMap<&str, &Run> = BTreeMap::new();
    for run in report.runs.iter().filter(|run| !run.settings.is_empty()) {
        stores.entry(&run.store).or_insert(run);
    }
    page.heading("Settings of each store");
    for run in stores.into_values() {
        let (title, table) = settings_of(run);
        page.folded(title, table);
    }
}

/// The store of a run with its version, and what it was opened with.
pub fn settings_of(run: &Run) -> (String, Grid) {
    let version = run.version.as_deref().unwrap_or("version unknown");
    let settings = run.settings.iter();
    let table = Grid {
        heads: ["setting", "value"].map(str::to_string).to_vec(),
        words: 2,
        rows: settings
            .map(|(name, value)| vec![name.clone(), value.clone()])
            .collect(),
    };
    (format!("{} {version}", run.store), table)
}

/// Runs that did not end well; a page without this part had none.
fn outcomes(page: &mut Page, report: &Report) {
    let broken = report.runs.iter().filter(|run| run.status != Status::Ok);
    let line = |run: &Run| {
        format!(
            "{}, {} round {}, {}: {}: {}",
            run.store,
            run.workload,
            run.repeat + 1,
            run.phase.name(),
            run.status.name(),
            run.error.as_deref().unwrap_or("no reason given")
        )
    };
    let lines: Vec<String> = broken.map(line).collect();
    if !lines.is_empty() {
        page.heading("What did not end well");
        page.list(Vec::new(), lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::summary::summarize;
    use crate::report::summary::tests::{report, run};

    fn html(runs: Vec<Run>) -> String {
        let report = report(runs);
        let stores = ["a".to_string(), "b".to_string()];
        page(&report, &summarize(&report, &stores), "kvzone run").html()
    }

    #[test]
    fn every_round_is_a_point() {
        let runs = (0..5).flat_map(|n| [run("a", n, 10.0 + f64::from(n)), run("b", n, 30.0)]);
        let page = html(runs.collect());
        for point in ["[0.0,10.0]", "[0.0,14.0]", "[1.0,30.0]"] {
            assert!(page.contains(point), "{point}");
        }
        assert!(!page.contains("What did not end well"));
    }

    #[test]
    fn a_terminal_shows_every_store_its_figures_and_their_conditions() {
        let mut broken = run("b", 0, 0.0);
        broken.status = Status::Hung;
        broken.error = Some("no operation ended for 60 s".to_string());
        let report = report(vec![run("a", 0, 1_234_567.0), broken]);
        let stores = ["a".to_string(), "b".to_string()];
        let text = page(&report, &summarize(&report, &stores), "kvzone run").terminal();
        for part in [
            "fill-random\n",
            "One round of the load: durability written, no memory limit, memory budget 64 MiB",
            "1,234,567",
            "25.0",
            "b, fill-random round 1, load: hung: no operation ended for 60 s",
            "b 1.0 : a 1.0: not ranked",
            "Warning: 1 round: fewer than the 5",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!text.contains("Machine"), "{text}");
    }

    #[test]
    fn a_store_that_broke_is_named_with_its_reason() {
        let mut broken = run("b", 1, 0.0);
        broken.status = Status::Crashed;
        broken.error = Some("SIGSEGV <at> &".to_string());
        let page = html(vec![run("a", 0, 1.0), broken]);
        let told = "b, fill-random round 2, load: crashed: SIGSEGV &lt;at&gt; &amp;";
        assert!(page.contains(told), "{page}");
    }
}
