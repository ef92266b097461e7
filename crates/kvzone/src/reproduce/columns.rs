//! Columns of figures that compare stores. What a run tells is named as in its JSON.

use kvzone_core::report::text::{grouped, three_digits};

use super::figure::{Column, Of};
use super::measured::Round;

/// Operations a second.
pub(super) const RATE: Column =
    Column::new("ops/s", grouped, |round| round.number("/ops_per_second"));
/// The first store's rate by this one's.
pub(super) const RATIO: Column = Column {
    head: "ratio",
    of: Of::Ratio,
    write: three_digits,
};
/// Entries that scans visited, a second.
pub(super) const ENTRIES: Column = Column::new("entries/s", grouped, |round| {
    round.a_second("/extra/entries_scanned", 1.0)
});
/// Updates a second of the writers beside.
pub(super) const WRITER_RATE: Column = Column::new("written/s", grouped, |round| {
    round.number("/extra/writers_ops_per_second")
});
/// User bytes a second, in units of 10^6.
pub(super) const MEGABYTES: Column = Column::new("MB/s", three_digits, |round| {
    round.a_second("/user_bytes", 1e6)
});
/// The same in percent of what one thread writes to one file.
pub(super) const OF_FILE: Column = Column::new("of a file %", three_digits, |round| {
    let file = round.number("/file_bytes_per_second")?;
    Some(round.a_second("/user_bytes", 1.0)? / file * 100.0)
});
/// Bytes sent to the device by user bytes written.
pub(super) const WRITE_AMPLIFICATION: Column = Column::new("write amp", three_digits, |round| {
    round.number("/write_amplification")
});
/// The same of the load before.
pub(super) const LOAD_AMPLIFICATION: Column = Column::new("write amp", three_digits, |round| {
    round.of_load("/write_amplification")
});
/// Bytes read from the device by user bytes.
pub(super) const READ_AMPLIFICATION: Column = Column::new("read amp", three_digits, |round| {
    round.number("/read_amplification")
});
/// Device reads for each lookup.
pub(super) const READS_PER_GET: Column = Column::new("reads/get", three_digits, |round| {
    round.number("/extra/device_reads_per_lookup")
});
/// Bytes on the disk by live user bytes.
pub(super) const SPACE_AMPLIFICATION: Column = Column::new("space amp", three_digits, |round| {
    round.number("/space_amplification")
});
/// Processor time for each operation.
pub(super) const CPU: Column = Column::new("CPU µs/op", three_digits, |round| {
    let operations = round.number("/operations")?.max(1.0);
    Some(round.number("/cpu_seconds")? * 1e6 / operations)
});
/// Processor time by time, percent of one processor.
pub(super) const PROCESSOR: Column = Column::new("CPU %", three_digits, |round| {
    round.a_second("/cpu_seconds", 0.01)
});
/// The median operation.
pub(super) const MEDIAN: Column = Column::new("p50 µs", three_digits, |round| {
    Some(round.number("/latency_ns/p50")? / 1e3)
});
/// Share of time in operations beyond the median one.
pub(super) const WAITING: Column = Column::new("beyond p50 %", three_digits, |round| {
    let mean = round.number("/latency_ns/mean")?;
    let share = 1.0 - round.number("/latency_ns/p50")? / mean;
    (mean > 0.0).then_some(share.max(0.0) * 100.0)
});
/// Mean of inserts.
pub(super) const WRITE_MEAN: Column = Column::new("write ms", three_digits, |round| {
    milliseconds(round, "/extra/latency_ns_insert/mean")
});
/// Their standard deviation.
pub(super) const WRITE_DEVIATION: Column = Column::new("stdev ms", three_digits, |round| {
    milliseconds(round, "/extra/latency_ns_insert/stdev")
});
/// Their 99th percentile.
pub(super) const WRITE_TAIL: Column = Column::new("write p99 ms", three_digits, |round| {
    milliseconds(round, "/extra/latency_ns_insert/p99")
});
/// Mean of reads.
pub(super) const READ_MEAN: Column = Column::new("read ms", three_digits, |round| {
    milliseconds(round, "/extra/latency_ns_read/mean")
});
/// The first store's rate by this one's in the paper.
pub(super) const PUBLISHED: Column =
    Column::of_cells("in the paper", three_digits, |measured, cell| {
        measured.published(cell)
    });

fn milliseconds(round: &Round, name: &str) -> Option<f64> {
    Some(round.number(name)? / 1e6)
}
