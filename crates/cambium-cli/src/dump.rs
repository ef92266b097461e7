//! The dump: what `cambium export` writes and `cambium import --from dump:`
//! reads. It is a stream: written and read from start to end in bounded
//! memory, through pipes and compressors.
//!
//! ```text
//! header     magic "CAMBDUMP" 8 │ format version 4 │ keys 1 │ n 1 │ engine n │ checksum 4
//! entry      1 1 │ key length 4 │ value length 4 │ key │ value │ checksum 4
//! namespace  3 1 │ n 1 │ name n │ checksum 4
//! expiry     4 1 │ milliseconds since 1970 8 │ checksum 4
//! entry      …
//! end        2 1 │ entries 8 │ bytes of keys and values 8 │ checksum 4
//! ```
//!
//! Entries are of the namespace named last before them, and of the default one
//! where none was. An expiry is that of the entry right after it.
//!
//! Numbers are little-endian; `keys` is 1 for byte strings, 2 for integers.
//! The engine's name is for people: any engine reads any dump whose keys it
//! can have. Each checksum is CRC-32C that goes on from the one before, over
//! the part's own bytes, so that a missing, repeated or moved entry is noticed
//! where it happens, and not only changed bytes. The end proves that nothing
//! was cut off, and nothing may follow it. A newer format version is refused.

use std::io::{self, BufRead, Read, Write};
use std::sync::Arc;

use cambium::checksum::crc32c_append;
use cambium::{KeyKind, UnixMillis, limits};
use serde::{Deserialize, Serialize};

const MAGIC: &[u8; 8] = b"CAMBDUMP";
/// The version written, and the newest read.
const FORMAT_VERSION: u32 = 3;
const TAG_ENTRY: u8 = 1;
const TAG_END: u8 = 2;
const TAG_NAMESPACE: u8 = 3;
const TAG_EXPIRY: u8 = 4;
/// Memory taken for a part before its bytes are seen to be there.
const FIRST_RESERVE: usize = 1 << 20;

/// Writes a dump.
pub struct DumpWriter<W: Write> {
    to: W,
    state: DumpState,
}

/// How far a dump was written or read: all that is needed to go on from there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpState {
    /// Bytes from the start.
    pub offset: u64,
    /// Entries before it.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// The checksum of the part before it.
    pub checksum: u32,
    /// The namespace of the entries that follow; `None` is the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Arc<str>>,
}

impl<W: Write> DumpWriter<W> {
    /// Begins a dump of a store.
    pub fn new(to: W, keys: KeyKind, engine: &str) -> io::Result<Self> {
        let name = engine.as_bytes();
        let length = u8::try_from(name.len())
            .map_err(|_| io::Error::other("the engine's name is longer than 255 bytes"))?;
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        header.push(keys_code(keys));
        header.push(length);
        header.extend_from_slice(name);
        let mut writer = DumpWriter {
            to,
            state: DumpState::default(),
        };
        writer.part(&[&header])?;
        Ok(writer)
    }

    /// Adds an entry, and the moment at which it expires, if it does.
    pub fn entry(
        &mut self,
        key: &[u8],
        value: &[u8],
        expires: Option<UnixMillis>,
    ) -> io::Result<()> {
        if let Some(UnixMillis(moment)) = expires {
            self.part(&[&[TAG_EXPIRY], &moment.to_le_bytes()])?;
        }
        let too_long = |_| io::Error::other("longer than any entry can be");
        let mut frame = [TAG_ENTRY; 9];
        frame[1..5].copy_from_slice(&u32::try_from(key.len()).map_err(too_long)?.to_le_bytes());
        frame[5..].copy_from_slice(&u32::try_from(value.len()).map_err(too_long)?.to_le_bytes());
        self.part(&[&frame, key, value])?;
        self.state.entries += 1;
        self.state.bytes += (key.len() + value.len()) as u64;
        Ok(())
    }

