//! One connection: its socket, what was read and not parsed, what was answered and not sent.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use rustls::pki_types::CertificateDer;

use super::tls_stream::TlsStream;
use crate::messages::{Handle, Input};
use crate::resp::parser::Parser;

/// A socket of either kind.
#[derive(Debug)]
pub enum Stream {
    /// Over the network.
    Tcp(TcpStream),
    /// Over the network, behind TLS.
    Tls(Box<TlsStream>),
    /// On this machine.
    Unix(UnixStream),
}

impl Stream {
    fn source(&mut self) -> &mut dyn Source {
        match self {
            Stream::Tcp(stream) => stream,
            Stream::Tls(stream) => &mut stream.socket,
            Stream::Unix(stream) => stream,
        }
    }

    /// Reads what is there, once. Less than a full buffer has emptied the socket.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(into),
            Stream::Tls(stream) => stream.read(into),
            Stream::Unix(stream) => stream.read(into),
        }
    }

    /// Sends what there is room for, once.
    pub fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(from),
            Stream::Tls(stream) => stream.write(from),
            Stream::Unix(stream) => stream.write(from),
        }
    }

    /// Sends what it has taken and not sent.
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Tls(stream) => stream.flush(),
            Stream::Tcp(_) | Stream::Unix(_) => Ok(()),
        }
    }

    /// True if it has taken something and not sent it.
    pub fn has_unsent(&self) -> bool {
        matches!(self, Stream::Tls(stream) if stream.has_unsent())
    }

    /// True if its end is known before it is read.
    pub fn has_ended(&self) -> bool {
        matches!(self, Stream::Tls(stream) if stream.has_ended())
    }

    /// The certificate that the client has shown, which the authority has signed.
    pub fn certificate(&self) -> Option<Box<CertificateDer<'static>>> {
        match self {
            Stream::Tls(stream) => stream.certificate(),
            Stream::Tcp(_) | Stream::Unix(_) => None,
        }
    }

    /// Begins to listen to what happens to it.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let both = Interest::READABLE | Interest::WRITABLE;
        registry.register(self.source(), token, both)
    }

    /// Listens no more.
    pub fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        registry.deregister(self.source())
    }

    /// Says that nothing more is sent; what is sent still arrives.
    pub fn finish(&mut self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Tls(stream) => {
                stream.notify_end();
                stream.socket.shutdown(Shutdown::Write)
            }
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Stream::Tcp(stream) => stream.as_raw_fd(),
            Stream::Tls(stream) => stream.socket.as_raw_fd(),
            Stream::Unix(stream) => stream.as_raw_fd(),
        }
    }
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    /// The socket.
    pub stream: Stream,
    /// Its place, and its number.
    pub handle: Handle,
    /// Bytes that are no whole command yet.
    pub buffer: Vec<u8>,
    /// Where the parser stands in them.
    pub parser: Parser,
    /// Answers that the socket had no room for, and how much of them it has taken.
    pub output: Vec<u8>,
    written: usize,
    /// The executor has commands of it.
    pub is_busy: bool,
    /// The socket may have something to read.
    pub is_readable: bool,
    /// The client has closed its side.
    pub is_hung_up: bool,
    /// Nothing more is read from it: it ends when its answers are sent.
    pub is_closing: bool,
    /// It has broken the protocol: the executor has the last it sent.
    pub is_broken: bool,
    /// The client has yet to authenticate itself.
    pub is_stranger: bool,
    /// Commands that run when the client has read its answers.
    pub paused: Option<Input>,
    /// When it last sent something, in seconds of the monotonic clock.
    pub active: u64,
}

impl Connection {
    /// A connection that was just made.
    pub fn new(stream: Stream, handle: Handle, is_stranger: bool, active: u64) -> Self {
        Connection {
            stream,
            handle,
            buffer: Vec::new(),
            parser: Parser::default(),
            output: Vec::new(),
            written: 0,
            is_busy: false,
            is_readable: false,
            is_hung_up: false,
            is_closing: false,
            is_broken: false,
            is_stranger,
            paused: None,
            active,
        }
    }

    /// Bytes of answers that are not sent; what a cipher has taken of them counts as one.
    pub fn unsent(&self) -> usize {
        self.output.len() - self.written + usize::from(self.stream.has_unsent())
    }

    /// Sends as much as the socket takes of what waits and of `bytes`; the rest waits.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.flush()?;
        let mut sent = 0;
        if self.unsent() == 0 {
            while sent < bytes.len() {
                match self.stream.write(&bytes[sent..]) {
                    Ok(0) => return Err(ErrorKind::WriteZero.into()),
                    Ok(count) => sent += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        self.output.extend_from_slice(&bytes[sent..]);
        Ok(())
    }

    /// Sends as much as the socket takes of what waits.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn flush(&mut self) -> io::Result<()> {
        while self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.written = 0;
        // An idle connection keeps no memory.
        self.output = Vec::new();
        match self.stream.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }
}
