//! TLS: the server's certificate and key, and the handshake.
//!
//! With a certificate every TCP port speaks TLS 1.2 or 1.3, and nothing else; unix sockets stay
//! plain. Handshakes run on the thread of [`crate::services`], in a bounded time; a connection
//! of a Redis client goes to the network thread when it is done, and costs that thread the
//! ciphering of its records alone.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use cambium_io::sync::RwLock;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The server's certificate: new handshakes use the files that were read last; established
/// connections keep theirs.
#[derive(Debug)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    config: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    /// Reads both files again. After an error the old certificate stays.
    ///
    /// # Errors
    /// A line for people.
    pub fn reload(&self) -> Result<(), String> {
        let config = configuration(&self.certificate, &self.key)?;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// For the next handshake.
    fn acceptor(&self) -> TlsAcceptor {
        let config = self.config.read().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(config.clone())
    }
}

/// A client that takes longer is cut.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// Reads certificate and key, if both are given.
///
/// # Errors
/// A line for people.
pub fn configured(
    certificate: Option<&Path>,
    key: Option<&Path>,
) -> Result<Option<Arc<Tls>>, String> {
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(Arc::new(Tls {
            config: RwLock::new(configuration(certificate, key)?),
            certificate: certificate.to_path_buf(),
            key: key.to_path_buf(),
        }))),
        (Some(path), None) => Err(format!(
            "--tls-cert {} needs --tls-key, the file of its private key",
            path.display()
        )),
        (None, Some(path)) => Err(format!(
            "--tls-key {} needs --tls-cert, the file of its certificate",
            path.display()
        )),
    }
}

fn configuration(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, String> {
    let certificates = certificates(certificate)?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| {
        let expected = "a private key in PEM that is not encrypted (BEGIN PRIVATE KEY, BEGIN RSA \
                        PRIVATE KEY or BEGIN EC PRIVATE KEY)";
        unreadable("--tls-key", key, &error, expected)
    })?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS: {error}"))?
        .with_no_client_auth()
        .with_single_cert(certificates, private)
        .map_err(|error| {
            format!(
                "--tls-cert {} and --tls-key {} do not fit: {error}; expected the server's own \
                 certificate first, and its key",
                certificate.display(),
                key.display()
            )
        })?;
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let expected = "certificates in PEM (BEGIN CERTIFICATE), the server's own first, behind it \
                    those that lead to the root";
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    match read {
        Ok(certificates) if Vec::is_empty(&certificates) => Err(unreadable(
            "--tls-cert",
            path,
            &PemError::NoItemsFound,
            expected,
        )),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(unreadable("--tls-cert", path, &error, expected)),
    }
}

fn unreadable(option: &str, path: &Path, error: &PemError, expected: &str) -> String {
    let path = path.display();
    match error {
        PemError::Io(error) => format!("{option} {path}: {error}; expected a file with {expected}"),
        PemError::NoItemsFound => format!("{option} {path}: found none; expected {expected}"),
        PemError::MissingSectionEnd { .. } => {
            format!("{option} {path}: a part of it has no end; expected {expected}")
        }
        error => format!("{option} {path}: {error}; expected {expected}"),
    }
}

/// Waits for a client's side of the handshake.
///
/// # Errors
/// The client sends something else, takes too long, or is gone.
pub async fn shake_hands(tls: &Tls, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
    let peer = stream.peer_addr();
    let shaken = tokio::time::timeout(HANDSHAKE_TIME, tls.acceptor().accept(stream)).await;
    let shaken = shaken.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
    if let (Ok(peer), Err(error)) = (peer, &shaken) {
        tracing::debug!(%peer, %error, "a handshake has failed");
    }
    shaken
}
