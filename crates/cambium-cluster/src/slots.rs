//! From a key to its slot and its partition, as Redis Cluster has it.

/// Slots of a cluster.
pub const SLOTS: u16 = 16384;

/// The slot of a key: CRC-16 of its hash tag, the part in braces, if that is not empty, or of
/// all of it.
///
/// ```
/// use cambium_cluster::slots::slot;
/// assert_eq!(slot(b"foo"), 12182);
/// assert_eq!(slot(b"{user1000}.following"), slot(b"{user1000}.followers"));
/// ```
pub fn slot(key: &[u8]) -> u16 {
    let open = key.iter().position(|byte| *byte == b'{');
    let tag = open.and_then(|open| {
        let rest = &key[open + 1..];
        let length = rest.iter().position(|byte| *byte == b'}')?;
        (length > 0).then(|| &rest[..length])
    });
    let sum = tag.unwrap_or(key).iter().fold(0, |sum: u16, byte| {
        let place = usize::from((sum >> 8) as u8 ^ byte);
        sum << 8 ^ SUMS[place]
    });
    sum % SLOTS
}

/// The partition of a slot: partitions are ranges of slots of nearly one size.
pub fn partition(slot: u16, partitions: u16) -> u16 {
    (u32::from(slot) * u32::from(partitions) / u32::from(SLOTS)) as u16
}

/// First and last slot of a partition.
pub fn slots_of(number: u16, partitions: u16) -> (u16, u16) {
    let first =
        |number: u16| (u32::from(number) * u32::from(SLOTS)).div_ceil(u32::from(partitions)) as u16;
    (first(number), first(number + 1) - 1)
}

/// The table of CRC-16/XMODEM, polynomial 0x1021.
const SUMS: [u16; 256] = {
    let mut sums = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 0x8000 != 0 {
                sum << 1 ^ 0x1021
            } else {
                sum << 1
            };
            bit += 1;
        }
        sums[byte] = sum;
        byte += 1;
    }
    sums
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(slot(b"123456789"), 0x31C3);
        assert_eq!(slot(b"foo{}{bar}"), 8363);
        assert_eq!(slot(b""), 0);
    }

    #[test]
    fn partitions_cover_every_slot_once() {
        for partitions in [1, 3, 16, 64, 200] {
            let mut next = 0;
            for number in 0..partitions {
                let (first, last) = slots_of(number, partitions);
                assert_eq!(first, next);
                assert!((first..=last).all(|slot| partition(slot, partitions) == number));
                next = last + 1;
            }
            assert_eq!(next, SLOTS);
        }
    }
}
