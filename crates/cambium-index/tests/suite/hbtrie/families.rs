//! Families of keys that are hard on a trie.

use crate::support::Random;

/// Makes a key of a family.
pub type Family = fn(&mut Random) -> Vec<u8>;

/// All families, by name.
pub const FAMILIES: &[(&str, Family)] = &[
    ("random bytes", random_bytes),
    ("few letters", few_letters),
    ("zeros and ones", zeros_and_ones),
    ("one key a prefix of the next", nested),
    ("repeated chunks", repeated_chunks),
    ("shared prefixes around chunks", shared_prefixes),
    ("fixed length", fixed_length),
    ("long shared prefixes", long_prefixes),
    ("two prefixes and a long rest", two_prefixes),
    ("mixed", mixed),
];

fn random_bytes(random: &mut Random) -> Vec<u8> {
    let length = random.below(40);
    random.bytes(length)
}

fn few_letters(random: &mut Random) -> Vec<u8> {
    let length = random.below(24);
    (0..length).map(|_| b"ab"[random.below(2)]).collect()
}

fn zeros_and_ones(random: &mut Random) -> Vec<u8> {
    let length = random.below(20);
    (0..length).map(|_| [0, 1, 255][random.below(3)]).collect()
}

fn nested(random: &mut Random) -> Vec<u8> {
    vec![b'b'; random.below(120)]
}

fn repeated_chunks(random: &mut Random) -> Vec<u8> {
    let mut key = Vec::new();
    for _ in 0..random.below(8) {
        key.extend_from_slice([&b"chunk-08"[..], b"16-bytes-a-chunk", b"x"][random.below(3)]);
    }
    key
}

fn shared_prefixes(random: &mut Random) -> Vec<u8> {
    let mut key = vec![b'p'; random.below(36)];
    let rest = random.below(4);
    key.extend(random.bytes(rest));
    key
}

fn fixed_length(random: &mut Random) -> Vec<u8> {
    (random.next() % 5000).to_be_bytes().to_vec()
}

fn long_prefixes(random: &mut Random) -> Vec<u8> {
    let mut key = Vec::new();
    for _ in 0..random.below(4) {
        let length = [90, 120, 129, 300, 1020, 1100][random.below(6)];
        key.extend(std::iter::repeat_n(b'a' + random.below(2) as u8, length));
    }
    let rest = random.below(12);
    key.extend((0..rest).map(|_| b"ab"[random.below(2)]));
    key
}

/// Few prefixes, each with few of a second kind behind, and rests that are told apart
/// by their first bytes: what truncation is for.
fn two_prefixes(random: &mut Random) -> Vec<u8> {
    let mut key = vec![b'a' + random.below(6) as u8; 10];
    key.extend(vec![b'0' + random.below(10) as u8; 10]);
    let number = random.below(400) as u64;
    let rest = Random::new(number).bytes(44 + number as usize % 40);
    key.extend(rest);
    key
}

fn mixed(random: &mut Random) -> Vec<u8> {
    let families = FAMILIES.len() - 1;
    FAMILIES[random.below(families)].1(random)
}
