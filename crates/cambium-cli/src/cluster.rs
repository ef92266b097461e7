//! `cambium cluster`: making, showing and changing a cluster of servers.
//!
//! Everything here reads and writes etcd alone. A change is one transaction a chain. If the chain
//! has changed meanwhile, the command looks at it again. The nodes learn of changes from etcd.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use cambium_cluster::control::{self, Changes};
use cambium_cluster::topology::{
    Acknowledgement, Chain, MOST_MEMBERS, MOST_PARTITIONS, Member, Meta, Progress, State, VERSION,
    View,
};
use cambium_foreign::access::Access;
use cambium_foreign::etcd;
use cambium_foreign::registry::{Registry, Seen};
use cambium_io::Environment;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use crate::failure::{Failure, Status};
use crate::output::print;

/// How long one endpoint may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// A command looks so many times at chains that others change meanwhile, with this pause.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub struct ClusterArguments {
    #[command(subcommand)]
    pub command: ClusterCommand,
    /// Endpoints of etcd, such as http://127.0.0.1:2379
    #[arg(
        long,
        global = true,
        value_name = "URL,...",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:2379"
    )]
    pub etcd: Vec<String>,
    /// A file with the certificate that signs etcd's, in PEM, for https:// endpoints
    #[arg(long, global = true, value_name = "FILE.pem")]
    pub etcd_ca: Option<PathBuf>,
    /// A file with the certificate that this program shows to etcd, in PEM
    #[arg(long, global = true, value_name = "FILE.pem")]
    pub etcd_cert: Option<PathBuf>,
    /// A file with that certificate's private key in PEM
    #[arg(long, global = true, value_name = "FILE.pem")]
    pub etcd_key: Option<PathBuf>,
    /// A user of etcd
    #[arg(long, global = true, value_name = "NAME")]
    pub etcd_user: Option<String>,
    /// A file whose first line is the password of that user
    #[arg(long, global = true, value_name = "F")]
    pub etcd_password_file: Option<PathBuf>,
    /// The cluster's name in etcd
    #[arg(long, global = true, value_name = "NAME", default_value = "main")]
    pub cluster_name: String,
    /// Answer in JSON
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Make a cluster; its chains are made when its nodes are there
    Init(InitArguments),
    /// Nodes, controller, and how many chains are whole; exit status 1 if not all are
    Status,
    /// Every chain: partition, slots, epoch and members
    Chains,
    /// Give a node a copy of each chain that lacks one, and a fair share of all others: first
    /// those of nodes that are away
    Add { node: String },
    /// Move all copies of a node to others; `remove` it when `status` says that it has none
    Drain { node: String },
    /// Take a node out of all chains at once; its copies are made anew on nodes that have none.
    /// Name it twice to remove the only copy that can serve, and to lose what the others lack
    Remove {
        node: String,
        #[arg(hide = true)]
        again: Option<String>,
    },
    /// Move one copy of a partition from a node to another
    Move {
        partition: u16,
        from: String,
        to: String,
    },
    /// Make a member that serves the head of a partition's chain
    Promote { partition: u16, node: String },
    /// Make every node the head of about as many chains as any other, as after a failure
    Balance,
    /// Print each change of a chain as it happens, and how far members are brought up
    Watch,
}

