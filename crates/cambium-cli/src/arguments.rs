//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::backup::{BackupArguments, BackupsArguments, RestoreArguments};
use crate::changes::{ChangesArguments, ConsumersArguments};
use crate::cluster::ClusterArguments;
use crate::copy::CopyArguments;
use crate::count::CountArguments;
use crate::create::CreateArguments;
use crate::delete::DeleteArguments;
use crate::expire::ExpireArguments;
use crate::export::ExportArguments;
use crate::get::GetArguments;
use crate::import::ImportArguments;
use crate::namespaces::NamespacesArguments;
use crate::options::{CompletionsArguments, ManArguments, OptionsArguments};
use crate::put::PutArguments;
use crate::reports::{CompactArguments, MendArguments, ReportArguments};
use crate::scan::ScanArguments;
use crate::shell::ShellArguments;
use crate::snapshots::{RollbackArguments, SnapshotArguments};
use crate::stats::StatsArguments;
use crate::upgrade::UpgradeArguments;

/// Key-value stores from the command line: a log of records and an index over it.
#[derive(Debug, Parser)]
#[command(name = "cambium", version, after_help = STATUSES)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Memory that all stores of the command may take together, such as 256MiB
    #[arg(long, global = true, value_name = "BYTES", value_parser = bytes)]
    pub memory: Option<u64>,
    /// How long to wait for a store that another process has open: 10s, 5m
    #[arg(long, global = true, value_name = "TIME", value_parser = time)]
    pub wait: Option<Duration>,
}

/// A number of bytes, for clap.
pub fn bytes(text: &str) -> Result<u64, String> {
    cambium::parse_bytes(text).ok_or_else(|| "expected a number, with KiB, MiB or GiB".to_string())
}

/// A time as `90s`, `10m`, `12h` or `30d`.
pub fn time(text: &str) -> Result<Duration, String> {
    let expected = || "expected a number with s, m, h or d: 90s, 10m".to_string();
    let unit = text.chars().last().ok_or_else(expected)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(expected()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| expected())?;
    let seconds = number.checked_mul(seconds).filter(|&it| it <= LONGEST);
    match seconds.ok_or("a time of up to 10,000 years is expected")? {
        0 => Err("a time above 0 is expected".to_string()),
        seconds => Ok(Duration::from_secs(seconds)),
    }
}

/// Seconds of 10,000 years.
const LONGEST: u64 = 10_000 * 366 * 86_400;

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
The value `-` is all of standard input.

Examples:
  cambium put trees oak Quercus
  cambium put trees --hex 00ff 6f616b        key 00 ff, value oak
  cambium put trees -- -key -value
  cambium put trees oak --value-file oak.jpg
  cambium put trees leaf green --ttl 30d     not there any more after 30 days
  tar c bark | cambium put trees bark -
  cambium put years 1905 planted             a store with integer keys
  cambium put trees --namespace people ada Lovelace")]
    Put(PutArguments),
    /// Show when an entry expires, let it expire after a time, or keep it
    #[command(after_help = "\
Writes the date (UTC), or `never`. Exit status 1 if the key has no value.

Examples:
  cambium expire trees leaf                  when is it not there any more?
  cambium expire trees leaf 12h              after twelve hours
  cambium expire trees leaf --never")]
    Expire(ExpireArguments),
    /// Write the value of a key to standard output, and not a byte more
    #[command(after_help = "\
Exit status 1 if the key has no value. On a terminal, and there alone, a value that
is not printable is shown escaped, as `scan` does, and a line end follows.

Examples:
  cambium get trees oak
  cambium get trees usr/bin/ls > ls
  cambium get trees --hex 00ff               the value in hexadecimal digits, too")]
    Get(GetArguments),
    /// Take keys away, synced to the device: one, a range, or those with a prefix
    #[command(after_help = "\
A key that is not there is no error. A range goes whole or not at all, and its count
is printed; with --unordered, --prefix is a filter over a full pass, on any engine,
and an interruption may leave a part.

