//! Snapshots: one moment of a store, for a while or under a name.
//! `cargo run --package cambium --example snapshots`
#![forbid(unsafe_code)]

use std::path::Path;

use cambium::prelude::*;

pub(crate) fn run(folder: &Path) -> cambium::Result<()> {
    let store = cambium::create(folder.join("forest"), "forest", &Options::new())?;
    store.put("oak", "young")?;

    // A snapshot sees its moment for as long as it is held, and stops no writer.
    let then = store.snapshot()?;
    store.put("oak", "old")?;
    store.put("elm", "seedling")?;
    assert_eq!(then.get("oak")?.as_deref(), Some(&b"young"[..]));
    assert_eq!(then.iterate()?.count(), 1);
    assert_eq!(store.iterate()?.count(), 2);
    drop(then);

    // An iterator is a snapshot too: it may change what it walks over.
    for entry in store.scan(..)? {
        store.delete(entry?.key)?;
    }
    store.put("oak", "planted again")?;

    // Under a name it survives the program, and the store can go back to it.
    store.create_named_snapshot("before the storm")?;
    store.delete("oak")?;
    store.close()?;

    let store = cambium::open(folder.join("forest"))?;
    store.rollback("before the storm")?;
    println!("oak: {:?}", store.get("oak")?);
    assert_eq!(store.get("oak")?.as_deref(), Some(&b"planted again"[..]));
    store.close()
}

fn main() -> cambium::Result<()> {
    run(Path::new("."))
}
