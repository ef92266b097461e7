//! Bob Jenkins' hashes, used on disk by the ZDB paper's string keys
//! (`zdb`, section II.E), and SipHash (Aumasson and Bernstein, 2012), for tables
//! that an attacker must not be able to fill with colliding keys. Never change
//! one: files hold their results.

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

/// Jenkins' lookup3 `hashlittle2` (2006): two 32-bit hashes of one pass, begun from two seeds.
///
/// ```
/// use cambium_base::hash::lookup3_pair;
/// let text = b"Four score and seven years ago";
/// assert_eq!(lookup3_pair(text, 0, 0).0, 0x1777_0551);
/// assert_eq!(lookup3_pair(text, 1, 0).0, 0xcd62_8161);
/// ```
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

/// SipHash-1-3 of `key` under a secret of two words: who does not know the
/// secret cannot choose keys that collide.
///
/// ```
/// use cambium_base::hash::sip13;
/// assert_eq!(sip13(b"", [0, 0]), 0xd1fb_a762_150c_532c);
/// assert_ne!(sip13(b"oak", [0, 0]), sip13(b"oak", [0, 1]));
/// ```
pub fn sip13(key: &[u8], secret: [u64; 2]) -> u64 {
    let mut state = [
        secret[0] ^ 0x736f_6d65_7073_6575,
        secret[1] ^ 0x646f_7261_6e64_6f6d,
        secret[0] ^ 0x6c79_6765_6e65_7261,
        secret[1] ^ 0x7465_6462_7974_6573,
    ];
    let mut words = key.chunks_exact(8);
    for word in &mut words {
        let word = crate::coding::u64_at(word, 0);
        state[3] ^= word;
        sip_round(&mut state);
        state[0] ^= word;
    }
    let mut last = [0; 8];
    let rest = words.remainder();
    last[..rest.len()].copy_from_slice(rest);
    last[7] = key.len() as u8;
    let word = u64::from_le_bytes(last);
    state[3] ^= word;
    sip_round(&mut state);
    state[0] ^= word;
    state[2] ^= 0xff;
    (0..3).for_each(|_| sip_round(&mut state));
    state[0] ^ state[1] ^ state[2] ^ state[3]
}

fn sip_round(state: &mut [u64; 4]) {
    let [a, b, c, d] = state;
    *a = a.wrapping_add(*b);
    *b = b.rotate_left(13) ^ *a;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*d);
    *d = d.rotate_left(16) ^ *c;
    *a = a.wrapping_add(*d);
    *d = d.rotate_left(21) ^ *a;
    *c = c.wrapping_add(*b);
    *b = b.rotate_left(17) ^ *c;
    *c = c.rotate_left(32);
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
        let mut seen: Vec<u32> = (0..40).map(|n| lookup3_pair(&bytes[..n], 1, 0).0).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 40);
    }

    #[test]
    fn sip13_agrees_with_the_standard_library_at_every_length() {
        use std::hash::Hasher;
        let bytes: Vec<u8> = (0..64u8).map(|n| n.wrapping_mul(7)).collect();
        for length in 0..bytes.len() {
            // Its default hasher is SipHash-1-3 under a secret of zeros.
            let mut hasher = std::collections::hash_map::DefaultHasher::new();
            hasher.write(&bytes[..length]);
            assert_eq!(sip13(&bytes[..length], [0, 0]), hasher.finish(), "{length}");
        }
    }
}
