//! TLS on every port, with a certificate that each test makes for itself.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::client::encoded;
use crate::harness::{PATIENCE, Server, eventually, folder};

/// Certificate and key as files, and what a client trusts.
pub struct Identity {
    pub certificate: PathBuf,
    pub key: PathBuf,
    trusted: String,
}

impl Identity {
    pub fn make(folder: &Path, name: &str, host: &str) -> Identity {
        let names = vec![host.to_string()];
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).unwrap();
        let (certificate, key) = (
            folder.join(format!("{name}.crt")),
            folder.join(format!("{name}.key")),
        );
        fs::write(&certificate, cert.pem()).unwrap();
        fs::write(&key, signing_key.serialize_pem()).unwrap();
        Identity {
            certificate,
            key,
            trusted: cert.pem(),
        }
    }

    fn arguments(&self) -> [&str; 4] {
        let [certificate, key] = [&self.certificate, &self.key].map(|path| path.to_str().unwrap());
        ["--tls-cert", certificate, "--tls-key", key]
    }

    fn connect(&self, address: &str) -> TlsClient {
        TlsClient::connect(address, "localhost", &self.trusted)
    }

    /// True if a client that trusts this certificate is served.
    fn tries(&self, address: &str) -> bool {
        let mut client = self.connect(address);
        let mut line = String::new();
        let is_sent = client.0.get_mut().write_all(b"PING\r\n").is_ok();
        is_sent && client.0.read_line(&mut line).is_ok() && line == "+PONG\r\n"
    }
}

