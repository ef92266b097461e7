//! `/metrics`: counters in OpenMetrics' text format.
//!
//! Names begin with `cambium_`; those of the engine with `cambium_store_`, and then the name
//! that `cambium stats` shows.

use std::fmt;
use std::sync::Arc;

use cambium::Summary;
use cambium_cluster::topology::Progress;
use cambium_io::sync::atomic::{AtomicU64, Ordering};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::cluster::status::{Lag, OwnChain};
use crate::messages::Report;
use crate::metrics::{BOUNDS_MICROS, Latency, Metrics};

/// Writes all counters.
///
/// # Errors
/// The store cannot say its statistics, as it is closed.
pub fn write(report: Report, metrics: Arc<Metrics>) -> Result<String, String> {
    let statistics = report.store.stats().map_err(|error| error.to_string())?;
    let summary = statistics.summary();
    let entries = statistics.entries.iter();
    let numbers = statistics.metrics();
    let engine = entries
        .filter_map(|entry| Some((entry.name, entry.meaning, *numbers.get(entry.name)?)))
        .collect();
    let scrape = Scrape {
        report,
        metrics,
        summary,
        engine,
    };
    let mut registry = Registry::with_prefix("cambium");
    registry.register_collector(Box::new(scrape));
    let mut text = String::new();
    encode(&mut text, &registry).map_err(|error| error.to_string())?;
    Ok(text)
}

/// All counters at one moment.
#[derive(Debug)]
struct Scrape {
    report: Report,
    metrics: Arc<Metrics>,
    /// Statistics that every engine has, under one name.
    summary: Summary,
    /// Name, meaning and value of the engine's statistics.
    engine: Vec<(&'static str, &'static str, f64)>,
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.encode_commands(&mut encoder)?;
        self.encode_server(&mut encoder)?;
        self.encode_cluster(&mut encoder)?;
        self.encode_keys(&mut encoder)?;
        self.encode_summary(&mut encoder)?;
        for (name, meaning, value) in &self.engine {
            gauge(&mut encoder, &format!("store_{name}"), meaning, *value)?;
        }
        Ok(())
    }
}

impl Scrape {
    fn encode_commands(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let called = self.metrics.called();
        let help = "Time from the beginning of a command's round until its answer left";
        let kind = MetricType::Histogram;
        let mut family = encoder.encode_descriptor("command_seconds", help, None, kind)?;
        for (name, counters) in &called {
            let labels = [("command", *name)];
            histogram(family.encode_family(&labels)?, &counters.latency)?;
        }
        let help = "Calls of a command that answered an error";
        let kind = MetricType::Counter;
        let mut family = encoder.encode_descriptor("command_errors", help, None, kind)?;
        for (name, counters) in &called {
            let errors = ConstCounter::new(counters.errors.load(Ordering::Relaxed));
            errors.encode(family.encode_family(&[("command", *name)])?)?;
        }
        Ok(())
    }

    fn encode_server(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (report, metrics) = (&self.report, &self.metrics);
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = [
            (
                "rejected_commands",
                "Calls refused before they ran: unknown, wrong number of arguments, no password",
                read(&metrics.rejected),
            ),
            (
                "connections",
                "Connections that clients made",
                report.connections,
            ),
            (
                "refused_connections",
                "Connections refused, as there were maxclients of them",
                report.refused,
            ),
            (
                "received_bytes",
                "Bytes that clients sent",
                read(&metrics.bytes_read),
            ),
            (
                "sent_bytes",
                "Bytes of answers",
                read(&metrics.bytes_written),
            ),
            ("key_hits", "Lookups that found their key", report.hits),
            ("key_misses", "Lookups that found no key", report.misses),
            ("expired_keys", "Keys that have expired", report.expired),
        ];
        for (name, help, value) in counters {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(value).encode(metric)?;
        }
        let is_failing = f64::from(u8::from(metrics.is_failing.load(Ordering::Relaxed)));
        let gauges = [
            (
                "connected_clients",
                "Clients that are connected",
                report.clients as f64,
            ),
            (
                "uptime_seconds",
                "Seconds since the start",
                report.uptime_seconds as f64,
            ),
            (
                "write_failing",
                "1 if the last write or sync failed",
                is_failing,
            ),
        ];
        for (name, help, value) in gauges {
            gauge(encoder, name, help, value)?;
        }
        let histograms = [
            (
                "commit_seconds",
                "Time that the store took for one batch of a round",
                &metrics.commits,
            ),
            (
                "sync_seconds",
                "Time that one sync for the writes of clients took",
                &metrics.syncs,
            ),
            (
                "fetch_seconds",
                "Time of the device for a value that was not in memory",
                &metrics.fetches,
            ),
        ];
        for (name, help, latency) in histograms {
            let kind = MetricType::Histogram;
            histogram(encoder.encode_descriptor(name, help, None, kind)?, latency)?;
        }
        Ok(())
    }

