//! Record headers with any fields behind a checksum that matches, and file headers.
#![no_main]

use std::path::Path;

use cambium_base::checksum::{ChecksumSeed, crc32c};
use cambium_base::{FileIdentity, FileNumber, StoreId};
use cambium_storage::file_header::{FileHeader, HEADER_BYTES};
use cambium_storage::record::{RECORD_HEADER_BYTES, RecordHeader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let identity = FileIdentity { store: StoreId([7; 16]), number: FileNumber(1), salt: 9 };
    let seed = ChecksumSeed::new(&identity);
    if let Ok(header) = RecordHeader::decode(data, &seed, 4096) {
        let payload = data.get(RECORD_HEADER_BYTES..).unwrap_or_default();
        let _ = header.check_payload(payload);
        let _ = header.total_bytes(8);
        let _ = header.batch_first();
    }
    // The same fields where their checksum is right.
    if let Some(fixed) = data.first_chunk::<RECORD_HEADER_BYTES>() {
        let mut fixed = *fixed;
        let sum = seed.at(4096, &fixed[4..]);
        fixed[..4].copy_from_slice(&sum.to_le_bytes());
        if let Ok(header) = RecordHeader::decode(&fixed, &seed, 4096) {
            let _ = header.total_bytes(8);
            let _ = header.batch_first();
            let _ = cambium_forest::format::namespace_and_key(&header);
        }
    }
    if let Some(bytes) = data.first_chunk::<HEADER_BYTES>() {
        let mut bytes = *bytes;
        let sum = crc32c(&bytes[..HEADER_BYTES - 8]);
        bytes[HEADER_BYTES - 8..HEADER_BYTES - 4].copy_from_slice(&sum.to_le_bytes());
        let magic = data.first_chunk::<8>().copied().unwrap_or_default();
        let _ = FileHeader::decode(&bytes, Path::new("file"), magic, 1);
    }
});
