//! Pages of `docs/` that follow from the code.
//!
//! `docs/format/`: crates describe what they write as [`Layout`] tables, which are checked at
//! compile time against the sizes that the codecs use. `docs/reference/options.md` and
//! `statistics.md`: what engines say of their options and counters. This suite renders the
//! pages and compares the result with the committed files, so that a change of the code is a
//! visible change of a page. `cargo xtask documents` sets `CAMBIUM_WRITE_DOCUMENTS`, and the
//! suite then writes the files instead. `docs/reference/errors.md` is written by hand, and has
//! a row for each error and no other.
//!
//! The program `xtask` does not link the engines, so that it is built in seconds.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use cambium::{CompactOptions, OptionSpec, Options, StatisticValue, engines};
use cambium_base::layout::Layout;

/// One generated page.
struct Document {
    /// The file, relative to `docs/`.
    path: String,
    /// The page.
    text: String,
}

fn documents() -> Vec<Document> {
    let mut all: Vec<Document> = formats().iter().map(Format::document).collect();
    all.push(Document {
        path: "reference/options.md".to_string(),
        text: options(),
    });
    all.push(Document {
        path: "reference/statistics.md".to_string(),
        text: statistics(),
    });
    all
}

/// A page of `docs/format/`.
struct Format {
    /// The file's name.
    name: &'static str,
    /// Its title.
    title: &'static str,
    /// The text before the tables.
    about: &'static str,
    /// The tables.
    layouts: Vec<&'static Layout>,
}

fn formats() -> Vec<Format> {
    vec![
        Format {
            name: "storage.md",
            title: "Formats of the storage layer",
            about: "What every engine's files are built from. The text file `CAMBIUM` that \
                    names a store's engine is described in \
                    `crates/cambium-storage/src/marker.rs`.",
            layouts: cambium_storage::layouts(),
        },
        Format {
            name: "index.md",
            title: "Formats of the trees",
            about: "The nodes of the trees of `cambium-index`, whatever file they lie in.",
            layouts: cambium_index::layouts(),
        },
        Format {
            name: "lsm.md",
            title: "Formats of the log-structured merge-tree",
            about: "What lies in the folder of a tree of `cambium-lsm`: `superblock-0` and \
                    `superblock-1`, whose payload is the root; `manifest-N`, a log of edits; \
                    `table-N`, sorted tables. File headers, records and superblocks are described \
                    in [storage.md](storage.md), the filter in [index.md](index.md); the reasons \
                    stand in the essays of `crates/cambium-lsm/src/`.",
            layouts: cambium_lsm::layouts(),
        },
        Format {
            name: "forest.md",
            title: "Formats of engine forest",
            about: "What lies in a `forest` store beside records and superblocks, which are \
                    described in [storage.md](storage.md); the folder and the reasons are in \
                    [../forest.md](../forest.md).",
            layouts: cambium_forest::layouts(),
        },
        Format {
            name: "wisckey.md",
            title: "Formats of engine wisckey",
            about: "What lies in a `wisckey` store beside records and superblocks, which are \
                    described in [storage.md](storage.md), and the tree, which is described in \
                    [lsm.md](lsm.md); the folder and the reasons are in \
                    [../wisckey.md](../wisckey.md).",
            layouts: cambium_wisckey::layouts(),
        },
        Format {
            name: "zdb.md",
            title: "Formats of engine zdb",
            about: "What lies in the records and pieces of a `zdb` store. The structures around \
                    them are described in [storage.md](storage.md), the folder and the reasons in \
                    [../zdb.md](../zdb.md).",
            layouts: cambium_zdb::layouts(),
        },
        Format {
            name: "alphard.md",
            title: "Formats of engine alphard",
            about: "What lies on the device of an `alphard` store, and in the index image that a \
                    clean close leaves; the folder and the reasons are in \
                    [../alphard.md](../alphard.md).",
            layouts: cambium_alphard::layouts(),
        },
        Format {
            name: "backup.md",
            title: "Formats of incremental backups",
            about: "The archives in a place of backups; its other files are stores and small \
                    files of text, which `crates/cambium-backup/src/` describes. How backups \
                    are taken and restored is in [../backup.md](../backup.md).",
            layouts: cambium_backup::layouts(),
        },
    ]
}

