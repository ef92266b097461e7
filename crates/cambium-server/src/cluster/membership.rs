//! Starting what makes a server a node of a cluster.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cambium::Store;
use cambium_io::Environment;
use cambium_io::sync::atomic::{AtomicBool, Ordering};

use super::agent::{self, Agent};
use super::catch_up::{self, History, MARK_INTERVAL};
use super::chains::Chains;
use super::join::Joined;
use super::link::Shared;
use super::window::Window;
use crate::keyspace::Keyspace;
use crate::keyspace::partitions::Partitions;
use crate::mailbox::Mailbox;
use crate::messages::Event;
use crate::tls::Tls;

/// The parts that a node needs to take part.
pub struct Membership<'a> {
    /// The cluster.
    pub joined: Joined,
    /// The node's store.
    pub store: &'a Store,
    /// Its clock and random numbers.
    pub environment: &'a Environment,
    /// To the executor.
    pub inbox: &'a Arc<Mailbox<Event>>,
    /// The password of every node.
    pub password: Option<String>,
    /// The certificate that nodes show each other.
    pub tls: Option<Arc<Tls>>,
    /// The port of its Thrift service.
    pub thrift_port: Option<u16>,
    /// Batches are stable behind a sync.
    pub is_synced: bool,
}

impl Membership<'_> {
    /// Registers the node and starts its threads, which end after [`Chains::stop`].
    ///
    /// # Errors
    /// A line for people.
    pub fn start(
        self,
        keyspace: &mut Keyspace,
    ) -> Result<(Chains, Vec<thread::JoinHandle<()>>), String> {
        let Joined {
            wanted,
            meta,
            incarnation,
            ..
        } = &self.joined;
        let count = meta.partitions as u8;
        let lease = Duration::from_secs(meta.lease_seconds);
        let partitions = Partitions::load(self.store, count, &wanted.node, *incarnation)
            .map_err(|error| error.to_string())?;
        keyspace.partitions = Some(partitions);
        keyspace.notices.one_database = true;
        let history = Arc::new(History::new(self.store.clone(), count, self.is_synced));
        let words: Arc<Mailbox<agent::Word>> = Arc::default();
        let clock = self.environment.clock.clone();
        let shared = Shared {
            me: wanted.node.clone(),
            cluster: meta.id.clone(),
            password: self.password.clone(),
            tls: self.tls.clone(),
            inbox: self.inbox.clone(),
            agent: words.clone(),
            window: Arc::new(Window::new(usize::from(count))),
            history: history.clone(),
            clock: clock.clone(),
            accusations: Arc::default(),
            lease,
        };
        let wanted = wanted.clone();
        let engine = self.store.capabilities().engine;
        let (inbox, heard) = (self.inbox.clone(), words.clone());
        let host = wanted.address.rsplit_once(':').map_or("", |(host, _)| host);
        let thrift = self.thrift_port.map(|port| format!("{host}:{port}"));
        let agent = Agent::new(self.joined, engine, thrift, inbox, heard, clock)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let failed = |error: std::io::Error| format!("cannot start a thread: {error}");
        let named = |name: &str| thread::Builder::new().name(name.to_string());
        let over = is_over.clone();
        let agent = named("agent").spawn(move || {
            agent.run();
            over.store(true, Ordering::Release);
        });
        let over = is_over.clone();
        // It waits for etcd, which may be silent: the process ends without it.
        let watcher = named("watch").spawn(move || {
            agent::watch(&wanted, &words, &|| over.load(Ordering::Acquire));
        });
        watcher.map_err(failed)?;
        let keeper = named("marks").spawn(move || {
            let is_over = || is_over.load(Ordering::Acquire);
            let sleep = |time: Duration| {
                let begun = std::time::Instant::now();
                while begun.elapsed() < time && !is_over() {
                    thread::sleep(MARK_INTERVAL / 20);
                }
            };
            catch_up::keep(&history, &sleep, &is_over);
        });
        let threads = vec![agent.map_err(failed)?, keeper.map_err(failed)?];
        let chains = Chains::new(shared, usize::from(count), self.is_synced);
        Ok((chains, threads))
    }
}
