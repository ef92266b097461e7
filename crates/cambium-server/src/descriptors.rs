//! Descriptors of files and sockets: clients leave some for the store.

use std::os::fd::AsRawFd;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors beside those of clients: of the store, of listeners.
const MOST_KEPT: u64 = 512;

/// Clients get half of them if few are allowed.
fn kept(limit: u64) -> u64 {
    MOST_KEPT.min(limit / 2)
}

fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the limit of descriptors for so many clients. Answers how many there is room for.
pub fn make_room(clients: usize) -> usize {
    let wanted = (clients as u64).saturating_add(MOST_KEPT);
    let maximum = getrlimit(Resource::Nofile).maximum;
    if limit() < wanted {
        let raised = Rlimit {
            current: Some(wanted.min(maximum.unwrap_or(u64::MAX))),
            maximum,
        };
        // If the system refuses, fewer clients are served.
        _ = setrlimit(Resource::Nofile, raised);
    }
    let limit = limit();
    clients.min((limit - kept(limit)) as usize)
}

/// True for a new connection that leaves too few descriptors. The system gives the lowest number
/// that is free, so as many are open. This counts connections of all ports, and files.
pub fn are_scarce(connection: &impl AsRawFd) -> bool {
    let limit = limit();
    connection.as_raw_fd() as u64 >= limit - kept(limit) / 2
}
