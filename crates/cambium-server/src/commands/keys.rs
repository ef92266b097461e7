//! Keys of any kind.

use super::{
    Call, Command, FAST, FREES, Failure, NO_SUCH_KEY, NOT_AN_INTEGER, Outcome, READ, SYNTAX, WRITE,
};
use crate::executor::jobs::Work;
use crate::glob;
use crate::keyspace::Keyspace;
use crate::keyspace::layout::Entry;
use crate::keyspace::notices::Class;
use crate::keyspace::overlay::Walk;

#[rustfmt::skip] // a table
pub const COMMANDS: &[Command] = &[
    Command { name: "del", arity: -2, flags: WRITE | FREES, keys: (1, -1, 1), run: del, summary: "Delete a key" },
    Command { name: "unlink", arity: -2, flags: WRITE | FREES | FAST, keys: (1, -1, 1), run: del, summary: "Delete a key; its space comes back in the background" },
    Command { name: "exists", arity: -2, flags: READ | FAST, keys: (1, -1, 1), run: exists, summary: "Determine if a key exists" },
    Command { name: "touch", arity: -2, flags: READ | FAST, keys: (1, -1, 1), run: exists, summary: "Returns the number of existing keys specified" },
    Command { name: "type", arity: 2, flags: READ | FAST, keys: (1, 1, 1), run: kind, summary: "Determine the type stored at key" },
    Command { name: "rename", arity: 3, flags: WRITE, keys: (1, 2, 1), run: rename, summary: "Rename a key" },
    Command { name: "renamenx", arity: 3, flags: WRITE | FAST, keys: (1, 2, 1), run: rename, summary: "Rename a key, only if the new key does not exist" },
    Command { name: "copy", arity: -3, flags: WRITE, keys: (1, 2, 1), run: copy, summary: "Copy a key" },
    Command { name: "move", arity: 3, flags: WRITE | FAST, keys: (1, 1, 1), run: relocate, summary: "Move a key to another database" },
    Command { name: "flushdb", arity: -1, flags: WRITE | FREES, keys: (0, 0, 0), run: flushdb, summary: "Remove all keys from the current database" },
    Command { name: "flushall", arity: -1, flags: WRITE | FREES, keys: (0, 0, 0), run: flushall, summary: "Remove all keys from all databases" },
    Command { name: "scan", arity: -2, flags: READ, keys: (0, 0, 0), run: scan, summary: "Incrementally iterate the keys space" },
    Command { name: "keys", arity: 2, flags: READ, keys: (0, 0, 0), run: keys, summary: "Find all keys matching the given pattern" },
    Command { name: "randomkey", arity: 1, flags: READ, keys: (0, 0, 0), run: randomkey, summary: "Return a random key from the keyspace" },
    Command { name: "dbsize", arity: 1, flags: READ | FAST, keys: (0, 0, 0), run: dbsize, summary: "Return the number of keys in the selected database" },
];

fn del(call: &mut Call<'_>) -> Outcome {
    let database = call.database();
    let mut deleted = 0;
    if call.count() > 2 {
        // A command that has written cannot run again after a fetch.
        let look = |keyspace: &mut Keyspace, key| keyspace.find_replaced(database, key).map(drop);
        call.server.keyspace.each(call.arguments.from(1), look)?;
    }
    for key in call.arguments.from(1) {
        if let Some(old) = call.keyspace().find_replaced(database, key)? {
            call.delete(key, &old);
            deleted += 1;
        }
    }
    call.reply().integer(deleted);
    Ok(())
}

fn exists(call: &mut Call<'_>) -> Outcome {
    let database = call.database();
    let mut found = 0;
    call.server
        .keyspace
        .each(call.arguments.from(1), |keyspace, key| {
            found += i64::from(keyspace.read(database, key)?.is_some());
            Ok(())
        })?;
    call.reply().integer(found);
    Ok(())
}

fn kind(call: &mut Call<'_>) -> Outcome {
    let (key, database) = (call.argument(1), call.database());
    let entry = call.keyspace().find(database, key)?;
    let name = entry.map_or("none", |entry| entry.kind.name());
    call.reply().simple(name);
    Ok(())
}

