//! The commands of a cluster that read, for a cluster of this one server.

use super::{Call, Command, Failure, Outcome};
use crate::keyspace::overlay::Walk;

#[rustfmt::skip] // a table
pub const COMMANDS: &[Command] = &[
    Command { name: "cluster", arity: -2, flags: 0, keys: (0, 0, 0), run: cluster, summary: "Commands about a cluster of one node" },
    Command { name: "readonly", arity: 1, flags: super::FAST, keys: (0, 0, 0), run: accept, summary: "Enables read queries for a connection to a cluster replica node" },
    Command { name: "readwrite", arity: 1, flags: super::FAST, keys: (0, 0, 0), run: accept, summary: "Disables read queries for a connection to a cluster replica node" },
];

/// Slots of a cluster.
const SLOTS: u16 = 16384;

/// The slot of a key: CRC-16 of the part in braces, if it is not empty, or of all.
fn slot(key: &[u8]) -> u16 {
    let open = key.iter().position(|byte| *byte == b'{');
    let tag = open.and_then(|open| {
        let rest = &key[open + 1..];
        let length = rest.iter().position(|byte| *byte == b'}')?;
        (length > 0).then(|| &rest[..length])
    });
    let mut sum: u16 = 0;
    for byte in tag.unwrap_or(key) {
        sum ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            let carries = sum & 0x8000 != 0;
            sum <<= 1;
            if carries {
                sum ^= 0x1021;
            }
        }
    }
    sum % SLOTS
}

fn accept(call: &mut Call<'_>) -> Outcome {
    call.reply().ok();
    Ok(())
}

fn cluster(call: &mut Call<'_>) -> Outcome {
    let (host, port) = call.session.local.rsplit_once(':').unwrap_or(("", "0"));
    let (host, port) = (host.to_string(), port.parse().unwrap_or(0));
    let id = call.server.run_id.clone();
    if call.is(1, "myid") {
        call.reply().bulk(id);
    } else if call.is(1, "keyslot") && call.count() == 3 {
        let slot = slot(call.argument(2));
        call.reply().integer(i64::from(slot));
    } else if call.is(1, "info") {
        call.reply().text(&format!(
            "cluster_state:ok\r\ncluster_slots_assigned:{SLOTS}\r\ncluster_slots_ok:{SLOTS}\r\n\
             cluster_slots_pfail:0\r\ncluster_slots_fail:0\r\ncluster_known_nodes:1\r\n\
             cluster_size:1\r\ncluster_current_epoch:1\r\ncluster_my_epoch:1\r\n\
             cluster_stats_messages_sent:0\r\ncluster_stats_messages_received:0\r\n\
             total_cluster_links_buffer_limit_exceeded:0\r\n"
        ));
    } else if call.is(1, "nodes") {
        let last = SLOTS - 1;
        call.reply().text(&format!(
            "{id} {host}:{port}@0 myself,master - 0 0 1 connected 0-{last}\n"
        ));
    } else if call.is(1, "slots") {
        let reply = call.reply();
        reply.array(1);
        reply.array(3);
        reply.integer(0);
        reply.integer(i64::from(SLOTS) - 1);
        reply.array(4);
        reply.bulk(host);
        reply.integer(port);
        reply.bulk(id);
        reply.array(0);
    } else if call.is(1, "shards") {
        shards(call, &id, &host, port);
    } else if (call.is(1, "countkeysinslot") && call.count() == 3)
        || (call.is(1, "getkeysinslot") && call.count() == 4)
    {
        keys_in_slot(call)?;
    } else {
        return Err(call.unknown_subcommand());
    }
    Ok(())
}

fn shards(call: &mut Call<'_>, id: &str, host: &str, port: i64) {
    let reply = call.reply();
    reply.array(1);
    reply.map(2);
    reply.bulk("slots");
    reply.array(2);
    reply.integer(0);
    reply.integer(i64::from(SLOTS) - 1);
    reply.bulk("nodes");
    reply.array(1);
    reply.map(7);
    reply.bulk("id");
    reply.bulk(id);
    reply.bulk("port");
    reply.integer(port);
    for (name, value) in [("ip", host), ("endpoint", host), ("role", "master")] {
        reply.bulk(name);
        reply.bulk(value);
    }
    reply.bulk("replication-offset");
    reply.integer(0);
    reply.bulk("health");
    reply.bulk("online");
}

/// A pass over all keys of the database: slots have no index.
fn keys_in_slot(call: &mut Call<'_>) -> Outcome {
    let (wanted, database) = (call.integer(2)?, call.database());
    if !(0..i64::from(SLOTS)).contains(&wanted) {
        return Err(Failure::Known("ERR Invalid slot"));
    }
    let most = match call.count() {
        4 => usize::try_from(call.integer(3)?)
            .map_err(|_| Failure::Known("ERR Invalid number of keys"))?,
        _ => usize::MAX,
    };
    let counts = call.count() == 3;
    call.keyspace().expire_all()?;
    let view = call.keyspace().frozen()?;
    call.job = Some((
        crate::executor::jobs::Work::Read,
        Box::new(move |reply| {
            let (mut found, mut count): (Vec<Vec<u8>>, i64) = (Vec::new(), 0);
            view.keys(database, |key| {
                if i64::from(slot(key)) == wanted {
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

#[cfg(test)]
mod tests {
    use super::slot;

    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(slot(b"123456789"), 0x31C3);
        assert_eq!(slot(b"{user1000}.following"), slot(b"{user1000}.followers"));
        assert_eq!(slot(b"foo{}{bar}"), 8363);
        assert_eq!(slot(b"foo"), 12182);
    }
}
