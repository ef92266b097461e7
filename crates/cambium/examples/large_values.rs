//! Large values: engine `wisckey` writes them once, into a log, and keeps only keys
//! and places sorted. `cargo run --package cambium --example large_values`
#![forbid(unsafe_code)]

use std::path::Path;

use cambium::CompactOptions;
use cambium::prelude::*;

pub(crate) fn run(folder: &Path) -> cambium::Result<()> {
    let options = Options::new().set("segment_bytes", "4MiB");
    let store = cambium::create(folder.join("pictures"), "wisckey", &options)?;
    let picture = |tree: u32| vec![tree as u8; 64 << 10];
    for tree in 0..100_u32 {
        store.put(format!("{tree:03}"), picture(tree))?;
    }
    store.sync()?;

    // A value is handed out without a copy where it lies in a cache, and its parts
    // share its bytes.
    let value = store.get("042")?.unwrap_or_else(|| Value::copy_of(b""));
    let corner = value.slice(0..16);
    assert_eq!((value.len(), &*corner), (64 << 10, &[42; 16][..]));

    // A buffer of the caller's serves many reads.
    let mut buffer = Vec::new();
    for tree in [7, 8, 9] {
        assert!(store.get_into(format!("{tree:03}"), &mut buffer)?);
        assert_eq!(buffer.len(), 64 << 10);
    }

    // Space of what was deleted comes back by itself as writes go on, or at once.
    for tree in 0..90_u32 {
        store.delete(format!("{tree:03}"))?;
    }
    store.compact(&CompactOptions::default(), &())?;
    println!("{} values left", store.iterate()?.count());
    store.close()
}

fn main() -> cambium::Result<()> {
    run(Path::new("."))
}
