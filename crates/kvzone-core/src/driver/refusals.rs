//! Which operations a load asks for, and what of it cannot be.

use crate::error::{Error, Result};
use crate::job::{Load, Popularity, Until};
use crate::workload::{MIXED, Mix, OperationKind, Workload};

pub(super) const MOST_THREADS: u32 = 1_024;
const MOST_IN_FLIGHT: u32 = 1_024;
const MOST_WEIGHT: u64 = 10_000;
const MOST_BATCH: u32 = 1_000_000;
const MOST_BATCH_BYTES: u64 = 1 << 30;
const MOST_SCANNED: u64 = 1_000_000;

/// The workload's mix, or that of the load.
pub fn mix(load: &Load, workload: &Workload) -> Result<Vec<(OperationKind, u32)>> {
    let Some(mix) = &load.mix else {
        return Ok(workload.mix.clone());
    };
    check_mix(mix, workload)?;
    Ok(mix.clone())
}

fn check_mix(mix: &[(OperationKind, u32)], workload: &Workload) -> Result<()> {
    let refuse = |what: &str| Err(Error::Usage(format!("a mix of one's own: {what}")));
    let sum: u64 = mix.iter().map(|&(_, weight)| u64::from(weight)).sum();
    if workload.name != MIXED {
        return refuse(&format!(
            "{} has its own; give it to {MIXED}",
            workload.name
        ));
    }
    if !(1..=MOST_WEIGHT).contains(&sum) {
        return refuse(&format!("weights from 1 to {MOST_WEIGHT} together"));
    }
    for (at, (kind, weight)) in mix.iter().enumerate() {
        let twice = mix[..at].iter().any(|(other, _)| other == kind);
        if twice || *weight == 0 {
            return refuse(&format!("{} twice, or with no weight", kind.name()));
        }
        if *kind == OperationKind::ReadInOrder {
            return refuse("reading all in order is a workload by itself: read-sequential");
        }
    }
    Ok(())
}

fn check_latency_target(load: &Load) -> Result<()> {
    let Some(target) = load.latency_target else {
        return Ok(());
    };
    let refused = if load.rate.is_some() || load.batch > 1 {
        "it looks for the rate by itself, and issues no batches"
    } else if !(target.percentile > 0.0 && target.percentile < 100.0) {
        "a percentile lies above 0 and below 100"
    } else if !(target.least_rate > 0.0 && target.first_rate >= target.least_rate) {
        "the least rate is above 0, and the first not below it"
    } else if target.nanoseconds == 0 {
        "a latency is above 0"
    } else {
        return Ok(());
    };
    Err(Error::Usage(format!("a latency to keep: {refused}")))
}

fn check_queue(load: &Load, mix: &[(OperationKind, u32)]) -> Result<()> {
    let Some(queue) = load.queue else {
        return match load.workers {
            None => Ok(()),
            Some(_) => Err(Error::Usage("workers: of requests in flight".to_string())),
        };
    };
    let is_served = |kind: OperationKind| {
        use OperationKind::{Delete, Insert, Read, ReadMissing, Update};
        matches!(kind, Delete | Insert | Read | ReadMissing | Update)
    };
    let other = mix.iter().find(|(kind, _)| !is_served(*kind));
    let workers = load
        .workers
        .is_none_or(|count| (1..=MOST_THREADS).contains(&count));
    let refused = if !(1..=MOST_IN_FLIGHT).contains(&queue) || !workers {
        format!("from 1 to {MOST_IN_FLIGHT} a thread, by 1 to {MOST_THREADS} workers")
    } else if let Some((kind, _)) = other {
        format!(
            "of reads, updates, inserts and deletes, not of {}",
            kind.name()
        )
    } else if load.batch > 1 || load.latency_target.is_some() || load.beside.is_some() {
        "not with batches, a latency to keep, or threads beside".to_string()
    } else {
        return Ok(());
    };
    Err(Error::Usage(format!(
        "{queue} requests in flight: {refused}"
    )))
}

fn check_kind_threads(load: &Load, mix: &[(OperationKind, u32)]) -> Result<()> {
    let Some(kinds) = &load.kind_threads else {
        return Ok(());
    };
    let sum: u64 = kinds.iter().map(|&(_, threads)| u64::from(threads)).sum();
    let threads = |of: OperationKind| kinds.iter().filter(move |&&(kind, _)| kind == of);
    let once = |&(kind, _): &(OperationKind, u32)| threads(kind).count() == 1;
    let refused = if sum != u64::from(load.threads) || kinds.iter().any(|of| of.1 == 0) {
        "at least one each".to_string()
    } else if mix.len() != kinds.len() || !mix.iter().all(once) {
        let names: Vec<&str> = mix.iter().map(|(kind, _)| kind.name()).collect();
        format!("each kind of the mix once: {}", names.join(", "))
    } else if load.lifetime.is_some() || load.latency_target.is_some() || load.batch > 1 {
        "not with lifetimes, a latency to keep, or batches".to_string()
    } else {
        return Ok(());
    };
    Err(Error::Usage(format!("threads for each kind: {refused}")))
}

