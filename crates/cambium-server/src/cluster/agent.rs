//! The thread that talks to etcd: it keeps the node's lease, reads how the cluster is, brings
//! that to the executor, and changes chains if this node is the controller.
//!
//! A turn renews the lease, then reads everything. What it reads makes the node's view fresh
//! for half a lease from the moment the turn *began*, so a node that is paused, or cut off
//! from etcd, stops serving before its lease ends. Turns follow each other at a tenth of the
//! lease, and at once when a watch says that something has changed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cambium_cluster::control;
use cambium_cluster::topology::{Meta, Node, Progress, Report};
use cambium_foreign::etcd::{self, Change, Compare};
use cambium_foreign::registry::{Registry, Seen};
use cambium_io::environment::Clock;

use super::ChainEvent;
use super::join::{self, Joined, Wanted};
use crate::mailbox::Mailbox;
use crate::messages::Event;

/// A message to the agent.
#[derive(Debug)]
pub enum Word {
    /// Something may have changed.
    Refresh,
    /// A member's report about its successor.
    Report(u16, Report),
    /// How far this node has brought its successors up, by partition.
    Progress(BTreeMap<u16, Progress>),
    /// The server is to stop: other members become the heads of its chains.
    StepDown,
    /// The server stops.
    Stop,
}

/// The agent.
pub struct Agent {
    registry: Registry,
    joined: Joined,
    node: Node,
    lease: Option<i64>,
    inbox: Arc<Mailbox<Event>>,
    words: Arc<Mailbox<Word>>,
    clock: Arc<dyn Clock>,
    /// Reports that etcd does not have yet.
    reports: BTreeMap<u16, Report>,
    /// The same of progress.
    progress: Option<BTreeMap<u16, Progress>>,
    /// The server is to stop.
    steps_down: bool,
    /// The last failure, which is told once.
    failure: Option<String>,
}

impl Agent {
    /// An agent for a store that has joined.
    ///
    /// # Errors
    /// A line for people: another node has this name.
    pub fn new(
        joined: Joined,
        engine: &str,
        thrift: Option<String>,
        inbox: Arc<Mailbox<Event>>,
        words: Arc<Mailbox<Word>>,
        clock: Arc<dyn Clock>,
    ) -> Result<Agent, String> {
        let registry = joined.wanted.registry(join::PATIENCE)?;
        let node = Node {
            incarnation: joined.incarnation,
            address: joined.wanted.address.clone(),
            thrift,
            version: env!("CARGO_PKG_VERSION").to_string(),
            engine: engine.to_string(),
            store: joined.store.clone(),
        };
        let mut agent = Agent {
            registry,
            joined,
            node,
            lease: None,
            inbox,
            words,
            clock,
            reports: BTreeMap::new(),
            progress: None,
            steps_down: false,
            failure: None,
        };
        agent.register().map_err(|error| error.to_string())?;
        agent.registry = agent.joined.wanted.registry(join::patience(agent.meta()))?;
        Ok(agent)
    }

    fn meta(&self) -> &Meta {
        &self.joined.meta
    }

    /// Takes a lease, and registers the node under it. The record of an earlier start of this
    /// store is replaced: the store's lock says that that process has ended.
    fn register(&mut self) -> etcd::Result<()> {
        let lease = self.registry.etcd.grant(self.meta().lease_seconds)?;
        let key = self.registry.node_key(&self.joined.wanted.node);
        let value = serde_json::to_vec(&self.node).unwrap_or_default();
        let change = [Change::Put(key.clone(), value, Some(lease))];
        let (_, entries) = self.registry.etcd.read(&key)?;
        let compare = match entries.iter().find(|entry| entry.key == key) {
            None => Compare::Missing(key),
            Some(entry) => {
                let other: Option<Node> = serde_json::from_slice(&entry.value).ok();
                if other.is_none_or(|other| other.store != self.node.store) {
                    _ = self.registry.etcd.revoke(lease);
                    return Err(etcd::Error(format!(
                        "node {} is there already, with another store: give this one another \
                         --name, or wait {} seconds if its disk was replaced",
                        self.joined.wanted.node,
                        self.meta().lease_seconds
                    )));
                }
                Compare::Changed(key, entry.changed)
            }
        };
        match self.registry.etcd.transact(&[compare], &change)? {
            true => self.lease = Some(lease),
            false => _ = self.registry.etcd.revoke(lease),
        }
        Ok(())
    }

    /// Runs until [`Word::Stop`]; then gives the lease up, so that others go on at once.
    pub fn run(mut self) {
        let interval = Duration::from_secs(self.meta().lease_seconds) / 10;
        let mut words = Vec::new();
        loop {
            match self.turn() {
                Ok(()) => {
                    if self.failure.take().is_some() {
                        tracing::info!("etcd answers again");
                    }
                }
                Err(error) => {
                    let text = error.to_string();
                    if self.failure.as_ref() != Some(&text) {
                        tracing::warn!(error = text, "no view of the cluster");
                        self.failure = Some(text);
                    }
                }
            }
            self.words.wait(Some(interval));
            self.words.take(&mut words);
            for word in words.drain(..) {
                match word {
                    Word::Refresh => {}
                    Word::Report(partition, report) => _ = self.reports.insert(partition, report),
                    Word::Progress(progress) => self.progress = Some(progress),
                    Word::StepDown => self.steps_down = true,
                    Word::Stop => {
                        if let Some(lease) = self.lease {
                            // Without it the lease ends by itself.
                            _ = self.registry.etcd.revoke(lease);
                        }
                        return;
                    }
                }
            }
        }
    }

