//! A cluster as it stands in etcd: reading all of it, and changing its chains.
//!
//! The keys and their values are those of [`cambium_cluster::topology`].

use std::collections::BTreeMap;
use std::time::Duration;

use cambium_cluster::topology::{Chain, Meta, Node, Progress, VERSION, View};

use crate::access::Access;
use crate::etcd::{Change, Compare, Entry, Error, Etcd, Result};

/// A cluster in etcd.
#[derive(Debug)]
pub struct Registry {
    /// etcd.
    pub etcd: Etcd,
    name: String,
}

/// All of a cluster, with what etcd needs to change it.
#[derive(Debug, Default)]
pub struct Seen {
    /// How the cluster is.
    pub view: View,
    /// By partition: the revision of its chain; 0 if it is not made.
    pub changed: Vec<i64>,
    /// The nodes that are there, with the revisions of their registrations.
    pub registered: BTreeMap<String, i64>,
    /// Members that are brought up, by partition.
    pub progress: BTreeMap<u16, Progress>,
    /// The controller's name, and the revision of its election.
    pub controller: Option<(String, i64)>,
}

impl Registry {
    /// The cluster of a name, at endpoints of etcd; a call takes `patience` at most with each.
    ///
    /// # Errors
    /// An endpoint that is no address; a name that is none; a file that cannot be used.
    pub fn new(
        endpoints: &[String],
        access: &Access,
        name: &str,
        patience: Duration,
    ) -> Result<Registry> {
        check_name(name)?;
        Ok(Registry {
            etcd: Etcd::new(endpoints, access, patience)?,
            name: name.to_string(),
        })
    }

    /// A key of the cluster; an empty `rest` is the prefix of all.
    pub fn key(&self, rest: &str) -> String {
        format!("/cambium/{}/{rest}", self.name)
    }

    /// The key of a node.
    pub fn node_key(&self, node: &str) -> String {
        self.key(&format!("nodes/{node}"))
    }

    /// The settings of the cluster, which never change.
    ///
    /// # Errors
    /// No endpoint answers; there is no such cluster, or it is of another version.
    pub fn meta(&self) -> Result<Meta> {
        let key = self.key("meta");
        let (_, entries) = self.etcd.read(&key)?;
        let entry = entries
            .iter()
            .find(|entry| entry.key == key)
            .ok_or_else(|| {
                Error(format!(
                    "it has no cluster '{}': make it with `cambium cluster init`",
                    self.name
                ))
            })?;
        let meta: Meta = serde_json::from_slice(&entry.value)
            .map_err(|error| Error(format!("{key} is not what this version writes: {error}")))?;
        match meta.version {
            VERSION => Ok(meta),
            other => Err(Error(format!(
                "cluster '{}' is of version {other}, and this program of version {VERSION}",
                self.name
            ))),
        }
    }

    /// Makes the cluster; false if there is one of this name.
    ///
    /// # Errors
    /// No endpoint answers.
    pub fn make(&self, meta: &Meta) -> Result<bool> {
        let key = self.key("meta");
        let value = serde_json::to_vec(meta).unwrap_or_default();
        self.etcd.transact(
            &[Compare::Missing(key.clone())],
            &[Change::Put(key, value, None)],
        )
    }

    /// How the cluster is.
    ///
    /// # Errors
    /// No endpoint answers.
    pub fn read(&self, meta: &Meta) -> Result<Seen> {
        let (revision, entries) = self.etcd.read(&self.key(""))?;
        let count = usize::from(meta.partitions);
        let mut seen = Seen {
            view: View {
                revision: revision as u64,
                meta: Some(meta.clone()),
                chains: vec![Chain::unmade(); count],
                ..View::default()
            },
            changed: vec![0; count],
            ..Seen::default()
        };
        let prefix = self.key("");
        for entry in entries {
            if let Some(rest) = entry.key.strip_prefix(&prefix) {
                seen.take(rest, &entry);
            }
        }
        Ok(seen)
    }

