//! Writing to people and pipes.
//!
//! `println!` panics when its reader goes away (`kvzone ... | head`); here that
//! is a quiet end.

use std::io::{self, Write};

use cambium_base::{Error, Result};

/// Writes to standard output. A reader that went away is no failure.
pub(crate) fn print(text: &str) -> Result<()> {
    print_to(&mut io::stdout().lock(), text)
}

fn print_to(out: &mut dyn Write, text: &str) -> Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::io("write", "standard output", error))
        }
        _ => Ok(()),
    }
}

/// Writes a line to standard error; there is nobody left to tell if that fails.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Failing(io::ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure_but_a_full_disk_is() {
        assert!(print_to(&mut Failing(io::ErrorKind::BrokenPipe), "x").is_ok());
        assert!(print_to(&mut Failing(io::ErrorKind::StorageFull), "x").is_err());
    }
}
