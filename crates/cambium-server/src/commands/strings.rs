//! Strings as a whole, and their parts.

use super::expiry::{self, invalid_moment};
use super::{Call, Command, FAST, FREES, Failure, Outcome, READ, SYNTAX, WRITE};
use crate::keyspace::Keyspace;
use crate::keyspace::layout::{Entry, Kind};
use crate::keyspace::notices::Class;

#[rustfmt::skip] // a table
pub const COMMANDS: &[Command] = &[
    Command { name: "get", arity: 2, flags: READ | FAST, keys: (1, 1, 1), run: get, summary: "Get the value of a key" },
    Command { name: "set", arity: -3, flags: WRITE, keys: (1, 1, 1), run: set, summary: "Set the string value of a key" },
    Command { name: "setnx", arity: 3, flags: WRITE | FAST, keys: (1, 1, 1), run: setnx, summary: "Set the value of a key, only if the key does not exist" },
    Command { name: "setex", arity: 4, flags: WRITE, keys: (1, 1, 1), run: setex, summary: "Set the value and expiration of a key" },
    Command { name: "psetex", arity: 4, flags: WRITE, keys: (1, 1, 1), run: setex, summary: "Set the value and expiration in milliseconds of a key" },
    Command { name: "getset", arity: 3, flags: WRITE | FAST, keys: (1, 1, 1), run: getset, summary: "Set the string value of a key and return its old value" },
    Command { name: "getdel", arity: 2, flags: WRITE | FREES | FAST, keys: (1, 1, 1), run: getdel, summary: "Get the value of a key and delete the key" },
    Command { name: "getex", arity: -2, flags: WRITE | FAST, keys: (1, 1, 1), run: getex, summary: "Get the value of a key and optionally set its expiration" },
    Command { name: "mget", arity: -2, flags: READ | FAST, keys: (1, -1, 1), run: mget, summary: "Get the values of all the given keys" },
    Command { name: "mset", arity: -3, flags: WRITE, keys: (1, -1, 2), run: mset, summary: "Set multiple keys to multiple values" },
    Command { name: "msetnx", arity: -3, flags: WRITE, keys: (1, -1, 2), run: msetnx, summary: "Set multiple keys to multiple values, only if none of the keys exist" },
    Command { name: "append", arity: 3, flags: WRITE | FAST, keys: (1, 1, 1), run: append, summary: "Append a value to a key" },
    Command { name: "setrange", arity: 4, flags: WRITE, keys: (1, 1, 1), run: setrange, summary: "Overwrite part of a string at key starting at the specified offset" },
    Command { name: "getrange", arity: 4, flags: READ, keys: (1, 1, 1), run: getrange, summary: "Get a substring of the string stored at a key" },
    Command { name: "substr", arity: 4, flags: READ, keys: (1, 1, 1), run: getrange, summary: "Get a substring of the string stored at a key" },
    Command { name: "strlen", arity: 2, flags: READ | FAST, keys: (1, 1, 1), run: strlen, summary: "Get the length of the value stored in a key" },
];

fn get(call: &mut Call<'_>) -> Outcome {
    let entry = call.read_string(call.argument(1))?;
    call.reply().optional(entry.map(|entry| entry.body));
    Ok(())
}

/// When an entry is to expire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// As it was.
    Kept,
    /// At this moment, in milliseconds since 1970.
    Until(u64),
    /// Never.
    Endless,
}

impl Lifetime {
    /// The moment, given that of the old entry.
    fn moment(self, old: Option<&Entry>) -> Option<u64> {
        match self {
            Lifetime::Kept => old.and_then(|old| old.expires),
            Lifetime::Until(moment) => Some(moment),
            Lifetime::Endless => None,
        }
    }
}

/// The moment of an option `EX`, `PX`, `EXAT` or `PXAT` and its argument, which is positive.
fn moment(call: &Call<'_>, place: usize, in_seconds: bool, is_relative: bool) -> Outcome<u64> {
    if call.integer(place)? <= 0 {
        return Err(invalid_moment(call));
    }
    let moment = expiry::moment(call, place, in_seconds, is_relative)?;
    Ok(moment as u64)
}

