//! Rounds of workers and tools on one store after the other.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::ValueEnum;

use crate::arguments::Arguments;
use crate::children::{self, Busy, End};
use crate::draw::{self, Wishes};
use crate::ledger::Base;
use crate::plan::Plan;
use crate::random::Random;
use crate::session::Ending;

/// A worker that does not end so long after its load hangs.
const PATIENCE: Duration = Duration::from_secs(180);
/// Workers on one store.
const MOST_SESSIONS: u64 = 12;

/// What a run has done, for its last line.
#[derive(Debug, Default)]
struct Tally {
    stores: u64,
    sessions: u64,
    kills: u64,
    closes: u64,
    tools: u64,
    killed_tools: u64,
    copies: u64,
    operations: u64,
    refused: u64,
}

/// Runs until the time is up or something is violated.
pub fn main(arguments: &Arguments) -> ExitCode {
    let seed = arguments.seed.unwrap_or_else(|| {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(1, |since| since.as_nanos() as u64 % 1_000_000)
    });
    eprintln!("cambium-stress: engine {}, seed {seed}", arguments.engine);
    let root = arguments.dir.clone().unwrap_or_else(|| {
        std::env::temp_dir().join(format!("cambium-stress-{}", std::process::id()))
    });
    let until = Instant::now() + Duration::from_secs(arguments.seconds);
    let mut tally = Tally::default();
    let busy = Busy::start(arguments.load);
    let mut round = 0;
    while Instant::now() < until && arguments.rounds.is_none_or(|rounds| round < rounds) {
        let folder = root.join(format!("{}-{seed}-{round}", arguments.engine));
        let own_seed = if round == 0 {
            seed
        } else {
            Random::part(seed, round).next() >> 20
        };
        let mut run = Run {
            arguments,
            folder,
            seed: own_seed,
            until,
            tally: &mut tally,
            after_cut: false,
        };
        if let Err(what) = run.store() {
            eprintln!(
                "cambium-stress: VIOLATION, engine {}: {}",
                arguments.engine,
                head(&what)
            );
            eprintln!("what was done to the store:\n{}", run.history_end());
            eprintln!(
                "kept, with ledger, plan and history: {}",
                run.folder.display()
            );
            eprintln!(
                "again: cambium-stress {} --seed {own_seed}",
                arguments.again()
            );
            return ExitCode::from(1);
        }
        _ = std::fs::remove_dir_all(&run.folder);
        round += 1;
    }
    drop(busy);
    _ = std::fs::remove_dir(&root);
    println!(
        "cambium-stress: engine {}, seed {seed}: nothing found. {tally:?}",
        arguments.engine
    );
    ExitCode::SUCCESS
}

/// One store.
struct Run<'a> {
    arguments: &'a Arguments,
    folder: PathBuf,
    seed: u64,
    until: Instant,
    tally: &'a mut Tally,
    after_cut: bool,
}

