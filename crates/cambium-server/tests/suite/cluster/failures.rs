//! Nodes that die, pause and come back.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use cambium_cluster::topology::{Acknowledgement, Chain, State};

use super::harness::{Cluster, ClusterClient, Course, beside, eventually, name};
use crate::harness::PATIENCE;

const SECOND: Duration = Duration::from_secs(1);

/// What a writer was answered: by key, the last value that was acknowledged, and all that it
/// has sent since.
pub(super) type Written = BTreeMap<String, (u64, Vec<u64>)>;

/// Clients that write and count while `disturb` runs. Each key has one writer.
pub(super) fn load(cluster: &mut Cluster, disturb: impl FnOnce(&mut Cluster)) -> Written {
    let clients = (0..4).map(|_| cluster.client()).collect();
    let write = |number: usize, mut client: ClusterClient, course: &Course| {
        let mut written = Written::new();
        let (mut value, mut answers) = (0, 0);
        while course.goes_on(answers >= 50) {
            value += 1;
            let key = format!("w{number}.{}", value % 50);
            let (_, sent) = written.entry(key.clone()).or_default();
            sent.push(value);
            let answer = client.try_call(&["SET", &key, &value.to_string()]);
            if answer.as_deref() == Some("+OK") {
                written.insert(key, (value, Vec::new()));
                answers += 1;
            }
        }
        written
    };
    let written = beside(clients, write, || disturb(cluster));
    written.into_iter().flatten().collect()
}

/// Each key has the last value that was acknowledged, or one that was sent later.
pub(super) fn verify(cluster: &Cluster, written: &Written) {
    let mut client = cluster.client();
    let mut acknowledged = 0;
    for (key, (last, sent)) in written {
        let value = client.call(&format!("GET {key}"));
        let found: u64 = value.parse().unwrap_or(0);
        assert!(
            found == *last || sent.contains(&found),
            "{key}: {value}, not {last} or of {sent:?}"
        );
        acknowledged += usize::from(*last > 0);
    }
    assert!(acknowledged > 50, "{acknowledged} keys were acknowledged");
    verify_copies(cluster, written);
}

/// Every member has the same.
fn verify_copies(cluster: &Cluster, written: &Written) {
    cluster.settle();
    let mut client = cluster.reader();
    for key in written.keys() {
        let values = copies(cluster, &mut client, key);
        assert!(
            values.windows(2).all(|pair| pair[0] == pair[1]),
            "{key}: {values:?}"
        );
    }
}

/// The value of a key at every member.
fn copies(cluster: &Cluster, client: &mut ClusterClient, key: &str) -> Vec<String> {
    let addresses = cluster.places.iter().map(|(_, address)| address);
    addresses
        .map(|address| client.ask(address, &["GET", key]))
        .collect()
}

pub(super) fn head_of(cluster: &Cluster, partition: usize) -> usize {
    let mut head = None;
    eventually("the chain has a head", || {
        let chain = &cluster.view().chains[partition];
        let is_head = |node: &usize| chain.head().is_some_and(|head| head.node == name(*node));
        head = (0..cluster.nodes.len()).find(is_head);
        head.is_some()
    });
    head.unwrap()
}

/// Waits until another node is the head.
pub(super) fn has_other_head(cluster: &Cluster, partition: usize, node: usize) {
    eventually("another node is the head", || {
        head_of(cluster, partition) != node
    });
}

fn killed_heads(engine: &'static str, durability: &'static str) {
    let mut cluster = Cluster::start(engine, durability, Acknowledgement::Strong);
    let written = load(&mut cluster, |cluster| {
        for round in 0..3 {
            std::thread::sleep(Duration::from_millis(500));
            let node = head_of(cluster, round);
            cluster.kill(node);
            if round != 1 {
                has_other_head(cluster, round, node);
                std::thread::sleep(Duration::from_millis(300));
            }
            // In the second round it is back before anyone has missed it.
            cluster.start_node(node);
            cluster.settle();
        }
    });
    verify(&cluster, &written);
}

#[test]
fn acknowledged_writes_survive_kills_of_heads() {
    killed_heads("forest", "written");
}

#[test]
fn synced_writes_survive_kills_of_heads() {
    killed_heads("wisckey", "synced");
}

#[test]
fn engines_without_an_order_of_keys_are_copied_too() {
    killed_heads("zdb", "written");
}

#[test]
fn a_store_without_a_change_feed_is_copied() {
    killed_heads("alphard", "written");
}

