//! What was measured, as text, as markdown, as bars on a page and as JSON.

use kvzone_core::report::bars::{Bar, legend, stacked};
use kvzone_core::report::html;
use kvzone_core::report::text::{bytes, grouped, three_digits};
use kvzone_core::statistics::median;
use serde_json::json;

use super::super::claims::{Claim, by_rounds, claims_grid, claims_terminal};
use super::child::Answer;
use super::claims::claims;
use super::figures::{Case, Figure, Kind};
use super::memory;

/// What is told of a workload beside compactions.
const STEADY_HEADS: [&str; 9] = [
    "operations/s",
    "to none",
    "50 %, ms",
    "99.9 %, ms",
    "to none",
    "longest, ms",
    "compactions",
    "space between",
    "space at most",
];

/// What is told of reading beside `fio`.
const FIO_HEADS: [&str; 3] = ["reads/s", "to one under way", "of fio's ratio"];

const PHASES: [&str; 5] = ["tree search", "sort", "read", "write", "flush and commit"];

/// Documents read, or blocks, in the time that reads were under way.
fn reads_a_second(answer: &Answer) -> f64 {
    answer.read_operations as f64 / answer.read.max(1e-9)
}

/// All rounds of one case at one size.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) bytes: f64,
    pub(super) case: Case,
    pub(super) answers: Vec<Answer>,
}

impl Measured {
    /// The median of something over the rounds that ended well.
    pub(super) fn median(&self, pick: impl Fn(&Answer) -> f64) -> Option<f64> {
        let good = self.answers.iter().filter(|answer| answer.error.is_none());
        median(&good.map(pick).collect::<Vec<f64>>())
    }

    fn phases(&self) -> Option<Vec<f64>> {
        let picks: [fn(&Answer) -> f64; 5] = [
            |answer| answer.tree_search,
            |answer| answer.sort,
            |answer| answer.read,
            |answer| answer.write,
            |answer| answer.flush_and_commit,
        ];
        picks.into_iter().map(|pick| self.median(pick)).collect()
    }

    /// Its name, with what served where that is another back end.
    fn title(&self) -> String {
        let served = self
            .answers
            .iter()
            .find(|answer| answer.error.is_none() && answer.io != self.case.io);
        match served {
            Some(answer) => format!("{} ({} served)", self.case.title, answer.io),
            None => self.case.title.clone(),
        }
    }
}

/// A figure that was measured.
#[derive(Clone, Debug)]
pub(super) struct Presented {
    pub(super) figure: &'static Figure,
    pub(super) scale: f64,
    pub(super) repeat: u32,
    pub(super) seed: u64,
    /// What the user said of memory.
    pub(super) memory: Option<u64>,
    pub(super) memory_limited: bool,
    pub(super) measured: Vec<Measured>,
}

impl Presented {
    fn claims(&self) -> Vec<Claim> {
        by_rounds(claims(self), self.repeat, |round| {
            let mut one = self.clone();
            for measured in &mut one.measured {
                let answer = measured.answers.get(round as usize).cloned();
                measured.answers = answer.into_iter().collect();
            }
            claims(&one)
        })
    }

    pub(super) fn all_well(&self) -> bool {
        let mut answers = self.measured.iter().flat_map(|one| &one.answers);
        answers.all(|answer| answer.error.is_none())
    }

    /// What a case's ratios are of: the first back end with the same rest.
    fn reference(&self, one: &Measured) -> Option<&Measured> {
        let same = |other: &&Measured| {
            other.bytes == one.bytes
                && (self.figure.kind != Kind::Throughput || other.case.direct == one.case.direct)
                && (self.figure.kind != Kind::ReadAhead
                    || other.case.read_ahead == one.case.read_ahead)
                && (self.figure.kind != Kind::Batch || other.case.io == one.case.io)
                && (self.figure.kind != Kind::Fio
                    || (&other.case.io, other.case.by_fio) == (&one.case.io, one.case.by_fio))
        };
        self.measured.iter().find(same)
    }

    fn ratio(&self, one: &Measured, pick: fn(&Answer) -> f64) -> Option<f64> {
        let reference = self.reference(one)?.median(pick)?;
        Some(reference / one.median(pick)?)
    }

    fn heads(&self) -> Vec<String> {
        let mut heads = vec!["data", "compaction"];
        match self.figure.kind {
            Kind::Throughput => heads.extend(["operations/s", "to sync"]),
            Kind::Steady | Kind::Fio => {
                let own: &[&str] = match self.figure.kind {
                    Kind::Fio => &FIO_HEADS,
                    _ => &STEADY_HEADS,
                };
                heads.extend(own);
                return heads.into_iter().map(ToString::to_string).collect();
            }
            _ => {}
        }
        heads.extend(["whole, s"]);
        heads.extend(PHASES);
        heads.extend(["reads", "speed of reading", "of the whole"]);
        if self.figure.kind == Kind::ReadAhead {
            heads.push("mean read of the device");
        }
        heads.into_iter().map(ToString::to_string).collect()
    }

