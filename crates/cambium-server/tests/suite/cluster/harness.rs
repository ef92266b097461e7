//! etcd, nodes in processes of their own, and a client that finds its way.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use cambium_cluster::topology::{Acknowledgement, Chain, Meta, State, VERSION, View};
use cambium_foreign::access::Access;
use cambium_foreign::registry::{Registry, Seen};
use tempfile::TempDir;

use super::proxy::Proxy;
use crate::client::Client;
use crate::harness::{Server, folder};

/// Seconds; the least that etcd takes.
pub const LEASE: u64 = 2;
/// Longer than any of what is waited for takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// An address of this process alone: Linux has all of 127.0.0.0/8. No connection to elsewhere
/// takes one of its ports, and a node finds its port free when it starts again.
pub fn free_address() -> String {
    static PORT: AtomicU16 = AtomicU16::new(10_000);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let port = PORT.fetch_add(1, Ordering::Relaxed);
    format!("127.{}.{middle}.{low}:{port}", 64 + high % 64)
}

/// A folder for etcd. Where it can be it is in memory: on a disk, each of etcd's syncs waits for
/// what other tests write, longer than a lease lasts.
fn folder_in_memory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| folder())
}

/// etcd, with one member or several.
pub struct Etcd {
    members: Vec<Member>,
    /// Where it serves.
    pub url: String,
}

struct Member {
    process: Option<Child>,
    folder: TempDir,
    url: String,
    /// For the other members.
    peer: String,
    extra: Vec<String>,
}

impl Etcd {
    pub fn start(count: usize) -> Etcd {
        Etcd::start_with(count, "http", &[])
    }

    /// The same with a scheme for clients, and more arguments.
    pub fn start_with(count: usize, scheme: &str, extra: &[String]) -> Etcd {
        let member = |_| Member {
            process: None,
            folder: folder_in_memory(),
            url: format!("{scheme}://{}", free_address()),
            extra: extra.to_vec(),
            peer: format!("http://{}", free_address()),
        };
        let members: Vec<Member> = (0..count).map(member).collect();
        let urls: Vec<&str> = members.iter().map(|member| &*member.url).collect();
        let url = urls.join(",");
        let mut etcd = Etcd { members, url };
        etcd.resume();
        etcd
    }

    /// Kills a member, as `kill -9` does.
    pub fn kill(&mut self, member: usize) {
        let count = self.members.len();
        if let Some(mut process) = self.members[member % count].process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// It answers nothing until [`Etcd::resume`].
    pub fn pause(&self, member: usize) {
        self.members[member % self.members.len()].signal("STOP");
    }

    /// All members run.
    pub fn resume(&mut self) {
        let names = self.members.iter().enumerate();
        let peers: Vec<String> = names
            .map(|(place, member)| format!("e{place}={}", member.peer))
            .collect();
        for (place, member) in self.members.iter_mut().enumerate() {
            match member.process {
                Some(_) => member.signal("CONT"),
                None => member.start(&format!("e{place}"), &peers.join(",")),
            }
        }
    }

    pub fn registry(&self, name: &str) -> Registry {
        let urls: Vec<String> = self.url.split(',').map(str::to_string).collect();
        Registry::new(&urls, &Access::default(), name, Duration::from_secs(2)).unwrap()
    }
}

impl Member {
    fn start(&mut self, name: &str, peers: &str) {
        let (url, peer) = (&self.url, &self.peer);
        let process = Command::new("etcd")
            .args(["--name", name, "--data-dir"])
            .arg(self.folder.path())
            .args(["--listen-client-urls", url, "--advertise-client-urls", url])
            .args(["--listen-peer-urls", peer])
            .args(["--initial-advertise-peer-urls", peer])
            .args(["--initial-cluster", peers])
            .args(&self.extra)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("etcd is installed: on Debian, apt-get install etcd-server");
        self.process = Some(process);
    }

    fn signal(&self, name: &str) {
        let Some(process) = &self.process else {
            return;
        };
        let status = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(process.id().to_string())
            .status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|member| self.kill(member));
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
    /// The ways to the nodes, which the nodes advertise. Clients do not take them.
    pub ways: Vec<Proxy>,
    /// The ways from the nodes to etcd.
    pub etcd_ways: Vec<Proxy>,
    /// Those that run.
    pub nodes: Vec<Option<Server>>,
    /// By node: the program that starts it, with its arguments; none starts it directly.
    pub starters: Vec<Vec<String>>,
    /// Nodes and etcd are reached directly, and not by [`Cluster::ways`].
    pub is_direct: bool,
    /// Given to nodes that start from now on.
    pub extra: Vec<String>,
    /// Where the nodes write their logs; only errors, to the test's own output, without it.
    pub logs: Option<PathBuf>,
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
        let mut cluster = Cluster::make(engine, durability, acknowledgement, 1);
        (0..3).for_each(|node| cluster.start_node(node));
        cluster.settle();
        cluster
    }

    /// Makes a cluster whose nodes have not started yet, and etcd.
    pub fn make(
        engine: &'static str,
        durability: &'static str,
        acknowledgement: Acknowledgement,
        etcd_members: usize,
    ) -> Cluster {
        Cluster::over(
            Etcd::start(etcd_members),
            LEASE,
            engine,
            durability,
            acknowledgement,
        )
    }

