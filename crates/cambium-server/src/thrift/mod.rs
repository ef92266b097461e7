//! The Thrift service of `idl/cambium.thrift`.
//!
//! One thread serves all connections; calls run on the executor, in its rounds. A connection
//! has one call with the executor at a time, so answers are in order; calls that a client has
//! sent ahead wait in its socket.
//!
//! The first bytes of a connection say how the client encodes: a framed message begins with
//! its length, whose first byte is below 0x80; a binary message with 0x80, a compact one with
//! 0x82.

pub mod calls;
pub mod forwarding;
mod value;

use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;

use crate::mailbox::Mailbox;
use crate::messages::Event;
use crate::services::{Door, Duplex, accept_each};
use calls::Call;
use forwarding::{FORWARDED, Forwarding};
use value::{Message, Protocol, Undecoded};

pub use value::Answer;

/// Connections at one time; the others wait to be accepted.
const MOST_CONNECTIONS: usize = 10_000;
/// Bytes of one message.
const MOST_MESSAGE_BYTES: usize = 1 << 30;
/// Bytes of one message of a client that has not given the password.
const MOST_STRANGER_BYTES: usize = 16 << 10;
/// Most that one read takes.
const READ_BYTES: usize = 64 << 10;

/// Serves on a bound socket for ever.
///
/// # Errors
/// The socket cannot be watched.
pub async fn serve(
    listener: TcpListener,
    door: Door,
    inbox: Arc<Mailbox<Event>>,
    has_password: bool,
    forwarding: Option<Forwarding>,
) -> io::Result<()> {
    accept_each(listener, MOST_CONNECTIONS, move |stream| {
        let (door, inbox) = (door.clone(), inbox.clone());
        let forwarding = forwarding.clone();
        async move {
            let Ok(stream) = door.open(stream).await else {
                return;
            };
            let mut connection = Connection {
                stream,
                inbox,
                buffer: Vec::new(),
                is_known: false,
                has_password,
                forwarding,
                is_forwarded: false,
            };
            // A client that disconnects, or sends what is no call, concerns nobody else.
            _ = connection.run().await;
        }
    })
    .await
}

/// How a client frames and encodes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Form {
    is_framed: bool,
    protocol: Protocol,
}

struct Connection {
    stream: Box<dyn Duplex>,
    inbox: Arc<Mailbox<Event>>,
    /// Bytes that have arrived and are no whole message yet.
    buffer: Vec<u8>,
    /// It has given the password. The executor knows whether there is one now.
    is_known: bool,
    /// There was one when the server started: messages of strangers are short.
    has_password: bool,
    /// Connections to the nodes that have the keys of its calls.
    forwarding: Option<Forwarding>,
    /// Another node forwards its clients' calls by it.
    is_forwarded: bool,
}

impl Connection {
    async fn run(&mut self) -> io::Result<()> {
        while let Some((form, message, bytes)) = self.receive().await? {
            if message.name == FORWARDED {
                (self.forwarding, self.is_forwarded) = (None, true);
                self.answer(form, &message, &Answer::Done(None)).await?;
                continue;
            }
            let is_auth = message.name == "auth";
            let call = Call {
                name: message.name.clone(),
                arguments: message.arguments.clone(),
                is_known: self.is_known,
                database: 0,
            };
            let (answerer, answered) = oneshot::channel();
            self.inbox.send([Event::Call(call, answerer)]);
            // The server stops if there is no answer.
            let Ok(answer) = answered.await else {
                return Ok(());
            };
            let answer = match &answer {
                // The client stays with the node that forwards: `MOVED` could name that node.
                Answer::Moved(text, _) if self.is_forwarded => calls::forwarded_astray(text),
                _ => answer,
            };
            self.is_known |= is_auth && matches!(answer, Answer::Done(_));
            let forwarded = match (&mut self.forwarding, &answer) {
                (Some(forwarding), Answer::Moved(_, address)) => {
                    Some(forwarding.forward(address, &bytes).await)
                }
                _ => None,
            };
            match forwarded {
                Some(Ok(bytes)) => self.send(form, &bytes).await?,
                Some(Err(failure)) => self.answer(form, &message, &failure).await?,
                None => self.answer(form, &message, &answer).await?,
            }
        }
        Ok(())
    }

    async fn answer(&mut self, form: Form, message: &Message, answer: &Answer) -> io::Result<()> {
        if message.is_oneway {
            return Ok(());
        }
        let bytes = value::encode(form.protocol, &message.name, message.sequence, answer)
            .map_err(|error| io::Error::other(error.to_string()))?;
        self.send(form, &bytes).await
    }

