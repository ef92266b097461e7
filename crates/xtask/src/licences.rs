//! The crates of others that programs and libraries contain: their licences, that each is there
//! once, and that none needs a newer Rust than ours.
//!
//! `cargo metadata` names the crates. [`check`] looks at those that the published crates need,
//! without what only tests need; [`list`] is a line for each, which packages carry.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::violation::Violation;

/// Licences that allow to link their code into programs of any licence.
const ALLOWED: &[&str] = &[
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];

/// Crates that may be there in several versions, and why.
const SEVERAL: &[(&str, &str)] = &[(
    "embedded-io",
    "postcard names both for features that are off",
)];

/// A crate of others.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Foreign {
    name: String,
    version: String,
    licence: String,
    /// It needs a newer Rust than the workspace promises to build with.
    too_new: bool,
}

/// The crates that the published crates of the workspace at `root` need on Linux.
///
/// # Errors
/// If Cargo does not answer as it is known to.
pub fn foreign(root: &Path) -> io::Result<Vec<Foreign>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let said = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(["--filter-platform", &platform])
        .current_dir(root)
        .output()?;
    if !said.status.success() {
        return Err(io::Error::other(
            String::from_utf8_lossy(&said.stderr).into_owned(),
        ));
    }
    let metadata: Value = serde_json::from_slice(&said.stdout)?;
    needed(&metadata)
        .ok_or_else(|| io::Error::other("cargo metadata answers in a form that is not known"))
}

fn needed(metadata: &Value) -> Option<Vec<Foreign>> {
    let by_id = |list: &'_ Value| -> Option<BTreeMap<String, Value>> {
        let entries = list.as_array()?.iter();
        entries
            .map(|entry| Some((entry["id"].as_str()?.to_string(), entry.clone())))
            .collect()
    };
    let packages = by_id(&metadata["packages"])?;
    let nodes = by_id(&metadata["resolve"]["nodes"])?;
    let members: BTreeSet<&str> = metadata["workspace_members"]
        .as_array()?
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let published = members
        .iter()
        .filter(|id| packages.get(**id).is_some_and(|it| it["publish"].is_null()));
    let mut left: Vec<&str> = published.copied().collect();
    let mut seen: BTreeSet<&str> = left.iter().copied().collect();
    while let Some(id) = left.pop() {
        for dependency in nodes.get(id)?["deps"].as_array()? {
            let mut kinds = dependency["dep_kinds"].as_array()?.iter();
            let id = dependency["pkg"].as_str()?;
            if kinds.any(|kind| kind["kind"].is_null()) && seen.insert(id) {
                left.push(id);
            }
        }
    }
    // Rust versions as numbers; one that is not given is 0.
    let rust = |package: &Value| -> Vec<u32> {
        let text = package["rust_version"].as_str().unwrap_or_default();
        text.split('.')
            .filter_map(|part| part.parse().ok())
            .collect()
    };
    let ours = members
        .iter()
        .filter_map(|id| packages.get(*id))
        .map(rust)
        .max()?;
    let foreign = seen.iter().filter(|id| !members.contains(*id));
    let mut found: Vec<Foreign> = foreign
        .map(|id| {
            let package = packages.get(*id)?;
            let text = |field: &str| package[field].as_str().map(String::from);
            Some(Foreign {
                name: text("name")?,
                version: text("version")?,
                licence: text("license").unwrap_or_default(),
                // 1.85 and 1.85.0 are the same.
                too_new: rust(package).iter().take(2).gt(ours.iter().take(2)),
            })
        })
        .collect::<Option<_>>()?;
    found.sort();
    Some(found)
}

/// A line for each crate.
pub fn list(crates: &[Foreign]) -> String {
    let lines = crates
        .iter()
        .map(|it| format!("{} {}: {}\n", it.name, it.version, it.licence));
    lines.collect()
}