impl Format {
    fn document(&self) -> Document {
        let mut text = format!(
            "# {}\n\n<!-- Generated by `cargo xtask documents`; edit the Layout tables in the code instead. -->\n\n\
             {} All numbers are little-endian; offsets and sizes are in bytes.\n",
            self.title, self.about
        );
        for layout in &self.layouts {
            // The page's title is the first level, so a table's is the second.
            text += "\n## ";
            text += layout.markdown().trim_start_matches('#').trim_start();
        }
        Document {
            path: format!("format/{}", self.name),
            text,
        }
    }
}

const OPTIONS: &str = "\
# Options

<!-- Generated by `cargo xtask documents`; edit the OptionSpec tables in the code instead. -->

`cambium options` prints these tables. Set an option with `Options::set` in Rust, `--set NAME=VALUE` on the
command line and for the server, `cambium_options_set` in C, and `options={...}` in Python. Numbers of bytes
take `KiB`, `MiB` and `GiB`. An unknown name is refused.

Every engine also takes `memory_budget`, which bounds the memory of a store ([memory](../memory.md)).
`compression` and `compression_level` apply to values ([values](../values.md)). `durability` is an argument
of the handle, not an option of the engine ([durability](../durability.md)).
";

fn options() -> String {
    let mut text = OPTIONS.to_string();
    for kind in engines().iter() {
        text += &format!("\n## Engine `{}`\n", kind.name());
        for (at_creation, heading) in [
            (true, "Fixed when the store is made"),
            (false, "Of each opening"),
        ] {
            let specs = kind.options().iter();
            let specs: Vec<&OptionSpec> = specs
                .filter(|spec| spec.at_creation == at_creation)
                .collect();
            if specs.is_empty() {
                continue;
            }
            text += &format!(
                "\n### {heading}: {}\n\n| option | unit or values | default | effect |\n|---|---|---|---|\n",
                kind.name()
            );
            for spec in specs {
                let effect = cell(spec.effect);
                text += &format!(
                    "| `{}` | {} | `{}` | {effect} |\n",
                    spec.name,
                    cell(spec.unit),
                    spec.default
                );
            }
        }
    }
    text
}

/// Text as a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

const STATISTICS: &str = "\
# Statistics

<!-- Generated by `cargo xtask documents`; edit the meanings in the code instead. -->

`cambium stats STORE` prints the ten lines that matter, `--all` every statistic in groups, and `--json` every
statistic for programs. In Rust `stats()?.metrics()` has them by name, and `stats()?.summary()` has those that
engines share as typed fields; in Python `db.stats()`; the server exports them as `cambium_store_NAME` on
`/metrics`. Counters begin at zero when the store is opened. [Tuning](../guides/tuning.md) says which of them
to look at, and what to do. A ratio is left out while its denominator is zero.
";

/// The statistics of a store of each engine, after some work.
fn statistics() -> String {
    let mut text = STATISTICS.to_string();
    for kind in engines().iter() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Options::new()
            .set("memory_budget", "64MiB")
            .create(folder.path().join("store"), kind.name())
            .expect("a store");
        let keys = (0..500u64).map(u64::to_be_bytes);
        for key in keys.clone() {
            store.put(key, [b'v'; 300]).expect("a put");
        }
        store.sync().expect("a sync");
        let options = CompactOptions::default();
        store.compact(&options, &()).expect("a compaction");
        for key in keys {
            assert!(store.get(key).expect("a get").is_some());
        }
        text += &format!(
            "\n## Engine `{}`\n\n| statistic | unit | meaning |\n|---|---|---|\n",
            kind.name()
        );
        for statistic in store.stats().expect("statistics").entries {
            let unit = match statistic.value {
                StatisticValue::Count(_) => "count",
                StatisticValue::Bytes(_) => "bytes",
                StatisticValue::Ratio(_) => "ratio",
                StatisticValue::Text(_) => "text",
            };
            let meaning = cell(statistic.meaning);
            text += &format!("| `{}` | {unit} | {meaning} |\n", statistic.name);
        }
        store.close().expect("a close");
    }
    text
}

