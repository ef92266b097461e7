//! Our own engines, each as a store: whatever [`cambium::engines()`] lists.
//!
//! Options of the engine are settings of the same names; `kvzone list stores`
//! needs no line here when there is a new engine. What is chosen:
//!
//! | option | value |
//! |---|---|
//! | `keys` | `integer` where keys have 8 bytes or fewer and the engine has that option, unless overridden: keys are then big-endian numbers, filled up to 8 bytes for the engine |
//! | `write_buffer_bytes` | an eighth of the budget, as every store has it; of `forest`, which lets three times as much be in use, two thirds of that |
//! | `cache_bytes` | the rest of the budget, with what filters take taken off where the engine has filters |
//! | `compaction_memory_bytes` | an eighth of the budget, 4 MiB at least |
//! | `size` | of an engine that takes its space beforehand: two and a half times what the entries take, and 64 MiB more, unless overridden |
//! | all others, and in profile `default` the last three too | the engine's default |
//!
//! `alphard-file` and `alphard-raw` are engine `alphard` in a file and on a block device,
//! as the paper measures both. The file is written to its end when it is made (`fill=on`),
//! where `alphard` by its defaults only reserves the space; the device is what
//! `KVZONE_DEVICE` names. **All that it carries is lost.**
//!
//! `forest-couchstore` approximates the baseline of the ForestDB paper. Couchstore (section 2.3
//! of ForestDB 2016) is an append-only B+-tree over whole keys, updated at every commit,
//! without a cache of its own and without a write buffer. Engine `forest` has all of its parts
//! as options:
//!
//! | option | value | why |
//! |---|---|---|
//! | `index` | `btree` | whole keys, no prefix compression |
//! | `write_buffer_entries` | 1 | each batch goes into the tree: at most one waits while another is written |
//! | `cache_bytes` | 0 | the operating system's cache alone |
//! | `read_ahead` | 1 | documents and nodes are read one by one |
//! | `compaction_threshold` | 30 | percent stale, as in the paper (section 4.2) |
//! | `cleaning` | off | the whole store is rewritten, as in the paper |
//!
//! It is no measurement of Couchstore: its format, its Erlang-born B+-tree with chunked nodes and
//! its by-sequence index are not here. All other options can be set as those of `forest`.
//!
//! Durability is an argument of every write, and means exactly what
//! [`cambium::Durability`] says. Sessions are clones
//! of one counted reference. With `--queue`, requests go through
//! [`Store::submit`] where an engine serves it by itself: `alphard`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use cambium::{
    CompactOptions, Durability, EngineKind, KeyKind, OptionValues, Options, Response,
    StatisticValue, Store, WriteBatch,
};
use cambium_io::StepOutcome;
use kvzone_core::adapter::{
    Adapter, Availability, Capabilities, Change, Done, OpenRequest, OpenStore, Profile, Queue,
    Request, Session, Visit,
};
use kvzone_core::error::{Error, Result};

/// Bytes of a key of an integer table.
const INTEGER_BYTES: usize = 8;

/// Budget of one background step.
const STEP_BYTES: u64 = 4 << 20;
/// How often a store says that nothing is to be done before it is believed, and
/// the time between.
const IDLE_LOOKS: u32 = 10;
const IDLE_PAUSE: Duration = Duration::from_millis(1);

/// Engine `alphard` in a file that is written to its end when it is made.
const FILLED: &str = "alphard-file";
/// The same on a block device.
const RAW: &str = "alphard-raw";

/// Where a block device to measure on may be named.
const DEVICE_VARIABLE: &str = "KVZONE_DEVICE";

/// Options that cannot be overridden.
type Fixed = &'static [(&'static str, &'static str)];

/// Stores beside the engines: their name, their engine and its options.
const VARIANTS: [(&str, &str, Fixed); 3] = [
    (FILLED, "alphard", &[]),
    (RAW, "alphard", &[]),
    (
        "forest-couchstore",
        "forest",
        &[
            ("index", "btree"),
            ("write_buffer_entries", "1"),
            ("cache_bytes", "0"),
            ("read_ahead", "1"),
            ("compaction_threshold", "30"),
            ("cleaning", "off"),
        ],
    ),
];
const COUCHSTORE: &str = "engine forest as an append-only B+-tree without write buffer or cache: \
    approximates the baseline of the ForestDB paper";

pub(super) fn adapters() -> Vec<Box<dyn Adapter>> {
    let engines = cambium::engines();
    let engines = engines.iter().map(|kind| kind.name());
    let variants = VARIANTS.iter().map(|variant| variant.0);
    let found = engines.chain(variants).filter_map(engine);
    found
        .map(|store| Box::new(store) as Box<dyn Adapter>)
        .collect()
}

