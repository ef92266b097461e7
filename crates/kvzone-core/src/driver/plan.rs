//! What a job comes to, worked out before a store is opened: everything that
//! cannot be is refused here.

use crate::adapter::{OpenRequest, store_folder};
use crate::error::{Error, Result};
use crate::job::{Job, Load, Popularity, Until};
use crate::keys::KeySpace;
use crate::values::Values;
use crate::versions::Versions;
use crate::workload::{OperationKind, Workload, find};

/// A load that is not what is measured goes in batches of up to so many
/// entries ...
const LOAD_BATCH: u64 = 1_000;
/// ... and about so many bytes.
const LOAD_BATCH_BYTES: u64 = 1 << 20;

const MOST_THREADS: u32 = 1_024;
const MOST_BATCH: u32 = 1_000_000;
const MOST_BATCH_BYTES: u64 = 1 << 30;

/// A job, worked out.
#[derive(Debug)]
pub struct Plan {
    /// The workload.
    pub workload: &'static Workload,
    /// Which keys it chooses.
    pub popularity: Popularity,
    /// All keys.
    pub keys: KeySpace,
    /// All values.
    pub values: Values,
    /// What the store should hold.
    pub versions: Versions,
    /// Changes a call while loading.
    pub load_batch: u32,
    /// Changes a call while running.
    pub run_batch: u32,
}

impl Plan {
    /// Works a load out, or says why it cannot be run.
    pub fn new(load: &Load) -> Result<Self> {
        let workload = find(&load.workload)?;
        check(load, workload)?;
        let inserts = workload.has(OperationKind::Insert);
        let inserted = match load.until {
            _ if !inserts => Some(0),
            // Each thread may insert at every operation, in its own numbers.
            Until::Operations(count) => Some(count.saturating_add(u64::from(load.threads))),
            Until::Seconds(_) => None,
        };
        let measured_load = workload.mix.is_empty();
        Ok(Plan {
            workload,
            popularity: load.popularity.unwrap_or(workload.popularity),
            keys: KeySpace::new(load, workload.fill, inserted)?,
            values: Values::new(load)?,
            versions: Versions::new(load.keys),
            load_batch: if measured_load {
                load.batch
            } else {
                load.batch.max(load_batch(load))
            },
            run_batch: load.batch,
        })
    }

    /// Bytes of keys and values of all loaded keys that should be there, and
    /// their number.
    pub fn live(&self) -> (u64, u64) {
        self.versions
            .live()
            .fold((0, 0), |(bytes, keys), (number, version)| {
                let value = self.values.value_bytes(number, version);
                let entry = self.keys.key_bytes(number) + value;
                (bytes + entry as u64, keys + 1)
            })
    }
}

fn load_batch(load: &Load) -> u32 {
    let entry = load.key_bytes.mean() + load.value_bytes.mean();
    let fitting = LOAD_BATCH_BYTES as f64 / entry.max(1.0);
    (fitting as u64).clamp(1, LOAD_BATCH) as u32
}

fn check(load: &Load, workload: &Workload) -> Result<()> {
    let refuse = |what: String| Err(Error::Usage(what));
    if load.threads == 0 || load.threads > MOST_THREADS {
        return refuse(format!(
            "threads {}: from 1 to {MOST_THREADS}",
            load.threads
        ));
    }
    if u64::from(load.threads) > load.keys {
        return refuse(format!(
            "{} threads and {} keys: each thread needs a key of its own to write",
            load.threads, load.keys
        ));
    }
    if load.batch == 0 || load.batch > MOST_BATCH {
        return refuse(format!("batch {}: from 1 to {MOST_BATCH}", load.batch));
    }
    if load.batch > 1 && !workload.only_writes() {
        return refuse(format!(
            "batches of {}: {} reads, and a batch is of writes alone",
            load.batch, workload.name
        ));
    }
    let entry = load
        .key_bytes
        .largest()
        .saturating_add(load.value_bytes.largest());
    if u64::from(load.batch).saturating_mul(entry) > MOST_BATCH_BYTES && load.batch > 1 {
        return refuse(format!(
            "batches of {}: entries of up to {entry} bytes make more than 1 GiB",
            load.batch
        ));
    }
    if let Some(rate) = load.rate
        && !(rate.is_finite() && rate > 0.0)
    {
        return refuse(format!("rate {rate}: operations a second, above 0"));
    }
    if let Until::Seconds(seconds) = load.until
        && !(seconds.is_finite() && seconds > 0.0)
    {
        return refuse(format!("{seconds} seconds: above 0"));
    }
    if let Some(Popularity::Zipfian(exponent)) = load.popularity
        && !(exponent > 0.0 && exponent <= 10.0)
    {
        return refuse(format!("zipfian exponent {exponent}: above 0, at most 10"));
    }
    Ok(())
}

/// What the adapter of a job is asked to open.
pub fn open_request(job: &Job) -> OpenRequest {
    let load = &job.load;
    let inserts = find(&load.workload).is_ok_and(|workload| workload.has(OperationKind::Insert));
    let inserted = match load.until {
        Until::Operations(count) if inserts => count / 20,
        _ => 0,
    };
    OpenRequest {
        folder: store_folder(&job.folder),
        durability: job.durability,
        cache_bytes: job.cache_bytes,
        profile: job.profile,
        overrides: job.overrides.clone(),
        expected_keys: load.keys.saturating_add(inserted),
        key_bytes: u32::try_from(load.key_bytes.largest()).unwrap_or(u32::MAX),
        expected_value_bytes: load.value_bytes.mean().ceil() as u64,
        threads: load.threads,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::job::tests::load;

    #[test]
    fn what_cannot_be_is_refused_before_a_store_is_opened() {
        let base = load("overwrite");
        let cases: Vec<(Load, &str)> = vec![
            (load("overwriet"), "overwrite"),
            (
                Load {
                    threads: 0,
                    ..base.clone()
                },
                "threads 0",
            ),
            (
                Load {
                    threads: 1_001,
                    ..base.clone()
                },
                "a key of its own",
            ),
            (
                Load {
                    batch: 0,
                    ..base.clone()
                },
                "batch 0",
            ),
            (
                Load {
                    batch: 1_000_000,
                    value_bytes: crate::job::SizeChoice::Fixed(10_000),
                    ..base.clone()
                },
                "more than 1 GiB",
            ),
            (
                Load {
                    batch: 2,
                    ..load("ycsb-a")
                },
                "ycsb-a reads",
            ),
            (
                Load {
                    rate: Some(0.0),
                    ..base.clone()
                },
                "rate 0",
            ),
            (
                Load {
                    rate: Some(f64::NAN),
                    ..base.clone()
                },
                "rate NaN",
            ),
            (
                Load {
                    until: Until::Seconds(-1.0),
                    ..base.clone()
                },
                "-1 seconds",
            ),
            (
                Load {
                    popularity: Some(Popularity::Zipfian(0.0)),
                    ..base.clone()
                },
                "exponent 0",
            ),
        ];
        for (load, words) in cases {
            let error = Plan::new(&load).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        Plan::new(&base).unwrap();
    }

    #[test]
    fn a_load_that_is_not_measured_goes_in_batches() {
        assert_eq!(Plan::new(&load("read-random")).unwrap().load_batch, 1_000);
        assert_eq!(Plan::new(&load("fill-random")).unwrap().load_batch, 1);
        let large = Load {
            value_bytes: crate::job::SizeChoice::Fixed(100_000),
            ..load("read-random")
        };
        assert_eq!(Plan::new(&large).unwrap().load_batch, 10);
    }
}
