//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use cambium::ReadBackend;
use clap::{Args, Parser, Subcommand};

use crate::export::ExportFormat;
use crate::notation::Format;

/// Key-value stores from the command line: a log of records and an index over it.
#[derive(Debug, Parser)]
#[command(name = "cambium", version, after_help = STATUSES)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const STATUSES: &str = "\
Exit status: 0 done; 1 key not found, or findings; 2 wrong usage, or
unsupported by the engine; 3 the store, the disk or (part of) the input failed.
Data go to standard output, talk and progress to standard error.

Examples:
  cambium create trees
  cambium put trees oak Quercus
  cambium get trees oak
  cambium import trees --from files:/usr/share/doc
  cambium stats trees";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make an empty store in a folder that is empty or not there
    #[command(after_help = "\
Examples:
  cambium create trees
  cambium create years --set keys=integer
  cambium options                            every option, default and effect")]
    Create(CreateArguments),
    /// Give a key a value, synced to the device
    #[command(after_help = "\
Key and value are taken as raw bytes. One that begins with a dash goes behind `--`.

Examples:
  cambium put trees oak Quercus
  cambium put trees --hex 00ff 6f616b        key 00 ff, value oak
  cambium put trees -- -key -value
  cambium put years 1905 planted             a store with integer keys
  cambium put trees --namespace people ada Lovelace")]
    Put(PutArguments),
    /// Write the value of a key to standard output, and not a byte more
    #[command(after_help = "\
Exit status 1 if the key has no value.

Examples:
  cambium get trees oak
  cambium get trees usr/bin/ls > ls
  cambium get trees --hex 00ff               the value in hexadecimal digits, too")]
    Get(KeyArguments),
    /// Take a key away, synced to the device; no error if it is not there
    #[command(after_help = "\
Examples:
  cambium delete trees oak
  cambium delete trees --hex 00ff")]
    Delete(KeyArguments),
    /// Write entries, one a line: all of them, a range, or a prefix
    #[command(after_help = "\
Without bounds every engine can do this, in its own order. Bounds, --prefix and
--reverse need an engine that keeps keys in order; with --unordered, --prefix is
a filter over a full pass, on any engine.

Text lines are KEY TAB VALUE with tabs, line ends, backslashes and other control
characters escaped (\\t \\n \\r \\\\ \\x1b), which `import --from tsv:` reads. JSON lines
have \"key\" and \"value\" where they are UTF-8, else \"key_hex\" and \"value_hex\".

Examples:
  cambium scan trees --keys-only
  cambium scan trees --unordered --prefix usr/share/doc/
  cambium scan years --from 1900 --to 2000 --reverse --limit 10 --format json")]
    Scan(ScanArguments),
    /// Put entries from files, JSON lines, tab-separated lines or a dump
    #[command(after_help = "\