#[test]
fn a_paused_head_serves_nothing_that_is_old() {
    let mut cluster = Cluster::start("forest", "written", Acknowledgement::Strong);
    let mut client = cluster.client();
    client.call("SET fence before");
    let slot: u16 = client.call("CLUSTER KEYSLOT fence")[1..].parse().unwrap();
    let partition = usize::from(cambium_cluster::slots::partition(slot, 4));
    let node = head_of(&cluster, partition);
    let address = cluster.places[node].1.clone();
    // A connection from before the pause, as clients have them.
    assert_eq!(client.ask(&address, &["GET", "fence"]), "before");
    cluster.nodes[node].as_ref().unwrap().signal("STOP");
    let others = load(&mut cluster, |cluster| {
        let mut other = cluster.client();
        other.call_at(&address, &["PING"]); // it does not answer, and costs its patience
        std::thread::sleep(cluster.lease() + SECOND);
    });
    drop(others);
    has_other_head(&cluster, partition, node);
    let mut other = cluster.client();
    other.call("SET fence after");
    cluster.nodes[node].as_ref().unwrap().signal("CONT");
    for _ in 0..50 {
        let answer = client.call_at(&address, &["GET", "fence"]);
        assert_ne!(answer.as_deref(), Some("before"));
        std::thread::sleep(Duration::from_millis(10));
    }
    cluster.settle();
    assert_eq!(other.call("GET fence"), "after");
}

/// A connection that a predecessor has given up sends what was on its way after the new one
/// has. The successor acknowledges to the live one all the same.
#[test]
fn a_connection_that_is_given_up_does_not_keep_the_acknowledgements() {
    let cluster = Cluster::start("forest", "written", Acknowledgement::Strong);
    let mut client = cluster.client();
    client.call("SET oak Quercus");
    let slot = cambium_cluster::slots::slot(b"oak");
    let partition = cambium_cluster::slots::partition(slot, 4);
    let view = cluster.view();
    let members = &view.chains[usize::from(partition)].members;
    for pair in members.windows(2) {
        let (from, to) = (pair[0].node.as_str(), &pair[1]);
        let node = (0..3).find(|node| name(*node) == to.node).unwrap();
        let address = cluster.places[node].1.clone();
        let mut late = cluster.client();
        let hello = ["CAMBIUM.CHAIN", "HELLO", "of-a-test", from];
        assert_eq!(late.call_at(&address, &hello).as_deref(), Some("+OK"));
        let (partition, since) = (partition.to_string(), to.since.to_string());
        let open = ["CAMBIUM.CHAIN", "OPEN", &partition, &since];
        let opened = late.call_at(&address, &open).unwrap();
        assert!(opened.starts_with("[opened"), "{opened}");
        drop(late);
        assert_eq!(client.call("SET oak Quercus"), "+OK");
    }
}

/// A head that reaches no other node goes on alone, and changes its chains less and less often.
#[test]
fn a_head_whose_own_network_is_cut_does_not_change_its_chains_without_end() {
    let cluster = Cluster::start("forest", "written", Acknowledgement::Strong);
    let head = head_of(&cluster, 0);
    let mut client = cluster.client();
    client.call("SET oak before");
    let others = || (0..3).filter(|node| *node != head);
    others().for_each(|node| cluster.ways[node].cut(true));
    eventually("the head is alone", || {
        cluster.view().chains[0].serving().count() == 1
    });
    let epoch = || cluster.view().chains[0].epoch;
    std::thread::sleep(cluster.lease() * 3);
    let before = epoch();
    std::thread::sleep(cluster.lease() * 5);
    // Each report changes the chain twice or three times; one every half a lease would come to 30.
    let changes = epoch() - before;
    assert!(changes <= 18, "{changes} changes");
    others().for_each(|node| cluster.ways[node].mend());
    cluster.settle();
    assert_eq!(client.call("GET oak"), "before");
}

/// A successor that refuses what it is sent is asked again after a pause, and no member.
#[test]
fn a_member_without_room_on_its_disk_is_left_behind() {
    let logs = crate::harness::folder();
    let strong = Acknowledgement::Strong;
    let mut cluster = Cluster::make("forest", "written", strong, 1);
    cluster.logs = Some(logs.path().to_path_buf());
    (0..3).for_each(|node| cluster.start_node(node));
    cluster.settle();
    cluster.kill(2);
    cluster.extra = ["--reserve", "1000000000000000000"]
        .map(str::to_string)
        .to_vec();
    cluster.start_node(2);
    let begun = Instant::now();
    let mut client = cluster.client();
    let refusals = || {
        let logs = (0..2).map(|node| std::fs::read_to_string(logs.path().join(name(node))));
        let count =
            |log: std::io::Result<String>| log.unwrap().matches("the successor refuses").count();
        logs.map(count).sum::<usize>()
    };
    let is_behind = |chain: &Chain| {
        let place = chain.place("n2").unwrap();
        chain.members[place].state != State::Serving
    };
    eventually("the member is left behind", || {
        for number in 0..20 {
            assert_eq!(client.call(&format!("SET k{number} {number}")), "+OK");
        }
        begun.elapsed() >= cluster.lease() * 2
            && refusals() > 0
            && cluster.view().chains.iter().all(is_behind)
    });
    let leases = begun.elapsed().as_secs() / cluster.meta.lease_seconds;
    assert!(refusals() < 50 * leases as usize, "{} refusals", refusals());
    cluster.kill(2);
    cluster.extra.clear();
    cluster.start_node(2);
    cluster.settle();
    assert_eq!(client.call("GET k7"), "7");
}

