//! Clock, random numbers and the environment made of real parts.

use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::{PortableFileSystem, RealFileSystem, ThreadExecutor};
use crate::cache::{BlockCache, DEFAULT_CACHE_BYTES};
use crate::environment::{Clock, Environment, MemoryBudget, Randomness};
use crate::file_system::FileSystem;

/// The operating system's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }

    fn wall_nanoseconds(&self) -> u64 {
        wall_nanoseconds()
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// Every record carries it, for people to read: the clock of the last tick costs a fifth of
/// the exact one. Before 1970 or after 2554 the answer is a bound; no order hangs on it.
#[cfg(target_os = "linux")]
fn wall_nanoseconds() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(nanoseconds)
}

#[cfg(not(target_os = "linux"))]
fn wall_nanoseconds() -> u64 {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed();
    u64::try_from(now.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

/// Bytes of memory that the machine has.
#[cfg(target_os = "linux")]
pub(crate) fn machine_memory() -> u64 {
    let found = rustix::system::sysinfo();
    (found.totalram as u64).saturating_mul(u64::from(found.mem_unit))
}

/// More than most machines have: the standard library does not tell.
#[cfg(not(target_os = "linux"))]
pub(crate) fn machine_memory() -> u64 {
    64 << 30
}

/// The operating system's random numbers.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandomness;

impl Randomness for SystemRandomness {
    fn fill(&self, bytes: &mut [u8]) {
        #[cfg(target_os = "linux")]
        fill_by_getrandom(bytes);
        #[cfg(not(target_os = "linux"))]
        fill_without_getrandom(bytes);
    }
}

#[cfg(target_os = "linux")]
fn fill_by_getrandom(bytes: &mut [u8]) {
    let mut rest = &mut *bytes;
    while !rest.is_empty() {
        match rustix::rand::getrandom(&mut *rest, rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => rest = &mut rest[count..],
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return fill_without_getrandom(rest),
        }
    }
}

/// Other systems have no `getrandom`, and some sandboxes refuse it. Salts and seeds need to
/// differ, not to be secret. The standard library seeds the keys of its hash maps from the
/// system's random numbers, on every system.
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

/// Selects the file system of [`Environment::real`].
const FILE_SYSTEM_VARIABLE: &str = "CAMBIUM_FILES";

impl Environment {
    /// The real world: the operating system's files, clock, random numbers and
    /// threads, and a memory budget without a limit.
    ///
    /// Make one per process and share it between stores: budget and cache are one.
    ///
    /// On Linux, the environment variable `CAMBIUM_FILES=portable` selects
    /// [`PortableFileSystem`], which uses none of the calls that only Linux has.
    pub fn real() -> Environment {
        let file_system: Arc<dyn FileSystem> = match std::env::var_os(FILE_SYSTEM_VARIABLE) {
            Some(name) if name == "portable" => Arc::new(PortableFileSystem),
            _ => Arc::new(RealFileSystem),
        };
        Environment {
            file_system,
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
