//! Three servers and etcd: what was acknowledged survives kills, pauses, moves and copies.

mod failures;
mod harness;
mod membership;
mod proxy;
