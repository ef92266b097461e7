//! Which cluster a store belongs to, and what a node is told at the command line.

use std::net::IpAddr;
use std::time::Duration;

use cambium::Store;
use cambium_cluster::topology::Meta;
use cambium_foreign::access::Access;
use cambium_foreign::registry::{Registry, check_name};
use cambium_io::Environment;

use crate::keyspace::layout;

/// The arguments `--cluster`, `--name` and `--advertise`.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Endpoints of etcd.
    pub endpoints: Vec<String>,
    /// How etcd is reached.
    pub access: Access,
    /// The cluster's name in etcd.
    pub cluster: String,
    /// This node's name.
    pub node: String,
    /// The address for clients and other nodes.
    pub address: String,
}

/// A store that belongs to a cluster that is there.
#[derive(Debug)]
pub struct Joined {
    /// As it was asked for.
    pub wanted: Wanted,
    /// The cluster.
    pub meta: Meta,
    /// Tells this store from a new one on the same node.
    pub store: String,
    /// Tells this start from all others.
    pub incarnation: u64,
}

/// How long a call of etcd may take before the node has a lease.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// The least that it may take of a node with a lease: a fraction of the shortest one.
const LEAST_PATIENCE: Duration = Duration::from_millis(700);

/// How long a call of etcd may take of a node with a lease.
pub fn patience(meta: &Meta) -> Duration {
    LEAST_PATIENCE.max(Duration::from_secs(meta.lease_seconds) / 4)
}

impl Wanted {
    /// Reads `etcd=URL[,URL...]`.
    ///
    /// # Errors
    /// A line for people.
    pub fn parse(
        cluster: &str,
        name: &str,
        node: Option<&String>,
        address: Option<&String>,
    ) -> Result<Wanted, String> {
        let endpoints = cluster.strip_prefix("etcd=").ok_or_else(|| {
            format!("--cluster {cluster}: expected etcd=URL[,URL...], such as etcd=http://127.0.0.1:2379")
        })?;
        let node = node.ok_or("--name is missing: the name of this node in the cluster")?;
        for (option, text) in [("--name", node.as_str()), ("--cluster-name", name)] {
            check_name(text).map_err(|error| format!("{option}: {error}"))?;
        }
        let address =
            address.ok_or("--advertise is missing: HOST:PORT where others reach this node")?;
        check_advertised(address).map_err(|error| format!("--advertise {address}: {error}"))?;
        Ok(Wanted {
            endpoints: endpoints.split(',').map(str::to_string).collect(),
            access: Access::default(),
            cluster: name.to_string(),
            node: node.clone(),
            address: address.clone(),
        })
    }

    /// The cluster in etcd, whose calls take so long at most.
    ///
    /// # Errors
    /// A line for people.
    pub fn registry(&self, patience: Duration) -> Result<Registry, String> {
        Registry::new(&self.endpoints, &self.access, &self.cluster, patience)
            .map_err(|error| error.to_string())
    }
}

/// Clients and other nodes connect to what a node advertises.
fn check_advertised(address: &str) -> Result<(), &'static str> {
    let (host, port) = address
        .rsplit_once(':')
        .filter(|(host, _)| !host.is_empty())
        .ok_or("expected HOST:PORT")?;
    let port: u16 = port.parse().map_err(|_| "expected HOST:PORT")?;
    if port == 0 {
        return Err("expected the port where others reach this node, and not 0");
    }
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(ip) if ip.to_canonical().is_unspecified() => Err(
            "a server listens to this address, but others cannot connect to it: give the one of \
             this machine, such as 10.0.0.1:6379",
        ),
        _ => Ok(()),
    }
}

/// Reads the cluster from etcd, and binds the store to it, or finds that it is bound to it.
///
/// # Errors
/// A line for people: no such cluster, or a store of another one, or of none.
pub fn join(wanted: Wanted, store: &Store, environment: &Environment) -> Result<Joined, String> {
    let meta = wanted
        .registry(PATIENCE)?
        .meta()
        .map_err(|error| error.to_string())?;
    let bound = bind(&wanted, &meta, store, environment)?;
    Ok(Joined {
        wanted,
        meta,
        store: bound,
        incarnation: environment.randomness.next_u64() >> 1,
    })
}

/// The binding is three lines: the cluster's id, the node's name, the copy's id.
fn bind(
    wanted: &Wanted,
    meta: &Meta,
    store: &Store,
    environment: &Environment,
) -> Result<String, String> {
    let failed = |error: cambium::Error| error.to_string();
    let path = store.path().display();
    if let Some(binding) = store.get(layout::BINDING_KEY).map_err(failed)? {
        let text = String::from_utf8_lossy(&binding).into_owned();
        let mut lines = text.lines();
        let (cluster, node) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
        if cluster != meta.id {
            return Err(format!(
                "{path} belongs to the cluster with the id {cluster}, and '{}' has the id {}",
                wanted.cluster, meta.id
            ));
        }
        if node != wanted.node {
            return Err(format!(
                "{path} is the store of node {node}: give --name {node}"
            ));
        }
        return Ok(lines.next().unwrap_or("").to_string());
    }
    if !layout::is_empty(store).map_err(failed)? {
        return Err(format!(
            "{path} has keys that no cluster knows of: join with a new folder, and import them"
        ));
    }
    let id = format!("{:016x}", environment.randomness.next_u64());
    let binding = format!("{}\n{}\n{id}\n", meta.id, wanted.node);
    store
        .put(layout::BINDING_KEY, binding)
        .and_then(|_| store.sync())
        .map_err(failed)?;
    Ok(id)
}

/// Refuses a store of a cluster where no cluster is named.
///
/// # Errors
/// A line for people.
pub fn refuse_bound(store: &Store) -> Result<(), String> {
    match store.get(layout::BINDING_KEY) {
        Ok(None) => Ok(()),
        Ok(Some(_)) => Err(format!(
            "{} belongs to a cluster: give --cluster, --name and --advertise",
            store.path().display()
        )),
        Err(error) => Err(error.to_string()),
    }
}
