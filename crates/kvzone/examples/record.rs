//! Records what a program asks of a Cambium store, as a trace for KVZone:
//!
//! ```text
//! cargo run -p kvzone --example record -- trees.trace
//! kvzone trace show trees.trace
//! kvzone run --stores all --workload trace:trees.trace
//! ```

use std::error::Error;
use std::path::PathBuf;

use cambium::Options;
use kvzone_core::trace::Tape;

fn main() -> Result<(), Box<dyn Error>> {
    let trace = std::env::args().nth(1).unwrap_or("trees.trace".to_string());
    let folder = std::env::temp_dir().join(format!("record-{}", std::process::id()));
    let store = cambium::create(&folder, "forest", &Options::new())?;
    let tape = Tape::create(&PathBuf::from(&trace))?;

    // Each call goes through the tape, which hands back what the store answered.
    for (tree, name) in [("oak", "Quercus"), ("ash", "Fraxinus")] {
        tape.put(tree.as_bytes(), name.len(), || store.put(tree, name))?;
    }
    let call = || store.get("oak");
    let bytes = |found: &cambium::Result<Option<cambium::Value>>| {
        found.as_ref().ok()?.as_ref().map(|value| value.len())
    };
    let found = tape.get(b"oak", call, bytes)?;
    assert_eq!(found.as_deref(), Some(&b"Quercus"[..]));
    tape.delete(b"ash", || store.delete("ash"))?;

    let operations = tape.finish()?;
    store.close()?;
    std::fs::remove_dir_all(&folder)?;
    println!("{operations} operations in {trace}");
    Ok(())
}
