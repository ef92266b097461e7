//! A connection behind TLS that one thread reads and another one writes.
//!
//! Both share a session under a lock, which neither holds while it waits for the socket: a
//! successor that takes nothing more before its answers are read would else stop both. Only
//! the writer sends. An answer of the protocol, as to an update of keys, leaves with its next
//! bytes, at a quarter of the lease at the latest.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use cambium_io::sync::{Mutex, lock};
use rustls::ClientConnection;

use crate::tls::Tls;

/// Bytes that one read takes of the socket: no more than the session takes at once.
const READ_BYTES: usize = 4 << 10;

/// After a panic the session answers errors.
type Session = Arc<Mutex<ClientConnection>>;

/// The side that reads. It cannot write.
pub struct Reading {
    socket: TcpStream,
    session: Session,
    records: Vec<u8>,
}

/// The side that writes. It cannot read.
pub struct Writing {
    socket: TcpStream,
    session: Session,
    records: Vec<u8>,
}

/// Shakes hands with the node at `HOST:PORT`, waiting at most `patience` for each answer.
///
/// # Errors
/// The node's certificate is refused, or this one's is; the connection is lost.
pub fn open(
    tls: &Tls,
    address: &str,
    socket: &TcpStream,
    patience: Duration,
) -> io::Result<(Reading, Writing)> {
    let mut session = tls.session(address)?;
    socket.set_read_timeout(Some(patience))?;
    socket.set_write_timeout(Some(patience))?;
    let mut both = socket;
    while session.is_handshaking() {
        session.complete_io(&mut both)?;
    }
    let session = Arc::new(Mutex::new(session));
    let reading = Reading {
        socket: socket.try_clone()?,
        session: session.clone(),
        records: vec![0; READ_BYTES],
    };
    let writing = Writing {
        socket: socket.try_clone()?,
        session,
        records: Vec::new(),
    };
    Ok((reading, writing))
}

impl Read for Reading {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match lock(&self.session).reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            let count = self.socket.read(&mut self.records)?;
            let mut records = &self.records[..count];
            let mut session = lock(&self.session);
            // No bytes at all tell the session that the socket has ended.
            loop {
                session.read_tls(&mut records)?;
                session
                    .process_new_packets()
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                if records.is_empty() {
                    break;
                }
            }
        }
    }
}

impl Write for Reading {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Writing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl Write for Writing {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let mut session = lock(&self.session);
        let count = session.writer().write(from)?;
        self.records.clear();
        while session.wants_write() {
            session.write_tls(&mut self.records)?;
        }
        drop(session);
        self.socket.write_all(&self.records)?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}
