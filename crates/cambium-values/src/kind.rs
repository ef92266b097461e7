//! An engine's kind with the value layer above.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use cambium_api::options::{OptionSpec, invalid_option};
use cambium_api::{CheckReport, Engine, EngineKind, OptionValues, ProgressSink, Seeded};
use cambium_base::Result;
use cambium_io::Environment;
use cambium_storage::compression::Compression;
use cambium_storage::marker::{Marker, read_marker};

use crate::decompressed::Decompressed;
use crate::dictionary::StoreDictionary;
use crate::form::Encoder;
use crate::seeded_bug::SeededBug;
use crate::store::{FormedStore, Values};

/// Options of the layer. An engine that has one of the same name is given it too.
const OPTIONS: [OptionSpec; 3] = [
    OptionSpec {
        name: COMPRESSION,
        unit: "none, lz4 or zstd",
        default: "none",
        effect: "Of values that are written from now on, and in engine wisckey of new blocks of its tree too. Used for those that it makes smaller by an eighth; each says how it was compressed, so the option can change at any time. lz4 is fast, zstd smaller. zstd needs a program built with that feature.",
        at_creation: false,
    },
    OptionSpec {
        name: LEVEL,
        unit: "-7 to 19",
        default: "1",
        effect: "Of zstd: a larger one makes values smaller and writes slower. Below 1 it is faster and saves less.",
        at_creation: false,
    },
    OptionSpec {
        name: DECOMPRESSED,
        unit: "bytes, 0 to 1024TiB",
        default: "64MiB",
        effect: "Memory for values that zstd compressed, after decompression, beside what the engine caches as it is stored; of an opening with compression=zstd alone. Read again from there, a value costs little more than one that is not compressed.",
        at_creation: false,
    },
];
const DECOMPRESSED: &str = "decompressed_cache_bytes";
const COMPRESSION: &str = "compression";
const LEVEL: &str = "compression_level";

/// An engine's kind with the value layer above its stores.
pub struct ValueLayer {
    inner: Arc<dyn EngineKind>,
    options: &'static [OptionSpec],
}

impl ValueLayer {
    /// Above the stores of an engine. A program makes one for each kind of engine and keeps
    /// it: its list of options is never freed.
    pub fn above(inner: Arc<dyn EngineKind>) -> Self {
        let own = |option: &&OptionSpec| OPTIONS.iter().all(|other| other.name != option.name);
        let theirs = inner.options().iter().filter(own);
        let all: Vec<OptionSpec> = theirs.chain(&OPTIONS).copied().collect();
        ValueLayer {
            inner,
            options: Box::leak(all.into_boxed_slice()),
        }
    }

    /// Takes the layer's options out, but for those that the engine has too.
    fn take_options(&self, options: &OptionValues) -> Result<(OptionValues, Settings)> {
        let mut left = options.clone();
        let mut encoder = Encoder {
            seeded_bug: Seeded::take_known(&mut left, &SeededBug::ALL),
            ..Encoder::default()
        };
        if let Some(name) = options.get(COMPRESSION) {
            encoder.compression = Compression::parse(name)?;
        }
        encoder.level = match options.get(LEVEL) {
            None => 1,
            Some(text) => {
                let level = text.parse().ok().filter(|level| (-7..=19).contains(level));
                level.ok_or_else(|| invalid_option(LEVEL, text, "-7 to 19"))?
            }
        };
        let is_set = left.get(DECOMPRESSED).is_some();
        let bytes = left.take_ranged(DECOMPRESSED, 0, 0, 1 << 50)?;
        for name in [COMPRESSION, LEVEL] {
            let mut theirs = self.inner.options().iter();
            if theirs.all(|other| other.name != name) {
                _ = left.take(name);
            }
        }
        let decompressed_bytes = is_set.then_some(bytes);
        let settings = Settings {
            encoder,
            decompressed_bytes,
        };
        Ok((left, settings))
    }
}