#[test]
fn a_chain_whose_members_all_restart_goes_on() {
    let mut cluster = Cluster::start("forest", "written", Acknowledgement::Strong);
    let mut written = load(&mut cluster, |_| {
        std::thread::sleep(Duration::from_millis(500))
    });
    for pause in [Duration::ZERO, cluster.lease() + SECOND] {
        (0..3).for_each(|node| cluster.kill(node));
        std::thread::sleep(pause);
        (0..3).for_each(|node| cluster.start_node(node));
        verify(&cluster, &written);
        let more = load(&mut cluster, |_| {
            std::thread::sleep(Duration::from_millis(300))
        });
        go_on(&mut written, more);
    }
    verify(&cluster, &written);
}

/// Adds what a later load wrote. A key of which it was acknowledged nothing may have the value
/// of before still.
fn go_on(written: &mut Written, more: Written) {
    for (key, (last, sent)) in more {
        let known = written.entry(key).or_default();
        match last {
            0 => known.1.extend(sent),
            _ => *known = (last, sent),
        }
    }
}

#[test]
fn what_an_async_chain_loses_is_the_last_of_one_head() {
    let mut cluster = Cluster::start("forest", "written", Acknowledgement::Async);
    let mut client = cluster.client();
    for number in 0..200 {
        client.call(&format!("SET k{number} {number}"));
    }
    // All of it has come to every member, before the head goes.
    cluster.hand_on();
    let node = head_of(&cluster, 0);
    cluster.kill(node);
    for number in 0..200 {
        assert_eq!(client.call(&format!("GET k{number}")), number.to_string());
    }
    cluster.start_node(node);
    cluster.settle();
}

/// The head hands its chains over before it stops.
#[test]
fn an_orderly_stop_of_an_async_head_loses_nothing() {
    let mut cluster = Cluster::start("forest", "written", Acknowledgement::Async);
    let mut client = cluster.client();
    for turn in 0..3 {
        // Members are behind the heads.
        cluster.ways.iter().for_each(|way| way.slow(100));
        for number in 0..200 {
            client.call(&format!("SET k{number} {turn}"));
        }
        let node = head_of(&cluster, turn);
        cluster.nodes[node].take().unwrap().terminate();
        for number in 0..200 {
            assert_eq!(client.call(&format!("GET k{number}")), turn.to_string());
        }
        cluster.ways.iter().for_each(|way| way.mend());
        cluster.start_node(node);
        cluster.settle();
    }
    let mut client = cluster.client();
    for (_, address) in &cluster.places {
        let info = client.ask(address, &["INFO", "cluster"]);
        assert!(info.contains("discarded_batches:0"), "{info}");
    }
}

/// A head whose batches do not arrive stops all the same: by itself, or at the second signal.
#[test]
fn a_stop_does_not_wait_for_members_that_cannot_be_reached() {
    let mut cluster = Cluster::start("forest", "written", Acknowledgement::Async);
    let mut client = cluster.client();
    for turn in 0..2 {
        let node = head_of(&cluster, turn);
        let mut server = cluster.nodes[node].take().unwrap();
        let stopped = Instant::now();
        cluster.ways.iter().for_each(|way| way.stop(0));
        for number in 0..20 {
            client.call(&format!("SET k{number} {turn}"));
        }
        server.signal("TERM");
        let early = server.wait(Duration::from_millis(200));
        // Half a lease later the chain goes on without the others, and nothing is handed over.
        let lease = cluster.lease();
        let is_alone = || stopped.elapsed() >= lease / 2;
        assert!(
            early.is_none() || is_alone(),
            "the node waits for the hand-over"
        );
        if turn == 0 {
            let ended = server.wait(PATIENCE).unwrap();
            assert!(ended.success(), "{ended}");
        } else if early.is_none() {
            server.signal("TERM");
            let is_alone = is_alone();
            let ended = server.wait(PATIENCE).unwrap();
            assert!(ended.code() == Some(128 + 15) || is_alone, "{ended}");
        }
        cluster.ways.iter().for_each(|way| way.mend());
        cluster.start_node(node);
        cluster.settle();
    }
}

