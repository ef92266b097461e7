//! Nodes with networks of their own, and with clocks that jump.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cambium_cluster::topology::Acknowledgement;

use super::failures::{has_other_head, head_of, load, verify};
use super::harness::{Cluster, Etcd, LEASE, eventually, name};
use crate::harness::folder;

/// Three network namespaces and this one, on one bridge.
struct Network {
    /// The bridge's name, and the beginning of all others.
    bridge: String,
    /// The first three bytes of all addresses.
    subnet: String,
}

/// The last byte of etcd's address; nodes have 1 to 3.
const ETCD: usize = 254;

fn ip(words: &str) -> bool {
    let output = Command::new("ip").args(words.split(' ')).output();
    output.is_ok_and(|output| output.status.success())
}

impl Network {
    /// `None` where this user may not make one.
    fn make() -> Option<Network> {
        let id = std::process::id() & 0xffff;
        let network = Network {
            bridge: format!("cb{id:x}"),
            subnet: format!("10.{}.{}", 64 + (id >> 8) % 64, id & 0xff),
        };
        let is_made = network.lay();
        if !is_made {
            eprintln!("SKIPPED: this user may not make network namespaces");
        }
        is_made.then_some(network)
    }

    fn lay(&self) -> bool {
        let (bridge, etcd) = (&self.bridge, self.host(ETCD));
        let node = |node: usize| {
            let (space, host) = (self.space(node), self.host(node + 1));
            ip(&format!("netns add {space}"))
                && ip(&format!(
                    "link add {space} type veth peer name eth0 netns {space}"
                ))
                && ip(&format!("link set {space} master {bridge} up"))
                && ip(&format!("-n {space} address add {host}/24 dev eth0"))
                && ip(&format!("-n {space} link set eth0 up"))
                && ip(&format!("-n {space} link set lo up"))
        };
        ip(&format!("link add {bridge} type bridge"))
            && ip(&format!("address add {etcd}/24 dev {bridge}"))
            && ip(&format!("link set {bridge} up"))
            && (0..3).all(node)
    }

    /// The namespace of a node, and the end of its cable outside of it.
    fn space(&self, node: usize) -> String {
        format!("{}n{node}", self.bridge)
    }

    fn host(&self, last: usize) -> String {
        format!("{}.{last}", self.subnet)
    }

    /// The cable of a node is cut, or whole.
    fn cut(&self, node: usize, is_cut: bool) {
        let state = if is_cut { "down" } else { "up" };
        assert!(ip(&format!("link set {} {state}", self.space(node))));
    }

    /// Packets of a node to an address are dropped, or go out again.
    fn lose(&self, node: usize, last: usize, is_lost: bool) {
        let (space, host) = (self.space(node), self.host(last));
        let change = if is_lost { "add" } else { "delete" };
        assert!(ip(&format!(
            "-n {space} route {change} blackhole {host}/32"
        )));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // A namespace goes with its last process, and its cable with it.
        (0..3).for_each(|node| _ = ip(&format!("netns delete {}", self.space(node))));
        ip(&format!("link delete {}", self.bridge));
    }
}

