//! TLS between nodes: each checks the other's certificate.

use std::fs;
use std::path::{Path, PathBuf};

use cambium_cluster::slots::{partition, slot};
use cambium_cluster::topology::{Acknowledgement, State};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use tempfile::TempDir;

use super::harness::{Cluster, eventually, name};
use crate::client::encoded;
use crate::harness::folder;
use crate::tls::TlsClient;

/// Signs certificates.
struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let folder = folder();
        let own = params.self_signed(&key).unwrap();
        fs::write(folder.path().join("ca.crt"), own.pem()).unwrap();
        let issuer = Issuer::new(params, key);
        Authority { folder, issuer }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("ca.crt")
    }

    fn pem(&self) -> String {
        fs::read_to_string(self.path()).unwrap()
    }

    /// The arguments of a node with a certificate for a host, which is valid until a year.
    fn sign(&self, node: usize, host: &str, until: i32) -> Vec<String> {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![host.to_string()]).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        let path = |suffix| self.folder.path().join(format!("n{node}.{suffix}"));
        fs::write(path("crt"), signed.pem()).unwrap();
        fs::write(path("key"), key.serialize_pem()).unwrap();
        arguments(&path("crt"), &path("key"), &self.path())
    }
}

const FAR: i32 = 2100;

fn arguments(certificate: &Path, key: &Path, authority: &Path) -> Vec<String> {
    let files = [
        ("--tls-cert", certificate),
        ("--tls-key", key),
        ("--tls-ca", authority),
    ];
    let words = files.map(|(option, path)| [option.to_string(), path.display().to_string()]);
    words.concat()
}

/// The host that all nodes of a cluster advertise, as their proxies listen there.
const HOST: &str = "127.0.0.1";

struct Secured {
    cluster: Cluster,
    authority: Authority,
    logs: TempDir,
}

impl Secured {
    fn make() -> Secured {
        let logs = folder();
        let mut cluster = Cluster::make("forest", "written", Acknowledgement::Strong, 1);
        cluster.logs = Some(logs.path().to_path_buf());
        let authority = Authority::new("trees");
        cluster.authority = Some(authority.pem());
        Secured {
            cluster,
            authority,
            logs,
        }
    }

    fn start(&mut self, node: usize, extra: Vec<String>) {
        self.cluster.extra = extra;
        self.cluster.start_node(node);
    }

    fn start_valid(&mut self, node: usize) {
        let mut extra = self.authority.sign(node, HOST, FAR);
        extra.extend(["--thrift", "127.0.0.1:0", "--proxy"].map(str::to_string));
        self.start(node, extra);
    }

    fn log(&self, node: usize) -> String {
        fs::read_to_string(self.logs.path().join(name(node))).unwrap()
    }

    /// Until the log of some node has a text.
    fn says(&self, text: &str) {
        eventually(text, || (0..3).any(|node| self.log(node).contains(text)));
    }

    /// Calls a node at the address that it advertises; nothing if it is gone.
    fn call(&self, address: &str, command: &str) -> String {
        let ca = self.authority.pem();
        let mut client = TlsClient::connect(address, HOST, &ca);
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        client.try_call(&encoded(&words))
    }

    /// Calls the node that a redirection names, until it serves the key.
    fn find(&self, command: &str) -> String {
        let first = self.cluster.ways[0].address();
        let (mut address, mut answer) = (first.to_string(), String::new());
        eventually(command, || {
            answer = self.call(&address, command);
            let moved = answer.strip_prefix("-MOVED ");
            let next = moved.and_then(|moved| moved.split(' ').nth(1));
            address = next.unwrap_or(first).to_string();
            !answer.is_empty() && !answer.starts_with('-')
        });
        answer
    }

    fn serves_all(&self) -> bool {
        let chains = self.cluster.view().chains;
        let mut members = chains.iter().flat_map(|chain| &chain.members);
        members.all(|member| member.state == State::Serving)
    }
}

