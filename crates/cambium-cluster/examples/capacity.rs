//! The cost of a cluster in etcd and on the network, by the controller's own code.
//!
//! ```text
//! cargo run --release -p cambium-cluster --example capacity
//! ```
//!
//! For each size it makes all chains, takes one node away and brings it back, as the controller
//! does, counts the transactions, and measures the time of the decisions. The rest is
//! arithmetic with the figures at the top.
#![allow(clippy::print_stdout)] // a program for people

use std::time::Instant;

use cambium_cluster::control::decide;
use cambium_cluster::topology::{
    Acknowledgement, Chain, MOST_PARTITIONS, Meta, Node, VERSION, View,
};

/// Seconds that a node counts as alive after it was heard of.
const LEASE: f64 = 3.0;
/// Turns of a node's agent a lease: each renews the lease and reads everything.
const TURNS: f64 = 10.0;
/// Transactions a second of an etcd with three members on SSDs, one after the other.
const TRANSACTIONS: f64 = 500.0;
/// Bytes that a partition holds, and that a node receives a second while it catches up.
const PARTITION_BYTES: f64 = 4e9;
const COPY_BYTES: f64 = 200e6;

fn view(nodes: usize, partitions: u16) -> View {
    let meta = Meta {
        version: VERSION,
        id: "capacity".into(),
        partitions,
        replicas: 3,
        nodes: nodes as u16,
        acknowledgement: Acknowledgement::Strong,
        lease_seconds: LEASE as u64,
        seed: 1,
    };
    let node = |number: usize| {
        let node = Node {
            incarnation: number as u64,
            address: "10.0.0.1:6379".into(),
            thrift: None,
            version: "0.2.0".into(),
            engine: "forest".into(),
            store: "0123456789abcdef".into(),
        };
        (format!("node{number:04}"), node)
    };
    View {
        revision: 1,
        meta: Some(meta),
        nodes: (0..nodes).map(node).collect(),
        chains: vec![Chain::unmade(); usize::from(partitions)],
        ..View::default()
    }
}

/// Changes until the controller rests; how many, and the seconds of its decisions.
fn settle(view: &mut View) -> (usize, f64) {
    let (mut count, mut seconds) = (0, 0.0);
    loop {
        let begun = Instant::now();
        let changes = decide(view);
        seconds += begun.elapsed().as_secs_f64();
        if changes.is_empty() {
            return (count, seconds);
        }
        count += changes.len();
        for (number, chain) in changes {
            view.chains[usize::from(number)] = chain;
        }
    }
}

fn main() {
    println!(
        "{:>6} {:>10} {:>10} {:>12} {:>10} {:>10} {:>12} {:>10}",
        "nodes",
        "partitions",
        "view KiB",
        "etcd MB/s",
        "deciding",
        "failover",
        "of a node's",
        "all back"
    );
    let sizes = [
        (3, 32),
        (10, MOST_PARTITIONS),
        (100, MOST_PARTITIONS),
        (100, 1_000),
        (1_000, 10_000),
        (1_000, 60_000),
    ];
    for (nodes, partitions) in sizes {
        let mut view = view(nodes, partitions);
        settle(&mut view);
        let bytes: usize = view
            .chains
            .iter()
            .map(|chain| serde_json::to_string(chain).map_or(0, |text| text.len() + 64))
            .sum();
        let gone = view.nodes.remove("node0001");
        let (lost, deciding) = settle(&mut view);
        if let Some(node) = gone {
            view.nodes.insert("node0001".into(), node);
        }
        // A member goes through waiting and syncing to serving.
        let back = lost * 3;
        let traffic = nodes as f64 * bytes as f64 * TURNS / LEASE / 1e6;
        let failover = LEASE + lost as f64 / TRANSACTIONS;
        let copying = lost as f64 * PARTITION_BYTES / COPY_BYTES + back as f64 / TRANSACTIONS;
        println!(
            "{nodes:>6} {partitions:>10} {:>10.0} {traffic:>12.1} {:>8.1}ms {failover:>9.1}s {lost:>12} {:>9.0}s",
            bytes as f64 / 1024.0,
            deciding * 1e3,
            copying,
        );
    }
}
