//! The value layer through the suite that every engine passes.

use std::sync::OnceLock;

use cambium::{EngineKind, Engines, engines};
use cambium_testkit::Conformance;

fn kind(name: &str) -> &'static dyn EngineKind {
    static ENGINES: OnceLock<Engines> = OnceLock::new();
    let all = ENGINES.get_or_init(engines).iter();
    let mut named = all.filter(|kind| kind.name() == name);
    &**named.next().expect("an engine of this name")
}

#[test]
fn values_as_they_are_conform() {
    Conformance::new(kind("forest")).run();
    Conformance::new(kind("wisckey")).run();
}

#[test]
fn compressed_values_conform() {
    let compressed = |name| Conformance::new(kind(name)).opening("compression", "lz4");
    compressed("forest").run();
    compressed("zdb").run();
    let alphard = compressed("alphard").creation("size", "64MiB");
    alphard.creation("history", "on").run();
}
