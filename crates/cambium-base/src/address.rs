//! Addresses of servers, as people write them: `HOST:PORT` or `unix:PATH`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The place at which a server listens.
///
/// ```
/// use cambium_base::Address;
/// let address: Address = "unix:/run/cambium.sock".parse().unwrap();
/// assert_eq!(address, Address::Unix("/run/cambium.sock".into()));
/// assert_eq!(address.to_string(), "unix:/run/cambium.sock");
/// assert!("localhost".parse::<Address>().is_err(), "the port is missing");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `HOST:PORT`.
    Tcp(String),
    /// `unix:PATH`.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some("") => Err("unix: needs the path of a socket".to_string()),
            Some(path) => Ok(Address::Unix(path.into())),
            None if text.contains(':') => Ok(Address::Tcp(text.to_string())),
            None => Err(format!("{text}: expected HOST:PORT or unix:PATH")),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => f.write_str(address),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_they_are_read() {
        for text in ["localhost:6379", "unix:/run/redis.sock"] {
            assert_eq!(
                text.parse::<Address>()
                    .ok()
                    .map(|it| it.to_string())
                    .as_deref(),
                Some(text)
            );
        }
        for text in ["", "localhost", "unix:"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
