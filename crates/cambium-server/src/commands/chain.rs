//! CAMBIUM.CHAIN: what a predecessor sends; see `cluster::link`.

use cambium_base::coding::Decoder;
use cambium_cluster::position::Position;
use cambium_cluster::replica::{Appended, Refusal};

use super::{ADMIN, Call, Command, Failure, NO_MULTI, Outcome, SYNTAX};
use crate::cluster::chains::Feeding;
use crate::keyspace::partitions::{Frame, Record};
use crate::tls::check_name;

#[rustfmt::skip] // a table
pub const COMMANDS: &[Command] = &[
    Command { name: "cambium.chain", arity: -4, flags: ADMIN | NO_MULTI, keys: (0, 0, 0), run: chain, summary: "What a node of a cluster sends to its successor" },
];

/// The error of commands that need a cluster.
pub(super) const NO_CLUSTER: Failure =
    Failure::Known("ERR This instance has cluster support disabled");

fn chain(call: &mut Call<'_>) -> Outcome {
    if call.server.chains.is_none() {
        return Err(NO_CLUSTER);
    }
    if call.is(1, "hello") {
        return hello(call);
    }
    let Some(from) = call.session.link.clone() else {
        return Err(Failure::Known("ERR CAMBIUM.CHAIN begins with HELLO"));
    };
    let partition = u8::try_from(call.integer(2)?).map_err(|_| SYNTAX)?;
    let since = u64::try_from(call.integer(3)?).map_err(|_| SYNTAX)?;
    let outcome = match () {
        () if call.is(1, "open") => open(call, &from, partition, since),
        () if call.is(1, "append") => append(call, &from, partition, since),
        () if call.is(1, "copy") => copy(call, &from, partition, since),
        () if call.is(1, "left") => left(call, partition, since),
        () => return Err(SYNTAX),
    };
    match outcome {
        Ok(()) => Ok(()),
        Err(Stop::Failure(failure)) => Err(failure),
        Err(Stop::Refusal(refusal)) => {
            let why = match refusal {
                Refusal::Unknown => "unknown",
                Refusal::Gap => "gap",
                _ => "over",
            };
            if let (Refusal::Unknown, Some(chains)) = (&refusal, &call.server.chains) {
                chains.refresh();
            }
            let reply = call.reply();
            reply.array(4);
            reply.bulk("refused");
            reply.integer(i64::from(partition));
            reply.integer(since as i64);
            reply.bulk(why);
            Ok(())
        }
    }
}

/// Why a request of a predecessor is not done.
enum Stop {
    /// The connection ends.
    Failure(Failure),
    /// The predecessor asks again.
    Refusal(Refusal),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Stop {
        Stop::Refusal(refusal)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failure(failure)
    }
}

impl From<cambium::Error> for Stop {
    fn from(error: cambium::Error) -> Stop {
        Stop::Failure(error.into())
    }
}

fn hello(call: &mut Call<'_>) -> Outcome {
    let (cluster, node) = (call.argument(2), call.argument(3));
    let own = call
        .server
        .chains
        .as_ref()
        .map(|chains| chains.id().to_string());
    if own.as_deref().map(str::as_bytes) != Some(cluster) {
        let cluster = String::from_utf8_lossy(cluster);
        return Err(Failure::Text(format!(
            "ERR this node is one of the cluster with the id {}, and not of {cluster:.64}",
            own.unwrap_or_default()
        )));
    }
    let node = String::from_utf8_lossy(node).into_owned();
    check_certificate(call, &node).map_err(Failure::Text)?;
    call.session.link = Some(node);
    call.reply().ok();
    Ok(())
}

/// Where nodes have certificates: the node's own names the host that the node advertises.
fn check_certificate(call: &Call<'_>, node: &str) -> Result<(), String> {
    let Some(chains) = call
        .server
        .chains
        .as_ref()
        .filter(|chains| chains.is_secured())
    else {
        return Ok(());
    };
    let address = chains.address(node);
    let address = address.ok_or_else(|| format!("ERR no node {node:.64} is registered"))?;
    let certificate = call.session.certificate.as_deref();
    let certificate = certificate.ok_or_else(|| {
        format!("ERR node {node:.64} has shown no certificate: a node needs --tls-cert, --tls-key and --tls-ca")
    })?;
    check_name(certificate, address)
        .map_err(|error| format!("ERR the certificate of node {node:.64} is refused: {error}"))
}

