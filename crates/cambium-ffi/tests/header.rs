//! The header is the one that the sources give.

use std::path::Path;

#[test]
fn the_header_is_that_of_the_sources() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    let header = cbindgen::generate_with_config(folder, config).unwrap();
    let mut generated = Vec::new();
    header.write(&mut generated);
    let path = folder.join("include/cambium.h");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let written = std::fs::read(&path).unwrap_or_default();
    assert!(
        written == generated,
        "{} is not what the sources give; write it with UPDATE_GOLDEN=1",
        path.display()
    );
}
