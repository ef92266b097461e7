//! Who a file belongs to. Both identities enter the checksums of a store's
//! records, so that a block that another store, another file or an earlier
//! life of this file left behind is never taken for one of ours.

use std::fmt;

/// A store's random 128-bit id, given once, at creation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct StoreId(pub [u8; 16]);

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreId({self})")
    }
}

/// A file's number within its store; never given to a second file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileNumber(pub u64);

impl fmt::Display for FileNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What distinguishes the records of one file from those of all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct FileIdentity {
    /// The store that owns the file.
    pub store: StoreId,
    /// The file's number in that store.
    pub number: FileNumber,
    /// Random, drawn when the file was created.
    pub salt: u64,
}
