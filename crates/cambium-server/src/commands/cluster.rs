//! CLUSTER, as Redis Cluster has it: of the cluster that the server is a node of, or of one
//! that is this server alone.

use cambium_cluster::slots::{SLOTS, partition, slot, slots_of};
use xxhash_rust::xxh3::xxh3_128;

use super::chain::NO_CLUSTER;
use super::{Call, Command, FAST, Failure, Outcome};
use crate::cluster::chains::Chains;
use crate::keyspace::overlay::Walk;

#[rustfmt::skip] // a table
pub const COMMANDS: &[Command] = &[
    Command { name: "cluster", arity: -2, flags: 0, keys: (0, 0, 0), run: cluster, summary: "Commands about the cluster" },
    Command { name: "readonly", arity: 1, flags: FAST, keys: (0, 0, 0), run: readonly, summary: "Enables read queries for a connection to a cluster replica node" },
    Command { name: "readwrite", arity: 1, flags: FAST, keys: (0, 0, 0), run: readonly, summary: "Disables read queries for a connection to a cluster replica node" },
    Command { name: "asking", arity: 1, flags: FAST, keys: (0, 0, 0), run: asking, summary: "Sent by cluster clients after an -ASK redirect" },
];

/// A node as CLUSTER shows it.
#[derive(Clone, Debug)]
struct Shown {
    id: String,
    host: String,
    port: i64,
    is_there: bool,
}

/// Slots that one chain serves: from, to, and the nodes that do, the head first.
struct Range {
    slots: (u16, u16),
    epoch: u64,
    nodes: Vec<Shown>,
}

fn readonly(call: &mut Call<'_>) -> Outcome {
    refuse_alone(call)?;
    call.session.is_readonly = call.command.name == "readonly";
    call.reply().ok();
    Ok(())
}

/// A partition is served by one chain at a time, so there is nothing to ask for.
fn asking(call: &mut Call<'_>) -> Outcome {
    refuse_alone(call)?;
    call.reply().ok();
    Ok(())
}

fn refuse_alone(call: &Call<'_>) -> Outcome {
    match call.server.chains {
        Some(_) => Ok(()),
        None => Err(NO_CLUSTER),
    }
}

/// Clients expect forty hexadecimal digits.
fn id_of(name: &str) -> String {
    format!("{:032x}{:08x}", xxh3_128(name.as_bytes()), name.len())
}

fn shown(call: &Call<'_>, node: &str) -> Shown {
    let address = call
        .server
        .chains
        .as_ref()
        .and_then(|chains| chains.address(node));
    let (host, port) = address
        .and_then(|address| address.rsplit_once(':'))
        .unwrap_or(("", "0"));
    Shown {
        id: id_of(node),
        host: host.to_string(),
        port: port.parse().unwrap_or(0),
        is_there: address.is_some(),
    }
}

/// This server, as its client reaches it.
fn myself(call: &Call<'_>) -> Shown {
    if let Some(chains) = &call.server.chains {
        return shown(call, chains.me());
    }
    let (host, port) = call.session.local.rsplit_once(':').unwrap_or(("", "0"));
    Shown {
        id: call.server.run_id.clone(),
        host: host.to_string(),
        port: port.parse().unwrap_or(0),
        is_there: true,
    }
}

fn ranges(call: &Call<'_>) -> Vec<Range> {
    let Some(chains) = &call.server.chains else {
        return vec![Range {
            slots: (0, SLOTS - 1),
            epoch: 1,
            nodes: vec![myself(call)],
        }];
    };
    let count = chains.view.chains.len() as u16;
    let range = |(number, chain): (u16, &cambium_cluster::topology::Chain)| Range {
        slots: slots_of(number, count),
        epoch: chain.epoch,
        nodes: chain
            .serving()
            .map(|member| shown(call, &member.node))
            .collect(),
    };
    (0..).zip(&chains.view.chains).map(range).collect()
}

fn cluster(call: &mut Call<'_>) -> Outcome {
    if call.is(1, "myid") {
        let id = myself(call).id;
        call.reply().bulk(id);
    } else if call.is(1, "keyslot") {
        let slot = slot(call.argument(2));
        call.reply().integer(i64::from(slot));
    } else if call.is(1, "info") {
        info(call);
    } else if call.is(1, "nodes") {
        nodes(call);
    } else if call.is(1, "slots") {
        slots(call);
    } else if call.is(1, "shards") {
        shards(call);
    } else {
        keys_in_slot(call)?;
    }
    Ok(())
}

fn info(call: &mut Call<'_>) {
    let ranges = ranges(call);
    let served = ranges.iter().filter(|range| !range.nodes.is_empty());
    let served: usize = served
        .map(|range| usize::from(range.slots.1 - range.slots.0) + 1)
        .sum();
    let known = call
        .server
        .chains
        .as_ref()
        .map_or(1, |chains| chains.view.nodes.len());
    let epoch = ranges.iter().map(|range| range.epoch).max().unwrap_or(0);
    let mut heads: Vec<&str> = ranges
        .iter()
        .filter_map(|range| Some(range.nodes.first()?.id.as_str()))
        .collect();
    heads.sort_unstable();
    heads.dedup();
    let state = match served == usize::from(SLOTS) {
        true => "ok",
        false => "fail",
    };
    let text = format!(
        "cluster_state:{state}\r\ncluster_slots_assigned:{SLOTS}\r\ncluster_slots_ok:{served}\r\n\
         cluster_slots_pfail:0\r\ncluster_slots_fail:{}\r\ncluster_known_nodes:{known}\r\n\
         cluster_size:{}\r\ncluster_current_epoch:{epoch}\r\ncluster_my_epoch:{epoch}\r\n\
         cluster_stats_messages_sent:0\r\ncluster_stats_messages_received:0\r\n\
         total_cluster_links_buffer_limit_exceeded:0\r\n",
        usize::from(SLOTS) - served,
        heads.len()
    );
    call.reply().text(&text);
}

