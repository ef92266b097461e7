//! TLS: the server's certificate and key, and the handshake.
//!
//! With a certificate every TCP port speaks TLS 1.2 or 1.3, and nothing else; unix sockets stay
//! plain. Handshakes run on the thread of [`crate::services`], in a bounded time; a connection
//! of a Redis client goes to the network thread when it is done, and costs that thread the
//! ciphering of its records alone.
//!
//! With an authority (`--tls-ca`) a certificate that a client shows has to be signed by it; a
//! client may show none. The nodes of a cluster connect to each other with the same files, and
//! each checks the other's certificate: its signature, its dates, and that it names the host
//! which the node advertises.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cambium_io::sync::{RwLock, read, write};
use rustls::client::verify_server_name;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream as ClientStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The server's certificate: new handshakes use the files that were read last; established
/// connections keep theirs.
#[derive(Debug)]
pub struct Tls {
    files: Files,
    configs: RwLock<Configs>,
}

#[derive(Clone, Debug)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    authority: Option<PathBuf>,
}

#[derive(Clone, Debug)]
struct Configs {
    server: Arc<ServerConfig>,
    /// Towards other nodes, where there is an authority.
    client: Option<Arc<ClientConfig>>,
}

impl Tls {
    /// Reads the files again. After an error the old certificate stays.
    ///
    /// # Errors
    /// A line for people.
    pub fn reload(&self) -> Result<(), String> {
        let configs = self.files.read()?;
        *write(&self.configs) = configs;
        Ok(())
    }

    fn configs(&self) -> Configs {
        read(&self.configs).clone()
    }

    /// For the next handshake with a client.
    fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.configs().server)
    }

    /// A connection to the node at `HOST:PORT`, behind its handshake.
    ///
    /// # Errors
    /// The node's certificate is refused; the connection is lost.
    pub async fn connect(
        &self,
        address: &str,
        stream: TcpStream,
    ) -> std::io::Result<ClientStream<TcpStream>> {
        let (config, name) = self.client(address)?;
        TlsConnector::from(config).connect(name, stream).await
    }

    fn client(&self, address: &str) -> std::io::Result<(Arc<ClientConfig>, ServerName<'static>)> {
        let invalid = |text: String| std::io::Error::new(std::io::ErrorKind::InvalidInput, text);
        let config = self.configs().client;
        let config = config.ok_or_else(|| invalid("--tls-ca is missing".to_string()))?;
        Ok((config, server_name(address).map_err(invalid)?))
    }

    /// A session with the node at `HOST:PORT`, before its handshake.
    ///
    /// # Errors
    /// The address has no name that a certificate could have.
    pub fn session(&self, address: &str) -> std::io::Result<ClientConnection> {
        let (config, name) = self.client(address)?;
        ClientConnection::new(config, name).map_err(std::io::Error::other)
    }
}

/// The host of `HOST:PORT`, as a certificate names it.
fn server_name(address: &str) -> Result<ServerName<'static>, String> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_matches(['[', ']']);
    ServerName::try_from(host.to_string())
        .map_err(|error| format!("{host} is no host that a certificate can name: {error}"))
}

/// Checks that a certificate, which the authority has signed, names the host of `HOST:PORT`.
///
/// # Errors
/// A line for people.
pub fn check_name(certificate: &CertificateDer<'_>, address: &str) -> Result<(), String> {
    let name = server_name(address)?;
    let parsed = ParsedCertificate::try_from(certificate).map_err(|error| error.to_string())?;
    verify_server_name(&parsed, &name).map_err(|error| error.to_string())
}

/// A client that takes longer is cut.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// Reads certificate, key and authority, if they are given.
///
/// # Errors
/// A line for people.
pub fn configured(
    certificate: Option<&Path>,
    key: Option<&Path>,
    authority: Option<&Path>,
) -> Result<Option<Arc<Tls>>, String> {
    match (certificate, key, authority) {
        (None, None, None) => Ok(None),
        (Some(certificate), Some(key), authority) => {
            let files = Files {
                certificate: certificate.to_path_buf(),
                key: key.to_path_buf(),
                authority: authority.map(Path::to_path_buf),
            };
            Ok(Some(Arc::new(Tls {
                configs: RwLock::new(files.read()?),
                files,
            })))
        }
        (Some(path), None, _) => Err(format!(
            "--tls-cert {} needs --tls-key, the file of its private key",
            path.display()
        )),
        (None, Some(path), _) => Err(format!(
            "--tls-key {} needs --tls-cert, the file of its certificate",
            path.display()
        )),
        (None, None, Some(path)) => Err(format!(
            "--tls-ca {} needs --tls-cert and --tls-key, the server's own certificate and key",
            path.display()
        )),
    }
}

impl Files {
    fn read(&self) -> Result<Configs, String> {
        let chain = certificates("--tls-cert", &self.certificate)?;
        let private = || {
            PrivateKeyDer::from_pem_file(&self.key).map_err(|error| {
                let expected = "a private key in PEM that is not encrypted (BEGIN PRIVATE KEY, \
                                BEGIN RSA PRIVATE KEY or BEGIN EC PRIVATE KEY)";
                unreadable("--tls-key", &self.key, &error, expected)
            })
        };
        let misfit = |error: rustls::Error| {
            format!(
                "--tls-cert {} and --tls-key {} do not fit: {error}; expected the server's own \
                 certificate first, and its key",
                self.certificate.display(),
                self.key.display()
            )
        };
        let failed = |error: rustls::Error| format!("TLS: {error}");
        let provider = Arc::new(default_provider());
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(failed)?;
        let Some(authority) = &self.authority else {
            let server = server.with_no_client_auth();
            let server = server.with_single_cert(chain, private()?).map_err(misfit)?;
            return Ok(Configs {
                server: Arc::new(server),
                client: None,
            });
        };
        let roots = Arc::new(roots(authority)?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(|error| format!("--tls-ca {}: {error}", authority.display()))?;
        let server = server.with_client_cert_verifier(verifier);
        let server = server.with_single_cert(chain.clone(), private()?);
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, private()?);
        Ok(Configs {
            server: Arc::new(server.map_err(misfit)?),
            client: Some(Arc::new(client.map_err(misfit)?)),
        })
    }
}

/// The certificates of the authority.
fn roots(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("--tls-ca", path)? {
        roots
            .add(certificate)
            .map_err(|error| format!("--tls-ca {}: {error}", path.display()))?;
    }
    Ok(roots)
}

fn certificates(option: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let expected = match option {
        "--tls-ca" => "certificates in PEM (BEGIN CERTIFICATE) that sign those of all nodes",
        _ => {
            "certificates in PEM (BEGIN CERTIFICATE), the server's own first, behind it those \
             that lead to the root"
        }
    };
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    match read {
        Ok(certificates) if Vec::is_empty(&certificates) => {
            Err(unreadable(option, path, &PemError::NoItemsFound, expected))
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(unreadable(option, path, &error, expected)),
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
