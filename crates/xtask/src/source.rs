//! Telling code from comments, strings and tests, without a parser.
//!
//! A [`Source`] holds two views of a file, each as long as the file, so that a
//! position in one is a position in all: `code` with comments, the insides of
//! strings and (in [`Source::library`]) tests blanked out, `comments` with
//! everything but comments blanked out. A rule then searches plain text and
//! never trips over its own examples.

/// The views of one Rust file.
#[derive(Clone, Debug)]
pub struct Source {
    /// Code only: comments and the insides of strings are blanks.
    pub code: String,
    /// Comments only.
    pub comments: String,
}

/// What a byte belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Code,
    Comment,
    Literal,
}

impl Source {
    /// Splits a file.
    pub fn new(text: &str) -> Self {
        let parts = classify(text.as_bytes());
        let view = |wanted: Part| {
            let bytes = text.bytes().zip(&parts);
            bytes
                .map(|(byte, &part)| match byte {
                    b'\n' => '\n',
                    // Blanking non-ASCII keeps one char a byte, so positions agree.
                    byte if part == wanted && byte.is_ascii() => char::from(byte),
                    _ => ' ',
                })
                .collect()
        };
        Source {
            code: view(Part::Code),
            comments: view(Part::Comment),
        }
    }

    /// The code without what only tests compile: items under `#[cfg(test)]`
    /// and `#[test]`.
    pub fn library(&self) -> String {
        let mut code = self.code.clone().into_bytes();
        for marker in ["#[cfg(test)]", "#[cfg(all(test", "#[test]"] {
            let starts: Vec<usize> = self.code.match_indices(marker).map(|(at, _)| at).collect();
            for start in starts {
                let end = item_end(self.code.as_bytes(), start);
                code[start..end]
                    .iter_mut()
                    .filter(|byte| **byte != b'\n')
                    .for_each(|byte| *byte = b' ');
            }
        }
        // Only ASCII was replaced by ASCII.
        String::from_utf8(code).unwrap_or_default()
    }
}

fn classify(bytes: &[u8]) -> Vec<Part> {
    let mut parts = vec![Part::Code; bytes.len()];
    let mut at = 0;
    while at < bytes.len() {
        let (end, part) = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => (line_end(bytes, at), Part::Comment),
            b'/' if bytes.get(at + 1) == Some(&b'*') => (block_end(bytes, at), Part::Comment),
            b'"' => (string_end(bytes, at), Part::Literal),
            b'r' if starts_word(bytes, at) => match raw_string_end(bytes, at) {
                Some(end) => (end, Part::Literal),
                None => (at + 1, Part::Code),
            },
            b'\'' => match char_end(bytes, at) {
                Some(end) => (end, Part::Literal),
                None => (at + 1, Part::Code),
            },
            _ => (at + 1, Part::Code),
        };
        let end = end.min(bytes.len());
        parts[at..end].fill(part);
        if part == Part::Literal {
            // The quotes stay, so that the shape of the code does.
            parts[at] = Part::Code;
            parts[end - 1] = Part::Code;
        }
        at = end;
    }
    parts
}

fn line_end(bytes: &[u8], from: usize) -> usize {
    let line = bytes[from..].iter().position(|&byte| byte == b'\n');
    line.map_or(bytes.len(), |length| from + length)
}

