//! Redis: a server that holds everything in memory, and writes a log if it is asked to.
//!
//! KVZone starts `redis-server`, or the program that setting `program` names, or measures the
//! server at `address` ([`super::server`]). Version 7.0 is the one that was tried.
//!
//! # Durability
//! | asked for | settings | what it means |
//! |---|---|---|
//! | `buffered` | `appendonly no`, no snapshots | lost with the process; a sync writes a snapshot (`SAVE`), and so does the close |
//! | `written` | `appendonly yes`, `appendfsync no` | the log is written before a command is answered, and survives the process |
//! | `synced` | `appendonly yes`, `appendfsync always` | the log is synced before a command is answered, once for all commands of a turn |
//!
//! # Settings
//! | setting | `default` | `equal` | `tuned` |
//! |---|---|---|---|
//! | `save` | as shipped: snapshots while it runs | none | none |
//! | `io_threads` | 1, as shipped | the same | the same |
//! | `aof_rewrite_percentage` | 100, as shipped | the same | the same |
//!
//! There is no cache to size: memory has to hold all entries. There is no key order, so scans
//! are refused. A compaction rewrites the log (`BGREWRITEAOF`).

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cambium_foreign::redis::{Address, Answer, Connection};
use kvzone_core::adapter::{Capabilities, DurabilityName, OpenRequest, Profile, no_scan};
use kvzone_core::error::{Error, Result};

use super::library::Foreign;
use super::server::{self, Dialect};
use super::settings::Settings;

const NAME: &str = "redis";
const PROGRAM: &str = "redis-server";
const REMEDY: &str =
    "apt-get install redis-server, or --set redis.program=PATH, or --set redis.address=HOST:PORT";
const SHIPPED_SNAPSHOTS: &str = "3600 1 300 100 60 10000";
/// Between two looks at work in the background.
const PAUSE: Duration = Duration::from_millis(10);

pub(super) const REDIS: Foreign = Foreign {
    name: NAME,
    summary: "server with all entries in memory, over its protocol; an append-only log if asked for",
    probe: || server::probe(Path::new(PROGRAM), REMEDY),
    capabilities: Capabilities {
        ordered: false,
        ..Capabilities::BEST
    },
    lacks: "",
    capabilities_for: None,
    server: Some((program, REMEDY)),
    settings: |request| Ok(Plan::new(request)?.printed),
    open: |request| {
        let plan = Plan::new(request)?;
        let spoken = Spoken {
            folder: request.folder.clone(),
            has_log: request.durability != DurabilityName::Buffered,
        };
        match &plan.address {
            Some(address) => server::join(spoken, request, address.clone()),
            None => server::start(spoken, request, |socket| plan.command(request, socket)),
        }
    },
};

fn program(request: &OpenRequest) -> PathBuf {
    let program = request.overrides.get("program");
    program.map_or(PROGRAM, String::as_str).into()
}

struct Plan {
    /// The server that runs already, if one was named: nothing else is set then.
    address: Option<Address>,
    options: Vec<(&'static str, String)>,
    printed: BTreeMap<String, String>,
}

impl Plan {
    fn new(request: &OpenRequest) -> Result<Plan> {
        let mut settings = Settings::new(NAME, request);
        let address = server::running(&mut settings, NAME)?;
        settings.state("durability", request.durability);
        settings.state("compression", "none");
        let mut options = Vec::new();
        if address.is_none() {
            settings.text("program", PROGRAM);
            let (log, sync) = match request.durability {
                DurabilityName::Buffered => ("no", "no"),
                DurabilityName::Written => ("yes", "no"),
                DurabilityName::Synced => ("yes", "always"),
            };
            let snapshots = match request.profile {
                Profile::Default => SHIPPED_SNAPSHOTS,
                Profile::Equal | Profile::Tuned => "",
            };
            let io_threads = settings.number("io_threads", 1)?;
            let rewrite = settings.number("aof_rewrite_percentage", 100)?;
            settings.state("appendonly", log);
            settings.state("appendfsync", sync);
            options = vec![
                ("--appendonly", log.to_string()),
                ("--appendfsync", sync.to_string()),
                ("--save", settings.text("save", snapshots)),
                ("--io-threads", io_threads.to_string()),
                ("--auto-aof-rewrite-percentage", rewrite.to_string()),
            ];
        }
        Ok(Plan {
            address,
            options,
            printed: settings.finish()?,
        })
    }

