//! The thread of the HTTP port and the Thrift service: one event loop for both.
//!
//! Neither touches the store there. What clients ask for goes to the executor as a message.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, oneshot};

use crate::mailbox::Mailbox;
use crate::messages::Event;
use crate::metrics::Metrics;
use crate::{http, thrift};

/// After an error of accepting, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The sockets that they serve.
#[derive(Debug, Default)]
pub struct Sockets {
    /// Of the HTTP port.
    pub http: Option<TcpListener>,
    /// Of the Thrift service.
    pub thrift: Option<TcpListener>,
}

impl Sockets {
    /// Where they listen, for people.
    pub fn addresses(&self) -> Vec<String> {
        let named = [("http", &self.http), ("thrift", &self.thrift)];
        let address = |(scheme, socket): (&str, &Option<TcpListener>)| {
            let address = socket.as_ref()?.local_addr().ok()?;
            Some(format!("{scheme}://{address}"))
        };
        named.into_iter().filter_map(address).collect()
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
        has_password: bool,
    ) -> io::Result<Services> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            // Threads that read the store's statistics.
            .max_blocking_threads(4)
            .build()?;
        for socket in sockets.http.iter().chain(&sockets.thrift) {
            socket.set_nonblocking(true)?;
        }
        if let Some(socket) = sockets.http {
            report_failure(
                &runtime,
                "HTTP",
                http::serve(socket, inbox.clone(), metrics),
            );
        }
        if let Some(socket) = sockets.thrift {
            let serving = thrift::serve(socket, inbox.clone(), has_password);
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
/// accepted. Returns on an error alone.
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
        let serving = serve(stream);
        tokio::spawn(async move {
            serving.await;
            drop(place);
        });
    }
}

fn report_failure(
    runtime: &Runtime,
    name: &'static str,
    serving: impl Future<Output = io::Result<()>> + Send + 'static,
) {
    runtime.spawn(async move {
        if let Err(error) = serving.await {
            eprintln!("cambium-server: the {name} port has failed: {error}");
        }
    });
}
