//! etcd, nodes in processes of their own, and a client that finds its way.

use std::collections::HashMap;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cambium_cluster::topology::{Acknowledgement, Meta, State, VERSION, View};
use cambium_foreign::registry::{Registry, Seen};
use tempfile::TempDir;

use super::proxy::Proxy;
use crate::client::Client;
use crate::harness::{Server, folder};

/// Seconds; the least that etcd takes.
pub const LEASE: u64 = 2;
/// Longer than any of what is waited for takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// An address that nobody listens at.
pub fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// etcd with one member.
pub struct Etcd {
    process: Child,
    _folder: TempDir,
    /// Where it serves.
    pub url: String,
}

impl Etcd {
    pub fn start() -> Etcd {
        let folder = folder();
        let url = format!("http://{}", free_address());
        let peer = format!("http://{}", free_address());
        let process = Command::new("etcd")
            .arg("--data-dir")
            .arg(folder.path())
            .args([
                "--listen-client-urls",
                &url,
                "--advertise-client-urls",
                &url,
            ])
            .args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ])
            .args(["--initial-cluster", &format!("default={peer}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd is installed: on Debian, apt-get install etcd-server");
        Etcd {
            process,
            _folder: folder,
            url,
        }
    }

    /// It answers nothing until [`Etcd::resume`].
    pub fn pause(&self) {
        self.signal("STOP");
    }

    pub fn resume(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let process = self.process.id().to_string();
        let status = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(process)
            .status();
        assert!(status.unwrap().success());
    }

    pub fn registry(&self, name: &str) -> Registry {
        Registry::new(
            std::slice::from_ref(&self.url),
            name,
            Duration::from_secs(2),
        )
        .unwrap()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// Calls `test` until it is true.
pub fn eventually(what: &str, mut test: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !test() {
        assert!(begun.elapsed() < PATIENCE, "{what}: it does not come true");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A cluster with three nodes.
pub struct Cluster {
    /// Where it is kept.
    pub etcd: Etcd,
    /// It in etcd.
    pub registry: Registry,
    /// The cluster's settings.
    pub meta: Meta,
    /// The nodes' folders and addresses.
    pub places: Vec<(TempDir, String)>,
    /// What the nodes advertise: the ways to them.
    pub ways: Vec<Proxy>,
    /// Those that run.
    pub nodes: Vec<Option<Server>>,
    engine: &'static str,
    durability: &'static str,
}

pub fn name(node: usize) -> String {
    format!("n{node}")
}

/// What a node is started with.
pub fn arguments(url: &str, node: &str, address: &str) -> Vec<String> {
    let words = [
        "--cluster",
        &format!("etcd={url}"),
        "--name",
        node,
        "--advertise",
        address,
    ];
    words.map(str::to_string).to_vec()
}

impl Cluster {
    /// Makes a cluster, and waits until every chain is served by all.
    pub fn start(
        engine: &'static str,
        durability: &'static str,
        acknowledgement: Acknowledgement,
    ) -> Cluster {
        let etcd = Etcd::start();
        let registry = etcd.registry("main");
        let meta = Meta {
            version: VERSION,
            id: "of-a-test".into(),
            partitions: 4,
            replicas: 3,
            nodes: 3,
            acknowledgement,
            lease_seconds: LEASE,
            seed: 7,
        };
        eventually("etcd answers", || registry.make(&meta).is_ok());
        let places: Vec<_> = (0..3).map(|_| (folder(), free_address())).collect();
        let mut cluster = Cluster {
            etcd,
            registry,
            meta,
            ways: places
                .iter()
                .map(|(_, address)| Proxy::start(address))
                .collect(),
            places,
            nodes: vec![None, None, None],
            engine,
            durability,
        };
        (0..3).for_each(|node| cluster.start_node(node));
        cluster.settle();
        cluster
    }

    /// One more node, which has no copies yet.
    pub fn grow(&mut self) -> usize {
        let address = free_address();
        self.ways.push(Proxy::start(&address));
        self.places.push((folder(), address));
        self.nodes.push(None);
        let node = self.nodes.len() - 1;
        self.start_node(node);
        let name = name(node);
        eventually("the node is there", || {
            self.view().nodes.contains_key(&name)
        });
        node
    }

    pub fn start_node(&mut self, node: usize) {
        let (folder, address) = &self.places[node];
        let advertised = &self.ways[node].address;
        let mut words = arguments(&self.etcd.url, &name(node), advertised);
        let own = ["--engine", self.engine, "--durability", self.durability];
        words.extend(own.map(str::to_string));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let server = Server::start_at(folder.path(), address, &words);
        self.nodes[node] = Some(server);
    }

    pub fn kill(&mut self, node: usize) {
        if let Some(server) = self.nodes[node].take() {
            server.kill();
        }
    }

    pub fn seen(&self) -> Seen {
        self.registry.read(&self.meta).unwrap()
    }

    pub fn view(&self) -> View {
        self.seen().view
    }

    /// Waits until all members of all chains serve.
    pub fn settle(&self) {
        eventually("all members serve", || {
            self.view().chains.iter().all(|chain| {
                chain.epoch > 0
                    && chain.members.len() == 3
                    && chain
                        .members
                        .iter()
                        .all(|member| member.state == State::Serving)
            })
        });
    }

    pub fn client(&self) -> ClusterClient {
        let addresses = self.places.iter().map(|(_, address)| address.clone());
        ClusterClient {
            addresses: addresses.collect(),
            connections: HashMap::new(),
            turn: 0,
        }
    }
}

/// A client that follows redirections.
pub struct ClusterClient {
    addresses: Vec<String>,
    connections: HashMap<String, Client>,
    turn: usize,
}

impl ClusterClient {
    /// Calls until a node answers the command itself; `None` if it may be done or not.
    pub fn try_call(&mut self, words: &[&str]) -> Option<String> {
        let mut address = self.addresses[self.turn % self.addresses.len()].clone();
        for _ in 0..5 {
            let answer = self.call_at(&address, words);
            match answer.as_deref() {
                Some(answer) if answer.starts_with("-MOVED") => {
                    address = answer.rsplit(' ').next()?.to_string();
                }
                Some(answer) if answer.starts_with("-TRYAGAIN") => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Some(answer) if answer.starts_with('-') => {
                    self.turn += 1;
                    return None;
                }
                Some(answer) => return Some(answer.to_string()),
                None => {
                    self.turn += 1;
                    return None;
                }
            }
        }
        None
    }

    /// Calls until there is an answer. For commands that may be done twice.
    pub fn call(&mut self, command: &str) -> String {
        let words: Vec<&str> = command.split(' ').collect();
        let begun = Instant::now();
        loop {
            if let Some(answer) = self.try_call(&words) {
                return answer;
            }
            assert!(begun.elapsed() < PATIENCE, "{command}: no node answers");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Calls one node; `None` if the connection ends.
    pub fn call_at(&mut self, address: &str, words: &[&str]) -> Option<String> {
        if !self.connections.contains_key(address) {
            let client = Client::try_connect(address)?;
            self.connections.insert(address.to_string(), client);
        }
        let client = self.connections.get_mut(address)?;
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let sent = client.try_send(&crate::client::encoded(&words));
        let answer = sent.ok().and_then(|()| client.try_answer());
        if answer.is_none() {
            self.connections.remove(address);
        }
        answer
    }
}
