//! The header is the one that the sources give, and has every function of LevelDB's.
#![allow(clippy::unwrap_used)]

use std::path::Path;

const FUNCTIONS: &str = include_str!("programs/functions.txt");

fn generated() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    let header = cbindgen::generate_with_config(folder, config).unwrap();
    let mut text = Vec::new();
    header.write(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn the_header_is_that_of_the_sources() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/leveldb/c.h");
    let generated = generated();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == generated,
        "{} is not what the sources give; write it with UPDATE_GOLDEN=1",
        path.display()
    );
}

#[test]
fn every_function_of_leveldb_is_declared_and_no_other() {
    let header = generated();
    let declared = |line: &str| {
        let (before, _) = line.split_once('(')?;
        let name = before.rsplit([' ', '*']).next()?;
        (name.starts_with("leveldb_") && !line.starts_with("typedef")).then(|| name.to_string())
    };
    let mut found: Vec<String> = header.lines().filter_map(declared).collect();
    found.sort();
    let wanted: Vec<&str> = FUNCTIONS.lines().collect();
    assert_eq!(found, wanted);
}
