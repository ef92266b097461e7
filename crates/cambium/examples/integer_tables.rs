//! Integer tables: engine `zdb` with keys that are numbers finds each value by one
//! array access. `cargo run --package cambium --example integer_tables`
#![forbid(unsafe_code)]

use std::path::Path;

use cambium::prelude::*;

pub(crate) fn run(folder: &Path) -> cambium::Result<()> {
    let options = Options::new().set("keys", "integer");
    let store = cambium::create(folder.join("years"), "zdb", &options)?;

    // Keys are 8 bytes, big-endian, so that their order is that of the numbers.
    let key = |year: u64| year.to_be_bytes();
    for year in 1900..2000_u64 {
        store.put(key(year), format!("rings of {year}"))?;
    }

    let fifties = key(1950)..key(1960);
    for entry in store.scan(fifties.clone())?.rev() {
        let entry = entry?;
        let year = entry
            .key
            .first_chunk()
            .map(|bytes| u64::from_be_bytes(*bytes));
        println!("{year:?}: {}", String::from_utf8_lossy(&entry.value));
    }

    // A key that is no number is refused, and the error says what one is.
    let error = store.put("1950", "").err();
    assert!(matches!(error, Some(cambium::Error::InvalidArgument(_))));
    store.delete_range(fifties)?;
    assert_eq!(store.iterate()?.count(), 90);
    store.close()
}

fn main() -> cambium::Result<()> {
    run(Path::new("."))
}
