//! Latencies of one thread, and how they are put together.
//!
//! Each kind of operation has a histogram over the whole phase; another is begun anew
//! every second, and of it is kept what the timeline needs.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::result::PhaseResult;
use crate::error::{Error, Result};
use crate::latency::{histogram, summary};
use crate::record::{LatencySummary, TimelinePoint};
use crate::workload::OperationKind;

const SECOND: u64 = 1_000_000_000;

/// Neighbours closer than this are one bar of a second's timeline.
const BAR: f64 = 1.01;

/// One thread's seconds: operations, and latencies as bars.
#[derive(Clone, Debug, Default)]
struct Second {
    operations: u64,
    bars: Vec<(u64, u64)>,
}

#[derive(Clone, Debug)]
pub struct Recorder {
    kinds: Vec<(OperationKind, Histogram<u64>)>,
    native: Option<Histogram<u64>>,
    /// From the intended start to the call.
    queueing: Option<Histogram<u64>>,
    this_second: Histogram<u64>,
    operations_this_second: u64,
    second: u64,
    second_ends: u64,
    seconds: Vec<Second>,
    operations: u64,
}

impl Recorder {
    /// For these kinds; `native` also keeps latencies from the call, where the
    /// others are from the intended start.
    pub fn new(kinds: &[OperationKind], native: bool) -> Result<Self> {
        let kinds = kinds
            .iter()
            .map(|&kind| Ok((kind, histogram()?)))
            .collect::<Result<Vec<_>>>()?;
        Ok(Recorder {
            kinds,
            native: native.then(histogram).transpose()?,
            queueing: native.then(histogram).transpose()?,
            this_second: histogram()?,
            operations_this_second: 0,
            second: 0,
            second_ends: SECOND,
            seconds: Vec::new(),
            operations: 0,
        })
    }

    /// A call ended at `end`, nanoseconds after the phase began, and was so
    /// many operations.
    #[inline]
    pub fn record(&mut self, kind: OperationKind, latency: u64, end: u64, operations: u64) {
        if end >= self.second_ends {
            self.next_second(end);
        }
        self.this_second.saturating_record(latency);
        if let Some((_, histogram)) = self.kinds.iter_mut().find(|(of, _)| *of == kind) {
            histogram.saturating_record(latency);
        }
        self.operations_this_second += operations;
        self.operations += operations;
    }

    /// The same call's latency in two parts: how long it waited from its intended
    /// start on, and how long it took from the call on.
    #[inline]
    pub fn record_parts(&mut self, waited: u64, latency: u64) {
        if let (Some(native), Some(queueing)) = (&mut self.native, &mut self.queueing) {
            native.saturating_record(latency);
            queueing.saturating_record(waited);
        }
    }

    #[inline]
    pub fn operations(&self) -> u64 {
        self.operations
    }

    #[cold]
    fn next_second(&mut self, now: u64) {
        self.keep_second();
        self.second = now / SECOND;
        self.second_ends = (self.second + 1) * SECOND;
    }

    fn keep_second(&mut self) {
        self.seconds.resize(self.second as usize, Second::default());
        let mut bars: Vec<(u64, u64)> = Vec::new();
        for recorded in self.this_second.iter_recorded() {
            let (value, count) = (recorded.value_iterated_to(), recorded.count_at_value());
            match bars.last_mut() {
                Some(last) if (value as f64) < last.0 as f64 * BAR => last.1 += count,
                _ => bars.push((value, count)),
            }
        }
        self.seconds.push(Second {
            operations: self.operations_this_second,
            bars,
        });
        self.this_second.reset();
        self.operations_this_second = 0;
    }
}

#[derive(Clone, Debug)]
pub struct Merged {
    pub latency: Option<LatencySummary>,
    /// From the call.
    pub native_latency: Option<LatencySummary>,
    /// From the intended start to the call, of an open loop.
    pub queueing: Option<LatencySummary>,
    /// Kind by kind, where there is more than one.
    pub by_kind: BTreeMap<OperationKind, LatencySummary>,
    pub calls: BTreeMap<OperationKind, u64>,
    pub operations: u64,
    /// Second by second, without a gap.
    pub timeline: Vec<TimelinePoint>,
}

impl Merged {
    /// Says what goes beside the figures that every phase has.
    pub fn tell(&self, result: &mut PhaseResult) {
        if let Some(queueing) = self.queueing {
            result.tell("queueing_latency_ns", queueing);
        }
        for (kind, calls) in &self.calls {
            result.tell(&format!("calls_{}", kind.name()), calls);
        }
        for (kind, latency) in &self.by_kind {
            result.tell(&format!("latency_ns_{}", kind.name()), latency);
        }
    }
}

