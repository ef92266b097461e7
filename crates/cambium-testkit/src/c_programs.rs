//! C and C++ programs that use the shared libraries: compiled with the machine's
//! compiler, run, and held to their exit status.
//!
//! The libraries are those that `cargo test` has built anyway, beside the test
//! that runs. A machine without a compiler fails these tests and says what to
//! install; nothing is skipped.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What watches a program while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Nothing.
    Plain,
    /// The compiler's AddressSanitizer, leaks included. It sees what the library
    /// allocates and frees, too.
    AddressSanitizer,
}

/// The folder of the libraries that this test run has built.
///
/// # Panics
/// If the program that runs has no path.
pub fn libraries() -> PathBuf {
    let test = std::env::current_exe().expect("a running program has a path");
    test.parent()
        .expect("a program lies in a folder")
        .to_path_buf()
}

/// The compiler's arguments for the shared library `built` by Cargo, under the name that
/// programs link with, as `make install` would name it.
///
/// # Panics
/// If nothing can be written to the folder.
pub fn linked_with(built: &str, name: &str, folder: &Path) -> Vec<String> {
    let major = env!("CARGO_PKG_VERSION_MAJOR");
    for link in [format!("lib{name}.so"), format!("lib{name}.so.{major}")] {
        let link = folder.join(link);
        if !link.exists() {
            std::os::unix::fs::symlink(libraries().join(built), &link)
                .expect("a folder for tests can be written");
        }
    }
    let folder = folder.display();
    vec![
        format!("-L{folder}"),
        format!("-Wl,-rpath,{folder}"),
        format!("-l{name}"),
        "-lpthread".to_string(),
    ]
}

/// Compiles a program with these arguments behind its source, and answers its path in
/// `folder`. Sources that end in `.cc` are C++17, others C11; warnings are errors.
///
/// # Panics
/// With the compiler's words where it refuses.
pub fn compile(
    source: &Path,
    folder: &Path,
    watch: Watch,
    arguments: &[impl AsRef<OsStr>],
) -> PathBuf {
    let is_cpp = source
        .extension()
        .is_some_and(|extension| extension == "cc");
    let (compiler, standard) = match is_cpp {
        true => ("c++", "-std=c++17"),
        false => ("cc", "-std=c11"),
    };
    let name = source.file_stem().expect("a source has a name");
    let program = folder.join(format!("{}-{watch:?}", name.to_string_lossy()));
    let mut command = Command::new(compiler);
    command.args([
        standard,
        "-D_GNU_SOURCE",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
    ]);
    command.args(["-Wno-unused-parameter"]);
    if watch == Watch::AddressSanitizer {
        command.args([
            "-fsanitize=address,undefined",
            "-fno-sanitize-recover=undefined",
        ]);
    }
    command.arg("-o").arg(&program).arg(source).args(arguments);
    expect_success(
        &mut command,
        "install a compiler, on Debian: sudo apt-get install g++",
    );
    program
}

/// Runs a program in a folder, with the libraries in reach, and answers what it printed.
///
/// # Panics
/// With what it printed where its exit status is not 0.
pub fn run(program: &Path, folder: &Path, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(program);
    command.current_dir(folder);
    command.env("LD_LIBRARY_PATH", libraries());
    command.envs(variables.iter().copied());
    let output = expect_success(&mut command, "it was compiled just now");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn expect_success(command: &mut Command, remedy: &str) -> Output {
    let output = command.output().expect(remedy);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    output
}
