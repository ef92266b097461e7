//! The dictionary of a store whose values zstd compresses, and the file `DICTIONARY`.
//!
//! The first values that are written under `compression=zstd` are its samples. A background
//! step trains it from them, writes it to a file, durably, and only then are values
//! compressed by it: a crash leaves no value without its dictionary. It never changes, and
//! backups have it too. Where a dictionary saves less than a tenth of what zstd leaves
//! without one, the store goes on without.
//!
//! ```text
//! 0   magic, 8 bytes: CAMDICT1
//! 8   length of the dictionary, 4 bytes
//! 12  CRC-32C of the dictionary, 4 bytes
//! 16  the dictionary, as zstd makes it
//! ```

use std::path::Path;

use cambium_base::checksum::crc32c;
use cambium_base::coding::u32_at;
use cambium_base::{Error, Result};
use cambium_io::sync::atomic::{AtomicU8, Ordering};
use cambium_io::sync::{Mutex, OnceLock, lock};
use cambium_io::{FileSystem, OpenOptions};
use cambium_storage::compression::{Compression, Dictionary};
use cambium_storage::marker::{DICTIONARY_DRAFT_NAME, DICTIONARY_NAME, replace_file};

const MAGIC: &[u8; 8] = b"CAMDICT1";
const HEADER_BYTES: usize = 16;
/// zstd recommends about a hundred times as many bytes of samples. A larger one makes values
/// of 1 KB of JSON no smaller, and takes more of the processor's caches.
const DICTIONARY_BYTES: usize = 16 << 10;
/// Bounds what is read of a damaged file.
const MOST_BYTES: u64 = 1 << 20;
/// Bytes of values from which a dictionary is trained.
const SAMPLE_BYTES: usize = 512 << 10;
/// Larger values have enough to repeat within themselves.
const MOST_VALUE_BYTES: usize = 16 << 10;
/// Samples that a dictionary is tried on.
const TRIALS: usize = 64;

/// No dictionary is wanted: there is one, or there will be none.
const SETTLED: u8 = 0;
const SAMPLING: u8 = 1;
/// There are enough samples.
const DUE: u8 = 2;

/// What is known of a store's dictionary.
#[derive(Debug)]
pub(crate) struct StoreDictionary {
    known: OnceLock<Dictionary>,
    state: AtomicU8,
    samples: Mutex<Samples>,
}

#[derive(Debug, Default)]
struct Samples {
    bytes: Vec<u8>,
    lengths: Vec<usize>,
}

impl StoreDictionary {
    /// That of a new store, which gets one if values are compressed by zstd.
    pub fn of_new(compression: Compression) -> Self {
        let samples_values = compression == Compression::Zstd && cfg!(feature = "zstd");
        StoreDictionary {
            known: OnceLock::new(),
            state: AtomicU8::new(if samples_values { SAMPLING } else { SETTLED }),
            samples: Mutex::default(),
        }
    }

    /// That of the store in a folder.
    ///
    /// # Errors
    /// `Corruption` where the file is damaged.
    pub fn read(
        file_system: &dyn FileSystem,
        folder: &Path,
        (compression, writable): (Compression, bool),
    ) -> Result<Self> {
        let Some(dictionary) = load(file_system, folder)? else {
            let wanted = if writable {
                compression
            } else {
                Compression::None
            };
            return Ok(StoreDictionary::of_new(wanted));
        };
        let read = StoreDictionary::of_new(Compression::None);
        _ = read.known.set(dictionary);
        Ok(read)
    }

    /// Looks for the file again, for a reader: the process that writes the store may have
    /// made it since.
    ///
    /// # Errors
    /// `Corruption` where the file is damaged.
    pub fn refresh(&self, file_system: &dyn FileSystem, folder: &Path) -> Result<()> {
        if self.known.get().is_none() {
            if let Some(dictionary) = load(file_system, folder)? {
                _ = self.known.set(dictionary);
            }
        }
        Ok(())
    }

