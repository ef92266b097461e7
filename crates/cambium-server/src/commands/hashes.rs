//! Hashes: a header at the key, and an entry for each field.

use cambium::Value;

use super::cambium_commands::unordered;
use super::keys::{cursor, scan_options};
use super::numbers::{float_sum, sum};
use super::{Call, Command, FAST, FREES, Failure, NOT_A_FLOAT, Outcome, READ, WRITE, of_kind};
use crate::glob;
use crate::keyspace::layout::{Entry, HashHeader, Kind};
use crate::keyspace::notices::Class;
use crate::keyspace::overlay::Walk;
use crate::resp::numbers::Decimal;

#[rustfmt::skip] // a table
pub const COMMANDS: &[Command] = &[
    Command { name: "hset", arity: -4, flags: WRITE | FAST, keys: (1, 1, 1), run: hset, summary: "Set the string value of a hash field" },
    Command { name: "hmset", arity: -4, flags: WRITE | FAST, keys: (1, 1, 1), run: hset, summary: "Set multiple hash fields to multiple values" },
    Command { name: "hsetnx", arity: 4, flags: WRITE | FAST, keys: (1, 1, 1), run: hsetnx, summary: "Set the value of a hash field, only if the field does not exist" },
    Command { name: "hget", arity: 3, flags: READ | FAST, keys: (1, 1, 1), run: hget, summary: "Get the value of a hash field" },
    Command { name: "hmget", arity: -3, flags: READ | FAST, keys: (1, 1, 1), run: hmget, summary: "Get the values of all the given hash fields" },
    Command { name: "hgetall", arity: 2, flags: READ, keys: (1, 1, 1), run: hgetall, summary: "Get all the fields and values in a hash" },
    Command { name: "hkeys", arity: 2, flags: READ, keys: (1, 1, 1), run: hgetall, summary: "Get all the fields in a hash" },
    Command { name: "hvals", arity: 2, flags: READ, keys: (1, 1, 1), run: hgetall, summary: "Get all the values in a hash" },
    Command { name: "hdel", arity: -3, flags: WRITE | FREES | FAST, keys: (1, 1, 1), run: hdel, summary: "Delete one or more hash fields" },
    Command { name: "hexists", arity: 3, flags: READ | FAST, keys: (1, 1, 1), run: hexists, summary: "Determine if a hash field exists" },
    Command { name: "hlen", arity: 2, flags: READ | FAST, keys: (1, 1, 1), run: hlen, summary: "Get the number of fields in a hash" },
    Command { name: "hstrlen", arity: 3, flags: READ | FAST, keys: (1, 1, 1), run: hstrlen, summary: "Get the length of the value of a hash field" },
    Command { name: "hincrby", arity: 4, flags: WRITE | FAST, keys: (1, 1, 1), run: hincrby, summary: "Increment the integer value of a hash field by the given number" },
    Command { name: "hincrbyfloat", arity: 4, flags: WRITE | FAST, keys: (1, 1, 1), run: hincrby, summary: "Increment the float value of a hash field by the given amount" },
    Command { name: "hscan", arity: -3, flags: READ, keys: (1, 1, 1), run: hscan, summary: "Incrementally iterate hash fields and associated values" },
];

/// A hash that a command changes: its entry as it was, and its header as it will be.
struct Changed {
    old: Option<Entry>,
    header: HashHeader,
}

fn header_of(entry: &Entry) -> Outcome<HashHeader> {
    entry
        .hash()
        .ok_or(Failure::Known("ERR damaged header of a hash"))
}

/// The header of a key's hash, for a command that reads.
fn read(call: &mut Call<'_>) -> Outcome<Option<HashHeader>> {
    let (key, database) = (call.argument(1), call.database());
    let entry = of_kind(call.keyspace().read(database, key)?, Kind::Hash)?;
    entry.as_ref().map(header_of).transpose()
}

/// The hash of a key, for a command that adds fields.
fn change(call: &mut Call<'_>) -> Outcome<Changed> {
    if !call.keyspace().view().is_ordered {
        return Err(unordered(call));
    }
    let (key, database) = (call.argument(1), call.database());
    let old = of_kind(call.keyspace().find(database, key)?, Kind::Hash)?;
    let header = match &old {
        Some(entry) => header_of(entry)?,
        None => call.keyspace().new_hash(),
    };
    Ok(Changed { old, header })
}

