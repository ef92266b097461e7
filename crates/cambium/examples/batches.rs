//! Batches and durability: what is written together, and what survives what.
//! `cargo run --package cambium --example batches`
#![forbid(unsafe_code)]

use std::path::Path;

use cambium::prelude::*;

pub(crate) fn run(folder: &Path) -> cambium::Result<()> {
    let store = cambium::create(folder.join("accounts"), "forest", &Options::new())?;

    // Writes are with the operating system when they return, unless something else is said.
    store.put("note", "survives this process")?;
    let buffered = store.with_durability(Durability::Buffered);
    buffered.put("note", "lost with this process")?;
    let synced = store.with_durability(Durability::Synced);
    synced.put("note", "survives a power cut")?;

    // A batch is seen, and survives, whole or not at all.
    let mut batch = WriteBatch::new();
    batch.put("oak", "90").put("elm", "110");
    store.write(batch)?;

    // Everything before is on the device from here on. One sync serves all writes
    // before it: cheaper than each of them `Synced`.
    store.sync()?;

    // A transfer that another thread cannot have changed in between.
    let (oak, elm) = (number(&store, "oak")?, number(&store, "elm")?);
    let unchanged = [Precondition::Equals {
        key: b"oak".to_vec(),
        value: oak.to_string().into_bytes(),
    }];
    let mut transfer = WriteBatch::new();
    transfer.put("oak", (oak - 10).to_string());
    transfer.put("elm", (elm + 10).to_string());
    synced.write_if(&unchanged, transfer.clone())?;
    let again = synced.write_if(&unchanged, transfer);
    assert!(matches!(
        again,
        Err(cambium::Error::PreconditionFailed { index: 0 })
    ));

    println!(
        "oak {}, elm {}",
        number(&store, "oak")?,
        number(&store, "elm")?
    );
    store.close()
}

fn number(store: &Store, key: &str) -> cambium::Result<i64> {
    let value = store.get(key)?.unwrap_or_else(|| Value::copy_of(b"0"));
    let text = String::from_utf8_lossy(&value);
    text.parse()
        .map_err(|_| cambium::Error::InvalidArgument(format!("{key} is {text:?}, no number")))
}

fn main() -> cambium::Result<()> {
    run(Path::new("."))
}