fn rename(call: &mut Call<'_>) -> Outcome {
    let (from, to, database) = (call.argument(1), call.argument(2), call.database());
    let only_new = call.command.name == "renamenx";
    let keyspace = call.keyspace();
    let entry = keyspace.find(database, from)?.ok_or(NO_SUCH_KEY)?;
    let is_taken = only_new && (from == to || keyspace.find(database, to)?.is_some());
    if !is_taken && from != to {
        keyspace.rename(database, from, &entry, to)?;
        keyspace
            .notices
            .add(Class::Generic, "rename_from", database, from);
        keyspace
            .notices
            .add(Class::Generic, "rename_to", database, to);
    }
    match only_new {
        true => call.reply().truth(!is_taken),
        false => call.reply().ok(),
    }
    Ok(())
}

/// A database's number, as SELECT and MOVE take it.
pub fn database_number(call: &Call<'_>, place: usize) -> Outcome<Option<u8>> {
    let number = call.integer(place)?;
    let databases = call.server.settings.databases();
    let number = usize::try_from(number)
        .ok()
        .filter(|number| *number < databases);
    Ok(number.map(|number| number as u8))
}

fn copy(call: &mut Call<'_>) -> Outcome {
    let (from, to) = (call.argument(1), call.argument(2));
    let (mut database, mut replaces, mut place) = (call.database(), false, 3);
    while place < call.count() {
        if call.is(place, "replace") {
            replaces = true;
        } else if call.is(place, "db") && place + 1 < call.count() && call.server.chains.is_none() {
            let number = database_number(call, place + 1)?;
            database = number.ok_or(Failure::Known("ERR DB index is out of range"))?;
            place += 1;
        } else {
            return Err(SYNTAX);
        }
        place += 1;
    }
    let source = call.database();
    if source == database && from == to {
        return Err(Failure::Known(
            "ERR source and destination objects are the same",
        ));
    }
    let keyspace = call.keyspace();
    let entry = keyspace.find(source, from)?;
    let is_taken = !replaces && keyspace.find(database, to)?.is_some();
    let copied = match entry {
        Some(entry) if !is_taken => {
            keyspace.copy(source, &entry, database, to)?;
            keyspace
                .notices
                .add(Class::Generic, "copy_to", database, to);
            true
        }
        _ => false,
    };
    call.reply().truth(copied);
    Ok(())
}

fn relocate(call: &mut Call<'_>) -> Outcome {
    if call.server.chains.is_some() {
        return Err(Failure::Known("ERR MOVE is not allowed in cluster mode"));
    }
    let (key, from) = (call.argument(1), call.database());
    let to = match database_number(call, 2) {
        Err(_) => return Err(NOT_AN_INTEGER),
        Ok(None) => return Err(Failure::Known("ERR DB index is out of range")),
        Ok(Some(to)) => to,
    };
    if from == to {
        return Err(Failure::Known(
            "ERR source and destination objects are the same",
        ));
    }
    let keyspace = call.keyspace();
    let entry = keyspace.find(from, key)?;
    let is_taken = keyspace.find(to, key)?.is_some();
    let moved = match entry {
        Some(entry) if !is_taken => {
            keyspace.copy(from, &entry, to, key)?;
            keyspace.remove(from, key, &entry);
            keyspace.notices.add(Class::Generic, "move_from", from, key);
            keyspace.notices.add(Class::Generic, "move_to", to, key);
            true
        }
        _ => false,
    };
    call.reply().truth(moved);
    Ok(())
}

fn check_flush(call: &Call<'_>) -> Outcome {
    match call.count() {
        1 => Ok(()),
        2 if call.is(1, "async") || call.is(1, "sync") => Ok(()),
        _ => Err(SYNTAX),
    }
}

fn flushdb(call: &mut Call<'_>) -> Outcome {
    check_flush(call)?;
    for database in call.server.databases_of(call.session) {
        call.keyspace().flush(database)?;
    }
    call.reply().ok();
    Ok(())
}