    fn row(&self, one: &Measured) -> Vec<String> {
        let number = |value: Option<f64>| value.map_or("-".to_string(), three_digits);
        let mut row = vec![bytes(one.bytes), one.title()];
        if self.figure.kind == Kind::Steady {
            row.extend(self.steady_cells(one));
            return row;
        }
        if self.figure.kind == Kind::Fio {
            row.extend(self.fio_cells(one));
            return row;
        }
        if self.figure.kind == Kind::Throughput {
            let rate: fn(&Answer) -> f64 = |answer| answer.operations_per_second.unwrap_or(0.0);
            row.push(one.median(rate).map_or("-".to_string(), grouped));
            row.push(number(self.ratio(one, rate).map(f64::recip)));
        }
        row.push(number(one.median(|answer| answer.total)));
        match one.phases() {
            Some(phases) => row.extend(phases.into_iter().map(three_digits)),
            None => row.extend(PHASES.map(|_| "-".to_string())),
        }
        let reads = one.median(|answer| answer.read_operations as f64);
        row.push(reads.map_or("-".to_string(), grouped));
        row.push(number(self.ratio(one, |answer| answer.read)));
        row.push(number(self.ratio(one, |answer| answer.total)));
        if self.figure.kind == Kind::ReadAhead {
            let mean = one.median(|answer| {
                answer.device_read_bytes as f64 / (answer.device_reads as f64).max(1.0)
            });
            row.push(mean.map_or("-".to_string(), bytes));
        }
        row
    }

    /// How many times as many reads a second a case has as with one under way.
    fn gain(&self, one: &Measured) -> Option<f64> {
        Some(one.median(reads_a_second)? / self.reference(one)?.median(reads_a_second)?)
    }

    /// The cells of [`FIO_HEADS`].
    fn fio_cells(&self, one: &Measured) -> Vec<String> {
        let number = |value: Option<f64>| value.map_or("-".to_string(), three_digits);
        let gain = self.gain(one);
        let theirs = self.measured.iter().find(|other| {
            other.case.by_fio
                && other.bytes == one.bytes
                && (&other.case.io, other.case.batch) == (&one.case.io, one.case.batch)
        });
        let of_theirs = theirs.and_then(|theirs| self.gain(theirs));
        vec![
            one.median(reads_a_second).map_or("-".to_string(), grouped),
            number(gain),
            number(gain.zip(of_theirs).map(|(gain, theirs)| gain / theirs)),
        ]
    }

    /// The cells of [`STEADY_HEADS`].
    fn steady_cells(&self, one: &Measured) -> Vec<String> {
        let number = |value: Option<f64>| value.map_or("-".to_string(), three_digits);
        let rate: fn(&Answer) -> f64 = |answer| answer.operations_per_second.unwrap_or(0.0);
        let tail: fn(&Answer) -> f64 = |answer| answer.p999_seconds;
        let milliseconds = |pick: fn(&Answer) -> f64| number(one.median(pick).map(|s| s * 1e3));
        vec![
            one.median(rate).map_or("-".to_string(), grouped),
            number(self.ratio(one, rate).map(f64::recip)),
            milliseconds(|answer| answer.p50_seconds),
            milliseconds(tail),
            number(self.ratio(one, tail).map(f64::recip)),
            milliseconds(|answer| answer.longest_seconds),
            number(one.median(|answer| answer.compactions as f64)),
            number(one.median(|answer| answer.space_between)),
            number(one.median(|answer| answer.space_peak)),
        ]
    }

    fn command(&self) -> String {
        let memory = self.memory.map(|bytes| format!(" --memory {bytes}"));
        format!(
            "kvzone reproduce {} --scale {} --repeat {}{}",
            self.figure.name,
            self.scale,
            self.repeat,
            memory.unwrap_or_default()
        )
    }

    fn conditions(&self) -> Vec<String> {
        let of_what = match self.figure.kind {
            Kind::Batch => "the same back end with a batch of 1",
            Kind::Sorting => "all sorted",
            Kind::Steady => "never compacted",
            Kind::Fio => "one under way",
            _ => "sync",
        };
        let memory = if self.memory_limited {
            format!("memory limited to {}", memory::told(self.memory))
        } else {
            "memory NOT limited".to_string()
        };
        vec![
            format!(
                "Documents of 4 KiB, a random half of them written twice; cold cache, {memory}; \
                 medians of {} rounds in which all cases take turns (seed {}).",
                self.repeat, self.seed
            ),
            format!("Seconds of each phase; speeds are against {of_what}."),
            format!("In the paper: {}.", self.figure.published),
        ]
    }

