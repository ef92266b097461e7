//! The metadata that a crate needs to be published.
//!
//! A crate says `publish = false`, or has what the registry shows of it. Dependencies within
//! the workspace name the workspace's version, except on crates that are not published: those
//! may only be development dependencies, which a package leaves out.

use toml::{Table, Value};

use crate::layers::is_manifest;
use crate::violation::Violation;
use crate::workspace::TextFile;

/// The fields that the registry shows.
const SHOWN: &[&str] = &[
    "description",
    "license",
    "repository",
    "readme",
    "keywords",
    "categories",
];

/// Checks the manifests.
pub fn check(files: &[TextFile]) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut internal = Vec::new();
    for file in files.iter().filter(|file| is_manifest(&file.path)) {
        let Ok(manifest) = file.text.parse::<Table>() else {
            continue;
        };
        let Some(package) = manifest.get("package").and_then(Value::as_table) else {
            continue;
        };
        if package.get("publish").and_then(Value::as_bool) == Some(false) {
            internal.extend(
                package
                    .get("name")
                    .and_then(Value::as_str)
                    .map(String::from),
            );
            continue;
        }
        for field in SHOWN.iter().filter(|field| !package.contains_key(**field)) {
            let what = format!("the package has no {field}");
            let remedy = "add it, or publish = false";
            found.push(Violation::error(&file.path, 0, "packages", what, remedy));
        }
    }
    let root = files.iter().find(|file| file.path == "Cargo.toml");
    if let Some(Ok(root)) = root.map(|file| file.text.parse::<Table>()) {
        found.extend(dependencies(&root, &internal));
    }
    found
}

fn dependencies(root: &Table, internal: &[String]) -> Vec<Violation> {
    let workspace = root.get("workspace");
    let version = workspace.and_then(|it| it.get("package")?.get("version"));
    let all = workspace.and_then(|it| it.get("dependencies")?.as_table());
    let local = all
        .into_iter()
        .flatten()
        .filter(|(_, dependency)| dependency.get("path").is_some());
    let wrong = local.filter(|(name, dependency)| {
        let expected = version.filter(|_| !internal.contains(name));
        dependency.get("version") != expected
    });
    wrong
        .map(|(name, _)| {
            let what = format!("the dependency {name} has not the version that it needs");
            let remedy = "give the workspace's version, and none to a crate that is not published";
            Violation::error("Cargo.toml", 0, "packages", what, remedy)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(package: &str, dependencies: &str) -> usize {
        let manifest = format!("[package]\nname = \"cambium-a\"\n{package}");
        let root = format!(
            "[workspace.package]\nversion = \"1.2.0\"\n[workspace.dependencies]\n{dependencies}"
        );
        check(&[
            TextFile::new("crates/cambium-a/Cargo.toml", &manifest),
            TextFile::new("Cargo.toml", &root),
        ])
        .len()
    }

    #[test]
    fn a_package_without_a_field_is_found() {
        let mut whole = String::new();
        for field in SHOWN {
            whole += &format!("{field} = \"x\"\n");
        }
        assert_eq!(found(&whole, ""), 0);
        assert_eq!(found("", ""), SHOWN.len());
        assert_eq!(found("publish = false\n", ""), 0);
    }

    #[test]
    fn a_dependency_of_another_version_is_found() {
        let internal = "publish = false\n";
        let with =
            |version: &str| format!("cambium-b = {{ path = \"b\", version = \"{version}\" }}");
        assert_eq!(found(internal, &with("1.2.0")), 0);
        assert_eq!(found(internal, &with("1.1.0")), 1);
        assert_eq!(found(internal, "cambium-b = { path = \"b\" }"), 1);
        assert_eq!(found(internal, "cambium-a = { path = \"a\" }"), 0);
    }
}
