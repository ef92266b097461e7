//! Versions of keys, and for how long they are needed.

use crate::document::DocumentAddress;

/// What a write did to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// Its sequence number.
    pub sequence: u64,
    /// The document, or `None` for a removal.
    pub document: Option<DocumentAddress>,
}

/// Moments that readers may ask for: those pinned, and what is visible now.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptMoments {
    /// Ascending.
    moments: Vec<u64>,
}

impl KeptMoments {
    /// Pinned moments, ascending, and the newest visible one.
    pub fn new(pinned: impl Iterator<Item = u64>, visible: u64) -> Self {
        let mut moments: Vec<u64> = pinned.collect();
        moments.push(visible);
        KeptMoments { moments }
    }

    /// True if a moment is at or after `from` and before `to`.
    pub fn any_within(&self, from: u64, to: u64) -> bool {
        let next = self.moments.partition_point(|&moment| moment < from);
        self.moments.get(next).is_some_and(|&moment| moment < to)
    }
}

/// An answer of a lookup at a moment that no reader has pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// The key has no version here.
    Unknown,
    /// The newest version, which counts at the moment asked for.
    Found(Version),
    /// The newest version is younger. Older ones may be there and count for nothing: the
    /// version that did at the moment may just have been dropped, and one before it kept
    /// for a reader that has pinned an earlier moment.
    Younger,
}
