//! How much memory a measurement has, and who gets which part of it.
//!
//! The limit holds for the whole process with its page cache: what the store may
//! take for itself is a part of it, so that data larger than memory is measured
//! at any size of the store.

/// Share of a store's bytes that a process may have, unless the user says
/// otherwise.
const SHARE: f64 = 0.1;
/// What the program needs to run, with a store's least buffers.
const LEAST_BYTES: u64 = 128 << 20;
/// What a compaction takes where there is plenty.
const MOST_OF_COMPACTION: u64 = 64 << 20;

/// The limit for a store of so many bytes.
pub(super) fn limit(asked: Option<u64>, bytes: f64) -> u64 {
    asked.unwrap_or(((bytes * SHARE) as u64).max(LEAST_BYTES))
}

/// What that limit is called where results are told.
pub(super) fn told(asked: Option<u64>) -> String {
    match asked {
        Some(bytes) => as_text(bytes),
        None => format!("a tenth of the data, at least {}", as_text(LEAST_BYTES)),
    }
}

fn as_text(bytes: u64) -> String {
    kvzone_core::report::text::bytes(bytes as f64)
}

/// Options of an opening that keep a store within a limit.
pub(super) fn options(limit: u64) -> Vec<String> {
    let compaction = (limit / 4).min(MOST_OF_COMPACTION);
    vec![
        format!("cache_bytes={}", limit / 8),
        format!("write_buffer_bytes={}", limit / 32),
        format!("compaction_memory_bytes={compaction}"),
        format!("preallocate_bytes={}", limit / 32),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_fits_into_its_limit_and_the_limit_is_told() {
        assert_eq!(limit(None, 1e6), LEAST_BYTES);
        assert_eq!(limit(None, 1e10), 1_000_000_000);
        assert_eq!(limit(Some(5), 1e10), 5);
        assert_eq!(told(Some(96 << 20)), "96 MiB");
        assert!(told(None).contains("128 MiB"));
        for bytes in [LEAST_BYTES, 10 << 30] {
            let parts: u64 = options(bytes)
                .iter()
                .filter_map(|option| option.split('=').nth(1)?.parse::<u64>().ok())
                .sum();
            assert!(parts > 0 && parts < bytes / 2, "{parts} of {bytes}");
        }
    }
}
