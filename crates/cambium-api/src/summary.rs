//! What every engine's statistics have in common, as typed fields, and all of their
//! numbers as a map.
//!
//! Engines name their statistics by what they count, so one quantity has several names;
//! this module knows which of them mean the same.

use std::collections::BTreeMap;

use crate::report::{StatisticValue, Statistics};

/// Common statistics in groups. A field is `None` where the engine does not count it.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Summary {
    /// Entries of the store.
    pub contents: Contents,
    /// Its space on the device.
    pub space: Space,
    /// Its memory.
    pub memory: Memory,
    /// Writes since it was opened.
    pub writes: Writes,
    /// Reads since it was opened.
    pub reads: Reads,
    /// Background work since it was opened.
    pub upkeep: Upkeep,
}

/// Entries of a store.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Contents {
    /// Entries. `wisckey` does not count them.
    pub entries: Option<u64>,
    /// Namespaces, the default one included.
    pub namespaces: Option<u64>,
    /// States kept under a name.
    pub named_snapshots: Option<u64>,
}

/// A store's space on the device.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Space {
    /// Bytes on the device; on `alphard`, of the whole device or file.
    pub device_bytes: Option<u64>,
    /// Bytes on the device per byte that is live.
    pub amplification: Option<f64>,
}

/// A store's memory.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Memory {
    /// Bytes of the index.
    pub index_bytes: Option<u64>,
    /// Bytes of writes that are not in the index on the device yet.
    pub write_buffer_bytes: Option<u64>,
    /// Bytes of cached blocks or entries, those of other stores with the same cache
    /// included.
    pub cache_bytes: Option<u64>,
    /// Share of reads that the cache answered, 0 to 1.
    pub cache_hit_share: Option<f64>,
}

/// Writes.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Writes {
    /// Bytes of keys and values that callers wrote.
    pub user_bytes: Option<u64>,
    /// Bytes written to the device per byte that callers wrote.
    pub amplification: Option<f64>,
    /// Syncs of the device.
    pub syncs: Option<u64>,
    /// Writes that waited for a flush.
    pub stalls: Option<u64>,
}

/// Reads.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Reads {
    /// Reads of files or the device.
    pub device_reads: Option<u64>,
}

/// Background work.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Upkeep {
    /// Times that writes in memory became part of the index on the device.
    pub flushes: Option<u64>,
    /// Compactions, or segments collected.
    pub compactions: Option<u64>,
    /// Flushes and compactions that failed.
    pub failures: Option<u64>,
}

impl Statistics {
    /// A statistic's value, if it is there.
    pub fn get(&self, name: &str) -> Option<&StatisticValue> {
        let mut entries = self.entries.iter();
        let found = entries.find(|statistic| statistic.name == name)?;
        Some(&found.value)
    }

    /// Every number by its name: counts, bytes and ratios, complete, for a metrics system.
    pub fn metrics(&self) -> BTreeMap<&'static str, f64> {
        let number = |value: &StatisticValue| match value {
            StatisticValue::Count(number) | StatisticValue::Bytes(number) => Some(*number as f64),
            StatisticValue::Ratio(ratio) => Some(*ratio),
            StatisticValue::Text(_) => None,
        };
        let entries = self.entries.iter();
        entries
            .filter_map(|statistic| Some((statistic.name, number(&statistic.value)?)))
            .collect()
    }

    /// What all engines count, as typed fields.
    ///
    /// ```
    /// use cambium_api::Statistics;
    /// let mut statistics = Statistics::default();
    /// statistics.count("entries", 7, "keys with a value");
    /// assert_eq!(statistics.summary().contents.entries, Some(7));
    /// assert_eq!(statistics.summary().writes.syncs, None);
    /// assert_eq!(statistics.metrics()["entries"], 7.0);
    /// ```
    pub fn summary(&self) -> Summary {
        let first = |names: &[&str]| names.iter().find_map(|name| self.number(name));
        let sum = |names: &[&str]| {
            let known = names.iter().filter_map(|name| self.number(name));
            known.reduce(u64::saturating_add)
        };
        let ratio = |names: &[&str]| {
            names.iter().find_map(|name| match self.get(name) {
                Some(StatisticValue::Ratio(ratio)) => Some(*ratio),
                _ => None,
            })
        };
        Summary {
            contents: Contents {
                entries: first(&["entries"]),
                namespaces: first(&["namespaces"]),
                named_snapshots: first(&["named_snapshots"]),
            },
            space: Space {
                device_bytes: first(&["space_bytes", "size_bytes"])
                    .or_else(|| sum(&["value_log_bytes", "tree_bytes"])),
                amplification: ratio(&["space_amplification"]),
            },
            memory: Memory {
                index_bytes: first(&["index_memory_bytes"]),
                write_buffer_bytes: first(&["write_buffer_bytes"]),
                cache_bytes: first(&["cache_bytes"]),
                cache_hit_share: ratio(&[
                    "cache_hit_share",
                    "document_cache_hit_share",
                    "value_cache_hit_share",
                    "tree_cache_hit_ratio",
                ]),
            },
            writes: Writes {
                user_bytes: first(&["user_bytes_written"]),
                amplification: ratio(&["write_amplification"]),
                syncs: first(&["syncs"]),
                stalls: first(&["writer_stalls"]),
            },
            reads: Reads {
                device_reads: first(&["device_reads", "entry_reads", "value_reads"])
                    .or_else(|| sum(&["document_reads", "node_reads"])),
            },
            upkeep: Upkeep {
                flushes: first(&["flushes", "checkpoints"]),
                compactions: first(&["compactions", "collections"]),
                failures: sum(&["failed_flushes", "failed_compactions"]),
            },
        }
    }
}