    /// The entries that follow are of this namespace.
    pub fn namespace(&mut self, name: &str) -> io::Result<()> {
        let length = u8::try_from(name.len())
            .map_err(|_| io::Error::other("the namespace's name is longer than 255 bytes"))?;
        self.part(&[&[TAG_NAMESPACE, length], name.as_bytes()])
    }

    /// Ends the dump; answers the writer and what was written.
    pub fn finish(mut self) -> io::Result<(W, DumpState)> {
        let mut end = vec![TAG_END];
        end.extend_from_slice(&self.state.entries.to_le_bytes());
        end.extend_from_slice(&self.state.bytes.to_le_bytes());
        self.part(&[&end])?;
        Ok((self.to, self.state))
    }

    fn part(&mut self, pieces: &[&[u8]]) -> io::Result<()> {
        for piece in pieces {
            self.to.write_all(piece)?;
            self.state.checksum = crc32c_append(self.state.checksum, piece);
            self.state.offset += piece.len() as u64;
        }
        self.state.offset += 4;
        self.to.write_all(&self.state.checksum.to_le_bytes())
    }
}

fn keys_code(keys: KeyKind) -> u8 {
    match keys {
        KeyKind::Bytes => 1,
        KeyKind::Integer => 2,
    }
}

/// Why a dump could not be read on: one line, with the place.
#[derive(Debug, PartialEq, Eq)]
pub struct DumpError(pub String);

/// A key, its value, and the moment at which the entry expires.
pub type RawEntry = (Vec<u8>, Vec<u8>, Option<UnixMillis>);

/// Reads a dump.
pub struct DumpReader<R: BufRead> {
    from: R,
    /// Of what was read, halves of entries included.
    state: DumpState,
    /// Behind the last whole entry.
    whole: DumpState,
    keys: KeyKind,
    ended: bool,
}

impl<R: BufRead> DumpReader<R> {
    /// Reads the header.
    pub fn open(from: R) -> Result<Self, DumpError> {
        let mut reader = DumpReader {
            from,
            state: DumpState::default(),
            whole: DumpState::default(),
            keys: KeyKind::Bytes,
            ended: false,
        };
        let mut header = reader.bytes(14)?;
        if &header[..8] != MAGIC {
            return Err(DumpError(
                "this is no dump: expected CAMBDUMP at its start, as `cambium export` writes it"
                    .to_string(),
            ));
        }
        let version = u32_at(&header, 8);
        if version > FORMAT_VERSION {
            return Err(DumpError(format!(
                "dump format version {version}; this program reads versions up to {FORMAT_VERSION}: use a newer program"
            )));
        }
        let name = reader.bytes(usize::from(header[13]))?;
        reader.keys = match header[12] {
            1 => KeyKind::Bytes,
            2 => KeyKind::Integer,
            other => return Err(reader.damage(&format!("kind of keys {other}, expected 1 or 2"))),
        };
        header.extend_from_slice(&name);
        reader.verify(&[&header], 0)?;
        reader.whole = reader.state.clone();
        Ok(reader)
    }

    /// What the keys are.
    pub fn keys(&self) -> KeyKind {
        self.keys
    }

    /// Behind the last entry answered.
    pub fn whole(&self) -> &DumpState {
        &self.whole
    }

    /// Where the bytes are read from.
    pub fn input(&mut self) -> &mut R {
        &mut self.from
    }

    /// Goes on from a state of an earlier reading; the caller has moved the
    /// input there.
    pub fn resume(&mut self, state: DumpState) {
        self.state = state.clone();
        self.whole = state;
    }