fn block_end(bytes: &[u8], from: usize) -> usize {
    let (mut depth, mut at) = (0, from);
    while at < bytes.len() {
        match bytes.get(at..at + 2) {
            Some(b"/*") => (depth, at) = (depth + 1, at + 2),
            Some(b"*/") => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    at
}

/// `r"…"` and `r#"…"#`; `None` for a word that begins with r, `r#type` included.
fn raw_string_end(bytes: &[u8], from: usize) -> Option<usize> {
    let hashes = bytes[from + 1..].iter().take_while(|&&b| b == b'#').count();
    let open = from + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let inside = &bytes[open + 1..];
    let length = inside
        .windows(close.len())
        .position(|window| window == close);
    Some(length.map_or(bytes.len(), |length| open + 1 + length + close.len()))
}

/// The end of a character literal; `None` for a lifetime.
fn char_end(bytes: &[u8], from: usize) -> Option<usize> {
    let first = *bytes.get(from + 1)?;
    if first == b'\\' {
        let rest = bytes.get(from + 3..)?;
        return Some(from + 4 + rest.iter().position(|&byte| byte == b'\'')?);
    }
    let width = match first {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    };
    (bytes.get(from + 1 + width) == Some(&b'\'')).then_some(from + 2 + width)
}

fn starts_word(bytes: &[u8], at: usize) -> bool {
    match at.checked_sub(1).map(|before| bytes[before]) {
        // The prefixes of `br"…"` and `cr"…"` are part of the literal.
        Some(b'b' | b'c') => at < 2 || !is_word(bytes[at - 2]),
        Some(before) => !is_word(before),
        None => true,
    }
}

/// The end of the item whose attributes begin at `start`: its closing brace
/// or its semicolon.
fn item_end(code: &[u8], start: usize) -> usize {
    let (mut braces, mut brackets) = (0usize, 0usize);
    for (at, byte) in code.iter().enumerate().skip(start) {
        match byte {
            b'[' | b'(' => brackets += 1,
            b']' | b')' => brackets = brackets.saturating_sub(1),
            b'{' => braces += 1,
            b'}' => {
                braces = braces.saturating_sub(1);
                if braces == 0 {
                    return at + 1;
                }
            }
            b';' if braces == 0 && brackets == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// The line, from 1, of a position.
pub fn line_of(text: &str, position: usize) -> usize {
    let before = &text.as_bytes()[..position.min(text.len())];
    1 + before.iter().filter(|&&byte| byte == b'\n').count()
}

/// Where `pattern` stands in `text` as whole words: `File::open` is found in
/// `fs::File::open(path)`, not in `LogFile::open`.
pub fn find_words(text: &str, pattern: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    let edge = |byte: Option<u8>, other: Option<&u8>| {
        !(byte.is_some_and(is_word) && other.copied().is_some_and(is_word))
    };
    text.match_indices(pattern)
        .map(|(at, _)| at)
        .filter(|&at| {
            let before = at.checked_sub(1).and_then(|before| bytes.get(before));
            edge(pattern.bytes().next(), before)
                && edge(pattern.bytes().last(), bytes.get(at + pattern.len()))
        })
        .collect()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_no_code() {
        let text = "let a = \"x // y\"; // \"z\"\n/* p /* q */ r */ let b = r#\"s\"t\"#;";
        let source = Source::new(text);
        assert_eq!(source.code.len(), text.len());
        for hidden in ["x", "y", "z", "p", "q", "s\"", "t\""] {
            assert!(
                !source.code.contains(hidden),
                "{hidden} in {:?}",
                source.code
            );
        }
        assert!(source.code.contains("let b"), "{:?}", source.code);
        assert!(source.comments.contains("\"z\"") && source.comments.contains("q"));
        assert!(!source.comments.contains("let"));
    }

    #[test]
    fn quotes_and_lifetimes_do_not_confuse() {
        let source = Source::new("fn f<'a>(x: &'a u8) { g('\"', '\\'', '§'); h(\"in\"); k() }");
        assert!(!source.code.contains("in"), "{:?}", source.code);
        assert!(source.code.contains("k()"), "{:?}", source.code);
    }

    #[test]
    fn tests_are_no_library_code() {
        let text = "fn a() { one(); }\n#[cfg(test)]\nmod tests {\n fn b() { two(); }\n}\nfn c() { three(); }\n#[test]\nfn d() { four() }\n#[cfg(test)]\nmod more;\nfn e() { five() }";
        let library = Source::new(text).library();
        for kept in ["one", "three", "five"] {
            assert!(library.contains(kept), "{library}");
        }
        for dropped in ["two", "four", "more"] {
            assert!(!library.contains(dropped), "{library}");
        }
        assert_eq!(
            line_of(&library, library.find("three").unwrap()),
            6,
            "lines stay"
        );
    }

    #[test]
    fn words_match_whole() {
        assert_eq!(
            find_words("LogFile::open File::open fs::File::open", "File::open"),
            [14, 29]
        );
        assert!(find_words("brand::x operand", "rand::").is_empty());
    }
}