type Done = Result<(), Stop>;

/// The member of this node in a partition's chain.
fn replica<'a>(
    call: &'a mut Call<'_>,
    partition: u8,
) -> Result<&'a mut cambium_cluster::replica::Replica, Stop> {
    let partitions = call.server.keyspace.partitions.as_mut();
    let replica = partitions.and_then(|partitions| partitions.replica(partition));
    replica.ok_or(Stop::Failure(Failure::Known(
        "ERR no such partition: the nodes are not of one cluster",
    )))
}

fn feed(call: &mut Call<'_>, partition: u8, since: u64, told: u64) {
    let handle = call.session.handle;
    if let Some(chains) = &mut call.server.chains {
        let feeding = Feeding {
            handle,
            since,
            told: (told, call.server.round_begun),
        };
        chains.feed(partition, feeding);
    }
}

fn open(call: &mut Call<'_>, from: &str, partition: u8, since: u64) -> Done {
    let now = call.server.round_begun;
    let replica = replica(call, partition)?;
    replica.hear(from, since)?;
    let (is_whole, committed) = (replica.is_whole(), replica.committed(now));
    let mut position = Vec::new();
    replica.position().encode(&mut position);
    feed(call, partition, since, committed);
    let reply = call.reply();
    reply.array(6);
    reply.bulk("opened");
    reply.integer(i64::from(partition));
    reply.integer(since as i64);
    reply.integer(i64::from(is_whole));
    reply.integer(committed as i64);
    reply.bulk(position);
    Ok(())
}

fn append(call: &mut Call<'_>, from: &str, partition: u8, since: u64) -> Done {
    let bytes = call.argument(4);
    let broken = Failure::Known("ERR the frame is none of this version's");
    let (record, operations) = Frame::decode(partition, bytes).ok_or(broken)?;
    if let Some(why) = call.server.room.refusal() {
        return Err(Failure::Text(format!("{}{why}", super::WRITE_FAILED)).into());
    }
    let replica = replica(call, partition)?;
    if replica.append(from, since, record.first, &record.position)? == Appended::Apply {
        call.keyspace()
            .apply_frame(partition, bytes, record, operations);
    }
    Ok(())
}

fn copy(call: &mut Call<'_>, from: &str, partition: u8, since: u64) -> Done {
    replica(call, partition)?.hear(from, since)?;
    if call.is(4, "begin") {
        feed(call, partition, since, 0);
        call.keyspace().begin_copy(partition)?;
    } else if call.is(4, "data") {
        if replica(call, partition)?.is_whole() {
            return Err(Refusal::Gap.into());
        }
        for place in (5..call.count().saturating_sub(1)).step_by(2) {
            let (key, value) = (call.argument(place), call.argument(place + 1));
            if key.first() != Some(&partition) {
                return Err(SYNTAX.into());
            }
            call.keyspace().copy_entry(key.to_vec(), value.to_vec());
        }
    } else if call.is(4, "end") {
        if replica(call, partition)?.is_whole() {
            return Err(Refusal::Gap.into());
        }
        let record = Record::decode(call.argument(5)).ok_or(SYNTAX)?;
        let number = record.position.number;
        call.keyspace().end_copy(partition, record);
        let reply = call.reply();
        reply.array(4);
        reply.bulk("copied");
        reply.integer(i64::from(partition));
        reply.integer(since as i64);
        reply.integer(number as i64);
    } else {
        return Err(SYNTAX.into());
    }
    Ok(())
}

/// A node that has left the chain, as it knows since `epoch`, asks the head which is the last
/// batch that both have.
fn left(call: &mut Call<'_>, partition: u8, epoch: u64) -> Done {
    let theirs = Position::decode(&mut Decoder::new(call.argument(4))).ok_or(SYNTAX)?;
    let partitions = call.server.keyspace.partitions.as_ref();
    let leads = partitions.is_some_and(|partitions| partitions.leads(partition));
    let replica = replica(call, partition)?;
    if replica.chain().epoch < epoch {
        return Err(Refusal::Unknown.into());
    }
    if !leads {
        return Err(Refusal::Over.into());
    }
    let common = replica.position().last_in_common(&theirs);
    let reply = call.reply();
    reply.array(5);
    reply.bulk("left");
    reply.integer(i64::from(partition));
    reply.integer(epoch as i64);
    reply.integer(i64::from(common.is_some()));
    reply.integer(common.unwrap_or_default() as i64);
    Ok(())
}