/// The chain goes on without all that its first head wrote. The copy that takes the place of
/// that has nothing, and is whole.
#[test]
fn a_member_serves_by_an_empty_copy() {
    let mut cluster = Cluster::start("forest", "written", Acknowledgement::Async);
    let mut client = cluster.client();
    let slot = cambium_cluster::slots::slot(b"oak");
    let partition = usize::from(cambium_cluster::slots::partition(slot, 4));
    let node = head_of(&cluster, partition);
    let address = cluster.places[node].1.clone();
    cluster.ways.iter().for_each(|way| way.cut(true));
    assert_eq!(client.ask(&address, &["SET", "oak", "Quercus"]), "+OK");
    cluster.kill(node);
    cluster.ways.iter().for_each(|way| way.mend());
    has_other_head(&cluster, partition, node);
    cluster.start_node(node);
    cluster.settle();
    assert_eq!(client.call("GET oak"), "nil");
    let mut reader = cluster.reader();
    assert_eq!(reader.ask(&address, &["GET", "oak"]), "nil");
}

/// A head writes alone, dies, and the chain goes on without what it wrote. It comes back, and
/// later brings another member up from its own log, which has those writes still.
#[test]
fn a_former_head_never_hands_on_what_the_chain_went_on_without() {
    let mut cluster = Cluster::start("forest", "written", Acknowledgement::Async);
    let mut client = cluster.client();
    let key = |number: usize| format!("{{tag}}{number}");
    for number in 0..20 {
        client.call(&format!("SET {} first", key(number)));
    }
    // An async chain may lose what its other members do not have yet.
    let mut written = Written::new();
    written.extend((0..20).map(|number| (key(number), (1, Vec::new()))));
    let mut reader = cluster.reader();
    for key in written.keys() {
        eventually("every member has the write", || {
            let copies = copies(&cluster, &mut reader, key);
            copies.iter().all(|value| value == "first")
        });
    }
    let slot = cambium_cluster::slots::slot(b"tag");
    let partition = usize::from(cambium_cluster::slots::partition(slot, 4));
    let node = head_of(&cluster, partition);
    let address = cluster.places[node].1.clone();
    let others: Vec<usize> = (0..3).filter(|other| *other != node).collect();
    let cut = |cluster: &Cluster, is_cut: bool| {
        others
            .iter()
            .for_each(|other| cluster.ways[*other].cut(is_cut));
    };
    cut(&cluster, true);
    for number in 0..20 {
        let answer = client.call_at(&address, &["SET", &key(number), "alone"]);
        assert_eq!(answer.as_deref(), Some("+OK"));
    }
    cluster.kill(node);
    cut(&cluster, false);
    has_other_head(&cluster, partition, node);
    for number in 0..20 {
        let value = match number % 2 {
            0 => client.call(&format!("SET {} after", key(number))),
            _ => client.call(&format!("GET {}", key(number))),
        };
        assert!(value == "+OK" || value == "first", "{value}");
    }
    cluster.start_node(node);
    verify_copies(&cluster, &written);
    for other in others {
        cluster.kill(other);
        std::thread::sleep(cluster.lease() + SECOND);
        for number in 0..5 {
            client.call(&format!("SET {} again", key(number)));
        }
        // It forgets what it has handed on lately, and has its log alone.
        cluster.kill(node);
        cluster.start_node(node);
        eventually("it is the tail", || {
            let view = cluster.view();
            view.chains[partition]
                .serving()
                .nth(1)
                .is_some_and(|tail| tail.node == name(node))
        });
        cluster.start_node(other);
        verify_copies(&cluster, &written);
    }
    assert_eq!(client.call(&format!("GET {}", key(19))), "first");
    assert_eq!(client.call(&format!("GET {}", key(18))), "after");
}

#[test]
fn without_etcd_a_node_stops_serving_and_says_why() {
    let mut cluster = Cluster::start("forest", "written", Acknowledgement::Strong);
    let mut client = cluster.client();
    client.call("SET oak Quercus");
    let view = cluster.view();
    assert!(
        view.chains[0]
            .members
            .iter()
            .all(|member| member.state == State::Serving)
    );
    cluster.etcd.pause(0);
    let address = cluster.places[0].1.clone();
    eventually("it stops serving", || {
        let answers: Vec<String> = (0..20)
            .filter_map(|number| client.call_at(&address, &["GET", &format!("k{number}")]))
            .collect();
        answers
            .iter()
            .any(|answer| answer.starts_with("-CLUSTERDOWN This node has no fresh view"))
    });
    cluster.etcd.resume();
    assert_eq!(client.call("GET oak"), "Quercus");
}
