//! CRC-32C of what fills a processor's pipeline, at its full width.
//!
//! The instruction takes eight bytes, and answers three cycles later; it could begin
//! one each cycle. So bytes are cut into three lanes whose checksums are found side by
//! side:
//!
//! ```text
//!  │ lane A, n words │ lane B, n words │ lane C, n words │ word │ up to 23 bytes │
//!    A·x^(64·(2n+1))   B·x^(64·(n+1))    C                 ╰ takes A and B in
//! ```
//!
//! What a lane's checksum becomes behind the others is its product with a power of x,
//! which depends on how long they are, and stands in a table. `n` is chosen by the
//! length, so that records of a few hundred bytes gain as well; the crate `crc32c`
//! has lanes of two lengths, and goes through the rest of a record alone.
//!
//! The answer is that crate's, always; it is asked where the processor lacks the
//! instructions.

use cambium_base::checksum;

/// The CRC-32C of `bytes`, as [`cambium_base::checksum::crc32c`].
///
/// ```
/// let bytes = [7; 1000];
/// assert_eq!(cambium_io::crc32c(&bytes), cambium_base::checksum::crc32c(&bytes));
/// ```
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// The CRC-32C of a longer input whose first part has the checksum `so_far`.
#[inline]
pub fn crc32c_append(so_far: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= lanes::LEAST_BYTES
        && is_x86_feature_detected!("sse4.2")
        && is_x86_feature_detected!("pclmulqdq")
    {
        // SAFETY: the processor has both sets of instructions, as was just seen.
        return unsafe { lanes::append(so_far, bytes) };
    }
    checksum::crc32c_append(so_far, bytes)
}

#[cfg(target_arch = "x86_64")]
mod lanes {
    use std::arch::x86_64::{
        _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u64, _mm_cvtsi64_si128, _mm_cvtsi128_si64,
    };

    /// Of fewer bytes lanes are not worth their joining.
    pub const LEAST_BYTES: usize = 128;
    /// Most words of a lane: all three stay in the nearest cache.
    const MOST_WORDS: usize = 128;
    const WORD: usize = 8;
    /// The polynomial, its coefficient of x^0 in the highest bit.
    const POLYNOMIAL: u32 = 0x82f6_3b78;

    /// `POWERS[w]` is x^(64·w - 33): a product of two residues has a factor x, and the
    /// instruction that reduces it brings x^32.
    static POWERS: [u32; 2 * MOST_WORDS + 2] = powers();

    const fn times_x(residue: u32) -> u32 {
        (residue >> 1) ^ if residue & 1 == 1 { POLYNOMIAL } else { 0 }
    }

    const fn powers() -> [u32; 2 * MOST_WORDS + 2] {
        let mut powers = [0; 2 * MOST_WORDS + 2];
        // x^(64 - 33)
        let mut power = 1;
        let mut words = 1;
        while words < powers.len() {
            powers[words] = power;
            let mut times = 0;
            while times < 64 {
                power = times_x(power);
                times += 1;
            }
            words += 1;
        }
        powers
    }

    fn word(bytes: &[u8]) -> u64 {
        let mut word = [0; WORD];
        word.copy_from_slice(bytes);
        u64::from_le_bytes(word)
    }

    /// # Safety
    /// The processor has SSE 4.2.
    #[inline]
    #[allow(unused_unsafe)]
    #[target_feature(enable = "sse4.2")]
    unsafe fn step(register: u64, word: u64) -> u64 {
        // SAFETY: the processor has the instruction, as the caller promises.
        unsafe { _mm_crc32_u64(register, word) }
    }

    /// # Safety
    /// The processor has SSE 4.2.
    #[inline]
    #[allow(unused_unsafe)]
    #[target_feature(enable = "sse4.2")]
    unsafe fn step_byte(register: u32, byte: u8) -> u32 {
        // SAFETY: the processor has the instruction, as the caller promises.
        unsafe { _mm_crc32_u8(register, byte) }
    }

    /// The product of a register and a power, not reduced.
    ///
    /// # Safety
    /// The processor has carry-less multiplication.
    #[inline]
    #[allow(unused_unsafe, clippy::multiple_unsafe_ops_per_block)]
    #[target_feature(enable = "pclmulqdq")]
    unsafe fn product(register: u64, power: u32) -> u64 {
        // SAFETY: the processor has the instructions, as the caller promises.
        unsafe {
            let register = _mm_cvtsi64_si128(register as i64);
            let power = _mm_cvtsi64_si128(i64::from(power));
            _mm_cvtsi128_si64(_mm_clmulepi64_si128::<0>(register, power)) as u64
        }
    }

    /// # Safety
    /// The processor has SSE 4.2 and carry-less multiplication.
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    #[allow(unused_unsafe)]
    pub unsafe fn append(so_far: u32, bytes: &[u8]) -> u32 {
        let mut register = u64::from(!so_far);
        let mut rest = bytes;
        while rest.len() >= LEAST_BYTES {
            let words = ((rest.len() - WORD) / (3 * WORD)).min(MOST_WORDS);
            let (first, behind) = rest.split_at(words * WORD);
            let (second, behind) = behind.split_at(words * WORD);
            let (third, behind) = behind.split_at(words * WORD);
            let (last, behind) = behind.split_at(WORD);
            let (mut one, mut two, mut three) = (register, 0, 0);
            let others = second.chunks_exact(WORD).zip(third.chunks_exact(WORD));
            for (a, (b, c)) in first.chunks_exact(WORD).zip(others) {
                // SAFETY: as the caller promises.
                one = unsafe { step(one, word(a)) };
                // SAFETY: as above.
                two = unsafe { step(two, word(b)) };
                // SAFETY: as above.
                three = unsafe { step(three, word(c)) };
            }
            // SAFETY: as above.
            let one = unsafe { product(one, POWERS[2 * words + 1]) };
            // SAFETY: as above.
            let two = unsafe { product(two, POWERS[words + 1]) };
            // SAFETY: as above.
            register = unsafe { step(three, word(last) ^ one ^ two) };
            rest = behind;
        }
        let words = rest.chunks_exact(WORD);
        let tail = words.remainder();
        for bytes in words {
            // SAFETY: as above.
            register = unsafe { step(register, word(bytes)) };
        }
        let mut register = register as u32;
        for &byte in tail {
            // SAFETY: as above.
            register = unsafe { step_byte(register, byte) };
        }
        !register
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_has_the_checksum_of_the_crate() {
        let bytes: Vec<u8> = (0..9000u32)
            .map(|place| (place.wrapping_mul(0x9e37_79b1) >> 24) as u8)
            .collect();
        let step = if cfg!(miri) { 97 } else { 1 };
        let long = [1042, 3080, 3081, 3103, 3104, 4096, 6160, 8191];
        let lengths = (0..700)
            .step_by(step)
            .chain(long.into_iter().step_by(step / 30 + 1));
        for length in lengths {
            for start in [0, 1, 7] {
                let part = &bytes[start..start + length];
                for so_far in [0, 0x1234_5678] {
                    let expected = checksum::crc32c_append(so_far, part);
                    assert_eq!(crc32c_append(so_far, part), expected, "{length} bytes");
                }
            }
        }
    }

    #[test]
    fn parts_one_after_the_other_are_the_whole() {
        let bytes = vec![0xa5; 5000];
        for cut in [0, 1, 127, 128, 129, 2500, 5000] {
            let (head, tail) = bytes.split_at(cut);
            assert_eq!(crc32c_append(crc32c(head), tail), crc32c(&bytes));
        }
    }
}