fn flushall(call: &mut Call<'_>) -> Outcome {
    check_flush(call)?;
    let databases = match call.server.chains {
        Some(_) => call.server.databases_of(call.session),
        None => (0..call.server.settings.databases() as u8).collect(),
    };
    for database in databases {
        if call.keyspace().count(database).keys > 0 {
            call.keyspace().flush(database)?;
        }
    }
    call.reply().ok();
    Ok(())
}

/// What SCAN and HSCAN take behind their cursor.
pub struct ScanOptions<'a> {
    /// Only names that match.
    pub pattern: Option<&'a [u8]>,
    /// About how many at once.
    pub count: usize,
    /// Only keys that hold this.
    pub kind: Option<&'a [u8]>,
}

/// Reads the options from `place` on.
pub fn scan_options<'a>(
    call: &Call<'a>,
    mut place: usize,
    takes_type: bool,
) -> Outcome<ScanOptions<'a>> {
    let mut options = ScanOptions {
        pattern: None,
        count: 10,
        kind: None,
    };
    while place < call.count() {
        if place + 1 == call.count() {
            return Err(SYNTAX);
        }
        if call.is(place, "count") {
            let count = call.integer(place + 1)?;
            options.count = usize::try_from(count)
                .ok()
                .filter(|count| *count > 0)
                .ok_or(SYNTAX)?;
        } else if call.is(place, "match") {
            options.pattern = Some(call.argument(place + 1));
        } else if call.is(place, "type") && takes_type {
            options.kind = Some(call.argument(place + 1));
        } else {
            return Err(SYNTAX);
        }
        place += 2;
    }
    Ok(options)
}

/// The cursor that a client hands back, as C's `strtoul` reads it.
pub fn cursor(call: &Call<'_>, place: usize) -> Outcome<u64> {
    let text = std::str::from_utf8(call.argument(place)).unwrap_or("?");
    let cursor: Option<u64> = match text.strip_prefix('-') {
        _ if text.is_empty() => Some(0),
        Some(digits) if digits.starts_with('+') => None,
        Some(digits) => digits.parse().ok().map(u64::wrapping_neg),
        None => text.parse().ok(),
    };
    cursor.ok_or(Failure::Known("ERR invalid cursor"))
}

/// Keys come in the order of their hashes, and the cursor is the hash to go on from: the
/// server remembers nothing. Keys of one hash come together.
fn scan(call: &mut Call<'_>) -> Outcome {
    let cursor = cursor(call, 1)?;
    let options = scan_options(call, 2, true)?;
    let databases = call.server.databases_of(call.session);
    // In a cluster the cursor's high bits are the partition.
    let wanted = (cursor >> 32).max(u64::from(databases.first().copied().unwrap_or(0)));
    let database = databases
        .iter()
        .copied()
        .find(|of| u64::from(*of) >= wanted);
    let (is_cluster, database) = (call.server.chains.is_some(), database.unwrap_or(u8::MAX));
    let cursor = match is_cluster {
        true if database == u8::MAX => u64::MAX,
        true if u64::from(database) > cursor >> 32 => 0,
        true => u64::from(cursor as u32),
        false => cursor,
    };
    let keyspace = call.keyspace();
    let mut found: Vec<Vec<u8>> = Vec::new();
    let (mut visited, mut last, mut next) = (0, None, 0);
    let is_match = |key: &[u8]| {
        options
            .pattern
            .is_none_or(|pattern| glob::matches(pattern, key, false))
    };
    match u32::try_from(cursor) {
        Err(_) => {}
        Ok(_) if !keyspace.view().is_ordered => keyspace.view().keys(database, None, |key| {
            found.extend(is_match(key).then(|| key.to_vec()));
            Walk::On
        })?,
        Ok(from) => keyspace.view().in_order(database, from, |place, key| {
            if visited >= options.count && last != Some(place) {
                next = place;
                return Walk::Enough;
            }
            visited += 1;
            last = Some(place);
            found.extend(is_match(key).then(|| key.to_vec()));
            Walk::On
        })?,
    }
    keyspace.shows_pending();
    if options.kind.is_some() || keyspace.undeleted_by(database).is_some() {
        let is_kind = |entry: Entry| {
            let name = entry.kind.name().as_bytes();
            options
                .kind
                .is_none_or(|kind| kind.eq_ignore_ascii_case(name))
        };
        let mut live = Vec::new();
        for key in found {
            if keyspace.find(database, &key)?.is_some_and(is_kind) {
                live.push(key);
            }
        }
        found = live;
    }
    let next = match (is_cluster, next) {
        (false, next) => u64::from(next),
        (true, 0) => {
            let after = databases.into_iter().find(|of| *of > database);
            u64::from(after.unwrap_or(0)) << 32
        }
        (true, next) => u64::from(database) << 32 | u64::from(next),
    };
    let reply = call.reply();
    reply.array(2);
    reply.bulk(next.to_string());
    reply.array(found.len());
    found.iter().for_each(|key| reply.bulk(key));
    Ok(())
}

