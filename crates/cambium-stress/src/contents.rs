//! Reads everything that a store holds, in each way that its engine has, and compares
//! the ways with each other.

use std::collections::HashMap;

use cambium::{Direction, Entries, Entry, Store};

use crate::content::{KeyId, describe};
use crate::oracle::Observed;
use crate::plan::Plan;
use crate::session::Failed;

/// Everything in the store: lookups, passes in both directions, and the number of entries.
pub fn read_all(plan: &Plan, stores: &[Store]) -> Result<Observed, Failed> {
    let mut observed = HashMap::new();
    let shape = &plan.shape;
    let keys: Vec<KeyId> = shape.all().collect();
    for (namespace, store) in stores.iter().enumerate() {
        let here: Vec<KeyId> = keys
            .iter()
            .copied()
            .filter(|&key| shape.namespace(key) == namespace)
            .collect();
        for some in here.chunks(1000) {
            let bytes: Vec<Vec<u8>> = some.iter().map(|&key| shape.key(key)).collect();
            let asked: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
            let together = store.multi_get(&asked).map_err(Failed::of("multi_get"))?;
            for ((&key, bytes), value) in some.iter().zip(&bytes).zip(together) {
                let alone = store.get(bytes).map_err(Failed::of("get"))?;
                if alone != value {
                    return wrong(format!(
                        "key {key:?}: get answers {}, multi_get {}",
                        describe(alone.as_deref()),
                        describe(value.as_deref())
                    ));
                }
                if let Some(value) = value {
                    observed.insert(key, value.to_vec());
                }
            }
        }
        compare(plan, store, namespace, &observed)?;
    }
    Ok(observed)
}

fn compare(
    plan: &Plan,
    store: &Store,
    namespace: usize,
    observed: &Observed,
) -> Result<(), Failed> {
    let count = observed
        .keys()
        .filter(|&&key| plan.shape.namespace(key) == namespace)
        .count();
    let pass = |name, entries: cambium::Result<Entries>, direction: Direction| {
        let mut entries = entries.map_err(Failed::of(name))?;
        let entries = std::iter::from_fn(|| direction.advance(&mut entries));
        compare_pass(plan, name, entries, count, observed)
    };
    pass("iterate", store.iterate(), Direction::Forward)?;
    if store.capabilities().ordered {
        pass("scan", store.scan(..), Direction::Forward)?;
        pass("reverse scan", store.scan(..), Direction::Reverse)?;
    }
    // Engines that count entries exactly say how many there are.
    if plan.engine == "zdb" {
        let stats = store.stats().map_err(Failed::of("stats"))?;
        if let Some(number) = stats
            .number("entries")
            .filter(|&number| number != count as u64)
        {
            return wrong(format!(
                "stats says {number} entries, and there are {count}"
            ));
        }
    }
    Ok(())
}

fn compare_pass(
    plan: &Plan,
    name: &str,
    entries: impl Iterator<Item = cambium::Result<Entry>>,
    count: usize,
    observed: &Observed,
) -> Result<(), Failed> {
    let is_ordered = name != "iterate";
    let mut seen = 0;
    let mut last: Option<Vec<u8>> = None;
    for entry in entries {
        let entry = entry.map_err(Failed::of(name))?;
        let key = plan.shape.shown(name, &entry.key).map_err(Failed::wrong)?;
        let found = observed.get(&key).map(Vec::as_slice);
        if found != Some(&entry.value[..]) {
            return wrong(format!(
                "key {key:?}: {name} shows {}, get answers {}",
                describe(Some(&entry.value)),
                describe(found)
            ));
        }
        let in_order = match &last {
            Some(last) if name == "scan" => **last < *entry.key,
            Some(last) if is_ordered => **last > *entry.key,
            _ => true,
        };
        if !in_order {
            return wrong(format!("{name} shows key {key:?} out of order"));
        }
        last = Some(entry.key.to_vec());
        seen += 1;
    }
    if seen != count {
        return wrong(format!("{name} shows {seen} entries, lookups {count}"));
    }
    Ok(())
}

fn wrong<T>(what: String) -> Result<T, Failed> {
    Err(Failed::wrong(what))
}
