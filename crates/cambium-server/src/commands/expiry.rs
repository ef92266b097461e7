//! When keys expire.

use super::{Call, Command, FAST, Failure, Outcome, READ, WRITE};
use crate::keyspace::layout::Entry;
use crate::keyspace::notices::Class;

#[rustfmt::skip] // a table
pub const COMMANDS: &[Command] = &[
    Command { name: "expire", arity: -3, flags: WRITE | FAST, keys: (1, 1, 1), run: expire, summary: "Set a key's time to live in seconds" },
    Command { name: "pexpire", arity: -3, flags: WRITE | FAST, keys: (1, 1, 1), run: expire, summary: "Set a key's time to live in milliseconds" },
    Command { name: "expireat", arity: -3, flags: WRITE | FAST, keys: (1, 1, 1), run: expire, summary: "Set the expiration for a key as a UNIX timestamp" },
    Command { name: "pexpireat", arity: -3, flags: WRITE | FAST, keys: (1, 1, 1), run: expire, summary: "Set the expiration for a key as a UNIX timestamp specified in milliseconds" },
    Command { name: "persist", arity: 2, flags: WRITE | FAST, keys: (1, 1, 1), run: persist, summary: "Remove the expiration from a key" },
    Command { name: "ttl", arity: 2, flags: READ | FAST, keys: (1, 1, 1), run: ttl, summary: "Get the time to live for a key in seconds" },
    Command { name: "pttl", arity: 2, flags: READ | FAST, keys: (1, 1, 1), run: ttl, summary: "Get the time to live for a key in milliseconds" },
    Command { name: "expiretime", arity: 2, flags: READ | FAST, keys: (1, 1, 1), run: ttl, summary: "Get the expiration Unix timestamp for a key" },
    Command { name: "pexpiretime", arity: 2, flags: READ | FAST, keys: (1, 1, 1), run: ttl, summary: "Get the expiration Unix timestamp for a key in milliseconds" },
];

/// Which keys an EXPIRE is for.
#[derive(Default)]
struct Conditions {
    only_endless: bool,
    only_expiring: bool,
    only_later: bool,
    only_sooner: bool,
}

fn conditions(call: &Call<'_>) -> Outcome<Conditions> {
    let mut conditions = Conditions::default();
    for place in 3..call.count() {
        if call.is(place, "nx") {
            conditions.only_endless = true;
        } else if call.is(place, "xx") {
            conditions.only_expiring = true;
        } else if call.is(place, "gt") {
            conditions.only_later = true;
        } else if call.is(place, "lt") {
            conditions.only_sooner = true;
        } else {
            let option = String::from_utf8_lossy(call.argument(place)).into_owned();
            return Err(Failure::Text(format!("ERR Unsupported option {option}")));
        }
    }
    let of_expiring = conditions.only_expiring || conditions.only_later || conditions.only_sooner;
    if conditions.only_endless && of_expiring {
        return Err(Failure::Known(
            "ERR NX and XX, GT or LT options at the same time are not compatible",
        ));
    }
    if conditions.only_later && conditions.only_sooner {
        return Err(Failure::Known(
            "ERR GT and LT options at the same time are not compatible",
        ));
    }
    Ok(conditions)
}

impl Conditions {
    fn hold(&self, entry: &Entry, moment: i64) -> bool {
        let current = entry.expires.map(|expires| expires as i64);
        !(self.only_endless && current.is_some()
            || self.only_expiring && current.is_none()
            || self.only_later && current.is_none_or(|current| moment <= current)
            || self.only_sooner && current.is_some_and(|current| moment >= current))
    }
}

/// The moment that an argument says, in milliseconds since 1970.
pub fn moment(call: &Call<'_>, place: usize, in_seconds: bool, is_relative: bool) -> Outcome<i64> {
    let number = call.integer(place)?;
    let millis = match in_seconds {
        true => number.checked_mul(1000),
        false => Some(number),
    };
    let begins = match is_relative {
        true => call.server.keyspace.now as i64,
        false => 0,
    };
    let moment = millis.and_then(|millis| millis.checked_add(begins));
    moment.ok_or_else(|| invalid_moment(call))
}

/// The refusal of a moment that cannot be.
pub fn invalid_moment(call: &Call<'_>) -> Failure {
    let name = call.command.name;
    Failure::Text(format!("ERR invalid expire time in '{name}' command"))
}

fn expire(call: &mut Call<'_>) -> Outcome {
    let conditions = conditions(call)?;
    let name = call.command.name;
    let moment = moment(call, 2, !name.starts_with('p'), !name.ends_with("at"))?;
    let (key, database) = (call.argument(1), call.database());
    let old = call.keyspace().find(database, key)?;
    let Some(old) = old.filter(|old| conditions.hold(old, moment)) else {
        call.reply().truth(false);
        return Ok(());
    };
    if moment <= call.keyspace().now as i64 {
        call.delete(key, &old);
    } else {
        let kind = (old.kind, Some(moment as u64));
        call.keyspace()
            .put(database, key, Some(&old), kind, &old.body)?;
        call.notice(Class::Generic, "expire", key);
    }
    call.reply().truth(true);
    Ok(())
}

fn persist(call: &mut Call<'_>) -> Outcome {
    let (key, database) = (call.argument(1), call.database());
    let old = call.keyspace().find(database, key)?;
    let old = old.filter(|old| old.expires.is_some());
    if let Some(old) = &old {
        call.keyspace()
            .put(database, key, Some(old), (old.kind, None), &old.body)?;
        call.notice(Class::Generic, "persist", key);
    }
    call.reply().truth(old.is_some());
    Ok(())
}

fn ttl(call: &mut Call<'_>) -> Outcome {
    let name = call.command.name;
    let database = call.database();
    let entry = call.server.keyspace.read(database, call.argument(1))?;
    let Some(entry) = entry else {
        call.reply().integer(-2);
        return Ok(());
    };
    let now = call.keyspace().now;
    let answer = entry.expires.map_or(-1, |moment| {
        let millis = match name.ends_with("time") {
            true => moment,
            false => moment.saturating_sub(now),
        };
        match name {
            "ttl" => (millis.saturating_add(500) / 1000) as i64,
            "expiretime" => (millis / 1000) as i64,
            _ => millis as i64,
        }
    });
    call.reply().integer(answer);
    Ok(())
}
