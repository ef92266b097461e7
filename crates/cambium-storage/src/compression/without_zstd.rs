//! What stands in for zstd in a program that was built without it.

use super::Dictionary;

const MISSING: &str = "compressed by zstd, and this program was built without Cargo's feature zstd";

pub fn train(_: &[u8], _: &[usize], _: usize) -> Option<Vec<u8>> {
    None
}

pub fn compress(_: Option<&Dictionary>, _: i32, _: &[u8], _: &mut [u8]) -> Option<usize> {
    None
}

pub fn decompress(_: Option<&Dictionary>, _: &[u8], _: &mut [u8]) -> Result<usize, String> {
    Err(MISSING.to_owned())
}
