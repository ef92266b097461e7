//! etcd, nodes in processes of their own, and a client that finds its way.

use std::collections::HashMap;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use cambium_cluster::topology::{Acknowledgement, Chain, Meta, State, VERSION, View};
use cambium_foreign::access::Access;
use cambium_foreign::registry::{Registry, Seen};
use tempfile::TempDir;

use super::proxy::Proxy;
use crate::client::Client;
pub use crate::harness::eventually;
use crate::harness::{PATIENCE, Server, folder};
use crate::tls::TlsClient;

/// How long a call of etcd may take.
pub const REGISTRY_PATIENCE: Duration = Duration::from_secs(10);
/// Seconds; the least that etcd takes.
pub const LEASE: u64 = 2;
/// The same on a slow machine.
const MOST_LEASE: u64 = 10;
/// A lease lasts so many times as long as etcd needs to start.
const STARTS: u32 = 3;

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
    begun: Instant,
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
        let begun = Instant::now();
        let mut etcd = Etcd {
            members,
            url,
            begun,
        };
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
        Registry::new(&urls, &Access::default(), name, REGISTRY_PATIENCE).unwrap()
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
    /// Certificates that clients trust, in PEM, if the nodes speak TLS.
    pub authority: Option<String>,
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

    /// Makes a cluster whose nodes have not started yet, and etcd. Its lease is as short as the
    /// machine is quick: on a slow one, no chain changes because a node or etcd is late.
    pub fn make(
        engine: &'static str,
        durability: &'static str,
        acknowledgement: Acknowledgement,
        etcd_members: usize,
    ) -> Cluster {
        let etcd = Etcd::start(etcd_members);
        Cluster::over(etcd, LEASE, engine, durability, acknowledgement)
    }

    /// The same over an etcd that has just been started, with a lease of so many seconds at least.
    pub fn over(
        etcd: Etcd,
        least_lease: u64,
        engine: &'static str,
        durability: &'static str,
        acknowledgement: Acknowledgement,
    ) -> Cluster {
        let registry = etcd.registry("main");
        eventually("etcd answers", || registry.etcd.read("/").is_ok());
        let lease = (etcd.begun.elapsed() * STARTS).as_secs();
        let meta = Meta {
            version: VERSION,
            id: "of-a-test".into(),
            partitions: 4,
            replicas: 3,
            nodes: 3,
            acknowledgement,
            lease_seconds: lease.min(MOST_LEASE).max(least_lease),
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
            authority: None,
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
        let mut view = View::default();
        eventually("the node is there", || {
            view = self.view();
            view.nodes.contains_key(&name)
        });
        self.learn(&view);
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

    /// How long a node counts as alive that is silent.
    pub fn lease(&self) -> Duration {
        Duration::from_secs(self.meta.lease_seconds)
    }

    /// Waits until all members of all chains serve, and every node that runs knows that.
    pub fn settle(&self) {
        let is_whole = |chain: &Chain| {
            let mut members = chain.members.iter();
            chain.members.len() == 3 && members.all(|member| member.state == State::Serving)
        };
        let mut view = View::default();
        eventually("all chains are whole", || {
            view = self.view();
            view.chains.iter().all(is_whole)
        });
        self.learn(&view);
    }

    /// Waits until every node that runs knows what etcd has, and serves by that.
    fn learn(&self, view: &View) {
        self.all_say("the nodes know of the chains", |info| {
            let field = |name: &str| {
                let line = info.lines().find_map(|line| line.strip_prefix(name))?;
                line.parse::<u64>().ok()
            };
            field("view_fresh:") == Some(1)
                && field("chains_catching_up:") == Some(0)
                && field("view_revision:") >= Some(view.revision)
        });
    }

    /// Waits until no member lacks a batch of its predecessor.
    pub fn hand_on(&self) {
        self.all_say("the members have all batches", |info| {
            info.contains("lag_batches_of_all_chains:0\r")
        });
    }

    fn all_say(&self, what: &str, test: impl Fn(&str) -> bool) {
        let nodes = self.nodes.iter().zip(&self.places);
        for (_, (_, address)) in nodes.filter(|(node, _)| node.is_some()) {
            let begun = Instant::now();
            let mut info = self.info(address);
            while !info.as_deref().is_some_and(&test) {
                assert!(
                    begun.elapsed() < PATIENCE,
                    "{what}, not {info:?} in {:?}",
                    self.view()
                );
                std::thread::sleep(Duration::from_millis(20));
                info = self.info(address);
            }
        }
    }

    /// How a node says that it stands in the cluster.
    fn info(&self, address: &str) -> Option<String> {
        let Some(authority) = &self.authority else {
            let mut client = Client::try_connect(address, PATIENCE)?;
            client.try_send(b"INFO cluster\r\n").ok()?;
            return client.try_answer();
        };
        let mut client = TlsClient::connect(address, "127.0.0.1", authority);
        client.send(b"INFO cluster\r\n");
        String::from_utf8(client.try_bulk()?).ok()
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
            patience: self.lease(),
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

/// How long the clients of [`beside`] go on.
pub struct Course {
    /// When they end, if what they stand beside has ended.
    until: OnceLock<Instant>,
}

impl Course {
    /// Whether a client goes on that has had enough answers, or not: on a slow machine it takes
    /// long until it has.
    pub fn goes_on(&self, has_enough: bool) -> bool {
        let until = self.until.get();
        until.is_none_or(|until| !has_enough && Instant::now() < *until)
    }
}

/// Runs each client in a thread until `disturb` has ended, and gives what they return.
pub fn beside<C: Send, T: Send>(
    clients: Vec<C>,
    client: impl Fn(usize, C, &Course) -> T + Sync,
    disturb: impl FnOnce(),
) -> Vec<T> {
    let course = Course {
        until: OnceLock::new(),
    };
    std::thread::scope(|scope| {
        let (client, course) = (&client, &course);
        let clients: Vec<_> = (0..)
            .zip(clients)
            .map(|(number, own)| scope.spawn(move || client(number, own, course)))
            .collect();
        // A test that fails ends its clients.
        let outcome = catch_unwind(AssertUnwindSafe(disturb));
        let patience = if outcome.is_ok() {
            PATIENCE
        } else {
            Duration::ZERO
        };
        _ = course.until.set(Instant::now() + patience);
        if let Err(failure) = outcome {
            resume_unwind(failure);
        }
        let clients = clients.into_iter();
        clients.map(|client| client.join().unwrap()).collect()
    })
}

/// A client that follows redirections.
pub struct ClusterClient {
    addresses: Vec<String>,
    /// The nodes' own addresses, by those that they advertise.
    direct: HashMap<String, String>,
    connections: HashMap<String, Client>,
    turn: usize,
    is_readonly: bool,
    /// A node that does not answer for so long is left.
    patience: Duration,
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
        let mut answer = None;
        eventually(command, || {
            answer = self.try_call(&words);
            answer.is_some()
        });
        answer.unwrap()
    }

    /// Calls one node until it answers as a node that serves.
    pub fn ask(&mut self, address: &str, words: &[&str]) -> String {
        let mut answer = String::new();
        eventually("the node answers", || {
            let is_late = |answer: &String| {
                answer.starts_with("-CLUSTERDOWN") || answer.starts_with("-TRYAGAIN")
            };
            let next = self.call_at(address, words);
            answer = next.filter(|next| !is_late(next)).unwrap_or_default();
            !answer.is_empty()
        });
        answer
    }

    /// Calls one node; `None` if the connection ends.
    pub fn call_at(&mut self, address: &str, words: &[&str]) -> Option<String> {
        let is_called = |of: &String| of == address;
        self.node = self.addresses.iter().position(is_called).unwrap_or(0);
        if !self.connections.contains_key(address) {
            let mut client = Client::try_connect(address, self.patience)?;
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
