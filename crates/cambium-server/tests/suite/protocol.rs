//! Bytes as clients send them, and as they should not.

use std::time::{Duration, Instant};

use crate::client::encoded;
use crate::harness::{Server, folder};

#[test]
fn requests_arrive_in_any_pieces() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    let value: Vec<u8> = (0..=255).collect();
    let bytes = [
        encoded(&[b"SET", b"oak", &value]),
        b"PING\r\n\r\nECHO \"a \\x62\"\r\n".to_vec(),
        encoded(&[b"STRLEN", b"oak"]),
    ]
    .concat();
    for byte in &bytes {
        client.send(&[*byte]);
    }
    let answers: Vec<String> = (0..4).map(|_| client.answer()).collect();
    assert_eq!(answers, ["+OK", "+PONG", "a b", ":256"]);
}

#[test]
fn a_huge_pipeline_is_answered_in_order() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    const COUNT: usize = 20_000;
    let mut sender = server.client();
    let bytes = b"INCR n\r\n".repeat(COUNT);
    client.send(&bytes);
    for number in 1..=COUNT {
        assert_eq!(client.answer(), format!(":{number}"));
    }
    let value = vec![b'v'; 100_000];
    assert_eq!(sender.call_bytes(&[b"SET", b"big", &value]), "+OK");
    sender.send(&b"GET big\r\n".repeat(1_000));
    // Another client is served while 100 MB wait to be read.
    assert_eq!(client.call("PING"), "+PONG");
    for _ in 0..1_000 {
        assert_eq!(sender.answer().len(), value.len());
    }
}

#[test]
fn a_server_alone_has_no_replicas_to_read_from() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let refusal = "-ERR This instance has cluster support disabled";
    let commands = ["READONLY", "READWRITE", "ASKING"];
    server
        .client()
        .script(&commands.map(|command| (command, refusal)));
}

#[test]
fn commands_before_the_end_of_input_are_answered() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    client.send(b"SET oak 1\r\nGET oak\r\nGET o");
    client.finish();
    assert_eq!(
        (client.answer(), client.answer()),
        ("+OK".to_string(), "1".to_string())
    );
    assert!(client.is_closed());
    assert_eq!(server.client().call("GET oak"), "1");
}

#[test]
fn violations_are_named_and_end_the_connection() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    for (bytes, expected) in [
        (&b"*9223372036854775808\r\n"[..], "invalid multibulk length"),
        (b"*1\r\n$9223372036854775807\r\n", "invalid bulk length"),
        (b"*1\r\n$536870913\r\n", "invalid bulk length"),
        (b"*1\r\nfoo\r\n", "expected '$', got 'f'"),
        (b"SET \"a\r\n", "unbalanced quotes in request"),
    ] {
        let mut client = server.client();
        client.send(b"PING\r\n");
        client.send(bytes);
        assert_eq!(client.answer(), "+PONG");
        assert_eq!(client.answer(), format!("-ERR Protocol error: {expected}"));
        assert!(client.is_closed());
    }
    let mut client = server.client();
    client.script(&[("QUIT", "+OK")]);
    assert!(client.is_closed());
}

#[test]
fn passwords_keep_strangers_out() {
    let folder = folder();
    let file = folder.path().join("password");
    std::fs::write(&file, "secret\n").unwrap();
    let server = Server::start(folder.path(), &["--password-file", file.to_str().unwrap()]);
    let mut client = server.client();
    client.script(&[
        ("GET oak", "-NOAUTH Authentication required."),
        (
            "AUTH wrong",
            "-WRONGPASS invalid username-password pair or user is disabled.",
        ),
        (
            "AUTH default wrong",
            "-WRONGPASS invalid username-password pair or user is disabled.",
        ),
        (
            "AUTH other secret",
            "-WRONGPASS invalid username-password pair or user is disabled.",
        ),
        ("AUTH secret", "+OK"),
        ("GET oak", "nil"),
    ]);
    // The password and what it opens, in one go.
    let mut client = server.client();
    let value = vec![b'v'; 20_000];
    client.send(
        &[
            encoded(&[b"AUTH", b"default", b"secret"]),
            encoded(&[b"SET", b"oak", &value]),
        ]
        .concat(),
    );
    assert_eq!(
        (client.answer(), client.answer()),
        ("+OK".to_string(), "+OK".to_string())
    );
    for (bytes, expected) in [
        (&b"*11\r\n"[..], "multibulk"),
        (b"*2\r\n$16385\r\n", "bulk"),
    ] {
        let mut client = server.client();
        client.send(bytes);
        assert_eq!(
            client.answer(),
            format!("-ERR Protocol error: unauthenticated {expected} length")
        );
        assert!(client.is_closed());
    }
}

