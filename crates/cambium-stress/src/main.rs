//! `cambium-stress`: stores under threads, kills, power cuts and damage, watched from
//! outside. Developers of Cambium run it; no user links it.
//!
//! A **supervisor** draws a plan from the seed (options, shape of keys, sizes of values),
//! makes a store, and starts **workers** on it, one after the other. A worker verifies what
//! it finds against the ledger, then loads the store with threads until it ends or is
//! killed. Between workers the supervisor runs the tools of the command `cambium`, and
//! kills those too. A violation ends the run; the store, the ledger and the command
//! that began it stay.
//!
//! | module | what it holds |
//! |---|---|
//! | `arguments` | the command line |
//! | `supervisor`, `round`, `strike`, `children` | one store after the other; one store; what happens to it; processes |
//! | `disk`, `pages`, `mount` | a disk with a volatile cache that fails and loses power; the bytes of its files; its FUSE side, and real file systems on it |
//! | `damage` | damaged copies of closed and killed stores |
//! | `plan`, `draw` | what a store and its load are, and how they are drawn |
//! | `session`, `contents` | a worker's life; everything that a store holds |
//! | `actor`, `writes`, `reads`, `held`, `named` | a thread of the load, and what it does |
//! | `ledger`, `oracle` | intents and answers in files; what the store may hold |
//! | `content`, `random` | keys and values; random numbers |
#![forbid(unsafe_code)]

mod actor;
mod arguments;
mod children;
mod content;
mod contents;
mod damage;
mod disk;
mod draw;
mod follower;
mod held;
mod ledger;
mod mount;
mod named;
mod oracle;
mod pages;
mod plan;
mod random;
mod reads;
mod round;
mod session;
mod strike;
mod supervisor;
mod writes;

use std::process::ExitCode;

use clap::Parser;

use crate::arguments::{Arguments, Role};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match &arguments.role {
        None => supervisor::main(&arguments),
        Some(Role::Worker { orders }) => {
            end(parse(orders).and_then(|orders| session::run(&orders)))
        }
        Some(Role::Damage { orders }) => end(parse(orders).and_then(|orders| damage::run(&orders))),
        Some(Role::Busy) => loop {
            std::hint::spin_loop();
        },
    }
}

fn parse<T: serde::de::DeserializeOwned>(orders: &str) -> Result<T, String> {
    serde_json::from_str(orders).map_err(|error| format!("the orders: {error}"))
}

/// Ends the process with what the supervisor reads.
fn end(outcome: Result<String, String>) -> ! {
    match outcome {
        Ok(line) => {
            println!("{line}");
            std::process::exit(0)
        }
        Err(violation) => {
            println!("VIOLATION {violation}");
            std::process::exit(1)
        }
    }
}