Examples:
  cambium delete trees oak
  cambium delete trees --hex 00ff
  cambium delete trees --prefix usr/share/doc/ --dry-run
  cambium delete years --from 1900 --to 2000")]
    Delete(DeleteArguments),
    /// Write entries, one a line: all of them, a range, or a prefix
    #[command(after_help = "\
Without bounds every engine can do this, in its own order. Bounds, --prefix and
--reverse need an engine that keeps keys in order; with --unordered, --prefix is
a filter over a full pass, on any engine.

Text lines are KEY TAB VALUE with tabs, line ends, backslashes and other control
characters escaped (\\t \\n \\r \\\\ \\x1b), which `import --from tsv:` reads; on a
terminal, bytes that are no UTF-8 and characters that do not show as well. JSON lines
have \"key\" and \"value\" where they are UTF-8, else \"key_hex\" and \"value_hex\".

Examples:
  cambium scan trees --keys-only
  cambium scan trees --unordered --prefix usr/share/doc/
  cambium scan years --from 1900 --to 2000 --reverse --limit 10 --format json")]
    Scan(ScanArguments),
    /// Count entries: all of them, a range, or a prefix
    #[command(after_help = "\
Every key is read, and no value where the engine can do that.

Examples:
  cambium count trees
  cambium count trees --prefix usr/share/doc/
  cambium count years --from 1900 --to 2000")]
    Count(CountArguments),
    /// Put entries from files, lines, a dump, or a store of LevelDB, RocksDB, LMDB, SQLite or Redis
    #[command(after_help = "\
