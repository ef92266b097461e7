//! An engine's kind with the value layer above.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use cambium_api::options::{OptionSpec, invalid_option};
use cambium_api::{CheckReport, Engine, EngineKind, OptionValues, ProgressSink};
use cambium_base::Result;
use cambium_io::Environment;
use cambium_storage::compression::Compression;
use cambium_storage::marker::{Marker, read_marker};

use crate::form::Encoder;
use crate::store::FormedStore;

/// Options of the layer. An engine that has one of the same name is given it too.
const OPTIONS: [OptionSpec; 2] = [
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
        effect: "Of zstd: a larger one makes values smaller and writes slower. Below 1 reads are faster too: -1 halves the time of both, and values of 1 KB of JSON take a quarter more.",
        at_creation: false,
    },
];
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
    fn take_options(&self, options: &OptionValues) -> Result<(OptionValues, Encoder)> {
        let mut left = options.clone();
        let mut encoder = Encoder::default();
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
        for option in &OPTIONS {
            let mut theirs = self.inner.options().iter();
            if theirs.all(|other| other.name != option.name) {
                _ = left.take(option.name);
            }
        }
        Ok((left, encoder))
    }
}

/// An open store with the layer above it. Its marker is read under the lock that the
/// engine holds by now.
fn opened(
    environment: &Environment,
    path: &Path,
    encoder: Encoder,
    (store, writable): (Arc<dyn Engine>, bool),
) -> Result<FormedStore> {
    match read_marker(&*environment.file_system, path) {
        Ok(Marker { expires, .. }) => Ok(FormedStore::above(
            environment,
            path,
            store,
            encoder,
            (expires, writable),
        )),
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
        let (options, encoder) = self.take_options(options)?;
        let store = self.inner.create(environment, path, &options)?;
        let store = FormedStore::above(environment, path, store, encoder, (false, true));
        Ok(Arc::new(store))
    }

    fn open(
        &self,
        environment: &Environment,
        path: &Path,
        options: &OptionValues,
        progress: &dyn ProgressSink,
    ) -> Result<Arc<dyn Engine>> {
        let (options, encoder) = self.take_options(options)?;
        let store = self.inner.open(environment, path, &options, progress)?;
        let store = opened(environment, path, encoder, (store, true))?;
        if store.shared.expiry.is_used() {
            store.sweep_from_now_on();
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
        let (options, encoder) = self.take_options(options)?;
        let inner = &self.inner;
        let store = inner.open_read_only(environment, path, &options, progress)?;
        let store = opened(environment, path, encoder, (store, false))?;
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
