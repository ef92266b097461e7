//! What CONFIG shows and changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use cambium::parse_bytes;
use cambium_io::sync::atomic::{AtomicUsize, Ordering};

use crate::descriptors;
use crate::keyspace::layout::MOST_STRING_BYTES;
use crate::resp::parser::MOST_STRANGE_BYTES;

/// The default of `maxclients` in Redis.
pub const DEFAULT_CLIENTS: usize = 10_000;

/// What the network thread has to know of the settings, and the executor of connections.
#[derive(Debug)]
pub struct Shared {
    /// Longest argument: `proto-max-bulk-len`.
    pub argument_bytes: AtomicUsize,
    /// Most connections: `maxclients`.
    pub clients: AtomicUsize,
    /// Seconds after which an idle client is cut; 0 is never: `timeout`.
    pub idle_seconds: AtomicUsize,
}

/// A setting of Redis' own.
struct Known {
    name: &'static str,
    default: &'static str,
    /// CONFIG SET changes it.
    is_changeable: bool,
}

const fn fixed(name: &'static str, default: &'static str) -> Known {
    Known {
        name,
        default,
        is_changeable: false,
    }
}

/// It is answered as it was set, and changes nothing.
const fn changeable(name: &'static str, default: &'static str) -> Known {
    Known {
        name,
        default,
        is_changeable: true,
    }
}

const KNOWN: &[Known] = &[
    fixed("bind", "127.0.0.1"),
    fixed("port", "6379"),
    fixed("databases", "16"),
    fixed("dir", ""),
    fixed("dbfilename", ""),
    fixed("cluster-enabled", "no"),
    fixed("appendfilename", ""),
    fixed("unixsocket", ""),
    fixed("io-threads", "1"),
    changeable("maxclients", "10000"),
    changeable("timeout", "0"),
    changeable("proto-max-bulk-len", "536870912"),
    changeable("requirepass", ""),
    changeable("notify-keyspace-events", ""),
    changeable("save", ""),
    changeable("appendonly", "no"),
    changeable("appendfsync", "everysec"),
    changeable("maxmemory", "0"),
    changeable("maxmemory-policy", "noeviction"),
    changeable("maxmemory-samples", "5"),
    changeable("lua-time-limit", "5000"),
    changeable("busy-reply-threshold", "5000"),
    changeable("slowlog-log-slower-than", "10000"),
    changeable("slowlog-max-len", "128"),
    changeable("latency-monitor-threshold", "0"),
    changeable(
        "client-output-buffer-limit",
        "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60",
    ),
    changeable("client-query-buffer-limit", "1073741824"),
    changeable("hash-max-listpack-entries", "512"),
    changeable("hash-max-listpack-value", "64"),
    changeable("hash-max-ziplist-entries", "512"),
    changeable("hash-max-ziplist-value", "64"),
    changeable("list-max-listpack-size", "-2"),
    changeable("set-max-intset-entries", "512"),
    changeable("zset-max-listpack-entries", "128"),
    changeable("zset-max-listpack-value", "64"),
    changeable("activedefrag", "no"),
    changeable("lazyfree-lazy-user-del", "no"),
    changeable("lazyfree-lazy-user-flush", "no"),
    changeable("lazyfree-lazy-expire", "no"),
    changeable("hz", "10"),
    changeable("loglevel", "notice"),
    changeable("tcp-keepalive", "300"),
    changeable("min-replicas-to-write", "0"),
    changeable("repl-diskless-sync", "yes"),
];

/// The settings of a server.
#[derive(Debug)]
pub struct Settings {
    values: BTreeMap<&'static str, String>,
    shared: Arc<Shared>,
    databases: usize,
}

