//! Columns of figures. A round's numbers are named as in the JSON of a run.

use kvzone_core::report::text::Unit::{self, Bytes, Count, Number};

use super::measured::Round;

#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) of: Of,
    pub(super) unit: Unit,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Of {
    /// A number of a round, in units of so much; the median is shown.
    Number(&'static str, f64),
    /// The same by the seconds of the round.
    ASecond(&'static str, f64),
    /// A number by another one, in units of so much.
    By(&'static str, &'static str, f64),
    /// The same of the load before.
    Loaded(&'static str),
    /// Share of time in operations beyond the median one, percent.
    BeyondMedian,
    /// The first store's rate by this one's, with its interval.
    Ratio,
    /// The same in the paper.
    Published,
    /// Seconds of reading of the first store by this one's.
    SpeedOfReading,
}

/// Operations a second.
pub(super) const RATE: &str = "ops/s";
pub(super) const RATE_OF: Of = Of::Number("/ops_per_second", 1.0);
pub(super) const READ_OF: Of = Of::Number("/extra/compaction_seconds_read", 1.0);

const fn column(name: &'static str, of: Of, unit: Unit) -> Column {
    Column { name, of, unit }
}

#[rustfmt::skip] // a table
const COLUMNS: &[Column] = &[
    column(RATE, RATE_OF, Count),
    column("ratio", Of::Ratio, Number),
    column("in the paper", Of::Published, Number),
    column("entries/s", Of::ASecond("/extra/entries_scanned", 1.0), Count),
    column("written/s", Of::Number("/extra/writers_ops_per_second", 1.0), Count),
    column("MB/s", Of::ASecond("/user_bytes", 1e6), Number),
    column("write amp", Of::Number("/write_amplification", 1.0), Number),
    column("load write amp", Of::Loaded("/write_amplification"), Number),
    column("read amp", Of::Number("/read_amplification", 1.0), Number),
    column("reads/get", Of::Number("/extra/device_reads_per_lookup", 1.0), Number),
    column("space amp", Of::Number("/space_amplification", 1.0), Number),
    column("CPU µs/op", Of::By("/cpu_seconds", "/operations", 1e-6), Number),
    // Of one processor.
    column("CPU %", Of::ASecond("/cpu_seconds", 0.01), Number),
    column("p50 µs", Of::Number("/latency_ns/p50", 1e3), Number),
    column("beyond p50 %", Of::BeyondMedian, Number),
    column("write ms", Of::Number("/extra/latency_ns_insert/mean", 1e6), Number),
    column("stdev ms", Of::Number("/extra/latency_ns_insert/stdev", 1e6), Number),
    column("write p99 ms", Of::Number("/extra/latency_ns_insert/p99", 1e6), Number),
    column("read ms", Of::Number("/extra/latency_ns_read/mean", 1e6), Number),
    column("whole, s", Of::Number("/seconds", 1.0), Number),
    column("tree search", Of::Number("/extra/compaction_seconds_tree_search", 1.0), Number),
    column("sort", Of::Number("/extra/compaction_seconds_sort", 1.0), Number),
    column("read", READ_OF, Number),
    column("write", Of::Number("/extra/compaction_seconds_write", 1.0), Number),
    column("flush and commit", Of::Number("/extra/compaction_seconds_flush_and_commit", 1.0), Number),
    column("reads", Of::Number("/extra/compaction_read_operations", 1.0), Count),
    column("speed of reading", Of::SpeedOfReading, Number),
    column("mean read of the device", Of::By("/device_read_bytes", "/extra/device_reads", 1.0), Bytes),
];

pub(super) fn find(name: &str) -> Result<&'static Column, String> {
    let mut columns = COLUMNS.iter();
    columns
        .find(|column| column.name == name)
        .ok_or(format!("there is no column {name:?}"))
}

impl Of {
    /// The number of a round; none of a number that compares stores.
    pub(super) fn number(self, round: &Round) -> Option<f64> {
        match self {
            Of::Number(path, unit) => Some(round.number(path)? / unit),
            Of::ASecond(path, unit) => {
                let seconds = round.number("/seconds").filter(|seconds| *seconds > 0.0)?;
                Some(round.number(path)? / seconds / unit)
            }
            Of::By(path, by, unit) => Some(round.number(path)? / round.number(by)?.max(1.0) / unit),
            Of::Loaded(path) => round.load.pointer(path)?.as_f64(),
            Of::BeyondMedian => {
                let mean = round
                    .number("/latency_ns/mean")
                    .filter(|mean| *mean > 0.0)?;
                let share = 1.0 - round.number("/latency_ns/p50")? / mean;
                Some(share.max(0.0) * 100.0)
            }
            Of::Ratio | Of::Published | Of::SpeedOfReading => None,
        }
    }
}
