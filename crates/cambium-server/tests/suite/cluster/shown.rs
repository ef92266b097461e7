//! How chains are shown: counters, the page, alerts.

use std::path::Path;
use std::process::Command;

use cambium_cluster::control;
use cambium_cluster::topology::Acknowledgement;

use super::harness::{Cluster, eventually, name};
use crate::harness::folder;
use crate::http::{browsed, get, sample};

fn start(engine: &'static str) -> Cluster {
    let mut cluster = Cluster::make(engine, "written", Acknowledgement::Async, 1);
    cluster.extra = ["--http", "127.0.0.1:0"].map(str::to_string).to_vec();
    (0..3).for_each(|node| cluster.start_node(node));
    cluster.settle();
    cluster
}

fn http(cluster: &Cluster, node: usize) -> String {
    let address = &cluster.nodes[node].as_ref().unwrap().address;
    address.split_once(" http://").unwrap().1.to_string()
}

fn metrics(cluster: &Cluster, node: usize) -> String {
    get(&http(cluster, node), "/metrics").1
}

#[test]
fn counters_and_the_page_show_the_lag_of_each_chain() {
    let mut cluster = start("forest");
    let all = |cluster: &Cluster, name: &str| {
        let values = (0..3).map(|node| sample(&metrics(cluster, node), name).unwrap());
        values.sum::<f64>()
    };
    let heads = "cambium_chain_members{role=\"head\"}";
    eventually("all chains have heads", || all(&cluster, heads) == 4.0);
    eventually("all members know all chains", || {
        let text: String = (0..3).map(|node| metrics(&cluster, node)).collect();
        text.matches("cambium_chain_epoch{").count() == 12
    });
    let lags = [
        "cambium_replication_lag_batches",
        "cambium_replication_lag_bytes",
        "cambium_replication_lag_seconds",
    ];
    let mut client = cluster.client();
    client.call("SET oak Quercus");
    eventually("nothing lags", || {
        lags.iter().all(|lag| all(&cluster, lag) == 0.0)
    });
    // The members behind get nothing.
    cluster.ways.iter().for_each(|way| way.stop(0));
    for number in 0..40 {
        client.call(&format!("SET k{number} {}", "x".repeat(1_000)));
    }
    let text: String = (0..3).map(|node| metrics(&cluster, node)).collect();
    let sum = |name: &str| {
        let lines = text.lines().filter(|line| line.starts_with(name));
        lines
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum::<f64>()
    };
    assert!(
        (1.0..=40.0).contains(&sum("cambium_chain_lag_batches{")),
        "{text}"
    );
    assert!(sum("cambium_chain_lag_bytes{") >= 40_000.0, "{text}");
    assert!(sum("cambium_chain_lag_seconds{") > 0.0, "{text}");
    assert_eq!(text.matches("cambium_chain_epoch{").count(), 12, "{text}");
    assert_eq!(text.matches("role=\"head\"} ").count(), 3 + 4, "{text}");
    cluster.ways.iter().for_each(|way| way.mend());
    eventually("nothing lags", || {
        lags.iter().all(|lag| all(&cluster, lag) == 0.0)
    });
    cluster.settle();
    // One that is brought up has a part of all batches, until it serves.
    cluster.kill(2);
    eventually("the chains go on", || {
        client.try_call(&["SET", "oak", "Quercus"]).is_some()
    });
    let browser = folder();
    let first = http(&cluster, 0);
    let Some(page) = browsed(browser.path(), &first, "<td>head</td>", || ()) else {
        return;
    };
    assert_eq!(page.matches("<canvas").count(), 8, "{page}");
    assert_eq!(page.matches("<tr><td>").count(), 4, "{page}");
    assert!(page.contains("Replication lag, seconds"), "{page}");
    assert!(page.contains("<td>n1</td>"), "{page}");
}

/// On an engine without a change feed.
#[test]
fn a_copy_shows_how_far_it_is() {
    let mut cluster = start("alphard");
    let mut client = cluster.client();
    let value = "x".repeat(3_900);
    for number in 0..5_000 {
        client.call(&format!("SET {{oak}}{number} {value}"));
    }
    let slot = cambium_cluster::slots::slot(b"oak");
    let partition = cambium_cluster::slots::partition(slot, 4);
    // They forget the latest batches.
    for node in 0..3 {
        cluster.nodes[node].take().unwrap().terminate();
    }
    (0..3).for_each(|node| cluster.start_node(node));
    cluster.settle();
    let new = cluster.grow();
    cluster.ways[new].slow(20);
    let seen = cluster.seen();
    let chain = &seen.view.chains[usize::from(partition)];
    let tail = chain.serving().last().unwrap().node.clone();
    let moved = control::relocate(&seen.view, partition, &tail, &name(new)).unwrap();
    let change = |seen, moved| cluster.registry.change(seen, partition, moved, None);
    assert!(change(&seen, &moved).unwrap());
    let from = (0..3).find(|node| name(*node) == tail).unwrap();
    let ratio = format!("cambium_chain_catch_up_ratio{{partition=\"{partition}\",to=\"n{new}\"}}");
    eventually("the copy is seen half done", || {
        let seen = cluster.seen();
        let progress = seen.progress.get(&partition);
        let is_seen = progress.is_some_and(|progress| {
            let is_known = progress.to == name(new) && progress.of == 5_000;
            is_known && progress.is_copy && (500..4_500).contains(&progress.done)
        });
        let ratio = sample(&metrics(&cluster, from), &ratio);
        is_seen && ratio.is_some_and(|ratio| ratio > 0.0 && ratio < 1.0)
    });
    cluster.ways[new].mend();
    cluster.settle();
    eventually("nothing is brought up", || {
        cluster.seen().progress.is_empty()
    });
}

/// The alerts are about counters that a node has, and Prometheus takes them, where it is installed.
#[test]
fn alerts_are_about_counters_that_are_there() {
    let cluster = start("forest");
    let text = metrics(&cluster, 0);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let rules = root.join("contrib/prometheus/cambium-alerts.yml");
    let alerts = std::fs::read_to_string(&rules).unwrap();
    let words = |line: &str| {
        let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_';
        let words = line.split(move |char| !is_part(char)).map(str::to_string);
        words
            .filter(|word| word.starts_with("cambium_"))
            .collect::<Vec<_>>()
    };
    let names: Vec<String> = alerts
        .lines()
        .filter(|line| line.trim_start().starts_with("expr:"))
        .flat_map(words)
        .collect();
    assert!(names.len() >= 8, "{names:?}");
    for name in names {
        let is_there = text.lines().any(|line| {
            let rest = line.strip_prefix(&name);
            rest.is_some_and(|rest| rest.starts_with([' ', '{']))
        });
        // A chain without a lag to show has the line that says what it is.
        let is_known = text.contains(&format!("# TYPE {} ", name.trim_end_matches("_total")));
        assert!(is_there || is_known, "{name} is no counter of a node");
    }
    match Command::new("promtool")
        .args(["check", "rules"])
        .arg(&rules)
        .output()
    {
        Ok(checked) => assert!(checked.status.success(), "{checked:?}"),
        Err(_) => eprintln!("SKIPPED: promtool has not checked the alerts: it is not installed"),
    }
}
