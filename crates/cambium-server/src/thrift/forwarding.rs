//! `--proxy`: calls whose keys another node has are forwarded to it.
//!
//! A connection of a client has one of its own to each node that its calls are forwarded to,
//! so calls stay in order. The bytes of a message travel as they came, framed, and so does the
//! answer. The first message on such a connection is [`FORWARDED`]: the node at the other end
//! does not forward again, so two nodes with different views form no circle: it answers
//! `TRY_AGAIN` for keys that it does not have.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::MOST_MESSAGE_BYTES;
use super::calls;
use super::value::Answer;
use crate::services::Duplex;
use crate::tls::Tls;

/// A call between nodes: this connection forwards.
pub const FORWARDED: &str = "forwarded";
/// How long another node may take to accept a connection, and to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The way to other nodes.
#[derive(Clone)]
pub struct Forwarding {
    access: Arc<Access>,
    connections: Connections,
}

/// Connections of one client: a clone begins with none.
#[derive(Default)]
struct Connections(HashMap<String, Box<dyn Duplex>>);

impl Clone for Connections {
    fn clone(&self) -> Self {
        Connections::default()
    }
}

struct Access {
    password: Option<String>,
    tls: Option<Arc<Tls>>,
}

impl Forwarding {
    /// A way with the password and the certificate of every node.
    pub fn new(password: Option<String>, tls: Option<Arc<Tls>>) -> Forwarding {
        Forwarding {
            access: Arc::new(Access { password, tls }),
            connections: Connections::default(),
        }
    }

    /// Brings a message to the node at `HOST:PORT`, and its answer back.
    ///
    /// # Errors
    /// The exception for the client: no connection, or an answer that did not come.
    pub async fn forward(&mut self, address: &str, message: &[u8]) -> Result<Vec<u8>, Answer> {
        // A connection on which something has failed is not put back.
        let connected = match self.connections.0.remove(address) {
            Some(connection) => Ok(connection),
            None => match timeout(PATIENCE, self.access.connect(address)).await {
                Ok(connected) => connected,
                Err(_) => Err(ErrorKind::TimedOut.into()),
            },
        };
        let mut connection = connected.map_err(|error| calls::unreached(address, &error))?;
        let called = timeout(PATIENCE, exchange(&mut connection, message)).await;
        let called = called.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()));
        let answer = called.map_err(|error| calls::unanswered(address, &error))?;
        self.connections.0.insert(address.to_string(), connection);
        Ok(answer)
    }
}

impl Access {
    async fn connect(&self, address: &str) -> io::Result<Box<dyn Duplex>> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut connection: Box<dyn Duplex> = match &self.tls {
            None => Box::new(stream),
            Some(tls) => Box::new(tls.connect(address, stream).await?),
        };
        if let Some(password) = &self.password {
            greet(&mut connection, "auth", Some(password)).await?;
        }
        greet(&mut connection, FORWARDED, None).await?;
        Ok(connection)
    }
}

/// Calls a method without a result, by the binary protocol.
async fn greet(
    connection: &mut Box<dyn Duplex>,
    name: &str,
    argument: Option<&String>,
) -> io::Result<()> {
    let length = |bytes: &str| (bytes.len() as u32).to_be_bytes();
    let head = [
        &[0x80, 1, 0, 1][..],
        &length(name),
        name.as_bytes(),
        &[0; 4],
    ]
    .concat();
    let argument = argument.map(|text| [&[11, 0, 1][..], &length(text), text.as_bytes()].concat());
    let call = [&head[..], &argument.unwrap_or_default(), &[0]].concat();
    let answer = exchange(connection, &call).await?;
    // A reply (2) of no fields: an exception has one.
    let expected = [&[0x80, 1, 0, 2], &head[4..], &[0]].concat();
    match answer == expected {
        true => Ok(()),
        false => Err(io::Error::other(format!("the node refuses {name}"))),
    }
}

/// Sends a framed message, and reads a framed answer.
async fn exchange(connection: &mut Box<dyn Duplex>, message: &[u8]) -> io::Result<Vec<u8>> {
    let length = u32::try_from(message.len())
        .unwrap_or(u32::MAX)
        .to_be_bytes();
    connection
        .write_all(&[&length[..], message].concat())
        .await?;
    connection.flush().await?;
    let length = connection.read_u32().await? as usize;
    if length > MOST_MESSAGE_BYTES {
        let what = format!("an answer of {length} bytes");
        return Err(io::Error::new(ErrorKind::InvalidData, what));
    }
    let mut answer = Vec::new();
    let mut rest = connection.take(length as u64);
    match rest.read_to_end(&mut answer).await? == length {
        true => Ok(answer),
        false => Err(ErrorKind::UnexpectedEof.into()),
    }
}
