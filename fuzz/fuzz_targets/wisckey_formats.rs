//! What `wisckey` decodes: what is accepted means one thing.
#![no_main]

use cambium_wisckey::format::{Root, Stored, encode_inline, segment_number};
use cambium_wisckey::note;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    match Stored::decode(data) {
        Some(Stored::Pointer(pointer)) => assert_eq!(pointer.encode(), data),
        Some(Stored::Inline(value)) => {
            let mut bytes = Vec::new();
            encode_inline(value, &mut bytes);
            assert_eq!(bytes, data);
        }
        None => {}
    }
    if let Some(items) = note::decode(data) {
        assert_eq!(note::decode(&note::encode(&items)), Some(items));
    }
    if let Some(root) = Root::decode(data) {
        assert_eq!(Root::decode(&root.encode()), Some(root));
    }
    let _ = segment_number(&String::from_utf8_lossy(data));
});