/// Every node is a master here: each is the head of some chains, and behind others in more.
fn nodes(call: &mut Call<'_>) {
    let (own, ranges) = (myself(call), ranges(call));
    let names: Vec<String> = match &call.server.chains {
        Some(chains) => chains.view.nodes.keys().cloned().collect(),
        None => Vec::new(),
    };
    let mut all: Vec<Shown> = names.iter().map(|name| shown(call, name)).collect();
    if all.is_empty() {
        all.push(own.clone());
    }
    let mut text = String::new();
    for node in all {
        let flags = match node.id == own.id {
            true => "myself,master",
            false => "master",
        };
        let led = ranges
            .iter()
            .filter(|range| range.nodes.first().is_some_and(|head| head.id == node.id));
        let epoch = led.clone().map(|range| range.epoch).max().unwrap_or(0);
        let mut slots: Vec<(u16, u16)> = Vec::new();
        for range in led {
            match slots.last_mut() {
                Some(last) if last.1 + 1 == range.slots.0 => last.1 = range.slots.1,
                _ => slots.push(range.slots),
            }
        }
        let slots: String = slots
            .iter()
            .map(|(from, to)| format!(" {from}-{to}"))
            .collect();
        text += &format!(
            "{} {}:{}@0 {flags} - 0 0 {epoch} connected{slots}\n",
            node.id, node.host, node.port
        );
    }
    call.reply().text(&text);
}

/// Only heads are shown. A node of Redis Cluster is a master or a replica, and clients such as
/// redis-py take a node that is both, as here, for a replica alone: their DBSIZE, KEYS and SCAN
/// would leave it out. CLUSTER SHARDS shows every member.
fn slots(call: &mut Call<'_>) {
    let mut ranges = ranges(call);
    ranges.retain(|range| !range.nodes.is_empty());
    ranges.iter_mut().for_each(|range| range.nodes.truncate(1));
    let reply = call.reply();
    reply.array(ranges.len());
    for range in ranges {
        reply.array(2 + range.nodes.len());
        reply.integer(i64::from(range.slots.0));
        reply.integer(i64::from(range.slots.1));
        for node in range.nodes {
            reply.array(4);
            reply.bulk(node.host);
            reply.integer(node.port);
            reply.bulk(node.id);
            reply.array(0);
        }
    }
}

fn shards(call: &mut Call<'_>) {
    let ranges = ranges(call);
    let chains = call.server.chains.as_ref();
    let port = match chains.is_some_and(Chains::is_secured) {
        true => "tls-port",
        false => "port",
    };
    let reply = call.reply();
    reply.array(ranges.len());
    for range in ranges {
        reply.map(2);
        reply.bulk("slots");
        reply.array(2);
        reply.integer(i64::from(range.slots.0));
        reply.integer(i64::from(range.slots.1));
        reply.bulk("nodes");
        reply.array(range.nodes.len());
        for (place, node) in range.nodes.into_iter().enumerate() {
            reply.map(7);
            reply.bulk("id");
            reply.bulk(node.id);
            reply.bulk(port);
            reply.integer(node.port);
            let role = match place {
                0 => "master",
                _ => "replica",
            };
            for (name, value) in [
                ("ip", &*node.host),
                ("endpoint", &*node.host),
                ("role", role),
            ] {
                reply.bulk(name);
                reply.bulk(value);
            }
            reply.bulk("replication-offset");
            reply.integer(0);
            reply.bulk("health");
            reply.bulk(match node.is_there {
                true => "online",
                false => "failed",
            });
        }
    }
}

/// A pass over all keys of the slot's database: slots have no index.
fn keys_in_slot(call: &mut Call<'_>) -> Outcome {
    let wanted = call.integer(2)?;
    let wanted = u16::try_from(wanted).ok().filter(|wanted| *wanted < SLOTS);
    let wanted = wanted.ok_or(Failure::Known("ERR Invalid slot"))?;
    let database = match &call.server.chains {
        Some(chains) => partition(wanted, chains.view.chains.len() as u16) as u8,
        None => call.database(),
    };
    let most = match call.count() {
        4 => usize::try_from(call.integer(3)?)
            .map_err(|_| Failure::Known("ERR Invalid number of keys"))?,
        _ => usize::MAX,
    };
    let counts = call.count() == 3;
    let expired_by = call.keyspace().undeleted_by(database);
    let view = call.keyspace().frozen()?;
    call.job = Some((
        crate::executor::jobs::Work::Walk,
        Box::new(move |reply| {
            let (mut found, mut count): (Vec<Vec<u8>>, i64) = (Vec::new(), 0);
            view.keys(database, expired_by, |key| {
                if slot(key) == wanted {
                    count += 1;
                    if !counts && found.len() < most {
                        found.push(key.to_vec());
                    }
                }
                Walk::On
            })?;
            if counts {
                reply.integer(count);
            } else {
                reply.array(found.len());
                found.iter().for_each(|key| reply.bulk(key));
            }
            Ok(())
        }),
    ));
    Ok(())
}