Sources:
  files:DIR    each regular file: key = path relative to DIR, value = content;
               links are not followed, unreadable files are named and left out
  jsonl:FILE   one {\"key\":..., \"value\":...} a line (or key_hex, value_hex)
  tsv:FILE     one KEY TAB VALUE a line, with \\t \\n \\r \\\\ \\xNN as escapes
  dump:FILE    what `cambium export` writes
  leveldb:DIR  a folder of LevelDB, which opening it writes to, as LevelDB does
  rocksdb:DIR  a folder of RocksDB, only read; each column family is a namespace
  lmdb:FILE    a file or folder of LMDB, only read; each named database is a namespace
  sqlite:FILE#TABLE  key = primary key (or the row's number, or a view's first column),
               value = the other column, or a JSON object of several
  redis:HOST:PORT    or redis:HOST:PORT/DATABASE: the keys that hold strings, with
               their times to live; a password is taken from REDISCLI_AUTH
The first four of stores need their library; where it is missing, the message says
which, and the folder of one that is not installed is named by KVZONE_PEER_LIBS.
What has no place here (types, several values a key) is named and left out.
FILE of the first kinds may be - for standard input. Entries go to the namespace that they were
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
  zcat trees.dump.gz | cambium import trees --from dump:-
  cambium import trees --from leveldb:/var/lib/forest
  cambium import trees --from sqlite:trees.db#species
  cambium import trees --from redis:localhost:6379 --namespace cache")]
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
takes all its entries away at once, synced; compaction gives their space back, and
a rollback to a snapshot that has them brings them back.

Examples:
  cambium namespaces trees
  cambium scan trees --namespace people
  cambium namespaces trees --drop people")]
    Namespaces(NamespacesArguments),
    /// Keep, list or let go states of a store under names
    #[command(after_help = "\
A named snapshot keeps all namespaces as they are, through crashes and compaction,
until it is deleted (engines forest and wisckey). What only it reaches takes space.

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
    /// Write the batches that were committed, in order, from the store's own log
    #[command(after_help = "\
A line of JSON is a batch: the numbers of its first and last entry, whether it is synced,
and its changes, written as `export` writes entries. A line of text is one change. Where
the log no longer has the changes that were asked for, the error says which it still has.

A consumer keeps its position in the store, and the log behind it. One that is new begins
behind the store's last change, or behind --after. It moves when what was read has been
handed to standard output.

With --follow the store is opened whenever it was written, for a moment. On forest the changes
come while another program writes, on other engines when it has closed the store. Without
--consumer the log behind them may be given back before they are read.

Examples:
  cambium changes trees
  cambium changes trees --after 1200 --synced --format text
  cambium changes trees --follow --consumer mirror | ./mirror")]
    Changes(ChangesArguments),
    /// Write names of consumers of changes, a tab, and the last change each is done with
    #[command(after_help = "\
A consumer keeps the log that it has not read yet, up to the option history_bytes.

Examples:
  cambium consumers trees
  cambium consumers trees --remove mirror")]
    Consumers(ConsumersArguments),
    /// Draw a store's index as a tree, for people
    #[command(after_help = "\
Documents are shown as offsets in the file and lengths, large trees cut short.
`cambium inspect` shows the files record by record, without opening the store.

Examples:
  cambium dump trees | less")]
    Dump(StoreArguments),
    /// Make, show and change a cluster of servers, which is kept in etcd
    #[command(after_help = "\
Examples:
  cambium cluster init --nodes 3 --replicas 3
  cambium cluster status
  cambium cluster drain node2                move its copies away before it is switched off")]
    Cluster(ClusterArguments),
    /// Counters, sizes, space and write amplification
    #[command(after_help = "\
The ten lines that matter most; --all and --json have every one.

Examples:
  cambium stats trees
  cambium stats trees --all
  cambium stats trees --json")]
    Stats(StatsArguments),
    /// Verify all that a store reaches without writing; exit status 1 with findings,
    /// or where a member of a mirror is missing or behind
    #[command(after_help = "\
The store must not be open. Every index and entry is read, of named snapshots too;
bytes that nothing reads any more, and compaction gives back, are not looked at.
What a crash left unfinished, and the next open drops, is a note and no finding.

Examples:
  cambium check trees && echo sound
  cambium check trees --json
  cambium check trees --set direct=off")]
    Check(MendArguments),
    /// Describe a store's files: headers, blocks, records
    #[command(after_help = "Examples:\n  cambium inspect trees\n  cambium inspect trees --json")]
    Inspect(ReportArguments),
    /// Rewrite what is live and give space back
    #[command(after_help = "\
What is live goes into new files beside the old ones, which takes as much free
space. Of engine forest `cambium stats` says (--all) how much under compaction_needs_bytes,
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
All namespaces and named snapshots are copied, as of one moment. On the same file system
the copy shares files or blocks with the store, where engine and file system can.

With --incremental, the folder takes a full copy once, and then archives of what is new.
A line says which backup is now the newest: number, kind, moment, last write, bytes.

Examples:
  cambium backup trees /backup/trees-monday
  cambium backup trees /backup/trees --incremental --keep 3")]
    Backup(BackupArguments),
    /// List what `restore` can make a store of: number, kind, moment, last write, bytes
    #[command(after_help = "\
`cambium check PLACE` verifies all of it.

Examples:
  cambium backups /backup/trees
  cambium backups /backup/trees --json")]
    Backups(BackupsArguments),
    /// Make a store of an incremental backup
    #[command(after_help = "\
Examples:
  cambium restore /backup/trees trees-again
  cambium restore /backup/trees trees-of-monday --number 2")]
    Restore(RestoreArguments),
    /// Copy all entries into a new store, of another engine or other options
    #[command(after_help = "\
All namespaces that have entries are copied, as of one moment; named snapshots are
not, `cambium backup` keeps them. The new store is made in DESTINATION.partial and
gets its name when it is whole and on the device; one that was cut off is begun anew.

Examples:
  cambium copy trees woods
  cambium copy trees woods --engine wisckey
  cambium copy trees woods --set node_bytes=8192
  cambium copy trees people --namespace people --engine zdb")]
    Copy(CopyArguments),
    /// Bring a damaged store back to what can be read; exit status 1 with losses
    #[command(after_help = "\
Each loss is named. Copy the folder first if the data matter.

Examples:
  cambium check trees || cambium repair trees
  cambium repair trees --set direct=off")]
    Repair(MendArguments),
    /// Bring a store to the newest format of its engine
    #[command(after_help = "\
Names the engine and the format of the store. Where the format is the newest one there is
nothing to do. A store whose format is newer than this program, or older than the first
release, is left as it is; the exit status is 3, and the message says what to do.

Examples:
  cambium upgrade trees")]
    Upgrade(UpgradeArguments),
    /// Run many commands on a store that is opened once: typed, or piped in
    #[command(after_help = "\
A line is a command without `cambium` and without the store. On a terminal there are
editing, history (in ~/.local/state/cambium; a line that begins with a blank is not
kept) and completion of commands, options, namespaces and keys; `help` lists the
commands. Words may be quoted, and have the escapes that `scan` writes; `get` ends
its line, and behind a pipe escapes as `scan` does.

Of what is piped in, the first line that fails is the last one, and gives the exit
status; a key that is not there is a failure, too. With -k the others follow.

Examples:
  cambium shell trees
  printf 'put oak Quercus\\nget oak\\n' | cambium shell trees
  cambium shell trees -k < commands")]
    Shell(ShellArguments),
    /// Print every option: unit, default, effect
    #[command(after_help = "Examples:\n  cambium options\n  cambium options --engine zdb")]
    Options(OptionsArguments),
    /// Print the completions of a shell
    #[command(after_help = "\
Examples:
  cambium completions bash > /etc/bash_completion.d/cambium
  cambium completions fish > ~/.config/fish/completions/cambium.fish")]
    Completions(CompletionsArguments),
    /// Write the man pages into a folder
    #[command(
        hide = true,
        after_help = "\
Examples:
  cambium man /usr/share/man/man1"
    )]
    Man(ManArguments),
    /// Read a file or folder of LMDB, which `import` does in a process of its own first
    #[command(
        hide = true,
        after_help = "Examples:\n  cambium read-lmdb old/data.mdb"
    )]
    ReadLmdb(StoreArguments),
}

