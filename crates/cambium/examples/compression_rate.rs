//! Space and rates of JSON values under each compression, beside none. The stores are open
//! together and take turns of a few milliseconds, so that a busy machine slows each of them.
//! `cargo run --release --package cambium --features zstd --example compression_rate -- forest`
#![forbid(unsafe_code)]

use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cambium::prelude::*;

const KEYS: u64 = 50_000;
const SAMPLES: u64 = 2_000;
/// Few enough that the caches hold their values.
const READ_KEYS: u64 = 25_000;
const READS: u64 = 200_000;
/// Writes or reads of a store before the next one's turn.
const TURN: u64 = 1_000;
const ROUNDS: usize = 5;
/// Compressions and zstd's levels.
const KINDS: [(&str, &str); 4] = [("none", "1"), ("lz4", "1"), ("zstd", "1"), ("zstd", "-7")];

/// The next of a row of numbers that look random.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005);
    *state = state.wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// About 1 KB: an order with its customer and lines, as a shop's interface answers it.
fn document(state: &mut u64) -> String {
    let words = [
        "oak", "maple", "table", "chair", "walnut", "lamp", "shelf", "drawer", "beech", "bench",
    ];
    let mut pick = |of: u64| next(state) % of;
    let mut text = format!(
        "{{\"id\":{},\"created_at\":\"2026-{:02}-{:02}T{:02}:{:02}:{:02}Z\",\"status\":\"{}\",\
         \"customer\":{{\"id\":{},\"name\":\"{} {}\",\"email\":\"user{}@example.com\",\
         \"verified\":{}}},\"lines\":[",
        pick(1 << 40),
        pick(12) + 1,
        pick(28) + 1,
        pick(24),
        pick(60),
        pick(60),
        ["paid", "open", "shipped", "returned"][pick(4) as usize],
        pick(1 << 32),
        words[pick(10) as usize],
        words[pick(10) as usize],
        pick(100_000),
        pick(2) == 0,
    );
    while text.len() < 960 {
        text += &format!(
            "{{\"sku\":\"{:08x}\",\"title\":\"{} {}\",\"quantity\":{},\"price\":{}.{:02},\
             \"currency\":\"EUR\"}},",
            pick(1 << 32),
            words[pick(10) as usize],
            words[pick(10) as usize],
            pick(9) + 1,
            pick(900),
            pick(100),
        );
    }
    text.pop();
    text + "]}"
}

/// Bytes that a folder takes on the device.
fn space(folder: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        bytes += match entry.file_type()?.is_dir() {
            true => space(&entry.path())?,
            false => entry.metadata()?.blocks() * 512,
        };
    }
    Ok(bytes)
}

/// A store, and the space and time that it took.
struct Measured {
    store: Store,
    folder: PathBuf,
    bytes: u64,
    writing: Duration,
    reading: Duration,
}

impl Measured {
    /// A store that has its dictionary, if it wants one.
    fn create(
        folder: &Path,
        engine: &str,
        (kind, level): (&str, &str),
        documents: &[String],
    ) -> cambium::Result<Self> {
        let folder = folder.join(format!("{kind}{level}"));
        let store = Options::new()
            .set("compression", kind)
            .set("compression_level", level)
            .create(&folder, engine)?;
        // The first values are the samples of a dictionary, which a background step trains.
        for (key, document) in (0..SAMPLES).zip(documents) {
            store.put(key.to_be_bytes(), document)?;
        }
        Ok(Measured {
            store,
            folder,
            bytes: 0,
            writing: Duration::ZERO,
            reading: Duration::ZERO,
        })
    }

    fn write(&mut self, keys: Range<u64>, documents: &[String]) -> cambium::Result<()> {
        let began = Instant::now();
        for key in keys {
            self.store
                .put(key.to_be_bytes(), &documents[key as usize])?;
        }
        self.writing += began.elapsed();
        Ok(())
    }

    fn sync(&mut self) -> cambium::Result<()> {
        let began = Instant::now();
        self.store.sync()?;
        self.writing += began.elapsed();
        Ok(())
    }

    fn read(&mut self, keys: &[u64], documents: &[String]) -> cambium::Result<()> {
        let began = Instant::now();
        for &key in keys {
            let value = self.store.get(key.to_be_bytes())?;
            assert_eq!(value.as_deref(), Some(documents[key as usize].as_bytes()));
        }
        self.reading += began.elapsed();
        Ok(())
    }

    fn close(&mut self) -> cambium::Result<()> {
        self.store
            .compact(&cambium::CompactOptions::default(), &())?;
        self.store.close()?;
        let failed = |error| cambium::Error::io("list", &self.folder, error);
        self.bytes = space(&self.folder).map_err(failed)?;
        std::fs::remove_dir_all(&self.folder).map_err(failed)
    }
}

fn measure(folder: &Path, engine: &str) -> cambium::Result<Vec<Measured>> {
    let mut state = 7;
    let documents: Vec<String> = (0..KEYS).map(|_| document(&mut state)).collect();
    let create = |kind| Measured::create(folder, engine, kind, &documents);
    let mut stores: Vec<Measured> = KINDS.into_iter().map(create).collect::<Result<_, _>>()?;
    std::thread::sleep(Duration::from_secs(1));
    for from in (0..KEYS).step_by(TURN as usize) {
        for store in &mut stores {
            store.write(from..from + TURN, &documents)?;
        }
    }
    stores.iter_mut().try_for_each(Measured::sync)?;
    let all: Vec<u64> = (0..READ_KEYS).collect();
    for store in &mut stores {
        store.read(&all, &documents)?;
        store.read(&all, &documents)?;
        store.reading = Duration::ZERO;
    }
    for _ in 0..READS / TURN {
        let keys: Vec<u64> = (0..TURN).map(|_| next(&mut state) % READ_KEYS).collect();
        for store in &mut stores {
            store.read(&keys, &documents)?;
        }
    }
    stores.iter_mut().try_for_each(Measured::close)?;
    Ok(stores)
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn main() -> cambium::Result<()> {
    let engine = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "forest".to_string());
    let folder = std::env::temp_dir().join(format!("cambium-rate-{}", std::process::id()));
    std::fs::create_dir_all(&folder)
        .map_err(|error| cambium::Error::io("create", &folder, error))?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(measure(&folder, &engine)?);
    }
    println!(
        "{engine}: space, writing, reading beside no compression; nanoseconds of a put, a get"
    );
    for (place, (kind, level)) in KINDS.into_iter().enumerate() {
        let of = |ratio: fn(&Measured, &Measured) -> f64| {
            median(
                rounds
                    .iter()
                    .map(|all| ratio(&all[0], &all[place]))
                    .collect(),
            )
        };
        let space = of(|none, own| own.bytes as f64 / none.bytes as f64);
        let writing = of(|none, own| none.writing.as_secs_f64() / own.writing.as_secs_f64());
        let reading = of(|none, own| none.reading.as_secs_f64() / own.reading.as_secs_f64());
        let put = of(|_, own| own.writing.as_nanos() as f64 / KEYS as f64);
        let get = of(|_, own| own.reading.as_nanos() as f64 / READS as f64);
        println!("{kind:>5} {level:>2}: {space:.2} {writing:.2} {reading:.2}  {put:.0} {get:.0}");
    }
    std::fs::remove_dir_all(&folder).map_err(|error| cambium::Error::io("remove", &folder, error))
}
