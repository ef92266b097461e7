//! Every store that is found runs every workload that it can, and all of them
//! return the same from the same seed: the hashes of their reads agree, and
//! each read is what was written.

use kvzone_core::adapter::{Adapter, Availability};
use kvzone_core::calibration::Memory;
use kvzone_core::driver::run_job;
use kvzone_core::error::Error;
use kvzone_core::job::{Job, Load, SizeChoice, Until};
use kvzone_core::workload::{self, Mix};

use super::all;
use super::conformance::request_for;

/// Sizes of keys and values, and threads: workloads take them in turn, so that
/// opening stores again and again does not take minutes.
const FORMS: [(SizeChoice, SizeChoice, u32); 5] = [
    (SizeChoice::Fixed(4), SizeChoice::Fixed(4), 1),
    (SizeChoice::Fixed(16), SizeChoice::Uniform(10, 3_000), 1),
    (SizeChoice::Fixed(8), SizeChoice::Fixed(100), 2),
    (SizeChoice::Uniform(9, 60), SizeChoice::Fixed(100), 1),
    (SizeChoice::Uniform(20, 30), SizeChoice::Fixed(500), 2),
];

/// The hash of what was read, if there is one; none where the store cannot do it.
fn outcome(adapter: &dyn Adapter, load: &Load) -> Option<Option<String>> {
    let folder = tempfile::tempdir().unwrap();
    let job = Job {
        durability: request_for(adapter, folder.path()).durability,
        budget_bytes: 8 << 20,
        ..Job::new(adapter.name(), folder.path(), load.clone())
    };
    let what = format!("{} {load:?}", adapter.name());
    let phases = match run_job(adapter, &job, &()) {
        Ok(phases) => phases,
        Err(Error::Unsupported { .. } | Error::Usage(_)) => return None,
        Err(error) => panic!("{what}: {error}"),
    };
    for phase in &phases {
        match &phase.failure {
            None => {}
            Some(Error::Unsupported { .. }) => return None,
            Some(error) => panic!("{what}: {:?}: {error}", phase.phase),
        }
    }
    Some(phases.into_iter().find_map(|phase| phase.result_hash))
}

#[test]
fn all_stores_that_are_found_return_the_same() {
    for adapter in all().into_iter().filter(|adapter| adapter.keeps_data()) {
        if let Availability::Missing { what, .. } = adapter.probe() {
            eprintln!("SKIPPED: {} is missing: {what}", adapter.name());
            continue;
        }
        let mut agreed = 0;
        // Those with sizes of their own are mixes of the same operations.
        let general =
            workload::all().filter(|workload| workload.value.is_none() && workload.scan.is_none());
        for (turn, workload) in general.enumerate() {
            let (key_bytes, value_bytes, threads) = FORMS[turn % FORMS.len()];
            let load = Load {
                workload: workload.name.to_string(),
                seed: 11,
                keys: 2_000,
                key_bytes,
                value_bytes,
                until: Until::Operations(3_000),
                threads,
                batch: if workload.mix.reads() { 1 } else { 7 },
                rate: None,
                popularity: None,
                verify_every: 1,
                ..Load::default()
            };
            let Some(found) = outcome(&*adapter, &load) else {
                eprintln!("n/a: {} {}", adapter.name(), workload.name);
                continue;
            };
            let expected = outcome(&Memory, &load).flatten();
            assert_eq!(found, expected, "{} {load:?}", adapter.name());
            agreed += 1;
        }
        assert!(agreed > 0, "{} runs nothing", adapter.name());
        requests_in_flight_return_the_same(&*adapter);
        eprintln!("{}: {agreed} loads agree", adapter.name());
    }
}

/// With many requests in flight each key's are served in turn: what is read is what
/// calls that are waited for read.
fn requests_in_flight_return_the_same(adapter: &dyn Adapter) {
    for (name, threads) in [
        ("fill-random", 2),
        ("ycsb-a", 1),
        ("churn-read", 2),
        ("ycsb-d", 1),
    ] {
        let one_by_one = Load {
            workload: name.to_string(),
            seed: 12,
            keys: 500,
            until: Until::Operations(1_000),
            threads,
            verify_every: 1,
            ..Load::default()
        };
        let expected = outcome(&Memory, &one_by_one);
        for workers in [None, Some(3)] {
            let in_flight = Load {
                queue: Some(32),
                workers,
                ..one_by_one.clone()
            };
            let found = outcome(adapter, &in_flight);
            assert_eq!(found, expected, "{} {name}", adapter.name());
        }
    }
}
