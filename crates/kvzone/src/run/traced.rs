//! A trace as a workload: looked through before anything runs.

use std::path::Path;

use kvzone_core::error::{Error, Result};
use kvzone_core::job::{Load, Replayed, SizeChoice, Until};
use kvzone_core::trace::{PREFIX, summary};

use super::RunArguments;
use super::parse::Threads;
use crate::place::{self, RunFolder};

/// `full`, `original`, or `2x`: None is as fast as it goes.
pub(crate) fn parse_speed(text: &str) -> Result<Speed, String> {
    let times = match text {
        "full" => return Ok(Speed(None)),
        "original" => 1.0,
        _ => text
            .strip_suffix('x')
            .and_then(|number| number.parse().ok())
            .filter(|times: &f64| times.is_finite() && *times > 0.0)
            .ok_or("expected full, original, or a multiple such as 2x or 0.5x")?,
    };
    Ok(Speed(Some(times)))
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Speed(pub(crate) Option<f64>);

/// The load of workload `trace:FILE`, and a folder with what it needs besides.
///
/// # Errors
/// Damage in the trace, with file and offset; options that a trace decides itself.
pub(super) fn load(
    name: &str,
    arguments: &RunArguments,
    threads: &Threads,
) -> Result<(Load, Option<RunFolder>)> {
    let path = Path::new(name.strip_prefix(PREFIX).unwrap_or(name));
    refuse_what_it_decides(name, arguments)?;
    let (until, most) = match (arguments.seconds, arguments.operations) {
        (Some(seconds), _) => (Until::Seconds(seconds), u64::MAX),
        (None, Some(count)) => (Until::Operations(count), count),
        (None, None) => (Until::Operations(u64::MAX), u64::MAX),
    };
    let directory = place::prepare(&arguments.dir)?;
    let folder = RunFolder::create(&directory, "trace")?;
    let missing = folder.path().join("missing");
    let summary = summary::summarize(path, most, Some(&missing))?;
    let is_needed = summary.found_first.entries > 0;
    let size = |mean: f64| SizeChoice::Fixed(mean.round() as u64);
    let load = Load {
        workload: name.to_string(),
        seed: arguments.seed,
        keys: summary.at_start().entries,
        key_bytes: size(summary.mean_key_bytes()),
        value_bytes: size(summary.mean_value_bytes()),
        until: match until {
            Until::Operations(_) => Until::Operations(summary.operations),
            seconds => seconds,
        },
        threads: threads.sum(),
        kind_threads: threads.kinds(),
        batch: arguments.batch.1,
        rate: arguments.rate,
        verify_every: arguments.verify_every,
        compressible: arguments.compressible,
        trace: Some(Box::new(Replayed {
            // Workers may be started elsewhere.
            path: std::path::absolute(path).map_err(|error| Error::machine("find", path, error))?,
            missing: is_needed.then_some(missing),
            speed: arguments.speed.and_then(|speed| speed.0),
            summary,
        })),
        ..Load::default()
    };
    Ok((load, is_needed.then_some(folder)))
}

fn refuse_what_it_decides(name: &str, arguments: &RunArguments) -> Result<()> {
    let given = [
        ("mix", arguments.mix.is_some()),
        ("key-size", arguments.key_size.is_some()),
        ("key-pattern", arguments.key_pattern.is_some()),
        ("value-size", !arguments.value_size.is_empty()),
        ("dataset", arguments.dataset.is_some()),
        ("batch", arguments.batch.1 > 1),
        ("queue", arguments.queue.is_some()),
        ("lifetime", arguments.lifetime.is_some()),
        ("popularity", arguments.popularity.is_some()),
        ("update-percent", arguments.update_percent.is_some()),
        ("scan-length", arguments.scan_length.is_some()),
        ("writers", arguments.writers.is_some()),
        ("rate", arguments.rate.is_some()),
        ("keep-latency", arguments.keep_latency.is_some()),
        ("warm", arguments.warm),
    ];
    match given.into_iter().find(|&(_, is_given)| is_given) {
        None => Ok(()),
        Some((option, _)) => Err(Error::Usage(format!(
            "--{option} with {name}: a trace decides that itself"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_a_word_or_a_multiple() {
        assert_eq!(parse_speed("full"), Ok(Speed(None)));
        assert_eq!(parse_speed("original"), Ok(Speed(Some(1.0))));
        assert_eq!(parse_speed("2.5x"), Ok(Speed(Some(2.5))));
        for text in ["", "x", "2", "-1x", "0x", "nanx", "infx"] {
            assert!(parse_speed(text).is_err(), "{text}");
        }
    }
}