/// A helper thread looks through all keys as of now; other clients do not wait.
fn keys(call: &mut Call<'_>) -> Outcome {
    let pattern = call.argument(1).to_vec();
    let databases = call.server.databases_of(call.session);
    let databases = databases.into_iter();
    let databases: Vec<_> = databases
        .map(|database| (database, call.keyspace().undeleted_by(database)))
        .collect();
    let view = call.keyspace().frozen()?;
    call.job = Some((
        Work::Walk,
        Box::new(move |reply| {
            let mut found: Vec<Vec<u8>> = Vec::new();
            for (database, expired_by) in databases {
                view.keys(database, expired_by, |key| {
                    found.extend(glob::matches(&pattern, key, false).then(|| key.to_vec()));
                    Walk::On
                })?;
            }
            reply.array(found.len());
            found.iter().for_each(|key| reply.bulk(key));
            Ok(())
        }),
    ));
    Ok(())
}

fn randomkey(call: &mut Call<'_>) -> Outcome {
    let random = call.server.random();
    let mut databases = call.server.databases_of(call.session);
    databases.retain(|database| call.keyspace().count(*database).keys > 0);
    let place = (random >> 32) as usize % databases.len().max(1);
    let database = databases.get(place).copied().unwrap_or(call.database());
    let keyspace = call.keyspace();
    let found = if keyspace.view().is_ordered {
        match live_key_from(keyspace, database, random as u32)? {
            None => live_key_from(keyspace, database, 0)?,
            found => found,
        }
    } else {
        let mut found = None;
        let mut left = random % keyspace.count(database).keys.clamp(1, 1_000);
        let expired_by = keyspace.undeleted_by(database);
        keyspace.view().keys(database, expired_by, |key| {
            found = Some(key.to_vec());
            left = left.saturating_sub(1);
            match left {
                0 => Walk::Enough,
                _ => Walk::On,
            }
        })?;
        found
    };
    keyspace.shows_pending();
    call.reply().optional(found);
    Ok(())
}

/// Keys that one walk takes where some may have expired.
const EXPIRED_A_LOOK: usize = 100;

/// The first key in the order of SCAN from a place on that has not expired.
fn live_key_from(keyspace: &mut Keyspace, database: u8, from: u32) -> Outcome<Option<Vec<u8>>> {
    let mut next = Some(from);
    while let Some(from) = next.take() {
        let (mut found, mut last): (Vec<Vec<u8>>, _) = (Vec::new(), from);
        keyspace.view().in_order(database, from, |place, key| {
            if found.len() >= EXPIRED_A_LOOK && place != last {
                next = Some(place);
                return Walk::Enough;
            }
            last = place;
            found.push(key.to_vec());
            match keyspace.undeleted_by(database) {
                Some(_) => Walk::On,
                None => Walk::Enough,
            }
        })?;
        for key in found {
            if keyspace.find(database, &key)?.is_some() {
                return Ok(Some(key));
            }
        }
    }
    Ok(None)
}

fn dbsize(call: &mut Call<'_>) -> Outcome {
    call.keyspace().expire_some()?;
    call.keyspace().shows_pending();
    let databases = call.server.databases_of(call.session).into_iter();
    let count: u64 = databases
        .map(|database| call.keyspace().count(database).keys)
        .sum();
    call.reply().integer(count as i64);
    Ok(())
}
