//! Ranges of a table's keys.

use std::borrow::Borrow;
use std::ops::{
    Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive,
};

use cambium_api::KeyRange;

use super::encode_key;
use super::keys::Key;

/// A range of a table's keys: one of Rust's ranges, or a pair of [`Bound`]s.
pub trait TableRange<K> {
    /// The range of their codings.
    fn into_key_range(self) -> KeyRange;
}

fn encoded<K: Key, Q: Borrow<K::Borrowed>>(range: &impl RangeBounds<Q>) -> KeyRange {
    let encode = |bound: Bound<&Q>| bound.map(|key| encode_key::<K>(key.borrow()));
    KeyRange::from((encode(range.start_bound()), encode(range.end_bound())))
}

impl<K: Key> TableRange<K> for RangeFull {
    fn into_key_range(self) -> KeyRange {
        KeyRange::all()
    }
}

impl<K: Key, Q: Borrow<K::Borrowed>> TableRange<K> for (Bound<Q>, Bound<Q>) {
    fn into_key_range(self) -> KeyRange {
        encoded::<K, Q>(&self)
    }
}

macro_rules! table_ranges {
    ($($range:ident)*) => {$(
        impl<K: Key, Q: Borrow<K::Borrowed>> TableRange<K> for $range<Q> {
            fn into_key_range(self) -> KeyRange {
                encoded::<K, Q>(&self)
            }
        }
    )*};
}

table_ranges!(Range RangeInclusive RangeFrom RangeTo RangeToInclusive);
