//! What `forest` decodes: what is accepted means one thing.
#![no_main]

use cambium_forest::format::{DatabaseHeader, Root, database_number};
use cambium_forest::options::Shape;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some(header) = DatabaseHeader::decode(data) {
        assert_eq!(DatabaseHeader::decode(&header.encode()), Some(header));
    }
    if let Some(root) = Root::decode(data) {
        assert_eq!(Root::decode(&root.encode()), Some(root));
    }
    if let Some((numbers, _)) = data.split_first_chunk::<12>() {
        let mut eight = [0; 8];
        eight.copy_from_slice(&numbers[..8]);
        let mut four = [0; 4];
        four.copy_from_slice(&numbers[8..]);
        let number = u64::from_le_bytes(eight);
        if let Some(shape) = Shape::unpack(number, u32::from_le_bytes(four)) {
            assert_eq!(shape.pack(), number);
        }
    }
    let _ = database_number(&String::from_utf8_lossy(data));
});
