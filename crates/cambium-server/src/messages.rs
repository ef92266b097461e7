//! Messages between the network thread, the executor and its helpers.

use cambium::{Result, Store, Value};
use rustls::pki_types::CertificateDer;
use tokio::sync::oneshot;

use crate::cluster::ChainEvent;
use crate::cluster::status::ChainStatus;
use crate::keyspace::layout::Count;
use crate::resp::parser::Commands;
use crate::thrift::Answer;
use crate::thrift::calls::Call;

/// A connection: its place in the tables of both threads, and a number that is never used
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    /// The place.
    pub slot: u32,
    /// The number, which CLIENT ID answers.
    pub id: u64,
}

/// Whole commands of one connection, in the buffer that they were read into.
#[derive(Debug, Default)]
pub struct Input {
    /// The bytes.
    pub buffer: Vec<u8>,
    /// Where arguments lie in it.
    pub commands: Commands,
    /// The next command to run.
    pub next: usize,
    /// How the bytes behind the commands break the protocol.
    pub violation: Option<String>,
}

/// A client or a call that waits for values which a thread fetches.
#[derive(Debug)]
pub enum Waiter {
    /// Commands of a client.
    Client(Handle),
    /// A call of the Thrift service.
    Call(Call, oneshot::Sender<Answer>),
}

/// What the executor hears.
#[derive(Debug)]
pub enum Event {
    /// A client has connected.
    Opened {
        /// Its connection.
        handle: Handle,
        /// The client's address.
        peer: String,
        /// The server's address.
        local: String,
        /// The client's certificate, which the authority has signed.
        certificate: Option<Box<CertificateDer<'static>>>,
    },
    /// A client has sent commands. It sends no more before all are answered.
    Commands(Handle, Input),
    /// A helper thread has the answer of a command.
    Finished(Handle, Vec<u8>),
    /// A fetcher thread has read these values: what waits for them runs again.
    Fetched(u64, Vec<Waiter>, Vec<(Vec<u8>, Result<Option<Value>>)>),
    /// A connection has ended.
    Closed(Handle),
    /// A listener was refused a connection, as there are too many.
    Refused,
    /// A client of the Thrift service calls.
    Call(Call, oneshot::Sender<Answer>),
    /// The HTTP port needs the state of the server.
    Report(oneshot::Sender<Report>),
    /// The cluster has changed, or a successor is heard of.
    Chain(ChainEvent),
    /// The rounds up to this one are synced.
    Synced(u64),
    /// Something is due from now on: the executor's thread has to look at the time.
    Timed,
    /// The server is to stop, once other nodes have what it is the head of.
    StepDown,
    /// The server stops: finish what is there.
    Stop,
}

/// The state of the server at one moment, for `/metrics` and the probes of health.
pub struct Report {
    /// The store.
    pub store: Store,
    /// The password that clients have to give.
    pub password: Option<String>,
    /// In a cluster: how this node stands.
    pub cluster: Option<ChainStatus>,
    /// Keys of each database.
    pub databases: Vec<Count>,
    /// Connected clients.
    pub clients: usize,
    /// Connections since the start.
    pub connections: u64,
    /// Connections that were refused, as there were too many.
    pub refused: u64,
    /// Lookups that found their key.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Keys that have expired.
    pub expired: u64,
    /// Seconds since the start.
    pub uptime_seconds: u64,
}

impl std::fmt::Debug for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The password stays out of logs.
        f.debug_struct("Report")
            .field("clients", &self.clients)
            .finish_non_exhaustive()
    }
}

/// What happens to a connection behind an answer.
#[derive(Debug)]
pub enum Next {
    /// More answers follow without being asked for.
    More,
    /// All commands are answered: read the next ones.
    Read,
    /// The client has to read its answers before the rest of its commands runs.
    Resume(Input),
    /// It ends.
    Close,
}

/// Answers for one connection.
#[derive(Debug)]
pub struct Output {
    /// The connection.
    pub handle: Handle,
    /// Whole answers.
    pub bytes: Vec<u8>,
    /// A buffer that is used no more.
    pub spent: Option<Vec<u8>>,
    /// What happens then.
    pub next: Next,
    /// The client has yet to authenticate itself.
    pub is_stranger: bool,
    /// The client has subscriptions: it gets messages that it does not ask for.
    pub is_subscriber: bool,
}
