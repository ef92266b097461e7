//! Values after decompression, kept for the next read.
//!
//! A block of the cache is the stored body and the value behind it. It lies at the checksum
//! of the body, and answers only for the same body: so nothing has to be taken out when an
//! entry is written anew, and no reader sees an older value.

use std::sync::Arc;

use cambium_base::checksum::crc32c;
use cambium_base::{Result, Value};
use cambium_io::Environment;
use cambium_io::cache::{Block, BlockCache, CachedFile};
use cambium_io::memory_budget::Reservation;
use cambium_io::sync::{Mutex, lock};

/// Bytes of the cache, unless the option sets them.
const DEFAULT_BYTES: u64 = 64 << 20;
/// The part of what is free in a limited memory budget that it takes at most then.
const SHARE: u64 = 8;
/// What the cache is laid out for: of smaller values fewer find a place.
const COMMON_BYTES: u64 = 1024;
/// A value takes so large a part of the cache at most.
const LARGEST_PART: u64 = 64;

/// The values of an open store that are kept after decompression.
#[derive(Debug)]
pub(crate) struct Decompressed {
    cache: Arc<BlockCache>,
    values: CachedFile,
    /// `None` once the store is closed.
    reservation: Mutex<Option<Reservation>>,
}

impl Decompressed {
    /// A cache of so many bytes, or of the default, reserved of the memory budget.
    ///
    /// # Errors
    /// `LimitExceeded` where the budget has too little left.
    pub fn new(environment: &Environment, bytes: Option<u64>) -> Result<Self> {
        let budget = &environment.memory;
        let bytes = match (bytes, budget.limit()) {
            (Some(bytes), _) => bytes,
            (None, None) => DEFAULT_BYTES,
            (None, Some(_)) => DEFAULT_BYTES.min(budget.free() / SHARE),
        };
        let reservation = budget.reserve(bytes)?;
        let cache = BlockCache::of_blocks(bytes, COMMON_BYTES);
        Ok(Decompressed {
            values: cache.file(),
            cache,
            reservation: Mutex::new(Some(reservation)),
        })
    }

    fn place(body: &[u8]) -> u64 {
        u64::from(crc32c(body))
    }

    /// The value of a stored body, if it is kept.
    #[inline]
    pub fn get(&self, body: &[u8]) -> Option<Value> {
        let of_this_body = self.values.with(Self::place(body), |block| {
            let (stored, value) = block.split_at_checked(body.len())?;
            let range = body.len()..body.len() + value.len();
            (stored == body).then(|| Value::part_of(block, range))
        });
        of_this_body.flatten()
    }

    /// A block for a stored body and its value of so many bytes, which are to be written.
    /// `None` if both are too large to be kept.
    pub fn block(&self, body: &[u8], value_bytes: usize) -> Option<Block> {
        let bytes = body.len() + value_bytes;
        if bytes as u64 > self.cache.capacity() / LARGEST_PART {
            return None;
        }
        let mut block = self.values.block_to_fill(bytes);
        Arc::get_mut(&mut block)?[..body.len()].copy_from_slice(body);
        Some(block)
    }

    /// Keeps a [block](Self::block) whose value has been written.
    pub fn put(&self, body: &[u8], block: &Block) {
        self.values.put(Self::place(body), block);
    }

    /// Bytes that it holds at most.
    pub fn capacity(&self) -> u64 {
        self.cache.capacity()
    }

    /// How often a value was found, and how often not.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        self.values.hits_and_misses()
    }

    /// Gives the memory back, of a store that is closed.
    pub fn give_back(&self) {
        *lock(&self.reservation) = None;
    }
}
