//! Golden files and fixtures: what a store does to its files, what is shown of
//! it, and stores of earlier formats that must stay readable.
//!
//! `UPDATE_GOLDEN=1 cargo test -p PACKAGE --test suite golden::` writes golden files
//! anew, and fixtures that are missing. A lost sync is then a visible
//! difference to review; a fixture that is there was written by an earlier
//! version, and stays.
//!
//! As everything here, it panics where a test has failed.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cambium_api::{Durability, Engine, EngineKind, IterationOrder, OptionValues, Reader, Result};
use cambium_io::recording::{Recorder, RecordingFileSystem};
use cambium_io::simulated::SimulatedDisk;
use cambium_io::{Environment, FileKind, FileSystem, OpenOptions};

use crate::stores::{PATH, open};

/// Where [`fixture_in_memory`] puts a fixture.
pub const FIXTURE: &str = "/fixture";

/// A folder of golden files and fixtures.
///
/// ```no_run
/// use cambium_testkit::golden::Golden;
/// let golden = Golden::new(env!("CARGO_MANIFEST_DIR"));
/// golden.compare("operations.txt", "open\nwrite\nsync\n");
/// ```
#[derive(Clone, Debug)]
pub struct Golden {
    folder: PathBuf,
}

impl Golden {
    /// The folder `testdata` of a package.
    pub fn new(package_folder: &str) -> Self {
        Golden {
            folder: Path::new(package_folder).join("testdata"),
        }
    }

    /// True if `UPDATE_GOLDEN` is set.
    pub fn updating() -> bool {
        std::env::var_os("UPDATE_GOLDEN").is_some()
    }

    /// Compares a text with a golden file, or writes it.
    ///
    /// # Panics
    /// If they differ.
    pub fn compare(&self, name: &str, found: &str) {
        let path = self.folder.join(name);
        if Golden::updating() {
            return replace(&path, found.as_bytes()).expect("a golden file can be written");
        }
        let golden = read(&*real(), &path).unwrap_or_default();
        assert_eq!(
            String::from_utf8_lossy(&golden),
            found,
            "this differs from {}; if it should, update it with UPDATE_GOLDEN=1",
            path.display()
        );
    }

    /// Compares what is shown of the files of a closed store, after `text`, with the golden
    /// file `inside.txt`, or writes that.
    ///
    /// # Panics
    /// If they differ.
    pub fn compare_inside(&self, kind: &dyn EngineKind, environment: &Environment, text: Vec<u8>) {
        let mut text = text;
        let shown = kind.inspect(environment, Path::new(PATH), &mut text);
        shown.expect("a closed store is shown");
        self.compare("inside.txt", &String::from_utf8_lossy(&text));
    }

    /// The folder of a fixture, made by `write` if it is missing and golden
    /// files are being updated.
    pub fn fixture(&self, name: &str, write: impl FnOnce(&Path)) -> PathBuf {
        let path = self.folder.join(name);
        let there = real().metadata(&path).expect("testdata can be read");
        if Golden::updating() && there.is_none() {
            write(&path);
        }
        path
    }
}

/// The operations that a store does to its files, as text.
#[derive(Debug)]
pub struct Trace {
    recorder: Recorder,
    text: String,
}

impl Trace {
    /// An environment on a simulated disk, and the trace of what is done to the store at
    /// [`PATH`] in it.
    pub fn new() -> (Environment, Trace) {
        let disk = SimulatedDisk::new(1);
        let plain = Environment::simulated(&disk, 1);
        let (file_system, recorder) = RecordingFileSystem::new(Arc::new(disk), Path::new(PATH));
        let environment = Environment {
            file_system: Arc::new(file_system),
            ..plain
        };
        let text = String::new();
        (environment, Trace { recorder, text })
    }

    /// Notes what was done since the last note.
    pub fn note(&mut self, what: &str) {
        let operations = self.recorder.take();
        _ = writeln!(self.text, "# {what}\n{operations}");
    }

    /// Forgets what was done since the last note.
    pub fn skip(&mut self) {
        self.recorder.take();
    }

    /// Notes what is done to the closed store at [`PATH`] when it is opened, and when it is
    /// opened after its process died behind a put.
    pub fn note_openings(
        &mut self,
        kind: &dyn EngineKind,
        environment: &Environment,
        (key, value): (&[u8], &[u8]),
    ) {
        let options = OptionValues::default();
        let store = open(kind, environment, &options);
        self.note("open after a clean close");
        let written = store.put(key, value, Durability::Written);
        written.expect("a store takes a put");
        drop(store);
        self.skip();
        let _recovered = open(kind, environment, &options);
        self.note("open after a crash of the process");
    }

