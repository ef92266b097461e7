//! Imports between crates go strictly downward.
//!
//! Modules do not keep layers apart in Rust, crates do: so each crate's
//! `Cargo.toml` is read and held against [`LAYERS`]. Two crates of one layer
//! never import each other. `cambium-testkit` is for tests: every crate may
//! name it under `[dev-dependencies]`, whatever its layer, and none elsewhere. It also
//! enables the features that only suites may have.
//!
//! A crate that the table does not know is an error: a new crate is placed
//! before it is used.

use toml::{Table, Value};

use crate::violation::Violation;
use crate::workspace::TextFile;

/// The only crate that is exempt, as a development dependency.
const TESTKIT: &str = "cambium-testkit";

/// Features that make a crate one for suites, and the crates that enable them.
const TEST_FEATURES: &[&str] = &["scheduled", "seeded-bugs"];
const ENABLERS: &[&str] = &[TESTKIT, "cambium-stress"];

/// Where each crate stands. The higher may import the lower.
pub const LAYERS: &[(u8, &str, &[&str])] = &[
    // xtask is the house's own tool: it may import any crate, and none imports it.
    (9, "house tools", &["xtask"]),
    (
        8,
        "what people run and link",
        &[
            "cambium-cli",
            "kvzone",
            "cambium-server",
            "cambium-ffi",
            "cambium-leveldb",
            "cambium-python",
            "cambium-stress",
        ],
    ),
    (
        7,
        "what bindings to other languages share",
        &["cambium-bindings"],
    ),
    (6, "the facade", &["cambium"]),
    (
        5,
        "engines; the load generator",
        &[
            "cambium-forest",
            "cambium-wisckey",
            "cambium-zdb",
            "cambium-alphard",
            "kvzone-core",
        ],
    ),
    (
        4,
        "ordered store of small values; values and backups above any engine",
        &["cambium-lsm", "cambium-values", "cambium-backup"],
    ),
    (
        3,
        "structures; libraries of others; tests' tools",
        &["cambium-index", "cambium-foreign", TESTKIT],
    ),
    (
        2,
        "durable byte structures; the engine trait; replication without I/O",
        &["cambium-storage", "cambium-api", "cambium-cluster"],
    ),
    (1, "the only road to the disk", &["cambium-io"]),
    (
        0,
        "codings, checksums, errors; no I/O, threads or clocks",
        &["cambium-base"],
    ),
];

const SECTIONS: &[&str] = &["dependencies", "build-dependencies", "dev-dependencies"];

/// The layer of a crate.
pub fn layer_of(name: &str) -> Option<u8> {
    LAYERS
        .iter()
        .find(|(_, _, crates)| crates.contains(&name))
        .map(|&(layer, _, _)| layer)
}

/// Checks every manifest under `crates/`.
pub fn check(files: &[TextFile]) -> Vec<Violation> {
    files
        .iter()
        .filter(|file| is_manifest(&file.path))
        .flat_map(check_manifest)
        .collect()
}

/// True for the manifest of a crate under `crates/`.
pub(crate) fn is_manifest(path: &str) -> bool {
    let mut parts = path.split('/');
    parts.next() == Some("crates")
        && parts.next().is_some()
        && parts.next() == Some("Cargo.toml")
        && parts.next().is_none()
}

fn check_manifest(file: &TextFile) -> Vec<Violation> {
    let manifest: Table = match file.text.parse() {
        Ok(manifest) => manifest,
        Err(error) => {
            let what = format!("the manifest does not parse: {error}");
            return vec![Violation::error(
                &file.path,
                0,
                "layers",
                what,
                "mend the TOML",
            )];
        }
    };
    let name = package_name(&manifest);
    let Some(layer) = layer_of(name) else {
        return vec![Violation::error(
            &file.path,
            line_with(&file.text, "name"),
            "layers",
            format!("crate {name:?} has no layer"),
            "give it one in LAYERS (crates/xtask/src/layers.rs) and in ARCHITECTURE.md",
        )];
    };
    let features = test_features(name, &file.text);
    let features = features.into_iter().map(|(line, feature)| {
        let what = format!("{name} enables {feature:?}, which is for suites alone");
        let remedy = "leave it to cambium-testkit, under [dev-dependencies]";
        Violation::error(&file.path, line, "layers", what, remedy)
    });
    imports(&manifest)
        .into_iter()
        .filter_map(|(section, imported)| {
            let (what, remedy) = objection(name, layer, section, &imported)?;
            let line = line_with(&file.text, &imported);
            Some(Violation::error(&file.path, line, "layers", what, remedy))
        })
        .chain(features)
        .collect()
}

/// Lines, from 1, of a manifest that enable a feature of suites in another crate, outside its
/// own suites.
fn test_features(name: &str, text: &str) -> Vec<(usize, &'static str)> {
    let mut section = "";
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.starts_with('[') {
            section = line;
        }
        let is_of_suites = section.starts_with("[dev-dependencies")
            || section == "[[test]]"
            || line.starts_with('#')
            || ENABLERS.contains(&name);
        let names = |feature: &&&str| {
            line.contains(&format!("\"{feature}\"")) || line.contains(&format!("/{feature}\""))
        };
        let feature = TEST_FEATURES.iter().find(names);
        found.extend(
            feature
                .filter(|_| !is_of_suites)
                .map(|feature| (number + 1, *feature)),
        );
    }
    found
}