pub(super) fn engine(name: &str) -> Option<Cambium> {
    let variant = VARIANTS.iter().find(|variant| variant.0 == name);
    let engine = variant.map_or(name, |variant| variant.1);
    let engines = cambium::engines();
    let kind = engines.iter().find(|kind| kind.name() == engine)?.clone();
    Some(Cambium {
        name: variant.map_or(kind.name(), |variant| variant.0),
        raw: name == RAW,
        fixed: variant.map_or(&[], |variant| variant.2),
        kind,
    })
}

pub(super) struct Cambium {
    kind: Arc<dyn EngineKind>,
    name: &'static str,
    raw: bool,
    fixed: Fixed,
}

/// Bytes for all entries of a run, with room to write over them.
fn size_for(request: &OpenRequest) -> u64 {
    const OVERHEAD_BYTES: u64 = 100;
    const BLOCK_BYTES: u64 = 512;
    let entry = OVERHEAD_BYTES + u64::from(request.key_bytes) + request.expected_value_bytes;
    let entries = request.expected_keys * entry.next_multiple_of(BLOCK_BYTES);
    (entries / 2 * 5 + (64 << 20)).next_multiple_of(1 << 20)
}

impl Cambium {
    pub(super) fn has(&self, option: &str) -> bool {
        self.kind.options().iter().any(|spec| spec.name == option)
    }

    /// The options that differ from the engine's defaults.
    pub(super) fn chosen(&self, request: &OpenRequest) -> Result<BTreeMap<String, String>> {
        let mut chosen = BTreeMap::new();
        if self.has("keys") && request.key_bytes as usize <= INTEGER_BYTES {
            chosen.insert("keys".to_string(), "integer".to_string());
        }
        if request.profile != Profile::Default {
            for (name, bytes) in self.shares(request) {
                chosen.insert(name.to_string(), bytes.to_string());
            }
        }
        if self.raw {
            let device = std::env::var(DEVICE_VARIABLE).unwrap_or_default();
            for (name, value) in [("device", device.as_str()), ("size", "0"), ("force", "on")] {
                chosen.insert(name.to_string(), value.to_string());
            }
        } else if self.has("size") {
            chosen.insert("size".to_string(), size_for(request).to_string());
            if self.name == FILLED {
                chosen.insert("fill".to_string(), "on".to_string());
            }
        }
        chosen.extend(request.overrides.clone());
        for &(name, value) in self.fixed {
            if request
                .overrides
                .get(name)
                .is_some_and(|asked| asked != value)
            {
                let store = self.name;
                let words = format!("{store}.{name}: {name} is always {value} in {store}");
                return Err(Error::Usage(words));
            }
            chosen.insert(name.to_string(), value.to_string());
        }
        self.refuse_unknown(&chosen)?;
        Ok(chosen)
    }

    /// The engine's options of memory, out of a budget.
    fn shares(&self, request: &OpenRequest) -> impl Iterator<Item = (&'static str, u64)> {
        let shares = request.shares();
        let (both, each) = (2 * shares.write_buffer_bytes, shares.write_buffer_bytes);
        let write_buffer = match self.kind.name() {
            "forest" => both / 3,
            _ => each,
        };
        let cache = match (self.has("write_buffer_bytes"), self.has("filter_bits")) {
            (true, true) => shares.cache_bytes,
            (true, false) => request.budget_bytes - both,
            _ => request.budget_bytes,
        };
        let all = [
            ("write_buffer_bytes", write_buffer.max(1)),
            ("cache_bytes", cache),
            ("compaction_memory_bytes", each.max(4 << 20)),
        ];
        all.into_iter().filter(|(name, _)| self.has(name))
    }

    fn refuse_unknown(&self, chosen: &BTreeMap<String, String>) -> Result<()> {
        let mut unknown = OptionValues::default();
        for (name, value) in chosen.iter().filter(|(name, _)| !self.has(name)) {
            unknown.set(name, value);
        }
        let refused = unknown.finish(self.kind.name(), self.kind.options());
        refused.map_err(|error| Error::Usage(error.to_string()))
    }

    fn found(&self) -> Availability {
        let version = format!(
            "{} (format {})",
            env!("CARGO_PKG_VERSION"),
            self.kind.format_version()
        );
        Availability::Found {
            version,
            path: None,
        }
    }

    fn is_integer(&self, chosen: &BTreeMap<String, String>) -> bool {
        chosen.get("keys").is_some_and(|keys| keys == "integer")
    }
}

