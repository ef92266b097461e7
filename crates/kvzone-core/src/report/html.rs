//! The report as one page: no script, no outside link, nothing to install.
//!
//! For each workload: the table of medians, how stores compare, what weakens
//! that, and the charts ([`super::charts`]): throughput, over time with what
//! went to the device beneath it, latency, amplification, processor time,
//! memory, debt, recovery. Below, the settings of each
//! store, each run's outcome, and the machine. Light and dark follow the
//! reader's system.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::record::{Report, Run, Status};
use crate::report::chart::{escape, legend};
use crate::report::charts::{charts, store_names};
use crate::report::grid::Grid;
use crate::report::summary::{Row, Summary};
use crate::report::terminal::grid;
use crate::report::text::grouped;

const STYLE: &str = include_str!("report.css");

/// The page of a report.
pub fn render(report: &Report, summaries: &[Summary], command: &str) -> String {
    let mut body = "<p class=\"hint\">Each round gives every store a fresh process and an empty \
        folder, in an order that the seed decides. Points are rounds, strokes and tables their \
        medians.</p>"
        .to_string();
    body.extend(summaries.iter().map(|summary| section(report, summary)));
    body += &settings(report);
    body += &outcomes(report);
    let machine = serde_json::to_string_pretty(&report.machine).unwrap_or_default();
    let _ = write!(
        body,
        "<h2>Machine</h2><pre>{}</pre><p class=\"hint\">Seed {}, schema {}.</p>",
        escape(&machine),
        report.seed,
        escape(&report.schema)
    );
    page("KVZone report", command, &body)
}

/// A page with a title, the command that made it, and a body that is HTML already.
pub fn page(title: &str, command: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1>\
         <p><code>{}</code></p>{body}</body></html>",
        escape(command),
        title = escape(title),
    )
}

fn section(report: &Report, summary: &Summary) -> String {
    let mut text = format!("<h2>{}</h2>", escape(&summary.workload));
    let _ = write!(text, "<p>{}</p>", escape(&summary.conditions.text()));
    text += &grid(summary).html(|_| "");
    text += "<ul>";
    // What they hold for stands above already.
    let conditions = format!(" ({})", summary.conditions.text());
    for line in &summary.lines {
        let short = line.text.strip_suffix(&conditions).unwrap_or(&line.text);
        let _ = write!(text, "<li>{}</li>", escape(short));
    }
    for warning in &summary.warnings {
        let _ = write!(text, "<li class=\"warning\">{}</li>", escape(warning));
    }
    text += "</ul>";
    text += &after_kill(summary);
    for chart in charts(report, summary) {
        let _ = write!(text, "<h3>{}</h3>", escape(&chart.title));
        if chart.needs_legend {
            text += &legend(&store_names(summary));
        }
        text += &chart.svg;
    }
    text
}

/// What was acknowledged, and what survived; nothing where no store was killed.
fn after_kill(summary: &Summary) -> String {
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
        return String::new();
    }
    let broke = |row: &[String]| match row[3] != "0" || row[5].starts_with("damaged") {
        true => "warning",
        false => "",
    };
    format!(
        "<h3>After a kill: what was acknowledged as {durability}, and what is there</h3>\
         <p class=\"hint\">Each process was killed while it wrote. Of each key the last write \
         that was acknowledged is looked up in the store that was opened again.</p>{}",
        table.html(broke)
    )
}

/// What each store was opened with, once a store.
fn settings(report: &Report) -> String {
    let mut stores: BTreeMap<&str, &Run> = BTreeMap::new();
    for run in report.runs.iter().filter(|run| !run.settings.is_empty()) {
        stores.entry(&run.store).or_insert(run);
    }
    let mut text = String::from("<h2>Settings of each store</h2>");
    for (store, run) in stores {
        let version = run.version.as_deref().unwrap_or("version unknown");
        let _ = write!(
            text,
            "<details><summary>{} {}</summary><table>",
            escape(store),
            escape(version)
        );
        for (name, value) in &run.settings {
            let (name, value) = (escape(name), escape(value));
            let _ = write!(text, "<tr><td>{name}</td><td>{value}</td></tr>");
        }
        text += "</table></details>";
    }
    text
}

/// Runs that did not end well; a page without this part had none.
fn outcomes(report: &Report) -> String {
    let broken: Vec<&Run> = report
        .runs
        .iter()
        .filter(|run| run.status != Status::Ok)
        .collect();
    if broken.is_empty() {
        return String::new();
    }
    let mut text = String::from("<h2>What did not end well</h2><ul>");
    for run in broken {
        let _ = write!(
            text,
            "<li class=\"warning\">{}, {} round {}, {}: {}: {}</li>",
            escape(&run.store),
            escape(&run.workload),
            run.repeat + 1,
            run.phase.name(),
            run.status.name(),
            escape(run.error.as_deref().unwrap_or("no reason given"))
        );
    }
    text + "</ul>"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::summary::summarize;
    use crate::report::summary::tests::{report, run};

    fn page(runs: Vec<Run>) -> String {
        let report = report(runs);
        let stores = ["a".to_string(), "b".to_string()];
        render(
            &report,
            &summarize(&report, &stores),
            "kvzone run --stores a,b",
        )
    }

    #[test]
    fn the_page_links_to_nothing_and_runs_nothing() {
        let page = page(vec![run("a", 0, 10.0), run("b", 0, 20.0)]);
        for outside in [
            "http:", "https:", "<script", "<link", "src=", "@import", "url(",
        ] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("prefers-color-scheme: dark"));
        assert!(!page.contains("What did not end well"));
        assert!(!page.contains("NaN") && !page.contains("inf"));
    }

    #[test]
    fn every_round_is_a_point_in_every_chart_of_points() {
        let runs = (0..5).flat_map(|n| [run("a", n, 10.0 + f64::from(n)), run("b", n, 30.0)]);
        let page = page(runs.collect());
        // Throughput, write amplification, processor time and memory, and the
        // timeline, in which runs of a second have a single point each; the
        // percentiles of the two stores have five each.
        assert_eq!(page.matches("<circle").count(), 10 * 5 + 2 * 5);
    }

    #[test]
    fn a_store_that_broke_is_named_with_its_reason() {
        let mut broken = run("b", 1, 0.0);
        broken.status = Status::Crashed;
        broken.error = Some("SIGSEGV <at> &".to_string());
        let page = page(vec![run("a", 0, 1.0), broken]);
        let told = "b, fill-random round 2, load: crashed: SIGSEGV &lt;at&gt; &amp;";
        assert!(page.contains(told), "{page}");
    }
}
