//! When entries cease to be there.

use std::time::Duration;

/// A moment of the wall clock, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMillis(pub u64);

/// When an entry ceases to be there.
///
/// ```
/// use std::time::Duration;
/// use cambium_api::{Expiry, UnixMillis};
/// let now = UnixMillis(1_000);
/// assert_eq!(Expiry::After(Duration::from_secs(2)).at(now), UnixMillis(3_000));
/// assert_eq!(Expiry::At(UnixMillis(7)).at(now), UnixMillis(7));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// So long after it was written.
    After(Duration),
    /// At this moment. Of one in the past, the entry is not there from the beginning.
    At(UnixMillis),
}

impl Expiry {
    /// The moment, for an entry that is written now.
    pub fn at(self, now: UnixMillis) -> UnixMillis {
        match self {
            Expiry::At(moment) => moment,
            Expiry::After(time) => {
                let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                UnixMillis(now.0.saturating_add(time))
            }
        }
    }
}