impl Adapter for Cambium {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        match self.fixed {
            [] => self.kind.summary(),
            _ => COUCHSTORE,
        }
    }

    fn probe(&self) -> Availability {
        if self.raw && std::env::var_os(DEVICE_VARIABLE).is_none() {
            return Availability::Missing {
                what: format!("{DEVICE_VARIABLE} names no block device"),
                remedy: format!(
                    "{DEVICE_VARIABLE}=/dev/... kvzone ..., or kvzone reproduce --device; all that the device carries is lost"
                ),
            };
        }
        self.found()
    }

    fn probe_for(&self, request: &OpenRequest) -> Availability {
        match request.overrides.contains_key("device") {
            true => self.found(),
            false => self.probe(),
        }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            // An engine with a choice of keys keeps numbers in order, and says
            // of others when it is opened.
            ordered: self.kind.name() != "alphard",
            ..Capabilities::BEST
        }
    }

    fn capabilities_for(&self, request: &OpenRequest) -> Capabilities {
        let general = self.capabilities();
        let integer = self.chosen(request).is_ok_and(|it| self.is_integer(&it));
        Capabilities {
            ordered: general.ordered && (integer || !self.has("keys")),
            ..general
        }
    }

    fn settings(&self, request: &OpenRequest) -> Result<BTreeMap<String, String>> {
        let defaults = self.kind.options().iter();
        let mut settings: BTreeMap<String, String> = defaults
            .map(|spec| (spec.name.to_string(), spec.default.to_string()))
            .collect();
        settings.extend(self.chosen(request)?);
        settings.insert("durability".to_string(), request.durability.to_string());
        Ok(settings)
    }

    fn open(&self, request: &OpenRequest) -> Result<Arc<dyn OpenStore>> {
        let chosen = self.chosen(request)?;
        if self.raw && chosen.get("device").is_none_or(String::is_empty) {
            return Err(Error::Usage(format!(
                "{} needs {DEVICE_VARIABLE}=/dev/...; all that the device carries is lost",
                self.name
            )));
        }
        let exists = Options::new().marker(&request.folder).is_ok();
        let mut options = Options::new();
        for (name, value) in &chosen {
            let spec = self.kind.options().iter().find(|spec| spec.name == name);
            if !(exists && spec.is_some_and(|spec| spec.at_creation)) {
                options = options.set(name, value);
            }
        }
        let store = if exists {
            options.open(&request.folder)
        } else {
            options.create(&request.folder, self.kind.name())
        };
        let store = store.map_err(usage)?;
        let capabilities = store.capabilities();
        Ok(Arc::new(Open {
            name: self.name,
            integer_keys: (capabilities.keys == KeyKind::Integer)
                .then_some(request.key_bytes as usize),
            ordered: capabilities.ordered,
            durability: request.durability.into(),
            store,
        }))
    }
}

/// An option that cannot be is the user's to mend.
fn usage(error: cambium::Error) -> Error {
    match error {
        cambium::Error::InvalidArgument(words) => Error::Usage(words),
        error => Error::Cambium(error),
    }
}

struct Open {
    name: &'static str,
    store: Store,
    durability: Durability,
    /// Bytes of a key outside, where the engine's keys are numbers.
    integer_keys: Option<usize>,
    ordered: bool,
}

impl OpenStore for Open {
    fn session(self: Arc<Self>) -> Result<Box<dyn Session>> {
        Ok(Box::new(OneThread {
            padded: [0; INTEGER_BYTES],
            open: self,
        }))
    }

    fn queue(self: Arc<Self>) -> Result<Option<Box<dyn Queue>>> {
        let is_native = self.store.capabilities().native_submit;
        let queue: Box<dyn Queue> = Box::new(Submitter(self));
        Ok(Some(queue).filter(|_| is_native))
    }

    fn sync(&self) -> Result<()> {
        Ok(self.store.sync()?)
    }

    /// Takes the engine's background steps beside its own thread until it says
    /// again and again that there are none: what its own thread does just now may
    /// make one due.
    fn settle(&self) -> Result<()> {
        let mut idle = 0;
        while idle < IDLE_LOOKS {
            match self.store.engine().step(STEP_BYTES)? {
                StepOutcome::Again => idle = 0,
                StepOutcome::WaitIo => {
                    idle = 0;
                    std::thread::sleep(IDLE_PAUSE);
                }
                StepOutcome::Idle | StepOutcome::Asleep => {
                    idle += 1;
                    std::thread::sleep(IDLE_PAUSE);
                }
                StepOutcome::Done => return Ok(()),
            }
        }
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        self.store.compact(&CompactOptions::default(), &())?;
        Ok(())
    }

    fn counters(&self) -> BTreeMap<String, f64> {
        let Ok(statistics) = self.store.stats() else {
            return BTreeMap::new();
        };
        let number = |value: &StatisticValue| match value {
            StatisticValue::Count(number) | StatisticValue::Bytes(number) => Some(*number as f64),
            StatisticValue::Ratio(ratio) => Some(*ratio),
            StatisticValue::Text(_) => None,
        };
        let entries = statistics.entries.iter();
        entries
            .filter_map(|entry| Some((entry.name.to_string(), number(&entry.value)?)))
            .collect()
    }

