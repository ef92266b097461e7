//! Standard output, for data only.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;

use crate::failure::Failure;
use crate::notation::Reader;

/// Bytes gathered before the operating system is called.
const BUFFER_BYTES: usize = 64 << 10;

/// A buffered writer on standard output, or on a file. Unlike `io::stdout`
/// it does not look for line ends in what may be binary.
pub struct Output {
    writer: BufWriter<File>,
}

impl Output {
    /// Writes to standard output.
    pub fn standard() -> Result<Self, Failure> {
        let descriptor = io::stdout()
            .as_fd()
            .try_clone_to_owned()
            .map_err(Failure::output)?;
        Ok(Output::to(File::from(descriptor)))
    }

    /// Writes to a file.
    pub fn to(file: File) -> Self {
        Output {
            writer: BufWriter::with_capacity(BUFFER_BYTES, file),
        }
    }

    /// True if a person reads this.
    pub fn is_terminal(&self) -> bool {
        self.writer.get_ref().is_terminal()
    }

    /// Who reads this.
    pub fn reader(&self) -> Reader {
        match self.is_terminal() {
            true => Reader::Person,
            false => Reader::Program,
        }
    }

    /// Hands over what is still in the buffer. Dropping an output without
    /// this would swallow the error of a full disk.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.writer.flush().map_err(Failure::output)
    }

    /// Hands over what is in the buffer and gives the file back.
    pub fn into_file(self) -> io::Result<File> {
        self.writer
            .into_inner()
            .map_err(io::IntoInnerError::into_error)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// Writes a text to standard output.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut output = Output::standard()?;
    output.write_all(text.as_bytes()).map_err(Failure::output)?;
    output.finish()
}

/// Writes a JSON value and a line end to standard output.
pub fn print_json(value: &serde_json::Value) -> Result<(), Failure> {
    print(&format!("{value}\n"))
}