impl Settings {
    /// Redis' defaults, with `given` in place of some.
    pub fn new(databases: usize, given: &[(&'static str, String)]) -> Settings {
        let mut settings = Settings {
            values: KNOWN
                .iter()
                .map(|known| (known.name, known.default.to_string()))
                .collect(),
            shared: Arc::new(Shared {
                argument_bytes: AtomicUsize::new(512 << 20),
                clients: AtomicUsize::new(DEFAULT_CLIENTS),
                idle_seconds: AtomicUsize::new(0),
            }),
            databases,
        };
        settings.values.insert("databases", databases.to_string());
        for (name, value) in given {
            settings.set(name, value.clone());
        }
        settings
    }

    /// What the network thread reads.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// How many databases there are.
    pub fn databases(&self) -> usize {
        self.databases
    }

    /// Longest argument and longest string.
    pub fn argument_bytes(&self) -> usize {
        self.shared.argument_bytes.load(Ordering::Relaxed)
    }

    /// The password, if there is one.
    pub fn password(&self) -> Option<&str> {
        self.values
            .get("requirepass")
            .map(String::as_str)
            .filter(|password| !password.is_empty())
    }

    /// Every setting with its value.
    pub fn all(&self, events: &str) -> impl Iterator<Item = (String, String)> {
        self.values.iter().map(move |(name, value)| {
            let value = if *name == "notify-keyspace-events" {
                events
            } else {
                value
            };
            ((*name).to_string(), value.to_string())
        })
    }

    /// Refuses what CONFIG SET cannot do, in Redis' words.
    ///
    /// # Errors
    /// The text of the answer.
    pub fn check(&self, name: &str, value: &str) -> Result<(), String> {
        let Some(known) = KNOWN.iter().find(|known| known.name == name) else {
            return Err(format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
            ));
        };
        let failed = |why: &str| {
            Err(format!(
                "ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"
            ))
        };
        if !known.is_changeable {
            return failed("can't set immutable config");
        }
        match name {
            "maxclients" if value.parse() == Ok(0u32) => {
                failed("argument must be between 1 and 4294967295 inclusive")
            }
            // No client could send it.
            "requirepass" if value.len() > MOST_STRANGE_BYTES => {
                failed(&format!("expected up to {MOST_STRANGE_BYTES} bytes"))
            }
            "maxclients" | "timeout" if value.parse::<u32>().is_err() => {
                failed("argument couldn't be parsed into an integer")
            }
            "maxclients" => {
                let wanted = value.parse().unwrap_or(usize::MAX);
                match descriptors::make_room(wanted) {
                    most if most < wanted => failed(&format!(
                        "The operating system is not able to handle the specified number of \
                         clients, try with {most}"
                    )),
                    _ => Ok(()),
                }
            }
            "proto-max-bulk-len" => match parse_size(value) {
                None => failed("argument must be a memory value"),
                Some(bytes) if bytes < 1 << 20 => {
                    failed("argument must be between 1048576 and 9223372036854775807 inclusive")
                }
                Some(_) => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Sets what [`Settings::check`] has let pass.
    pub fn set(&mut self, name: &str, value: String) {
        let number = parse_size(&value);
        match (name, number) {
            ("proto-max-bulk-len", Some(bytes)) => {
                let most = MOST_STRING_BYTES as u64;
                self.shared
                    .argument_bytes
                    .store(bytes.min(most) as usize, Ordering::Relaxed);
            }
            ("maxclients", Some(clients)) => self
                .shared
                .clients
                .store(clients as usize, Ordering::Relaxed),
            ("timeout", Some(seconds)) => self
                .shared
                .idle_seconds
                .store(seconds as usize, Ordering::Relaxed),
            _ => {}
        }
        if let Some(known) = KNOWN.iter().find(|known| known.name == name) {
            self.values.insert(known.name, value);
        }
    }
}

/// Bytes as Redis writes them: `100`, `1mb`, `1m`.
fn parse_size(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let binary = lower
        .replace("kb", "kib")
        .replace("mb", "mib")
        .replace("gb", "gib");
    parse_bytes(&binary)
}
