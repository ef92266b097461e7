//! MULTI, EXEC, DISCARD, WATCH.

use super::{Call, Command, FAST, Failure, Outcome, READ, UNQUEUED, WRITE_FAILED, find};
use crate::executor::server::Server;
use crate::executor::session::{Queue, Session};

#[rustfmt::skip] // a table
pub const COMMANDS: &[Command] = &[
    Command { name: "multi", arity: 1, flags: FAST | UNQUEUED, keys: (0, 0, 0), run: multi, summary: "Mark the start of a transaction block" },
    Command { name: "exec", arity: 1, flags: UNQUEUED, keys: (0, 0, 0), run: exec, summary: "Execute all commands issued after MULTI" },
    Command { name: "discard", arity: 1, flags: FAST | UNQUEUED, keys: (0, 0, 0), run: discard, summary: "Discard all commands issued after MULTI" },
    Command { name: "watch", arity: -2, flags: READ | FAST | UNQUEUED, keys: (1, -1, 1), run: watch, summary: "Watch the given keys to determine execution of the MULTI/EXEC block" },
    Command { name: "unwatch", arity: 1, flags: FAST, keys: (0, 0, 0), run: unwatch, summary: "Forget about all watched keys" },
];

fn multi(call: &mut Call<'_>) -> Outcome {
    if call.session.queue.is_some() {
        return Err(Failure::Known("ERR MULTI calls can not be nested"));
    }
    call.session.queue = Some(Queue::default());
    call.reply().ok();
    Ok(())
}

/// The client watches nothing more.
pub fn unwatch_all(server: &mut Server, session: &mut Session) {
    for watched in session.watched.drain(..) {
        server.keyspace.watches().unwatch(&watched);
    }
}

/// An EXEC that is refused ends its transaction.
pub fn abort(server: &mut Server, session: &mut Session, why: &Failure) -> Failure {
    session.queue = None;
    unwatch_all(server, session);
    let why = why.text();
    let why = why.strip_prefix("ERR ").unwrap_or(&why);
    Failure::Text(format!("EXECABORT Transaction discarded because of: {why}"))
}

/// All commands of a transaction lie in one overlay, which becomes one batch.
fn exec(call: &mut Call<'_>) -> Outcome {
    let Some(queue) = call.session.queue.take() else {
        return Err(Failure::Known("ERR EXEC without MULTI"));
    };
    if queue.is_aborted {
        unwatch_all(call.server, call.session);
        return Err(Failure::Known(
            "EXECABORT Transaction discarded because of previous errors.",
        ));
    }
    // Refused whole: a part of it could delete what another part was to write elsewhere.
    let names = queue.commands.iter().map(|queued| queued.arguments());
    let mut commands = names.filter_map(|arguments| find(&arguments[0]));
    if commands.any(|command| command.grows()) {
        if let Some(why) = call.server.room.refusal() {
            unwatch_all(call.server, call.session);
            return Err(Failure::Text(format!("EXECABORT {WRITE_FAILED}{why}")));
        }
    }
    let is_unchanged = are_unchanged(call)?;
    unwatch_all(call.server, call.session);
    if !is_unchanged {
        call.reply().null_array();
        return Ok(());
    }
    call.reply().array(queue.commands.len());
    call.session.is_in_exec = true;
    for command in &queue.commands {
        call.server.run_queued(call.session, command.arguments());
    }
    call.session.is_in_exec = false;
    Ok(())
}

/// A key that has expired since it was watched has changed, if it had not before.
fn are_unchanged(call: &mut Call<'_>) -> Outcome<bool> {
    let watched = call.session.watched.clone();
    for watched in &watched {
        let (database, key) = &watched.key;
        if !watched.was_missing {
            call.keyspace().find(*database, key)?;
        }
        if !call.keyspace().watches().is_unchanged(watched) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn discard(call: &mut Call<'_>) -> Outcome {
    if call.session.queue.take().is_none() {
        return Err(Failure::Known("ERR DISCARD without MULTI"));
    }
    unwatch_all(call.server, call.session);
    call.reply().ok();
    Ok(())
}

fn watch(call: &mut Call<'_>) -> Outcome {
    if call.session.queue.is_some() {
        return Err(Failure::Known("ERR WATCH inside MULTI is not allowed"));
    }
    let database = call.database();
    for key in call.arguments.from(1) {
        let is_new = call
            .session
            .watched
            .iter()
            .all(|watched| watched.key.0 != database || watched.key.1 != key);
        if is_new {
            // A key that has expired already is deleted first: its deletion is no change.
            let was_missing = call.keyspace().find(database, key)?.is_none();
            let watched = call.keyspace().watches().watch(database, key, was_missing);
            call.session.watched.push(watched);
        }
    }
    call.reply().ok();
    Ok(())
}

fn unwatch(call: &mut Call<'_>) -> Outcome {
    unwatch_all(call.server, call.session);
    call.reply().ok();
    Ok(())
}
