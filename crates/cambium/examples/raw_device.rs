//! Raw device: engine `alphard` on a whole block device, or, where none is given, in a
//! file that it takes at once. One access to the device an operation.
//!
//! `cargo run --package cambium --example raw_device -- /dev/vdb` **takes the device**: what
//! was on it is lost, but a file system or a store that is found there is refused.
#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::mpsc;

use cambium::prelude::*;
use cambium::{Request, Response};

pub(crate) fn run(folder: &Path, device: Option<&str>) -> cambium::Result<()> {
    let options = match device {
        Some(device) => Options::new().set("device", device),
        None => Options::new().set("size", "16MiB"),
    };
    let store = cambium::create(folder.join("index"), "alphard", &options)?;
    store.put("oak", "Quercus")?;

    // Many operations under way at once, from one thread: a completion is called with
    // each answer, on a thread of the store.
    let (sender, answers) = mpsc::channel();
    for tree in 0..32_u32 {
        let request = Request::Put {
            key: format!("tree {tree}").into_bytes(),
            value: vec![tree as u8; 700],
            durability: Durability::Synced,
        };
        let sender = sender.clone();
        store.submit(request, Box::new(move |answer| _ = sender.send(answer)));
    }
    for answer in answers.iter().take(32) {
        assert!(matches!(answer?, Response::Written(_)));
    }

    // It keeps no order: ranges are another engine's.
    let error = store.scan(KeyRange::prefix("tree"));
    assert!(matches!(error, Err(cambium::Error::Unsupported { .. })));
    println!("{} entries", store.iterate()?.count());
    store.close()
}

fn main() -> cambium::Result<()> {
    run(Path::new("."), std::env::args().nth(1).as_deref())
}