    fn close(self: Arc<Self>) -> Result<()> {
        Ok(self.store.close()?)
    }
}

struct Submitter(Arc<Open>);

impl Queue for Submitter {
    fn submit(&mut self, request: Request<'_>, done: Done) {
        let Open {
            name,
            integer_keys,
            durability,
            ..
        } = *self.0;
        let mut padded = [0; INTEGER_BYTES];
        let (Request::Get { key } | Request::Put { key, .. } | Request::Delete { key }) = request;
        let key = match pad(name, integer_keys, key, &mut padded) {
            Ok(key) => key.to_vec(),
            Err(error) => return done(Err(error), None),
        };
        let request = match request {
            Request::Get { .. } => cambium::Request::Get { key },
            Request::Put { value, .. } => cambium::Request::Put {
                key,
                value: value.to_vec(),
                durability,
            },
            Request::Delete { .. } => cambium::Request::Delete { key, durability },
        };
        let completion = move |answer: cambium::Result<Response>| match answer {
            Ok(Response::Value(Some(value))) => done(Ok(Some(&value)), None),
            Ok(_) => done(Ok(None), None),
            Err(error) => done(Err(Error::Cambium(error)), None),
        };
        self.0.store.submit(request, Box::new(completion));
    }
}

struct OneThread {
    open: Arc<Open>,
    padded: [u8; INTEGER_BYTES],
}

/// The key as the engine wants it, without allocation.
fn pad<'a>(
    store: &'static str,
    integer_keys: Option<usize>,
    key: &'a [u8],
    padded: &'a mut [u8; INTEGER_BYTES],
) -> Result<&'a [u8]> {
    let Some(key_bytes) = integer_keys else {
        return Ok(key);
    };
    if key.len() == INTEGER_BYTES && key_bytes == INTEGER_BYTES {
        return Ok(key);
    }
    if key.len() != key_bytes || key_bytes > INTEGER_BYTES {
        let words = format!(
            "a key of {} bytes, where all keys are numbers of {key_bytes} bytes",
            key.len()
        );
        return Err(Error::store(store, "key", words));
    }
    padded.fill(0);
    padded[INTEGER_BYTES - key_bytes..].copy_from_slice(key);
    Ok(padded)
}

impl Session for OneThread {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let open = &*self.open;
        let key = pad(open.name, open.integer_keys, key, &mut self.padded)?;
        Ok(open.store.engine().get_into(key, value)?)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let open = &*self.open;
        let key = pad(open.name, open.integer_keys, key, &mut self.padded)?;
        open.store.engine().put(key, value, open.durability)?;
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        let open = &*self.open;
        let key = pad(open.name, open.integer_keys, key, &mut self.padded)?;
        open.store.engine().delete(key, open.durability)?;
        Ok(())
    }

    fn write(&mut self, changes: &[Change<'_>]) -> Result<()> {
        let open = &*self.open;
        let mut batch = WriteBatch::new();
        for change in changes {
            let padded = &mut self.padded;
            match *change {
                Change::Put { key, value } => {
                    batch.put(pad(open.name, open.integer_keys, key, padded)?, value);
                }
                Change::Delete { key } => {
                    batch.delete(pad(open.name, open.integer_keys, key, padded)?);
                }
            }
        }
        open.store.engine().write(batch, open.durability)?;
        Ok(())
    }

    fn scan(&mut self, from: &[u8], limit: u64, visit: &mut Visit<'_>) -> Result<u64> {
        let open = &*self.open;
        if !open.ordered {
            return Err(kvzone_core::adapter::no_scan(open.name));
        }
        let skipped = open.integer_keys.map_or(0, |bytes| INTEGER_BYTES - bytes);
        let from = pad(open.name, open.integer_keys, from, &mut self.padded)?;
        if limit == 0 {
            return Ok(0);
        }
        let mut entries = open.store.scan(from..)?;
        let mut visited = 0;
        _ = entries.visit(|key, value| {
            visit(key.get(skipped..).unwrap_or_default(), value);
            visited += 1;
            match visited < limit {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        Ok(visited)
    }

    fn walk(&mut self, backwards: bool, visit: &mut Visit<'_>) -> Result<u64> {
        let open = &*self.open;
        if !open.ordered {
            return Err(kvzone_core::adapter::no_scan(open.name));
        }
        let skipped = open.integer_keys.map_or(0, |bytes| INTEGER_BYTES - bytes);
        let mut entries = open.store.scan(..)?;
        let mut visited = 0;
        let count = |key: &[u8], value: &[u8]| {
            visit(key.get(skipped..).unwrap_or_default(), value);
            visited += 1;
            ControlFlow::Continue(())
        };
        _ = match backwards {
            false => entries.visit(count)?,
            true => entries.visit_back(count)?,
        };
        Ok(visited)
    }
}