#[test]
fn public_addresses_need_a_password() {
    let folder = folder();
    let refused = std::process::Command::new(env!("CARGO_BIN_EXE_cambium-server"))
        .args([
            "--dir",
            folder.path().join("store").to_str().unwrap(),
            "--resp",
            "0.0.0.0:0",
        ])
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && message.contains("--unsafe-no-password"),
        "{message}"
    );
    assert!(!folder.path().join("store").exists());
}

#[test]
fn a_store_with_a_comparator_is_refused() {
    let folder = folder();
    let path = folder.path().join("store");
    let store = cambium::create(&path, "forest", &cambium::Options::new()).unwrap();
    store.close().unwrap();
    std::fs::write(path.join(cambium::COMPARATOR_NAME), "ignoring case").unwrap();
    let refused = std::process::Command::new(env!("CARGO_BIN_EXE_cambium-server"))
        .args(["--dir", path.to_str().unwrap(), "--resp", "127.0.0.1:0"])
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && message.contains("comparator \"ignoring case\""),
        "{message}"
    );
}

#[test]
fn what_takes_long_holds_up_nobody_else() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let (mut sleeper, mut client) = (server.client(), server.client());
    sleeper.send(b"PING\r\nDEBUG SLEEP 3600\r\nPING\r\n");
    assert_eq!(sleeper.answer(), "+PONG");
    client.script(&[("SET oak 1", "+OK"), ("GET oak", "1")]);
    let mut second = server.client();
    let begun = Instant::now();
    second.send(b"DEBUG SLEEP 0.1\r\nPING\r\n");
    assert_eq!(
        (second.answer(), second.answer()),
        ("+OK".to_string(), "+PONG".to_string())
    );
    assert!(begun.elapsed() >= Duration::from_millis(100));
}

#[test]
fn clients_beyond_the_most_are_refused() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    client.script(&[("CONFIG SET maxclients 2", "+OK")]);
    let mut second = server.client();
    second.script(&[("PING", "+PONG")]);
    let mut third = server.client();
    assert_eq!(third.answer(), "-ERR max number of clients reached");
    drop(second);
    crate::harness::eventually("there is room again", || {
        let mut next = server.client();
        next.try_send(b"PING\r\n").is_ok() && next.try_answer().as_deref() == Some("+PONG")
    });
    assert!(client.call("INFO stats").contains("rejected_connections:"));
}

#[test]
fn no_command_of_a_web_page_runs() {
    let folder = folder();
    let log = folder.path().join("log");
    let file = std::fs::File::create(&log).unwrap();
    let level = ["--log-level", "warn"];
    let server = Server::start_with_log(folder.path(), &level, file);
    for head in ["POST / HTTP/1.1\r\n", "PUT / HTTP/1.1\r\nhost: x\r\n"] {
        let mut client = server.client();
        client.send(format!("{head}Content-Length: 17\r\n\r\nSET hacked yes\r\n").as_bytes());
        let mut answers = Vec::new();
        while let Some(answer) = client.try_answer() {
            answers.push(answer);
        }
        assert!(client.is_closed());
        let errors = answers
            .iter()
            .all(|answer| answer.starts_with("-ERR unknown command"));
        assert!(errors, "{answers:?}");
    }
    server.client().script(&[("EXISTS hacked", ":0")]);
    server.terminate();
    let told = std::fs::read_to_string(log).unwrap();
    assert!(told.contains("HTTP requests"), "{told}");
}

/// More than 128, and fewer than the descriptors of this process.
const WAITING: usize = 300;

#[test]
fn many_connections_wait_for_their_accept() {
    let folder = folder();
    let (server, http) = Server::start_with(folder.path(), "http", &[]);
    server.signal("STOP");
    let mut waiting = Vec::new();
    for address in [&server.address, &http] {
        let address = address.parse().unwrap();
        for number in 0..WAITING {
            let patience = Duration::from_millis(500);
            let stream = std::net::TcpStream::connect_timeout(&address, patience);
            waiting.push(stream.unwrap_or_else(|error| panic!("{number} of {address}: {error}")));
        }
    }
    server.signal("CONT");
    assert_eq!(server.client().call("PING"), "+PONG");
}

