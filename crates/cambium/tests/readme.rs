//! What the README shows is an example that runs.

use std::path::Path;

#[path = "../examples/trees.rs"]
mod trees;

#[test]
fn the_example_of_the_readme_is_the_one_that_is_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("../../README.md")).unwrap();
    let example = std::fs::read_to_string(root.join("examples/trees.rs")).unwrap();
    let (_, code) = example.split_once("use ").unwrap();
    let code = format!("use {code}").replace("pub(crate) fn main", "fn main");
    assert!(
        readme.contains(&format!("```rust\n{code}```\n")),
        "the README does not show this:\n{code}"
    );
}

#[test]
fn the_example_of_the_readme_runs() {
    let folder = tempfile::tempdir().unwrap();
    // The example's path is relative. No other test here depends on the folder.
    std::env::set_current_dir(folder.path()).unwrap();
    trees::main().unwrap();
    assert!(folder.path().join("trees/CAMBIUM").is_file());
}
