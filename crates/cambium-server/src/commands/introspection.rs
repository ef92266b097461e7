//! What the commands and keys are: COMMAND, OBJECT, MEMORY, DEBUG.

use super::{
    ADMIN, Call, Command, FAST, Failure, NO_AUTH, NO_MULTI, NO_SUCH_KEY, Outcome, PUBSUB, READ,
    SYNTAX, WRITE, find,
};
use crate::executor::jobs::Work;
use crate::keyspace::layout::{Entry, Kind};
use crate::resp::numbers::parse_integer;
use crate::resp::reply::Reply;

#[rustfmt::skip] // a table
pub const COMMANDS: &[Command] = &[
    Command { name: "command", arity: -1, flags: 0, keys: (0, 0, 0), run: command, summary: "Get array of command details" },
    Command { name: "object", arity: -2, flags: READ, keys: (2, 2, 1), run: object, summary: "Inspect the internals of values" },
    Command { name: "memory", arity: -2, flags: READ, keys: (0, 0, 0), run: memory, summary: "Estimate the memory usage of a key" },
    Command { name: "debug", arity: -2, flags: ADMIN, keys: (0, 0, 0), run: debug, summary: "What suites of clients call" },
    Command { name: "function", arity: -2, flags: 0, keys: (0, 0, 0), run: function, summary: "There are no functions" },
    Command { name: "script", arity: -2, flags: 0, keys: (0, 0, 0), run: function, summary: "There are no scripts" },
];

fn command(call: &mut Call<'_>) -> Outcome {
    let names = call.arguments.from(2);
    if call.count() == 1 {
        let commands: Vec<&Command> = super::all().collect();
        let reply = call.reply();
        reply.array(commands.len());
        commands.iter().for_each(|command| describe(reply, command));
    } else if call.is(1, "count") {
        call.reply().integer(super::all().count() as i64);
    } else if call.is(1, "info") {
        let found: Vec<Option<&Command>> = match call.count() {
            2 => super::all().map(Some).collect(),
            _ => names.map(find).collect(),
        };
        let reply = call.reply();
        reply.array(found.len());
        for command in found {
            match command {
                Some(command) => describe(reply, command),
                None => reply.null_array(),
            }
        }
    } else if call.is(1, "docs") {
        let found: Vec<&Command> = match call.count() {
            2 => super::all().collect(),
            _ => names.filter_map(find).collect(),
        };
        let reply = call.reply();
        reply.map(found.len());
        for command in found {
            reply.bulk(command.name);
            reply.map(2);
            reply.bulk("summary");
            reply.bulk(command.summary);
            reply.bulk("since");
            reply.bulk("1.0.0");
        }
    } else if call.is(1, "list") && call.count() == 2 {
        let names: Vec<&str> = super::all().map(|command| command.name).collect();
        let reply = call.reply();
        reply.array(names.len());
        names.iter().for_each(|name| reply.bulk(name));
    } else if call.is(1, "getkeys") {
        getkeys(call)?;
    } else {
        return Err(call.wrong_count());
    }
    Ok(())
}

fn getkeys(call: &mut Call<'_>) -> Outcome {
    let command = find(call.argument(2)).ok_or(Failure::Known("ERR Invalid command specified"))?;
    if !command.takes(call.count() - 2) {
        return Err(Failure::Known(
            "ERR Invalid number of arguments specified for command",
        ));
    }
    let inner = crate::resp::OwnedArguments::copy_from(call.arguments, 2);
    let keys: Vec<&[u8]> = command.keys_of(inner.arguments()).collect();
    if keys.is_empty() {
        return Err(Failure::Known("ERR The command has no key arguments"));
    }
    let reply = &mut call.session.reply;
    reply.array(keys.len());
    keys.iter().for_each(|key| reply.bulk(key));
    Ok(())
}

