//! Runs the real binary in folders of its own.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder with a store `s` in it, removed at the end.
pub struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    /// A folder with no store in it.
    pub fn empty() -> Self {
        Place {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// A folder with a store of string keys in `s`.
    pub fn with_store() -> Self {
        let place = Place::empty();
        place.run(["create", "s"]).done();
        place
    }

    /// A folder with a store of string keys in no order in `s`.
    pub fn with_unordered_store() -> Self {
        let place = Place::empty();
        place.run(["create", "s", "--engine", "zdb"]).done();
        place
    }

    /// A folder with a store of integer keys in `s`.
    pub fn with_integer_store() -> Self {
        let place = Place::empty();
        place.run(["create", "s", "--set", "keys=integer"]).done();
        place
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file, with the folders above it.
    pub fn file(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// The command, to be run in the folder.
    pub fn command<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cambium"));
        command.current_dir(self.folder.path()).args(arguments);
        command
    }

    /// Runs the command to its end.
    pub fn run<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Run {
        Run::of(self.command(arguments).output().unwrap())
    }

    /// Runs the command with this on its standard input.
    pub fn run_with_input<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
        input: &[u8],
    ) -> Run {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A command that stops reading early closes the pipe.
        _ = stdin.write_all(input);
        drop(stdin);
        Run::of(child.wait_with_output().unwrap())
    }

    /// Runs the command on a terminal; all that is seen there, or `None` where the
    /// machine has no `script` (of util-linux), which makes one.
    pub fn on_terminal(&self, arguments: &[&str]) -> Option<String> {
        let quoted = |word: &&str| format!("'{word}'");
        let words: Vec<String> = [env!("CARGO_BIN_EXE_cambium")]
            .iter()
            .chain(arguments)
            .map(quoted)
            .collect();
        let made = Command::new("script")
            .args(["-qec", &words.join(" "), "/dev/null"])
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .output()
            .ok()?;
        Some(String::from_utf8_lossy(&made.stdout).into_owned())
    }

    /// The store's data files.
    pub fn data_files(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = fs::read_dir(self.path("s"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| {
                let name = path.file_name().unwrap().to_string_lossy();
                name.starts_with("data-") || name.ends_with(".forest")
            })
            .collect();
        files.sort();
        files
    }

    /// Flips a byte of each copy of `pattern` in the data files; how many.
    pub fn damage(&self, pattern: &[u8]) -> usize {
        let mut count = 0;
        for path in self.data_files() {
            let mut bytes = fs::read(&path).unwrap();
            let places: Vec<usize> = bytes
                .windows(pattern.len())
                .enumerate()
                .filter(|(_, window)| *window == pattern)
                .map(|(at, _)| at)
                .collect();
            for &at in &places {
                bytes[at] ^= 0x20;
            }
            count += places.len();
            if !places.is_empty() {
                fs::write(&path, bytes).unwrap();
            }
        }
        count
    }
}

/// What a command answered.
#[derive(Debug)]
pub struct Run {
    pub status: Option<i32>,
    pub output: Vec<u8>,
    pub talk: String,
}

impl Run {
    pub fn of(output: Output) -> Self {
        Run {
            status: output.status.code(),
            output: output.stdout,
            talk: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The output as text; it must have ended with status 0.
    #[track_caller]
    pub fn done(self) -> String {
        assert_eq!(self.status, Some(0), "{}", self.talk);
        String::from_utf8(self.output).unwrap()
    }

    /// It must have ended with this status, no data, and a line on standard
    /// error that begins with the command's name and has each of the words.
    #[track_caller]
    pub fn refused(self, status: i32, words: &[&str]) {
        assert_eq!(self.status, Some(status), "{}", self.talk);
        assert_eq!(String::from_utf8_lossy(&self.output), "");
        let line = self.talk.lines().last().unwrap_or_default();
        assert!(self.talk.starts_with("cambium: "), "{}", self.talk);
        for word in words {
            assert!(line.contains(word), "no {word:?} in: {}", self.talk);
        }
    }
}

/// Sorted lines: engines without an order answer in their own.
pub fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}