    /// For a terminal.
    pub(super) fn terminal(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_preset(comfy_table::presets::UTF8_FULL_CONDENSED);
        table.set_header(self.heads());
        for one in &self.measured {
            table.add_row(self.row(one));
        }
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(comfy_table::CellAlignment::Right);
        }
        let conditions = self.conditions().join("\n");
        let claims = claims_terminal(&self.claims());
        format!("{}\n{table}\n{claims}{conditions}\n", self.figure.title)
    }

    /// For a document, with the command that makes it above.
    pub(super) fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let heads = self.heads();
        let mut text = format!("```text\n{}\n```\n\n", self.command());
        text += &line(&heads);
        text += &format!("|---|---|{}\n", "---:|".repeat(heads.len() - 2));
        for one in &self.measured {
            text += &line(&self.row(one));
        }
        text += "\n";
        let claims = self.claims();
        if !claims.is_empty() {
            text += &claims_grid(&claims).markdown();
            text += "\n";
        }
        for sentence in self.conditions() {
            text += &format!("- {sentence}\n");
        }
        text
    }

    /// A page with the phases as bars.
    pub(super) fn html(&self) -> String {
        let mut body = String::new();
        let mut sizes: Vec<f64> = self.measured.iter().map(|one| one.bytes).collect();
        sizes.dedup();
        if matches!(self.figure.kind, Kind::Steady | Kind::Fio) {
            // Compactions of the background tell no phases, nor does fio.
            sizes.clear();
        }
        for size in sizes {
            let of_size = self.measured.iter().filter(|one| one.bytes == size);
            let bars: Vec<Bar> = of_size
                .map(|one| Bar {
                    name: one.title(),
                    parts: one.phases().unwrap_or_default(),
                })
                .collect();
            body += &format!("<h2>{} of documents, seconds</h2>", bytes(size));
            body += &legend(&PHASES);
            body += &stacked(&bars, &PHASES, |seconds| {
                format!("{} s", three_digits(seconds))
            });
        }
        let escape = kvzone_core::report::chart::escape;
        body += "<h2>Medians</h2><div class=\"wide\"><table><tr>";
        for head in self.heads() {
            body += &format!("<th>{}</th>", escape(&head));
        }
        body += "</tr>";
        for one in &self.measured {
            body += "<tr>";
            for cell in self.row(one) {
                body += &format!("<td>{}</td>", escape(&cell));
            }
            body += "</tr>";
        }
        body += "</table></div>";
        for sentence in self.conditions() {
            body += &format!("<p class=\"hint\">{}</p>", escape(&sentence));
        }
        html::page(self.figure.title, &self.command(), &body)
    }

    /// Every figure of every round.
    pub(super) fn json(&self) -> String {
        let measured: Vec<serde_json::Value> = self
            .measured
            .iter()
            .map(|one| {
                json!({
                    "data_bytes": one.bytes,
                    "case": one.case.title,
                    "io": one.case.io,
                    "batch": one.case.batch,
                    "direct": one.case.direct,
                    "settings": one.case.settings,
                    "rounds": one.answers,
                })
            })
            .collect();
        let all = json!({
            "schema": "kvzone-compaction/1",
            "figure": self.figure.name,
            "scale": self.scale,
            "seed": self.seed,
            "memory_limited": self.memory_limited,
            "measured": measured,
        });
        format!("{all:#}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::FIGURES;
    use super::*;

    fn presented(figure: usize) -> Presented {
        let measured = FIGURES[figure]
            .cases()
            .into_iter()
            .enumerate()
            .map(|(number, case)| Measured {
                bytes: 3e7,
                answers: vec![Answer {
                    io: case.io.to_string(),
                    read: 8.0 / (number + 1) as f64,
                    write: 1.0,
                    total: 10.0,
                    operations_per_second: Some(100.0 * (number + 1) as f64),
                    device_reads: 2,
                    device_read_bytes: 8192,
                    ..Answer::default()
                }],
                case,
            })
            .collect();
        Presented {
            figure: &FIGURES[figure],
            scale: 0.01,
            repeat: 1,
            seed: 1,
            memory: None,
            memory_limited: true,
            measured,
        }
    }

    #[test]
    fn every_figure_is_told_in_every_form() {
        for (number, figure) in FIGURES.iter().enumerate() {
            let presented = presented(number);
            assert!(presented.all_well());
            let markdown = presented.markdown();
            let bars = |line: &str| line.matches('|').count();
            // The first table; what the paper says follows in another.
            let is_row = |line: &&str| line.starts_with('|');
            let from = markdown.lines().skip_while(|line| !is_row(line));
            let mut counts: Vec<usize> = from.take_while(is_row).map(bars).collect();
            assert_eq!(counts.len(), 2 + presented.measured.len());
            counts.dedup();
            assert_eq!(counts.len(), 1, "{markdown}");
            assert!(markdown.contains(figure.published));
            let html = presented.html();
            let rows = presented.measured.len();
            let bars = if matches!(figure.kind, Kind::Steady | Kind::Fio) {
                0
            } else {
                5 * rows
            };
            assert_eq!(html.matches("<rect").count(), bars);
            assert!(!html.contains("http"), "no outside link");
            assert!(presented.json().contains("\"rounds\""));
        }
    }

    #[test]
    fn ratios_are_against_the_first_back_end_and_failures_are_dashes() {
        let mut presented = presented(1);
        let io_uring = &presented.measured[2];
        assert_eq!(presented.ratio(io_uring, |answer| answer.read), Some(3.0));
        presented.measured[2].answers[0].error = Some("broken".to_string());
        assert!(!presented.all_well());
        let row = presented.row(&presented.measured[2]);
        assert!(row[2..].iter().all(|cell| cell == "-"), "{row:?}");
    }
}