#[test]
fn a_chain_and_its_clients_speak_tls() {
    let mut secured = Secured::make();
    (0..3).for_each(|node| secured.start_valid(node));
    secured.cluster.settle();
    // `strong`: an answer says that every member has the write, over its link.
    for number in 0..20 {
        let set = format!("SET k{number} {number}");
        assert_eq!(secured.find(&set), "+OK");
    }
    for number in 0..20 {
        let length = number.to_string().len();
        assert_eq!(
            secured.find(&format!("GET k{number}")),
            format!("${length}")
        );
    }
    // Calls of Thrift are forwarded over TLS too: some of these keys are on other nodes.
    let first = &secured.cluster.view().nodes["n0"];
    let ca = secured.authority.pem();
    let mut client = TlsClient::connect(first.thrift.as_ref().unwrap(), HOST, &ca);
    for number in 0..8_u8 {
        let call = b"\x80\x01\x00\x01\x00\x00\x00\x03get\x00\x00\x00\x07\x0b\x00\x01\x00\x00\x00\x02k0\x00";
        let mut call = call.to_vec();
        call[23] = b'0' + number;
        eventually("a node answers the call", || {
            client.send(&[&(call.len() as u32).to_be_bytes()[..], &call].concat());
            let answer = client.framed();
            // A struct as the result, with the value as its first field.
            let value = [b'0' + number, 0, 0];
            assert!(answer.starts_with(b"\x80\x01\x00\x02"), "{answer:?}");
            answer[15..18] == [12, 0, 0] && answer.ends_with(&value)
        });
    }
    // A member that was away is brought up over TLS, with a value larger than any buffer.
    secured.cluster.kill(2);
    let large = "x".repeat(3 << 20);
    assert_eq!(secured.find(&format!("SET large {large}")), "+OK");
    secured.start_valid(2);
    secured.cluster.settle();
    let address = secured.cluster.ways[2].address().to_string();
    eventually("the member has the value", || {
        let ca = secured.authority.pem();
        let mut client = TlsClient::connect(&address, HOST, &ca);
        client.send(b"READONLY\r\nSTRLEN large\r\n");
        client.line();
        client.line() == format!(":{}", 3 << 20)
    });
    let ca = secured.authority.pem();
    let mut client = TlsClient::connect(&address, HOST, &ca);
    client.send(b"CLUSTER SHARDS\r\n");
    let shards: Vec<String> = (0..60).map(|_| client.line()).collect();
    assert!(shards.iter().any(|line| line == "tls-port"), "{shards:?}");
}

#[test]
fn nodes_with_certificates_that_do_not_hold_are_refused() {
    let mut secured = Secured::make();
    let other = Authority::new("shrubs");
    let foreign = {
        let signed = other.sign(2, HOST, FAR);
        let [certificate, key] = [&signed[1], &signed[3]].map(PathBuf::from);
        arguments(&certificate, &key, &secured.authority.path())
    };
    let expired = secured.authority.sign(2, HOST, 2021);
    secured.start_valid(0);
    secured.start_valid(1);
    secured.start(2, foreign);
    // The node is one of the three, and no link reaches it, or comes from it.
    secured.says("UnknownIssuer");
    secured.says("UnknownCA");
    eventually("it is left out", || !secured.serves_all());
    secured.cluster.kill(2);
    secured.start(2, expired);
    secured.says("certificate expired");
    secured.cluster.kill(2);
    let unnamed = secured.authority.sign(2, "elsewhere.example", FAR);
    secured.start(2, unnamed);
    secured.says("certificate not valid for name");
    // Its first head is another node.
    let of_first = |key: &String| partition(slot(key.as_bytes()), 4) == 0;
    let key = (0..)
        .map(|number| format!("k{number}"))
        .find(of_first)
        .unwrap();
    assert_eq!(secured.find(&format!("SET {key} x")), "+OK");
    assert!(!secured.serves_all());
    // With a certificate that holds it is brought up.
    secured.cluster.kill(2);
    secured.start_valid(2);
    secured.cluster.settle();
}

/// A client with the password, and with a certificate for another host, is no node.
#[test]
fn a_client_without_the_certificate_of_a_node_cannot_speak_as_one() {
    let mut secured = Secured::make();
    (0..3).for_each(|node| secured.start_valid(node));
    secured.cluster.settle();
    let address = secured.cluster.ways[0].address().to_string();
    let hello = "CAMBIUM.CHAIN HELLO of-a-test n1";
    let answer = secured.call(&address, hello);
    assert!(answer.contains("has shown no certificate"), "{answer}");
    let ca = secured.authority.pem();
    for (host, expected) in [("elsewhere.example", "not valid for name"), (HOST, "+OK")] {
        let own = secured.authority.sign(9, host, FAR);
        let [certificate, key] = [&own[1], &own[3]].map(|path| fs::read_to_string(path).unwrap());
        let mut client = TlsClient::connect_as(&address, HOST, &ca, &certificate, &key);
        client.send(format!("{hello}\r\n").as_bytes());
        let answer = client.line();
        assert!(answer.contains(expected), "{host}: {answer}");
    }
    // The files are read again at SIGHUP, those of the links too.
    let server = secured.cluster.nodes[1].as_ref().unwrap();
    server.signal("HUP");
    eventually("it is read", || secured.log(1).contains("is read again"));
    assert_eq!(secured.find("SET oak Quercus"), "+OK");
}