    /// The next entry, or `None` at the proven end.
    pub fn next_entry(&mut self) -> Result<Option<RawEntry>, DumpError> {
        if self.ended {
            return Ok(None);
        }
        let mut start = self.state.offset;
        let mut tag = self.bytes(1)?;
        let mut expires = None;
        loop {
            match tag[0] {
                TAG_NAMESPACE if expires.is_none() => self.take_namespace(start, &tag)?,
                TAG_EXPIRY if expires.is_none() => {
                    expires = Some(self.take_expiry(start, &tag)?);
                }
                _ => break,
            }
            start = self.state.offset;
            tag = self.bytes(1)?;
        }
        match tag[0] {
            TAG_ENTRY => {}
            TAG_END if expires.is_none() => return self.end(start, &tag).map(|()| None),
            other => {
                self.state.offset = start;
                return Err(self.damage(&format!("tag {other}, expected an entry or the end")));
            }
        }
        let lengths = self.bytes(8)?;
        let (key_bytes, value_bytes) = (u32_at(&lengths, 0), u32_at(&lengths, 4));
        let (key_bytes, value_bytes) = (key_bytes as usize, value_bytes as usize);
        if key_bytes > limits::MAX_KEY_BYTES || value_bytes > limits::MAX_VALUE_BYTES {
            self.state.offset = start;
            return Err(self.damage(&format!(
                "a key of {key_bytes} and a value of {value_bytes} bytes, more than there can be"
            )));
        }
        let key = self.bytes(key_bytes)?;
        let value = self.bytes(value_bytes)?;
        self.verify(&[&tag, &lengths, &key, &value], start)?;
        self.state.entries += 1;
        self.state.bytes += (key_bytes + value_bytes) as u64;
        self.whole = self.state.clone();
        Ok(Some((key, value, expires)))
    }

    fn take_expiry(&mut self, start: u64, tag: &[u8]) -> Result<UnixMillis, DumpError> {
        let moment = self.bytes(8)?;
        self.verify(&[tag, &moment], start)?;
        Ok(UnixMillis(u64_at(&moment, 0)))
    }

    fn take_namespace(&mut self, start: u64, tag: &[u8]) -> Result<(), DumpError> {
        let length = self.bytes(1)?;
        let name = self.bytes(usize::from(length[0]))?;
        self.verify(&[tag, &length, &name], start)?;
        let name = String::from_utf8(name).map_err(|_| {
            self.state.offset = start;
            self.damage("the name of a namespace is no UTF-8")
        })?;
        self.state.namespace = (!name.is_empty()).then(|| name.into());
        Ok(())
    }

    fn end(&mut self, start: u64, tag: &[u8]) -> Result<(), DumpError> {
        let counts = self.bytes(16)?;
        self.verify(&[tag, &counts], start)?;
        let (entries, bytes) = (u64_at(&counts, 0), u64_at(&counts, 8));
        if (entries, bytes) != (self.state.entries, self.state.bytes) {
            return Err(self.damage(&format!(
                "the end says {entries} entries of {bytes} bytes, there were {} of {}",
                self.state.entries, self.state.bytes
            )));
        }
        let more = self.from.fill_buf().map(|more| !more.is_empty());
        if more.map_err(|error| self.failed(&error))? {
            return Err(self.damage("more bytes behind the end of the dump"));
        }
        self.ended = true;
        Ok(())
    }

    /// Holds the checksum that follows against the pieces of a part.
    fn verify(&mut self, pieces: &[&[u8]], start: u64) -> Result<(), DumpError> {
        let expected = u32_at(&self.bytes(4)?, 0);
        let computed = pieces
            .iter()
            .fold(self.state.checksum, |sum, piece| crc32c_append(sum, piece));
        if computed != expected {
            self.state.offset = start;
            return Err(self.damage(&format!(
                "checksum {computed:08x}, expected {expected:08x}: the dump is damaged"
            )));
        }
        self.state.checksum = computed;
        Ok(())
    }

    /// Exactly `count` bytes, taking memory only as they come.
    fn bytes(&mut self, count: usize) -> Result<Vec<u8>, DumpError> {
        let mut bytes = Vec::with_capacity(count.min(FIRST_RESERVE));
        let taken = (&mut self.from).take(count as u64).read_to_end(&mut bytes);
        taken.map_err(|error| self.failed(&error))?;
        self.state.offset += bytes.len() as u64;
        if bytes.len() < count {
            return Err(self.damage("the dump ends here, it was cut off"));
        }
        Ok(bytes)
    }

    fn damage(&self, what: &str) -> DumpError {
        DumpError(format!(
            "at offset {}, behind {} whole entries: {what}",
            self.state.offset, self.state.entries
        ))
    }