    fn turn(&mut self) -> etcd::Result<()> {
        let begun = self.clock.monotonic();
        if let Some(lease) = self.lease {
            if !self.registry.etcd.keep_alive(lease)? {
                self.lease = None;
            }
        }
        if self.lease.is_none() {
            self.register()?;
        }
        let Some(lease) = self.lease else {
            return Ok(());
        };
        let mut seen = self.see()?;
        if seen.view.nodes.get(&self.joined.wanted.node) != Some(&self.node) {
            self.lease = None;
            return Ok(());
        }
        let until = begun + Duration::from_secs(self.meta().lease_seconds) / 2;
        self.show(&seen, until);
        if !self.reports.is_empty() {
            let mut reports = std::mem::take(&mut self.reports);
            let sent = send_all(&mut reports, |partition, report| {
                self.report(partition, report, &seen)
            });
            self.reports = reports;
            sent?;
            seen = self.see()?;
        }
        if let Some(progress) = &self.progress {
            let key = self
                .registry
                .key(&format!("progress/{}", self.joined.wanted.node));
            let value = serde_json::to_vec(progress).unwrap_or_default();
            // It ends with the node.
            let put = Change::Put(key, value, Some(lease));
            self.registry.etcd.transact(&[], &[put])?;
            self.progress = None;
        }
        if seen.controller.is_none() {
            self.stand(lease)?;
            seen = self.see()?;
        }
        if self.step_down(&seen)? + self.control(&seen)? > 0 {
            seen = self.see()?;
            self.show(&seen, until);
        }
        Ok(())
    }

    /// Brings the executor a view, which is fresh until a moment.
    fn show(&self, seen: &Seen, until: Duration) {
        let view = Arc::new(seen.view.clone());
        self.inbox
            .send([Event::Chain(ChainEvent::View(view, until))]);
    }

    /// Stands for the election of a controller.
    fn stand(&self, lease: i64) -> etcd::Result<()> {
        let key = self.registry.key("controller");
        let name = self.joined.wanted.node.clone().into_bytes();
        let put = Change::Put(key.clone(), name, Some(lease));
        if self
            .registry
            .etcd
            .transact(&[Compare::Missing(key)], &[put])?
        {
            tracing::info!("this node controls the cluster");
        }
        Ok(())
    }

    fn see(&self) -> etcd::Result<Seen> {
        self.registry.read(self.meta())
    }

    /// Lets other members become the heads of this node's chains, if the server is to stop.
    fn step_down(&self, seen: &Seen) -> etcd::Result<usize> {
        if !self.steps_down {
            return Ok(0);
        }
        let changes = control::step_down(&seen.view, &self.joined.wanted.node);
        for (partition, chain) in &changes {
            self.registry.change(seen, *partition, chain, None)?;
        }
        Ok(changes.len())
    }

    /// Changes the chains that have to be, if this node is the controller.
    fn control(&self, seen: &Seen) -> etcd::Result<usize> {
        let Some((name, elected)) = &seen.controller else {
            return Ok(0);
        };
        if *name != self.joined.wanted.node {
            return Ok(0);
        }
        let mut count = 0;
        for (partition, chain) in control::decide(&seen.view) {
            let controls = Compare::Created(self.registry.key("controller"), *elected);
            let is_done = self
                .registry
                .change(seen, partition, &chain, Some(controls))?;
            count += usize::from(is_done);
        }
        Ok(count)
    }

    fn report(&self, partition: u16, report: Report, seen: &Seen) -> etcd::Result<()> {
        let chain = seen.view.chains.get(usize::from(partition));
        let is_old = chain.is_none_or(|chain| chain.epoch != report.epoch);
        if is_old || seen.view.reports.get(&partition) == Some(&report) {
            return Ok(());
        }
        let key = self.registry.key(&format!("reports/{partition:05}"));
        let value = serde_json::to_vec(&report).unwrap_or_default();
        self.registry
            .etcd
            .transact(&[], &[Change::Put(key, value, None)])
            .map(drop)
    }
}

/// Sends reports until one fails. It stays, with those behind it, for the next turn: the
/// executor reports a successor once an epoch.
fn send_all<E>(
    reports: &mut BTreeMap<u16, Report>,
    mut send: impl FnMut(u16, Report) -> Result<(), E>,
) -> Result<(), E> {
    while let Some(first) = reports.first_entry() {
        send(*first.key(), first.get().clone())?;
        first.remove();
    }
    Ok(())
}

/// Tells the agent at once of what changes in etcd. Without it, it looks by itself.
pub fn watch(wanted: &Wanted, words: &Mailbox<Word>, is_over: &dyn Fn() -> bool) {
    const TURN: Duration = Duration::from_secs(30);
    const PAUSE: Duration = Duration::from_secs(1);
    let Ok(registry) = wanted.registry(TURN) else {
        return;
    };
    let prefix = registry.key("");
    while !is_over() {
        let watched = registry.etcd.watch(&prefix, TURN, || {
            words.send([Word::Refresh]);
            !is_over()
        });
        if watched.is_err() {
            // Each turn ends with an error: its time is over, or etcd is away.
            std::thread::sleep(PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_that_etcd_does_not_take_is_sent_again() {
        let report = |partition: u16| (partition, Report::default());
        let mut reports: BTreeMap<u16, Report> = (0..4).map(report).collect();
        let mut sent = Vec::new();
        for fails_at in [2, 3, 9] {
            let all = send_all(&mut reports, |partition, _| {
                sent.push(partition);
                if partition == fails_at {
                    Err(())
                } else {
                    Ok(())
                }
            });
            assert_eq!(all.is_err(), fails_at < 4);
        }
        assert_eq!(sent, [0, 1, 2, 2, 3, 3]);
        assert!(reports.is_empty());
    }
}
