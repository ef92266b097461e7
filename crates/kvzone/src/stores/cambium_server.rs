//! `cambium-server`: one of our engines, over the network.
//!
//! KVZone starts the program `cambium-server` that lies beside it, or that setting `program`
//! names, or measures the server at `address` ([`super::server`]).
//!
//! # Durability
//! Each level is `--durability` of the same name: when an answer leaves the server, the write is
//! as safe as [`cambium::Durability`] says. Concurrent synced writes share syncs.
//!
//! # Settings
//! `engine` (`forest`) is the engine; all its options are settings too, and are chosen as for
//! the engine in this process ([`super::cambium`]). Keys are the server's own, longer than
//! those of clients and never integers.
//!
//! Scans are `CAMBIUM.SCAN`, on engines with an order of keys. A compaction is
//! `CAMBIUM.COMPACT`. No command waits for work in the background: the store's counters are
//! watched until none changes for 300 ms, which is part of `settle_seconds`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use cambium_foreign::redis::{Address, Answer, Connection};
use kvzone_core::adapter::{Adapter, Capabilities, DurabilityName, OpenRequest, no_scan};
use kvzone_core::error::{Error, Result};

use super::cambium::{Cambium, engine};
use super::library::Foreign;
use super::server::{self, Dialect};
use super::settings::Settings;

const NAME: &str = "cambium-server";
const REMEDY: &str = "cargo build --release --package cambium-server, or --set \
                      cambium-server.program=PATH, or --set cambium-server.address=HOST:PORT";
const DEFAULT_ENGINE: &str = cambium::DEFAULT_ENGINE;
/// Entries that the server keeps for a key: its own, and its place in the order of SCAN.
const ENTRIES_OF_A_KEY: u64 = 2;
/// Bytes of a key in the server, at least: more than those of an integer.
const LEAST_KEY_BYTES: u32 = 16;
/// How long counters have to stay the same before the store counts as settled.
const QUIET: Duration = Duration::from_millis(300);
const PAUSE: Duration = Duration::from_millis(20);
/// Counters that change without work: one of the whole process, and those of the reads that
/// `CAMBIUM.STATS` itself makes.
const UNSTEADY: [&str; 4] = [
    "environment_memory_bytes",
    "node_cache_hit_share",
    "node_reads",
    "reads_per_get",
];

pub(super) const CAMBIUM_SERVER: Foreign = Foreign {
    name: NAME,
    summary: "our engines behind cambium-server, over Redis' protocol",
    probe: || server::probe(&beside_this(), REMEDY),
    capabilities: Capabilities::BEST,
    lacks: "",
    capabilities_for: Some(|request, general| Capabilities {
        // The server elsewhere says so itself when it is asked for a range.
        ordered: server::is_elsewhere(request) || is_ordered(engine_of(request)),
        ..general
    }),
    server: Some((program, REMEDY)),
    settings: |request| Ok(Plan::new(request)?.printed),
    open: |request| {
        let plan = Plan::new(request)?;
        match &plan.address {
            Some(address) => server::join(Spoken, request, address.clone()),
            None => server::start(Spoken, request, |socket| plan.command(request, socket)),
        }
    },
};

/// The program in the folder of this one, or above it, where tests run; else the one that the
/// shell would find.
fn beside_this() -> PathBuf {
    let this = std::env::current_exe().unwrap_or_default();
    let folders = this.ancestors().skip(1).take(2);
    let mut programs = folders.map(|folder| folder.join(NAME));
    let found = programs.find(|program| program.is_file());
    found.unwrap_or_else(|| NAME.into())
}

fn program(request: &OpenRequest) -> PathBuf {
    let program = request.overrides.get("program");
    program.map_or_else(beside_this, PathBuf::from)
}

fn engine_of(request: &OpenRequest) -> &str {
    let engine = request.overrides.get("engine");
    engine.map_or(DEFAULT_ENGINE, String::as_str)
}

/// True if the server serves ranges on an engine: its keys are strings there.
fn is_ordered(engine: &str) -> bool {
    matches!(engine, "forest" | "wisckey")
}

struct Plan {
    /// The server that runs already, if one was named: nothing else is set then.
    address: Option<Address>,
    engine: &'static str,
    /// Options of the engine that are not its defaults.
    options: BTreeMap<String, String>,
    printed: BTreeMap<String, String>,
}

