//! Small files of text: a first line, fields, and a checksum over both.
//!
//! ```text
//! cambium full backup
//! through 1024
//! checksum 0badcafe
//! ```

use std::path::Path;

use cambium_base::checksum::crc32c;
use cambium_base::{Error, Result};
use cambium_io::{FileSystem, OpenOptions};

/// Longer than any of them; bounds what is read.
const MOST_BYTES: u64 = 4096;

/// The fields of a file.
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    /// A field as something that its text can be parsed to.
    pub fn parse<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        let mut fields = self.0.iter();
        fields.find(|(it, _)| it == name)?.1.parse().ok()
    }
}

/// Writes a file in one step, durably.
pub(crate) fn write(
    files: &dyn FileSystem,
    path: &Path,
    first_line: &str,
    fields: &[(&str, String)],
) -> Result<()> {
    let mut text = format!("{first_line}\n");
    for (name, value) in fields {
        text += &format!("{name} {value}\n");
    }
    text += &format!("checksum {:08x}\n", crc32c(text.as_bytes()));
    let draft = path.with_extension("draft");
    let file = files.open(
        &draft,
        OpenOptions {
            truncate: true,
            ..OpenOptions::CREATE
        },
    )?;
    file.write_at(text.as_bytes(), 0)?;
    file.sync_data()?;
    files.rename(&draft, path)?;
    files.sync_directory(path.parent().unwrap_or(Path::new(".")))
}

/// Reads a file.
pub(crate) fn read(files: &dyn FileSystem, path: &Path, first_line: &str) -> Result<Fields> {
    let file = files.open(path, OpenOptions::READ)?;
    let bytes = file.read_vec_at(0, MOST_BYTES as usize)?;
    let decoded = std::str::from_utf8(&bytes)
        .ok()
        .and_then(|text| decode(text, first_line));
    decoded.ok_or_else(|| {
        let what = format!("expected the text of a {first_line:?}, with a checksum that matches");
        Error::corruption(path, 0, what)
    })
}

fn decode(text: &str, first_line: &str) -> Option<Fields> {
    let (body, checksum) = text.trim_end().rsplit_once("checksum ")?;
    if crc32c(body.as_bytes()) != u32::from_str_radix(checksum, 16).ok()? {
        return None;
    }
    let mut lines = body.lines();
    if lines.next()? != first_line {
        return None;
    }
    let fields = lines.map(|line| {
        let (name, value) = line.split_once(' ')?;
        Some((name.to_string(), value.to_string()))
    });
    Some(Fields(fields.collect::<Option<_>>()?))
}
