//! What the simulated nodes need of etcd: values, leases, and transactions that compare.

use std::collections::BTreeMap;

use cambium_cluster::topology::{Chain, Node, Report, State, View};

use crate::world::{Bug, LEASE};

/// Nodes with their registrations.
pub type Registered = BTreeMap<String, u64>;

pub struct Etcd {
    pub view: View,
    /// When each node's lease ends.
    leases: BTreeMap<String, u64>,
    /// The nodes that are there, with what changes when one registers anew.
    registered: Registered,
    registrations: u64,
    controller: Option<(String, u64)>,
    bug: Option<Bug>,
}

impl Etcd {
    pub fn new(view: View, bug: Option<Bug>) -> Etcd {
        Etcd {
            view,
            leases: BTreeMap::new(),
            registered: Registered::new(),
            registrations: 0,
            controller: None,
            bug,
        }
    }

    /// Ends the leases that nobody has renewed.
    pub fn expire(&mut self, now: u64) {
        self.leases.retain(|_, end| *end > now);
        let leases = &self.leases;
        self.view.nodes.retain(|name, _| leases.contains_key(name));
        self.registered.retain(|name, _| leases.contains_key(name));
        self.controller = self.controller.take().filter(|(name, incarnation)| {
            self.view
                .nodes
                .get(name)
                .is_some_and(|node| node.incarnation == *incarnation)
        });
    }

    /// Renews a node's lease, or registers it, and answers what there is; to the controller
    /// with the registrations.
    pub fn renew(&mut self, name: &str, node: &Node, now: u64) -> (View, Option<Registered>) {
        if self.view.nodes.get(name) != Some(node) {
            self.registrations += 1;
            self.registered.insert(name.to_string(), self.registrations);
        }
        self.leases.insert(name.to_string(), now + LEASE);
        self.view.nodes.insert(name.to_string(), node.clone());
        self.expire(now);
        if self.controller.is_none() {
            self.controller = Some((name.to_string(), node.incarnation));
        }
        self.view.revision += 1;
        let decides = self.is_controller(name, node.incarnation);
        (self.view.clone(), decides.then(|| self.registered.clone()))
    }

    fn is_controller(&self, name: &str, incarnation: u64) -> bool {
        self.controller
            .as_ref()
            .is_some_and(|(of, at)| of == name && *at == incarnation)
    }

    /// Changes a chain, if it is what the controller has seen, and it is the controller still.
    pub fn change(
        &mut self,
        (name, incarnation): (&str, u64),
        (seen, registered): (u64, &Registered),
        mut chain: Chain,
    ) {
        let before = &self.view.chains[0];
        let checks = self.bug != Some(Bug::StaleController);
        if checks && (before.epoch != seen || !self.is_controller(name, incarnation)) {
            return;
        }
        // One that has registered since may serve by the chain that it has read.
        let is_as_seen = |node: &String| self.registered.get(node) == registered.get(node);
        let nodes = before.members.iter().map(|member| &member.node);
        if self.bug != Some(Bug::UnseenReturn) && !nodes.into_iter().all(is_as_seen) {
            return;
        }
        if self.bug == Some(Bug::EarlyServing) {
            for member in &mut chain.members {
                if member.state == State::Syncing {
                    member.state = State::Serving;
                }
            }
        }
        if self.bug == Some(Bug::NoWaiting) {
            chain.fence = 0;
        }
        chain.epoch = chain.epoch.max(self.view.chains[0].epoch + 1);
        self.view.chains[0] = chain;
    }

    pub fn report(&mut self, report: Report) {
        self.view.reports.insert(0, report);
    }
}