/// `docs/`.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// The pages in a folder that are not what the code says, with the first line that differs,
/// from 1.
fn stale(folder: &Path, documents: &[Document]) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for document in documents {
        let committed = fs::read_to_string(folder.join(&document.path)).unwrap_or_default();
        if committed != document.text {
            let lines = committed.lines().zip(document.text.lines());
            let equal = lines.take_while(|(one, other)| one == other).count();
            found.push((document.path.clone(), equal + 1));
        }
    }
    found
}

fn write(folder: &Path, documents: &[Document]) {
    for document in documents {
        let path = folder.join(&document.path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("making a folder");
        fs::write(path, &document.text).expect("writing a document");
    }
}

#[test]
fn the_pages_are_what_the_code_says() {
    let documents = documents();
    if std::env::var_os("CAMBIUM_WRITE_DOCUMENTS").is_some() {
        write(&folder(), &documents);
    }
    assert_eq!(
        stale(&folder(), &documents),
        [],
        "run `cargo xtask documents` and review the difference"
    );
}

#[test]
fn missing_and_stale_pages_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let documents: Vec<Document> = formats().iter().map(Format::document).collect();
    assert_eq!(stale(folder.path(), &documents).len(), documents.len());
    write(folder.path(), &documents);
    assert_eq!(stale(folder.path(), &documents), []);

    let path = folder.path().join("format/storage.md");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("| 0 |", "| 1 |", 1)).unwrap();
    let found = stale(folder.path(), &documents);
    assert!(
        matches!(&found[..], [(page, 2..)] if page == "format/storage.md"),
        "{found:?}"
    );
}

#[test]
fn each_layout_has_a_section() {
    for format in formats() {
        let text = format.document().text;
        for layout in &format.layouts {
            assert!(text.contains(&format!("\n## {}\n", layout.name)), "{text}");
        }
    }
}

/// The variants of `Error`, read from its source.
fn variants() -> BTreeSet<String> {
    let source = include_str!("../../cambium-base/src/error.rs");
    let (_, body) = source.split_once("pub enum Error {").expect("the enum");
    let (body, _) = body.split_once("\n}").expect("its end");
    let lines = body.lines().filter_map(|line| line.strip_prefix("    "));
    lines
        .filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()))
        .map(|line| {
            line.split([' ', '(', ','])
                .next()
                .unwrap_or_default()
                .to_string()
        })
        .collect()
}

#[test]
fn the_page_of_errors_has_each_error_and_no_other() {
    let page = fs::read_to_string(folder().join("reference/errors.md")).unwrap();
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `Error::"));
    let rows: BTreeSet<String> = rows
        .filter_map(|row| Some(row.split_once('`')?.0.to_string()))
        .collect();
    assert!(rows.len() > 20, "{rows:?}");
    assert_eq!(rows, variants());

    // The names in C are those of the header, all of them.
    let header = include_str!("../../cambium-ffi/include/cambium.h");
    let codes: BTreeSet<&str> = names(&page).collect();
    assert!(codes.len() > 10, "{codes:?}");
    for code in codes {
        assert!(header.contains(code), "{code}");
    }
}

/// The words of a page that are codes of C.
fn names(page: &str) -> impl Iterator<Item = &str> {
    page.split(|letter: char| !(letter.is_ascii_uppercase() || letter == '_'))
        .filter(|word| word.starts_with("CAMBIUM_") && word.len() > "CAMBIUM_".len())
}
