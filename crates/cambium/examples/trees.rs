//! The example of the README: `cargo run --package cambium --example trees`
//! makes a store in the folder `trees` below the current one.
#![forbid(unsafe_code)]

use cambium::prelude::*;

pub(crate) fn main() -> cambium::Result<()> {
    let store = cambium::open_or_create("trees")?;
    store.put("oak", "Quercus")?;
    store.put("elm", "Ulmus")?;
    assert_eq!(store.get("oak")?.as_deref(), Some(&b"Quercus"[..]));
    for entry in store.scan("a".."f")? {
        println!("{:?}", entry?);
    }
    let synced = store.with_durability(Durability::Synced);
    synced.delete("elm")?; // on the device when it returns
    store.close()
}