    fn encode_summary(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Summary {
            space,
            memory,
            writes,
            reads,
            upkeep,
            ..
        } = &self.summary;
        let count = |value: Option<u64>| value.map(|value| value as f64);
        let gauges = [
            (
                "device_bytes",
                "Bytes of the store on the device",
                count(space.device_bytes),
            ),
            (
                "space_amplification",
                "Bytes on the device per live byte",
                space.amplification,
            ),
            (
                "index_bytes",
                "Memory of the index",
                count(memory.index_bytes),
            ),
            (
                "write_buffer_bytes",
                "Memory of writes that are not in the index on the device",
                count(memory.write_buffer_bytes),
            ),
            (
                "cache_bytes",
                "Memory of cached blocks or entries",
                count(memory.cache_bytes),
            ),
            (
                "cache_hit_ratio",
                "Share of reads that the cache answered",
                memory.cache_hit_share,
            ),
            (
                "user_bytes",
                "Bytes of keys and values written to the store",
                count(writes.user_bytes),
            ),
            (
                "write_amplification",
                "Bytes written to the device per byte of keys and values",
                writes.amplification,
            ),
            ("syncs", "Syncs of the device", count(writes.syncs)),
            (
                "stalls",
                "Writes that waited for a flush",
                count(writes.stalls),
            ),
            (
                "device_reads",
                "Reads of files or the device",
                count(reads.device_reads),
            ),
            (
                "flushes",
                "Flushes of writes into the index",
                count(upkeep.flushes),
            ),
            (
                "compactions",
                "Compactions, or segments collected",
                count(upkeep.compactions),
            ),
            (
                "background_failures",
                "Flushes and compactions that failed",
                count(upkeep.failures),
            ),
        ];
        for (name, help, value) in gauges {
            if let Some(value) = value {
                gauge(encoder, name, help, value)?;
            }
        }
        Ok(())
    }

    /// Chains, on a node of a cluster.
    fn encode_cluster(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(status) = &self.report.cluster else {
            return Ok(());
        };
        let gauges = [
            (
                "cluster_fresh",
                "1 if the node has a fresh view of the cluster, and may serve",
                u64::from(status.is_fresh),
            ),
            (
                "cluster_chains",
                "Chains of the cluster",
                status.chains.0 as u64,
            ),
            (
                "cluster_chains_served",
                "Chains with a head",
                status.chains.1 as u64,
            ),
            (
                "cluster_chains_whole",
                "Chains that have as many copies as they should, all of which serve",
                status.chains.2 as u64,
            ),
            (
                "cluster_epoch",
                "The highest epoch of any chain",
                status.epoch,
            ),
            (
                "replication_lag_batches",
                "The most batches of one chain that the successor has not acknowledged",
                status.most_batches(),
            ),
            (
                "replication_lag_bytes",
                "Bytes of all batches that successors have not acknowledged and memory has",
                status.lags().map(|lag| lag.bytes).sum(),
            ),
        ];
        for (name, help, value) in gauges {
            gauge(encoder, name, help, value as f64)?;
        }
        gauge(
            encoder,
            "replication_lag_seconds",
            "The longest time that a batch has waited for a successor's acknowledgement",
            status.longest().as_secs_f64(),
        )?;
        let counters = [
            (
                "reconfigurations",
                "Changes of this node's chains that it has learned of",
                status.reconfigurations,
            ),
            (
                "discarded_batches",
                "Batches of former heads that their chains went on without",
                status.discarded,
            ),
        ];
        for (name, help, value) in counters {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(value).encode(metric)?;
        }
        let help = "Chains that the node is a member of, by what it is there";
        let mut family =
            encoder.encode_descriptor("chain_members", help, None, MetricType::Gauge)?;
        let roles = [
            ("head", status.heads),
            ("behind", status.behind),
            ("catching_up", status.catching_up),
        ];
        for (role, count) in roles {
            ConstGauge::new(count as f64).encode(family.encode_family(&[("role", role)])?)?;
        }
        encode_chains(encoder, &status.own)
    }