pub fn merge(recorders: Vec<Recorder>) -> Result<Merged> {
    let (mut all, mut native, mut queueing) = (histogram()?, histogram()?, histogram()?);
    let mut kinds: BTreeMap<OperationKind, Histogram<u64>> = BTreeMap::new();
    let mut seconds: Vec<Vec<Second>> = Vec::new();
    let mut operations = 0;
    for mut recorder in recorders {
        recorder.keep_second();
        operations += recorder.operations;
        for (kind, histogram) in recorder.kinds {
            add(&mut all, &histogram)?;
            match kinds.get_mut(&kind) {
                Some(sum) => add(sum, &histogram)?,
                None => {
                    kinds.insert(kind, histogram);
                }
            }
        }
        if let Some(of_thread) = &recorder.native {
            add(&mut native, of_thread)?;
        }
        if let Some(of_thread) = &recorder.queueing {
            add(&mut queueing, of_thread)?;
        }
        for (second, of_thread) in recorder.seconds.into_iter().enumerate() {
            if seconds.len() <= second {
                seconds.push(Vec::new());
            }
            seconds[second].push(of_thread);
        }
    }
    let latency = summary(&all);
    let several = kinds.len() > 1;
    Ok(Merged {
        latency,
        native_latency: summary(&native).or(latency),
        queueing: summary(&queueing),
        by_kind: kinds
            .iter()
            .filter(|_| several)
            .filter_map(|(&kind, histogram)| Some((kind, summary(histogram)?)))
            .collect(),
        calls: kinds.iter().map(|(&kind, sum)| (kind, sum.len())).collect(),
        operations,
        timeline: seconds.iter().enumerate().map(point).collect(),
    })
}

fn add(sum: &mut Histogram<u64>, more: &Histogram<u64>) -> Result<()> {
    sum.add(more)
        .map_err(|error| Error::Usage(format!("histograms: {error}")))
}

fn point((second, threads): (usize, &Vec<Second>)) -> TimelinePoint {
    let mut bars: Vec<(u64, u64)> = threads
        .iter()
        .flat_map(|of_thread| of_thread.bars.iter().copied())
        .collect();
    bars.sort_unstable();
    let samples: u64 = bars.iter().map(|&(_, count)| count).sum();
    let rank = (samples * 99).div_ceil(100);
    let mut passed = 0;
    let p99 = bars.iter().find(|&&(_, count)| {
        passed += count;
        passed >= rank
    });
    TimelinePoint {
        second: second as u64,
        operations: threads.iter().map(|of_thread| of_thread.operations).sum(),
        p99_ns: p99.map_or(0, |&(value, _)| value),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::latency::LONGEST;
    use OperationKind::{Read, Update};

    #[test]
    fn percentiles_and_counts_are_those_of_the_samples() {
        let mut recorder = Recorder::new(&[Read], false).unwrap();
        for sample in 1..=1_000 {
            recorder.record(Read, sample * 1_000, sample, 1);
        }
        let merged = merge(vec![recorder]).unwrap();
        let latency = merged.latency.unwrap();
        let near = |found: u64, expected: u64| found.abs_diff(expected) * 1_000 <= expected;
        assert!(near(latency.p50, 500_000), "{latency:?}");
        assert!(near(latency.p90, 900_000), "{latency:?}");
        assert!(near(latency.p99, 990_000), "{latency:?}");
        assert!(near(latency.p999, 999_000), "{latency:?}");
        assert!(near(latency.max, 1_000_000), "{latency:?}");
        assert!((latency.mean - 500_500.0).abs() < 500.0, "{latency:?}");
        assert_eq!(merged.operations, 1_000);
        assert_eq!(merged.native_latency, merged.latency);
        assert!(merged.by_kind.is_empty());
    }

    #[test]
    fn the_timeline_has_no_gap_and_sums_threads() {
        let mut one = Recorder::new(&[Read, Update], true).unwrap();
        one.record(Read, 100, 500_000_000, 1);
        one.record(Update, 4_000_000, 3_100_000_000, 10);
        let mut other = Recorder::new(&[Read, Update], true).unwrap();
        other.record(Read, 200, 900_000_000, 1);
        let merged = merge(vec![one, other]).unwrap();
        let found: Vec<_> = merged
            .timeline
            .iter()
            .map(|point| (point.second, point.operations))
            .collect();
        assert_eq!(found, [(0, 2), (1, 0), (2, 0), (3, 10)]);
        assert_eq!(merged.timeline[0].p99_ns, 200);
        assert_eq!(merged.timeline[1].p99_ns, 0);
        assert!(merged.timeline[3].p99_ns.abs_diff(4_000_000) < 5_000);
        assert_eq!(merged.calls[&Read], 2);
        assert_eq!(merged.by_kind[&Update].max / 10_000, 400);
    }

    #[test]
    fn nothing_recorded_is_nothing_reported() {
        let merged = merge(vec![Recorder::new(&[Read], true).unwrap()]).unwrap();
        assert_eq!(merged.latency, None);
        assert_eq!(merged.native_latency, None);
        assert_eq!(merged.operations, 0);
    }

    #[test]
    fn more_than_an_hour_counts_as_that() {
        let mut recorder = Recorder::new(&[Read], false).unwrap();
        recorder.record(Read, u64::MAX, 1, 1);
        let max = merge(vec![recorder]).unwrap().latency.unwrap().max;
        assert!((LONGEST..LONGEST + LONGEST / 500).contains(&max));
    }
}