#[derive(Debug, Args)]
pub struct InitArguments {
    /// Nodes that have to be there before the chains are made
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub nodes: u16,
    /// Copies of each partition
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub replicas: u16,
    /// Parts that the keys are divided into: more spread better over more nodes
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub partitions: u16,
    /// When a write is answered
    #[arg(long, value_enum, value_name = "A", default_value = "strong")]
    pub acknowledgement: Acknowledge,
    /// Seconds after which a node that is silent is replaced
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub lease_seconds: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Acknowledge {
    /// When the head has it; a lost head may cost its last writes
    Async,
    /// The same, once it is as safe there as its --durability says
    Local,
    /// When every member that serves has it
    Strong,
}

impl From<Acknowledge> for Acknowledgement {
    fn from(given: Acknowledge) -> Self {
        match given {
            Acknowledge::Async => Acknowledgement::Async,
            Acknowledge::Local => Acknowledgement::Local,
            Acknowledge::Strong => Acknowledgement::Strong,
        }
    }
}

impl From<etcd::Error> for Failure {
    fn from(error: etcd::Error) -> Self {
        Failure::failed(error.to_string())
    }
}

/// Runs a command about a cluster.
pub fn run(arguments: &ClusterArguments) -> Result<Status, Failure> {
    let access = Access {
        ca: arguments.etcd_ca.clone(),
        cert: arguments.etcd_cert.clone(),
        key: arguments.etcd_key.clone(),
        user: arguments.etcd_user.clone(),
        password_file: arguments.etcd_password_file.clone(),
    };
    let registry = Registry::new(&arguments.etcd, &access, &arguments.cluster_name, PATIENCE)
        .map_err(|error| Failure::usage(error.to_string()))?;
    if let ClusterCommand::Init(wanted) = &arguments.command {
        return init(&registry, wanted, &arguments.cluster_name);
    }
    let meta = registry.meta()?;
    let seen = registry.read(&meta)?;
    match &arguments.command {
        ClusterCommand::Status => status(&seen, arguments.json),
        ClusterCommand::Chains => chains(&seen, arguments.json),
        ClusterCommand::Watch => watch(&registry, &meta, seen),
        command => change(&registry, &meta, seen, command),
    }
}

/// The chains that a command changes, of a cluster as it is now.
fn plan(command: &ClusterCommand, view: &View) -> Result<Changes, Failure> {
    planned(command, view).map_err(Failure::usage)
}

fn planned(command: &ClusterCommand, view: &View) -> Result<Changes, String> {
    Ok(match command {
        ClusterCommand::Init(_)
        | ClusterCommand::Status
        | ClusterCommand::Chains
        | ClusterCommand::Watch => Changes::new(),
        ClusterCommand::Balance => control::balance(view),
        ClusterCommand::Add { node } => control::add(view, node)?,
        ClusterCommand::Drain { node } => control::drain(view, node)?,
        ClusterCommand::Remove { node, again } => {
            control::remove(view, node, again.as_ref() == Some(node))?
        }
        ClusterCommand::Move {
            partition,
            from,
            to,
        } => vec![(*partition, control::relocate(view, *partition, from, to)?)],
        ClusterCommand::Promote { partition, node } => {
            let chain = control::chain(view, *partition)?;
            vec![(*partition, control::promote(chain, node)?)]
        }
    })
}

fn init(registry: &Registry, wanted: &InitArguments, name: &str) -> Result<Status, Failure> {
    let bounds = [
        ("--nodes", u64::from(wanted.nodes), 1, 10_000),
        (
            "--replicas",
            u64::from(wanted.replicas),
            1,
            MOST_MEMBERS as u64,
        ),
        (
            "--partitions",
            u64::from(wanted.partitions),
            1,
            u64::from(MOST_PARTITIONS),
        ),
        ("--lease-seconds", wanted.lease_seconds, 2, 3_600),
    ];
    for (option, given, least, most) in bounds {
        if !(least..=most).contains(&given) {
            return Err(Failure::usage(format!(
                "{option} {given}: expected {least} to {most}"
            )));
        }
    }
    if wanted.replicas > wanted.nodes {
        return Err(Failure::usage(format!(
            "--replicas {}: {} nodes cannot hold so many copies of a partition",
            wanted.replicas, wanted.nodes
        )));
    }
    let random = || Environment::real().randomness.next_u64();
    let meta = Meta {
        version: VERSION,
        id: format!("{:016x}", random()),
        partitions: wanted.partitions,
        replicas: wanted.replicas,
        nodes: wanted.nodes,
        acknowledgement: wanted.acknowledgement.into(),
        lease_seconds: wanted.lease_seconds,
        seed: random(),
    };
    if !registry.make(&meta)? {
        return Err(Failure::usage(format!(
            "there is a cluster '{name}' already"
        )));
    }
    print(&format!(
        "Cluster '{name}' is made. Its chains are made when {} nodes are there; start each with\n  \
         cambium-server --dir DIR --cluster etcd=... --name NODE --advertise HOST:PORT\n",
        meta.nodes
    ))?;
    Ok(Status::Done)
}

/// Changes the chains that a command is about. What the controller has changed meanwhile is looked
/// at again.
fn change(
    registry: &Registry,
    meta: &Meta,
    mut seen: Seen,
    command: &ClusterCommand,
) -> Result<Status, Failure> {
    let mut changes = plan(command, &seen.view)?;
    if let ClusterCommand::Drain { node } | ClusterCommand::Remove { node, .. } = command {
        // The controller gives it no chain from now on. It may have done so since the last look.
        registry.retire(node, true)?;
        seen = registry.read(meta)?;
        changes = plan(command, &seen.view)?;
    }
    let mut done = 0;
    for attempt in 1.. {
        let mut missed = 0;
        for (partition, chain) in &changes {
            match registry.change(&seen, *partition, chain, None)? {
                true => done += 1,
                false => missed += 1,
            }
        }
        if missed == 0 {
            break;
        }
        if attempt == ATTEMPTS {
            return Err(Failure::negative(format!(
                "{missed} chains changed each time that they were looked at, and were left: give the command again"
            )));
        }
        thread::sleep(PAUSE);
        seen = registry.read(meta)?;
        changes = plan(command, &seen.view)?;
    }
    if let ClusterCommand::Add { node } = command {
        registry.retire(node, false)?;
    }
    print(&format!(
        "{done} chains are being changed; `cambium cluster status` shows how far they are\n"
    ))?;
    Ok(Status::Done)
}

/// Copies that a node has, those that serve, and chains that it is the head of.
fn duties(seen: &Seen, node: &str) -> (usize, usize, usize) {
    let members = seen.view.chains.iter().flat_map(|chain| &chain.members);
    let own: Vec<&Member> = members.filter(|member| member.node == node).collect();
    let serving = own
        .iter()
        .filter(|member| member.state == State::Serving)
        .count();
    let is_head = |chain: &&Chain| chain.head().is_some_and(|head| head.node == node);
    let heads = seen.view.chains.iter().filter(is_head).count();
    (own.len(), serving, heads)
}

/// How far the member of a chain is that is being brought up.
fn progress<'a>(seen: &'a Seen, partition: u16, member: &Member) -> Option<&'a Progress> {
    let progress = seen.progress.get(&partition);
    progress.filter(|of| of.to == member.node && member.state == State::Syncing)
}

