//! Three servers and etcd: what was acknowledged survives kills, pauses, moves and copies.

mod access;
mod calls;
mod failures;
mod harness;
mod history;
mod machines;
mod membership;
mod proxy;
mod secured;
mod shown;
mod torment;
