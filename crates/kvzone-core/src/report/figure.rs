//! The figures of a run that people read: one list for tables, charts, comparisons and advice.

use serde_json::Value;

use crate::error::{Error, Result};
use crate::names::unknown;
use crate::record::{LatencySummary, Run};
use crate::report::text::Unit;

/// Calls below which a 99.9th percentile is not shown: ten lie above it.
const CALLS_FOR_P999: u64 = 10_000;

#[derive(Clone, Copy, Debug)]
pub struct Figure {
    pub name: &'static str,
    pub heading: &'static str,
    /// Above its chart; empty where it has none.
    pub title: &'static str,
    pub unit: Unit,
    /// Whether more of it is better.
    pub more_is_better: bool,
    /// Reports are compared by it, and stores ranked.
    pub decides: bool,
    of: fn(&Run) -> Option<f64>,
}

/// Latency, and costs: less is better.
const COST: Figure = Figure {
    name: "",
    heading: "",
    title: "",
    unit: Unit::Number,
    more_is_better: false,
    decides: false,
    of: |_| None,
};

/// All of them, in the order of tables.
pub static FIGURES: [Figure; 13] = [
    Figure {
        name: "ops",
        heading: "ops/s",
        title: "Throughput, operations a second",
        unit: Unit::Count,
        more_is_better: true,
        decides: true,
        of: |run| Some(run.ops_per_second),
    },
    Figure {
        name: RATE_KEPT,
        heading: "rate kept",
        unit: Unit::Count,
        more_is_better: true,
        of: |run| run.extra.get("latency_target")?["rate_kept"].as_f64(),
        ..COST
    },
    Figure {
        name: "p50",
        heading: "p50",
        unit: Unit::Nanoseconds,
        decides: true,
        of: |run| latency(run, |found| found.p50),
        ..COST
    },
    Figure {
        name: "p99",
        heading: "p99",
        unit: Unit::Nanoseconds,
        decides: true,
        of: |run| latency(run, |found| found.p99),
        ..COST
    },
    Figure {
        name: "p999",
        heading: "p99.9",
        unit: Unit::Nanoseconds,
        of: |run| latency(run, |found| found.p999).filter(|_| calls(run) >= CALLS_FOR_P999),
        ..COST
    },
    Figure {
        name: "cpu",
        heading: "CPU µs/op",
        title: "Processor time of an operation in microseconds, background work included",
        decides: true,
        of: |run| Some(run.cpu_seconds? * 1e6 / Some(run.operations).filter(|&it| it > 0)? as f64),
        ..COST
    },
    Figure {
        name: "write-amp",
        heading: "write amp",
        title: "Write amplification: device bytes for each byte written",
        decides: true,
        of: |run| run.write_amplification,
        ..COST
    },
    Figure {
        name: "read-amp",
        heading: "read amp",
        title: "Read amplification: device bytes for each byte read",
        of: |run| run.read_amplification,
        ..COST
    },
    Figure {
        name: "reads",
        heading: "reads/get",
        of: |run| run.extra.get("device_reads_per_lookup")?.as_f64(),
        ..COST
    },
    Figure {
        name: "space",
        heading: "space",
        unit: Unit::Bytes,
        decides: true,
        of: |run| run.space_bytes.map(|bytes| bytes as f64),
        ..COST
    },
    Figure {
        name: "space-amp",
        heading: "space amp",
        title: "Space for each byte that is live",
        of: |run| run.space_amplification,
        ..COST
    },
    Figure {
        name: "memory",
        heading: "peak memory",
        title: "Most resident memory",
        unit: Unit::Bytes,
        decides: true,
        of: |run| run.peak_memory_bytes.map(|bytes| bytes as f64),
        ..COST
    },
    Figure {
        name: "debt",
        heading: "debt",
        title: "Debt: time until flushes and compactions were done",
        unit: Unit::Nanoseconds,
        of: |run| Some(run.extra.get("settle_seconds")?.as_f64()? * 1e9),
        ..COST
    },
];

/// The figure that only a search for a rate has.
pub const RATE_KEPT: &str = "rate-kept";

fn latency(run: &Run, pick: fn(&LatencySummary) -> u64) -> Option<f64> {
    Some(pick(run.latency_ns.as_ref()?) as f64)
}

/// Calls that were timed: a batch is one.
fn calls(run: &Run) -> u64 {
    let counted = run.extra.iter();
    let counted = counted.filter(|(name, _)| name.starts_with("calls_"));
    let calls: u64 = counted.filter_map(|(_, calls)| Value::as_u64(calls)).sum();
    if calls > 0 { calls } else { run.operations }
}

impl Figure {
    pub fn value(&self, run: &Run) -> Option<f64> {
        (self.of)(run)
    }

    pub fn text(&self, value: f64) -> String {
        self.unit.text(value)
    }

    /// Those that reports are compared by.
    pub fn deciding() -> impl DoubleEndedIterator<Item = &'static Figure> {
        FIGURES.iter().filter(|figure| figure.decides)
    }

    /// The figure of a name that decides; a usage error offers the nearest.
    pub fn find(name: &str) -> Result<Figure> {
        let found = Figure::deciding().find(|figure| figure.name == name);
        found.copied().ok_or_else(|| {
            let names = Figure::deciding().map(|figure| figure.name);
            Error::Usage(unknown("figure", name, names))
        })
    }
}
