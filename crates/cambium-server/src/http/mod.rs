//! The HTTP port: `/metrics`, `/healthz`, `/readyz`, and a page with live charts at `/`.
//!
//! | path | answer |
//! |---|---|
//! | `/metrics` | counters and histograms in OpenMetrics' text format, which Prometheus reads |
//! | `/healthz` | 200 while the threads of the server run |
//! | `/readyz` | 200 if the executor answers within two seconds, the last write did not fail, and a node of a cluster may serve, else 503 with the reason |
//! | `/` | one page; it loads nothing from elsewhere |
//!
//! It runs on the thread of [`crate::services`]. It holds no lock of the server: it sends the
//! executor a message and waits for the answer, so a slow scrape delays no client of the store.
//! With a password, `/` and `/metrics` need it by HTTP's basic authentication, user `default`.

mod exposition;
mod page;

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cambium_io::sync::atomic::Ordering;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue,
    WWW_AUTHENTICATE,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::oneshot;

use crate::mailbox::Mailbox;
use crate::messages::{Event, Report};
use crate::metrics::Metrics;
use crate::password::is_same;
use crate::services::{Door, accept_each};

/// Connections at one time; the others wait to be accepted.
const MOST_CONNECTIONS: usize = 64;
/// A client that sends its request slower is cut.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// How long a scrape waits for the executor.
const REPORT_TIME: Duration = Duration::from_secs(30);
/// How long the executor may take to answer while the server counts as ready.
const READY_TIME: Duration = Duration::from_secs(2);

const PLAIN: &str = "text/plain; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
/// The page may run its own script and ask this server, and nothing else.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; \
     style-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'";

type Answer = Response<Full<Bytes>>;

/// Serves on a bound socket for ever.
///
/// # Errors
/// The socket cannot be watched.
pub async fn serve(
    listener: TcpListener,
    door: Door,
    inbox: Arc<Mailbox<Event>>,
    metrics: Arc<Metrics>,
) -> std::io::Result<()> {
    let site = Arc::new(Site { inbox, metrics });
    accept_each(listener, MOST_CONNECTIONS, |stream| {
        let (site, door) = (site.clone(), door.clone());
        async move {
            let Ok(stream) = door.open(stream).await else {
                return;
            };
            let service = service_fn(|request| {
                let site = site.clone();
                async move { Ok::<_, Infallible>(site.answer(request).await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(REQUEST_TIME)
                .max_buf_size(16 << 10)
                .serve_connection(TokioIo::new(stream), service);
            // A client that disconnects, or sends no HTTP, concerns nobody else.
            _ = connection.await;
        }
    })
    .await
}

/// What requests are answered from.
struct Site {
    inbox: Arc<Mailbox<Event>>,
    metrics: Arc<Metrics>,
}

impl Site {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            refused
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refused;
        }
        match request.uri().path() {
            "/healthz" => plain(StatusCode::OK, "ok\n"),
            "/readyz" => self.ready().await,
            "/metrics" => self.scrape(&request).await,
            "/" => self.page(&request).await,
            _ => plain(
                StatusCode::NOT_FOUND,
                "there are /, /metrics, /healthz and /readyz\n",
            ),
        }
    }

    /// The state of the server, if the executor answers in time.
    async fn report(&self, patience: Duration) -> Option<Report> {
        let (asker, reported) = oneshot::channel();
        self.inbox.send([Event::Report(asker)]);
        tokio::time::timeout(patience, reported).await.ok()?.ok()
    }

    async fn ready(&self) -> Answer {
        let Some(report) = self.report(READY_TIME).await else {
            let reason = "the executor has not answered within two seconds\n";
            return plain(StatusCode::SERVICE_UNAVAILABLE, reason);
        };
        if report.cluster.is_some_and(|status| !status.is_fresh) {
            let reason = "the node has no fresh view of its cluster: etcd does not answer\n";
            return plain(StatusCode::SERVICE_UNAVAILABLE, reason);
        }
        let metrics = &self.metrics;
        if metrics.is_failing.load(Ordering::Relaxed) {
            return plain(StatusCode::SERVICE_UNAVAILABLE, "the last write failed\n");
        }
        match metrics.is_full.load(Ordering::Relaxed) {
            true => plain(StatusCode::SERVICE_UNAVAILABLE, "the disk is full\n"),
            false => plain(StatusCode::OK, "ok\n"),
        }
    }

    /// The state of the server for a client that knows the password.
    async fn admit(&self, request: &Request<Incoming>) -> Result<Report, Answer> {
        let Some(report) = self.report(REPORT_TIME).await else {
            let reason = "the executor has not answered within 30 seconds\n";
            return Err(plain(StatusCode::SERVICE_UNAVAILABLE, reason));
        };
        if let Some(password) = &report.password {
            let expected = format!("Basic {}", STANDARD.encode(format!("default:{password}")));
            let given = request.headers().get(AUTHORIZATION);
            let given = given.map_or(&b""[..], HeaderValue::as_bytes);
            if !is_same(given, expected.as_bytes()) {
                let reason = "the user is `default`, the password that of the store's clients\n";
                let mut refused = plain(StatusCode::UNAUTHORIZED, reason);
                let realm = HeaderValue::from_static("Basic realm=\"cambium-server\"");
                refused.headers_mut().insert(WWW_AUTHENTICATE, realm);
                return Err(refused);
            }
        }
        Ok(report)
    }

    async fn scrape(&self, request: &Request<Incoming>) -> Answer {
        let report = match self.admit(request).await {
            Ok(report) => report,
            Err(refused) => return refused,
        };
        let metrics = self.metrics.clone();
        // The store's statistics may wait for a lock that a flush holds.
        let written = tokio::task::spawn_blocking(move || exposition::write(report, metrics));
        match written.await {
            Ok(Ok(text)) => with_type(StatusCode::OK, OPEN_METRICS, text),
            Ok(Err(error)) => plain(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}\n")),
            Err(_) => plain(
                StatusCode::INTERNAL_SERVER_ERROR,
                "reading the counters panicked: the message is on standard error\n",
            ),
        }
    }

    async fn page(&self, request: &Request<Incoming>) -> Answer {
        if let Err(refused) = self.admit(request).await {
            return refused;
        }
        let mut page = with_type(StatusCode::OK, HTML, page::html());
        let policy = HeaderValue::from_static(PAGE_POLICY);
        page.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
        page
    }
}

fn plain(status: StatusCode, text: &str) -> Answer {
    with_type(status, PLAIN, text.to_string())
}

fn with_type(status: StatusCode, kind: &'static str, text: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(text)));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
