//! The package's tests, in Python, with the extension that cargo has built beside this
//! test: no wheel is made.

use std::path::Path;
use std::process::Command;

#[test]
fn the_tests_in_python_pass() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("cambium");
    std::fs::create_dir(&package).unwrap();
    for entry in std::fs::read_dir(here.join("python/cambium")).unwrap() {
        let file = entry.unwrap();
        if file.file_type().unwrap().is_file() {
            std::fs::copy(file.path(), package.join(file.file_name())).unwrap();
        }
    }
    let test = std::env::current_exe().unwrap();
    let built = test.with_file_name("libcambium_python.so");
    std::os::unix::fs::symlink(built, package.join("_native.abi3.so")).unwrap();
    let output = Command::new("python3")
        .args(["-m", "unittest", "test_cambium"])
        .env("PYTHONPATH", folder.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(here.join("tests"))
        .output()
        .expect("install Python 3.9 or newer, on Debian: sudo apt-get install python3");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("Ran 0 tests"), "{said}");
}
