//! What the tree of keys decodes: blocks are walked to both ends, edits mean one
//! thing, and nothing panics, loops, or takes memory that the bytes do not stand for.
#![no_main]

use cambium_base::FileIdentity;
use cambium_base::checksum::ChecksumSeed;
use cambium_lsm::decoders;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = decoders::decode_block_entries(data);
    // The end of a block says where its entries end.
    let mut block = data.to_vec();
    block.extend_from_slice(&0u32.to_le_bytes());
    block.extend_from_slice(&1u32.to_le_bytes());
    let _ = decoders::decode_block_entries(&block);
    let _ = decoders::decode_edit_bytes(data);
    let _ = decoders::decode_properties_bytes(data);
    let seed = ChecksumSeed::new(&FileIdentity::default());
    let _ = decoders::decode_footer_bytes(data, &seed);
});