/// All of them: partitions, nodes, and how far they are.
fn catching_up(seen: &Seen) -> Vec<(u16, &Progress)> {
    let chains = (0..).zip(&seen.view.chains);
    let all = chains.flat_map(|(partition, chain)| {
        let members = chain.members.iter();
        members.filter_map(move |member| Some((partition, progress(seen, partition, member)?)))
    });
    all.collect()
}

fn status(seen: &Seen, is_json: bool) -> Result<Status, Failure> {
    let chains = &seen.view.chains;
    let replicas = seen.view.replicas();
    let whole = chains.iter().filter(|chain| chain.is_whole(replicas));
    let whole = whole.count();
    let made = chains.iter().filter(|chain| chain.epoch > 0);
    let missing: usize = made.map(|chain| chain.missing(replicas)).sum();
    let served = chains.iter().filter(|chain| chain.head().is_some()).count();
    let mut names: Vec<&str> = seen.view.nodes.keys().map(String::as_str).collect();
    let members = chains.iter().flat_map(|chain| &chain.members);
    names.extend(members.map(|member| member.node.as_str()));
    names.sort_unstable();
    names.dedup();
    let controller = seen.controller.as_ref().map(|(name, _)| name.as_str());
    if is_json {
        let nodes: Vec<Value> = names
            .iter()
            .map(|name| {
                let (copies, serving, heads) = duties(seen, name);
                let node = seen.view.nodes.get(*name);
                json!({
                    "name": name, "is_there": node.is_some(),
                    "address": node.map(|node| &node.address),
                    "version": node.map(|node| &node.version),
                    "engine": node.map(|node| &node.engine),
                    "copies": copies, "serving": serving, "heads": heads,
                })
            })
            .collect();
        let catching_up: Vec<Value> = catching_up(seen)
            .iter()
            .map(|(partition, of)| {
                json!({
                    "partition": partition, "node": of.to, "is_copy": of.is_copy,
                    "done": of.done, "of": of.of,
                })
            })
            .collect();
        print(&format!(
            "{}\n",
            json!({
                "chains": chains.len(), "served": served, "whole": whole, "missing": missing,
                "controller": controller, "nodes": nodes, "catching_up": catching_up,
            })
        ))?;
    } else {
        let mut text = format!(
            "{} chains: {served} served, {whole} with every copy. Controller: {}\n\n\
             {:<16} {:<22} {:<8} {:<9} {:>6} {:>8} {:>6}\n",
            chains.len(),
            controller.unwrap_or("none"),
            "node",
            "address",
            "engine",
            "version",
            "copies",
            "serving",
            "head of"
        );
        for name in names {
            let (copies, serving, heads) = duties(seen, name);
            let node = seen.view.nodes.get(name);
            let address = node.map_or("away", |node| node.address.as_str());
            let (engine, version) = node.map_or(("", ""), |node| (&*node.engine, &*node.version));
            text += &format!(
                "{name:<16} {address:<22} {engine:<8} {version:<9} {copies:>6} {serving:>8} {heads:>7}\n"
            );
        }
        for (partition, of) in catching_up(seen) {
            text += &format!("chain {partition}: {} has {of}\n", of.to);
        }
        if missing > 0 {
            text += &format!(
                "{missing} copies are missing of {replicas} of each chain: start another node, and \
                 `cambium cluster add` it\n"
            );
        }
        print(&text)?;
    }
    Ok(match whole == chains.len() {
        true => Status::Done,
        false => Status::Negative,
    })
}

