//! How etcd is reached: its certificate authority, a client's certificate, a user.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use crate::etcd::{Error, Result};

/// The files and the user that etcd asks for; none for etcd without TLS and users.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Certificates in PEM: etcd's own has to be signed by one of them.
    pub ca: Option<PathBuf>,
    /// This client's certificate in PEM, where etcd asks for one.
    pub cert: Option<PathBuf>,
    /// The private key of `cert` in PEM.
    pub key: Option<PathBuf>,
    /// The name of a user of etcd.
    pub user: Option<String>,
    /// A file whose first line is the user's password.
    pub password_file: Option<PathBuf>,
}

impl Access {
    /// The user's name and password, if a user is named.
    ///
    /// # Errors
    /// One without the other; a file that cannot be read.
    pub fn credentials(&self) -> Result<Option<(String, String)>> {
        let (user, path) = match (&self.user, &self.password_file) {
            (None, None) => return Ok(None),
            (Some(user), Some(path)) => (user, path),
            _ => {
                return Err(Error(
                    "--etcd-user and --etcd-password-file belong together".into(),
                ));
            }
        };
        let text = std::fs::read_to_string(path)
            .map_err(|error| unusable("--etcd-password-file", path, &error))?;
        match text.lines().next().filter(|line| !line.is_empty()) {
            Some(password) => Ok(Some((user.clone(), password.to_string()))),
            None => Err(unusable(
                "--etcd-password-file",
                path,
                &"expected the password in its first line",
            )),
        }
    }

    /// The settings of TLS for `https://` endpoints.
    ///
    /// # Errors
    /// A file that is missing, cannot be read, or holds something else.
    pub fn tls(&self) -> Result<TlsConfig> {
        let ca = self.ca.as_ref().ok_or_else(|| {
            Error("https:// needs --etcd-ca, a file with the certificate that signs etcd's".into())
        })?;
        let (roots, _) = read("--etcd-ca", ca)?;
        if roots.is_empty() {
            return Err(unusable("--etcd-ca", ca, &"expected certificates in PEM"));
        }
        let client = match (&self.cert, &self.key) {
            (None, None) => None,
            (Some(cert), Some(key)) => {
                let (chain, _) = read("--etcd-cert", cert)?;
                if chain.is_empty() {
                    return Err(unusable(
                        "--etcd-cert",
                        cert,
                        &"expected certificates in PEM",
                    ));
                }
                let (_, own) = read("--etcd-key", key)?;
                let own = own
                    .ok_or_else(|| unusable("--etcd-key", key, &"expected a private key in PEM"))?;
                Some(ClientCert::new_with_certs(&chain, own))
            }
            _ => return Err(Error("--etcd-cert and --etcd-key belong together".into())),
        };
        Ok(TlsConfig::builder()
            .root_certs(RootCerts::new_with_certs(&roots))
            .client_cert(client)
            .unversioned_rustls_crypto_provider(Arc::new(default_provider()))
            .build())
    }
}

/// The certificates and the private key of a file.
fn read(
    option: &str,
    path: &Path,
) -> Result<(Vec<Certificate<'static>>, Option<PrivateKey<'static>>)> {
    let bytes = std::fs::read(path).map_err(|error| unusable(option, path, &error))?;
    let (mut certificates, mut key) = (Vec::new(), None);
    for item in parse_pem(&bytes) {
        match item.map_err(|error| unusable(option, path, &error))? {
            PemItem::Certificate(certificate) => certificates.push(certificate),
            PemItem::PrivateKey(found) => key = Some(found),
            _ => {}
        }
    }
    Ok((certificates, key))
}

fn unusable(option: &str, path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error(format!("{option} {}: {why}", path.display()))
}
