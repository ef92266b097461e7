//! `cambium shell`: many commands on one store, which is opened once.
//!
//! A line is the command line without `cambium` and without the store's path; it is
//! parsed by the same table ([`crate::arguments`]) and run by the same functions
//! ([`crate::commands`]). On a terminal there are editing, history and completion; of
//! what is piped in, each line is run, up to the first that fails.
//!
//! | module | what it holds |
//! |---|---|
//! | [`words`] | a line as words |
//! | [`completion`] | what a word can become |

mod completion;
mod words;

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, IsTerminal};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use cambium::Store;
use clap::{Args, CommandFactory, Parser};
use rustyline::config::{Behavior, CompletionType, Config};
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{Editor, history};

use crate::arguments::Arguments;
use crate::commands;
use crate::failure::{Failure, Status, talk};
use crate::output::print;
use crate::shell::completion::{Assistant, Completion};
use crate::stores::{Stores, closing, open_for_shell, with_progress};

/// Commands that need the store closed, or make another.
const OUTSIDE: [&str; 9] = [
    "create",
    "check",
    "inspect",
    "repair",
    "upgrade",
    "completions",
    "man",
    "read-lmdb",
    "shell",
];
/// What a shell has beside the table.
const OWN: [&str; 3] = ["help", "exit", "quit"];
/// Lines that the history keeps.
const HISTORY_LINES: usize = 1000;

#[derive(Debug, Args)]
pub struct ShellArguments {
    /// The store
    pub path: PathBuf,
    /// Go on behind a line that failed; the exit status is then the worst of all
    #[arg(short, long)]
    pub keep_going: bool,
}

/// Runs commands until their end.
pub fn run(arguments: &ShellArguments) -> Result<Status, Failure> {
    let (store, refused) = open_for_shell(&with_progress(), &arguments.path)?;
    let shell = Shell {
        stores: Stores::Kept(store.clone(), refused),
        path: arguments.path.clone(),
    };
    let outcome = match io::stdin().is_terminal() {
        true => shell.interact(&store),
        false => shell.run_script(io::stdin().lock(), arguments.keep_going),
    };
    closing(&store, outcome)
}

struct Shell {
    stores: Stores,
    path: PathBuf,
}

/// What a line asks for.
enum Step {
    Done(Status),
    Exit,
}

impl Shell {
    fn run_script(&self, mut script: impl BufRead, keep_going: bool) -> Result<Status, Failure> {
        let (mut worst, mut number) = (Status::Done, 0);
        loop {
            let mut line = Vec::new();
            let read = script.read_until(b'\n', &mut line);
            if read.map_err(|error| Failure::file(Path::new("standard input"), &error))? == 0 {
                return Ok(worst);
            }
            number += 1;
            let status = match self.run_line(&line) {
                Ok(Step::Exit) => return Ok(worst),
                Ok(Step::Done(status)) => status,
                Err(Failure::Stop { status, message }) => {
                    talk(&format!("line {number}: {message}"));
                    status
                }
                Err(gone @ Failure::ReaderGone) => return Err(gone),
            };
            worst = worst.max(status);
            if worst != Status::Done && !keep_going {
                return Ok(worst);
            }
        }
    }

