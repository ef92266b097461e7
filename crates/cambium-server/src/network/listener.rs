//! Sockets that the server listens to.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::path::PathBuf;

use cambium_base::Address;
use mio::net::{TcpListener, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use socket2::SockRef;

use super::connection::Stream;

/// Connections that may wait for their accept.
const BACKLOG: i32 = 4096;

fn resolve(address: &Address) -> io::Result<Vec<SocketAddr>> {
    match address {
        Address::Tcp(address) => Ok(address.to_socket_addrs()?.collect()),
        Address::Unix(_) => Ok(Vec::new()),
    }
}

/// True if other machines can reach an address.
///
/// # Errors
/// The name of the host is not known.
pub fn is_public(address: &Address) -> io::Result<bool> {
    let resolved = resolve(address)?;
    Ok(resolved.iter().any(|address| !address.ip().is_loopback()))
}

/// Lets more connections wait for their accept than the 128 of the standard library: clients
/// that find no place try again only after a second. The system may allow fewer.
///
/// # Errors
/// Those of the system.
pub fn deepen<S: AsFd>(listening: &S) -> io::Result<()> {
    // A second `listen` changes the length of the queue alone.
    SockRef::from(listening).listen(BACKLOG)
}

/// A socket that accepts connections.
#[derive(Debug)]
pub enum Listener {
    /// Over the network.
    Tcp(TcpListener),
    /// On this machine; the file goes when the listener does.
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Begins to listen.
    ///
    /// # Errors
    /// Those of the system.
    pub fn bind(address: &Address) -> io::Result<Listener> {
        match address {
            Address::Tcp(_) => {
                let mut last = ErrorKind::AddrNotAvailable.into();
                for address in resolve(address)? {
                    match TcpListener::bind(address) {
                        Ok(listener) => {
                            deepen(&listener)?;
                            return Ok(Listener::Tcp(listener));
                        }
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
            Address::Unix(path) => {
                let bound = match UnixListener::bind(path) {
                    Err(error) if error.kind() == ErrorKind::AddrInUse => {
                        // A server that was killed leaves its socket behind.
                        let is_served = UnixStream::connect(path).is_ok();
                        if is_served {
                            return Err(error);
                        }
                        std::fs::remove_file(path)?;
                        UnixListener::bind(path)
                    }
                    bound => bound,
                };
                let bound = bound?;
                deepen(&bound)?;
                Ok(Listener::Unix(bound, path.clone()))
            }
        }
    }

    /// The address as clients write it, with the port that the system chose for port 0.
    ///
    /// # Errors
    /// Those of the system.
    pub fn address(&self) -> io::Result<String> {
        match self {
            Listener::Tcp(listener) => Ok(listener.local_addr()?.to_string()),
            Listener::Unix(_, path) => Ok(format!("unix:{}", path.display())),
        }
    }

    /// Begins to hear of connections.
    ///
    /// # Errors
    /// Those of the system.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Listener::Tcp(listener) => registry.register(listener, token, Interest::READABLE),
            Listener::Unix(listener, _) => registry.register(listener, token, Interest::READABLE),
        }
    }

    /// The next connection, with the addresses of both sides.
    ///
    /// # Errors
    /// `WouldBlock` if there is none; those of the system.
    pub fn accept(&self) -> io::Result<(Stream, String, String)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                stream.set_nodelay(true)?;
                let local = stream.local_addr()?.to_string();
                Ok((Stream::Tcp(stream), peer.to_string(), local))
            }
            Listener::Unix(listener, path) => {
                let (stream, _) = listener.accept()?;
                let path = format!("{}:0", path.display());
                Ok((Stream::Unix(stream), path.clone(), path))
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            // What is left is removed by the next server.
            _ = std::fs::remove_file(path);
        }
    }
}
