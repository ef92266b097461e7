//! Chain replication (van Renesse and Schneider, OSDI 2004; ZDB, section 3.4), without I/O.
//!
//! ```text
//!  key ─CRC-16─▶ slot ─▶ partition ─▶ chain:  head ──▶ middle ──▶ tail   ──▶ (syncing)
//!                                             writes    append     append
//!                                             ◀───────acknowledgements
//! ```
//!
//! A *partition* is a part of the keys. Its *chain* is an ordered list of nodes: the head
//! takes writes, numbers them and hands them to its successor, which hands them on. A chain
//! has an *epoch*, a number that every change of the chain raises and every message carries.
//! What the chains are stands in etcd; the *controller*, one of the nodes, changes them when
//! nodes come and go.
//!
//! Everything here is a function of its arguments: no clock, no socket, no thread. The server
//! runs it, and so do the simulation and the model of capacity.
//!
//! | module | what it holds |
//! |---|---|
//! | [`slots`] | from a key to its partition |
//! | [`topology`] | what stands in etcd: nodes, chains, members |
//! | [`control`] | how the controller changes chains |
//! | [`position`] | how far a replica has come, and where another one can go on |
//! | [`replica`] | one member of one chain: what it accepts, serves and has committed |
#![forbid(unsafe_code)]

pub mod control;
pub mod position;
pub mod replica;
pub mod slots;
pub mod topology;