fn describe(reply: &mut Reply, command: &Command) {
    let flags: Vec<&str> = [
        (WRITE, "write"),
        (READ, "readonly"),
        (ADMIN, "admin"),
        (PUBSUB, "pubsub"),
        (NO_MULTI, "no_multi"),
        (NO_AUTH, "no_auth"),
        (FAST, "fast"),
    ]
    .into_iter()
    .filter(|(flag, _)| command.flags & flag != 0)
    .map(|(_, name)| name)
    .collect();
    let (first, last, step) = command.keys;
    reply.array(10);
    reply.bulk(command.name);
    reply.integer(i64::from(command.arity));
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.simple(flag));
    for place in [first, last, step] {
        reply.integer(i64::from(place));
    }
    // Categories, tips, key specifications, subcommands.
    reply.set(0);
    for _ in 0..3 {
        reply.array(0);
    }
}

fn entry_of(call: &mut Call<'_>, place: usize) -> Outcome<Option<Entry>> {
    let (key, database) = (call.argument(place), call.database());
    Ok(call.keyspace().find(database, key)?)
}

/// The encoding that Redis would have.
fn encoding(entry: &Entry) -> &'static str {
    match entry.kind {
        Kind::Hash if entry.hash().is_some_and(|hash| hash.fields > 512) => "hashtable",
        Kind::Hash => "listpack",
        Kind::String if parse_integer(&entry.body).is_some() => "int",
        Kind::String if entry.body.len() <= 44 => "embstr",
        Kind::String => "raw",
    }
}

fn object(call: &mut Call<'_>) -> Outcome {
    let Some(entry) = entry_of(call, 2)? else {
        call.reply().null();
        return Ok(());
    };
    if call.is(1, "encoding") {
        call.reply().bulk(encoding(&entry));
    } else if call.is(1, "refcount") {
        call.reply().integer(1);
    } else if call.is(1, "idletime") {
        call.reply().integer(0);
    } else {
        return Err(Failure::Known(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please \
             note that when switching between policies at runtime LRU and LFU data will take some \
             time to adjust.",
        ));
    }
    Ok(())
}

fn memory(call: &mut Call<'_>) -> Outcome {
    if call.is(1, "usage") {
        match call.count() {
            3 => {}
            5 if call.is(3, "samples") => _ = call.integer(4)?,
            _ => return Err(SYNTAX),
        }
        let key_bytes = call.argument(2).len();
        match entry_of(call, 2)? {
            None => call.reply().null(),
            Some(entry) => call
                .reply()
                .integer((key_bytes + entry.body.len() + 16) as i64),
        }
    } else if call.is(1, "doctor") || call.is(1, "malloc-stats") {
        call.reply()
            .text("Memory is accounted for by the store: see CAMBIUM.STATS.");
    } else if call.is(1, "purge") {
        call.reply().ok();
    } else {
        call.reply().map(0);
    }
    Ok(())
}

/// Longest time that DEBUG SLEEP takes.
const MOST_SLEEP_SECONDS: f64 = 3600.0;

fn debug(call: &mut Call<'_>) -> Outcome {
    if call.is(1, "sleep") {
        let seconds = crate::resp::numbers::parse_float(call.argument(2)).unwrap_or(0.0);
        let time = std::time::Duration::from_secs_f64(seconds.clamp(0.0, MOST_SLEEP_SECONDS));
        let clock = call.server.environment.clock.clone();
        call.job = Some((
            Work::Upkeep,
            Box::new(move |reply| {
                clock.sleep(time);
                reply.ok();
                Ok(())
            }),
        ));
    } else if call.is(1, "object") {
        let entry = entry_of(call, 2)?.ok_or(NO_SUCH_KEY)?;
        let (encoding, length) = (encoding(&entry), entry.body.len());
        call.reply().simple(&format!(
            "Value at:0x0 refcount:1 encoding:{encoding} serializedlength:{length} lru:0 lru_seconds_idle:0"
        ));
    } else if call.is(1, "error") {
        let text = String::from_utf8_lossy(call.argument(2)).into_owned();
        return Err(Failure::Text(text));
    } else if call.is(1, "set-active-expire") {
        call.server.expires_actively = call.argument(2) != b"0";
        call.reply().ok();
    } else {
        call.reply().ok();
    }
    Ok(())
}

fn function(call: &mut Call<'_>) -> Outcome {
    match call.is(1, "flush") {
        true => call.reply().ok(),
        false => call.reply().array(0),
    }
    Ok(())
}
