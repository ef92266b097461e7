//! What one thread gets of a tree, phase by phase, with another thread taking
//! the steps: for tuning, and for the numbers in the documents.
//!
//! ```text
//! cargo run --release -p cambium-lsm --example lsm_speed -- [DIR] [KEYS]
//! ```

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cambium_base::{Result, StoreId};
use cambium_io::{Environment, StepOutcome};
use cambium_lsm::{
    DropObserver, DroppedEntry, JobKind, Lookup, Options, Owner, Tree, WritePressure,
};

/// Keeps what is visible, and no accounts.
#[derive(Debug, Default)]
struct Visible(AtomicU64);

#[derive(Debug)]
struct NoAccounts;

impl DropObserver for NoAccounts {
    fn dropped(&mut self, _: DroppedEntry<'_>) {}
    fn into_note(self: Box<Self>, _: &[Vec<u8>]) -> Vec<u8> {
        Vec::new()
    }
}

impl Owner for Visible {
    fn protected_moments(&self) -> Vec<u64> {
        vec![self.0.load(Ordering::Acquire)]
    }
    fn begin_job(&self, _: JobKind) -> Box<dyn DropObserver> {
        Box::new(NoAccounts)
    }
    fn committed(&self, _: &[u8], _: bool) -> Result<()> {
        Ok(())
    }
    fn full_note(&self) -> Vec<u8> {
        Vec::new()
    }
}

fn key(number: u64) -> [u8; 16] {
    let mut bytes = [0x61; 16];
    let scattered = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bytes[..8].copy_from_slice(&scattered.to_be_bytes());
    bytes
}

/// Processor time of this process, all threads, in seconds.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind_name = text.rsplit(')').next().unwrap_or_default();
    let fields: Vec<f64> = behind_name
        .split_whitespace()
        .filter_map(|field| field.parse().ok())
        .collect();
    // The state, a letter, is not among them: utime and stime are 10 and 11.
    (fields.get(10).unwrap_or(&0.0) + fields.get(11).unwrap_or(&0.0)) / 100.0
}

fn phase(name: &str, count: u64, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let (before, started) = (processor_seconds(), Instant::now());
    work()?;
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{name:<34} {:>10.0}/s {:>6.0} ns each, {:>6.0} ns of processor",
        count as f64 / seconds,
        seconds * 1e9 / count as f64,
        (processor_seconds() - before) * 1e9 / count as f64,
    );
    Ok(())
}

fn fill(tree: &Tree, owner: &Visible, from: u64, count: u64) -> Result<Duration> {
    let mut stopped = Duration::ZERO;
    for number in from..from + count {
        if number % 64 == 0 {
            while tree.write_pressure() == WritePressure::Stop {
                let since = Instant::now();
                std::thread::sleep(Duration::from_micros(200));
                stopped += since.elapsed();
            }
            if tree.seal_due() {
                tree.seal(Vec::new());
            }
        }
        tree.writer()
            .put(number + 1, &key(number), &number.to_le_bytes().repeat(2));
        owner.0.store(number + 1, Ordering::Release);
    }
    Ok(stopped)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().unwrap_or_else(|| ".".into()));
    let keys: u64 = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(4_000_000);
    let path = folder.join(format!("lsm-speed-{}", std::process::id()));
    let environment = Environment::real();
    let owner = Arc::new(Visible::default());
    let options = Options {
        block_cache: cambium_io::BlockCache::new(1 << 30),
        ..Options::default()
    };
    let tree = Tree::create(
        &environment,
        &path,
        StoreId([3; 16]),
        &options,
        owner.clone(),
    )?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<()> {
        let steps = scope.spawn(|| -> Result<()> {
            while !stop.load(Ordering::Acquire) {
                if tree.step(1 << 20)? != StepOutcome::Again {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            Ok(())
        });
        let result = measure(&tree, &owner, keys);
        stop.store(true, Ordering::Release);
        steps.join().expect("the steps do not panic")?;
        result
    })?;
    println!("{:#?}", tree.statistics());
    tree.close()?;
    std::fs::remove_dir_all(&path).map_err(|error| cambium_base::Error::io("remove", &path, error))
}

fn measure(tree: &Tree, owner: &Visible, keys: u64) -> Result<()> {
    let first = keys.min(500_000);
    phase("inserts, one memtable", first, || {
        fill(tree, owner, 0, first).map(|_| ())
    })?;
    phase("gets of it", first, || get_all(tree, owner, first, 1))?;
    let mut stopped = Duration::ZERO;
    phase("inserts, steps beside", keys - first, || {
        stopped = fill(tree, owner, first, keys - first)?;
        Ok(())
    })?;
    println!("  of which writers were stopped for {stopped:?}");
    tree.seal(Vec::new());
    phase("settling", keys, || {
        // A job that a thread has in hand is not due.
        let mut quiet = 0;
        while quiet < 20 {
            let waits = tree.statistics().sealed_memtables > 0 || tree.step_due();
            quiet = if waits { 0 } else { quiet + 1 };
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    })?;
    let some = keys.min(1_000_000);
    phase("gets, caches cold", some, || {
        get_all(tree, owner, keys, keys / some)
    })?;
    phase("gets, all cached", some, || {
        get_all(tree, owner, keys, keys / some)
    })?;
    phase("gets of missing keys", some, || {
        (keys..keys + some).try_for_each(|number| {
            let visible = || owner.0.load(Ordering::Acquire);
            match tree.get_current(&key(number), visible)? {
                Lookup::Absent => Ok(()),
                found => unreachable_found(&found),
            }
        })
    })?;
    phase("multi_get by 64", some, || {
        for start in (0..some).step_by(64) {
            let batch: Vec<[u8; 16]> = (start..start + 64).map(|n| key(n % keys)).collect();
            let slices: Vec<&[u8]> = batch.iter().map(|key| &key[..]).collect();
            tree.multi_get_current(&slices, || owner.0.load(Ordering::Acquire))?;
        }
        Ok(())
    })?;
    phase("scan of everything", keys, || {
        let mut cursor = tree.cursor(None, None, keys)?;
        cursor.seek_first()?;
        let mut count = 0;
        while cursor.entry().is_some() {
            count += 1;
            cursor.next()?;
        }
        println!("  {count} entries");
        Ok(())
    })
}

fn unreachable_found(found: &Lookup) -> Result<()> {
    let what = format!("a key that was never written: {found:?}");
    Err(cambium_base::Error::InvalidArgument(what))
}

fn get_all(tree: &Tree, owner: &Visible, keys: u64, stride: u64) -> Result<()> {
    for number in (0..keys).step_by(stride as usize) {
        match tree.get_current(&key(number), || owner.0.load(Ordering::Acquire))? {
            Lookup::Found { sequence, .. } if sequence == number + 1 => {}
            found => unreachable_found(&found)?,
        }
    }
    Ok(())
}
