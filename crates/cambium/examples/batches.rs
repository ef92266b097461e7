//! Batches and durability: what is written together, and what survives what.
//! `cargo run --package cambium --example batches`
#![forbid(unsafe_code)]

use std::path::Path;

use cambium::prelude::*;

pub(crate) fn run(folder: &Path) -> cambium::Result<()> {
    let store = cambium::create(folder.join("accounts"), "forest", &Options::new())?;

    // Each write says how safe it must be when it returns.
    store.put("note", "lost with this process", Durability::Buffered)?;
    store.put("note", "survives this process", Durability::Written)?;
    store.put("note", "survives a power cut", Durability::Synced)?;

    // A batch is seen, and survives, whole or not at all.
    let mut batch = WriteBatch::new();
    batch.put(b"oak", b"90").put(b"elm", b"110");
    store.write(batch, Durability::Written)?;

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
    transfer.put(b"oak", (oak - 10).to_string().as_bytes());
    transfer.put(b"elm", (elm + 10).to_string().as_bytes());
    store.write_if(&unchanged, transfer.clone(), Durability::Synced)?;
    let again = store.write_if(&unchanged, transfer, Durability::Synced);
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