    /// Everything noted.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Copies a fixture into memory, to [`FIXTURE`], so that opening it changes
/// nothing.
pub fn fixture_in_memory(fixture: &Path) -> Environment {
    let environment = Environment::memory();
    copy_folder(
        &*real(),
        fixture,
        &*environment.file_system,
        Path::new(FIXTURE),
    )
    .expect("a fixture is there and can be read");
    environment
}

/// Checks a fixture, in memory, and opens it.
///
/// # Panics
/// If it is not sound.
pub fn open_fixture(kind: &dyn EngineKind, fixture: &Path) -> (Environment, Arc<dyn Engine>) {
    let environment = fixture_in_memory(fixture);
    let (folder, options) = (Path::new(FIXTURE), OptionValues::default());
    let report = kind.check(&environment, folder, &options, &());
    let report = report.expect("a fixture can be read");
    assert!(report.is_sound(), "{report:?}");
    let store = kind.open(&environment, folder, &options, &());
    (environment, store.expect("a fixture is opened"))
}

/// Keys of several lengths, many of which begin alike, and values, in the order of keys.
pub fn fixture_entries() -> Vec<(Vec<u8>, Vec<u8>)> {
    let entries = (0..30u8).filter(|n| n % 7 != 3).map(|number| {
        let mut key = format!("key {:02}", number / 3).into_bytes();
        key.extend_from_slice(&[b'-'; 20][..usize::from(number % 3) * 10]);
        key.push(number);
        (key, vec![number; usize::from(number) * 3])
    });
    let mut entries: Vec<_> = entries.collect();
    entries.sort();
    entries
}

/// Every entry that one pass visits, by key.
pub fn contents(reader: &dyn Reader) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut cursor = reader
        .iterate(IterationOrder::Any, None)
        .expect("every engine visits its entries");
    let mut entries = Vec::new();
    while let Some(entry) = cursor.next().expect("a sound store is read") {
        entries.push((entry.key.to_vec(), entry.value.to_vec()));
    }
    entries.sort();
    entries
}

/// Opens a fixture as if a later version had written it.
///
/// # Panics
/// If it is not refused with both versions named.
pub fn refuses_a_newer_format(kind: &dyn EngineKind, fixture: &Path) {
    use cambium_storage::marker::{read_marker, write_marker};
    let environment = fixture_in_memory(fixture);
    let folder = Path::new(FIXTURE);
    let files = &*environment.file_system;
    let mut marker = read_marker(files, folder).expect("a fixture has a marker");
    let readable = marker.format_version;
    files
        .remove(&folder.join("CAMBIUM"))
        .expect("the marker is there");
    marker.format_version += 7;
    write_marker(files, folder, &marker).expect("a marker can be written");
    let opened = kind.open(&environment, folder, &OptionValues::default(), &());
    let refusal = opened.err().expect("a newer version is refused");
    let text = refusal.to_string();
    let newer = format!("version {}", marker.format_version);
    let known = format!("up to {readable}");
    assert!(text.contains(&newer) && text.contains(&known), "{text}");
}

fn real() -> Arc<dyn FileSystem> {
    Environment::real().file_system
}

fn read(files: &dyn FileSystem, path: &Path) -> Result<Vec<u8>> {
    let file = files.open(path, OpenOptions::READ)?;
    let mut bytes = vec![0; file.length()? as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let files = real();
    if let Some(folder) = path.parent() {
        if files.metadata(folder)?.is_none() {
            files.create_directory(folder)?;
        }
    }
    let file = files.open(path, OpenOptions::CREATE)?;
    file.set_length(0)?;
    file.write_at(bytes, 0)
}

fn copy_folder(
    from: &dyn FileSystem,
    fixture: &Path,
    to: &dyn FileSystem,
    folder: &Path,
) -> Result<()> {
    to.create_directory(folder)?;
    for entry in from.list(fixture)? {
        if entry.kind == FileKind::Directory {
            let (below, into) = (fixture.join(&entry.name), folder.join(&entry.name));
            copy_folder(from, &below, to, &into)?;
            continue;
        }
        let bytes = read(from, &fixture.join(&entry.name))?;
        let file = to.open(&folder.join(&entry.name), OpenOptions::CREATE)?;
        file.write_at(&bytes, 0)?;
    }
    Ok(())
}