/// The value of a field, of a hash that may not be there.
fn field(call: &mut Call<'_>, hash: Option<HashHeader>, field: &[u8]) -> Outcome<Option<Value>> {
    let database = call.database();
    match hash {
        Some(hash) => {
            check_field(field)?;
            Ok(call.keyspace().field(database, hash, field)?)
        }
        None => Ok(None),
    }
}

fn check_field(field: &[u8]) -> Outcome {
    match field.len() <= crate::keyspace::layout::MOST_KEY_BYTES {
        true => Ok(()),
        false => Err(Failure::Text(format!(
            "ERR field of {} bytes: fields have up to {} bytes",
            field.len(),
            crate::keyspace::layout::MOST_KEY_BYTES
        ))),
    }
}

/// Puts a field; true if it is new.
fn put_field(
    call: &mut Call<'_>,
    changed: &mut Changed,
    name: &[u8],
    value: &[u8],
) -> Outcome<bool> {
    let is_new = field(call, Some(changed.header), name)?.is_none();
    let database = call.database();
    call.keyspace()
        .put_field(database, changed.header, name, value);
    changed.header.fields += u64::from(is_new);
    Ok(is_new)
}

/// Writes the header of a hash whose fields have changed.
fn finish(call: &mut Call<'_>, changed: &Changed, event: &'static str) -> Outcome {
    let (key, database) = (call.argument(1), call.database());
    let keyspace = call.keyspace();
    let unchanged = changed.old.as_ref().and_then(Entry::hash) == Some(changed.header);
    if unchanged {
        keyspace.touch(database, key);
    } else {
        let kind = (Kind::Hash, changed.old.as_ref().and_then(|old| old.expires));
        keyspace.put(
            database,
            key,
            changed.old.as_ref(),
            kind,
            &changed.header.encode(),
        )?;
    }
    keyspace.notices.add(Class::Hash, event, database, key);
    Ok(())
}

fn hset(call: &mut Call<'_>) -> Outcome {
    if call.count() % 2 != 0 {
        return Err(Failure::Text(format!(
            "ERR wrong number of arguments for '{}' command",
            call.command.name
        )));
    }
    for name in call.arguments.from(2).step_by(2) {
        check_field(name)?;
    }
    let mut changed = change(call)?;
    let mut added = 0;
    for place in (2..call.count()).step_by(2) {
        let (name, value) = (call.argument(place), call.argument(place + 1));
        added += i64::from(put_field(call, &mut changed, name, value)?);
    }
    finish(call, &changed, "hset")?;
    match call.command.name {
        "hmset" => call.reply().ok(),
        _ => call.reply().integer(added),
    }
    Ok(())
}

fn hsetnx(call: &mut Call<'_>) -> Outcome {
    let (name, value) = (call.argument(2), call.argument(3));
    check_field(name)?;
    let hash = read(call)?;
    let is_free = field(call, hash, name)?.is_none();
    if is_free {
        let mut changed = change(call)?;
        put_field(call, &mut changed, name, value)?;
        finish(call, &changed, "hset")?;
    }
    call.reply().truth(is_free);
    Ok(())
}

fn hget(call: &mut Call<'_>) -> Outcome {
    let hash = read(call)?;
    let value = field(call, hash, call.argument(2))?;
    call.reply().optional(value);
    Ok(())
}

fn hmget(call: &mut Call<'_>) -> Outcome {
    let hash = read(call)?;
    call.session.reply.array(call.count() - 2);
    for name in call.arguments.from(2) {
        let value = field(call, hash, name)?;
        call.reply().optional(value);
    }
    Ok(())
}