/// The name a manifest gives its package.
pub(crate) fn package_name(manifest: &Table) -> &str {
    manifest
        .get("package")
        .and_then(|package| package.get("name"))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Section and package name of every dependency, those of targets included.
pub(crate) fn imports(manifest: &Table) -> Vec<(&'static str, String)> {
    let mut tables = vec![manifest];
    if let Some(targets) = manifest.get("target").and_then(Value::as_table) {
        tables.extend(targets.values().filter_map(Value::as_table));
    }
    let mut found = Vec::new();
    for table in tables {
        for &section in SECTIONS {
            let Some(dependencies) = table.get(section).and_then(Value::as_table) else {
                continue;
            };
            for (alias, details) in dependencies {
                let package = details.get("package").and_then(Value::as_str);
                found.push((section, package.unwrap_or(alias).to_string()));
            }
        }
    }
    found
}

/// What is wrong with an import, and the remedy; `None` if nothing is.
fn objection(
    importer: &str,
    layer: u8,
    section: &str,
    imported: &str,
) -> Option<(String, &'static str)> {
    if imported == TESTKIT {
        return (section != "dev-dependencies").then(|| {
            (
                format!("{importer} imports {TESTKIT} outside its tests"),
                "name it under [dev-dependencies]",
            )
        });
    }
    let Some(below) = layer_of(imported) else {
        // Crates from elsewhere have no layer; a crate of ours that is not in
        // the table is reported where it is declared.
        return None;
    };
    if below < layer {
        return None;
    }
    let what = format!(
        "{importer} (layer {layer}) imports {imported} (layer {below}): imports go strictly downward"
    );
    Some((
        what,
        "move what is shared to a lower crate, or hand it in from above through a trait",
    ))
}

/// The first line that begins with a name, from 1; 0 if there is none.
fn line_with(text: &str, name: &str) -> usize {
    let position = text.lines().position(|line| {
        let line = line
            .trim_start()
            .trim_start_matches('[')
            .trim_start_matches('"');
        let line = SECTIONS.iter().fold(line, |line, section| {
            line.strip_prefix(section)
                .and_then(|rest| rest.strip_prefix('.'))
                .unwrap_or(line)
        });
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(['.', ' ', '=', ']', '"']))
    });
    position.map_or(0, |line| line + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(dependencies: &str) -> Vec<Violation> {
        let text = format!("[package]\nname = \"cambium-storage\"\n{dependencies}");
        check(&[TextFile::new("crates/cambium-storage/Cargo.toml", &text)])
    }

    #[test]
    fn an_import_upward_is_found_with_its_line() {
        let found = violations("[dependencies]\ncambium-base = \"1\"\ncambium-zdb = \"1\"\n");
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].line, found[0].rule), (5, "layers"));
    }

    #[test]
    fn an_import_within_a_layer_is_found_in_every_form() {
        for form in [
            "[dependencies]\ncambium-api.workspace = true\n",
            "[dependencies.cambium-api]\nworkspace = true\n",
            "[dev-dependencies]\ncambium-api = \"1\"\n",
            "[build-dependencies]\ncambium-api = \"1\"\n",
            "[dependencies]\nx = { package = \"cambium-api\", version = \"1\" }\n",
            "[target.'cfg(unix)'.dependencies]\ncambium-api = \"1\"\n",
        ] {
            assert_eq!(violations(form).len(), 1, "{form}");
        }
    }

    #[test]
    fn downward_and_foreign_imports_pass() {
        let found = violations("[dependencies]\ncambium-io = \"1\"\ncrc32c = \"0.6\"\n");
        assert_eq!(found, []);
    }

    #[test]
    fn the_testkit_is_for_tests_only() {
        assert_eq!(
            violations("[dev-dependencies]\ncambium-testkit = \"1\"\n"),
            []
        );
        assert_eq!(
            violations("[dependencies]\ncambium-testkit = \"1\"\n").len(),
            1
        );
    }

    #[test]
    fn features_of_suites_are_enabled_by_the_testkit_alone() {
        for form in [
            "[dependencies]\ncambium-io = { workspace = true, features = [\"scheduled\"] }\n",
            "[features]\nall = [\"cambium-base/seeded-bugs\"]\n",
        ] {
            assert_eq!(violations(form).len(), 1, "{form}");
        }
        let own = "# The feature \"scheduled\" is for suites.\n[features]\nscheduled = []\n";
        assert_eq!(violations(own), []);
    }

    #[test]
    fn an_unknown_crate_is_found() {
        let text = "[package]\nname = \"cambium-surprise\"\n";
        let found = check(&[TextFile::new("crates/cambium-surprise/Cargo.toml", text)]);
        assert_eq!((found.len(), found[0].line), (1, 2));
    }

    #[test]
    fn no_crate_stands_in_two_layers() {
        let mut names: Vec<&str> = LAYERS.iter().flat_map(|row| row.2).copied().collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
