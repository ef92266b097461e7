//! Answers.

use super::numbers::push_integer;

/// Writes answers in the protocol that a client speaks.
#[derive(Debug, Default)]
pub struct Reply {
    /// The bytes so far.
    pub bytes: Vec<u8>,
    /// The client speaks RESP3.
    pub is_resp3: bool,
}

impl Reply {
    fn line(&mut self, mark: u8, text: &[u8]) {
        self.bytes.push(mark);
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn header(&mut self, mark: u8, count: usize) {
        self.bytes.push(mark);
        push_integer(&mut self.bytes, count as i64);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// `+OK`.
    pub fn ok(&mut self) {
        self.bytes.extend_from_slice(b"+OK\r\n");
    }

    /// A word of the server's own.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error, its code first. Line ends in the text become blanks.
    pub fn error(&mut self, text: &str) {
        let text: Vec<u8> = text
            .bytes()
            .map(|byte| {
                if matches!(byte, b'\r' | b'\n') {
                    b' '
                } else {
                    byte
                }
            })
            .collect();
        self.line(b'-', &text);
    }

    /// An integer.
    pub fn integer(&mut self, number: i64) {
        self.bytes.push(b':');
        push_integer(&mut self.bytes, number);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// 1 or 0.
    pub fn truth(&mut self, truth: bool) {
        self.integer(i64::from(truth));
    }

    /// Bytes of any kind.
    pub fn bulk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.header(b'$', bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Bytes, or nothing.
    pub fn optional(&mut self, bytes: Option<impl AsRef<[u8]>>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// Text for people.
    pub fn text(&mut self, text: &str) {
        if !self.is_resp3 {
            return self.bulk(text);
        }
        self.header(b'=', text.len() + 4);
        self.bytes.extend_from_slice(b"txt:");
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Nothing, where bytes could be.
    pub fn null(&mut self) {
        let null: &[u8] = if self.is_resp3 { b"_\r\n" } else { b"$-1\r\n" };
        self.bytes.extend_from_slice(null);
    }

    /// Nothing, where an array could be.
    pub fn null_array(&mut self) {
        let null: &[u8] = if self.is_resp3 { b"_\r\n" } else { b"*-1\r\n" };
        self.bytes.extend_from_slice(null);
    }

    /// The head of an array.
    pub fn array(&mut self, count: usize) {
        self.header(b'*', count);
    }

    /// The head of a map of so many pairs; in RESP2, an array of keys and values.
    pub fn map(&mut self, pairs: usize) {
        match self.is_resp3 {
            true => self.header(b'%', pairs),
            false => self.header(b'*', pairs * 2),
        }
    }

    /// The head of a set.
    pub fn set(&mut self, count: usize) {
        self.header(if self.is_resp3 { b'~' } else { b'*' }, count);
    }

    /// The head of a message that no command asked for.
    pub fn push(&mut self, count: usize) {
        self.header(if self.is_resp3 { b'>' } else { b'*' }, count);
    }
}
