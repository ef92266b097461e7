//! Channels and keyspace notifications.

use crate::harness::{Server, folder};

#[test]
fn messages_reach_those_who_listen() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let (mut listener, mut sender) = (server.client(), server.client());
    listener.script(&[
        ("SUBSCRIBE a", "[subscribe a :1]"),
        ("PSUBSCRIBE a*", "[psubscribe a* :2]"),
        ("PING", "[pong ]"),
        ("GET a", "-ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"),
    ]);
    sender.script(&[
        ("PUBLISH a hi", ":2"),
        ("PUBLISH b hi", ":0"),
        ("PUBSUB CHANNELS", "[a]"),
        ("PUBSUB NUMSUB a b", "[a :1 b :0]"),
        ("PUBSUB NUMPAT", ":1"),
        ("PUBSUB SHARDCHANNELS", "[]"),
        ("PUBSUB SHARDNUMSUB a", "[a :0]"),
    ]);
    assert_eq!(listener.answer(), "[message a hi]");
    assert_eq!(listener.answer(), "[pmessage a* a hi]");
    listener.script(&[
        ("UNSUBSCRIBE a", "[unsubscribe a :1]"),
        ("PUNSUBSCRIBE", "[punsubscribe a* :0]"),
        ("GET a", "nil"),
    ]);
    sender.script(&[
        ("PUBLISH a hi", ":0"),
        (
            "HELLO 3",
            "%[server redis version 7.0.15 proto :3 id :2 mode standalone role master modules []]",
        ),
    ]);
    sender.script(&[
        ("SUBSCRIBE c", ">[subscribe c :1]"),
        ("GET a", "null"),
        ("PUBLISH c x", ":1"),
    ]);
    assert_eq!(sender.answer(), ">[message c x]");
}

#[test]
fn subscriptions_are_confirmed_where_commands_are_not_answered() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let mut listener = server.client();
    listener.call("HELLO 3");
    listener.send(b"CLIENT REPLY OFF\r\nGET oak\r\nSUBSCRIBE a\r\nPUBLISH a hi\r\n");
    assert_eq!(listener.answer(), ">[subscribe a :1]");
    assert_eq!(listener.answer(), ">[message a hi]");
}

#[test]
fn a_listener_that_has_gone_is_forgotten() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let (mut listener, mut sender) = (server.client(), server.client());
    listener.call("SUBSCRIBE a");
    drop(listener);
    crate::harness::eventually("nobody listens", || sender.call("PUBLISH a hi") == ":0");
}

#[test]
fn a_listener_that_does_not_read_is_cut() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let (mut listener, mut sender) = (server.client(), server.client());
    listener.call("SUBSCRIBE a");
    let message = vec![b'x'; 1 << 20];
    let mut sent = 0;
    while sender.call_bytes(&[b"PUBLISH", b"a", &message]) == ":1" {
        sent += 1;
        assert!(sent < 200, "200 MiB wait for a client that does not read");
    }
    assert!(sent >= 32, "{sent} MiB are not over the limit");
}

#[test]
fn changes_of_keys_are_published_if_asked_for() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let (mut listener, mut sender) = (server.client(), server.client());
    sender.script(&[
        ("CONFIG GET notify*", "[notify-keyspace-events ]"),
        ("CONFIG SET notify-keyspace-events KEA", "+OK"),
        ("CONFIG GET notify*", "[notify-keyspace-events AKE]"),
    ]);
    listener.call("PSUBSCRIBE __key*__:*");
    sender.script(&[
        ("SET oak 1", "+OK"),
        ("HSET h f v", ":1"),
        ("DEL oak", ":1"),
        ("SET short 1 PX 20", "+OK"),
    ]);
    let mut next = || listener.answer().replace("pmessage __key*__:* ", "");
    for expected in [
        "[__keyspace@0__:oak set]",
        "[__keyevent@0__:set oak]",
        "[__keyspace@0__:h hset]",
        "[__keyevent@0__:hset h]",
        "[__keyspace@0__:oak del]",
        "[__keyevent@0__:del oak]",
        "[__keyspace@0__:short set]",
        "[__keyevent@0__:set short]",
        "[__keyspace@0__:short expire]",
        "[__keyevent@0__:expire short]",
        "[__keyspace@0__:short expired]",
        "[__keyevent@0__:expired short]",
    ] {
        assert_eq!(next(), expected);
    }
}