/// What the layer's options say.
struct Settings {
    encoder: Encoder,
    decompressed_bytes: Option<u64>,
}

impl Settings {
    /// Memory for values after decompression, if zstd compresses values.
    fn decompressed(&self, environment: &Environment) -> Result<Option<Decompressed>> {
        match self.encoder.compression {
            Compression::None | Compression::Lz4 => Ok(None),
            Compression::Zstd => Decompressed::new(environment, self.decompressed_bytes).map(Some),
        }
    }
}

/// An open store with the layer above it. Its marker and its dictionary are read under the
/// lock that the engine holds by now.
fn opened(
    environment: &Environment,
    path: &Path,
    (encoder, decompressed): (Encoder, Option<Decompressed>),
    (store, writable): (Arc<dyn Engine>, bool),
) -> Result<FormedStore> {
    let files = &*environment.file_system;
    let found = read_marker(files, path).and_then(|marker| {
        let use_of_it = (encoder.compression, writable);
        StoreDictionary::read(files, path, use_of_it).map(|dictionary| (marker, dictionary))
    });
    match found {
        Ok((Marker { expires, .. }, dictionary)) => {
            let values = Values {
                encoder,
                dictionary,
                decompressed,
            };
            let flags = (expires, writable);
            Ok(FormedStore::above(environment, path, store, values, flags))
        }
        Err(error) => {
            // The first error counts.
            _ = store.close();
            Err(error)
        }
    }
}

impl EngineKind for ValueLayer {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn format_version(&self) -> u32 {
        self.inner.format_version()
    }

    fn summary(&self) -> &'static str {
        self.inner.summary()
    }

    fn options(&self) -> &'static [OptionSpec] {
        self.options
    }

    fn owns_file(&self, name: &str) -> bool {
        self.inner.owns_file(name)
    }

    fn kept_options(&self) -> &'static [&'static str] {
        self.inner.kept_options()
    }

    fn create(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
    ) -> Result<Arc<dyn Engine>> {
        let (options, settings) = self.take_options(options)?;
        let values = Values {
            encoder: settings.encoder,
            dictionary: StoreDictionary::of_new(settings.encoder.compression),
            decompressed: settings.decompressed(environment)?,
        };
        let store = self.inner.create(environment, path, &options)?;
        let store = FormedStore::above(environment, path, store, values, (false, true));
        Ok(Arc::new(store))
    }

    fn open(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
        progress: &dyn ProgressSink,
    ) -> Result<Arc<dyn Engine>> {
        let (options, settings) = self.take_options(options)?;
        let values = (settings.encoder, settings.decompressed(environment)?);
        let store = self.inner.open(environment, path, &options, progress)?;
        let store = opened(environment, path, values, (store, true))?;
        if store.shared.expiry.is_used() {
            store.work_from_now_on();
        }
        Ok(Arc::new(store))
    }

    fn open_read_only(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
        progress: &dyn ProgressSink,
    ) -> Result<Arc<dyn Engine>> {
        let (options, settings) = self.take_options(options)?;
        let values = (settings.encoder, settings.decompressed(environment)?);
        let inner = &self.inner;
        let store = inner.open_read_only(environment, path, &options, progress)?;
        let store = opened(environment, path, values, (store, false))?;
        Ok(Arc::new(store))
    }

    fn check(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
        progress: &dyn ProgressSink,
    ) -> Result<CheckReport> {
        let (options, _) = self.take_options(options)?;
        self.inner.check(environment, path, &options, progress)
    }

    fn inspect(&self, environment: &Environment, path: &Path, to: &mut dyn Write) -> Result<()> {
        self.inner.inspect(environment, path, to)
    }

    fn repair(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
        progress: &dyn ProgressSink,
    ) -> Result<CheckReport> {
        let (options, _) = self.take_options(options)?;
        self.inner.repair(environment, path, &options, progress)
    }
}
