//! A log's windows: the writer stores through them while another thread opens the next one,
//! under every interleaving of a few preemptions.

use std::path::Path;
use std::sync::Arc;

use cambium_base::{FileIdentity, FileNumber, SequenceNumber, StoreId};
use cambium_io::memory::MemoryFileSystem;
use cambium_io::sync::{scheduler, thread};
use cambium_io::{FileSystem, OpenOptions};
use cambium_storage::log::{LogFile, LogGeometry};
use cambium_storage::record::RecordHeader;

/// Interleavings of one program that a test looks at, at most.
const MOST: u64 = 5_000;
const WINDOW: u64 = 512;

/// A log with what was appended to it.
struct Written {
    log: Arc<LogFile>,
    records: Vec<(u64, Vec<u8>)>,
}

impl Written {
    fn new() -> Self {
        let files = MemoryFileSystem::new();
        let file = files.open(Path::new("log"), OpenOptions::CREATE).unwrap();
        let identity = FileIdentity {
            store: StoreId([7; 16]),
            number: FileNumber(1),
            salt: 5,
        };
        let geometry = LogGeometry {
            alignment: 8,
            block: 64,
            first_offset: 64,
            least_growth: 256,
            most_growth: 1024,
            window: WINDOW,
        };
        let log = LogFile::new(file, &identity, geometry, geometry.first_offset).unwrap();
        Written {
            log: Arc::new(log),
            records: Vec::new(),
        }
    }

    /// Appends a record as a writer of small entries does; true if the log wants a window.
    fn append(&mut self, length: usize) -> bool {
        let number = self.records.len() as u64 + 1;
        let header = RecordHeader {
            kind: 1,
            sequence: SequenceNumber(number),
            ..RecordHeader::default()
        };
        let payload = vec![number as u8; length];
        let parts = [&payload[..4], &payload[4..]];
        let stored = self.log.append_to_window(&header, &parts, u64::MAX);
        let wants = stored.as_ref().is_some_and(|stored| stored.wants_window);
        let start = stored.map_or_else(
            || {
                self.log.reserve(length as u64 + 64).unwrap();
                let place = self.log.append(&header, &parts);
                self.log.flush().unwrap();
                place.start
            },
            |stored| stored.place.start,
        );
        self.records.push((start, payload));
        wants
    }

    /// Appends small records until the log wants a window.
    fn fill(&mut self) {
        let wants = (0..64).any(|_| self.append(24));
        assert!(wants, "half of a window is used");
    }

    fn check(&self) {
        for (start, payload) in &self.records {
            let record = self.log.read(*start, 64).unwrap();
            assert_eq!(record.payload[..], payload[..], "at {start}");
        }
        let (last, payload) = self.records.last().unwrap();
        let end = last + 64 + payload.len() as u64;
        assert!(self.log.end() <= end, "nothing lies behind the records");
    }
}

/// Runs a writer beside a thread that opens the next window.
fn beside(write: impl Fn(&mut Written) + Clone + Send + 'static) -> u64 {
    scheduler::explore(2, MOST, move || {
        let mut written = Written::new();
        written.fill();
        let log = written.log.clone();
        let other = thread::spawn(move || log.open_window_ahead().unwrap());
        write(&mut written);
        other.join().unwrap();
        written.check();
    })
}

#[test]
fn records_follow_one_another_through_windows() {
    let mut written = Written::new();
    written.fill();
    let mut opened = 0;
    for length in (8..200).step_by(3) {
        if written.append(length) {
            written.log.open_window_ahead().unwrap();
            opened += 1;
        }
    }
    assert!(opened > 5, "{opened} windows");
    written.check();
}

#[test]
fn zeros_of_a_window_ahead_spare_what_is_stored() {
    let seen = beside(|written| {
        for _ in 0..(2 * WINDOW / 40) {
            written.append(24);
        }
    });
    assert!(seen > 50, "{seen}");
}

#[test]
fn zeros_of_a_window_ahead_spare_what_is_written_to_the_file() {
    let seen = beside(|written| {
        written.append(2 * WINDOW as usize);
        written.append(24);
    });
    assert!(seen > 50, "{seen}");
}

#[test]
fn a_sync_or_a_cut_ends_the_opening_of_windows() {
    let seen = beside(|written| {
        written.log.sync().unwrap();
        written.append(300);
        let end = written.log.end();
        let (start, _) = written.records.pop().unwrap();
        written.log.cut_back(start).unwrap();
        assert!(written.log.end() < end);
        written.append(100);
        written.append(24);
    });
    assert!(seen > 50, "{seen}");
}