fn check_lifetime(load: &Load, mix: &[(OperationKind, u32)]) -> Result<()> {
    let Some(lifetime) = load.lifetime else {
        return Ok(());
    };
    if !(mix.has(OperationKind::Insert) && mix.has(OperationKind::Delete)) {
        return Err(Error::Usage(
            "a lifetime of keys: the workload must insert and delete".to_string(),
        ));
    }
    lifetime.check()?;
    let own = load.keys / u64::from(load.threads);
    if lifetime.largest() > own {
        return Err(Error::Usage(format!(
            "a lifetime of up to {} inserts: a thread has {own} keys, and no more are there at once",
            lifetime.largest()
        )));
    }
    Ok(())
}

pub(super) fn check(load: &Load, workload: &Workload, mix: &[(OperationKind, u32)]) -> Result<()> {
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
    load.key_bytes.check()?;
    load.value_bytes.check()?;
    check_lifetime(load, mix)?;
    check_batches(load, workload, mix)?;
    check_beside(load, workload, mix)?;
    if let Some(sizes) = load.scan_entries {
        sizes.check()?;
        if !mix.has(OperationKind::Scan) {
            return refuse(format!("a scan length: {} does not scan", workload.name));
        }
        if sizes.smallest() == 0 || sizes.largest() > MOST_SCANNED {
            return refuse(format!("scan length: from 1 to {MOST_SCANNED} entries"));
        }
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
    check_latency_target(load)?;
    check_kind_threads(load, mix)?;
    check_queue(load, mix)?;
    if let Some(seconds) = load.give_up
        && !(load.rate.is_some() && seconds.is_finite() && seconds > 0.0)
    {
        return refuse(format!(
            "to give up {seconds} s behind: of a rate, and above 0"
        ));
    }
    if load.poisson && load.rate.is_none() {
        return refuse("arrivals by Poisson: of a rate (--rate)".to_string());
    }
    match load.popularity {
        Some(Popularity::Zipfian(exponent)) if !(exponent > 0.0 && exponent <= 10.0) => {
            refuse(format!("zipfian exponent {exponent}: above 0, at most 10"))
        }
        Some(Popularity::HotSet { keys, choices })
            if !(keys > 0.0 && keys <= 1.0 && (0.0..=1.0).contains(&choices)) =>
        {
            refuse(format!(
                "a hot set of {keys} of the keys with {choices} of the choices: shares from 0 to 1"
            ))
        }
        Some(Popularity::Groups { exponent, groups })
            if !(0.0..=10.0).contains(&exponent) || groups == 0 =>
        {
            refuse(format!(
                "{groups} groups with exponent {exponent}: at least one group, and from 0 to 10"
            ))
        }
        _ => Ok(()),
    }
}

fn check_batches(load: &Load, workload: &Workload, mix: &[(OperationKind, u32)]) -> Result<()> {
    let refuse = |what: String| Err(Error::Usage(what));
    let least = load.batch_least.unwrap_or(load.batch);
    if least == 0 || least > load.batch || load.batch > MOST_BATCH {
        return refuse(format!(
            "batch {least} to {}: from 1 to {MOST_BATCH}, the smaller first",
            load.batch
        ));
    }
    // Of a mix with a share of updates to choose, none of them is a share too.
    let writes = mix.is_empty() || workload.mix.writes() || mix.writes();
    let (keys, values) = (load.key_bytes.largest(), load.value_bytes.largest());
    let bytes = u64::from(load.batch).saturating_mul(keys.saturating_add(values));
    let refused = if load.batch == 1 {
        return Ok(());
    } else if !writes && load.beside.is_none() {
        "reads, and a batch is of writes"
    } else if mix.has(OperationKind::ReadModifyWrite) {
        "writes what it has just read, each by itself"
    } else if mix.has(OperationKind::Insert) {
        "reads what it has just inserted"
    } else if mix.reads() && writes && load.rate.is_some() {
        "reads as well: at a rate no moment is due for what is gathered"
    } else if bytes > MOST_BATCH_BYTES {
        "has entries of which so many make more than 1 GiB"
    } else {
        return Ok(());
    };
    let (batch, name) = (load.batch, &workload.name);
    refuse(format!("batches of {batch}: {name} {refused}"))
}

fn check_beside(load: &Load, workload: &Workload, mix: &[(OperationKind, u32)]) -> Result<()> {
    let Some(beside) = load.beside else {
        return Ok(());
    };
    let threads = beside.threads;
    let whose = match beside.kind {
        OperationKind::Update => "writers",
        OperationKind::Read => "readers",
        kind => {
            let words = format!("{} beside others: only update and read", kind.name());
            return Err(Error::Usage(words));
        }
    };
    let refused = if mix.is_empty() {
        format!("{} is a load alone", workload.name)
    } else if beside.kind.writes() && mix.writes() {
        format!("{} writes by itself", workload.name)
    } else if threads == 0 || threads > MOST_THREADS || u64::from(threads) > load.keys {
        format!("from 1 to {MOST_THREADS}, and no more than keys")
    } else if beside
        .rate
        .is_some_and(|rate| !(rate.is_finite() && rate > 0.0))
    {
        "their rate is in operations a second, above 0".to_string()
    } else {
        return Ok(());
    };
    Err(Error::Usage(format!("{threads} {whose}: {refused}")))
}