    fn command(&self, request: &OpenRequest, socket: &Path) -> Command {
        let mut command = Command::new(program(request));
        command.args(["--port", "0", "--daemonize", "no"]);
        command.arg("--dir").arg(&request.folder);
        command.arg("--unixsocket").arg(socket);
        for (name, value) in &self.options {
            command.args([name, value.as_str()]);
        }
        command
    }
}

struct Spoken {
    folder: PathBuf,
    /// It writes a log; otherwise a snapshot is what lasts.
    has_log: bool,
}

fn call(connection: &mut Connection, name: &'static str, words: &[&[u8]]) -> Result<Answer> {
    server::call(NAME, connection, name, words)
}

fn setting(connection: &mut Connection, name: &str) -> Result<String> {
    let words: &[&[u8]] = &[b"CONFIG", b"GET", name.as_bytes()];
    match call(connection, "CONFIG", words)? {
        Answer::List(mut pair) => Ok(pair.pop().map(Answer::into_text).unwrap_or_default()),
        _ => Ok(String::new()),
    }
}

impl Dialect for Spoken {
    fn name(&self) -> &'static str {
        NAME
    }

    fn promised(&self, connection: &mut Connection) -> Result<(DurabilityName, &'static str)> {
        let has_log = setting(connection, "appendonly")? == "yes";
        let is_synced = setting(connection, "appendfsync")? == "always";
        let promised = match (has_log, is_synced) {
            (false, _) => DurabilityName::Buffered,
            (true, false) => DurabilityName::Written,
            (true, true) => DurabilityName::Synced,
        };
        Ok((promised, "CONFIG SET appendonly and appendfsync change it"))
    }

    fn scan(&self, _: &mut Connection, _: &[u8], _: u64) -> Result<Vec<Answer>> {
        Err(no_scan(NAME))
    }

    /// No command of version 7.0 syncs the log, so its files are synced from here. A server
    /// elsewhere cannot be asked for it: its folder has none.
    fn sync(&self, connection: &mut Connection) -> Result<()> {
        if !self.has_log {
            return call(connection, "SAVE", &[b"SAVE"]).map(drop);
        }
        let log = self.folder.join("appendonlydir");
        let failed = |error| Error::machine("sync", &log, error);
        if log.is_dir() {
            for file in std::fs::read_dir(&log).map_err(failed)? {
                let path = file.map_err(failed)?.path();
                // A rewrite may have removed it since.
                if let Ok(file) = File::open(path) {
                    file.sync_data().map_err(failed)?;
                }
            }
        }
        Ok(())
    }

    fn settle(&self, connection: &mut Connection) -> Result<()> {
        let words: &[&[u8]] = &[b"INFO", b"persistence"];
        loop {
            let info = call(connection, "INFO", words)?.into_text();
            let is_busy = |line: &str| {
                [
                    "aof_rewrite_in_progress:1",
                    "aof_rewrite_scheduled:1",
                    "rdb_bgsave_in_progress:1",
                ]
                .contains(&line)
            };
            if !info.lines().any(is_busy) {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn compact(&self, connection: &mut Connection) -> Result<()> {
        if !self.has_log {
            return Ok(());
        }
        self.settle(connection)?;
        call(connection, "BGREWRITEAOF", &[b"BGREWRITEAOF"])?;
        self.settle(connection)
    }

    fn counters(&self, connection: &mut Connection) -> Result<String> {
        Ok(call(connection, "INFO", &[b"INFO"])?.into_text())
    }

    fn shutdown(&self) -> &'static [&'static [u8]] {
        match self.has_log {
            true => &[b"SHUTDOWN", b"NOSAVE"],
            false => &[b"SHUTDOWN", b"SAVE"],
        }
    }
}
