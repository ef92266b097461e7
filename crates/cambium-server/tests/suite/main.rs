//! The suites of `cambium-server` in one program. Each runs real servers and talks to them
//! over sockets: `cargo test -p cambium-server --test suite NAME::`.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod client;
mod cluster;
mod crashes;
mod descriptors;
mod expiry;
mod fetches;
mod harness;
mod hashes;
mod http;
mod keys;
mod logs;
mod model;
mod protocol;
mod pubsub;
mod room;
mod strings;
mod thrift;
mod tls;
mod transactions;
