//! The example of the README: `cargo run --package cambium --example trees`
//! makes a store in the folder `trees` below the current one.
#![forbid(unsafe_code)]

use cambium::prelude::*;

pub(crate) fn main() -> cambium::Result<()> {
    let store = cambium::create("trees", "forest", &Options::new())?;
    store.put("oak", "Quercus", Durability::Synced)?;
    store.close()?;

    let store = cambium::open("trees")?; // the folder knows its engine
    assert_eq!(store.get("oak")?.as_deref(), Some(&b"Quercus"[..]));
    for entry in store.iterate()? {
        println!("{:?}", entry?);
    }
    store.close()
}
