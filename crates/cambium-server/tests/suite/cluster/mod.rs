//! Three servers and etcd: what was acknowledged survives kills, pauses, moves and copies.

mod access;
mod failures;
mod harness;
mod history;
mod membership;
mod proxy;
mod torment;
