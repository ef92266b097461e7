//! What a disk gives through the I/O layer.
//!
//! | part | what is measured |
//! |---|---|
//! | sequential | chunks of 1 MiB written (with a final sync) and read, buffered and direct |
//! | random | reads of 4 KiB by each back end at each depth, buffered and direct |
//! | synced | small writes, each made durable before the next |
//!
//! Everything happens in one test file, filled once and nameless while it is
//! measured, and starts from an empty cache. Numbers of a virtual disk swing
//! from minute to minute: compare within one run.

pub mod random;
pub mod report;
pub mod sequential;
pub mod test_file;

use std::path::PathBuf;
use std::time::Duration;

use cambium_base::Error;
use cambium_io::{Environment, ReadBackend};

use crate::error::Result;
use random::RandomPoint;
use report::{DeviceReport, Machine, SCHEMA};
use sequential::SyncedPattern;
use test_file::{BLOCK_BYTES, TestFile};

pub const BACKENDS: [ReadBackend; 3] = [ReadBackend::Sync, ReadBackend::Aio, ReadBackend::IoUring];

pub const DEPTHS: [usize; 5] = [1, 8, 32, 128, 256];

/// Synced writes that are measured: pattern, direct, bytes.
const SYNCED: [(SyncedPattern, bool, usize); 6] = [
    (SyncedPattern::Append, false, 512),
    (SyncedPattern::Append, false, 4096),
    (SyncedPattern::Append, false, 65536),
    (SyncedPattern::Overwrite, false, 4096),
    (SyncedPattern::Overwrite, true, 4096),
    (SyncedPattern::Overwrite, true, 65536),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Chunks from start to end.
    pub sequential: bool,
    /// Single blocks at random places.
    pub random: bool,
    /// Small durable writes.
    pub synced: bool,
}

#[derive(Clone, Debug)]
pub struct DeviceOptions {
    pub directory: PathBuf,
    /// Length of the test file, bytes; larger than the device's own cache.
    pub file_bytes: u64,
    /// Bytes of a sequential request and of a random read; none: 1 MiB and 4 KiB. A power of
    /// two up to 1 MiB.
    pub request: Option<usize>,
    pub limit: Duration,
    pub parts: Parts,
    /// What is measured, for the report.
    pub machine: Machine,
}

#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    pub done: usize,
    pub total: usize,
    pub next: &'a str,
}

/// Measures everything that was asked for. What the file system cannot do
/// (direct I/O on some) becomes a note; other failures end the run.
pub fn measure(
    environment: &Environment,
    options: &DeviceOptions,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<DeviceReport> {
    let mut test_file = TestFile::create(
        &*environment.file_system,
        &options.directory,
        options.file_bytes,
        options.request,
    )?;
    if options.request.is_some_and(|bytes| bytes < BLOCK_BYTES) {
        let words = format!("requests below {BLOCK_BYTES} bytes cannot go past the cache");
        test_file.direct = Err(Error::InvalidArgument(words));
    }
    let mut session = Session {
        environment,
        options,
        report: DeviceReport {
            schema: SCHEMA.to_string(),
            machine: options.machine.clone(),
            directory: options.directory.display().to_string(),
            file_bytes: test_file.bytes,
            seconds_per_measurement: options.limit.as_secs_f64(),
            ..DeviceReport::default()
        },
        progress,
        done: 0,
        total: total(options.parts, test_file.direct.is_ok()),
        test_file,
    };
    session.sequential()?;
    if options.parts.random {
        session.random()?;
    }
    if options.parts.synced {
        session.synced()?;
    }
    Ok(session.report)
}

fn total(parts: Parts, direct: bool) -> usize {
    let modes = 1 + usize::from(direct);
    let synced = SYNCED.iter().filter(|point| direct || !point.1).count();
    // The first pass of writing is always done: it fills the file.
    1 + if parts.sequential { 2 * modes - 1 } else { 0 }
        + if parts.random {
            BACKENDS.len() * DEPTHS.len() * modes
        } else {
            0
        }
        + if parts.synced { synced } else { 0 }
}

struct Session<'a> {
    environment: &'a Environment,
    options: &'a DeviceOptions,
    test_file: TestFile,
    report: DeviceReport,
    progress: &'a mut dyn FnMut(Progress<'_>),
    done: usize,
    total: usize,
}

impl Session<'_> {
    /// Says what comes next, as one more measurement.
    fn next(&mut self, what: &str) {
        (self.progress)(Progress {
            done: self.done.min(self.total),
            total: self.total,
            next: what,
        });
        self.done += 1;
    }

    fn note(&mut self, note: String) {
        if !self.report.notes.contains(&note) {
            self.report.notes.push(note);
        }
    }

    /// Buffered, and direct where the file system can.
    fn modes(&mut self) -> Vec<bool> {
        match self.test_file.direct.clone() {
            Ok(_) => vec![false, true],
            Err(error) => {
                self.note(format!("direct I/O was not measured: {error}"));
                vec![false]
            }
        }
    }

    fn sequential(&mut self) -> Result<()> {
        let modes = self.modes();
        let limit = self.options.limit;
        self.next("sequential write, buffered");
        let filled = sequential::write(self.environment, &self.test_file, false, None)?;
        if !self.options.parts.sequential {
            return Ok(());
        }
        self.report.sequential.push(filled);
        if modes.contains(&true) {
            self.next("sequential write, direct");
            let found = sequential::write(self.environment, &self.test_file, true, Some(limit))?;
            self.report.sequential.push(found);
        }
        for direct in modes {
            self.next(&format!("sequential read, {}", mode_name(direct)));
            let found = sequential::read(self.environment, &self.test_file, direct, limit)?;
            self.report.sequential.push(found);
        }
        Ok(())
    }

    fn random(&mut self) -> Result<()> {
        for direct in self.modes() {
            for backend in BACKENDS {
                for depth in DEPTHS {
                    self.next(&format!(
                        "random reads, {}, {backend}, depth {depth}",
                        mode_name(direct)
                    ));
                    let point = RandomPoint {
                        backend,
                        depth,
                        direct,
                    };
                    let limit = self.options.limit;
                    let (found, note) =
                        random::measure(self.environment, &self.test_file, point, limit)?;
                    self.report.random_reads.push(found);
                    if let Some(note) = note {
                        self.note(note);
                    }
                }
            }
        }
        Ok(())
    }

    fn synced(&mut self) -> Result<()> {
        let modes = self.modes();
        for (pattern, direct, bytes) in SYNCED {
            if !modes.contains(&direct) {
                continue;
            }
            self.next(&format!("synced writes of {bytes} bytes"));
            let found = sequential::synced_writes(
                self.environment,
                &self.options.directory,
                pattern,
                direct,
                bytes,
                self.options.limit,
            )?;
            self.report.synced_writes.push(found);
        }
        Ok(())
    }
}

fn mode_name(direct: bool) -> &'static str {
    if direct { "direct" } else { "buffered" }
}
