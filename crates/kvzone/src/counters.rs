//! What this process has cost so far, as the kernel counts it.
//!
//! A worker process holds one store and nothing else, so what it read, wrote
//! and computed is the store's, all its threads included. The load generator's
//! own processor time is in it too; the `null` store shows how much that is.
//! A store that is a server has a process of its own, which is counted as well ([`count_also`]);
//! the peak of memory is then the sum of both peaks.
//!
//! `write_bytes` counts pages when they are made dirty, so it is complete
//! before they reach the disk. Bytes that a library writes through a mapping
//! count as they are written back on its behalf. The whole disk's counters
//! beside it ([`crate::place::Disk::traffic`]) include everybody else's.

use std::fs;
use std::sync::{Mutex, PoisonError};

use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};

use crate::device_reads;
use crate::place::Disk;

/// Processes that are counted beside this one.
static BESIDE: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Counts what a child process costs until the guard is dropped: right after the child was
/// waited for, since the kernel then adds its figures to those of its parent.
pub(crate) fn count_also(process: u32) -> Counted {
    let mut beside = BESIDE.lock().unwrap_or_else(PoisonError::into_inner);
    beside.push(process);
    Counted(process)
}

#[derive(Debug)]
pub(crate) struct Counted(u32);

impl Drop for Counted {
    fn drop(&mut self) {
        let mut beside = BESIDE.lock().unwrap_or_else(PoisonError::into_inner);
        beside.retain(|&process| process != self.0);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counters {
    pub(crate) read_bytes: Option<u64>,
    /// Reads sent to devices, where they can be counted.
    pub(crate) reads: Option<u64>,
    /// Bytes sent to devices, or bound for them.
    pub(crate) write_bytes: Option<u64>,
    pub(crate) cpu_seconds: f64,
    pub(crate) memory_bytes: Option<u64>,
    /// Most resident memory at once, so far.
    pub(crate) peak_memory_bytes: Option<u64>,
    /// Bytes read and written by everybody, on the disk of the store.
    pub(crate) disk: Option<(u64, u64)>,
}

impl Counters {
    /// Reads them all: a few small files, some 100 microseconds.
    pub(crate) fn now(disk: &Disk) -> Counters {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        let own = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
        let mut now = Counters {
            reads: device_reads::of_this_process(),
            cpu_seconds: own + cpu_seconds("self", true),
            disk: disk.traffic(),
            ..Counters::default()
        };
        now.add_process("self");
        let beside = BESIDE.lock().unwrap_or_else(PoisonError::into_inner);
        for process in beside.iter().map(u32::to_string) {
            now.add_process(&process);
            now.cpu_seconds += cpu_seconds(&process, false) + cpu_seconds(&process, true);
        }
        now
    }

    fn add_process(&mut self, process: &str) {
        let text = |name: &str| fs::read_to_string(format!("/proc/{process}/{name}"));
        let io = text("io").unwrap_or_default();
        let status = text("status").unwrap_or_default();
        let kibibytes = |name: &str| field(&status, name).map(|kibibytes| kibibytes * 1024);
        for (sum, more) in [
            (&mut self.read_bytes, field(&io, "read_bytes:")),
            (&mut self.write_bytes, field(&io, "write_bytes:")),
            (&mut self.memory_bytes, kibibytes("VmRSS:")),
            (&mut self.peak_memory_bytes, kibibytes("VmHWM:")),
        ] {
            *sum = more.map(|more| more + sum.unwrap_or(0)).or(*sum);
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

/// User and system time of a process, or of its children that it has waited for.
fn cpu_seconds(process: &str, of_children: bool) -> f64 {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let ticks = ticks(&text);
    let first = if of_children { 2 } else { 0 };
    (ticks[first] + ticks[first + 1]) as f64 / clock_ticks_per_second() as f64
}

/// Clock ticks of `/proc/PID/stat`: user and system time of the process, and of its children
/// that it has waited for; 0 where there are none.
pub(crate) fn ticks(stat: &str) -> [u64; 4] {
    // The name, in brackets, may hold anything; user time is the twelfth field behind it.
    let (_, fields) = stat.rsplit_once(')').unwrap_or_default();
    let mut fields = fields.split_whitespace().skip(11);
    [(); 4].map(|()| {
        fields
            .next()
            .and_then(|ticks| ticks.parse().ok())
            .unwrap_or(0)
    })
}

/// The number behind a name in a file of `/proc`.
pub(crate) fn field(text: &str, name: &str) -> Option<u64> {
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
    fn the_costs_of_a_child_count_before_and_after_it_ends() {
        let disk = Disk::default();
        let before = Counters::now(&disk);
        let mut child = std::process::Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .unwrap();
        let counted = count_also(child.id());
        let process = child.id().to_string();
        while cpu_seconds(&process, false) < 0.05 {}
        let running = Counters::now(&disk);
        assert!(running.since(&before).cpu_seconds >= 0.05);
        child.kill().unwrap();
        child.wait().unwrap();
        drop(counted);
        assert!(Counters::now(&disk).since(&before).cpu_seconds >= 0.05);
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