fn hgetall(call: &mut Call<'_>) -> Outcome {
    let (with_names, with_values) = match call.command.name {
        "hkeys" => (true, false),
        "hvals" => (false, true),
        _ => (true, true),
    };
    let hash = read(call)?;
    let database = call.database();
    let mut parts: Vec<Vec<u8>> = Vec::new();
    if let Some(hash) = hash {
        call.keyspace().fields(database, hash, |name, value| {
            parts.extend(with_names.then(|| name.to_vec()));
            parts.extend(with_values.then(|| value.to_vec()));
            Walk::On
        })?;
    }
    let reply = call.reply();
    match with_names && with_values {
        true => reply.map(parts.len() / 2),
        false => reply.array(parts.len()),
    }
    parts.iter().for_each(|part| reply.bulk(part));
    Ok(())
}

fn hdel(call: &mut Call<'_>) -> Outcome {
    let (key, database) = (call.argument(1), call.database());
    let old = of_kind(call.keyspace().find(database, key)?, Kind::Hash)?;
    let Some(old) = old else {
        call.reply().integer(0);
        return Ok(());
    };
    let mut header = header_of(&old)?;
    let before = header.fields;
    for name in call.arguments.from(2) {
        if field(call, Some(header), name)?.is_some() {
            call.keyspace().remove_field(database, header, name);
            header.fields = header.fields.saturating_sub(1);
        }
    }
    let deleted = before - header.fields;
    if deleted > 0 && header.fields > 0 {
        finish(
            call,
            &Changed {
                old: Some(old),
                header,
            },
            "hdel",
        )?;
    } else if deleted > 0 {
        call.notice(Class::Hash, "hdel", key);
        call.delete(key, &old);
    }
    call.reply().integer(deleted as i64);
    Ok(())
}

fn hexists(call: &mut Call<'_>) -> Outcome {
    let hash = read(call)?;
    let is_there = field(call, hash, call.argument(2))?.is_some();
    call.reply().truth(is_there);
    Ok(())
}

fn hlen(call: &mut Call<'_>) -> Outcome {
    let hash = read(call)?;
    call.reply()
        .integer(hash.map_or(0, |hash| hash.fields as i64));
    Ok(())
}

fn hstrlen(call: &mut Call<'_>) -> Outcome {
    let hash = read(call)?;
    let value = field(call, hash, call.argument(2))?;
    call.reply()
        .integer(value.map_or(0, |value| value.len() as i64));
    Ok(())
}

fn hincrby(call: &mut Call<'_>) -> Outcome {
    let (name, amount) = (call.argument(2), call.argument(3));
    check_field(name)?;
    let is_float = call.command.name == "hincrbyfloat";
    if is_float && !Decimal::parse(amount).ok_or(NOT_A_FLOAT)?.is_finite() {
        return Err(Failure::Known("ERR value is NaN or Infinity"));
    }
    let integer = if is_float { 0 } else { call.integer(3)? };
    let hash = read(call)?;
    let old = field(call, hash, name)?;
    let text = match is_float {
        true => float_sum(
            old.as_deref(),
            amount,
            Failure::Known("ERR hash value is not a float"),
        )?,
        false => sum(
            old.as_deref(),
            integer,
            Failure::Known("ERR hash value is not an integer"),
        )?
        .to_string(),
    };
    let mut changed = change(call)?;
    put_field(call, &mut changed, name, text.as_bytes())?;
    finish(
        call,
        &changed,
        if is_float { "hincrbyfloat" } else { "hincrby" },
    )?;
    match is_float {
        true => call.reply().bulk(text),
        false => call.reply().integer(text.parse().unwrap_or(0)),
    }
    Ok(())
}

/// Answers all fields at once, with cursor 0, as Redis does for hashes that are small.
fn hscan(call: &mut Call<'_>) -> Outcome {
    cursor(call, 2)?;
    let hash = read(call)?;
    let database = call.database();
    let mut parts: Vec<Vec<u8>> = Vec::new();
    if let Some(hash) = hash {
        // Redis does not read the options of a key that is not there.
        let options = scan_options(call, 3, false)?;
        call.keyspace().fields(database, hash, |name, value| {
            if options
                .pattern
                .is_none_or(|pattern| glob::matches(pattern, name, false))
            {
                parts.extend([name.to_vec(), value.to_vec()]);
            }
            Walk::On
        })?;
    }
    let reply = call.reply();
    reply.array(2);
    reply.bulk("0");
    reply.array(parts.len());
    parts.iter().for_each(|part| reply.bulk(part));
    Ok(())
}