    async fn send(&mut self, form: Form, bytes: &[u8]) -> io::Result<()> {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes();
        let head = if form.is_framed { &length[..] } else { &[] };
        self.stream.write_all(&[head, bytes].concat()).await
    }

    /// The next message, and its bytes where they may be forwarded; none if the client has closed its side between two messages.
    async fn receive(&mut self) -> io::Result<Option<(Form, Message, Vec<u8>)>> {
        loop {
            if let Some(found) = self.take_message()? {
                return Ok(Some(found));
            }
            if self.buffer.len() > self.most_bytes() {
                return Err(ErrorKind::InvalidData.into());
            }
            if !self.read_more().await? {
                return match self.buffer.is_empty() {
                    true => Ok(None),
                    false => Err(ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }

    /// Reads until it is worth trying to decode again: the bytes have doubled, or none comes
    /// for a moment. A large unframed message is decoded a few times then, and not once for
    /// each part of it that arrives. False at the end of the stream.
    async fn read_more(&mut self) -> io::Result<bool> {
        let before = self.buffer.len();
        let pause = Duration::from_micros(1_000 + before as u64 / 50);
        loop {
            self.buffer.reserve(READ_BYTES.min(before.max(512)));
            let has_grown = self.buffer.len() > before;
            let read = self.stream.read_buf(&mut self.buffer);
            let count = match has_grown {
                false => read.await?,
                true => match tokio::time::timeout(pause, read).await {
                    Ok(count) => count?,
                    Err(_) => return Ok(true),
                },
            };
            if count == 0 || self.buffer.len() >= before * 2 {
                return Ok(count > 0);
            }
        }
    }

    fn most_bytes(&self) -> usize {
        match self.has_password && !self.is_known {
            true => MOST_STRANGER_BYTES,
            false => MOST_MESSAGE_BYTES,
        }
    }

    /// Takes a whole message from the beginning of the buffer, if one is there.
    fn take_message(&mut self) -> io::Result<Option<(Form, Message, Vec<u8>)>> {
        let invalid = |what: String| io::Error::new(ErrorKind::InvalidData, what);
        let Some(form) = form(&self.buffer).map_err(invalid)? else {
            return Ok(None);
        };
        let (start, end) = match form.is_framed {
            false => (0, self.buffer.len()),
            true => {
                let length = [0, 1, 2, 3].map(|place| self.buffer[place]);
                let length = u32::from_be_bytes(length) as usize;
                if length > self.most_bytes() {
                    return Err(invalid(format!("a frame of {length} bytes")));
                }
                if self.buffer.len() < 4 + length {
                    return Ok(None);
                }
                (4, 4 + length)
            }
        };
        match value::decode(form.protocol, &self.buffer[start..end]) {
            Ok((message, taken)) => {
                let bytes = match self.forwarding {
                    Some(_) => self.buffer[start..start + taken].to_vec(),
                    None => Vec::new(),
                };
                let taken = if form.is_framed { end } else { taken };
                self.buffer.drain(..taken);
                if self.buffer.is_empty() {
                    // An idle connection keeps no memory.
                    self.buffer = Vec::new();
                }
                Ok(Some((form, message, bytes)))
            }
            Err(Undecoded::Incomplete) if !form.is_framed => Ok(None),
            Err(Undecoded::Incomplete) => Err(invalid("a frame ends within its message".into())),
            Err(Undecoded::Malformed(what)) => Err(invalid(what)),
        }
    }
}

/// Decodes bytes as a message, for the fuzzer.
pub fn decode_request(bytes: &[u8]) {
    for protocol in [Protocol::Binary, Protocol::Compact] {
        _ = value::decode(protocol, bytes);
    }
}

/// How a client encodes, by the first bytes it sends; none if they are too few.
fn form(bytes: &[u8]) -> Result<Option<Form>, String> {
    let protocol = |byte: u8| match byte {
        0x80 => Ok(Protocol::Binary),
        0x82 => Ok(Protocol::Compact),
        _ => Err(format!("a message begins with {byte:#x}: expected Thrift")),
    };
    match bytes {
        [first, ..] if *first >= 0x80 => Ok(Some(Form {
            is_framed: false,
            protocol: protocol(*first)?,
        })),
        [_, _, _, _, fifth, ..] => Ok(Some(Form {
            is_framed: true,
            protocol: protocol(*fifth)?,
        })),
        _ => Ok(None),
    }
}
