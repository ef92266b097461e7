//! Patterns of KEYS, SCAN and PSUBSCRIBE: `*`, `?`, `[a-c]`, `[^a]`, `\x`.

/// True if all of `text` matches `pattern`. Takes time of pattern times text at most.
pub fn matches(pattern: &[u8], text: &[u8], ignores_case: bool) -> bool {
    let (mut at, mut from) = (0, 0);
    // Behind the last star, and the text that it has matched so far.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            star = Some((at, from));
            continue;
        }
        let step = text
            .get(from)
            .and_then(|byte| one(&pattern[at..], *byte, ignores_case));
        match (step, star) {
            (Some(length), _) => {
                at += length;
                from += 1;
            }
            (None, _) if from == text.len() && at == pattern.len() => return true,
            (None, Some((behind, begun))) if begun < text.len() => {
                star = Some((behind, begun + 1));
                (at, from) = (behind, begun + 1);
            }
            (None, _) => return false,
        }
    }
}

/// The length of the pattern's first part, if it matches the byte.
fn one(pattern: &[u8], byte: u8, ignores_case: bool) -> Option<usize> {
    let same = |left: u8, right: u8| match ignores_case {
        true => left.eq_ignore_ascii_case(&right),
        false => left == right,
    };
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', ..] => class(pattern, byte, ignores_case),
        [b'\\', escaped, ..] => same(*escaped, byte).then_some(2),
        [plain, ..] => same(*plain, byte).then_some(1),
    }
}

/// The length of the class at the front of the pattern, if it has the byte. A class without
/// an end reaches to the end of the pattern, as in Redis.
fn class(pattern: &[u8], byte: u8, ignores_case: bool) -> Option<usize> {
    let fold = |byte: u8| {
        if ignores_case {
            byte.to_ascii_lowercase()
        } else {
            byte
        }
    };
    let byte = fold(byte);
    let is_negated = pattern.get(1) == Some(&b'^');
    let mut at = 1 + usize::from(is_negated);
    let mut found = false;
    loop {
        match &pattern[at..] {
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', escaped, ..] => {
                found |= fold(*escaped) == byte;
                at += 2;
            }
            [from, b'-', to, ..] => {
                let (from, to) = (fold(*from).min(fold(*to)), fold(*from).max(fold(*to)));
                found |= (from..=to).contains(&byte);
                at += 3;
            }
            [plain, ..] => {
                found |= fold(*plain) == byte;
                at += 1;
            }
        }
    }
    (found != is_negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("\\*a", "*a", true),
            ("\\*a", "ba", false),
            ("*a*b*c", "xxaxxbxxc", true),
            ("*a*b*c", "xxaxxbxx", false),
            ("a*", "a", true),
            ("[abc", "b", true),
            ("key[12]*", "key2x", true),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes(), false),
                expected,
                "{pattern} {text}"
            );
        }
        assert!(matches(b"HELLO", b"hello", true) && !matches(b"HELLO", b"hello", false));
    }

    #[test]
    fn a_hostile_pattern_ends_soon() {
        let pattern = b"a*".repeat(1_000);
        let text = vec![b'a'; 10_000];
        assert!(!matches(&[&pattern[..], b"b"].concat(), &text, false));
    }
}
