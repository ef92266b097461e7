//! Serves a Cambium store over the protocols of Redis and Thrift, and its counters over HTTP.
//!
//! ```text
//!            ┌ network thread ───────────┐  one batch a round   ┌ store ┐
//! clients ──▶│ reads, parses ─▶ executor │─────────────────────▶│       │
//!         ◀──│ sends answers ◀─ commands │◀─────────────────────│       │
//!            └───────────────────────────┘  reads               └───────┘
//!                    ▲      ┌ syncer ┐ answers │  │ long commands ┌ helpers ┐   ▲
//!                    └──────│        │◀────────┘  └──────────────▶│         │───┘
//!                           └────────┘  with `synced`             └─────────┘
//! ```
//!
//! Where rounds are slow, a thread of the executor's own runs them.
//!
//! | module | what it holds |
//! |---|---|
//! | `network` | sockets, and who may be read |
//! | `resp` | requests and answers as bytes |
//! | `services`, `tls` | the thread of `http`, `thrift` and handshakes |
//! | `thrift` | the Thrift service |
//! | `http` | the HTTP port: `/metrics`, the probes of health, the page with charts |
//! | `metrics` | counters that the threads share |
//! | `executor` | rounds, clients, helper threads, group commit |
//! | `commands` | the commands |
//! | `keyspace` | databases of keys in one store |
//! | `cluster` | a server as one of many: chains of replicas, kept in etcd |
//! | `room` | what is kept of the disk for deletes |
//! | `settings`, `arguments` | CONFIG; the command line |
//! | `logs` | events as lines on standard error |
#![forbid(unsafe_code)]

pub mod arguments;
mod clock;
mod cluster;
mod commands;
mod descriptors;
mod executor;
mod glob;
mod http;
mod keyspace;
pub mod logs;
mod mailbox;
mod messages;
mod metrics;
mod network;
mod password;
mod resp;
mod room;
mod run;
mod services;
mod settings;
mod thrift;
mod tls;

pub use run::run;

/// Decodes bytes as the requests of a client in every protocol, for the fuzzer: whatever they
/// are, it returns.
#[doc(hidden)]
pub fn decode_requests(bytes: &[u8]) {
    for is_stranger in [true, false] {
        let limits = resp::parser::Limits {
            argument_bytes: 1 << 20,
            is_stranger,
        };
        let mut parser = resp::parser::Parser::default();
        let mut commands = resp::parser::Commands::default();
        let mut buffer = Vec::new();
        // In two parts: the parser goes on where the first has ended.
        for part in [&bytes[..bytes.len() / 2], &bytes[bytes.len() / 2..]] {
            buffer.extend_from_slice(part);
            if parser
                .parse(&mut buffer, limits, usize::MAX, &mut commands)
                .is_err()
            {
                break;
            }
        }
    }
    thrift::decode_request(bytes);
}

/// The version of Redis whose semantics and texts are served.
pub const REDIS_VERSION: &str = "7.0.15";
