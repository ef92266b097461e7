//! The connection itself: who the client is, and how it speaks.

use super::keys::database_number;
use super::{
    Call, Command, FAST, Failure, NO_AUTH, Outcome, SYNTAX, UNQUEUED, WHILE_SUBSCRIBED, unwatch_all,
};
use crate::executor::session::{Answers, Session};
use crate::messages::Next;
use crate::password::is_same;
use crate::resp::numbers::parse_integer;

#[rustfmt::skip] // a table
pub const COMMANDS: &[Command] = &[
    Command { name: "ping", arity: -1, flags: FAST | WHILE_SUBSCRIBED, keys: (0, 0, 0), run: ping, summary: "Ping the server" },
    Command { name: "echo", arity: 2, flags: FAST, keys: (0, 0, 0), run: echo, summary: "Echo the given string" },
    Command { name: "quit", arity: -1, flags: FAST | NO_AUTH | UNQUEUED | WHILE_SUBSCRIBED, keys: (0, 0, 0), run: quit, summary: "Close the connection" },
    Command { name: "reset", arity: 1, flags: FAST | NO_AUTH | UNQUEUED | WHILE_SUBSCRIBED, keys: (0, 0, 0), run: reset, summary: "Reset the connection" },
    Command { name: "select", arity: 2, flags: FAST, keys: (0, 0, 0), run: select, summary: "Change the selected database for the current connection" },
    Command { name: "auth", arity: -2, flags: FAST | NO_AUTH, keys: (0, 0, 0), run: auth, summary: "Authenticate to the server" },
    Command { name: "hello", arity: -1, flags: FAST | NO_AUTH, keys: (0, 0, 0), run: hello, summary: "Handshake with the server" },
    Command { name: "client", arity: -2, flags: 0, keys: (0, 0, 0), run: client, summary: "Commands about client connections" },
    Command { name: "wait", arity: 3, flags: 0, keys: (0, 0, 0), run: wait, summary: "Wait for the synchronous replication of all the write commands" },
];

fn ping(call: &mut Call<'_>) -> Outcome {
    if call.count() > 2 {
        return Err(Failure::Known(
            "ERR wrong number of arguments for 'ping' command",
        ));
    }
    let message = call.arguments.get(1);
    if call.session.subscriptions() > 0 && !call.session.reply.is_resp3 {
        let reply = call.reply();
        reply.array(2);
        reply.bulk("pong");
        reply.bulk(message.unwrap_or_default());
        return Ok(());
    }
    match message {
        Some(message) => call.reply().bulk(message),
        None => call.reply().simple("PONG"),
    }
    Ok(())
}

fn echo(call: &mut Call<'_>) -> Outcome {
    let message = call.argument(1);
    call.reply().bulk(message);
    Ok(())
}

fn quit(call: &mut Call<'_>) -> Outcome {
    call.reply().ok();
    call.session.next = Some(Next::Close);
    Ok(())
}

fn reset(call: &mut Call<'_>) -> Outcome {
    call.session.queue = None;
    unwatch_all(call.server, call.session);
    call.server.pubsub.forget(call.session);
    call.session.database = 0;
    call.session.is_readonly = false;
    call.session.name.clear();
    call.session.reply.is_resp3 = false;
    call.session.answers = Answers::On;
    call.session.is_stranger = call.server.settings.password().is_some();
    call.reply().simple("RESET");
    Ok(())
}

fn select(call: &mut Call<'_>) -> Outcome {
    let database = database_number(call, 1)?;
    if call.server.chains.is_some() {
        if database != Some(0) {
            return Err(Failure::Known("ERR SELECT is not allowed in cluster mode"));
        }
        call.reply().ok();
        return Ok(());
    }
    call.session.database = database.ok_or(Failure::Known("ERR DB index is out of range"))?;
    call.reply().ok();
    Ok(())
}

fn authenticate(call: &mut Call<'_>, user: Option<&[u8]>, password: &[u8]) -> Outcome {
    let is_right = match call.server.settings.password() {
        Some(expected) => is_same(password, expected.as_bytes()),
        None if user.is_none() => {
            return Err(Failure::Known(
                "ERR AUTH <password> called without any password configured for the default \
                 user. Are you sure your configuration is correct?",
            ));
        }
        None => true,
    };
    let is_known = user.is_none_or(|user| user == b"default");
    if !(is_right && is_known) {
        tracing::debug!(peer = call.session.peer, "a wrong password");
        return Err(Failure::Known(
            "WRONGPASS invalid username-password pair or user is disabled.",
        ));
    }
    call.session.is_stranger = false;
    Ok(())
}

fn auth(call: &mut Call<'_>) -> Outcome {
    match call.count() {
        2 => authenticate(call, None, call.argument(1))?,
        3 => authenticate(call, Some(call.argument(1)), call.argument(2))?,
        _ => return Err(SYNTAX),
    }
    call.reply().ok();
    Ok(())
}

