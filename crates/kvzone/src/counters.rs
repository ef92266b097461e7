//! What this process has cost so far, as the kernel counts it.
//!
//! A worker process holds one store and nothing else, so what it read, wrote
//! and computed is the store's, all its threads included. The load generator's
//! own processor time is in it too; the `null` store shows how much that is.
//!
//! `write_bytes` counts pages when they are made dirty, so it is complete
//! before they reach the disk. Bytes that a library writes through a mapping
//! count as they are written back on its behalf. The whole disk's counters
//! beside it ([`crate::place::Disk::traffic`]) include everybody else's.

use std::fs;

use rustix::time::{ClockId, clock_gettime};

use crate::device_reads;
use crate::place::Disk;

/// Counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counters {
    /// Bytes fetched from devices.
    pub(crate) read_bytes: Option<u64>,
    /// Reads sent to devices, where they can be counted.
    pub(crate) reads: Option<u64>,
    /// Bytes sent to devices, or bound for them.
    pub(crate) write_bytes: Option<u64>,
    /// User and system time of all threads.
    pub(crate) cpu_seconds: f64,
    /// Resident memory.
    pub(crate) memory_bytes: Option<u64>,
    /// Most resident memory at once, so far.
    pub(crate) peak_memory_bytes: Option<u64>,
    /// Bytes read and written by everybody, on the disk of the store.
    pub(crate) disk: Option<(u64, u64)>,
}

impl Counters {
    /// Reads them all: a few small files, some 100 microseconds.
    pub(crate) fn now(disk: &Disk) -> Counters {
        let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Counters {
            read_bytes: field(&io, "read_bytes:"),
            reads: device_reads::of_this_process(),
            write_bytes: field(&io, "write_bytes:"),
            cpu_seconds: time.tv_sec as f64 + time.tv_nsec as f64 / 1e9,
            memory_bytes: field(&status, "VmRSS:").map(|kibibytes| kibibytes * 1024),
            peak_memory_bytes: field(&status, "VmHWM:").map(|kibibytes| kibibytes * 1024),
            disk: disk.traffic(),
        }
    }

    /// What was added since `earlier`; the peak is that of now.
    pub(crate) fn since(&self, earlier: &Counters) -> Counters {
        let difference = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        let disk =
            |pick: fn((u64, u64)) -> u64| difference(self.disk.map(pick), earlier.disk.map(pick));
        Counters {
            read_bytes: difference(self.read_bytes, earlier.read_bytes),
            reads: difference(self.reads, earlier.reads),
            write_bytes: difference(self.write_bytes, earlier.write_bytes),
            cpu_seconds: (self.cpu_seconds - earlier.cpu_seconds).max(0.0),
            memory_bytes: self.memory_bytes,
            peak_memory_bytes: self.peak_memory_bytes,
            disk: disk(|both| both.0).zip(disk(|both| both.1)),
        }
    }
}

/// The number behind a name at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_whole_so_cancelled_writes_are_no_writes() {
        let io = "rchar: 1\nread_bytes: 20\nwrite_bytes: 300\ncancelled_write_bytes: 4\n";
        assert_eq!(field(io, "write_bytes:"), Some(300));
        assert_eq!(field("VmHWM:\t  1234 kB\n", "VmHWM:"), Some(1234));
        assert_eq!(field(io, "missing:"), None);
    }

    #[test]
    fn work_shows_in_the_difference() {
        let disk = Disk::default();
        let before = Counters::now(&disk);
        let mut sum = 0_u64;
        while Counters::now(&disk).cpu_seconds <= before.cpu_seconds {
            sum = std::hint::black_box(sum + 1);
        }
        let spent = Counters::now(&disk).since(&before);
        assert!(spent.cpu_seconds > 0.0);
        assert!(spent.peak_memory_bytes.is_none_or(|bytes| bytes > 1 << 20));
        assert_eq!(spent.disk, None);
    }

    #[test]
    fn what_one_of_the_two_does_not_know_stays_unknown() {
        let known = Counters {
            read_bytes: Some(10),
            ..Counters::default()
        };
        assert_eq!(known.since(&Counters::default()).read_bytes, None);
        assert_eq!(known.since(&known).read_bytes, Some(0));
    }
}
