//! Counters that the threads of the server share with whoever reads `/metrics`.
//!
//! The executor counts commands in a plain list while a round runs, and adds the list to
//! these counters when the answers of the round leave. One clock read a round is enough, and
//! a scrape never waits for the executor's lists.

use std::collections::HashMap;
use std::time::Duration;

use cambium_io::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use foldhash::fast::RandomState;

use crate::commands::{self, Command, WRITE};

/// Upper bounds of the buckets of a latency, in microseconds. One more bucket takes the rest.
pub const BOUNDS_MICROS: [u64; 19] = [
    10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000,
    500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000,
];

/// A histogram of times.
#[derive(Debug, Default)]
pub struct Latency {
    buckets: [AtomicU64; BOUNDS_MICROS.len() + 1],
    nanoseconds: AtomicU64,
}

impl Latency {
    /// Adds `count` events that took `time` each.
    pub fn record(&self, time: Duration, count: u64) {
        let nanoseconds = time.as_nanos() as u64;
        let bucket = BOUNDS_MICROS.partition_point(|bound| bound * 1_000 < nanoseconds);
        self.buckets[bucket].fetch_add(count, Ordering::Relaxed);
        self.nanoseconds
            .fetch_add(nanoseconds.saturating_mul(count), Ordering::Relaxed);
    }

    /// Events by bucket, in order of [`BOUNDS_MICROS`]; the last has those beyond.
    pub fn counts(&self) -> [u64; BOUNDS_MICROS.len() + 1] {
        std::array::from_fn(|bucket| self.buckets[bucket].load(Ordering::Relaxed))
    }

    /// The sum of all times, in seconds.
    pub fn seconds(&self) -> f64 {
        self.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9
    }
}

/// Counters of one command.
#[derive(Debug, Default)]
pub struct CommandCounters {
    /// From the beginning of its round until its answer left.
    pub latency: Latency,
    /// Calls that answered an error.
    pub errors: AtomicU64,
}

/// Counters of the server.
#[derive(Debug)]
pub struct Metrics {
    commands: HashMap<&'static str, CommandCounters, RandomState>,
    /// Calls that were refused before they ran: unknown, wrong arity, no password.
    pub rejected: AtomicU64,
    /// Bytes that clients sent.
    pub bytes_read: AtomicU64,
    /// Bytes of answers.
    pub bytes_written: AtomicU64,
    /// Batches written to the store.
    pub commits: Latency,
    /// Syncs for the writes of clients.
    pub syncs: Latency,
    /// Values that threads fetched, as they were not in memory.
    pub fetches: Latency,
    /// The last batch, or the last sync, has failed.
    pub is_failing: AtomicBool,
    /// The disk is full: only deletes are accepted.
    pub is_full: AtomicBool,
}

impl Default for Metrics {
    fn default() -> Self {
        let commands = commands::all().map(|command| (command.name, CommandCounters::default()));
        Metrics {
            commands: commands.collect(),
            rejected: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            commits: Latency::default(),
            syncs: Latency::default(),
            fetches: Latency::default(),
            is_failing: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
        }
    }
}

impl Metrics {
    /// A batch or a sync has ended. The first failure is told, and the first success behind it.
    pub fn write_ended(&self, error: Option<&cambium::Error>) {
        let was_failing = self.is_failing.swap(error.is_some(), Ordering::Relaxed);
        match error {
            Some(error) if !was_failing => tracing::error!(%error, "writes fail"),
            None if was_failing => tracing::info!("writes work again"),
            _ => {}
        }
    }

    /// Every command that was called, with its counters, in the order of names.
    pub fn called(&self) -> Vec<(&'static str, &CommandCounters)> {
        let is_called = |counters: &CommandCounters| {
            counters.errors.load(Ordering::Relaxed) > 0
                || counters.latency.counts().iter().any(|count| *count > 0)
        };
        let mut called: Vec<_> = self
            .commands
            .iter()
            .filter(|(_, counters)| is_called(counters))
            .map(|(name, counters)| (*name, counters))
            .collect();
        called.sort_by_key(|(name, _)| *name);
        called
    }

    /// Adds calls whose answers leave `time` after their round began.
    pub fn record(&self, calls: &Calls, time: Duration) {
        for (command, count) in &calls.0 {
            self.record_one(command, time, *count);
        }
    }

    /// Adds `count` calls of one command.
    pub fn record_one(&self, command: &Command, time: Duration, count: u64) {
        if let Some(counters) = self.commands.get(command.name) {
            counters.latency.record(time, count);
        }
    }

    /// Counts a call that answered an error.
    pub fn failed(&self, command: &Command) {
        if let Some(counters) = self.commands.get(command.name) {
            counters.errors.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// How often each command ran in a round.
#[derive(Debug, Default)]
pub struct Calls(Vec<(&'static Command, u64)>);

impl Calls {
    /// Counts a call. A round has few different commands, so a list is enough.
    pub fn note(&mut self, command: &'static Command) {
        match self.entry(command) {
            Some(count) => *count += 1,
            None => self.0.push((command, 1)),
        }
    }

    /// Takes a call back whose answer comes later.
    pub fn withdraw(&mut self, command: &'static Command) {
        if let Some(count) = self.entry(command) {
            *count = count.saturating_sub(1);
        }
    }

    /// Moves the calls whose answers wait for a sync into a list of their own.
    pub fn take_writes(&mut self) -> Calls {
        let is_write = |(command, _): &(&'static Command, u64)| {
            command.flags & WRITE != 0 || command.name == "exec"
        };
        let (writes, others) = self.0.drain(..).partition(is_write);
        self.0 = others;
        Calls(writes)
    }

    /// Forgets all calls, and keeps the memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    fn entry(&mut self, command: &'static Command) -> Option<&mut u64> {
        let mut entries = self.0.iter_mut();
        let entry = entries.find(|(other, _)| std::ptr::eq(*other, command))?;
        Some(&mut entry.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_counts_in_the_bucket_that_it_fits() {
        let latency = Latency::default();
        latency.record(Duration::from_micros(10), 1);
        latency.record(Duration::from_nanos(10_001), 2);
        latency.record(Duration::from_secs(11), 4);
        let counts = latency.counts();
        assert_eq!((counts[0], counts[1], counts[19]), (1, 2, 4));
        assert_eq!(counts.iter().sum::<u64>(), 7);
        assert!((latency.seconds() - 44.000_03).abs() < 1e-6);
    }

    #[test]
    fn a_round_counts_calls_once() {
        let get = commands::find(b"get").unwrap();
        let set = commands::find(b"SET").unwrap();
        let mut calls = Calls::default();
        for command in [get, set, get, get] {
            calls.note(command);
        }
        calls.withdraw(get);
        let writes = calls.take_writes();
        let metrics = Metrics::default();
        metrics.record(&calls, Duration::from_micros(15));
        metrics.record(&writes, Duration::from_millis(15));
        let called = metrics.called();
        assert_eq!(called.len(), 2);
        assert_eq!((called[0].0, called[0].1.latency.counts()[1]), ("get", 2));
        assert_eq!((called[1].0, called[1].1.latency.counts()[10]), ("set", 1));
    }
}
