//! The command line, and the file that may stand in for it.

use std::path::{Path, PathBuf};

use cambium::Durability;
use cambium_base::Address;
use cambium_foreign::access::Access;
use clap::{Parser, ValueEnum};
use serde::de::{Deserialize, Deserializer, Error};

use crate::logs::{Format, Level};

/// Serves a Cambium store to clients of Redis and Thrift.
#[derive(Clone, Debug, Default, Parser, serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
#[command(name = "cambium-server", version)]
pub struct Arguments {
    /// The folder of the store; it is made if it is not there
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// The engine of a store that is made: forest, wisckey, zdb, alphard
    #[arg(long, value_name = "E")]
    pub engine: Option<String>,
    /// Options of the store, as `cambium options` lists them
    #[arg(long = "set", value_name = "OPTION=VALUE")]
    pub set: Vec<String>,
    /// How safe a write is when it is answered [default: written]
    #[arg(long, value_enum, value_name = "D")]
    pub durability: Option<Safety>,
    /// HOST:PORT or unix:PATH for clients of Redis; may be given more than once
    /// [default: 127.0.0.1:6379]
    #[arg(long, value_name = "ADDR")]
    #[serde(deserialize_with = "addresses")]
    pub resp: Vec<Address>,
    /// HOST:PORT for clients of the Thrift service, see idl/cambium.thrift
    #[arg(long, value_name = "ADDR")]
    pub thrift: Option<String>,
    /// HOST:PORT for HTTP: /metrics for Prometheus, /healthz, /readyz, and a page with charts
    #[arg(long, value_name = "ADDR")]
    pub http: Option<String>,
    /// etcd=URL[,URL...]: be a node of the cluster that is kept there
    #[arg(long, value_name = "etcd=URL,...")]
    pub cluster: Option<String>,
    /// The cluster's name in etcd [default: main]
    #[arg(long, value_name = "NAME")]
    pub cluster_name: Option<String>,
    /// A file with the certificate that signs etcd's, in PEM, for https:// endpoints
    #[arg(long, value_name = "FILE.pem")]
    pub etcd_ca: Option<PathBuf>,
    /// A file with the certificate that this program shows to etcd, in PEM
    #[arg(long, value_name = "FILE.pem")]
    pub etcd_cert: Option<PathBuf>,
    /// A file with that certificate's private key in PEM
    #[arg(long, value_name = "FILE.pem")]
    pub etcd_key: Option<PathBuf>,
    /// A user of etcd
    #[arg(long, value_name = "NAME")]
    pub etcd_user: Option<String>,
    /// A file whose first line is the password of that user
    #[arg(long, value_name = "F")]
    pub etcd_password_file: Option<PathBuf>,
    /// This node's name in the cluster
    #[arg(long, value_name = "NODE")]
    pub name: Option<String>,
    /// HOST:PORT where clients and the other nodes reach this one
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// In a cluster: forward calls of Thrift clients to the node that has their keys, in place
    /// of an exception that names it
    #[arg(long)]
    pub proxy: bool,
    /// A file whose first line is the password that clients have to give
    #[arg(long, value_name = "F")]
    pub password_file: Option<PathBuf>,
    /// A file with the server's certificate in PEM: every TCP port speaks TLS
    #[arg(long, value_name = "FILE.pem")]
    pub tls_cert: Option<PathBuf>,
    /// A file with the certificate's private key in PEM
    #[arg(long, value_name = "FILE.pem")]
    pub tls_key: Option<PathBuf>,
    /// A file with the certificate that signs those of all nodes, in PEM: nodes check each
    /// other's
    #[arg(long, value_name = "FILE.pem")]
    pub tls_ca: Option<PathBuf>,
    /// How the log on standard error is written [default: text]
    #[arg(long, value_enum, value_name = "F")]
    pub log_format: Option<Format>,
    /// The least severe event that the log tells [default: info]
    #[arg(long, value_enum, value_name = "L")]
    pub log_level: Option<Level>,
    /// A file with these arguments as TOML: `dir = "trees"`, `resp = ["127.0.0.1:6379"]`,
    /// `set = ["cache_bytes=64MiB"]`; the command line wins
    #[arg(long, value_name = "FILE.toml")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// Databases that SELECT knows [default: 16]
    #[arg(long, value_name = "N")]
    pub databases: Option<usize>,
    /// Bytes of the disk that are kept for deletes, such as 64MiB; 0 for none [default: a
    /// sixteenth of the file system, and 1 GiB at most]
    #[arg(long, value_name = "SIZE", value_parser = reserve)]
    #[serde(deserialize_with = "reserve_of_text")]
    pub reserve: Option<u64>,
    /// The folder that CAMBIUM.BACKUP copies into, which has to be there; without it there are no
    /// backups
    #[arg(long, value_name = "DIR")]
    pub backups: Option<PathBuf>,
    /// Listen to other machines without a password
    #[arg(long)]
    pub unsafe_no_password: bool,
}