/// An option that says when an entry expires, and the place behind it.
type ExpiryOption = Option<(&'static str, usize)>;

/// Reads such an option: `alone`, or one with an argument. Answers how many arguments it takes.
/// Redis lets the same one follow, and the last counts; another one may not.
fn read_expiry(
    call: &Call<'_>,
    place: usize,
    alone: &'static str,
    option: &mut ExpiryOption,
) -> Outcome<usize> {
    for (word, taken) in [(alone, 1), ("ex", 2), ("px", 2), ("exat", 2), ("pxat", 2)] {
        let is_same = option.is_none_or(|(before, _)| before == word);
        if call.is(place, word) && is_same && place + taken <= call.count() {
            *option = Some((word, place + 1));
            return Ok(taken);
        }
    }
    Err(SYNTAX)
}

/// The expiry that an option asks for.
fn lifetime(call: &Call<'_>, option: ExpiryOption) -> Outcome<Option<Lifetime>> {
    Ok(match option {
        None => None,
        Some(("keepttl", _)) => Some(Lifetime::Kept),
        Some(("persist", _)) => Some(Lifetime::Endless),
        Some((word, place)) => {
            let moment = moment(call, place, !word.starts_with('p'), !word.ends_with("at"))?;
            Some(Lifetime::Until(moment))
        }
    })
}

#[derive(Default)]
struct SetOptions {
    only_new: bool,
    only_old: bool,
    answers_old: bool,
    lifetime: Option<Lifetime>,
}

fn set_options(call: &Call<'_>) -> Outcome<SetOptions> {
    let (mut options, mut expiry) = (SetOptions::default(), None);
    let mut place = 3;
    while place < call.count() {
        let mut taken = 1;
        if call.is(place, "nx") && !options.only_old {
            options.only_new = true;
        } else if call.is(place, "xx") && !options.only_new {
            options.only_old = true;
        } else if call.is(place, "get") {
            options.answers_old = true;
        } else {
            taken = read_expiry(call, place, "keepttl", &mut expiry)?;
        }
        place += taken;
    }
    options.lifetime = lifetime(call, expiry)?;
    Ok(options)
}

fn set(call: &mut Call<'_>) -> Outcome {
    let options = set_options(call)?;
    let (key, value) = (call.argument(1), call.argument(2));
    let database = call.database();
    let old = match options.only_new || options.only_old || options.answers_old {
        true => call.keyspace().find(database, key)?,
        false => call.keyspace().find_replaced(database, key)?,
    };
    if options.answers_old {
        let old = super::of_kind(old.clone(), Kind::String)?;
        call.reply().optional(old.map(|old| old.body));
    }
    if (options.only_new && old.is_some()) || (options.only_old && old.is_none()) {
        if !options.answers_old {
            call.reply().null();
        }
        return Ok(());
    }
    let lifetime = options.lifetime.unwrap_or(Lifetime::Endless);
    store(call, key, old.as_ref(), lifetime, value)?;
    if !options.answers_old {
        call.reply().ok();
    }
    Ok(())
}

/// Puts a whole string, and tells those who listen.
fn store(
    call: &mut Call<'_>,
    key: &[u8],
    old: Option<&Entry>,
    lifetime: Lifetime,
    value: &[u8],
) -> Outcome {
    call.put_string(key, old, lifetime.moment(old), value)?;
    call.notice(Class::String, "set", key);
    if matches!(lifetime, Lifetime::Until(_)) {
        call.notice(Class::Generic, "expire", key);
    }
    Ok(())
}

fn setnx(call: &mut Call<'_>) -> Outcome {
    let (key, value) = (call.argument(1), call.argument(2));
    let database = call.database();
    let is_free = call.keyspace().find(database, key)?.is_none();
    if is_free {
        store(call, key, None, Lifetime::Endless, value)?;
    }
    call.reply().truth(is_free);
    Ok(())
}

fn setex(call: &mut Call<'_>) -> Outcome {
    let in_seconds = call.command.name == "setex";
    let moment = moment(call, 2, in_seconds, true)?;
    let (key, database) = (call.argument(1), call.database());
    let old = call.keyspace().find_replaced(database, key)?;
    store(
        call,
        key,
        old.as_ref(),
        Lifetime::Until(moment),
        call.argument(3),
    )?;
    call.reply().ok();
    Ok(())
}

fn getset(call: &mut Call<'_>) -> Outcome {
    let key = call.argument(1);
    let old = call.read_string(key)?;
    store(call, key, old.as_ref(), Lifetime::Endless, call.argument(2))?;
    call.reply().optional(old.map(|old| old.body));
    Ok(())
}

fn getdel(call: &mut Call<'_>) -> Outcome {
    let key = call.argument(1);
    let old = call.read_string(key)?;
    if let Some(old) = &old {
        call.delete(key, old);
    }
    call.reply().optional(old.map(|old| old.body));
    Ok(())
}

fn getex(call: &mut Call<'_>) -> Outcome {
    let (mut expiry, mut place) = (None, 2);
    while place < call.count() {
        place += read_expiry(call, place, "persist", &mut expiry)?;
    }
    let key = call.argument(1);
    let old = call.read_string(key)?;
    // Redis does not read the moment for a key that is not there.
    let lifetime = match old {
        Some(_) => lifetime(call, expiry)?,
        None => None,
    };
    let now = call.keyspace().now;
    if let (Some(old), Some(lifetime)) = (&old, lifetime) {
        let expires = lifetime.moment(Some(old));
        if expires.is_some_and(|moment| moment <= now) {
            call.delete(key, old);
        } else if expires != old.expires {
            call.put_string(key, Some(old), expires, &old.body)?;
            let event = if expires.is_some() {
                "expire"
            } else {
                "persist"
            };
            call.notice(Class::Generic, event, key);
        }
    }
    call.reply().optional(old.map(|old| old.body));
    Ok(())
}

fn mget(call: &mut Call<'_>) -> Outcome {
    let database = call.database();
    call.session.reply.array(call.count() - 1);
    let reply = &mut call.session.reply;
    let look = |keyspace: &mut Keyspace, key| {
        let entry = keyspace.read(database, key)?;
        let string = entry.filter(|entry| entry.kind == Kind::String);
        reply.optional(string.map(|entry| entry.body));
        Ok(())
    };
    Ok(call.server.keyspace.each(call.arguments.from(1), look)?)
}

fn mset(call: &mut Call<'_>) -> Outcome {
    put_pairs(call)?;
    call.reply().ok();
    Ok(())
}

fn check_pairs(call: &Call<'_>) -> Outcome {
    match call.count() % 2 {
        1 => Ok(()),
        _ => Err(Failure::Text(format!(
            "ERR wrong number of arguments for '{}' command",
            call.command.name
        ))),
    }
}

fn put_pairs(call: &mut Call<'_>) -> Outcome {
    check_pairs(call)?;
    let database = call.database();
    // A command that has written cannot run again after a fetch.
    let look = |keyspace: &mut Keyspace, key| keyspace.find_replaced(database, key).map(drop);
    let keys = call.arguments.from(1).step_by(2);
    call.server.keyspace.each(keys, look)?;
    for place in (1..call.count()).step_by(2) {
        let (key, value) = (call.argument(place), call.argument(place + 1));
        let old = call.keyspace().find_replaced(database, key)?;
        store(call, key, old.as_ref(), Lifetime::Endless, value)?;
    }
    Ok(())
}

fn msetnx(call: &mut Call<'_>) -> Outcome {
    check_pairs(call)?;
    let database = call.database();
    let mut all_free = true;
    let keys = call.arguments.from(1).step_by(2);
    call.server.keyspace.each(keys, |keyspace, key| {
        all_free &= keyspace.find(database, key)?.is_none();
        Ok(())
    })?;
    if all_free {
        put_pairs(call)?;
    }
    call.reply().truth(all_free);
    Ok(())
}

/// Refuses a string that would be longer than strings may be.
pub fn check_length(call: &Call<'_>, length: u64) -> Outcome {
    if length <= call.server.settings.argument_bytes() as u64 {
        return Ok(());
    }
    Err(Failure::Known(
        "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
    ))
}

fn append(call: &mut Call<'_>) -> Outcome {
    let (key, more) = (call.argument(1), call.argument(2));
    let old = call.find_string(key)?;
    let value = match &old {
        None => more.to_vec(),
        Some(old) => [&*old.body, more].concat(),
    };
    check_length(call, value.len() as u64)?;
    call.change_string(key, old.as_ref(), &value, "append")?;
    call.reply().integer(value.len() as i64);
    Ok(())
}

fn setrange(call: &mut Call<'_>) -> Outcome {
    let (key, piece) = (call.argument(1), call.argument(3));
    let offset = call.integer(2)?;
    if offset < 0 {
        return Err(Failure::Known("ERR offset is out of range"));
    }
    let old = call.find_string(key)?;
    let length = old.as_ref().map_or(0, |old| old.body.len());
    if piece.is_empty() {
        call.reply().integer(length as i64);
        return Ok(());
    }
    check_length(call, (offset as u64).saturating_add(piece.len() as u64))?;
    let (from, to) = (offset as usize, offset as usize + piece.len());
    let mut value = old.as_ref().map_or_else(Vec::new, |old| old.body.to_vec());
    value.resize(length.max(to), 0);
    value[from..to].copy_from_slice(piece);
    call.change_string(key, old.as_ref(), &value, "setrange")?;
    call.reply().integer(value.len() as i64);
    Ok(())
}

/// The part from `start` to `end`, both included, negative ones counted from the end.
pub fn part(length: usize, start: i64, end: i64) -> std::ops::Range<usize> {
    let length = length as i64;
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let place = |number: i64| {
        if number < 0 {
            (length + number).max(0)
        } else {
            number
        }
    };
    let (start, end) = (place(start), place(end).min(length - 1));
    if start > end || length == 0 {
        return 0..0;
    }
    start as usize..end as usize + 1
}

fn getrange(call: &mut Call<'_>) -> Outcome {
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    let entry = call.read_string(call.argument(1))?;
    match entry {
        Some(entry) => {
            let part = part(entry.body.len(), start, end);
            call.reply().bulk(&entry.body[part]);
        }
        None => call.reply().bulk(b""),
    }
    Ok(())
}

fn strlen(call: &mut Call<'_>) -> Outcome {
    let entry = call.read_string(call.argument(1))?;
    call.reply()
        .integer(entry.map_or(0, |entry| entry.body.len() as i64));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn parts_are_cut_as_redis_cuts_them() {
        for (length, start, end, expected) in [
            (11, 0, 3, 0..4),
            (11, -5, -1, 6..11),
            (11, 5, 3, 0..0),
            (11, 0, 5000, 0..11),
            (11, -5000, 10, 0..11),
            (0, 0, -1, 0..0),
            (11, -1, -5, 0..0),
        ] {
            assert_eq!(part(length, start, end), expected, "{length} {start} {end}");
        }
    }
}
