//! Comparing passwords.

/// Compares in a time that depends on what the client sent alone.
pub fn is_same(given: &[u8], expected: &[u8]) -> bool {
    let mut difference = usize::from(given.len() != expected.len());
    for (place, byte) in given.iter().enumerate() {
        let other = expected.get(place).copied().unwrap_or(0);
        difference = std::hint::black_box(difference | usize::from(byte ^ other));
    }
    difference == 0
}

#[cfg(test)]
mod tests {
    use super::is_same;

    #[test]
    fn passwords_are_the_same_or_not() {
        assert!(is_same(b"oak", b"oak") && is_same(b"", b""));
        for other in [&b""[..], b"oa", b"oakk", b"elm", b"oak\0"] {
            assert!(!is_same(other, b"oak") && !is_same(b"oak", other));
        }
    }
}