/// How safe a write is when it is answered.
#[derive(Clone, Copy, Debug, Default, serde::Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Safety {
    /// In this process: lost if it is killed
    Buffered,
    /// With the operating system: lost if the machine stops
    #[default]
    Written,
    /// On the device
    Synced,
}

impl Safety {
    /// By its name.
    pub fn name(self) -> &'static str {
        match self {
            Safety::Buffered => "buffered",
            Safety::Written => "written",
            Safety::Synced => "synced",
        }
    }

    /// What the store is asked for in a round. With `Synced` the syncer does the rest.
    pub fn of_rounds(self) -> Durability {
        match self {
            Safety::Buffered => Durability::Buffered,
            Safety::Written | Safety::Synced => Durability::Written,
        }
    }
}

impl Arguments {
    /// How etcd is reached.
    pub fn access(&self) -> Access {
        Access {
            ca: self.etcd_ca.clone(),
            cert: self.etcd_cert.clone(),
            key: self.etcd_key.clone(),
            user: self.etcd_user.clone(),
            password_file: self.etcd_password_file.clone(),
        }
    }

    /// Fills from the file that `--config` names what the command line leaves open.
    ///
    /// # Errors
    /// A line for people.
    pub fn with_config(&self) -> Result<Arguments, String> {
        let mut all = match &self.config {
            Some(path) => read(path)?,
            None => Arguments::default(),
        };
        macro_rules! take {
            ($($field:ident)*) => {
                $(if self.$field.is_some() {
                    all.$field.clone_from(&self.$field);
                })*
            };
        }
        take!(dir engine durability thrift http cluster cluster_name name advertise);
        take!(etcd_ca etcd_cert etcd_key etcd_user etcd_password_file);
        take!(password_file tls_cert tls_key tls_ca log_format log_level);
        take!(databases reserve backups);
        all.set.extend_from_slice(&self.set);
        if !self.resp.is_empty() {
            all.resp.clone_from(&self.resp);
        }
        all.proxy |= self.proxy;
        all.unsafe_no_password |= self.unsafe_no_password;
        Ok(all)
    }
}

fn addresses<'de, D: Deserializer<'de>>(texts: D) -> Result<Vec<Address>, D::Error> {
    let texts: Vec<String> = Vec::deserialize(texts)?;
    let parsed: Result<_, String> = texts.iter().map(|text| text.parse()).collect();
    parsed.map_err(D::Error::custom)
}

fn reserve_of_text<'de, D: Deserializer<'de>>(text: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(text)?;
    reserve(&text).map(Some).map_err(D::Error::custom)
}

fn reserve(text: &str) -> Result<u64, String> {
    cambium::parse_bytes(text)
        .ok_or_else(|| format!("reserve {text}: expected bytes, such as 64MiB or 0"))
}

fn read(path: &Path) -> Result<Arguments, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// The example names each argument once, and stays readable with every line in effect.
    #[test]
    fn the_example_of_a_configuration_explains_every_argument() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/cambium-server.toml");
        read(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        // A line such as `#databases = 16` shows an argument; prose has a blank behind `#`.
        let in_effect: Vec<&str> = text
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(rest) if !rest.starts_with(' ') => rest,
                _ => line,
            })
            .collect();
        let mut all: Arguments = toml::from_str(&in_effect.join("\n")).unwrap();
        (all.proxy, all.unsafe_no_password) = (true, true);
        let merged = all.with_config().unwrap();
        assert_eq!(format!("{merged:?}"), format!("{all:?}"));
        let command = Arguments::command();
        for argument in command.get_arguments() {
            let Some(name) = argument.get_long().filter(|name| *name != "config") else {
                continue;
            };
            let shows = |line: &&&str| line.starts_with(&format!("{name} = "));
            let count = in_effect.iter().filter(shows).count();
            assert_eq!(count, 1, "{name} in {}", path.display());
        }
    }
}
