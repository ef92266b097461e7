//! Sequential writes and reads of large chunks, and small synced writes.

use std::sync::Arc;
use std::time::Duration;

use cambium_io::{Advice, Environment, File, OpenOptions};

use super::report::{Sequential, SyncedWrites};
use super::test_file::{TestFile, check_stamp, new_chunk, stamp};
use crate::error::Result;
use crate::latency::{histogram, summary};

/// Writes the test file from its start until `limit` (none: to its end), and
/// syncs; the sync is in the time.
pub fn write(
    environment: &Environment,
    test_file: &TestFile,
    direct: bool,
    limit: Option<Duration>,
) -> Result<Sequential> {
    let file = test_file.handle(direct)?;
    let mut chunk = new_chunk(file.alignment().memory);
    let clock = &environment.clock;
    let start = clock.monotonic();
    let mut offset = 0;
    while offset < test_file.bytes && limit.is_none_or(|limit| (clock.monotonic() - start) < limit)
    {
        stamp(&mut chunk, offset);
        for piece in chunk.chunks(test_file.chunk) {
            file.write_at(piece, offset)?;
            offset += piece.len() as u64;
        }
    }
    file.sync_data()?;
    let time = clock.monotonic() - start;
    Ok(found("write", direct, (test_file.chunk, offset), time))
}

/// Reads the test file from its start until `limit`, from an empty cache.
pub fn read(
    environment: &Environment,
    test_file: &TestFile,
    direct: bool,
    limit: Duration,
) -> Result<Sequential> {
    let file = test_file.handle(direct)?;
    test_file.drop_cache()?;
    file.advise(0, test_file.bytes, Advice::Sequential);
    let mut chunk = new_chunk(file.alignment().memory);
    let clock = &environment.clock;
    let start = clock.monotonic();
    let mut offset = 0;
    while offset < test_file.bytes && (clock.monotonic() - start) < limit {
        let began = offset;
        for piece in chunk.chunks_mut(test_file.chunk) {
            file.read_exact_at(piece, offset)?;
            offset += piece.len() as u64;
        }
        check_stamp(file.path(), &chunk, began)?;
    }
    let time = clock.monotonic() - start;
    Ok(found("read", direct, (test_file.chunk, offset), time))
}

fn found(
    operation: &str,
    direct: bool,
    (block, bytes): (usize, u64),
    time: Duration,
) -> Sequential {
    let seconds = time.as_secs_f64();
    Sequential {
        operation: operation.to_string(),
        direct,
        block_bytes: block,
        bytes,
        seconds,
        bytes_per_second: bytes as f64 / seconds.max(1e-9),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncedPattern {
    /// At the end of a file that grows.
    Append,
    /// Round and round in blocks that were written before.
    Overwrite,
}

const OVERWRITE_BYTES: u64 = 16 << 20;

/// Writes of `block_bytes`, each made durable before the next, for `limit`.
pub fn synced_writes(
    environment: &Environment,
    directory: &std::path::Path,
    pattern: SyncedPattern,
    direct: bool,
    block_bytes: usize,
    limit: Duration,
) -> Result<SyncedWrites> {
    let path = directory.join(format!("kvzone-synced-{}.tmp", std::process::id()));
    let options = if direct {
        OpenOptions::CREATE_NEW.direct()
    } else {
        OpenOptions::CREATE_NEW
    };
    let files = &environment.file_system;
    let file = files.open(&path, options)?;
    files.remove(&path)?;
    let chunk = new_chunk(file.alignment().memory);
    let span = match pattern {
        SyncedPattern::Append => u64::MAX,
        SyncedPattern::Overwrite => OVERWRITE_BYTES,
    };
    if pattern == SyncedPattern::Overwrite {
        fill(&file, &chunk, span)?;
    }
    let mut samples = histogram()?;
    let clock = &environment.clock;
    let start = clock.monotonic();
    let mut before = start;
    let mut offset = 0;
    while before - start < limit {
        file.write_at(&chunk[..block_bytes], offset % span)?;
        file.sync_data()?;
        offset += block_bytes as u64;
        let now = clock.monotonic();
        samples.saturating_record((now - before).as_nanos() as u64);
        before = now;
    }
    let (writes, seconds) = (samples.len(), (before - start).as_secs_f64());
    Ok(SyncedWrites {
        pattern: match pattern {
            SyncedPattern::Append => "append".to_string(),
            SyncedPattern::Overwrite => "overwrite".to_string(),
        },
        direct,
        block_bytes,
        writes,
        seconds,
        writes_per_second: writes as f64 / seconds.max(1e-9),
        latency_ns: summary(&samples),
    })
}

fn fill(file: &Arc<dyn File>, chunk: &[u8], bytes: u64) -> Result<()> {
    let mut offset = 0;
    while offset < bytes {
        file.write_at(chunk, offset)?;
        offset += chunk.len() as u64;
    }
    Ok(file.sync_data()?)
}