fn check_name(name: &[u8]) -> Outcome {
    match name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        true => Ok(()),
        false => Err(Failure::Known(
            "ERR Client names cannot contain spaces, newlines or special characters.",
        )),
    }
}

fn hello(call: &mut Call<'_>) -> Outcome {
    let mut is_resp3 = call.session.reply.is_resp3;
    if call.count() > 1 {
        let version = parse_integer(call.argument(1));
        let version = version.ok_or(Failure::Known(
            "ERR Protocol version is not an integer or out of range",
        ))?;
        if !(2..=3).contains(&version) {
            return Err(Failure::Known("NOPROTO unsupported protocol version"));
        }
        is_resp3 = version == 3;
    }
    let (mut place, mut name) = (2, None);
    while place < call.count() {
        if call.is(place, "auth") && place + 2 < call.count() {
            authenticate(
                call,
                Some(call.argument(place + 1)),
                call.argument(place + 2),
            )?;
            place += 3;
        } else if call.is(place, "setname") && place + 1 < call.count() {
            check_name(call.argument(place + 1))?;
            name = Some(call.argument(place + 1));
            place += 2;
        } else {
            let option = String::from_utf8_lossy(call.argument(place)).into_owned();
            return Err(Failure::Text(format!(
                "ERR Syntax error in HELLO option '{option}'"
            )));
        }
    }
    if call.session.is_stranger {
        return Err(Failure::Known(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        call.session.name = name.to_vec();
    }
    call.session.reply.is_resp3 = is_resp3;
    let id = call.session.handle.id as i64;
    let reply = call.reply();
    reply.map(7);
    reply.bulk("server");
    reply.bulk("redis");
    reply.bulk("version");
    reply.bulk(crate::REDIS_VERSION);
    reply.bulk("proto");
    reply.integer(if is_resp3 { 3 } else { 2 });
    reply.bulk("id");
    reply.integer(id);
    reply.bulk("mode");
    reply.bulk("standalone");
    reply.bulk("role");
    reply.bulk("master");
    reply.bulk("modules");
    reply.array(0);
    Ok(())
}

/// A client's line in CLIENT LIST.
fn describe(session: &Session, now: u64) -> String {
    let multi = session
        .queue
        .as_ref()
        .map_or(-1, |queue| queue.commands.len() as i64);
    let flags = if session.subscriptions() > 0 {
        "P"
    } else if multi >= 0 {
        "x"
    } else {
        "N"
    };
    format!(
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={flags} db={} sub={} psub={} \
         ssub=0 multi={multi} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem={} rbs=0 rbp=0 obl=0 oll=0 \
         omem=0 tot-mem=0 events=r cmd={} user=default redir=-1 resp={}",
        session.handle.id,
        session.peer,
        session.local,
        session.handle.slot,
        String::from_utf8_lossy(&session.name),
        now.saturating_sub(session.opened) / 1000,
        now.saturating_sub(session.active) / 1000,
        session.database,
        session.channels.len(),
        session.patterns.len(),
        session.queue.as_ref().map_or(0, |queue| queue.bytes),
        session.last_command,
        if session.reply.is_resp3 { 3 } else { 2 },
    )
}

fn client(call: &mut Call<'_>) -> Outcome {
    let now = call.keyspace().now;
    if call.is(1, "id") {
        let id = call.session.handle.id;
        call.reply().integer(id as i64);
    } else if call.is(1, "getname") {
        let name = Some(call.session.name.clone()).filter(|name| !name.is_empty());
        call.reply().optional(name);
    } else if call.is(1, "setname") {
        check_name(call.argument(2))?;
        call.session.name = call.argument(2).to_vec();
        call.reply().ok();
    } else if call.is(1, "info") {
        let line = describe(call.session, now) + "\n";
        call.reply().text(&line);
    } else if call.is(1, "list") {
        list(call, now)?;
    } else if call.is(1, "kill") {
        kill(call)?;
    } else if call.is(1, "reply") {
        reply_mode(call)?;
    } else if call.is(1, "getredir") {
        // There is no tracking to redirect.
        call.reply().integer(-1);
    } else if call.is(1, "trackinginfo") {
        let reply = call.reply();
        reply.map(3);
        reply.bulk("flags");
        reply.set(1);
        reply.bulk("off");
        reply.bulk("redirect");
        reply.integer(-1);
        reply.bulk("prefixes");
        reply.array(0);
    } else if call.is(1, "unblock") && call.count() <= 4 {
        // No command blocks a client.
        call.integer(2)?;
        call.reply().integer(0);
    } else if call.is(1, "unpause") {
        call.reply().ok();
    } else if call.is(1, "no-evict") {
        if !(call.is(2, "on") || call.is(2, "off")) {
            return Err(SYNTAX);
        }
        call.reply().ok();
    } else {
        return Err(call.wrong_count());
    }
    Ok(())
}

/// The clients that `TYPE name` means.
fn of_type(name: &[u8]) -> Outcome<fn(&Session) -> bool> {
    match name.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(|session| session.subscriptions() == 0),
        b"pubsub" => Ok(|session| session.subscriptions() > 0),
        // There are none.
        b"master" | b"replica" | b"slave" => Ok(|_| false),
        _ => {
            let name = String::from_utf8_lossy(name);
            Err(Failure::Text(format!("ERR Unknown client type '{name}'")))
        }
    }
}

fn list(call: &mut Call<'_>, now: u64) -> Outcome {
    let (mut ids, mut is_of_type): (_, fn(&Session) -> bool) = (None, |_| true);
    match call.count() {
        2 => {}
        4 if call.is(2, "type") => is_of_type = of_type(call.argument(3))?,
        count if count > 3 && call.is(2, "id") => {
            let id = |id: &[u8]| parse_integer(id).ok_or(Failure::Known("ERR Invalid client ID"));
            ids = Some(
                call.arguments
                    .from(3)
                    .map(id)
                    .collect::<Outcome<Vec<i64>>>()?,
            );
        }
        _ => return Err(SYNTAX),
    }
    let others = call
        .server
        .sessions
        .iter()
        .flatten()
        .map(|session| &**session);
    let mut sessions: Vec<&Session> = others.chain([&*call.session]).collect();
    sessions.sort_by_key(|session| session.handle.id);
    let is_listed = |session: &&&Session| {
        ids.as_ref()
            .is_none_or(|ids| ids.contains(&(session.handle.id as i64)))
            && is_of_type(session)
    };
    let lines: Vec<String> = sessions
        .iter()
        .filter(is_listed)
        .map(|session| describe(session, now) + "\n")
        .collect();
    call.reply().text(&lines.concat());
    Ok(())
}

/// `CLIENT KILL address`, or with filters `ID`, `ADDR`, `LADDR`, `TYPE`, `USER`, `SKIPME`.
fn kill(call: &mut Call<'_>) -> Outcome {
    let is_old_form = call.count() == 3;
    let (mut address, mut local, mut id, mut skips_me) = (None, None, None, !is_old_form);
    let mut is_of_type: fn(&Session) -> bool = |_| true;
    if is_old_form {
        address = Some(call.argument(2));
    }
    let mut place = 2;
    while !is_old_form && place < call.count() {
        if place + 1 == call.count() {
            return Err(SYNTAX);
        }
        let value = call.argument(place + 1);
        if call.is(place, "id") {
            let number = parse_integer(value).filter(|number| *number > 0);
            id = Some(number.ok_or(Failure::Known("ERR client-id should be greater than 0"))?);
        } else if call.is(place, "addr") {
            address = Some(value);
        } else if call.is(place, "laddr") {
            local = Some(value);
        } else if call.is(place, "skipme") {
            skips_me = match value.to_ascii_lowercase().as_slice() {
                b"yes" => true,
                b"no" => false,
                _ => return Err(SYNTAX),
            };
        } else if call.is(place, "type") {
            is_of_type = of_type(value)?;
        } else if call.is(place, "user") && value == b"default" {
            // Each client is this user.
        } else if call.is(place, "user") {
            let user = String::from_utf8_lossy(value);
            return Err(Failure::Text(format!("ERR No such user '{user}'")));
        } else {
            return Err(SYNTAX);
        }
        place += 2;
    }
    let is_meant = |session: &Session| {
        address.is_none_or(|address| session.peer.as_bytes() == address)
            && local.is_none_or(|local| session.local.as_bytes() == local)
            && id.is_none_or(|id| session.handle.id as i64 == id)
            && is_of_type(session)
    };
    let mut killed = call.server.end_sessions(&is_meant);
    if !skips_me && is_meant(call.session) {
        call.session.next = Some(Next::Close);
        killed += 1;
    }
    match (is_old_form, killed) {
        (true, 0) => return Err(Failure::Known("ERR No such client")),
        (true, _) => call.reply().ok(),
        (false, _) => call.reply().integer(killed),
    }
    Ok(())
}

fn reply_mode(call: &mut Call<'_>) -> Outcome {
    if call.is(2, "on") {
        call.session.answers = Answers::On;
        call.reply().ok();
    } else if call.is(2, "off") {
        call.session.answers = Answers::Off;
    } else if call.is(2, "skip") {
        call.session.answers = Answers::SkipNext;
    } else {
        return Err(SYNTAX);
    }
    Ok(())
}

/// There are no replicas.
fn wait(call: &mut Call<'_>) -> Outcome {
    call.integer(1)?;
    if call
        .integer(2)
        .map_err(|_| Failure::Known("ERR timeout is not an integer or out of range"))?
        < 0
    {
        return Err(Failure::Known("ERR timeout is negative"));
    }
    call.reply().integer(0);
    Ok(())
}
