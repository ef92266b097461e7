//! The server itself: INFO, TIME, and what it has no use for.

use std::fmt::Write;

use cambium_io::sync::atomic::Ordering;

use super::{ADMIN, Call, Command, FAST, Failure, NO_MULTI, Outcome, SYNTAX};

#[rustfmt::skip] // a table
pub const COMMANDS: &[Command] = &[
    Command { name: "info", arity: -1, flags: 0, keys: (0, 0, 0), run: info, summary: "Get information and statistics about the server" },
    Command { name: "time", arity: 1, flags: FAST, keys: (0, 0, 0), run: time, summary: "Return the current server time" },
    Command { name: "lastsave", arity: 1, flags: FAST, keys: (0, 0, 0), run: lastsave, summary: "Every write is saved: the time is now" },
    Command { name: "save", arity: 1, flags: ADMIN | NO_MULTI, keys: (0, 0, 0), run: save, summary: "Every write is saved already" },
    Command { name: "slowlog", arity: -2, flags: ADMIN, keys: (0, 0, 0), run: slowlog, summary: "There is no log of slow commands" },
    Command { name: "latency", arity: -2, flags: ADMIN, keys: (0, 0, 0), run: latency, summary: "There is no log of latencies" },
    Command { name: "role", arity: 1, flags: FAST, keys: (0, 0, 0), run: role, summary: "Return the role of the instance in the context of replication" },
    Command { name: "shutdown", arity: -1, flags: ADMIN | NO_MULTI, keys: (0, 0, 0), run: shutdown, summary: "Close the store and stop the server" },
];

fn time(call: &mut Call<'_>) -> Outcome {
    let micros = crate::clock::now_micros();
    let reply = call.reply();
    reply.array(2);
    reply.bulk((micros / 1_000_000).to_string());
    reply.bulk((micros % 1_000_000).to_string());
    Ok(())
}

fn lastsave(call: &mut Call<'_>) -> Outcome {
    let seconds = call.keyspace().now / 1000;
    call.reply().integer(seconds as i64);
    Ok(())
}

fn save(call: &mut Call<'_>) -> Outcome {
    call.reply().ok();
    Ok(())
}

fn slowlog(call: &mut Call<'_>) -> Outcome {
    if call.is(1, "get") {
        call.reply().array(0);
    } else if call.is(1, "len") {
        call.reply().integer(0);
    } else {
        call.reply().ok();
    }
    Ok(())
}

fn latency(call: &mut Call<'_>) -> Outcome {
    if call.is(1, "doctor") {
        call.reply()
            .text("There is no log of latencies: cambium_command_seconds at /metrics has them.");
    } else if call.is(1, "graph") {
        let event = String::from_utf8_lossy(call.argument(2));
        return Err(Failure::Text(format!(
            "ERR No samples available for event '{event}'"
        )));
    } else if call.is(1, "histogram") {
        call.reply().map(0);
    } else if call.is(1, "reset") {
        call.reply().integer(0);
    } else {
        call.reply().array(0);
    }
    Ok(())
}

fn role(call: &mut Call<'_>) -> Outcome {
    let reply = call.reply();
    reply.array(3);
    reply.bulk("master");
    reply.integer(0);
    reply.array(0);
    Ok(())
}

fn shutdown(call: &mut Call<'_>) -> Outcome {
    let is_known = |word: &[u8]| {
        [&b"nosave"[..], b"save", b"now", b"force"]
            .iter()
            .any(|known| word.eq_ignore_ascii_case(known))
    };
    if !call.arguments.from(1).all(is_known) {
        return Err(SYNTAX);
    }
    call.server.is_stopping = true;
    Ok(())
}

const SECTIONS: &[&str] = &[
    "server",
    "clients",
    "memory",
    "persistence",
    "stats",
    "replication",
    "cpu",
    "commandstats",
    "cluster",
    "keyspace",
];

fn info(call: &mut Call<'_>) -> Outcome {
    let is_wanted = |section: &str| {
        let by_default = section != "commandstats";
        let mut words = vec![section, "all", "everything"];
        words.extend(by_default.then_some("default"));
        (call.count() == 1 && by_default)
            || call.arguments.from(1).any(|word| {
                words
                    .iter()
                    .any(|known| word.eq_ignore_ascii_case(known.as_bytes()))
            })
    };
    let sections: Vec<&str> = SECTIONS
        .iter()
        .copied()
        .filter(|section| is_wanted(section))
        .collect();
    if sections.contains(&"keyspace") {
        call.keyspace().expire_some()?;
        call.keyspace().shows_pending();
    }
    let texts: Vec<String> = sections
        .into_iter()
        .map(|section| section_text(call, section))
        .collect();
    call.reply().text(&texts.join("\r\n"));
    Ok(())
}

fn section_text(call: &mut Call<'_>, section: &str) -> String {
    let title = section[..1].to_uppercase() + &section[1..];
    let mut text = format!("# {title}\r\n");
    for (name, value) in lines(call, section) {
        // Writing to a string cannot fail.
        _ = write!(text, "{name}:{value}\r\n");
    }
    text
}