/// Crates whose licence is not allowed, and those that are there in several versions.
pub fn check(crates: &[Foreign]) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut report = |what: String, remedy: &str| {
        found.push(Violation::error("Cargo.lock", 0, "licences", what, remedy));
    };
    for it in crates.iter().filter(|it| !allowed(&it.licence)) {
        let what = format!(
            "{} {} has the licence {:?}",
            it.name, it.version, it.licence
        );
        report(what, "do without the crate, or allow the licence");
    }
    for it in crates.iter().filter(|it| it.too_new) {
        let what = format!(
            "{} {} needs a newer Rust than rust-version",
            it.name, it.version
        );
        report(
            what,
            "take an older version of the crate, or raise rust-version and say so",
        );
    }
    for pair in crates
        .windows(2)
        .filter(|pair| pair[0].name == pair[1].name)
    {
        if !SEVERAL.iter().any(|(name, _)| *name == pair[0].name) {
            let what = format!(
                "{} is there as {} and {}",
                pair[0].name, pair[0].version, pair[1].version
            );
            report(what, "update one of those that need it, or say why not");
        }
    }
    found
}

/// Whether an expression of SPDX can be met by allowed licences alone.
fn allowed(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ");
    parts(&expression, " OR ").into_iter().any(|choice| {
        parts(choice, " AND ").into_iter().all(|term| {
            let inner = term.strip_prefix('(').and_then(|it| it.strip_suffix(')'));
            inner.map_or_else(|| ALLOWED.contains(&term), allowed)
        })
    })
}

/// The parts of an expression between words that stand outside of brackets.
fn parts<'text>(text: &'text str, between: &str) -> Vec<&'text str> {
    let mut found = Vec::new();
    let mut begin = 0;
    for (at, _) in text.match_indices(between) {
        let depth = |bracket: char| text[begin..at].matches(bracket).count();
        if depth('(') == depth(')') {
            found.push(text[begin..at].trim());
            begin = at + between.len();
        }
    }
    found.push(text[begin..].trim());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_met_by_allowed_licences() {
        for (expression, expected) in [
            ("MIT", true),
            ("MIT/Apache-2.0", true),
            ("GPL-3.0", false),
            ("GPL-3.0 OR MIT", true),
            ("MIT AND GPL-3.0", false),
            ("(MIT OR GPL-3.0) AND Unicode-3.0", true),
            ("(MIT AND GPL-3.0) OR GPL-2.0", false),
            ("", false),
        ] {
            assert_eq!(allowed(expression), expected, "{expression}");
        }
    }

    #[test]
    fn crates_that_are_there_twice_are_found() {
        let foreign = |name: &str, version: &str| Foreign {
            name: name.to_string(),
            version: version.to_string(),
            licence: "MIT".to_string(),
            too_new: version == "3.0.0",
        };
        let crates = [
            foreign("a", "1.0.0"),
            foreign("a", "2.0.0"),
            foreign("b", "1.0.0"),
        ];
        assert_eq!(check(&crates).len(), 1);
        assert_eq!(check(&crates[1..]), []);
        assert_eq!(list(&crates[2..]), "b 1.0.0: MIT\n");
        assert_eq!(check(&[foreign("c", "3.0.0")]).len(), 1, "its Rust");
    }

    #[test]
    fn only_what_published_crates_need_counts() {
        let package = |id: &str, publish: Value| serde_json::json!({"id": id, "name": id, "version": "1.0.0", "license": "MIT", "publish": publish, "rust_version": if id == "linked" { "1.86.0" } else { "1.85" }});
        let dependency =
            |id: &str, kind: Value| serde_json::json!({"pkg": id, "dep_kinds": [{"kind": kind}]});
        let metadata = serde_json::json!({
            "packages": [
                package("ours", Value::Null), package("internal", Value::Array(Vec::new())),
                package("linked", Value::Null), package("tests", Value::Null),
                package("of-internal", Value::Null),
            ],
            "resolve": {"nodes": [
                {"id": "ours", "deps": [dependency("linked", Value::Null), dependency("tests", "dev".into())]},
                {"id": "internal", "deps": [dependency("of-internal", Value::Null)]},
                {"id": "linked", "deps": []}, {"id": "tests", "deps": []}, {"id": "of-internal", "deps": []},
            ]},
            "workspace_members": ["ours", "internal"],
        });
        let found = needed(&metadata).unwrap();
        assert_eq!(list(&found), "linked 1.0.0: MIT\n");
        assert!(found[0].too_new);
    }
}
