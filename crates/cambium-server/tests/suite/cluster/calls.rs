//! Clients of Thrift on the nodes of a cluster.

use cambium_cluster::topology::Acknowledgement;
use cambium_foreign::etcd::Change;

use super::harness::{Cluster, eventually, name};
use crate::thrift::{Argument, Bytes, Client, Entries, FORMS, I32, Keys};

fn start() -> Cluster {
    let mut cluster = Cluster::make("forest", "written", Acknowledgement::Strong, 1);
    cluster.extra = ["--thrift", "127.0.0.1:0"].map(str::to_string).to_vec();
    (0..3).for_each(|node| cluster.start_node(node));
    cluster.settle();
    cluster
}

fn address(cluster: &Cluster, node: usize) -> String {
    let view = cluster.view();
    view.nodes[&name(node)].thrift.clone().unwrap()
}

/// The address in an exception that names another node.
fn moved(answer: &str) -> Option<String> {
    let rest = answer.strip_prefix("{1:{1:72:")?;
    Some(rest.split('"').nth(3)?.to_string())
}

/// Calls until the answer is this: the chain may be changing.
fn answers(client: &mut Client, name: &str, arguments: &[Argument<'_>], expected: &str) {
    eventually(name, || client.call(name, arguments) == expected);
}

/// No call answers a node's part of the keys as if it were all of them.
fn refuses_parts(client: &mut Client) {
    for (name, arguments, instead) in [
        ("range", &[I32(4, 10)][..], "SCAN"),
        ("iterate", &[I32(2, 10)], "SCAN"),
        ("size", &[], "DBSIZE"),
    ] {
        let answer = client.call(name, arguments);
        assert!(answer.starts_with("{1:{1:32:"), "{answer}");
        assert!(
            answer.contains(name) && answer.contains(instead),
            "{answer}"
        );
    }
}

#[test]
fn an_exception_names_the_node_that_has_the_keys() {
    let cluster = start();
    let first = address(&cluster, 0);
    let mut moves = 0;
    for number in 0..30 {
        let key = format!("k{number}");
        let mut at = first.clone();
        eventually("the call is answered", || {
            let mut client = Client::connect(&at, FORMS[number % 4]);
            let answer = client.call("put", &[Bytes(1, &key), Bytes(2, &key)]);
            if let Some(address) = moved(&answer) {
                (at, moves) = (address, moves + 1);
            }
            answer == "{}"
        });
        let mut client = Client::connect(&at, FORMS[number % 4]);
        let expected = format!("{{0:{{1:{key:?}}}}}");
        answers(&mut client, "get", &[Bytes(1, &key)], &expected);
    }
    assert!(
        (1..30).contains(&moves),
        "{moves} calls went to another node"
    );
    // Clients of Redis see the same keys.
    let mut redis = cluster.client();
    (0..30)
        .for_each(|number| assert_eq!(redis.call(&format!("GET k{number}")), format!("k{number}")));
    let mut client = Client::connect(&first, FORMS[2]);
    let several = client.call("multiPut", &[Entries(1, &[("a", "1"), ("b", "2")])]);
    assert!(several.starts_with("{1:{1:22:"), "{several}");
    refuses_parts(&mut client);
    let answer = client.call("multiGet", &[Keys(1, &["{k}1", "{k}2"])]);
    assert!(
        answer.starts_with("{0:[") || moved(&answer).is_some(),
        "{answer}"
    );
}

#[test]
fn a_node_forwards_calls_to_the_one_that_has_the_keys() {
    let mut cluster = start();
    cluster.kill(0);
    cluster.extra.push("--proxy".to_string());
    cluster.start_node(0);
    cluster.settle();
    for form in FORMS {
        // The node is no head, so it has no key of its own.
        let mut client = Client::connect(&address(&cluster, 0), form);
        for number in 0..30 {
            let (key, value) = (format!("k{number}"), "x".repeat(number * 3_000));
            let put = [Bytes(1, &key), Bytes(2, &value)];
            answers(&mut client, "put", &put, "{}");
            let expected = format!("{{0:{{1:{value:?}}}}}");
            answers(&mut client, "get", &[Bytes(1, &key)], &expected);
        }
        refuses_parts(&mut client);
        let entries = [("{k}1", "1"), ("{k}2", "2")];
        answers(&mut client, "multiPut", &[Entries(1, &entries)], "{}");
        // The node that forwards has another view: its client can use no address.
        assert_eq!(client.call("forwarded", &[]), "{}");
        let answer = client.call("get", &[Bytes(1, "k1")]);
        assert!(answer.starts_with("{1:{1:82:"), "{answer}");
    }
    // A node that is gone: its calls are not done, and those of others are.
    let head = |key: &str| {
        let slot = cambium_cluster::slots::slot(key.as_bytes());
        let partition = cambium_cluster::slots::partition(slot, 4);
        let chain = &cluster.view().chains[usize::from(partition)];
        chain.head().unwrap().node.clone()
    };
    let gone = (1..3).find(|node| (0..30).any(|key| head(&format!("k{key}")) == name(*node)));
    let gone = gone.unwrap();
    let key = (0..30).map(|key| format!("k{key}"));
    let key = key.clone().find(|key| head(key) == name(gone)).unwrap();
    let mut client = Client::connect(&address(&cluster, 0), FORMS[0]);
    answers(&mut client, "put", &[Bytes(1, &key), Bytes(2, "1")], "{}");
    // No node controls the cluster, so no chain changes.
    let controller = cluster.registry.key("controller");
    let nobody = Change::Put(controller.clone(), b"nobody".to_vec(), None);
    let etcd = &cluster.registry.etcd;
    assert!(etcd.transact(&[], &[nobody]).unwrap());
    cluster.kill(gone);
    let answer = client.call("put", &[Bytes(1, &key), Bytes(2, "2")]);
    assert!(answer.contains("may be done or not"), "{answer}");
    eventually("the node's lease is over", || {
        let answer = client.call("put", &[Bytes(1, &key), Bytes(2, "3")]);
        assert!(answer.starts_with("{1:{1:82:"), "{answer}");
        answer.contains("is not there")
    });
    let controller = Change::Delete(controller);
    let etcd = &cluster.registry.etcd;
    assert!(etcd.transact(&[], &[controller]).unwrap());
    answers(&mut client, "put", &[Bytes(1, &key), Bytes(2, "4")], "{}");
    answers(&mut client, "get", &[Bytes(1, &key)], "{0:{1:\"4\"}}");
}
