//! The house rules hold on this workspace. A failure lists each violation
//! with its place and remedy; `cargo xtask tidy` prints the same.

use std::path::Path;

use xtask::Severity;

#[test]
fn the_workspace_keeps_the_house_rules() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let found = xtask::tidy(&root).unwrap();
    let errors: Vec<String> = found
        .iter()
        .filter(|violation| violation.severity == Severity::Error)
        .map(ToString::to_string)
        .collect();
    assert!(errors.is_empty(), "\n{}\n", errors.join("\n"));
}

#[test]
fn a_workspace_that_breaks_the_rules_is_reported() {
    let root = tempfile::tempdir().unwrap();
    let source = root.path().join("crates/cambium-zdb/src");
    std::fs::create_dir_all(&source).unwrap();
    std::fs::write(source.join("lib.rs"), "use std::fs;\n").unwrap();
    std::fs::write(
        root.path().join("crates/cambium-zdb/Cargo.toml"),
        "[package]\nname = \"cambium-zdb\"\n[dependencies]\ncambium.workspace = true\n",
    )
    .unwrap();
    std::fs::write(root.path().join("README.md"), "[gone](gone.md)\n").unwrap();
    let found = xtask::tidy(root.path()).unwrap();
    for rule in [
        "layers",
        "file-access",
        "essay",
        "unsafe",
        "documents",
        "link",
    ] {
        assert!(
            found.iter().any(|violation| violation.rule == rule),
            "{rule}: {found:?}"
        );
    }
}
