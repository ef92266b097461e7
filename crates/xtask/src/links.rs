//! Links between documents lead somewhere.
//!
//! Every `[text](target)` of a markdown file is followed: a relative target
//! must be a file or folder of the workspace, and an `#anchor` into markdown
//! must be a heading there. Links to other hosts are not followed: a check
//! that needs the network fails for reasons that are not ours.

use std::collections::BTreeSet;

use crate::violation::Violation;
use crate::workspace::TextFile;

/// Checks every markdown file.
pub fn check(files: &[TextFile]) -> Vec<Violation> {
    let paths: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let documents = files.iter().filter(|file| file.path.ends_with(".md"));
    documents
        .flat_map(|file| {
            links(&file.text)
                .into_iter()
                .filter_map(|(line, target)| {
                    let what = objection(files, &paths, &file.path, &target)?;
                    let remedy = "mend the target or take the link out";
                    Some(Violation::error(&file.path, line, "link", what, remedy))
                })
                .collect::<Vec<_>>()
        })
        .collect()
}

fn objection(
    files: &[TextFile],
    paths: &BTreeSet<&str>,
    from: &str,
    target: &str,
) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let Some(path) = resolve(from, path) else {
        return Some(format!("link {target:?} leads out of the workspace"));
    };
    let folder = format!("{path}/");
    let is_folder = path.is_empty() || paths.iter().any(|other| other.starts_with(&folder));
    if !paths.contains(path.as_str()) && !is_folder {
        return Some(format!("link {target:?}: there is no {path}"));
    }
    let document = files.iter().find(|file| file.path == path)?;
    let known = anchor.is_empty()
        || !path.ends_with(".md")
        || headings(&document.text).any(|heading| heading == anchor);
    (!known).then(|| format!("link {target:?}: {path} has no such heading"))
}

/// The path that a link means, relative to the root; `None` above the root.
pub(crate) fn resolve(from: &str, target: &str) -> Option<String> {
    if target.is_empty() {
        return Some(from.to_string());
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// A part of a markdown file: all parts together are the file.
pub(crate) enum Piece<'text> {
    /// Prose or code.
    Text(&'text str),
    /// The target of a link outside code.
    Target(&'text str),
}

/// A markdown file as text and targets of links.
pub(crate) fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut found = Vec::new();
    let mut fenced = false;
    for line in text.split_inclusive('\n') {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if fenced || fence {
            found.push(Piece::Text(line));
            continue;
        }
        let mut begin = 0;
        for (at, _) in line.match_indices("](") {
            let target = at + 2;
            // An odd number of backquotes before it: the middle of code.
            let code = line[..at].matches('`').count() % 2 == 1;
            let Some(length) = line[target..].find([')', ' ']) else {
                continue;
            };
            if !code {
                found.push(Piece::Text(&line[begin..target]));
                found.push(Piece::Target(&line[target..target + length]));
                begin = target + length;
            }
        }
        found.push(Piece::Text(&line[begin..]));
    }
    found
}

/// Line and target of every link outside code.
pub(crate) fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut line = 1;
    for piece in pieces(text) {
        match piece {
            Piece::Text(text) => line += text.matches('\n').count(),
            Piece::Target(target) => found.push((line, target.to_string())),
        }
    }
    found
}

/// Lines outside fenced code, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines()
        .enumerate()
        .map(|(position, line)| (position + 1, line))
        .filter(move |(_, line)| {
            let fence = line.trim_start().starts_with("```");
            fenced ^= fence;
            !fenced && !fence
        })
}

/// Anchors of a document's headings, as hosts of markdown make them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    prose(text)
        .filter(|(_, line)| line.starts_with('#'))
        .map(|(_, line)| {
            line.trim_start_matches('#')
                .trim()
                .to_lowercase()
                .chars()
                .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter))
                .map(|letter| if letter == ' ' { '-' } else { letter })
                .collect()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(text: &str) -> Vec<usize> {
        let files = [
            TextFile::new("docs/a.md", text),
            TextFile::new("docs/b.md", "# Big, bold heading\n"),
            TextFile::new("README.md", "# Title\n"),
        ];
        check(&files).iter().map(|found| found.line).collect()
    }

    #[test]
    fn links_to_nowhere_are_found() {
        for target in [
            "c.md",
            "../docs/c.md",
            "../../x.md",
            "b.md#small",
            "#nothing",
            "/etc/passwd",
        ] {
            assert_eq!(broken(&format!("\n[x]({target})")), [2], "{target}");
        }
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        for target in [
            "b.md",
            "./b.md",
            "../README.md#title",
            "../docs/",
            "b.md#big-bold-heading",
            "https://example.org/x.md",
        ] {
            assert_eq!(broken(&format!("[x]({target})")), [0; 0], "{target}");
        }
    }

    #[test]
    fn code_holds_no_links() {
        assert_eq!(broken("`a[0](x)`\n```\n[x](nowhere.md)\n```\n"), [0; 0]);
        assert_eq!(broken("[`code`](nowhere.md)"), [1]);
    }
}