impl Run<'_> {
    fn store(&mut self) -> Result<(), String> {
        let mut random = Random::part(self.seed, 2);
        self.make()?;
        self.tally.stores += 1;
        let sessions = if self.arguments.plain {
            2
        } else {
            random.magnitude(2, MOST_SESSIONS)
        };
        for session in 0..sessions {
            if Instant::now() >= self.until && session >= 2 {
                break;
            }
            self.session(&mut random, session)?;
            self.tools(&mut random)?;
        }
        // What the last session left is verified too.
        self.worker(&random.clone(), Ending::Close, Duration::ZERO, None, None)?;
        self.check("the last close")
    }

    /// Draws a plan and makes its store.
    fn make(&mut self) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("the folder of the run: {error}");
        _ = std::fs::remove_dir_all(&self.folder);
        std::fs::create_dir_all(self.folder.join("ledger")).map_err(failed)?;
        let kind = cambium::engines()
            .find(&self.arguments.engine)
            .map_err(|error| error.to_string())?;
        let wishes = Wishes {
            threads: self.arguments.threads,
            keys: self.arguments.keys,
            value: self.arguments.value,
            plain: self.arguments.plain,
            default_options: self.arguments.default_options,
            small: false,
            set: self.arguments.set.clone(),
            seeded_bug: self.arguments.seeded_bug.clone(),
        };
        let plan: Plan = draw::plan(&*kind, self.seed, &wishes, &self.folder)?;
        plan.store(&self.folder).map_err(failed)?;
        let base = Base::empty(&plan.shape);
        base.store(&self.folder.join("ledger")).map_err(failed)?;
        let store = plan
            .options_of_creation()
            .create(self.store_path(), &plan.engine);
        let store = store.map_err(|error| format!("creating the store: {error}"))?;
        store
            .close()
            .map_err(|error| format!("closing the new store: {error}"))
    }

    fn store_path(&self) -> PathBuf {
        self.folder.join("store")
    }

    fn session(&mut self, random: &mut Random, session: u64) -> Result<(), String> {
        let drawn = Duration::from_millis(random.magnitude(30, 4000));
        let load = self
            .arguments
            .session
            .map_or(drawn, Duration::from_secs_f64);
        let ending = match random.below(10) {
            _ if self.arguments.plain => Ending::Close,
            0..5 => Ending::Close,
            5..8 => Ending::CloseUnderLoad,
            _ => Ending::Abandon,
        };
        let is_killed = self.arguments.kill && random.chance(75);
        // Openings and verifications are killed too.
        let kill = Duration::from_micros(random.magnitude(500, 2 * load.as_micros() as u64 + 1000));
        _ = session;
        self.worker(random, ending, load, is_killed.then_some(kill), None)
    }

    /// Starts a worker and waits for its end. `copy` is a store that is only verified.
    fn worker(
        &mut self,
        random: &Random,
        ending: Ending,
        load: Duration,
        kill: Option<Duration>,
        copy: Option<&Path>,
    ) -> Result<(), String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        let store = copy.map_or_else(|| self.store_path(), Path::to_path_buf);
        command
            .arg("worker")
            .arg("--folder")
            .arg(&self.folder)
            .arg("--store")
            .arg(store);
        command.args(["--seed", &random.clone().next().to_string()]);
        command.args(["--millis", &load.as_millis().to_string()]);
        let name = ending
            .to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_string());
        command.args(["--ending", &name]);
        if self.after_cut {
            command.arg("--after-cut");
        }
        if copy.is_some() {
            command.arg("--verify-only");
        }
        if !self.arguments.kill {
            command.arg("--undisturbed");
        }
        let (end, said) = self.run(&mut command, "worker.log", kill, load + PATIENCE)?;
        self.tally.sessions += 1;
        match end {
            End::Status(0) => {
                self.tally.closes += 1;
                self.tally.operations += number_before(&said, " operations");
                self.tally.refused += number_before(&said, " refused");
                Ok(())
            }
            End::Killed => {
                self.tally.kills += 1;
                Ok(())
            }
            End::Status(1) if said.contains("VIOLATION ") => Err(said
                .split("VIOLATION ")
                .nth(1)
                .unwrap_or_default()
                .trim()
                .to_string()),
            other => Err(format!("a worker ended with {other:?}: {}", said.trim())),
        }
    }

    /// Runs some of the tools on the closed or killed store.
    fn tools(&mut self, random: &mut Random) -> Result<(), String> {
        while random.chance(40) {
            let tool = *random.pick(&["check", "compact", "backup", "repair", "export", "get"]);
            let is_killed = self.arguments.kill && random.chance(60);
            let kill = is_killed.then(|| Duration::from_micros(random.magnitude(1000, 200_000)));
            self.tool(tool, kill, random)?;
        }
        self.check("a session")
    }

    fn tool(&mut self, tool: &str, kill: Option<Duration>, random: &Random) -> Result<(), String> {
        let copy = self.folder.join("copy");
        _ = std::fs::remove_dir_all(&copy);
        let mut command = Command::new(cambium_command()?);
        command.arg(tool).arg(self.store_path());
        match tool {
            "backup" => _ = command.arg(&copy),
            "export" => _ = command.arg("--to").arg(self.folder.join("dump")),
            "get" => _ = command.args(["--hex", "0000000000000000"]),
            _ => {}
        }
        let (end, said) = self.run(&mut command, "tool.log", kill, PATIENCE)?;
        self.tally.tools += 1;
        match (tool, end) {
            (_, End::Killed) => {
                self.tally.killed_tools += 1;
                return Ok(());
            }
            // A key that is not there, or a store of integers.
            ("get", End::Status(0..=2)) | (_, End::Status(0)) => {}
            (tool, end) => {
                return Err(format!(
                    "cambium {tool} ended with {end:?}: {}",
                    said.trim()
                ));
            }
        }
        if tool == "backup" {
            self.tally.copies += 1;
            self.worker(random, Ending::Close, Duration::ZERO, None, Some(&copy))?;
        }
        Ok(())
    }

    fn check(&mut self, after: &str) -> Result<(), String> {
        let mut command = Command::new(cambium_command()?);
        command.arg("check").arg(self.store_path());
        match self.run(&mut command, "check.log", None, PATIENCE)? {
            (End::Status(0), _) => Ok(()),
            (end, said) => Err(format!(
                "cambium check after {after} ended with {end:?}: {}",
                said.trim()
            )),
        }
    }

    /// Runs a process, and notes it in the history.
    fn run(
        &self,
        command: &mut Command,
        log: &str,
        kill: Option<Duration>,
        deadline: Duration,
    ) -> Result<(End, String), String> {
        // A backtrace is longer than what it explains.
        command.env("RUST_BACKTRACE", "0");
        let answer = children::run(command, &self.folder.join(log), kill, deadline)
            .map_err(|error| format!("starting {command:?}: {error}"))?;
        let words: Vec<_> = command
            .get_args()
            .map(|word| word.to_string_lossy())
            .collect();
        let line = format!(
            "{}: {:?}, kill {kill:?}: {}\n",
            words.join(" "),
            answer.0,
            head(&answer.1)
        );
        let history = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.history_path());
        history
            .and_then(|mut history| history.write_all(line.as_bytes()))
            .map_err(|error| format!("the history: {error}"))?;
        Ok(answer)
    }

    fn history_path(&self) -> PathBuf {
        self.folder.join("history.log")
    }

    /// The last lines of the history.
    fn history_end(&self) -> String {
        let history = std::fs::read_to_string(self.history_path()).unwrap_or_default();
        let lines: Vec<&str> = history.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }
}

/// The number in front of a word of a worker's last line.
fn number_before(line: &str, word: &str) -> u64 {
    let before = line.split(word).next().unwrap_or_default();
    before
        .rsplit(' ')
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

/// The first lines of what a process said.
fn head(said: &str) -> String {
    let lines: Vec<&str> = said.trim().lines().take(10).collect();
    lines.join("\n").chars().take(2000).collect()
}

/// The command `cambium`, which is built into the same folder.
fn cambium_command() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let command = own.with_file_name("cambium");
    if command.exists() {
        return Ok(command);
    }
    Err(format!(
        "{} is missing: build package cambium-cli in the same profile",
        command.display()
    ))
}