fn lines(call: &mut Call<'_>, section: &str) -> Vec<(String, String)> {
    let server = &*call.server;
    let line = |name: &str, value: &dyn ToString| (name.to_string(), value.to_string());
    let seconds = server.keyspace.now.saturating_sub(server.started) / 1000;
    match section {
        "server" => vec![
            line("redis_version", &crate::REDIS_VERSION),
            line("cambium_version", &env!("CARGO_PKG_VERSION")),
            line(
                "redis_mode",
                &match server.chains {
                    Some(_) => "cluster",
                    None => "standalone",
                },
            ),
            line("os", &std::env::consts::OS),
            line("arch_bits", &usize::BITS),
            line("process_id", &std::process::id()),
            line("run_id", &server.run_id),
            line(
                "tcp_port",
                &call.session.local.rsplit(':').next().unwrap_or_default(),
            ),
            line("uptime_in_seconds", &seconds),
            line("uptime_in_days", &(seconds / 86_400)),
            line("engine", &server.keyspace.store().capabilities().engine),
        ],
        "clients" => vec![
            line(
                "connected_clients",
                &(server.sessions.iter().flatten().count() + 1),
            ),
            line(
                "maxclients",
                &server.settings.shared().clients.load(Ordering::Relaxed),
            ),
            line(
                "blocked_clients",
                &server
                    .sessions
                    .iter()
                    .flatten()
                    .filter(|session| session.waiting.is_some())
                    .count(),
            ),
        ],
        "memory" => {
            let (resident, most) = resident_bytes();
            let human = |bytes: u64| format!("{:.2}M", bytes as f64 / 1_048_576.0);
            vec![
                line("used_memory", &resident),
                line("used_memory_human", &human(resident)),
                line("used_memory_rss", &resident),
                line("used_memory_rss_human", &human(resident)),
                line("used_memory_peak", &most),
                line("used_memory_peak_human", &human(most)),
                line("maxmemory", &0),
                line("maxmemory_policy", &"noeviction"),
            ]
        }
        "persistence" => vec![
            line("loading", &0),
            line("async_loading", &0),
            line("rdb_changes_since_last_save", &0),
            line("rdb_bgsave_in_progress", &0),
            line("aof_enabled", &1),
            line("aof_rewrite_in_progress", &0),
            line("durability", &server.durability),
        ],
        "stats" => vec![
            line("total_connections_received", &server.statistics.connections),
            line("total_commands_processed", &server.statistics.commands),
            line("rejected_connections", &server.statistics.refused),
            line("expired_keys", &server.keyspace.expired),
            line("evicted_keys", &0),
            line("keyspace_hits", &server.keyspace.hits.0),
            line("keyspace_misses", &server.keyspace.hits.1),
            line("pubsub_channels", &server.pubsub.channel_count()),
            line("pubsub_patterns", &server.pubsub.pattern_count()),
            line("total_error_replies", &server.statistics.errors),
            line("rounds", &server.round),
        ],
        "replication" => vec![
            line("role", &"master"),
            line("connected_slaves", &0),
            line("master_repl_offset", &0),
        ],
        "commandstats" => {
            let called = server.metrics.called().into_iter();
            called
                .map(|(name, counters)| {
                    let calls: u64 = counters.latency.counts().iter().sum();
                    let micros = counters.latency.seconds() * 1e6;
                    let errors = counters.errors.load(Ordering::Relaxed);
                    let value = format!(
                        "calls={calls},usec={micros:.0},usec_per_call={:.2},failed_calls={errors}",
                        micros / calls.max(1) as f64
                    );
                    line(&format!("cmdstat_{name}"), &value)
                })
                .collect()
        }
        "cluster" => {
            let mut lines = vec![line("cluster_enabled", &u8::from(server.chains.is_some()))];
            if let Some(status) = server.chain_status() {
                let all: u64 = status.lags().map(|lag| lag.batches).sum();
                lines.extend([
                    line("view_revision", &status.revision),
                    line("view_fresh", &u8::from(status.is_fresh)),
                    line("chains", &status.chains.0),
                    line("chains_head", &status.heads),
                    line("chains_behind", &status.behind),
                    line("chains_catching_up", &status.catching_up),
                    line("lag_batches", &status.most_batches()),
                    line("lag_batches_of_all_chains", &all),
                    line("lag_milliseconds", &status.longest().as_millis()),
                    line("reconfigurations", &status.reconfigurations),
                    line("left_copies", &status.left),
                    line("discarded_batches", &status.discarded),
                ]);
            }
            lines
        }
        "keyspace" if server.chains.is_some() => {
            let databases = server.databases_of(call.session).into_iter();
            let counts = databases.map(|database| server.keyspace.count(database));
            let sum = counts.fold((0, 0), |sum, count| {
                (sum.0 + count.keys, sum.1 + count.expiring)
            });
            let value = format!("keys={},expires={},avg_ttl=0", sum.0, sum.1);
            let any = (sum.0 > 0).then(|| line("db0", &value));
            any.into_iter().collect()
        }
        "keyspace" => (0..server.settings.databases() as u8)
            .map(|database| (database, server.keyspace.count(database)))
            .filter(|(_, count)| count.keys > 0)
            .map(|(database, count)| {
                let value = format!("keys={},expires={},avg_ttl=0", count.keys, count.expiring);
                line(&format!("db{database}"), &value)
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// Memory of the process now, and at its most; zeros where the system does not say.
fn resident_bytes() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kibibytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    let bytes = |name| kibibytes(name).unwrap_or(0) << 10;
    (bytes("VmRSS:"), bytes("VmHWM:"))
}