fn plain(address: &str) -> TcpStream {
    let (_, address) = address.rsplit_once("//").unwrap_or(("", address));
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

pub struct TlsClient(BufReader<StreamOwned<ClientConnection, TcpStream>>);

impl TlsClient {
    /// A client that trusts an authority, given in PEM, to know a server by its host.
    pub fn connect(address: &str, host: &str, authority: &str) -> TlsClient {
        TlsClient::new(address, host, authority, None)
    }

    /// The same with a certificate and a key of its own.
    pub fn connect_as(
        address: &str,
        host: &str,
        authority: &str,
        certificate: &str,
        key: &str,
    ) -> TlsClient {
        TlsClient::new(address, host, authority, Some((certificate, key)))
    }

    fn new(address: &str, host: &str, authority: &str, own: Option<(&str, &str)>) -> TlsClient {
        let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate(authority)).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match own {
            None => config.with_no_client_auth(),
            Some((own, key)) => {
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                config
                    .with_client_auth_cert(vec![certificate(own)], key)
                    .unwrap()
            }
        };
        let name = ServerName::try_from(host.to_string()).unwrap();
        let session = ClientConnection::new(Arc::new(config), name).unwrap();
        TlsClient(BufReader::new(StreamOwned::new(session, plain(address))))
    }

    pub fn send(&mut self, bytes: &[u8]) {
        let stream = self.0.get_mut();
        stream.write_all(bytes).unwrap();
        stream.flush().unwrap();
    }

    /// The line of an answer; an empty one if the server has gone.
    pub fn try_call(&mut self, bytes: &[u8]) -> String {
        let stream = self.0.get_mut();
        let sent = stream.write_all(bytes).and_then(|()| stream.flush());
        let mut line = String::new();
        // A line that an error cut short does not count.
        match sent.and_then(|()| self.0.read_line(&mut line)) {
            Ok(_) => line.trim_end().to_string(),
            Err(_) => String::new(),
        }
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_string()
    }

    /// A message behind its length.
    pub fn framed(&mut self) -> Vec<u8> {
        let mut length = [0; 4];
        self.0.read_exact(&mut length).unwrap();
        let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn bulk(&mut self) -> Vec<u8> {
        self.try_bulk().unwrap()
    }

    /// A value; none if the server has gone.
    pub fn try_bulk(&mut self) -> Option<Vec<u8>> {
        let mut line = String::new();
        self.0.read_line(&mut line).ok()?;
        let length: usize = line.trim_end().strip_prefix('$')?.parse().ok()?;
        let mut bytes = vec![0; length + 2];
        self.0.read_exact(&mut bytes).ok()?;
        bytes.truncate(length);
        Some(bytes)
    }
}

#[test]
fn clients_of_redis_are_served_behind_tls() {
    let folder = folder();
    let identity = Identity::make(folder.path(), "server", "localhost");
    let server = Server::start(folder.path(), &identity.arguments());
    assert!(
        server.address.starts_with("rediss://"),
        "{}",
        server.address
    );
    let mut client = identity.connect(&server.address);
    // Larger than any buffer on the way, in both directions.
    let value: Vec<u8> = (0..3_000_000_u32)
        .map(|number| (number % 251) as u8)
        .collect();
    client.send(&encoded(&[b"SET", b"oak", &value]));
    assert_eq!(client.line(), "+OK");
    client.send(&b"GET oak\r\n".repeat(3));
    for _ in 0..3 {
        assert!(client.bulk() == value, "3,000,000 bytes come back");
    }
    const COUNT: usize = 20_000;
    client.send(&b"INCR n\r\n".repeat(COUNT));
    for number in 1..=COUNT {
        assert_eq!(client.line(), format!(":{number}"));
    }
    client.send(b"QUIT\r\n");
    assert_eq!(client.line(), "+OK");
    assert_eq!(client.line(), "", "the server says that it sends no more");
    server.terminate();
}

#[test]
fn a_client_that_ends_its_side_gets_its_answers() {
    let folder = folder();
    let identity = Identity::make(folder.path(), "server", "localhost");
    let server = Server::start(folder.path(), &identity.arguments());
    let mut client = identity.connect(&server.address);
    client.send(b"SET oak 1\r\nGET oak\r\n");
    let stream = client.0.get_mut();
    stream.conn.send_close_notify();
    stream.flush().unwrap();
    assert_eq!(client.line(), "+OK");
    assert_eq!(client.bulk(), b"1");
    assert_eq!(client.line(), "");
}

#[test]
fn silent_and_garbled_strangers_hold_nobody_up() {
    let folder = folder();
    let identity = Identity::make(folder.path(), "server", "localhost");
    let server = Server::start(folder.path(), &identity.arguments());
    let silent: Vec<TcpStream> = (0..50).map(|_| plain(&server.address)).collect();
    let mut garbled = plain(&server.address);
    garbled.write_all(b"PING\r\nPING\r\n").unwrap();
    let mut client = identity.connect(&server.address);
    client.send(b"PING\r\n");
    assert_eq!(client.line(), "+PONG");
    // The server answers anything but a handshake with an alert, and cuts the connection.
    let mut answer = Vec::new();
    _ = garbled.read_to_end(&mut answer);
    assert!(!answer.windows(4).any(|bytes| bytes == b"PONG"));
    // A certificate of another maker is refused by the client.
    let other = Identity::make(folder.path(), "other", "localhost");
    let mut stranger = other.connect(&server.address);
    assert!(stranger.0.get_mut().write_all(b"PING\r\n").is_err());
    client.send(b"PING\r\n");
    assert_eq!(client.line(), "+PONG");
    drop(silent);
}

#[test]
fn http_and_thrift_are_served_behind_tls() {
    let folder = folder();
    let identity = Identity::make(folder.path(), "server", "localhost");
    let arguments = identity.arguments();
    let (server, https) = Server::start_with_scheme(folder.path(), "http", "https", &arguments);
    let mut client = identity.connect(&https);
    client.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(client.line(), "HTTP/1.1 200 OK");
    server.terminate();

    let (server, thrift) = Server::start_with(folder.path(), "thrift", &arguments);
    let mut client = identity.connect(&thrift);
    // Framed and binary: a call of `size` without arguments, number 7.
    let call = b"\x80\x01\x00\x01\x00\x00\x00\x04size\x00\x00\x00\x07\x00";
    client.send(&[&(call.len() as u32).to_be_bytes()[..], call].concat());
    let mut head = [0; 20];
    client.0.read_exact(&mut head).unwrap();
    assert_eq!(
        &head[4..],
        b"\x80\x01\x00\x02\x00\x00\x00\x04size\x00\x00\x00\x07"
    );
    server.terminate();
}

#[test]
fn unfit_files_are_named_with_what_was_expected() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_string();
    let server = Identity::make(folder.path(), "server", "localhost");
    let other = Identity::make(folder.path(), "other", "localhost");
    let text = fs::read_to_string(&server.certificate).unwrap();
    fs::write(path("cut"), &text[..200]).unwrap();
    fs::write(path("empty"), "").unwrap();
    let bytes = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    fs::write(path("bytes"), bytes).unwrap();
    let [_, certificate, _, key] = server.arguments().map(str::to_string);
    let [_, _, _, other_key] = other.arguments().map(str::to_string);
    let both = |certificate: &str, key: &str| {
        let arguments = ["--tls-cert", certificate, "--tls-key", key];
        arguments.map(str::to_string).to_vec()
    };
    let alone = |option: &str, path: &str| vec![option.to_string(), path.to_string()];
    for (arguments, expected) in [
        (alone("--tls-cert", &certificate), "needs --tls-key"),
        (alone("--tls-key", &key), "needs --tls-cert"),
        (alone("--tls-ca", &certificate), "needs --tls-cert"),
        (
            [both(&certificate, &key), alone("--tls-ca", &key)].concat(),
            "sign those of all nodes",
        ),
        (both(&path("none"), &key), "none: No such file"),
        (both(&certificate, &path("none")), "none: No such file"),
        (both(&path("empty"), &key), "BEGIN CERTIFICATE"),
        (both(&key, &key), "BEGIN CERTIFICATE"),
        (both(&path("cut"), &key), "has no end"),
        (both(&path("bytes"), &key), "do not fit"),
        (both(&certificate, &certificate), "BEGIN PRIVATE KEY"),
        (both(&certificate, &other_key), "do not fit"),
    ] {
        let ended = Command::new(env!("CARGO_BIN_EXE_cambium-server"))
            .args(["--dir", &path("store"), "--resp", "127.0.0.1:0"])
            .args(&arguments)
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success(), "{arguments:?}");
        assert!(words.contains(expected), "{arguments:?}: {words}");
        assert!(!Path::new(&path("store")).exists(), "no store is made");
    }
}

