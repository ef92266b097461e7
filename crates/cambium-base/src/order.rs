//! The order of writes and how safe each is.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// The place of a write in the store-wide total order.
///
/// Sequence numbers begin at 1, are dense, and are never given to a second
/// write, also not after a crash. 0 stands before every write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceNumber(pub u64);

impl SequenceNumber {
    /// Before every write.
    pub const ZERO: SequenceNumber = SequenceNumber(0);
    /// After every write.
    pub const MAX: SequenceNumber = SequenceNumber(u64::MAX);

    /// The number after this one.
    #[must_use]
    pub fn next(self) -> SequenceNumber {
        SequenceNumber(self.0 + 1)
    }
}

impl fmt::Display for SequenceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How safe a write is when the call returns.
///
/// ```
/// use cambium_base::Durability;
/// assert!(Durability::Synced > Durability::Written);
/// assert_eq!("synced".parse::<Durability>().unwrap(), Durability::Synced);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// In the memory of this process: lost when the process dies.
    Buffered,
    /// Handed to the operating system: survives the process, not a power cut.
    #[default]
    Written,
    /// On the device: a data sync or flush was done before the call returned.
    Synced,
}

impl Durability {
    /// All levels, the weakest first.
    pub const ALL: [Durability; 3] = [
        Durability::Buffered,
        Durability::Written,
        Durability::Synced,
    ];
}

impl FromStr for Durability {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "buffered" => Ok(Durability::Buffered),
            "written" => Ok(Durability::Written),
            "synced" => Ok(Durability::Synced),
            other => Err(Error::InvalidArgument(format!(
                "durability {other:?}: expected buffered, written or synced"
            ))),
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::Buffered => "buffered",
            Durability::Written => "written",
            Durability::Synced => "synced",
        })
    }
}