#[derive(Debug, Args)]
pub struct StoreArguments {
    /// The store
    pub path: PathBuf,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

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

    /// The examples of a text: lines that begin with `cambium`, up to two blanks or to
    /// what a shell does with the output.
    fn examples(text: &str) -> Vec<&str> {
        let lines = text
            .lines()
            .map(|line| line.trim().trim_start_matches("$ "));
        let lines = lines.filter(|line| line.starts_with("cambium ") && !line.ends_with('`'));
        lines
            .map(|line| line.split("  ").next().unwrap_or_default())
            .map(|line| {
                line.split(['|', '>', '<', '&', ';'])
                    .next()
                    .unwrap_or_default()
            })
            .collect()
    }

    #[test]
    fn every_example_is_a_command_line() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut texts = vec![STATUSES.to_string()];
        let mut left = vec![root.join("README.md"), root.join("docs")];
        while let Some(path) = left.pop() {
            match std::fs::read_dir(&path) {
                Ok(entries) => left.extend(entries.flatten().map(|entry| entry.path())),
                Err(_) if path.extension().is_some_and(|end| end == "md") => {
                    texts.push(std::fs::read_to_string(&path).unwrap());
                }
                Err(_) => {}
            }
        }
        for command in Arguments::command().get_subcommands() {
            texts.extend(command.get_after_help().map(ToString::to_string));
        }
        let mut count = 0;
        for example in texts.iter().flat_map(|text| examples(text)) {
            let parsed = Arguments::try_parse_from(example.split_whitespace());
            assert!(parsed.is_ok(), "{example}: {}", parsed.unwrap_err());
            count += 1;
        }
        assert!(count > 90, "{count}");
    }
}
