//! Job files: options of `kvzone run` as TOML, under their own names.
//!
//! What is wrong in one is told with the line and the column: `job FILE:3:12:
//! ...`. Each option is first looked at by itself, with the parser of the
//! command line, so that both refuse the same with the same words; what only
//! several together can get wrong is told without a place.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Range;
use std::path::Path;

use clap::{CommandFactory, Parser};
use kvzone_core::error::{Error, Result};
use kvzone_core::names::unknown;
use toml::Spanned;
use toml::Value::{Array, Boolean, Float, Integer, String as Text};

use super::RunArguments;

/// The options alone, to parse them again with a job file's in front.
#[derive(Debug, Parser)]
struct JobCommand {
    #[command(flatten)]
    arguments: RunArguments,
}

/// What is on the command line, and beneath it what the job file has besides.
pub(super) fn with_job_file(path: &Path, typed: Vec<OsString>) -> Result<RunArguments> {
    let mut words: Vec<OsString> = vec!["kvzone run".into()];
    words.extend(job_words(path, &typed)?.into_iter().map(OsString::from));
    words.extend(typed);
    let parsed = JobCommand::try_parse_from(words).map_err(|error| {
        Error::Usage(format!(
            "job {}: {}",
            path.display(),
            plain(&error.to_string())
        ))
    })?;
    Ok(parsed.arguments)
}

/// clap's message without its own heading and usage.
fn plain(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    first.trim_start_matches("error: ").to_string()
}

/// A job file's text, to say where in it something is wrong.
struct Source<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    fn wrong(&self, at: &Range<usize>, why: &str) -> Error {
        let before = &self.text[..at.start.min(self.text.len())];
        let line = before.matches('\n').count() + 1;
        let begin = before.rfind('\n').map_or(0, |end| end + 1);
        let column = before[begin..].chars().count() + 1;
        Error::Usage(format!(
            "job {}:{line}:{column}: {why}",
            self.path.display()
        ))
    }
}

/// The options in a job file that `typed` does not have, as words.
fn job_words(path: &Path, typed: &[OsString]) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Error::machine("read the job", path, error))?;
    let source = Source { path, text: &text };
    let table: BTreeMap<Spanned<String>, Spanned<toml::Value>> =
        toml::from_str(&text).map_err(|error| {
            let at = error.span().unwrap_or_default();
            source.wrong(&at, error.message())
        })?;
    let is_typed = |name: &str| {
        let option = format!("--{name}");
        typed.iter().filter_map(|word| word.to_str()).any(|word| {
            word == option || word.split_once('=').is_some_and(|(head, _)| head == option)
        })
    };
    let length_is_typed = is_typed("operations") || is_typed("seconds");
    let mut words = Vec::new();
    for (name, value) in &table {
        let of_option = option_words(&source, name, value)?;
        let replaced = match name.as_ref().as_str() {
            "set" => false,
            "operations" | "seconds" => length_is_typed,
            other => is_typed(other),
        };
        if !replaced {
            words.extend(of_option);
        }
    }
    Ok(words)
}

/// An option of a job file as words of the command line, if it is one there.
fn option_words(
    source: &Source<'_>,
    name: &Spanned<String>,
    value: &Spanned<toml::Value>,
) -> Result<Vec<String>> {
    let option = name.as_ref().as_str();
    let known = JobCommand::command();
    let names = || known.get_arguments().filter_map(|known| known.get_long());
    if option == "job" {
        return Err(source.wrong(&name.span(), "a job names no other job"));
    }
    if !names().any(|known| known == option) {
        let why = unknown("option", option, names().filter(|&known| known != "job"));
        return Err(source.wrong(&name.span(), &why));
    }
    let words = words_of(option, value.as_ref())
        .map_err(|why| source.wrong(&value.span(), &format!("{option}: {why}")))?;
    // What `run` demands, so that this option alone is judged.
    let mut alone = vec!["kvzone run".to_string()];
    for (demanded, example) in [("stores", "memory"), ("workload", "fill-random")] {
        if demanded != option {
            alone.push(format!("--{demanded}={example}"));
        }
    }
    alone.extend(words.iter().cloned());
    match JobCommand::try_parse_from(alone) {
        Err(error) if is_about_the_value(error.kind()) => {
            Err(source.wrong(&value.span(), &plain(&error.to_string())))
        }
        _ => Ok(words),
    }
}

/// Other kinds are about options that belong together.
fn is_about_the_value(kind: clap::error::ErrorKind) -> bool {
    use clap::error::ErrorKind;
    matches!(
        kind,
        ErrorKind::InvalidValue
            | ErrorKind::ValueValidation
            | ErrorKind::TooManyValues
            | ErrorKind::TooFewValues
            | ErrorKind::WrongNumberOfValues
    )
}

fn words_of(name: &str, value: &toml::Value) -> std::result::Result<Vec<String>, &'static str> {
    let scalar = |value: &toml::Value| match value {
        Text(text) => Ok(text.clone()),
        Integer(number) => Ok(number.to_string()),
        Float(number) => Ok(number.to_string()),
        _ => Err("neither text nor a number"),
    };
    Ok(match value {
        Boolean(true) => vec![format!("--{name}")],
        Boolean(false) => Vec::new(),
        Array(values) if name == "set" => values
            .iter()
            .map(|value| Ok(format!("--{name}={}", scalar(value)?)))
            .collect::<std::result::Result<_, _>>()?,
        Array(values) => {
            let all: Vec<String> = values
                .iter()
                .map(scalar)
                .collect::<std::result::Result<_, _>>()?;
            vec![format!("--{name}={}", all.join(","))]
        }
        value => vec![format!("--{name}={}", scalar(value)?)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str, typed: &[&str]) -> std::result::Result<Vec<String>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job.toml");
        std::fs::write(&path, text).unwrap();
        let typed: Vec<OsString> = typed.iter().map(OsString::from).collect();
        let found = job_words(&path, &typed).map_err(|error| error.to_string());
        found.map_err(|error| error.replace(&path.display().to_string(), "FILE"))
    }

    #[test]
    fn a_job_file_gives_what_the_command_line_does_not() {
        let text = "stores = [\"zdb\", \"leveldb\"]\nkey-size = 16\ncold = true\nreopen = false\n\
            operations = 5\nset = [\"zdb.a=1\", \"leveldb.b=2\"]\n";
        let mut words = words(text, &["--key-size=8", "--seconds", "3"]).unwrap();
        words.sort();
        let expected = [
            "--cold",
            "--set=leveldb.b=2",
            "--set=zdb.a=1",
            "--stores=zdb,leveldb",
        ];
        assert_eq!(words, expected);
        assert!(job_words(Path::new("none"), &[]).is_err());
    }

    #[test]
    fn what_is_wrong_is_told_with_line_and_column() {
        let cases = [
            ("keys = [", "job FILE:1:"),
            (
                "keys = 5\nkeyz = 3\n",
                "job FILE:2:1: there is no option \"keyz\"; near it: keys",
            ),
            (
                "keys = 5\nthreads = \"x\"\n",
                "job FILE:2:11: invalid value 'x' for '--threads",
            ),
            (
                "key-size = \"16-\" # no\n",
                "job FILE:1:12: invalid value '16-'",
            ),
            (
                "durability = \"forever\"",
                "job FILE:1:14: invalid value 'forever'",
            ),
            (
                "keys = { a = 1 }",
                "job FILE:1:8: keys: neither text nor a number",
            ),
            ("job = \"other\"", "job FILE:1:1: a job names no other job"),
        ];
        for (text, expected) in cases {
            let error = words(text, &[]).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
