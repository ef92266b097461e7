//! Events of stores reach those who listen, by the crate `tracing`.
#![allow(clippy::unwrap_used)]

use std::fmt::Debug;
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

#[test]
fn openings_recoveries_flushes_and_compactions_are_told() {
    let listener = Listener::default();
    tracing::subscriber::set_global_default(listener.clone()).unwrap();
    for engine in ["forest", "wisckey", "zdb"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(engine);
        let store = Options::new().create(&path, engine).unwrap();
        for round in 0..50_u8 {
            for key in 0..40_u8 {
                store.put([key], vec![round; 1000]).unwrap();
            }
        }
        store.compact(&CompactOptions::default(), &()).unwrap();
        store.close().unwrap();
        drop(store);
        cambium::open(&path).unwrap().close().unwrap();
        let heard = std::mem::take(&mut *listener.0.lock().unwrap());
        for (level, event) in [
            ("INFO", "opened"),
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