#[test]
fn a_hangup_takes_a_new_certificate() {
    let folder = folder();
    let old = Identity::make(folder.path(), "server", "localhost");
    let server = Server::start(folder.path(), &old.arguments());
    let mut connected = old.connect(&server.address);
    let ask = |client: &mut TlsClient| {
        client.send(b"PING\r\n");
        client.line()
    };
    assert_eq!(ask(&mut connected), "+PONG");
    let new = Identity::make(folder.path(), "server", "localhost");
    server.signal("HUP");
    eventually("the files are read", || new.tries(&server.address));
    assert!(!old.tries(&server.address));
    assert_eq!(ask(&mut connected), "+PONG");
    // Files that are none leave the certificate as it is.
    fs::write(&new.certificate, "none").unwrap();
    server.signal("HUP");
    assert_eq!(ask(&mut new.connect(&server.address)), "+PONG");
    server.terminate();
}

/// The connection of a client that stops the server ends when another program may open the
/// store, and not before.
#[test]
fn the_store_is_free_when_the_connection_ends() {
    let folder = folder();
    let identity = Identity::make(folder.path(), "server", "localhost");
    let store = folder.path().join("store");
    for turn in 0..3 {
        let server = Server::start(folder.path(), &identity.arguments());
        let mut client = identity.connect(&server.address);
        for number in 0..4 {
            let value = vec![turn; 4 << 20];
            client.send(&encoded(&[b"SET", format!("{number}").as_bytes(), &value]));
            assert_eq!(client.line(), "+OK");
        }
        client.send(b"SHUTDOWN\r\n");
        let mut rest = Vec::new();
        // The end may come without the notice of TLS.
        _ = client.0.read_to_end(&mut rest);
        let opened = cambium::open(&store);
        assert!(opened.is_ok(), "{:?}", opened.err());
        opened.unwrap().close().unwrap();
    }
}
