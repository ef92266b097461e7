//! Whether gets ever answer an older value than the last acknowledged put: puts and gets
//! of skewed keys, each value with its version, then the same after reopening.
//!
//! ```text
//! cargo run --release -p cambium-wisckey --example stale_answers -- \
//!     FOLDER [SECONDS] [SEED] [KEYS] [VALUE_BYTES] [OPTION=VALUE ...]
//! ```
//!
//! `FOLDER` is made, and removed again where nothing is wrong. The exit status is 1 where
//! something is. Run it beside busy processes: threads that are held up at the wrong moment
//! are what it is for.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use cambium_api::{Durability, Engine, EngineKind, OptionValues};
use cambium_io::Environment;
use cambium_wisckey::Wisckey;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn mix(number: u64) -> u64 {
    let mixed = (number ^ number >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53)
}

fn key(number: usize) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mix(number as u64 + 1).to_be_bytes());
    key[8..].copy_from_slice(&(number as u64).to_be_bytes());
    key
}

fn value(number: usize, version: u32, bytes: usize) -> Vec<u8> {
    let mut value = vec![version as u8; bytes.max(12)];
    value[..4].copy_from_slice(&version.to_le_bytes());
    value[4..12].copy_from_slice(&(number as u64).to_le_bytes());
    value
}

/// Says what is wrong with the answer for a key, if anything is.
fn complaint(store: &dyn Engine, number: usize, version: u32) -> Option<String> {
    match store.get(&key(number)) {
        Ok(Some(found)) => {
            let mut of = [0; 4];
            of.copy_from_slice(&found[..4]);
            let of = u32::from_le_bytes(of);
            (of != version).then(|| format!("key {number}: version {of}, last put {version}"))
        }
        Ok(None) => Some(format!("key {number}: nothing, last put {version}")),
        Err(error) => Some(format!("key {number}: {error}")),
    }
}

fn wrong_keys(store: &dyn Engine, versions: &[u32], when: &str) -> usize {
    let all = versions.iter().enumerate();
    let wrong = all.filter_map(|(number, &version)| complaint(store, number, version));
    let wrong: Vec<String> = wrong.collect();
    if let Some(first) = wrong.first() {
        println!("{when}: {} keys are wrong; {first}", wrong.len());
    }
    wrong.len()
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (options, numbers): (Vec<_>, Vec<_>) = arguments
        .iter()
        .partition(|argument| argument.contains('='));
    let number = |place: usize, default: u64| -> Outcome<u64> {
        Ok(numbers
            .get(place)
            .map_or(Ok(default), |text| text.parse())?)
    };
    let folder = Path::new(numbers.first().ok_or("a FOLDER to make")?);
    let seconds = Duration::from_secs(number(1, 4)?);
    let mut random = mix(number(2, 1)?) | 1;
    let keys = number(3, 200_000)? as usize;
    let value_bytes = number(4, 100)? as usize;
    let mut values = OptionValues::default();
    for option in options {
        let (name, value) = option.split_once('=').unwrap_or_default();
        values.set(name, value);
    }
    let environment = Environment::real();
    let store = Wisckey.create(&environment, folder, &values)?;
    let mut versions = vec![0u32; keys];
    for number in 0..keys {
        store.put(
            &key(number),
            &value(number, 0, value_bytes),
            Durability::Written,
        )?;
    }
    let started = Instant::now();
    let (mut operations, mut wrong) = (0u64, 0);
    while started.elapsed() < seconds {
        for _ in 0..1000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let uniform = (random >> 11) as f64 / (1u64 << 53) as f64;
            let number = (uniform.powi(4) * keys as f64) as usize;
            operations += 1;
            if random & 1 == 0 {
                versions[number] += 1;
                let value = value(number, versions[number], value_bytes);
                store.put(&key(number), &value, Durability::Written)?;
            } else if let Some(complaint) = complaint(&*store, number, versions[number]) {
                wrong += 1;
                if wrong == 1 {
                    println!("after {:?}: {complaint}", started.elapsed());
                }
            }
        }
    }
    wrong += wrong_keys(&*store, &versions, "at the end");
    store.close()?;
    let report = Wisckey.check(&environment, folder, &Default::default(), &())?;
    report
        .findings
        .iter()
        .take(3)
        .for_each(|finding| println!("check: {finding:?}"));
    let store = Wisckey.open(&environment, folder, &values, &())?;
    wrong += wrong_keys(&*store, &versions, "after reopening");
    store.close()?;
    println!(
        "{operations} operations, {wrong} wrong answers, sound: {}",
        report.is_sound()
    );
    if wrong > 0 {
        std::process::exit(1);
    }
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