fn line(seen: &Seen, partition: u16) -> String {
    let chain = &seen.view.chains[usize::from(partition)];
    let count = seen.view.chains.len() as u16;
    let (first, last) = cambium_cluster::slots::slots_of(partition, count);
    let members = chain.members.iter().map(|member| {
        let leaves = if member.leaving { ", leaves" } else { "" };
        let progress = progress(seen, partition, member);
        let progress = progress.map_or(String::new(), |of| format!(", {of}"));
        format!("{} ({}{progress}{leaves})", member.node, member.state)
    });
    let members: Vec<String> = members.collect();
    format!(
        "{partition:>5} {first:>6}-{last:<6} {:>6}  {}\n",
        chain.epoch,
        members.join(" > ")
    )
}

fn chains(seen: &Seen, is_json: bool) -> Result<Status, Failure> {
    if is_json {
        let chains = serde_json::to_string(&seen.view.chains).unwrap_or_default();
        print(&format!("{chains}\n"))?;
        return Ok(Status::Done);
    }
    let mut text = format!(
        "{:>5} {:>13} {:>6}  members, from head to tail\n",
        "chain", "slots", "epoch"
    );
    for partition in 0..seen.view.chains.len() as u16 {
        text += &line(seen, partition);
    }
    print(&text)?;
    Ok(Status::Done)
}

fn watch(registry: &Registry, meta: &Meta, mut seen: Seen) -> Result<Status, Failure> {
    const TURN: Duration = Duration::from_secs(60);
    loop {
        let mut outcome = Ok(());
        let mut show = || {
            outcome = registry.read(meta).map_err(Failure::from).and_then(|now| {
                for partition in 0..now.view.chains.len() as u16 {
                    let (before, after) = (line(&seen, partition), line(&now, partition));
                    if before != after {
                        print(&after)?;
                    }
                }
                seen = now;
                Ok(())
            });
            outcome.is_ok()
        };
        show();
        // A watch that ends is begun again.
        _ = registry.etcd.watch(&registry.key(""), TURN, show);
        outcome?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn member(node: &str, state: State) -> Member {
        Member {
            node: node.into(),
            state,
            incarnation: 1,
            store: "s".into(),
            since: 1,
            leaving: false,
        }
    }

    #[test]
    fn a_command_that_the_cluster_cannot_do_is_wrong_usage() {
        let mut chain = Chain::unmade();
        chain.members = vec![member("n1", State::Serving), member("n2", State::Serving)];
        let view = View {
            chains: vec![chain],
            ..View::default()
        };
        let (node, of) = (|| "nope".to_string(), |name: &str| name.to_string());
        let commands = [
            ClusterCommand::Move {
                partition: 99,
                from: of("n1"),
                to: of("n2"),
            },
            ClusterCommand::Promote {
                partition: 0,
                node: of("n1"),
            },
            ClusterCommand::Add { node: node() },
            ClusterCommand::Drain { node: node() },
            ClusterCommand::Remove {
                node: node(),
                again: None,
            },
        ];
        for command in commands {
            let refused = plan(&command, &view);
            let is_usage = matches!(
                refused,
                Err(Failure::Stop {
                    status: Status::Usage,
                    ..
                })
            );
            assert!(is_usage, "{command:?}: {refused:?}");
        }
    }

    #[test]
    fn a_member_that_is_brought_up_is_shown_with_what_it_has() {
        let mut chain = Chain::unmade();
        chain.epoch = 7;
        chain.members = vec![
            member("n1", State::Serving),
            member("n2", State::Syncing),
            member("n3", State::Waiting),
        ];
        let mut seen = Seen::default();
        seen.view.chains = vec![chain];
        let shown = |seen: &Seen| {
            line(seen, 0)
                .split_once("7  ")
                .map(|(_, of)| of.to_string())
        };
        let plain = "n1 (serving) > n2 (syncing) > n3 (waiting)\n";
        assert_eq!(shown(&seen).as_deref(), Some(plain));
        let mut progress = Progress {
            to: "n2".into(),
            is_copy: true,
            done: 120,
            of: 240,
        };
        seen.progress = BTreeMap::from([(0, progress.clone())]);
        let copied = "n1 (serving) > n2 (syncing, 120 of about 240 entries) > n3 (waiting)\n";
        assert_eq!(shown(&seen).as_deref(), Some(copied));
        assert_eq!(catching_up(&seen), [(0, &progress)]);
        // Progress is shown of a member that is being brought up alone.
        progress.to = "n3".into();
        seen.progress = BTreeMap::from([(0, progress)]);
        assert_eq!(shown(&seen).as_deref(), Some(plain));
        assert_eq!(catching_up(&seen), []);
    }
}