#[test]
fn no_setting_locks_all_clients_out() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    let failed = |name: &str, why: &str| {
        format!("-ERR CONFIG SET failed (possibly related to argument '{name}') - {why}")
    };
    let clients = failed(
        "maxclients",
        "argument must be between 1 and 4294967295 inclusive",
    );
    client.script(&[("CONFIG SET maxclients 0", &clients)]);
    let password = [b'x'; 16_385];
    let long = client.call_bytes(&[b"CONFIG", b"SET", b"requirepass", &password]);
    assert_eq!(long, failed("requirepass", "expected up to 16384 bytes"));
    let binary = client.call_bytes(&[b"CONFIG", b"SET", b"requirepass", b"\xff"]);
    assert_eq!(binary, failed("requirepass", "expected text in UTF-8"));
    server.client().script(&[("PING", "+PONG")]);
    let longest = &password[1..];
    assert_eq!(
        client.call_bytes(&[b"CONFIG", b"SET", b"requirepass", longest]),
        "+OK"
    );
    assert_eq!(server.client().call_bytes(&[b"AUTH", longest]), "+OK");
}

#[test]
fn the_connection_answers_about_itself() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    client.script(&[
        ("CLIENT ID", ":1"),
        (
            "CLIENT SETNAME a\u{7f}",
            "-ERR Client names cannot contain spaces, newlines or special characters.",
        ),
        ("CLIENT SETNAME me", "+OK"),
        ("CLIENT GETNAME", "me"),
        (
            "CLIENT NOSUCH",
            "-ERR unknown subcommand 'NOSUCH'. Try CLIENT HELP.",
        ),
        (
            "CLIENT ID more",
            "-ERR wrong number of arguments for 'client|id' command",
        ),
        ("HELLO 4", "-NOPROTO unsupported protocol version"),
        (
            "CONFIG SET nosuch 1",
            "-ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'",
        ),
        ("WAIT 0 0", ":0"),
        ("FUNCTION FLUSH", "+OK"),
        ("COMMAND GETKEYS MSET a 1 b 2", "[a b]"),
        ("CLUSTER KEYSLOT foo", ":12182"),
        ("RESET", "+RESET"),
        ("CLIENT GETNAME", "nil"),
        ("CLIENT GETREDIR", ":-1"),
        ("CLIENT NO-EVICT ON", "+OK"),
        ("CLIENT NO-EVICT maybe", "-ERR syntax error"),
        (
            "CLIENT TRACKINGINFO",
            "[flags [off] redirect :-1 prefixes []]",
        ),
        ("CONFIG SET a b c", "-ERR syntax error"),
        ("LATENCY GRAPH a", "-ERR No samples available for event 'a'"),
        ("LATENCY HISTOGRAM", "[]"),
        ("LATENCY RESET", ":0"),
        ("LATENCY LATEST", "[]"),
        ("SLOWLOG RESET", "+OK"),
        (
            "SLOWLOG HELP",
            "[+SLOWLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are: +GET +HELP +LEN \
             +RESET]",
        ),
        (
            "NO\0SUCH a\0b c",
            "-ERR unknown command 'NO', with args beginning with: 'a' 'c'",
        ),
        (
            "CLIENT NO\0SUCH",
            "-ERR unknown subcommand 'NO'. Try CLIENT HELP.",
        ),
        ("CLIENT UNBLOCK 1", ":0"),
        ("DEBUG ERROR LOADING", "-LOADING"),
        ("CLIENT KILL 1.2.3.4:5", "-ERR No such client"),
    ]);
    let (mut other, mut listener) = (server.client(), server.client());
    other.script(&[("PING", "+PONG")]);
    listener.script(&[("SUBSCRIBE news", "[subscribe news :1]")]);
    assert!(client.call("CLIENT LIST").lines().count() == 3);
    assert!(client.call("CLIENT LIST TYPE pubsub").starts_with("id=3 "));
    client.script(&[
        ("CLIENT LIST TYPE replica", ""),
        ("CLIENT KILL TYPE Nope", "-ERR Unknown client type 'Nope'"),
        ("CLIENT KILL SKIPME maybe", "-ERR syntax error"),
        ("CLIENT KILL USER nobody", "-ERR No such user 'nobody'"),
        ("CLIENT KILL TYPE replica", ":0"),
    ]);
    other.script(&[("PING", "+PONG")]);
    client.script(&[("CLIENT KILL TYPE pubsub USER default", ":1")]);
    assert!(listener.is_closed());
    other.script(&[("PING", "+PONG")]);
    client.script(&[("CLIENT KILL ID 2 SKIPME no", ":1")]);
    assert!(other.is_closed());
    client.send(b"CLIENT REPLY OFF\r\nPING\r\nSET a 1\r\nCLIENT REPLY ON\r\nCLIENT REPLY SKIP\r\nPING\r\nGET a\r\n");
    assert_eq!(
        (client.answer(), client.answer()),
        ("+OK".to_string(), "1".to_string())
    );
}