    fn failed(&self, error: &io::Error) -> DumpError {
        DumpError(format!("at offset {}: {error}", self.state.offset))
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Entries = Vec<RawEntry>;

    fn sample() -> (Vec<u8>, Entries) {
        let entries: Entries = vec![
            (b"oak".to_vec(), b"Quercus".to_vec(), None),
            (Vec::new(), Vec::new(), Some(UnixMillis(7))),
            (b"elm".to_vec(), vec![7; 300], None),
        ];
        let mut writer = DumpWriter::new(Vec::new(), KeyKind::Bytes, "zdb").unwrap();
        for (place, (key, value, expires)) in entries.iter().enumerate() {
            if place == 2 {
                writer.namespace("trees").unwrap();
            }
            writer.entry(key, value, *expires).unwrap();
        }
        (writer.finish().unwrap().0, entries)
    }

    /// What could be read, and how it ended.
    fn read(bytes: &[u8]) -> (Entries, Result<(), DumpError>) {
        let mut entries = Vec::new();
        let mut reader = match DumpReader::open(bytes) {
            Ok(reader) => reader,
            Err(error) => return (entries, Err(error)),
        };
        loop {
            match reader.next_entry() {
                Ok(Some(entry)) => entries.push(entry),
                Ok(None) => return (entries, Ok(())),
                Err(error) => return (entries, Err(error)),
            }
        }
    }

    #[test]
    fn a_dump_reads_back() {
        let (bytes, entries) = sample();
        assert_eq!(read(&bytes), (entries, Ok(())));
    }

    #[test]
    fn a_dump_cut_anywhere_gives_whole_entries_and_an_error() {
        let (bytes, entries) = sample();
        for length in 0..bytes.len() {
            let (found, end) = read(&bytes[..length]);
            assert!(end.is_err(), "cut to {length} bytes");
            assert_eq!(found, entries[..found.len()], "cut to {length} bytes");
        }
    }

    #[test]
    fn a_dump_with_any_bit_flipped_gives_true_entries_and_an_error() {
        let (bytes, entries) = sample();
        for at in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[at / 8] ^= 1 << (at % 8);
            let (found, end) = read(&damaged);
            assert!(end.is_err(), "bit {at}");
            assert_eq!(found, entries[..found.len()], "bit {at}");
        }
    }

    #[test]
    fn repeated_entries_and_bytes_behind_the_end_are_noticed() {
        let (bytes, _) = sample();
        // Header: 14 + 3 + 4 bytes; first entry: 9 + 10 + 4 bytes.
        let mut repeated = bytes[..44].to_vec();
        repeated.extend_from_slice(&bytes[21..]);
        assert_eq!(read(&repeated).0.len(), 1);
        assert!(read(&repeated).1.is_err());
        let longer = [bytes, vec![0]].concat();
        assert!(read(&longer).1.is_err());
    }

    #[test]
    fn a_newer_dump_is_refused_with_both_versions() {
        let (mut bytes, _) = sample();
        bytes[8] = 9;
        let DumpError(text) = read(&bytes).1.unwrap_err();
        assert!(
            text.contains("version 9") && text.contains("up to 3"),
            "{text}"
        );
    }

    #[test]
    fn reading_goes_on_from_a_kept_state() {
        let (bytes, entries) = sample();
        let mut reader = DumpReader::open(&bytes[..]).unwrap();
        reader.next_entry().unwrap();
        let state = reader.whole().clone();
        let mut again = DumpReader::open(&bytes[..]).unwrap();
        *again.input() = &bytes[state.offset as usize..];
        again.resume(state);
        assert_eq!(again.next_entry().unwrap().as_ref(), Some(&entries[1]));
        assert_eq!(again.whole().namespace, None);
        again.next_entry().unwrap();
        assert_eq!(again.whole().namespace.as_deref(), Some("trees"));
        assert_eq!(again.next_entry(), Ok(None));
        let state = again.whole().clone();
        reader.resume(state.clone());
        assert_eq!(reader.whole(), &state);
    }
}
