//! Events of stores reach those who listen, by the crate `tracing`.
#![allow(clippy::unwrap_used)]

use std::fmt::Debug;
use std::path::Path;
use std::sync::{Arc, Mutex};

use cambium::CompactOptions;
use cambium::prelude::*;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps the words of all events.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<String>>>);

struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!(" {field}={value:?}");
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "cambium"
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut words = Words(event.metadata().level().to_string());
        event.record(&mut words);
        self.0.lock().unwrap().push(words.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let (entry, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        match entry.is_dir() {
            true => copy_folder(&entry, &to.join(name))?,
            false => _ = std::fs::copy(&entry, to.join(name))?,
        }
    }
    Ok(())
}

#[test]
fn openings_recoveries_flushes_and_compactions_are_told() {
    let listener = Listener::default();
    tracing::subscriber::set_global_default(listener.clone()).unwrap();
    for engine in ["forest", "wisckey", "zdb", "alphard"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(engine);
        let options = match engine {
            "alphard" => Options::new().set("size", "64MiB"),
            _ => Options::new(),
        };
        let store = options.create(&path, engine).unwrap();
        for round in 0..50_u8 {
            for key in 0..40_u8 {
                store.put([key], vec![round; 1000]).unwrap();
            }
        }
        store.compact(&CompactOptions::default(), &()).unwrap();
        store.put("late", "not flushed").unwrap();
        // As a crash would leave it.
        let copy = folder.path().join("copy");
        copy_folder(&path, &copy).unwrap();
        store.close().unwrap();
        let recovered = cambium::open(&copy).unwrap();
        assert!(recovered.get("late").unwrap().is_some());
        recovered.close().unwrap();
        let heard = std::mem::take(&mut *listener.0.lock().unwrap());
        for (level, event) in [
            ("INFO", "opened"),
            ("INFO", "recovered"),
            ("DEBUG", "flushed"),
            ("INFO", "compacted"),
        ] {
            let is_it = |words: &&String| {
                words.starts_with(level) && words.contains(&format!("message={event}"))
            };
            let found = heard.iter().find(is_it);
            let found = found.unwrap_or_else(|| panic!("{engine} told no {event}: {heard:?}"));
            assert!(found.contains(folder.path().to_str().unwrap()), "{found}");
        }
    }
}
