//! Documents that keep up with manifests.
//!
//! Two lists in prose are easily forgotten: what each crate is
//! (`ARCHITECTURE.md`) and why each foreign crate is used
//! (`docs/dependencies.md`). Every crate under `crates/` and every direct
//! dependency must be named in them, as `` `name` ``.
//!
//! A number without the command that makes it cannot be checked by anyone: each
//! section of `docs/benchmarks.md` and `docs/measured/` that has a table has a block with a
//! command.

use std::collections::BTreeSet;

use toml::Table;

use crate::layers::{imports, is_manifest, layer_of, package_name};
use crate::violation::Violation;
use crate::workspace::TextFile;

const CRATES: &str = "ARCHITECTURE.md";
const DEPENDENCIES: &str = "docs/dependencies.md";

const BENCHMARKS: &str = "docs/benchmarks.md";
const MEASURED: &str = "docs/measured/";

/// Checks the lists and the benchmarks.
pub fn check(files: &[TextFile]) -> Vec<Violation> {
    let mut crates = BTreeSet::new();
    let mut foreign = BTreeSet::new();
    let manifests = files.iter().filter(|file| is_manifest(&file.path));
    // A manifest that does not parse is reported by the layers.
    for manifest in manifests.filter_map(|file| file.text.parse::<Table>().ok()) {
        crates.insert(package_name(&manifest).to_string());
        let imports = imports(&manifest).into_iter().map(|(_, name)| name);
        foreign.extend(imports.filter(|name| layer_of(name).is_none()));
    }
    let mut found = unnamed(
        files,
        CRATES,
        &crates,
        "say what it is and what it never does",
    );
    found.extend(unnamed(
        files,
        DEPENDENCIES,
        &foreign,
        "say why it is needed",
    ));
    let measured = files
        .iter()
        .filter(|file| file.path == BENCHMARKS || file.path.starts_with(MEASURED));
    found.extend(measured.flat_map(without_command));
    found
}

fn without_command(file: &TextFile) -> Vec<Violation> {
    let mut found = Vec::new();
    let (mut table, mut command, mut fenced) = (0, false, false);
    let lines = file.text.lines().enumerate();
    // A heading behind the end closes the last section.
    for (position, line) in lines.chain([(0, "# ")]) {
        if line.starts_with("```") {
            fenced = !fenced;
            command = true;
        } else if line.starts_with('#') && !fenced {
            if table > 0 && !command {
                let what = "a table of numbers without the command that makes it";
                let remedy = "add the command in a ``` block of the same section";
                found.push(Violation::error(
                    &file.path,
                    table,
                    "documents",
                    what,
                    remedy,
                ));
            }
            (table, command) = (0, false);
        } else if line.starts_with('|') && table == 0 {
            table = position + 1;
        }
    }
    found
}

fn unnamed(
    files: &[TextFile],
    path: &str,
    names: &BTreeSet<String>,
    remedy: &str,
) -> Vec<Violation> {
    let text = files
        .iter()
        .find(|file| file.path == path)
        .map_or("", |file| file.text.as_str());
    names
        .iter()
        .filter(|name| !text.contains(&format!("`{name}`")))
        .map(|name| {
            let what = format!("crate `{name}` is not named");
            Violation::error(path, 0, "documents", what, remedy)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_without_a_command_are_found() {
        let section = "## Writes\n\n| 1 | 2 |\n";
        let lines = |text: &str| -> Vec<usize> {
            let found = check(&[TextFile::new(BENCHMARKS, text)]);
            found.iter().map(|violation| violation.line).collect()
        };
        assert_eq!(lines(section), [3]);
        assert_eq!(lines(&format!("{section}## Other\n```\nmake\n```\n")), [3]);
        assert_eq!(
            lines(&format!("{section}```text\n# all\nmake bench\n```\n")),
            [0; 0]
        );
    }

    #[test]
    fn crates_and_dependencies_without_a_line_are_found() {
        let manifest = TextFile::new(
            "crates/cambium-zdb/Cargo.toml",
            "[package]\nname = \"cambium-zdb\"\n[dependencies]\ncambium-io = \"1\"\nquick = \"1\"\n",
        );
        let places = |files: &[TextFile]| -> Vec<String> {
            check(files).into_iter().map(|found| found.path).collect()
        };
        assert_eq!(
            places(std::slice::from_ref(&manifest)),
            [CRATES, DEPENDENCIES]
        );
        let named = [
            TextFile::new(CRATES, "`cambium-zdb` is an engine"),
            TextFile::new(DEPENDENCIES, "`quick` is quick"),
            manifest,
        ];
        assert_eq!(places(&named), [""; 0]);
    }
}