    /// Writes a chain if it and the registrations of its members are as they were seen, and
    /// `also` holds; whether it was written. A member that was gone when it was seen, and has
    /// registered since, may serve by the chain as it was. A new member must not have been
    /// retired since.
    ///
    /// # Errors
    /// No endpoint answers: it may have been written.
    pub fn change(
        &self,
        seen: &Seen,
        partition: u16,
        chain: &Chain,
        also: Option<Compare>,
    ) -> Result<bool> {
        let key = self.key(&format!("chains/{partition:05}"));
        let value = serde_json::to_vec(chain).unwrap_or_default();
        let mut compares: Vec<Compare> = also.into_iter().collect();
        compares.push(match seen.changed[usize::from(partition)] {
            0 => Compare::Missing(key.clone()),
            before => Compare::Changed(key.clone(), before),
        });
        for member in &seen.view.chains[usize::from(partition)].members {
            let node = self.node_key(&member.node);
            compares.push(match seen.registered.get(&member.node) {
                None => Compare::Missing(node),
                Some(at) => Compare::Changed(node, *at),
            });
        }
        let before = &seen.view.chains[usize::from(partition)];
        for member in &chain.members {
            let node = &member.node;
            if before.place(node).is_none() && !seen.view.retired.contains(node) {
                compares.push(Compare::Missing(self.key(&format!("retired/{node}"))));
            }
        }
        self.etcd
            .transact(&compares, &[Change::Put(key, value, None)])
    }

    /// Says that a node is to get no copies by itself, or that it may.
    ///
    /// # Errors
    /// No endpoint answers.
    pub fn retire(&self, node: &str, is_retired: bool) -> Result<()> {
        let key = self.key(&format!("retired/{node}"));
        let change = match is_retired {
            true => Change::Put(key, Vec::new(), None),
            false => Change::Delete(key),
        };
        self.etcd.transact(&[], &[change]).map(drop)
    }
}

impl Seen {
    /// A value that this version cannot read is as if it were not there: nothing is served by
    /// it.
    fn take(&mut self, rest: &str, entry: &Entry) {
        let (kind, name) = rest.split_once('/').unwrap_or((rest, ""));
        let count = self.changed.len();
        let place = name.parse::<u16>().ok();
        let place = place.filter(|place| usize::from(*place) < count);
        match kind {
            "nodes" => {
                if let Ok(node) = serde_json::from_slice::<Node>(&entry.value) {
                    self.view.nodes.insert(name.to_string(), node);
                    self.registered.insert(name.to_string(), entry.changed);
                }
            }
            "retired" => _ = self.view.retired.insert(name.to_string()),
            "progress" => {
                let of_node = serde_json::from_slice::<BTreeMap<u16, Progress>>(&entry.value);
                self.progress.extend(of_node.unwrap_or_default());
            }
            "controller" => {
                let name = String::from_utf8_lossy(&entry.value).into_owned();
                self.controller = Some((name, entry.created));
            }
            "chains" => {
                if let (Some(place), Ok(chain)) = (place, serde_json::from_slice(&entry.value)) {
                    self.view.chains[usize::from(place)] = chain;
                    self.changed[usize::from(place)] = entry.changed;
                }
            }
            "reports" => {
                if let (Some(place), Ok(report)) = (place, serde_json::from_slice(&entry.value)) {
                    self.view.reports.insert(place, report);
                }
            }
            _ => {}
        }
    }
}

/// Refuses a name that is no part of a key.
///
/// # Errors
/// A line for people.
pub fn check_name(name: &str) -> Result<()> {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    match (1..=64).contains(&name.len()) && name.bytes().all(is_known) {
        true => Ok(()),
        false => Err(Error(format!(
            "'{name}': expected a name of 1 to 64 letters, digits, '-', '_' and '.'"
        ))),
    }
}
