//! etcd behind TLS, with certificates of clients, and with users.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use cambium_cluster::topology::{Acknowledgement, Meta, VERSION};
use cambium_foreign::access::Access;
use cambium_foreign::registry::Registry;

use super::harness::{Etcd, REGISTRY_PATIENCE, arguments, eventually, free_address};
use crate::harness::{Server, folder};
use crate::tls::Identity;

fn meta() -> Meta {
    Meta {
        version: VERSION,
        id: "of-a-test".into(),
        partitions: 1,
        replicas: 1,
        nodes: 1,
        acknowledgement: Acknowledgement::Strong,
        lease_seconds: 20, // none ends
        seed: 7,
    }
}

fn registry(etcd: &Etcd, access: &Access) -> Registry {
    let endpoints = std::slice::from_ref(&etcd.url);
    Registry::new(endpoints, access, "main", REGISTRY_PATIENCE).unwrap()
}

/// A node with these arguments writes and reads.
fn serves(etcd: &Etcd, access: &[&str]) {
    let (folder, address) = (folder(), free_address());
    let mut words = arguments(&etcd.url, "n0", &address);
    words.extend(access.iter().map(|word| (*word).to_string()));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let server = Server::try_start_at(folder.path(), &address, &words, Stdio::inherit()).unwrap();
    let mut client = server.client();
    eventually("the node serves", || {
        client.call("SET oak Quercus") == "+OK"
    });
    assert_eq!(client.call("GET oak"), "Quercus");
}

#[test]
fn nodes_reach_etcd_over_tls_with_certificates() {
    let folder = folder();
    let host = free_address();
    let host = host.split(':').next().unwrap();
    let server = Identity::make(folder.path(), "server", host);
    let own = Identity::make(folder.path(), "own", "localhost");
    let trusted = folder.path().join("trusted.crt");
    let pem = |identity: &Identity| fs::read_to_string(&identity.certificate).unwrap();
    fs::write(&trusted, pem(&server) + &pem(&own)).unwrap();
    let text = |path: &std::path::Path| path.to_str().unwrap().to_string();
    let extra = [
        "--cert-file".to_string(),
        text(&server.certificate),
        "--key-file".to_string(),
        text(&server.key),
        "--client-cert-auth".to_string(),
        "--trusted-ca-file".to_string(),
        text(&trusted),
    ];
    let etcd = Etcd::start_with(1, "https", &extra);
    let mut access = Access {
        ca: Some(server.certificate.clone()),
        ..Access::default()
    };
    let stranger = registry(&etcd, &access);
    access.cert = Some(own.certificate.clone());
    access.key = Some(own.key.clone());
    let known = registry(&etcd, &access);
    eventually("etcd answers", || known.make(&meta()).is_ok());
    assert!(stranger.meta().is_err(), "etcd asks for a certificate");
    let other = Access {
        ca: Some(own.certificate.clone()),
        ..access
    };
    assert!(
        registry(&etcd, &other).meta().is_err(),
        "it is not this etcd"
    );
    let files = [&server.certificate, &own.certificate, &own.key].map(|path| text(path));
    let [ca, cert, key] = &files;
    serves(
        &etcd,
        &["--etcd-ca", ca, "--etcd-cert", cert, "--etcd-key", key],
    );
}

/// One request to etcd's JSON gateway.
fn post(etcd: &Etcd, path: &str, body: &str) -> String {
    let address = etcd.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn nodes_are_users_of_etcd() {
    let folder = folder();
    let mut etcd = Etcd::start(1);
    let nobody = registry(&etcd, &Access::default());
    eventually("etcd answers", || nobody.make(&meta()).is_ok());
    for (path, body) in [
        ("user/add", r#"{"name":"root","password":"oak"}"#),
        ("role/add", r#"{"name":"root"}"#),
        ("user/grant", r#"{"user":"root","role":"root"}"#),
        ("enable", "{}"),
    ] {
        let answer = post(&etcd, &format!("/v3/auth/{path}"), body);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert!(nobody.meta().is_err());
    let password = folder.path().join("password");
    let mut access = Access {
        user: Some("root".into()),
        password_file: Some(password.clone()),
        ..Access::default()
    };
    fs::write(&password, "elm\n").unwrap();
    assert!(registry(&etcd, &access).meta().is_err());
    fs::write(&password, "oak\n").unwrap();
    let root = registry(&etcd, &access);
    assert_eq!(root.meta().unwrap(), meta());
    // etcd forgets what it has given when it restarts.
    etcd.kill(0);
    etcd.resume();
    eventually("etcd answers", || root.meta().is_ok());
    access.password_file = None;
    let endpoints = std::slice::from_ref(&etcd.url);
    assert!(Registry::new(endpoints, &access, "main", REGISTRY_PATIENCE).is_err());
    let file = password.to_str().unwrap();
    serves(
        &etcd,
        &["--etcd-user", "root", "--etcd-password-file", file],
    );
}
