//! Serves a Cambium store over the protocol of Redis.
//!
//! ```text
//!            ┌ network thread ┐  commands   ┌ executor ┐  one batch a round   ┌ store ┐
//! clients ──▶│ reads, parses  │────────────▶│ runs     │─────────────────────▶│       │
//!         ◀──│ sends answers  │◀────────────│ commands │◀─────────────────────│       │
//!            └────────────────┘  answers    └──────────┘  reads               └───────┘
//!                    ▲      ┌ syncer ┐ answers  │  │ long commands ┌ helpers ┐   ▲
//!                    └──────│        │◀─────────┘  └──────────────▶│         │───┘
//!                           └────────┘  with `synced`              └─────────┘
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | `network` | sockets, and who may be read |
//! | `resp` | requests and answers as bytes |
//! | `services` | the thread of `http` and `thrift` |
//! | `thrift` | the Thrift service |
//! | `http` | the HTTP port: `/metrics`, the probes of health, the page with charts |
//! | `metrics` | counters that the threads share |
//! | `executor` | rounds, clients, helper threads, group commit |
//! | `commands` | the commands |
//! | `keyspace` | databases of keys in one store |
//! | `settings`, `arguments` | CONFIG; the command line |
#![forbid(unsafe_code)]

pub mod arguments;
mod clock;
mod commands;
mod executor;
mod glob;
mod http;
mod keyspace;
mod mailbox;
mod messages;
mod metrics;
mod network;
mod password;
mod resp;
mod run;
mod services;
mod settings;
mod thrift;

pub use run::run;

/// The version of Redis whose semantics and texts are served.
pub const REDIS_VERSION: &str = "7.0.15";