Sources:
  files:DIR    each regular file: key = path relative to DIR, value = content;
               links are not followed, unreadable files are named and left out
  jsonl:FILE   one {\"key\":..., \"value\":...} a line (or key_hex, value_hex)
  tsv:FILE     one KEY TAB VALUE a line, with \\t \\n \\r \\\\ \\xNN as escapes
  dump:FILE    what `cambium export` writes
FILE may be - for standard input. Entries go to the namespace that they were
exported from (JSON lines: \"namespace\"), else to that of --namespace.

An import is puts: doing it again gives the same store. It syncs every 10,000
entries or 64 MiB and says up to where; after an interruption, --resume goes on
behind that place. A broken line ends it with file, line and what was expected;
everything before it is in. A store that is full ends it too, and it says how many
entries are in: up to 999 before the first one that had no room are not.

Examples:
  cambium import trees --from files:/usr/share/doc
  cambium import trees --from files:/usr --limit 30000 --limit-bytes 1GiB
  cambium import trees --from jsonl:trees.jsonl --resume
  zcat trees.dump.gz | cambium import trees --from dump:-")]
    Import(ImportArguments),
    /// Write all entries of all namespaces, as of one moment
    #[command(after_help = "\
The default format is a dump: checksummed, so that damage and truncation are
noticed, and read back by `cambium import --from dump:FILE`. With --to the file
appears under its name when it is whole and on the device.

JSON lines of other namespaces than the default one have \"namespace\" as well.
Tab-separated lines have no place for it: choose one with --namespace. A namespace
without entries, named snapshots and options are not exported; `cambium backup`
keeps the first.

Examples:
  cambium export trees --to trees.dump
  cambium export trees | gzip > trees.dump.gz
  cambium export trees --format jsonl")]
    Export(ExportArguments),
    /// Write the names of all namespaces but the default one, one a line, or drop one
    #[command(after_help = "\
A namespace is made by the first put into it (engines forest and wisckey). Dropping
takes all its entries away at once, synced (engine forest); compaction gives their
space back, and a rollback to a snapshot that has them brings them back.

Examples:
  cambium namespaces trees
  cambium scan trees --namespace people
  cambium namespaces trees --drop people")]
    Namespaces(NamespacesArguments),
    /// Keep, list or let go states of a store under names
    #[command(after_help = "\
A named snapshot keeps all namespaces as they are, through crashes and compaction,
until it is deleted (engine forest). What only it reaches takes space.

Examples:
  cambium snapshot trees create before-the-move
  cambium snapshot trees list
  cambium snapshot trees delete before-the-move")]
    Snapshot(SnapshotArguments),
    /// Bring a store back to a named snapshot, durably
    #[command(after_help = "\
Every write behind the snapshot is undone, in all namespaces; the snapshot stays.

Examples:
  cambium snapshot trees create before-the-move
  cambium rollback trees before-the-move")]
    Rollback(RollbackArguments),
    /// Draw a store's index as a tree, for people
    #[command(after_help = "\
Documents are shown as offsets in the file and lengths, large trees cut short.
`cambium inspect` shows the files record by record, without opening the store.

Examples:
  cambium dump trees | less")]
    Dump(StoreArguments),
    /// Counters, sizes, space and write amplification
    #[command(after_help = "Examples:\n  cambium stats trees\n  cambium stats trees --json")]
    Stats(ReportArguments),
    /// Verify all that a store reaches without writing; exit status 1 with findings,
    /// or where a member of a mirror is missing or behind
    #[command(after_help = "\
The store must not be open. Every index and entry is read, of named snapshots too;
bytes that nothing reads any more, and compaction gives back, are not looked at.
What a crash left unfinished, and the next open drops, is a note and no finding.

Examples:
  cambium check trees && echo sound
  cambium check trees --json")]
    Check(ReportArguments),
    /// Describe a store's files: headers, blocks, records
    #[command(after_help = "Examples:\n  cambium inspect trees\n  cambium inspect trees --json")]
    Inspect(ReportArguments),
    /// Rewrite what is live and give space back
    #[command(after_help = "\
What is live goes into new files beside the old ones, which takes as much free
space. Of engine forest `cambium stats` says how much under compaction_needs_bytes,
and with less it is refused; engine wisckey gives space back as it goes, and stops
where there is none. An interruption at any moment leaves the store whole.

Options of engine forest that suit --set (`cambium options --engine forest`):
sort, coalesce_bytes, overlap, compaction_memory_bytes, compaction_rate_bytes,
compaction_snapshots. With --json each phase's busy time; phases overlap unless
overlap=off, so they may add up to more than the whole.

Examples:
  cambium compact trees
  cambium compact trees --json
  cambium compact trees --io io_uring --batch 128 --direct
  cambium compact trees --set overlap=off --set coalesce_bytes=0 --json")]
    Compact(CompactArguments),
    /// Copy a store into a folder that is empty or not there
    #[command(after_help = "\
All namespaces and named snapshots are copied, as of one moment.

Examples:
  cambium backup trees /backup/trees-monday")]
    Backup(BackupArguments),
    /// Bring a damaged store back to what can be read; exit status 1 with losses
    #[command(after_help = "\
Each loss is named. Copy the folder first if the data matter.

Examples:
  cambium check trees || cambium repair trees")]
    Repair(ReportArguments),
    /// Print every option: unit, default, effect
    #[command(after_help = "Examples:\n  cambium options\n  cambium options --engine zdb")]
    Options(OptionsArguments),
    /// Print the completions of a shell
    #[command(after_help = "\
Examples:
  cambium completions bash > /etc/bash_completion.d/cambium
  cambium completions fish > ~/.config/fish/completions/cambium.fish")]
    Completions(CompletionsArguments),
}

#[derive(Debug, Args)]
pub struct CreateArguments {
    /// The folder
    pub path: PathBuf,
    /// The engine; `cambium options` lists them. Without it, forest, or the one
    /// that has the options of --set
    #[arg(long)]
    pub engine: Option<String>,
    /// An option of the engine
    #[arg(long, value_name = "OPTION=VALUE")]
    pub set: Vec<String>,
}

#[derive(Debug, Args)]
pub struct PutArguments {
    /// The store
    pub path: PathBuf,
    /// The key
    pub key: OsString,
    /// The value
    pub value: OsString,
    /// Key and value are hexadecimal digits (keys of an integer table stay decimal)
    #[arg(long)]
    pub hex: bool,
    /// The namespace, made if it is not there; without it, the default one
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
}

#[derive(Debug, Args)]
pub struct KeyArguments {
    /// The store
    pub path: PathBuf,
    /// The key
    pub key: OsString,
    /// Key and value are hexadecimal digits (keys of an integer table stay decimal)
    #[arg(long)]
    pub hex: bool,
    /// The namespace; without it, the default one
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
}

#[derive(Debug, Args)]
pub struct ScanArguments {
    /// The store
    pub path: PathBuf,
    /// The first key
    #[arg(long, value_name = "KEY")]
    pub from: Option<OsString>,
    /// The key behind the last
    #[arg(long, value_name = "KEY")]
    pub to: Option<OsString>,
    /// What keys begin with
    #[arg(long)]
    pub prefix: Option<OsString>,
    /// From large keys to small ones
    #[arg(long)]
    pub reverse: bool,
    /// Entries to stop after
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Leave the values out
    #[arg(long)]
    pub keys_only: bool,
    /// A full pass in no order, with --prefix as a filter
    #[arg(long)]
    pub unordered: bool,
    /// --from, --to and --prefix are hexadecimal digits
    #[arg(long)]
    pub hex: bool,
    /// The namespace; without it, the default one
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// How to write entries
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Debug, Args)]
pub struct ImportArguments {
    /// The store
    pub path: PathBuf,
    /// files:DIR, jsonl:FILE, tsv:FILE or dump:FILE
    #[arg(long, value_name = "SOURCE")]
    pub from: OsString,
    /// Go on after the last synced position of an interrupted import
    #[arg(long)]
    pub resume: bool,
    /// Entries to stop after
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Bytes of keys and values to stop before passing; KiB, MiB, GiB multiply
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub limit_bytes: Option<u64>,
    /// Where entries go that name no namespace, made if it is not there
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// An option of the engine, for as long as the import takes
    #[arg(long, value_name = "OPTION=VALUE")]
    pub set: Vec<String>,
}