/// Packets are lost, and no connection is closed by a machine that still answers.
#[test]
fn acknowledged_writes_survive_cuts_of_the_network() {
    let Some(network) = Network::make() else {
        return;
    };
    let url = format!("http://{}:2379", network.host(ETCD));
    let urls = [
        "--listen-client-urls",
        &url,
        "--advertise-client-urls",
        &url,
    ];
    let mut etcd = Etcd::start_with(1, "http", &urls.map(str::to_string));
    etcd.url = url;
    let mut cluster = Cluster::over(etcd, LEASE, "forest", "written", Acknowledgement::Strong);
    cluster.is_direct = true;
    cluster.extra.push("--unsafe-no-password".to_string());
    for node in 0..3 {
        cluster.places[node].1 = format!("{}:6379", network.host(node + 1));
        let space = network.space(node);
        cluster.starters[node] = ["ip", "netns", "exec", &space].map(str::to_string).to_vec();
        cluster.start_node(node);
    }
    cluster.settle();
    let pause = || std::thread::sleep(Duration::from_millis(500));
    let written = load(&mut cluster, |cluster| {
        pause();
        // A node reaches nothing.
        let node = head_of(cluster, 0);
        network.cut(node, true);
        has_other_head(cluster, 0, node);
        pause();
        network.cut(node, false);
        cluster.settle();
        // A node reaches the others, and not etcd.
        let node = head_of(cluster, 1);
        network.lose(node, ETCD, true);
        has_other_head(cluster, 1, node);
        pause();
        network.lose(node, ETCD, false);
        cluster.settle();
        // A head reaches etcd, and no other node; clients reach all of them.
        let node = head_of(cluster, 2);
        let others = || (0..3).filter(|other| *other != node);
        others().for_each(|other| network.lose(node, other + 1, true));
        std::thread::sleep(cluster.lease() * 2);
        others().for_each(|other| network.lose(node, other + 1, false));
        cluster.settle();
    });
    verify(&cluster, &written);
}

/// The library that lets a process see another time, of the package `faketime`.
fn other_clock() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.flatten();
    let mut libraries = folders.map(|folder| folder.path().join("faketime/libfaketime.so.1"));
    let found = libraries.find(|library| library.exists());
    if found.is_none() {
        eprintln!("SKIPPED: libfaketime is not installed (apt-get install faketime)");
    }
    found
}

/// Each node has a wall clock that a file moves.
fn move_clock(clocks: &Path, node: usize, seconds: i64) {
    let next = clocks.join("next");
    std::fs::write(&next, format!("{seconds:+}\n")).unwrap();
    std::fs::rename(&next, clocks.join(name(node))).unwrap();
}

/// How many seconds a node's wall clock is ahead of this one.
fn ahead(cluster: &Cluster, node: usize) -> i64 {
    let mut client = cluster.client();
    let time = client.ask(&cluster.places[node].1, &["TIME"]);
    let digits: String = time
        .chars()
        .skip_while(|char| !char.is_ascii_digit())
        .collect();
    let seconds = digits
        .split(|char: char| !char.is_ascii_digit())
        .next()
        .unwrap();
    let own = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    seconds.parse::<i64>().unwrap() - own as i64
}

/// Leases and the order of writes do not depend on wall clocks.
#[test]
fn jumps_of_wall_clocks_change_nothing() {
    let Some(library) = other_clock() else {
        return;
    };
    let clocks = folder();
    let (etcd, strong) = (Etcd::start(1), Acknowledgement::Strong);
    // No lease ends because the machine is busy.
    let mut cluster = Cluster::over(etcd, 10 * LEASE, "forest", "written", strong);
    for node in 0..3 {
        move_clock(clocks.path(), node, 0);
        let clock = clocks.path().join(name(node));
        cluster.starters[node] = vec![
            "env".to_string(),
            format!("LD_PRELOAD={}", library.display()),
            format!("FAKETIME_TIMESTAMP_FILE={}", clock.display()),
            "FAKETIME_NO_CACHE=1".to_string(),
            "FAKETIME_DONT_FAKE_MONOTONIC=1".to_string(),
        ];
        cluster.start_node(node);
    }
    cluster.settle();
    let epochs = |cluster: &Cluster| {
        let chains = cluster.view().chains;
        chains.iter().map(|chain| chain.epoch).collect::<Vec<_>>()
    };
    let before = epochs(&cluster);
    let written = load(&mut cluster, |cluster| {
        for (node, seconds) in [(0, 3_600), (1, -7_200), (0, -60), (2, 1), (1, 1_000_000)] {
            move_clock(clocks.path(), node, seconds);
            std::thread::sleep(Duration::from_millis(500));
            eventually("the clock has moved", || {
                (ahead(cluster, node) - seconds).abs() <= 5
            });
        }
    });
    assert_eq!(epochs(&cluster), before);
    verify(&cluster, &written);
}
