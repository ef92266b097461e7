//! `leveldb.stats` and the other properties that LevelDB has by name.

use cambium::{KeyRange, Result, StatisticValue, Store};

/// The value of a property, or `None` for a name that LevelDB does not know.
///
/// | property | answer |
/// |---|---|
/// | `leveldb.stats` | the engine's statistics, one a line |
/// | `leveldb.sstables` | the store's structure, as `cambium inspect` prints it |
/// | `leveldb.approximate-memory-usage` | bytes of caches and buffers, where the engine counts them |
/// | `leveldb.num-files-at-levelN`, N from 0 to 6 | tables of an LSM-tree, all of them at level 0; 0 where the engine has none |
///
/// # Errors
/// What the store answers.
pub fn property(store: &Store, name: &str) -> Result<Option<String>> {
    let Some(name) = name.strip_prefix("leveldb.") else {
        return Ok(None);
    };
    if let Some(level) = name.strip_prefix("num-files-at-level") {
        let known = matches!(level.as_bytes(), [b'0'..=b'6']);
        let count = match known {
            true => files_at(store, level)?,
            false => return Ok(None),
        };
        return Ok(Some(count.to_string()));
    }
    match name {
        "stats" => statistics(store).map(Some),
        "sstables" => {
            let mut text = Vec::new();
            store.dump(&mut text)?;
            Ok(Some(String::from_utf8_lossy(&text).into_owned()))
        }
        "approximate-memory-usage" => Ok(Some(memory(store)?.to_string())),
        _ => Ok(None),
    }
}

/// All statistics, one a line.
///
/// # Errors
/// What the store answers.
pub fn statistics(store: &Store) -> Result<String> {
    let mut text = format!("engine {}\n", store.capabilities().engine);
    for statistic in &store.stats()?.entries {
        let value = shown(&statistic.value);
        text += &format!("{} {value} ({})\n", statistic.name, statistic.meaning);
    }
    let bytes = store.approximate_size(&KeyRange::all())?;
    text += &format!("approximate_size {bytes} (bytes of all entries)\n");
    Ok(text)
}

/// A statistic's value as text without a unit.
pub fn shown(value: &StatisticValue) -> String {
    match value {
        StatisticValue::Count(count) => count.to_string(),
        StatisticValue::Bytes(bytes) => bytes.to_string(),
        StatisticValue::Ratio(ratio) => format!("{ratio:.3}"),
        StatisticValue::Text(text) => text.clone(),
    }
}

/// The statistics of `wisckey` do not tell levels apart: all tables count at 0.
fn files_at(store: &Store, level: &str) -> Result<u64> {
    match level {
        "0" => Ok(store.stats()?.number("tree_tables").unwrap_or(0)),
        _ => Ok(0),
    }
}

fn memory(store: &Store) -> Result<u64> {
    let statistics = store.stats()?;
    let of_memory = ["write_buffer_bytes", "cache_bytes", "index_memory_bytes"];
    let values = of_memory.iter().filter_map(|name| statistics.number(name));
    Ok(values.sum())
}
