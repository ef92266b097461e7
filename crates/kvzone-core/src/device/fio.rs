//! The same random reads by `fio`, the measure that people trust.
//!
//! Both read the same file, in turns, with the same engine, block size, depth,
//! mode and time; the ratio is that of the medians. The test file has no name
//! any more, so `fio` opens it through `/proc/PID/fd/N` of this process.

use std::process::Command;
use std::time::Duration;

use cambium_base::{Error, Result};
use cambium_io::{Environment, ReadBackend};
use serde_json::Value;

use super::random::{self, RandomPoint};
use super::report::FioComparison;
use super::test_file::{BLOCK_BYTES, TestFile};
use crate::statistics::median;

/// Fails, with the package to install, where there is no `fio`.
pub fn check_installed() -> Result<()> {
    match Command::new("fio").arg("--version").output() {
        Ok(output) if output.status.success() => Ok(()),
        _ => Err(not_installed()),
    }
}

fn not_installed() -> Error {
    let what =
        "not found; install the package fio (apt-get install fio), or leave --compare-fio out";
    let kind = std::io::ErrorKind::NotFound;
    Error::io("run", "fio", std::io::Error::new(kind, what))
}

/// Measures a point `repeats` times with each, in turns. `done` is told after
/// each measurement.
pub fn compare(
    environment: &Environment,
    test_file: &TestFile,
    point: RandomPoint,
    limit: Duration,
    repeats: usize,
    done: &mut dyn FnMut(),
) -> Result<FioComparison> {
    let middle = |rates: &[f64]| median(rates).unwrap_or(0.0);
    let engine = engine_name(point.backend);
    let arguments = arguments(test_file, point, limit)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..repeats {
        let (found, note) = random::measure(environment, test_file, point, limit)?;
        if let Some(note) = note {
            return Err(Error::InvalidArgument(format!(
                "nothing to compare with fio's {engine}: {note}"
            )));
        }
        ours.push(found.reads_per_second);
        done();
        test_file.drop_cache()?;
        theirs.push(run(&arguments)?);
        done();
    }
    Ok(FioComparison {
        backend: point.backend.to_string(),
        fio_engine: engine.to_string(),
        direct: point.direct,
        depth: point.depth,
        block_bytes: BLOCK_BYTES,
        ratio: middle(&ours) / middle(&theirs).max(1e-9),
        reads_per_second: ours,
        fio_reads_per_second: theirs,
        fio_command: format!("fio {}", arguments.join(" ")),
    })
}

fn engine_name(backend: ReadBackend) -> &'static str {
    match backend {
        ReadBackend::Sync => "psync",
        ReadBackend::Aio => "libaio",
        ReadBackend::IoUring => "io_uring",
    }
}

fn arguments(test_file: &TestFile, point: RandomPoint, limit: Duration) -> Result<Vec<String>> {
    let file = test_file.handle(point.direct)?;
    let descriptor = file.raw_descriptor().ok_or_else(|| {
        Error::InvalidArgument("fio can only read files of the operating system".to_string())
    })?;
    let filename = format!("/proc/{}/fd/{descriptor}", std::process::id());
    Ok(vec![
        "--name=kvzone".to_string(),
        format!("--filename={filename}"),
        "--readonly".to_string(),
        "--rw=randread".to_string(),
        // No map of visited blocks: it costs time, and ours keeps none.
        "--norandommap".to_string(),
        "--randrepeat=0".to_string(),
        format!("--bs={BLOCK_BYTES}"),
        format!("--size={}", test_file.bytes),
        format!("--ioengine={}", engine_name(point.backend)),
        format!("--iodepth={}", point.depth),
        format!("--direct={}", u8::from(point.direct)),
        "--time_based".to_string(),
        format!("--runtime={}ms", limit.as_millis().max(1)),
        "--output-format=json".to_string(),
    ])
}

fn failed(what: String) -> Error {
    Error::io("run", "fio", std::io::Error::other(what))
}

/// Reads per second of one run.
fn run(arguments: &[String]) -> Result<f64> {
    reads_per_second(&report_of(arguments)?)
        .ok_or_else(|| failed("its report has no read.iops".to_string()))
}

/// What one run prints.
fn report_of(arguments: &[String]) -> Result<String> {
    let output = Command::new("fio")
        .args(arguments)
        .output()
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => not_installed(),
            _ => Error::io("run", "fio", error),
        })?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!("{}: {}", output.status, text.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A figure of a report, above 0; warnings may stand before its JSON.
fn figure_of(report: &str, pointer: &str) -> Option<f64> {
    let json = report.get(report.find('{')?..)?;
    let report: Value = serde_json::from_str(json).ok()?;
    let rate = report.pointer(pointer)?.as_f64()?;
    (rate > 0.0).then_some(rate)
}

fn reads_per_second(report: &str) -> Option<f64> {
    figure_of(report, "/jobs/0/read/iops")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_found_behind_warnings_and_nothing_is_made_up() {
        let report = "fio: a warning\n{\"jobs\":[{\"read\":{\"iops\":1234.5}}]}\n";
        assert_eq!(reads_per_second(report), Some(1234.5));
        assert_eq!(reads_per_second("{\"jobs\":[]}"), None);
        assert_eq!(
            reads_per_second("{\"jobs\":[{\"read\":{\"iops\":0}}]}"),
            None
        );
        assert_eq!(reads_per_second("no report"), None);
    }
}