    fn encode_keys(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let databases = || self.report.databases.iter().enumerate();
        let mut family =
            encoder.encode_descriptor("keys", "Keys of a database", None, MetricType::Gauge)?;
        for (number, count) in databases() {
            let labels = [("database", number.to_string())];
            ConstGauge::new(count.keys as f64).encode(family.encode_family(&labels)?)?;
        }
        let help = "Keys of a database that expire";
        let mut family =
            encoder.encode_descriptor("expiring_keys", help, None, MetricType::Gauge)?;
        for (number, count) in databases() {
            let labels = [("database", number.to_string())];
            ConstGauge::new(count.expiring as f64).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// The chains that a node is a member of, one by one.
fn encode_chains(encoder: &mut DescriptorEncoder<'_>, chains: &[OwnChain]) -> fmt::Result {
    let help = "Epoch of a chain, with what the node is there: head, or the state of its member";
    let mut family = encoder.encode_descriptor("chain_epoch", help, None, MetricType::Gauge)?;
    for chain in chains {
        let labels = [
            ("partition", chain.partition.to_string()),
            ("role", chain.role.clone()),
        ];
        ConstGauge::new(chain.epoch as f64).encode(family.encode_family(&labels)?)?;
    }
    type Figure = fn(&Lag) -> Option<f64>;
    let figures: [(&str, &str, Figure); 4] = [
        (
            "chain_lag_batches",
            "Batches that the successor has not acknowledged",
            |lag| Some(lag.batches as f64),
        ),
        (
            "chain_lag_bytes",
            "Their bytes, as far as memory has them",
            |lag| Some(lag.bytes as f64),
        ),
        (
            "chain_lag_seconds",
            "How long ago the first of them was made",
            |lag| Some(lag.age.as_secs_f64()),
        ),
        (
            "chain_catch_up_ratio",
            "Share of what a successor needs to be brought up that it has",
            |lag| lag.progress.as_ref().map(Progress::ratio),
        ),
    ];
    for (name, help, figure) in figures {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for chain in chains {
            let lag = chain.successor.as_ref();
            if let Some((lag, value)) = lag.and_then(|lag| Some((lag, figure(lag)?))) {
                let labels = [
                    ("partition", chain.partition.to_string()),
                    ("to", lag.node.clone()),
                ];
                ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
            }
        }
    }
    Ok(())
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64) -> fmt::Result {
    let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(value).encode(metric)
}

fn histogram(mut encoder: MetricEncoder<'_>, latency: &Latency) -> fmt::Result {
    let counts = latency.counts();
    let bounds = BOUNDS_MICROS.iter().map(|micros| *micros as f64 / 1e6);
    let buckets: Vec<(f64, u64)> = bounds.chain([f64::MAX]).zip(counts).collect();
    let count = counts.iter().sum();
    encoder.encode_histogram::<[(&str, &str); 0]>(latency.seconds(), count, &buckets, None)
}