impl Plan {
    fn new(request: &OpenRequest) -> Result<Plan> {
        let mut settings = Settings::new(NAME, request);
        let address = server::running(&mut settings, NAME)?;
        settings.state("durability", request.durability);
        let mut plan = Plan {
            address,
            engine: DEFAULT_ENGINE,
            options: BTreeMap::new(),
            printed: BTreeMap::new(),
        };
        if plan.address.is_none() {
            settings.text("program", &beside_this().display().to_string());
            let engines = cambium::engines();
            let names: Vec<&'static str> = engines.iter().map(|kind| kind.name()).collect();
            plan.engine = settings.word("engine", DEFAULT_ENGINE, &names)?;
            let missing = || Error::Usage(format!("no engine {}", plan.engine));
            let engine = engine(plan.engine).ok_or_else(missing)?;
            let inner = inner_request(request, &engine);
            plan.options = engine.chosen(&inner)?;
            for (name, value) in engine.settings(&inner)? {
                settings.text(&name, &value);
            }
        }
        plan.printed = settings.finish()?;
        Ok(plan)
    }

    fn command(&self, request: &OpenRequest, socket: &Path) -> Command {
        let mut command = Command::new(program(request));
        command.arg("--dir").arg(request.folder.join("data"));
        command.arg("--resp");
        command.arg(format!("unix:{}", socket.display()));
        command.args(["--engine", self.engine]);
        command.args(["--durability", &request.durability.to_string()]);
        for (name, value) in &self.options {
            command.arg("--set").arg(format!("{name}={value}"));
        }
        command
    }
}

/// The request that the server's engine serves.
fn inner_request(request: &OpenRequest, engine: &Cambium) -> OpenRequest {
    let mut inner = request.clone();
    inner.overrides.retain(|name, _| engine.has(name));
    inner.expected_keys *= ENTRIES_OF_A_KEY;
    inner.key_bytes = inner.key_bytes.max(LEAST_KEY_BYTES);
    inner
}

struct Spoken;

fn call(connection: &mut Connection, name: &'static str, words: &[&[u8]]) -> Result<Answer> {
    server::call(NAME, connection, name, words)
}

impl Dialect for Spoken {
    fn name(&self) -> &'static str {
        NAME
    }

    fn promised(&self, connection: &mut Connection) -> Result<(DurabilityName, &'static str)> {
        let words: &[&[u8]] = &[b"INFO", b"persistence"];
        let info = call(connection, "INFO", words)?.into_text();
        let mut lines = info.lines();
        let name = lines.find_map(|line| line.strip_prefix("durability:"));
        let mut all = DurabilityName::ALL.into_iter();
        let promised = all
            .find(|level| Some(level.name()) == name)
            .ok_or_else(|| {
                let words = "the server names no durability; expected a cambium-server";
                Error::store(NAME, "INFO", words)
            })?;
        Ok((promised, "start it with another --durability"))
    }

    fn scan(&self, connection: &mut Connection, from: &[u8], limit: u64) -> Result<Vec<Answer>> {
        let limit = limit.to_string();
        let words: &[&[u8]] = &[b"CAMBIUM.SCAN", from, b"+", b"LIMIT", limit.as_bytes()];
        match connection.call(words) {
            Ok(Answer::List(entries)) => Ok(entries),
            Ok(_) => Err(Error::store(NAME, "CAMBIUM.SCAN", "it answered no list")),
            Err(error) if error.to_string().contains("order") => Err(no_scan(NAME)),
            Err(error) => Err(Error::store(NAME, "CAMBIUM.SCAN", error)),
        }
    }

    fn sync(&self, connection: &mut Connection) -> Result<()> {
        call(connection, "CAMBIUM.SYNC", &[b"CAMBIUM.SYNC"]).map(drop)
    }

    fn settle(&self, connection: &mut Connection) -> Result<()> {
        let (mut last, mut since) = (String::new(), Instant::now());
        while since.elapsed() < QUIET {
            let counters = self.counters(connection)?;
            let lines = counters.lines();
            let steady: String = lines
                .filter(|line| !UNSTEADY.iter().any(|name| line.starts_with(name)))
                .collect();
            if steady != last {
                (last, since) = (steady, Instant::now());
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn compact(&self, connection: &mut Connection) -> Result<()> {
        call(connection, "CAMBIUM.COMPACT", &[b"CAMBIUM.COMPACT"]).map(drop)
    }

    fn counters(&self, connection: &mut Connection) -> Result<String> {
        Ok(call(connection, "CAMBIUM.STATS", &[b"CAMBIUM.STATS"])?.into_text())
    }

    fn shutdown(&self) -> &'static [&'static [u8]] {
        &[b"SHUTDOWN"]
    }
}
