//! Nodes that come and go by command, and those that are refused.

use std::process::{Command, Stdio};

use cambium_cluster::control;
use cambium_cluster::topology::{Acknowledgement, View};
use cambium_foreign::etcd::Change;
use cambium_foreign::registry::Seen;

use super::harness::{Cluster, Etcd, arguments, eventually, free_address, name};
use crate::harness::{Server, folder};

/// What a server says that does not start.
fn refusal(folder: &std::path::Path, words: &[String]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_cambium-server"))
        .arg("--dir")
        .arg(folder)
        .args(["--resp", "127.0.0.1:0"])
        .args(words)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn apply(cluster: &Cluster, change: impl Fn(&View) -> control::Changes) {
    // The controller may change a chain at the same time.
    eventually("the change is made", || {
        let seen = cluster.seen();
        let changes = change(&seen.view);
        let registry = &cluster.registry;
        let is_made = |made: Result<bool, _>| made.is_ok_and(|made| made);
        changes
            .iter()
            .all(|(partition, chain)| is_made(registry.change(&seen, *partition, chain, None)))
    });
}

/// Waits until a node has removed what it has left, and ends it. Its store has nothing more of
/// those partitions, however it is read.
fn removes_copies(cluster: &mut Cluster, node: usize) {
    let address = cluster.places[node].1.clone();
    let mut client = cluster.client();
    eventually("the copies are removed", || {
        let info = client.call_at(&address, &["INFO", "cluster"]);
        info.is_some_and(|info| info.contains("left_copies:0"))
    });
    cluster.kill(node);
    let folder = cluster.places[node].0.path().join("store");
    let store = cambium::open(folder).unwrap();
    let view = cluster.view();
    let has_left = |key: &[u8]| {
        let chain = view.chains.get(usize::from(key[0]));
        chain.is_some_and(|chain| chain.place(&name(node)).is_none())
    };
    let entries = store.snapshot().unwrap().iterate().unwrap();
    let left = entries.filter(|entry| has_left(&entry.as_ref().unwrap().key));
    assert_eq!(left.count(), 0);
}

#[test]
fn copies_move_to_a_new_node_while_clients_write() {
    let mut cluster = Cluster::start("forest", "written", Acknowledgement::Strong);
    let mut client = cluster.client();
    for number in 0..300 {
        client.call(&format!("SET k{number} {number}"));
    }
    client.call("HSET h field value");
    client.call("SET short lived PX 6000000");
    let new = cluster.grow();
    // Every copy of the first node goes to the new one.
    apply(&cluster, |view| control::drain(view, "n0").unwrap());
    for number in 0..300 {
        client.call(&format!("SET k{number} {}", number + 1));
    }
    eventually("the node is drained", || {
        let view = cluster.view();
        view.chains.iter().all(|chain| chain.place("n0").is_none())
    });
    cluster.settle();
    removes_copies(&mut cluster, 0);
    let moved = name(new);
    let chain = &cluster.view().chains[1];
    if chain.head().unwrap().node != moved {
        apply(&cluster, |view| {
            let chain = &view.chains[1];
            match chain.head().is_some_and(|head| head.node == moved) {
                true => Vec::new(),
                false => vec![(1, control::promote(chain, &moved).unwrap())],
            }
        });
    }
    for number in 0..300 {
        assert_eq!(
            client.call(&format!("GET k{number}")),
            (number + 1).to_string()
        );
    }
    assert_eq!(client.call("HGETALL h"), "[field value]");
    let left: i64 = client.call("PTTL short")[1..].parse().unwrap();
    assert!((1..=6_000_000).contains(&left), "{left}");
}

/// The head hands everything on before another member takes its place, by command or as the
/// copy of the head moves.
#[test]
fn a_planned_change_of_an_async_head_loses_nothing() {
    let mut cluster = Cluster::start("forest", "written", Acknowledgement::Async);
    let new = cluster.grow();
    let partition = 0;
    let of_it = |key: &String| {
        let slot = cambium_cluster::slots::slot(key.as_bytes());
        cambium_cluster::slots::partition(slot, 4) == partition
    };
    let keys: Vec<String> = (0..)
        .map(|key| format!("k{key}"))
        .filter(of_it)
        .take(200)
        .collect();
    let mut written = std::collections::BTreeMap::new();
    let mut client = cluster.client();
    for turn in 0..4 {
        // Members are behind the head.
        cluster.ways.iter().for_each(|way| way.slow(100));
        for key in &keys {
            client.call(&format!("SET {key} {turn}"));
            written.insert(key.clone(), turn);
        }
        let place = usize::from(partition);
        let head = || cluster.view().chains[place].head().unwrap().node.clone();
        let before = head();
        apply(&cluster, |view| {
            let chain = &view.chains[place];
            let changed = match turn {
                3 => control::relocate(view, partition, &before, &name(new)),
                _ => control::promote(chain, &chain.members[2].node),
            };
            vec![(partition, changed.unwrap())]
        });
        cluster.ways.iter().for_each(|way| way.slow(1));
        eventually("another node is the head", || head() != before);
        cluster.settle();
    }
    for (key, turn) in written {
        assert_eq!(
            client.call(&format!("GET {key}")),
            turn.to_string(),
            "{key}"
        );
    }
    cluster.ways.iter().for_each(|way| way.mend());
    for (_, address) in &cluster.places {
        let info = client.ask(address, &["INFO", "cluster"]);
        assert!(info.contains("discarded_batches:0"), "{info}");
    }
}

/// A head dies with batches that no one else has, and its copy moves before it is back: it
/// reports them as it removes the copy.
#[test]
fn what_a_head_had_alone_is_reported_when_its_copy_has_moved_meanwhile() {
    let mut cluster = Cluster::start("forest", "written", Acknowledgement::Async);
    let new = cluster.grow();
    let mut client = cluster.client();
    client.call("SET k0 before");
    let slot = cambium_cluster::slots::slot(b"k0");
    let partition = cambium_cluster::slots::partition(slot, 4);
    let place = usize::from(partition);
    cluster.settle();
    let before = cluster.view().chains[place].head().unwrap().node.clone();
    let head = (0..4).find(|node| name(*node) == before).unwrap();
    let others = (0..4).filter(|node| *node != head);
    others.for_each(|node| cluster.ways[node].cut(true));
    let written = (0..50).filter(|number| {
        let key = format!("{{k0}}{number}");
        client.try_call(&["SET", &key, "x"]).is_some()
    });
    assert_eq!(written.count(), 50);
    cluster.kill(head);
    cluster.ways.iter().for_each(|way| way.mend());
    eventually("another node is the head", || {
        let view = cluster.view();
        let head = view.chains[place].head();
        head.is_some_and(|head| head.node != before)
    });
    apply(&cluster, |view| {
        let chain = control::relocate(view, partition, &before, &name(new));
        vec![(partition, chain.unwrap())]
    });
    eventually("the copy has moved", || {
        cluster.view().chains[place].place(&before).is_none()
    });
    cluster.start_node(head);
    cluster.settle();
    let keys = (0..50).map(|number| format!("{{k0}}{number}"));
    let keys = keys.chain(["k0".to_string()]);
    let lost = keys.filter(|key| client.call(&format!("GET {key}")) == "nil");
    let lost = lost.count();
    assert!(lost > 0, "nothing is lost");
    let address = cluster.places[head].1.clone();
    eventually("the batches are reported", || {
        let info = client.call_at(&address, &["INFO", "cluster"]);
        info.is_some_and(|info| info.contains(&format!("discarded_batches:{lost}\r")))
    });
    removes_copies(&mut cluster, head);
}

/// A node that loses its lease registers again, and serves by the chain that it reads. A
/// controller that has seen it gone does not let others serve at the same time.
#[test]
fn a_change_that_counts_on_a_node_being_gone_fails_when_it_is_back() {
    let cluster = Cluster::start("forest", "written", Acknowledgement::Strong);
    let seen = cluster.seen();
    let promoted = |seen: &Seen| {
        let chain = &seen.view.chains[0];
        let tail = chain.members[2].node.clone();
        control::promote(chain, &tail).unwrap()
    };
    let key = cluster.registry.node_key("n1");
    let etcd = &cluster.registry.etcd;
    let (_, entries) = etcd.read(&key).unwrap();
    let again = [Change::Put(key, entries[0].value.clone(), None)];
    assert!(etcd.transact(&[], &again).unwrap());
    let change = |seen: &Seen| {
        let chain = promoted(seen);
        cluster.registry.change(seen, 0, &chain, None).unwrap()
    };
    assert!(!change(&seen), "it has registered since");
    assert_eq!(cluster.view().chains[0], seen.view.chains[0]);
    assert!(change(&cluster.seen()));
    // As a command that is given twice: the second has seen what is over.
    assert!(!change(&seen));
}

#[test]
fn commands_are_those_of_a_node_of_redis_cluster() {
    let cluster = Cluster::start("forest", "written", Acknowledgement::Strong);
    let mut client = cluster.client();
    let address = cluster.places[0].1.clone();
    let mut at = |words: &[&str]| client.ask(&address, words);
    assert_eq!(
        at(&["MSET", "a", "1", "b", "2"]),
        "-CROSSSLOT Keys in request don't hash to the same slot"
    );
    assert_eq!(
        at(&["SELECT", "1"]),
        "-ERR SELECT is not allowed in cluster mode"
    );
    assert_eq!(at(&["SELECT", "0"]), "+OK");
    assert!(at(&["CLUSTER", "INFO"]).contains("cluster_state:ok"));
    let info = at(&["INFO", "cluster"]);
    assert!(
        info.contains("cluster_enabled:1") && info.contains("chains:4"),
        "{info}"
    );
    assert!(
        info.contains("chains_behind:") && info.contains("lag_batches:"),
        "{info}"
    );
    assert_eq!(at(&["CLUSTER", "NODES"]).lines().count(), 3);
    let mut keys = 0;
    let mut client = cluster.client();
    for number in 0..100 {
        client.call(&format!("SET k{number} x"));
    }
    for (_, address) in &cluster.places {
        let size: usize = client.ask(address, &["DBSIZE"])[1..].parse().unwrap();
        let listed = client.ask(address, &["KEYS", "*"]);
        let listed = listed.trim_matches(['[', ']']);
        assert_eq!(listed.split_whitespace().count(), size);
        let (mut cursor, mut found) = ("0".to_string(), 0);
        loop {
            let answer = client.ask(address, &["SCAN", &cursor, "COUNT", "7"]);
            let (next, listed) = answer[1..].split_once(" [").unwrap();
            found += listed.split(' ').filter(|key| key.starts_with('k')).count();
            cursor = next.to_string();
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(found, size);
        keys += size;
    }
    assert_eq!(keys, 100);
    // A transaction is of one slot, and goes to its node.
    for command in ["MULTI", "SET {tag}a 1", "INCR {tag}a"] {
        let key = "{tag}a";
        let slot = cambium_cluster::slots::slot(key.as_bytes());
        let partition = cambium_cluster::slots::partition(slot, 4);
        let head = cluster.view().chains[usize::from(partition)]
            .head()
            .unwrap()
            .node
            .clone();
        let node: usize = head[1..].parse().unwrap();
        let words: Vec<&str> = command.split(' ').collect();
        let answer = client.ask(&cluster.places[node].1, &words);
        assert!(answer == "+OK" || answer == "+QUEUED", "{answer}");
    }
}

/// A node is lost, and removed: its copies are made anew on the one that has none, and not on the
/// one that was removed, until that is added.
#[test]
fn a_node_that_is_lost_is_replaced() {
    let mut cluster = Cluster::start("forest", "written", Acknowledgement::Strong);
    let mut client = cluster.client();
    client.call("SET oak Quercus");
    cluster.kill(0);
    cluster.grow();
    let remove = |cluster: &Cluster, node: &str| {
        cluster.registry.retire(node, true).unwrap();
        apply(cluster, |view| control::remove(view, node, false).unwrap());
    };
    remove(&cluster, "n0");
    cluster.settle();
    let has_copy = |view: &View, node: &str| {
        let mut chains = view.chains.iter();
        chains.any(|chain| chain.place(node).is_some())
    };
    let seen = cluster.seen();
    assert!(!has_copy(&seen.view, "n0"));
    assert_eq!(client.call("GET oak"), "Quercus");
    cluster.start_node(0);
    remove(&cluster, "n3");
    let missing = |view: &View| {
        let chains = view.chains.iter();
        chains.map(|chain| chain.missing(3)).sum::<usize>()
    };
    eventually("the node is back", || {
        cluster.view().nodes.contains_key("n0")
    });
    cluster.hand_on();
    assert_eq!(missing(&cluster.view()), 4);
    assert!(!has_copy(&cluster.view(), "n0"));
    apply(&cluster, |view| control::add(view, "n0").unwrap());
    cluster.registry.retire("n0", false).unwrap();
    cluster.settle();
    assert!(has_copy(&cluster.view(), "n0"));
    // A controller that has seen n3 before its removal gives it no copy.
    let chain = seen.view.chains[0].clone();
    let now = Seen {
        view: View {
            retired: Default::default(),
            ..cluster.view()
        },
        ..cluster.seen()
    };
    assert!(!cluster.registry.change(&now, 0, &chain, None).unwrap());
}

/// The arguments of a node are checked before it makes a store.
#[test]
fn a_node_whose_arguments_are_wrong_makes_no_store() {
    let folder = folder();
    let store = folder.path().join("store");
    let node = |name: &str, address: &str| arguments("http://127.0.0.1:1", name, address);
    let mut proxy = node("n0", "127.0.0.1:1");
    proxy.push("--proxy".to_string());
    let own = node("n0", "127.0.0.1:1");
    let mut foo = own.clone();
    foo[1] = "foo".to_string();
    let bad = [
        (own[..2].to_vec(), "--name is missing"),
        (own[..4].to_vec(), "--advertise is missing"),
        (node("n 0", "127.0.0.1:1"), "--name"),
        (node("n0", "here"), "--advertise here"),
        (node("n0", "127.0.0.1:0"), "and not 0"),
        (node("n0", "0.0.0.0:7379"), "--advertise 0.0.0.0:7379"),
        (node("n0", "[::]:7379"), "others cannot connect to it"),
        (proxy, "--proxy"),
        (vec!["--proxy".to_string()], "--proxy"),
        (foo, "--cluster foo"),
    ];
    for (words, expected) in bad {
        let text = refusal(&store, &words);
        assert!(text.contains(expected), "{words:?}: {text}");
        assert!(!store.exists(), "{words:?}");
    }
}

#[test]
fn nodes_that_do_not_belong_are_refused() {
    let etcd = Etcd::start(1);
    let (mine, address) = (folder(), free_address());
    let words = arguments(&etcd.url, "n0", &address);
    eventually("etcd answers", || {
        etcd.registry("main")
            .meta()
            .is_err_and(|error| error.0.contains("no cluster"))
    });
    let text = refusal(&mine.path().join("store"), &words);
    assert!(text.contains("no cluster 'main'"), "{text}");
    let silent = arguments("http://127.0.0.1:1", "n0", &address);
    let text = refusal(&mine.path().join("store"), &silent);
    assert!(text.contains("http://127.0.0.1:1"), "{text}");

    let cluster = Cluster::start("forest", "written", Acknowledgement::Strong);
    // A name that is taken.
    let other = folder();
    let taken = arguments(&cluster.etcd.url, "n0", &free_address());
    let text = refusal(&other.path().join("store"), &taken);
    assert!(text.contains("n0 is there already"), "{text}");
    // A store with keys of its own.
    let server = Server::start(mine.path(), &[]);
    server.client().call("SET oak Quercus");
    server.terminate();
    let new = arguments(&cluster.etcd.url, "n9", &free_address());
    let text = refusal(&mine.path().join("store"), &new);
    assert!(text.contains("keys that no cluster knows of"), "{text}");
    // A store of a cluster, without it, under another name, and with another cluster.
    let store = cluster.places[0].0.path().join("store");
    let mut cluster = cluster;
    cluster.kill(0);
    assert!(refusal(&store, &[]).contains("belongs to a cluster"));
    let text = refusal(&store, &arguments(&cluster.etcd.url, "n1", &free_address()));
    assert!(text.contains("give --name n0"), "{text}");
    let meta = cambium_cluster::topology::Meta {
        id: "another".into(),
        ..cluster.meta.clone()
    };
    assert!(etcd.registry("main").make(&meta).unwrap());
    let text = refusal(&store, &arguments(&etcd.url, "n0", &free_address()));
    assert!(
        text.contains("belongs to the cluster with the id of-a-test"),
        "{text}"
    );
}
