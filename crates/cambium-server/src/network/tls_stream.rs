//! A socket behind TLS, as the network thread reads and writes it: without waiting.
//!
//! The handshake is over. What is here is the cipher of records, and what may follow a
//! handshake: an update of keys, or the notice that the client sends no more.

use std::io::{self, ErrorKind, Read, Write};

use mio::net::TcpStream;
use rustls::ServerConnection;
use rustls::pki_types::CertificateDer;

/// A socket and its ciphers.
#[derive(Debug)]
pub struct TlsStream {
    /// The socket.
    pub socket: TcpStream,
    session: ServerConnection,
    has_ended: bool,
}

impl TlsStream {
    /// A socket whose handshake is over, with what it agreed on.
    pub fn new(socket: TcpStream, session: ServerConnection) -> TlsStream {
        TlsStream {
            socket,
            session,
            has_ended: false,
        }
    }

    /// The client's own certificate, if it has shown one.
    pub fn certificate(&self) -> Option<Box<CertificateDer<'static>>> {
        let shown = self.session.peer_certificates()?.first()?;
        Some(Box::new(shown.clone()))
    }

    /// True if nothing more can be read: the end has come, or an error that the next read tells.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// True if records wait for room in the socket.
    pub fn has_unsent(&self) -> bool {
        self.session.wants_write()
    }

    /// Reads until `into` is full or the socket is empty; 0 at the end.
    ///
    /// # Errors
    /// `WouldBlock` if nothing is there; the connection is lost, or breaks the protocol.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut count = 0;
        while count < into.len() {
            match self.session.reader().read(&mut into[count..]) {
                Ok(0) => {
                    self.has_ended = true;
                    break;
                }
                Ok(more) => count += more,
                Err(error) if error.kind() == ErrorKind::WouldBlock => match self.receive() {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) if count > 0 => break,
                    Err(error) => return Err(error),
                },
                // The socket has ended without a notice.
                Err(_) => {
                    self.has_ended = true;
                    break;
                }
            }
        }
        Ok(count)
    }

    /// Takes records from the socket.
    fn receive(&mut self) -> io::Result<()> {
        let received = self.session.read_tls(&mut self.socket).and_then(|_| {
            let processed = self.session.process_new_packets();
            processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
        });
        // An answer of the protocol: an update of keys, an alert.
        let sent = self.flush();
        let failed = |error: &io::Error| {
            !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
        };
        self.has_ended |= received.as_ref().is_err_and(failed) || sent.as_ref().is_err_and(failed);
        received.map(drop)
    }

    /// Takes bytes to send, and sends what there is room for.
    ///
    /// # Errors
    /// `WouldBlock` if earlier bytes wait; the connection is lost.
    pub fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.flush()?;
        let count = self.session.writer().write(from)?;
        match self.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(count),
        }
    }

    /// Sends what waits.
    ///
    /// # Errors
    /// `WouldBlock` if some still waits; the connection is lost.
    pub fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Says that nothing more is sent, if there is room for that.
    pub fn notify_end(&mut self) {
        self.session.send_close_notify();
        // Without room the client sees the end of the socket alone.
        _ = self.flush();
    }
}