    /// The same over an etcd that runs, with a lease of so many seconds.
    pub fn over(
        etcd: Etcd,
        lease_seconds: u64,
        engine: &'static str,
        durability: &'static str,
        acknowledgement: Acknowledgement,
    ) -> Cluster {
        let registry = etcd.registry("main");
        let meta = Meta {
            version: VERSION,
            id: "of-a-test".into(),
            partitions: 4,
            replicas: 3,
            nodes: 3,
            acknowledgement,
            lease_seconds,
            seed: 7,
        };
        eventually("etcd answers", || registry.make(&meta).is_ok());
        let mut cluster = Cluster {
            etcd,
            registry,
            meta,
            places: Vec::new(),
            ways: Vec::new(),
            etcd_ways: Vec::new(),
            nodes: Vec::new(),
            starters: Vec::new(),
            is_direct: false,
            extra: Vec::new(),
            logs: None,
            engine,
            durability,
        };
        (0..3).for_each(|_| cluster.add_place());
        cluster
    }

    fn add_place(&mut self) {
        let address = free_address();
        let etcd: Vec<&str> = self.etcd.url.split(',').collect();
        let etcd = etcd.iter().map(|url| url.trim_start_matches("http://"));
        self.ways.push(Proxy::start([&*address]));
        self.etcd_ways.push(Proxy::start(etcd));
        self.places.push((folder(), address));
        self.nodes.push(None);
        self.starters.push(Vec::new());
    }

    /// One more node, which has no copies yet.
    pub fn grow(&mut self) -> usize {
        self.add_place();
        let node = self.nodes.len() - 1;
        self.start_node(node);
        let name = name(node);
        eventually("the node is there", || {
            self.view().nodes.contains_key(&name)
        });
        node
    }

    pub fn start_node(&mut self, node: usize) {
        assert!(self.try_start_node(node), "the node does not start");
    }

    /// Starts a node; false if it ends at once, as where it cannot reach etcd.
    pub fn try_start_node(&mut self, node: usize) -> bool {
        let (folder, address) = &self.places[node];
        let urls = self.etcd_ways[node].addresses.iter();
        let urls: Vec<String> = urls.map(|address| format!("http://{address}")).collect();
        let mut words = match self.is_direct {
            true => arguments(&self.etcd.url, &name(node), address),
            false => arguments(&urls.join(","), &name(node), self.ways[node].address()),
        };
        let own = ["--engine", self.engine, "--durability", self.durability];
        words.extend(own.map(str::to_string));
        words.extend(self.extra.iter().cloned());
        if self.engine == "alphard" && !folder.path().join("store").exists() {
            words.extend(["--set", "size=64MiB"].map(str::to_string));
        }
        let errors = match &self.logs {
            None => Stdio::inherit(),
            Some(logs) => {
                words.extend(["--log-level", "info"].map(str::to_string));
                let path = logs.join(name(node));
                let log = File::options().create(true).append(true).open(path);
                log.unwrap().into()
            }
        };
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let starter = &self.starters[node];
        let server = Server::try_start_by(starter, folder.path(), address, &words, errors);
        self.nodes[node] = server.ok();
        self.nodes[node].is_some()
    }

    pub fn kill(&mut self, node: usize) {
        if let Some(server) = self.nodes[node].take() {
            server.kill();
        }
    }

    pub fn seen(&self) -> Seen {
        let mut seen = None;
        eventually("etcd answers", || {
            seen = self.registry.read(&self.meta).ok();
            seen.is_some()
        });
        seen.unwrap()
    }

    pub fn view(&self) -> View {
        self.seen().view
    }

    /// Waits until all members of all chains serve.
    pub fn settle(&self) {
        let is_whole = |chain: &Chain| {
            let mut members = chain.members.iter();
            chain.members.len() == 3 && members.all(|member| member.state == State::Serving)
        };
        let begun = Instant::now();
        loop {
            let chains = self.view().chains;
            let Some(chain) = chains.iter().find(|chain| !is_whole(chain)) else {
                return;
            };
            assert!(
                begun.elapsed() < PATIENCE,
                "{chain:?} does not become whole"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A client that reads and writes at heads.
    pub fn client(&self) -> ClusterClient {
        let direct = |(way, (_, address)): (&Proxy, &(TempDir, String))| {
            (way.address().to_string(), address.clone())
        };
        let addresses = self.places.iter().map(|(_, address)| address.clone());
        ClusterClient {
            addresses: addresses.collect(),
            direct: self.ways.iter().zip(&self.places).map(direct).collect(),
            connections: HashMap::new(),
            turn: 0,
            is_readonly: false,
            node: 0,
        }
    }

    /// A client that reads at any member.
    pub fn reader(&self) -> ClusterClient {
        let mut client = self.client();
        client.is_readonly = true;
        client
    }
}

/// A client that follows redirections.
pub struct ClusterClient {
    addresses: Vec<String>,
    /// The nodes' own addresses, by those that they advertise.
    direct: HashMap<String, String>,
    connections: HashMap<String, Client>,
    turn: usize,
    is_readonly: bool,
    /// The node that was called last.
    pub node: usize,
}

impl ClusterClient {
    /// The node to begin with from now on.
    pub fn turn_to(&mut self, node: usize) {
        self.turn = node;
    }

    /// Calls until a node answers the command itself; `None` if it may be done or not.
    pub fn try_call(&mut self, words: &[&str]) -> Option<String> {
        let mut address = self.addresses[self.turn % self.addresses.len()].clone();
        for _ in 0..5 {
            let answer = self.call_at(&address, words);
            match answer.as_deref() {
                Some(answer) if answer.starts_with("-MOVED") => {
                    let advertised = answer.rsplit(' ').next()?;
                    // A node that came later is reached as it says.
                    let direct = self.direct.get(advertised);
                    address = direct.map_or(advertised, String::as_str).to_string();
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
        let is_called = |of: &String| of == address;
        self.node = self.addresses.iter().position(is_called).unwrap_or(0);
        if !self.connections.contains_key(address) {
            let mut client = Client::try_connect(address)?;
            if self.is_readonly {
                client.try_send(b"READONLY\r\n").ok()?;
                client.try_answer()?;
            }
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
