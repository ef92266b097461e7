//! Clock, random numbers and the environment made of real parts.

use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::{RealFileSystem, ThreadExecutor};
use crate::cache::{BlockCache, DEFAULT_CACHE_BYTES};
use crate::environment::{Clock, Environment, MemoryBudget, Randomness};

/// The operating system's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }

    fn wall_nanoseconds(&self) -> u64 {
        // Every record carries it, for people to read: the clock of the last
        // tick costs a fifth of the exact one. Before 1970 or after 2554 the
        // answer is a bound; no order hangs on it.
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanoseconds = u64::try_from(now.tv_nsec).unwrap_or(0);
        seconds
            .saturating_mul(1_000_000_000)
            .saturating_add(nanoseconds)
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// The operating system's random numbers (`getrandom`).
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandomness;

impl Randomness for SystemRandomness {
    fn fill(&self, bytes: &mut [u8]) {
        let mut rest = &mut *bytes;
        while !rest.is_empty() {
            match rustix::rand::getrandom(&mut *rest, rustix::rand::GetRandomFlags::empty()) {
                Ok(count) => rest = &mut rest[count..],
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return fill_without_getrandom(rest),
            }
        }
    }
}

/// Some sandboxes refuse the system call. Salts and seeds need to differ, not
/// to be secret, so a refusal is no reason to fail.
fn fill_without_getrandom(bytes: &mut [u8]) {
    let device = std::fs::File::open("/dev/urandom");
    if device.and_then(|mut file| file.read_exact(bytes)).is_ok() {
        return;
    }
    for chunk in bytes.chunks_mut(8) {
        let moment = SystemClock.wall_nanoseconds();
        let number = RandomState::new().hash_one((moment, std::process::id()));
        chunk.copy_from_slice(&number.to_le_bytes()[..chunk.len()]);
    }
}

impl Environment {
    /// The real world: the operating system's files, clock, random numbers and
    /// threads, and a memory budget without a limit.
    ///
    /// Make one per process and share it between stores: budget and cache are one.
    pub fn real() -> Environment {
        Environment {
            file_system: Arc::new(RealFileSystem),
            clock: Arc::new(SystemClock),
            randomness: Arc::new(SystemRandomness),
            executor: Arc::new(ThreadExecutor),
            memory: MemoryBudget::unlimited(),
            background: Arc::default(),
            cache: BlockCache::new(DEFAULT_CACHE_BYTES),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_differ_and_fill_every_byte() {
        let mut seen_nonzero = [false; 37];
        for _ in 0..64 {
            let mut bytes = [0; 37];
            SystemRandomness.fill(&mut bytes);
            for (seen, byte) in seen_nonzero.iter_mut().zip(bytes) {
                *seen |= byte != 0;
            }
        }
        assert_eq!(seen_nonzero, [true; 37]);
        assert_ne!(SystemRandomness.next_u64(), SystemRandomness.next_u64());
    }

    #[test]
    fn random_numbers_differ_without_getrandom() {
        let (mut a, mut b) = ([0; 13], [0; 13]);
        fill_without_getrandom(&mut a);
        fill_without_getrandom(&mut b);
        assert_ne!(a, b);
    }

    #[test]
    fn the_monotonic_clock_advances_over_a_sleep() {
        let before = SystemClock.monotonic();
        SystemClock.sleep(Duration::from_millis(2));
        assert!(SystemClock.monotonic() >= before + Duration::from_millis(2));
        assert!(SystemClock.wall_nanoseconds() > 1_600_000_000_000_000_000);
    }

    #[test]
    fn the_real_environment_has_no_limit_of_memory_and_runs_tasks() {
        let environment = Environment::real();
        assert_eq!(environment.memory.limit(), None);
        assert!(environment.executor.runs_tasks());
    }
}
