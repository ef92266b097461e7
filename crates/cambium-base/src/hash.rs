//! Bob Jenkins' hashes, used on disk by the ZDB paper's string keys
//! (`zdb`, section II.E). Never change one: files hold their results.

/// Jenkins' one-at-a-time hash (1997), begun from `seed`.
///
/// ```
/// use cambium_base::hash::one_at_a_time;
/// let text = b"The quick brown fox jumps over the lazy dog";
/// assert_eq!(one_at_a_time(text, 0), 0x519e_91f5);
/// ```
pub fn one_at_a_time(key: &[u8], seed: u32) -> u32 {
    let mut hash = seed;
    for &byte in key {
        hash = hash.wrapping_add(u32::from(byte));
        hash = hash.wrapping_add(hash << 10);
        hash ^= hash >> 6;
    }
    hash = hash.wrapping_add(hash << 3);
    hash ^= hash >> 11;
    hash.wrapping_add(hash << 15)
}

/// Jenkins' lookup3 `hashlittle` (2006), begun from `seed`.
///
/// ```
/// use cambium_base::hash::lookup3;
/// assert_eq!(lookup3(b"Four score and seven years ago", 0), 0x1777_0551);
/// assert_eq!(lookup3(b"Four score and seven years ago", 1), 0xcd62_8161);
/// ```
pub fn lookup3(key: &[u8], seed: u32) -> u32 {
    lookup3_pair(key, seed, 0).0
}

/// Jenkins' lookup3 `hashlittle2`: two 32-bit hashes of one pass.
pub fn lookup3_pair(key: &[u8], seed: u32, second_seed: u32) -> (u32, u32) {
    let start = 0xdead_beef_u32
        .wrapping_add(key.len() as u32)
        .wrapping_add(seed);
    let (mut a, mut b, mut c) = (start, start, start.wrapping_add(second_seed));
    if key.is_empty() {
        return (c, b);
    }
    let mut rest = key;
    while rest.len() > 12 {
        a = a.wrapping_add(word(rest, 0));
        b = b.wrapping_add(word(rest, 4));
        c = c.wrapping_add(word(rest, 8));
        (a, b, c) = mix(a, b, c);
        rest = &rest[12..];
    }
    a = a.wrapping_add(word(rest, 0));
    b = b.wrapping_add(word(rest, 4));
    c = c.wrapping_add(word(rest, 8));
    finish(a, b, c)
}

/// Up to four bytes at `offset`, missing ones zero.
fn word(bytes: &[u8], offset: usize) -> u32 {
    let mut field = [0u8; 4];
    for (target, byte) in field.iter_mut().zip(bytes.iter().skip(offset)) {
        *target = *byte;
    }
    u32::from_le_bytes(field)
}

fn mix(mut a: u32, mut b: u32, mut c: u32) -> (u32, u32, u32) {
    a = a.wrapping_sub(c) ^ c.rotate_left(4);
    c = c.wrapping_add(b);
    b = b.wrapping_sub(a) ^ a.rotate_left(6);
    a = a.wrapping_add(c);
    c = c.wrapping_sub(b) ^ b.rotate_left(8);
    b = b.wrapping_add(a);
    a = a.wrapping_sub(c) ^ c.rotate_left(16);
    c = c.wrapping_add(b);
    b = b.wrapping_sub(a) ^ a.rotate_left(19);
    a = a.wrapping_add(c);
    c = c.wrapping_sub(b) ^ b.rotate_left(4);
    b = b.wrapping_add(a);
    (a, b, c)
}

fn finish(mut a: u32, mut b: u32, mut c: u32) -> (u32, u32) {
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    c = (c ^ b).wrapping_sub(b.rotate_left(24));
    (c, b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookup3_matches_the_vectors_of_its_author() {
        // From the driver5 self-test of lookup3.c.
        assert_eq!(lookup3_pair(b"", 0, 0), (0xdead_beef, 0xdead_beef));
        assert_eq!(
            lookup3_pair(b"", 0xdead_beef, 0),
            (0xbd5b_7dde, 0xbd5b_7dde)
        );
    }

    #[test]
    fn every_length_up_to_three_blocks_hashes_to_something_of_its_own() {
        let bytes = [7u8; 40];
        let mut seen: Vec<u32> = (0..40).map(|n| lookup3(&bytes[..n], 1)).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 40);
    }
}
