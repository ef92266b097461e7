//! The thread of the HTTP port, the Thrift service, and of handshakes: one event loop for all.
//!
//! None touches the store there. Requests go to the executor as messages, and a
//! Redis client goes to the network thread when its handshake is done.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, oneshot};

use crate::descriptors;
use crate::mailbox::Mailbox;
use crate::messages::Event;
use crate::metrics::Metrics;
use crate::network::connection::Stream;
use crate::network::tls_stream::TlsStream;
use crate::network::{ACCEPT_PAUSE, Outbox};
use crate::thrift::forwarding::Forwarding;
use crate::tls::{Tls, shake_hands};
use crate::{http, thrift};

/// Handshakes of Redis clients at one time; the others wait to be accepted.
const MOST_HANDSHAKES: usize = 1_000;

/// The sockets that they serve.
#[derive(Debug, Default)]
pub struct Sockets {
    /// Those for Redis clients that speak TLS.
    pub resp: Vec<TcpListener>,
    /// Of the HTTP port.
    pub http: Option<TcpListener>,
    /// Of the Thrift service.
    pub thrift: Option<TcpListener>,
    /// Calls of Thrift are forwarded to the node that has their keys.
    pub forwards: bool,
    /// Certificate and key, if all of them speak TLS.
    pub tls: Option<Arc<Tls>>,
}

impl Sockets {
    /// Where they listen, for people.
    pub fn addresses(&self) -> Vec<String> {
        let web = if self.tls.is_some() { "https" } else { "http" };
        let resp = self.resp.iter().map(|socket| ("rediss", socket));
        let http = self.http.iter().map(|socket| (web, socket));
        let thrift = self.thrift.iter().map(|socket| ("thrift", socket));
        let address = |(scheme, socket): (&str, &TcpListener)| {
            let address = socket.local_addr().ok()?;
            Some(format!("{scheme}://{address}"))
        };
        resp.chain(http).chain(thrift).filter_map(address).collect()
    }

    /// The port of the Thrift service.
    pub fn thrift_port(&self) -> Option<u16> {
        Some(self.thrift.as_ref()?.local_addr().ok()?.port())
    }

    fn all(&self) -> impl Iterator<Item = &TcpListener> {
        self.resp.iter().chain(&self.http).chain(&self.thrift)
    }
}

/// A connection, behind TLS or not.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

/// The handshake that each accepted connection passes first, with TLS.
#[derive(Clone)]
pub struct Door(Option<Arc<Tls>>);

impl Door {
    /// The connection that requests are read from.
    ///
    /// # Errors
    /// The handshake fails, or the client is gone.
    pub async fn open(&self, stream: TcpStream) -> io::Result<Box<dyn Duplex>> {
        stream.set_nodelay(true)?;
        Ok(match &self.0 {
            None => Box::new(stream),
            Some(tls) => Box::new(shake_hands(tls, stream).await?),
        })
    }
}

/// The running thread.
pub struct Services {
    stopping: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Services {
    /// Serves until [`Services::stop`].
    ///
    /// # Errors
    /// The system has no thread or no descriptor left.
    pub fn start(
        sockets: Sockets,
        inbox: &Arc<Mailbox<Event>>,
        metrics: Arc<Metrics>,
        outbox: Arc<Outbox>,
        password: Option<String>,
    ) -> io::Result<Services> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            // Threads that read the store's statistics.
            .max_blocking_threads(4)
            .build()?;
        for socket in sockets.all() {
            socket.set_nonblocking(true)?;
        }
        for socket in sockets.resp {
            let Some(tls) = sockets.tls.clone() else {
                break;
            };
            let serving = admit_clients(socket, tls, outbox.clone());
            report_failure(&runtime, "Redis", serving);
        }
        let door = Door(sockets.tls.clone());
        if let Some(socket) = sockets.http {
            report_failure(
                &runtime,
                "HTTP",
                http::serve(socket, door.clone(), inbox.clone(), metrics),
            );
        }
        if let Some(socket) = sockets.thrift {
            let has_password = password.is_some();
            let forwarding = sockets
                .forwards
                .then(|| Forwarding::new(password, sockets.tls));
            let serving = thrift::serve(socket, door, inbox.clone(), has_password, forwarding);
            report_failure(&runtime, "Thrift", serving);
        }
        let (stopping, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("services".to_string())
            .spawn(move || {
                // An error means that the sender is gone: the server stops as well.
                _ = runtime.block_on(stopped);
                runtime.shutdown_timeout(Duration::from_secs(1));
            })?;
        Ok(Services { stopping, thread })
    }

    /// Ends the thread; requests that are being answered are cut.
    pub fn stop(self) {
        // It fails if the thread has ended already.
        _ = self.stopping.send(());
        _ = self.thread.join();
    }
}

/// Serves each connection of a socket, at most `most` at a time; the others wait to be
/// accepted. One that leaves too few descriptors is closed. Returns on an error alone.
///
/// # Errors
/// The socket cannot be watched.
pub async fn accept_each<S: Future<Output = ()> + Send + 'static>(
    listener: TcpListener,
    most: usize,
    mut serve: impl FnMut(TcpStream) -> S,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(most));
    loop {
        let place = places.clone().acquire_owned().await;
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        if descriptors::are_scarce(&stream) {
            continue;
        }
        let serving = serve(stream);
        tokio::spawn(async move {
            serving.await;
            drop(place);
        });
    }
}

/// Shakes hands with clients of Redis, and hands them to the network thread.
async fn admit_clients(
    listener: TcpListener,
    tls: Arc<Tls>,
    outbox: Arc<Outbox>,
) -> io::Result<()> {
    accept_each(listener, MOST_HANDSHAKES, |stream| {
        let (tls, outbox) = (tls.clone(), outbox.clone());
        async move {
            // A client that fails to shake hands concerns nobody else.
            _ = admit(stream, &tls, &outbox).await;
        }
    })
    .await
}

async fn admit(stream: TcpStream, tls: &Tls, outbox: &Outbox) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
    let (stream, session) = shake_hands(tls, stream).await?.into_inner();
    let socket = mio::net::TcpStream::from_std(stream.into_std()?);
    let stream = Stream::Tls(Box::new(TlsStream::new(socket, session)));
    outbox.open(stream, peer.to_string(), local.to_string());
    Ok(())
}

fn report_failure(
    runtime: &Runtime,
    name: &'static str,
    serving: impl Future<Output = io::Result<()>> + Send + 'static,
) {
    runtime.spawn(async move {
        if let Err(error) = serving.await {
            tracing::error!(%error, "the {name} port has failed");
        }
    });
}