    /// The dictionary, once there is one.
    #[inline]
    pub fn get(&self) -> Option<&Dictionary> {
        self.known.get()
    }

    /// Takes a value that is being written for a sample, while samples are wanted. True if
    /// there are enough from now on.
    #[inline]
    pub fn sample(&self, value: &[u8]) -> bool {
        self.state.load(Ordering::Relaxed) == SAMPLING && self.keep(value)
    }

    #[cold]
    fn keep(&self, value: &[u8]) -> bool {
        if value.is_empty() || value.len() > MOST_VALUE_BYTES {
            return false;
        }
        let mut samples = lock(&self.samples);
        if self.state.load(Ordering::Relaxed) != SAMPLING {
            return false;
        }
        samples.bytes.extend_from_slice(value);
        samples.lengths.push(value.len());
        let is_due = samples.bytes.len() >= SAMPLE_BYTES;
        if is_due {
            self.state.store(DUE, Ordering::Relaxed);
        }
        is_due
    }

    /// Trains the dictionary and writes its file, if there are samples enough. False if
    /// there was nothing to do.
    ///
    /// # Errors
    /// Those of the file system; the store goes on without a dictionary.
    pub fn train(&self, file_system: &dyn FileSystem, folder: &Path, level: i32) -> Result<bool> {
        if self.state.load(Ordering::Relaxed) != DUE {
            return Ok(false);
        }
        let samples = std::mem::take(&mut *lock(&self.samples));
        if self.state.swap(SETTLED, Ordering::Relaxed) != DUE {
            return Ok(false);
        }
        if let Some(dictionary) = samples.train(level) {
            write(file_system, folder, dictionary.bytes())?;
            _ = self.known.set(dictionary);
        }
        Ok(true)
    }
}

impl Samples {
    /// A dictionary, if it makes the last samples smaller by more than a tenth.
    fn train(&self, level: i32) -> Option<Dictionary> {
        let dictionary = Dictionary::train(&self.bytes, &self.lengths, DICTIONARY_BYTES)?;
        let mut rest = &self.bytes[..];
        let (mut without, mut with) = (0, 0);
        for &length in self.lengths.iter().rev().take(TRIALS) {
            let (before, value) = rest.split_at(rest.len() - length);
            rest = before;
            let plain = Compression::Zstd.compress(level, value);
            without += plain.map_or(length, |packed| packed.len());
            with += dictionary
                .compress(level, value)
                .map_or(length, |packed| packed.len());
        }
        (with < without - without / 10).then_some(dictionary)
    }
}

/// The dictionary in a folder, if there is one.
fn load(file_system: &dyn FileSystem, folder: &Path) -> Result<Option<Dictionary>> {
    let path = folder.join(DICTIONARY_NAME);
    if file_system.metadata(&path)?.is_none() {
        return Ok(None);
    }
    let file = file_system.open(&path, OpenOptions::READ)?;
    let mut bytes = vec![0; file.length()?.min(MOST_BYTES) as usize];
    file.read_exact_at(&mut bytes, 0)?;
    let Some(dictionary) = decode(&bytes) else {
        let what = "the dictionary of compressed values does not match its checksum: bring \
                    the file back from a backup of this store";
        return Err(Error::corruption(path, 0, what));
    };
    Ok(Some(Dictionary::new(dictionary)))
}

fn decode(bytes: &[u8]) -> Option<&[u8]> {
    let (header, dictionary) = bytes.split_at_checked(HEADER_BYTES)?;
    let is_whole = header.starts_with(MAGIC)
        && u32_at(header, 8) as usize == dictionary.len()
        && u32_at(header, 12) == crc32c(dictionary);
    is_whole.then_some(dictionary)
}

fn write(file_system: &dyn FileSystem, folder: &Path, dictionary: &[u8]) -> Result<()> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&(dictionary.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&crc32c(dictionary).to_le_bytes());
    bytes.extend_from_slice(dictionary);
    let (draft, name) = (DICTIONARY_DRAFT_NAME, DICTIONARY_NAME);
    replace_file(file_system, folder, draft, name, &bytes)
}