#[derive(Debug, Args)]
pub struct ExportArguments {
    /// The store
    pub path: PathBuf,
    /// The file, else standard output
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
    /// How to write entries
    #[arg(long, value_enum, default_value_t = ExportFormat::Dump)]
    pub format: ExportFormat,
    /// This namespace alone, its entries without its name
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
}

#[derive(Debug, Args)]
pub struct StoreArguments {
    /// The store
    pub path: PathBuf,
}

#[derive(Debug, Args)]
pub struct NamespacesArguments {
    /// The store
    pub path: PathBuf,
    /// Drop this one with all its entries, instead
    #[arg(long, value_name = "NAME")]
    pub drop: Option<String>,
}

#[derive(Debug, Args)]
pub struct SnapshotArguments {
    /// The store
    pub path: PathBuf,
    /// What to do
    #[command(subcommand)]
    pub action: SnapshotAction,
}

/// What is done with named snapshots.
#[derive(Debug, Subcommand)]
pub enum SnapshotAction {
    /// Keep the state now under a name
    Create {
        /// The name, 1 to 255 bytes
        name: String,
    },
    /// Write names, a tab, and the last write that each sees
    List,
    /// Let a kept state go
    Delete {
        /// The name
        name: String,
    },
}

#[derive(Debug, Args)]
pub struct RollbackArguments {
    /// The store
    pub path: PathBuf,
    /// The name of the snapshot
    pub name: String,
}

#[derive(Debug, Args)]
pub struct ReportArguments {
    /// The store
    pub path: PathBuf,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct CompactArguments {
    /// The store
    pub path: PathBuf,
    /// How reads reach the kernel: sync, aio or io_uring
    #[arg(long, value_name = "BACKEND", value_parser = backend)]
    pub io: Option<ReadBackend>,
    /// Reads under way at once, 1 to 1024
    #[arg(long, value_name = "N")]
    pub batch: Option<usize>,
    /// Bypass the operating system's cache
    #[arg(long)]
    pub direct: bool,
    /// An option of the engine
    #[arg(long, value_name = "OPTION=VALUE")]
    pub set: Vec<String>,
    /// Answer in JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct BackupArguments {
    /// The store
    pub path: PathBuf,
    /// The folder of the copy, empty or not there
    pub destination: PathBuf,
}

#[derive(Debug, Args)]
pub struct OptionsArguments {
    /// Of this engine alone
    #[arg(long)]
    pub engine: Option<String>,
}

#[derive(Debug, Args)]
pub struct CompletionsArguments {
    /// The shell
    pub shell: clap_complete::Shell,
}

fn bytes(text: &str) -> Result<u64, String> {
    cambium::parse_bytes(text).ok_or_else(|| "expected a number, with KiB, MiB or GiB".to_string())
}

fn backend(text: &str) -> Result<ReadBackend, String> {
    text.parse()
        .map_err(|_| "expected sync, aio or io_uring".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent_and_each_command_shows_examples() {
        Arguments::command().debug_assert();
        for command in Arguments::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string);
            let name = command.get_name();
            assert!(
                help.is_some_and(|help| help.contains("Examples:\n  ")),
                "{name}"
            );
        }
    }
}
