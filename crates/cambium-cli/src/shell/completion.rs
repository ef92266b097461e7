//! What a word can become: commands, options and their values from the table of
//! commands, namespaces and keys from the store.

use cambium::{KeyKind, KeyRange, Store};
use clap::builder::PossibleValue;
use clap::{Arg, Command};
use rustyline::completion::Completer;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

use crate::shell::words::{quoted, split};

/// Most keys that are offered.
const MOST_KEYS: usize = 100;
/// Options that take a key.
const KEY_OPTIONS: [&str; 4] = ["from", "to", "prefix", "key"];

/// Completes words of a shell.
pub struct Completion {
    /// The table of commands.
    pub table: Command,
    /// Names of those that a shell has, and its own.
    pub commands: Vec<String>,
    pub store: Store,
}

impl Completion {
    /// Where the word under the cursor begins, and what it can become.
    pub fn candidates(&self, line: &str) -> (usize, Vec<String>) {
        let Ok(split) = split(line.as_bytes()) else {
            return (line.len(), Vec::new());
        };
        let mut words = split.words;
        let last = if split.is_open { words.pop() } else { None };
        let start = last.as_ref().map_or(line.len(), |word| word.start);
        let begun = last.map(|word| word.bytes).unwrap_or_default();
        let text = String::from_utf8_lossy(&begun).into_owned();
        let Some(command) = words.first() else {
            return (start, beginning(&text, self.commands.iter().cloned()));
        };
        let name = String::from_utf8_lossy(&command.bytes).into_owned();
        if name == "help" {
            return (start, beginning(&text, self.commands.iter().cloned()));
        }
        let Some(command) = self.table.find_subcommand(&name) else {
            return (start, Vec::new());
        };
        if text.starts_with('-') {
            let options = command.get_arguments().filter_map(Arg::get_long);
            return (
                start,
                beginning(&text, options.map(|name| format!("--{name}"))),
            );
        }
        let before = words
            .last()
            .map(|word| String::from_utf8_lossy(&word.bytes));
        let option = before.as_deref().and_then(|word| word.strip_prefix("--"));
        let argument = match option {
            Some(name) => command
                .get_arguments()
                .find(|one| one.get_long() == Some(name)),
            // The path is the shell's; only the first of the others is completed.
            None if words.len() == 1 => command.get_positionals().nth(1),
            None => None,
        };
        let found = argument.map(|argument| self.values(argument, &begun, &text));
        (start, found.unwrap_or_default())
    }

    fn values(&self, argument: &Arg, begun: &[u8], text: &str) -> Vec<String> {
        let name = argument.get_id().as_str();
        if name == "namespace" || name == "drop" {
            let names = self.store.namespaces().unwrap_or_default();
            let names = names.iter().filter(|name| !name.is_empty());
            return names
                .filter(|name| name.starts_with(text))
                .map(|name| quoted(name.as_bytes()))
                .collect();
        }
        if KEY_OPTIONS.contains(&name) {
            return self.keys(begun).unwrap_or_default();
        }
        let values = argument.get_possible_values();
        beginning(
            text,
            values
                .iter()
                .map(PossibleValue::get_name)
                .map(str::to_string),
        )
    }

    /// Keys of the default namespace that begin so, where the engine has an order.
    fn keys(&self, begun: &[u8]) -> cambium::Result<Vec<String>> {
        let capabilities = self.store.capabilities();
        if !capabilities.ordered || capabilities.keys != KeyKind::Bytes {
            return Ok(Vec::new());
        }
        let mut entries = self.store.scan(KeyRange::prefix(begun))?;
        let mut keys = Vec::new();
        while let Some(key) = entries
            .next_key()
            .transpose()?
            .filter(|_| keys.len() < MOST_KEYS)
        {
            keys.push(quoted(&key));
        }
        Ok(keys)
    }
}

fn beginning(text: &str, names: impl Iterator<Item = String>) -> Vec<String> {
    names.filter(|name| name.starts_with(text)).collect()
}

/// The helper of the line editor.
pub struct Assistant(pub Completion);

impl Helper for Assistant {}

impl Highlighter for Assistant {}

impl Hinter for Assistant {
    type Hint = String;
}

impl Validator for Assistant {}

impl Completer for Assistant {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(self.0.candidates(&line[..position]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::names;
    use cambium::Options;

    #[test]
    fn words_are_completed_from_the_table_of_commands_and_the_store() {
        let folder = tempfile::tempdir().unwrap();
        let store = Options::new().create(folder.path(), "forest").unwrap();
        for key in ["oak", "oak tree", "elm", "\u{9b}"] {
            store.put(key, "").unwrap();
        }
        let people = store.namespace("people").unwrap();
        people.put("ada", "").unwrap();
        let completion = Completion {
            table: crate::shell::table(),
            commands: names(),
            store: store.clone(),
        };
        let after = |line: &str| completion.candidates(line).1;
        assert_eq!(after("ge"), ["get"]);
        assert_eq!(after("help sc"), ["scan"]);
        assert!(after("cre").is_empty() && after("").contains(&"exit".to_string()));
        assert_eq!(after("scan --keys"), ["--keys-only"]);
        assert_eq!(after("scan --format j"), ["json"]);
        assert_eq!(after("get --namespace "), ["people"]);
        assert_eq!(after("get o"), ["oak", "\"oak tree\""]);
        assert_eq!(after("count --prefix \"oak t"), ["\"oak tree\""]);
        assert_eq!(after("delete \\xc2"), ["\"\\xc2\\x9b\""]);
        assert_eq!(completion.candidates("get o").0, 4);
        assert!(after("get oak o").is_empty() && after("bogus o").is_empty());
        store.close().unwrap();
    }
}
