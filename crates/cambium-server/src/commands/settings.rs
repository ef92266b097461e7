//! CONFIG.

use super::{ADMIN, Call, Command, Failure, Outcome, SYNTAX};
use crate::glob;

#[rustfmt::skip] // a table
pub const COMMANDS: &[Command] = &[
    Command { name: "config", arity: -2, flags: ADMIN, keys: (0, 0, 0), run: config, summary: "Get and set configuration parameters" },
];

fn config(call: &mut Call<'_>) -> Outcome {
    if call.is(1, "get") {
        get(call);
    } else if call.is(1, "set") {
        set(call)?;
    } else if call.is(1, "resetstat") {
        call.server.reset_statistics();
        call.reply().ok();
    } else {
        return Err(Failure::Known(
            "ERR The server is running without a config file",
        ));
    }
    Ok(())
}

fn get(call: &mut Call<'_>) {
    let events = call.server.keyspace.notices.text();
    let matching: Vec<(String, String)> = call
        .server
        .settings
        .all(&events)
        .filter(|(name, _)| {
            call.arguments
                .from(2)
                .any(|pattern| glob::matches(pattern, name.as_bytes(), true))
        })
        .collect();
    let reply = call.reply();
    reply.map(matching.len());
    for (name, value) in matching {
        reply.bulk(name);
        reply.bulk(value);
    }
}

/// All or none are set: each is checked first.
fn set(call: &mut Call<'_>) -> Outcome {
    if call.count() % 2 != 0 {
        return Err(SYNTAX);
    }
    let mut pairs = Vec::new();
    for place in (2..call.count()).step_by(2) {
        let name = String::from_utf8_lossy(call.argument(place)).to_lowercase();
        let value = std::str::from_utf8(call.argument(place + 1)).map_err(|_| {
            Failure::Text(format!(
                "ERR CONFIG SET failed (possibly related to argument '{name}') - expected text \
                 in UTF-8"
            ))
        })?;
        call.server
            .settings
            .check(&name, value)
            .map_err(Failure::Text)?;
        pairs.push((name, value.to_string()));
    }
    for (name, value) in pairs {
        if name == "notify-keyspace-events" {
            if !call.keyspace().notices.configure(&value) {
                return Err(Failure::Text(format!(
                    "ERR CONFIG SET failed (possibly related to argument '{name}') - Invalid event class character. Use 'Ag$lshzxeKEtmdn'."
                )));
            }
        } else {
            call.server.settings.set(&name, value);
        }
    }
    call.reply().ok();
    Ok(())
}
