//! Linear hashing (Litwin, 1980): a table of hashes that grows one bucket at
//! a time, so that growth never stops the world.
//!
//! With `buckets` between `2^level` and `2^(level+1)`, a hash belongs to the
//! bucket of its low `level + 1` bits if that bucket is there, else to the one
//! of its low `level` bits. Adding bucket `2^level + b` splits bucket `b`.
//!
//! Reversing the bits of a hash turns each bucket into one contiguous range,
//! and a split cuts a range in two: a walk in that order can be resumed after
//! any number of splits.

/// How many buckets there are, and so where each hash belongs.
///
/// ```
/// use cambium_index::BucketMap;
/// let map = BucketMap::new(6);
/// assert_eq!(map.bucket(0b101), 5);
/// assert_eq!(map.bucket(0b111), 3); // bucket 7 is not there yet
/// assert_eq!(map.next_split(), (2, 6));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketMap {
    buckets: u64,
}

impl BucketMap {
    /// A table of `buckets`.
    ///
    /// # Panics
    /// If there is none, or more than hashes of 32 bits can tell apart.
    pub fn new(buckets: u64) -> Self {
        assert!((1..=1 << 32).contains(&buckets), "1 to 2^32 buckets");
        BucketMap { buckets }
    }

    /// How many buckets there are.
    pub fn buckets(&self) -> u64 {
        self.buckets
    }

    /// Bits that tell the buckets of the lower level apart.
    fn level(&self) -> u32 {
        self.buckets.ilog2()
    }

    /// The bucket a hash belongs to.
    pub fn bucket(&self, hash: u32) -> u64 {
        let hash = u64::from(hash);
        let wide = hash & ((2 << self.level()) - 1);
        if wide < self.buckets {
            wide
        } else {
            hash & ((1 << self.level()) - 1)
        }
    }

    /// The bucket that is split next, and the one that is added.
    pub fn next_split(&self) -> (u64, u64) {
        (self.buckets - (1 << self.level()), self.buckets)
    }

    /// The bucket that holds the reversed hashes from `cursor` on, and where
    /// its range ends (2^32 at the end of the walk).
    pub fn bucket_at(&self, cursor: u32) -> (u64, u64) {
        let bucket = self.bucket(cursor.reverse_bits());
        let bits = self.bits_of(bucket);
        let width = 1u64 << (32 - bits);
        let start = u64::from(cursor) / width * width;
        (bucket, start + width)
    }

    /// How many low bits all hashes of a bucket share.
    fn bits_of(&self, bucket: u64) -> u32 {
        let level = self.level();
        let added = self.buckets - (1 << level);
        if bucket < added || bucket >= 1 << level {
            level + 1
        } else {
            level
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hash_has_one_bucket_and_splits_move_only_the_split_one() {
        for buckets in 1..70u64 {
            let map = BucketMap::new(buckets);
            let grown = BucketMap::new(buckets + 1);
            let (from, to) = map.next_split();
            for hash in (0..4096u32).map(|n| n.wrapping_mul(0x9e37_79b9)) {
                let (before, after) = (map.bucket(hash), grown.bucket(hash));
                assert!(before < buckets);
                if before == from {
                    assert!(after == from || after == to);
                } else {
                    assert_eq!(before, after);
                }
            }
        }
    }

    #[test]
    fn a_walk_in_reversed_order_meets_each_bucket_once() {
        for buckets in 1..70u64 {
            let map = BucketMap::new(buckets);
            let mut seen = Vec::new();
            let mut cursor = 0u64;
            while cursor < 1 << 32 {
                let (bucket, end) = map.bucket_at(cursor as u32);
                assert!(end > cursor);
                seen.push(bucket);
                cursor = end;
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..buckets).collect::<Vec<_>>());
        }
    }
}
