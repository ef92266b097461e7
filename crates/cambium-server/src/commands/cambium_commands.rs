//! What Redis has no commands for.

use cambium::{CompactOptions, Direction, KeyRange};

use super::{ADMIN, Call, Command, Failure, Outcome, READ, SYNTAX};
use crate::executor::jobs::Work;
use crate::keyspace::layout::Kind;
use crate::keyspace::overlay::Walk;

#[rustfmt::skip] // a table
pub const COMMANDS: &[Command] = &[
    Command { name: "cambium.scan", arity: -3, flags: READ, keys: (0, 0, 0), run: scan, summary: "Strings of a range of keys, in key order" },
    Command { name: "cambium.sync", arity: 1, flags: ADMIN, keys: (0, 0, 0), run: sync, summary: "Raise everything written so far to the device" },
    Command { name: "cambium.stats", arity: 1, flags: ADMIN, keys: (0, 0, 0), run: stats, summary: "Counters and sizes of the store" },
    Command { name: "cambium.compact", arity: 1, flags: ADMIN, keys: (0, 0, 0), run: compact, summary: "Rewrite what is live and give space back" },
    Command { name: "cambium.backup", arity: 2, flags: ADMIN, keys: (0, 0, 0), run: backup, summary: "Copy the store into a folder under the server's backup folder" },
];

/// Entries that CAMBIUM.SCAN answers without LIMIT, and most bytes of them.
const DEFAULT_LIMIT: usize = 1_000;
const MOST_BYTES: usize = 16 << 20;

/// `CAMBIUM.SCAN from to [LIMIT n] [REV]`: keys from `from` up to, not including, `to`; `-`
/// and `+` are no bound. Answers keys and strings in turns; hashes are left out.
fn scan(call: &mut Call<'_>) -> Outcome {
    if !call.keyspace().view().is_ordered {
        return Err(unordered(call));
    }
    let (mut limit, mut direction, mut place) = (DEFAULT_LIMIT, Direction::Forward, 3);
    while place < call.count() {
        if call.is(place, "rev") {
            direction = Direction::Reverse;
        } else if call.is(place, "limit") && place + 1 < call.count() {
            let number = usize::try_from(call.integer(place + 1)?);
            limit = number.map_err(|_| SYNTAX)?;
            place += 1;
        } else {
            return Err(SYNTAX);
        }
        place += 1;
    }
    if call.server.chains.is_some() {
        return Err(Failure::Known(
            "ERR CAMBIUM.SCAN is not allowed in cluster mode: a node has a part of the keys",
        ));
    }
    let bound = |text: &[u8], open: &[u8]| (text != open).then(|| text.to_vec());
    let range = KeyRange {
        from: bound(call.argument(1), b"-"),
        to: bound(call.argument(2), b"+"),
    };
    let database = call.database();
    let (mut found, mut bytes) = (Vec::new(), 0);
    call.keyspace()
        .entries(database, &range, direction, |key, entry| {
            if found.len() >= limit || bytes >= MOST_BYTES {
                return Walk::Enough;
            }
            if entry.kind == Kind::String {
                bytes += key.len() + entry.body.len();
                found.push((key.to_vec(), entry.body));
            }
            Walk::On
        })?;
    let reply = call.reply();
    reply.array(found.len() * 2);
    for (key, value) in found {
        reply.bulk(key);
        reply.bulk(value);
    }
    Ok(())
}

/// The error of a command that needs keys in order.
pub fn unordered(call: &Call<'_>) -> Failure {
    Failure::Text(format!("ERR {}", call.server.keyspace.no_order()))
}

fn sync(call: &mut Call<'_>) -> Outcome {
    let store = call.keyspace().store().clone();
    call.keyspace().shows_pending();
    call.job = Some((
        Work::Upkeep,
        Box::new(move |reply| {
            store.sync()?;
            reply.ok();
            Ok(())
        }),
    ));
    Ok(())
}

fn stats(call: &mut Call<'_>) -> Outcome {
    let statistics = call.keyspace().store().stats()?;
    let lines: Vec<String> = statistics
        .metrics()
        .iter()
        .map(|(name, value)| format!("{name}:{value}\r\n"))
        .collect();
    call.reply().text(&lines.concat());
    Ok(())
}

fn compact(call: &mut Call<'_>) -> Outcome {
    let store = call.keyspace().store().clone();
    call.job = Some((
        Work::Upkeep,
        Box::new(move |reply| {
            store.compact(&CompactOptions::default(), &())?;
            reply.ok();
            Ok(())
        }),
    ));
    Ok(())
}

/// The copy goes into a folder beside the store, so that no client writes elsewhere.
fn backup(call: &mut Call<'_>) -> Outcome {
    let name = std::str::from_utf8(call.argument(1)).ok();
    let is_name = |name: &&str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let name = name.filter(is_name).ok_or(Failure::Known(
        "ERR a backup's name has letters, digits, - and _: it is a folder in the server's --backups",
    ))?;
    let folder = call.server.backups.clone().ok_or(Failure::Known(
        "ERR the server was started without --backups, the folder that backups go to",
    ))?;
    let (store, folder) = (call.keyspace().store().clone(), folder.join(name));
    call.keyspace().shows_pending();
    call.job = Some((
        Work::Upkeep,
        Box::new(move |reply| {
            store.backup(&folder, &())?;
            reply.ok();
            Ok(())
        }),
    ));
    Ok(())
}
