//! A line of a shell as words.
//!
//! Blanks part words. What stands between single quotes is taken as it is; elsewhere a
//! backslash begins an escape: those of the text notation, so that what `scan` shows
//! can be typed, and `\ `, `\"`, `\'` and `\#`. A word that begins with `#` begins a
//! comment. Words are bytes, which need not be UTF-8.

use crate::notation::{Reader, unescape, write_escaped};

const EXPECTED: &str = "expected a blank, \", ', #, t, n, r, \\ or x and two digits behind \
                        a backslash; between single quotes a backslash stands for itself";

/// A word, and the byte of the line it begins at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    pub start: usize,
    pub bytes: Vec<u8>,
}

/// The words of a line, and whether the last one is still open: no blank behind it.
pub struct Line {
    pub words: Vec<Word>,
    pub is_open: bool,
    /// A quote was not closed.
    pub is_quoted: bool,
}

/// Takes a line apart; otherwise what was expected.
pub fn split(line: &[u8]) -> Result<Line, &'static str> {
    let mut words: Vec<Word> = Vec::new();
    let (mut is_open, mut quote) = (false, None);
    let mut at = 0;
    while let Some(&byte) = line.get(at) {
        let start = at;
        at += 1;
        if quote.is_none() && byte.is_ascii_whitespace() {
            is_open = false;
            continue;
        }
        if !is_open {
            if byte == b'#' {
                break;
            }
            words.push(Word {
                start,
                bytes: Vec::new(),
            });
            is_open = true;
        }
        let Some(word) = words.last_mut() else {
            continue;
        };
        match (byte, quote) {
            (b'\'' | b'"', None) => quote = Some(byte),
            (_, Some(open)) if byte == open => quote = None,
            (b'\\', None | Some(b'"')) => at += take_escape(&line[start..], &mut word.bytes)? - 1,
            _ => word.bytes.push(byte),
        }
    }
    Ok(Line {
        words,
        is_open,
        is_quoted: quote.is_some(),
    })
}

/// Reads an escape; the bytes of the line that it takes.
fn take_escape(line: &[u8], word: &mut Vec<u8>) -> Result<usize, &'static str> {
    if let Some(&byte @ (b' ' | b'"' | b'\'' | b'#')) = line.get(1) {
        word.push(byte);
        return Ok(2);
    }
    let taken = if line.get(1) == Some(&b'x') { 4 } else { 2 };
    let escaped = unescape(&line[..taken.min(line.len())]).map_err(|_| EXPECTED)?;
    word.extend(escaped);
    Ok(taken)
}

/// Bytes as a word that reads back as they are.
pub fn quoted(bytes: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !b"\\'\"#".contains(byte);
    if !bytes.is_empty() && bytes.iter().all(is_plain) {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let mut text = Vec::new();
    // Writing to memory cannot fail.
    _ = write_escaped(&mut text, Reader::Person, bytes);
    format!(
        "\"{}\"",
        String::from_utf8_lossy(&text).replace('"', "\\\"")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<Vec<u8>> {
        let line = split(line.as_bytes()).unwrap();
        line.words.into_iter().map(|word| word.bytes).collect()
    }

    #[test]
    fn blanks_part_words_and_quotes_and_escapes_do_not() {
        assert_eq!(words("get  oak\t"), [&b"get"[..], b"oak"]);
        assert_eq!(
            words("put 'a b' \"c \\\"d\" e\\ f"),
            [&b"put"[..], b"a b", b"c \"d", b"e f"]
        );
        assert_eq!(
            words("\\x00\\xff 'a\\n' \"a\\n\""),
            [&b"\x00\xff"[..], b"a\\n", b"a\n"]
        );
        assert_eq!(words("get '' # a comment"), [&b"get"[..], b""]);
        assert_eq!(words("a#b \\#c"), [&b"a#b"[..], b"#c"]);
        assert!(words("  # nothing").is_empty());
        for line in ["\\", "\\q", "\\x4", "\\xzz"] {
            assert!(split(line.as_bytes()).is_err(), "{line}");
        }
        assert!(split(b"get 'oak").unwrap().is_quoted);
    }

    #[test]
    fn every_byte_is_quoted_so_that_it_reads_back() {
        let all: Vec<u8> = (0..=255).chain("é \u{202e}".bytes()).collect();
        for bytes in [&all[..], b"", b"oak", b"it's", b"a b", b"#"] {
            assert_eq!(words(&quoted(bytes)), [bytes]);
        }
        assert_eq!(quoted(b"usr/bin/ls"), "usr/bin/ls");
    }
}