    fn interact(&self, store: &Store) -> Result<Status, Failure> {
        let failed = |error: ReadlineError| Failure::failed(format!("the terminal: {error}"));
        let config = Config::builder()
            .completion_type(CompletionType::List)
            .behavior(Behavior::PreferTerm)
            .history_ignore_space(true)
            .max_history_size(HISTORY_LINES)
            .map_err(failed)?
            .build();
        let mut editor: Editor<Assistant, DefaultHistory> =
            Editor::with_history(config.clone(), history::FileHistory::with_config(&config))
                .map_err(failed)?;
        editor.set_helper(Some(Assistant(Completion {
            table: table(),
            commands: names(),
            store: store.clone(),
        })));
        let history = history_file();
        if let Some(history) = &history {
            // There is none before the first shell.
            _ = editor.load_history(history);
        }
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        let prompt = format!("{}> ", words::quoted(name.as_encoded_bytes()));
        loop {
            let line = match editor.readline(&prompt) {
                Ok(line) => line,
                Err(ReadlineError::Interrupted) => continue,
                Err(ReadlineError::Eof) => break,
                Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
                    talk(
                        "the line has a byte that is not UTF-8, and was not run; write such a byte \
                         as \\x and two digits",
                    );
                    continue;
                }
                Err(error) => return Err(failed(error)),
            };
            _ = editor.add_history_entry(&line);
            match self.run_line(line.as_bytes()) {
                Ok(Step::Exit) => break,
                Ok(Step::Done(_)) | Err(Failure::ReaderGone) => {}
                Err(Failure::Stop { message, .. }) => talk(&message),
            }
        }
        if let Some(history) = &history {
            // A history that cannot be kept keeps nobody from working.
            _ = editor.append_history(history);
        }
        Ok(Status::Done)
    }

    fn run_line(&self, line: &[u8]) -> Result<Step, Failure> {
        let line = words::split(line).map_err(Failure::usage)?;
        if line.is_quoted {
            return Err(Failure::usage(
                "a quote is not closed; a line is one command",
            ));
        }
        let mut words = line.words.into_iter().map(|word| word.bytes);
        let Some(verb) = words.next() else {
            return Ok(Step::Done(Status::Done));
        };
        let verb = String::from_utf8_lossy(&verb).into_owned();
        let rest: Vec<OsString> = words.map(OsString::from_vec).collect();
        match verb.as_str() {
            "exit" | "quit" => Ok(Step::Exit),
            "help" => help(rest.first()).map(Step::Done),
            _ => self.run_command(&verb, rest).map(Step::Done),
        }
    }

    /// Parses and runs a command, with the shell's store in front of its words.
    fn run_command(&self, verb: &str, rest: Vec<OsString>) -> Result<Status, Failure> {
        if OUTSIDE.contains(&verb) {
            self.stores.outside_of_shell(verb)?;
        }
        let table = table();
        let Some(command) = table.find_subcommand(verb) else {
            return Err(Failure::usage(format!(
                "there is no command {verb:?}; `help` lists them"
            )));
        };
        let first = command.get_positionals().next();
        let takes_store = first.is_some_and(|argument| argument.get_id() == "path");
        let path = takes_store.then(|| self.path.clone().into_os_string());
        let words = ["cambium".into(), OsString::from(verb)]
            .into_iter()
            .chain(path)
            .chain(rest);
        match Arguments::try_parse_from(words) {
            Ok(arguments) => {
                if arguments.memory.is_some() {
                    self.stores.outside_of_shell("--memory")?;
                }
                commands::run(&self.stores, &arguments.command)
            }
            Err(refusal) if refusal.use_stderr() => {
                let text = refusal.render().to_string();
                let words = text.split("\n\n").next().unwrap_or_default();
                let words = words.strip_prefix("error: ").unwrap_or(words);
                Err(Failure::usage(format!("{words}; see `help {verb}`")))
            }
            Err(shown) => {
                print(&shown.render().to_string())?;
                Ok(Status::Done)
            }
        }
    }
}

/// The table of commands, completed.
fn table() -> clap::Command {
    let mut table = Arguments::command();
    table.build();
    table
}

/// The names of what a shell can do.
fn names() -> Vec<String> {
    let table = Arguments::command();
    let commands = table
        .get_subcommands()
        .map(|command| command.get_name().to_string());
    let commands = commands.filter(|name| !OUTSIDE.contains(&name.as_str()));
    commands.chain(OWN.map(String::from)).collect()
}

/// Prints the commands, or the help of one.
fn help(command: Option<&OsString>) -> Result<Status, Failure> {
    let mut table = table();
    if let Some(name) = command {
        let Some(command) = table.find_subcommand_mut(name) else {
            return Err(Failure::usage(format!(
                "there is no command {name:?}; `help` lists them"
            )));
        };
        let text = command.render_help();
        print(&format!(
            "{text}\nIn a shell without `cambium` and without the store.\n"
        ))?;
        return Ok(Status::Done);
    }
    let mut text = String::new();
    for name in names() {
        let about = match name.as_str() {
            "help" => "This list, or `help COMMAND`".to_string(),
            "exit" | "quit" => "Leave, as Ctrl-D does".to_string(),
            _ => {
                let command = table.find_subcommand(&name);
                let about = command.and_then(clap::Command::get_about);
                about.map(ToString::to_string).unwrap_or_default()
            }
        };
        text.push_str(&format!("{name:<12} {about}\n"));
    }
    text.push_str(
        "\nQuotes and the escapes that `scan` shows (\\t \\n \\x00) work in words; # begins a comment.\n",
    );
    print(&text)?;
    Ok(Status::Done)
}

/// Where lines are kept from shell to shell; lines that begin with a blank are not.
fn history_file() -> Option<PathBuf> {
    let state = match std::env::var_os("XDG_STATE_HOME").filter(|folder| !folder.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(&std::env::var_os("HOME")?).join(".local/state"),
    };
    let folder = state.join("cambium");
    fs::create_dir_all(&folder).ok()?;
    Some(folder.join("history"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_leaves_out_is_in_the_table() {
        let table = Arguments::command();
        for name in OUTSIDE {
            assert!(table.find_subcommand(name).is_some(), "{name}");
        }
        for name in OWN {
            assert!(
                name == "help" || table.find_subcommand(name).is_none(),
                "{name}"
            );
        }
    }
}
