//! Bytes for decoders that no store wrote.

use cambium_io::simulated::Generator;

/// Random bytes, up to `length` of them.
pub fn random(generator: &mut Generator, length: u64) -> Vec<u8> {
    (0..generator.below(length + 1))
        .map(|_| generator.below(256) as u8)
        .collect()
}

/// Changes some bytes, cuts, or repeats.
pub fn mutated(generator: &mut Generator, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..1 + generator.below(4) {
        if bytes.is_empty() {
            break;
        }
        let at = generator.below(bytes.len() as u64) as usize;
        match generator.below(6) {
            0 => bytes.truncate(at),
            1 => bytes[at] = 0xff,
            2 => bytes[at] = 0,
            3 => bytes.extend_from_within(at..),
            _ => bytes[at] ^= 1 << generator.below(8),
        }
    }
    bytes
}
