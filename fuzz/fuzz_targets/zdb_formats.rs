//! What `zdb` decodes: frames of the commit log, and the keys of entries.
#![no_main]

use cambium_zdb::format::{decode_frame, encode_frame_entry, entry_key};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = entry_key(data);
    if let Some((_, entries)) = decode_frame(data) {
        let mut again = Vec::new();
        for entry in &entries {
            encode_frame_entry(entry, &mut again);
        }
        assert!(again.len() <= data.len(), "no more came out than went in");
    }
});
