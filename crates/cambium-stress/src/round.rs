//! A round: one store, with sessions of workers, and tools between them.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::arguments::Arguments;
use crate::children::{self, End, Watch, cambium_command, head, is_of_disk, number_before, part};
use crate::damage::{self, copy_folder};
use crate::disk::Disk;
use crate::draw;
use crate::ledger::Base;
use crate::mount::{self, Mounted};
use crate::plan::Plan;
use crate::random::Random;
use crate::session::{Ending, Orders, lock};
use crate::strike::Strike;
use crate::supervisor::Tally;

/// A process that does not end so long after its load hangs.
const PATIENCE: Duration = Duration::from_secs(180);
/// Workers on one store.
const MOST_SESSIONS: u64 = 12;
const TOOLS: [&str; 6] = ["check", "compact", "backup", "repair", "export", "get"];
/// Bytes of the disk of a round that cuts the power.
const DISK_BYTES: u64 = 2 << 30;

/// One store.
pub struct Round<'a> {
    arguments: &'a Arguments,
    folder: PathBuf,
    seed: u64,
    until: Instant,
    tally: &'a mut Tally,
    mounted: Option<Mounted>,
    /// The generation of the ledger in which writes that are not synced were last lost.
    lost_in: Option<u64>,
}

impl<'a> Round<'a> {
    pub fn new(
        arguments: &'a Arguments,
        folder: PathBuf,
        seed: u64,
        until: Instant,
        tally: &'a mut Tally,
    ) -> Self {
        Round {
            arguments,
            folder,
            seed,
            until,
            tally,
            mounted: None,
            lost_in: None,
        }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn run(&mut self) -> Result<(), String> {
        let mut random = Random::part(self.seed, 2);
        self.make()?;
        self.tally.stores += 1;
        let sessions = if self.arguments.plain {
            4
        } else {
            random.magnitude(2, MOST_SESSIONS)
        };
        for session in 0..sessions {
            if Instant::now() >= self.until && session >= 2 {
                break;
            }
            self.session(&mut random)?;
            self.tools(&mut random)?;
        }
        // Verify the state that the last session left.
        self.worker(
            &mut random,
            Ending::Close,
            Duration::ZERO,
            Strike::None,
            None,
        )?;
        self.check()?;
        if self.arguments.damage {
            self.damage(&mut random, self.arguments.copies)
        } else {
            Ok(())
        }
    }

    /// Draws a plan and makes its store.
    fn make(&mut self) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("the folder of the run: {error}");
        _ = std::fs::remove_dir_all(&self.folder);
        std::fs::create_dir_all(self.folder.join("ledger")).map_err(failed)?;
        if self.arguments.needs_disk() {
            let sector = mount::sector_bytes(self.arguments.file_system.as_deref());
            self.mount(Arc::new(Mutex::new(Disk::new(DISK_BYTES, sector))))?;
        }
        let kind = cambium::engines()
            .find(&self.arguments.engine)
            .map_err(|error| error.to_string())?;
        let place = self.store_path().with_file_name("trial");
        let plan: Plan = draw::plan(&*kind, self.seed, self.arguments, &place)?;
        plan.store(&self.folder).map_err(failed)?;
        Base::empty(&plan.shape)
            .store(&self.folder.join("ledger"))
            .map_err(failed)?;
        let store = plan
            .options_of_creation()
            .create(self.store_path(), &plan.engine);
        let store = store.map_err(|error| format!("creating the store: {error}"))?;
        store
            .close()
            .map_err(|error| format!("closing the new store: {error}"))
    }

    fn mount(&mut self, disk: Arc<Mutex<Disk>>) -> Result<(), String> {
        let file_system = self.arguments.file_system.as_deref();
        let mounted = Mounted::new(disk, &self.mount_point(), file_system);
        self.mounted = Some(mounted.map_err(|error| format!("mounting a disk: {error}"))?);
        Ok(())
    }

    fn mount_point(&self) -> PathBuf {
        self.folder.join("disk")
    }

    fn store_path(&self) -> PathBuf {
        match self.mounted {
            Some(_) => self.mount_point().join("store"),
            None => self.folder.join("store"),
        }
    }

    fn session(&mut self, random: &mut Random) -> Result<(), String> {
        // Kills find most around openings and the first steps: most sessions are short.
        let longest = match random.below(100) {
            _ if self.arguments.damage => 100,
            0..8 => 4000,
            _ => 600,
        };
        let drawn = Duration::from_millis(random.magnitude(5, longest));
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
        let strike = Strike::draw(self.arguments, load, random);
        self.worker(random, ending, load, strike, None)?;
        if self.arguments.damage && matches!(strike, Strike::Kill(_)) {
            self.damage(random, self.arguments.copies / 4)?;
        }
        // Effects of a failed sync show when the power goes.
        if let Strike::Fault { .. } = strike
            && random.chance(60)
        {
            self.cut(random);
            self.end_of_strike(Strike::Cut(Duration::ZERO))?;
        }
        Ok(())
    }

    /// Starts a worker and waits for its end. `copy` is a store that is only verified.
    fn worker(
        &mut self,
        random: &mut Random,
        ending: Ending,
        load: Duration,
        strike: Strike,
        copy: Option<&Path>,
    ) -> Result<(), String> {
        let orders = Orders {
            folder: self.folder.clone(),
            store: copy.map_or_else(|| self.store_path(), Path::to_path_buf),
            seed: random.next(),
            load,
            ending,
            after_loss: self.lost_in == Some(self.generation()?),
            durable_base: self.mounted.is_some() || self.arguments.damage,
            verify_only: copy.is_some(),
            faults: matches!(strike, Strike::Fault { .. }),
            drops: strike.drops(),
            forks: self.mounted.is_none()
                && matches!(strike, Strike::Second(_))
                && random.chance(50),
            undisturbed: !self.arguments.kill && self.mounted.is_none(),
        };
        let mut command = part("worker", &orders)?;
        let (end, said) =
            self.process(&mut command, "worker.log", strike, load + PATIENCE, random)?;
        self.tally.sessions += 1;
        self.tally.plain += u64::from(self.arguments.plain && !load.is_zero());
        match end {
            End::Status(0) => {
                self.tally.closes += 1;
                self.tally.operations += number_before(&said, " operations");
                self.tally.refused += number_before(&said, " refused");
                Ok(())
            }
            End::Killed => Ok(()),
            // After a cut the worker sees a broken disk until it is killed.
            _ if matches!(strike, Strike::Cut(_)) && is_of_disk(&said) => Ok(()),
            End::Status(1) if said.contains("VIOLATION ") => Err(said
                .split("VIOLATION ")
                .nth(1)
                .unwrap_or_default()
                .trim()
                .to_string()),
            other => Err(format!("a worker ended with {other:?}: {}", said.trim())),
        }
    }

    fn generation(&self) -> Result<u64, String> {
        let base = Base::newest(&self.folder.join("ledger"));
        base.map_err(|error| format!("the ledger: {error}"))
    }

    /// Runs some of the tools on the closed or killed store.
    fn tools(&mut self, random: &mut Random) -> Result<(), String> {
        if self.arguments.no_tools {
            return Ok(());
        }
        while random.chance(40) {
            let tool = *random.pick(&TOOLS);
            let strike = Strike::draw_of_tool(self.arguments, random);
            self.tool(tool, strike, random)?;
        }
        self.check()
    }

    fn tool(&mut self, tool: &str, strike: Strike, random: &mut Random) -> Result<(), String> {
        let mut command = self.tool_command(tool)?;
        let (end, said) = self.process(&mut command, "tool.log", strike, PATIENCE, random)?;
        self.tally.tools += 1;
        match (tool, end) {
            (_, End::Killed) => {
                self.tally.killed_tools += 1;
                return Ok(());
            }
            _ if matches!(strike, Strike::Cut(_)) && is_of_disk(&said) => return Ok(()),
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
            self.tally.backups += 1;
            self.worker(
                random,
                Ending::Close,
                Duration::ZERO,
                Strike::None,
                Some(&self.folder.join("copy")),
            )?;
        }
        Ok(())
    }

    fn tool_command(&self, tool: &str) -> Result<Command, String> {
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
        Ok(command)
    }

    fn check(&mut self) -> Result<(), String> {
        if self.arguments.no_tools {
            return Ok(());
        }
        let mut random = Random::part(self.seed, 3);
        self.tool("check", Strike::None, &mut random)
    }

    /// Damages copies of the closed or killed store, one after the other.
    fn damage(&mut self, random: &mut Random, copies: u64) -> Result<(), String> {
        let orders = damage::Orders {
            folder: self.folder.clone(),
            store: self.store_path(),
            seed: random.next(),
            copies,
        };
        let mut command = part("damage", &orders)?;
        let deadline = 4 * PATIENCE;
        let (end, said) =
            self.process(&mut command, "damage.log", Strike::None, deadline, random)?;
        self.tally.damaged += number_before(&said, " damaged copies");
        match end {
            End::Status(0) => Ok(()),
            end => Err(format!("damaged copies: {end:?}: {}", said.trim())),
        }
    }

    /// Runs a process under a strike, and notes it in the history.
    fn process(
        &mut self,
        command: &mut Command,
        log: &str,
        strike: Strike,
        deadline: Duration,
        random: &mut Random,
    ) -> Result<(End, String), String> {
        let generation = self.generation()?;
        let ledger = self.folder.join("ledger");
        let mounted = self.mounted.as_ref();
        let mut is_struck = false;
        let mut of_cut = Random::part(random.next(), 4);
        let linger = Duration::from_millis(random.below(10));
        let tool = *random.pick(&TOOLS);
        let mut beside = match strike {
            Strike::Second(_) => Some(self.tool_command(tool)?),
            _ => None,
        };
        let mut second = None;
        let is_open = || Base::newest(&ledger).is_ok_and(|newest| newest > generation);
        let mut watch = |elapsed: Duration| match strike {
            Strike::None => false,
            Strike::Second(load) => {
                if !is_struck && is_open() {
                    is_struck = true;
                    let began = Instant::now();
                    let output = beside.as_mut().map(Command::output);
                    second = output.filter(|_| began.elapsed() < load);
                }
                false
            }
            Strike::Kill(after) => elapsed >= after,
            Strike::Cut(after) => {
                if elapsed >= after && !is_struck {
                    mounted.inspect(|mounted| mounted.disk().cut(&mut of_cut));
                    is_struck = true;
                }
                elapsed >= after + linger
            }
            Strike::Fault {
                fault,
                room,
                at_once,
            } => {
                if !is_struck && (at_once || is_open()) {
                    mounted.inspect(|mounted| mounted.disk().arm(fault, room));
                    is_struck = true;
                }
                false
            }
        };
        let watch: Watch<'_> = &mut watch;
        // A backtrace is longer than what it explains.
        command.env("RUST_BACKTRACE", "0");
        let answer = children::run(command, &self.folder.join(log), watch, deadline)
            .map_err(|error| format!("starting {command:?}: {error}"))?;
        let words: Vec<_> = command
            .get_args()
            .map(|word| word.to_string_lossy())
            .collect();
        let line = format!(
            "{}: {:?}, {strike:?}: {}\n",
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
        if answer.0 == End::Killed || is_struck {
            self.end_of_strike(strike)?;
        }
        if let Some(second) = second {
            let second = second.map_err(|error| format!("starting cambium {tool}: {error}"))?;
            let said = String::from_utf8_lossy(&second.stderr);
            // Readers of engine forest stand beside a process that writes.
            let answers = second.status.success() || said.contains("has no value");
            let reads = !matches!(tool, "compact" | "repair") && answers;
            let reads_beside = self.arguments.engine == "forest" && reads;
            if !reads_beside && !said.contains("is in use") {
                return Err(format!("cambium {tool} beside an open store says: {said}"));
            }
            self.tally.locked += u64::from(!reads_beside);
        }
        Ok(answer)
    }

    fn cut(&mut self, random: &mut Random) {
        if let Some(mounted) = &self.mounted {
            mounted.disk().cut(random);
        }
    }

    /// Counts a strike, and makes the disk whole again after it.
    fn end_of_strike(&mut self, strike: Strike) -> Result<(), String> {
        match strike {
            Strike::None | Strike::Second(_) => {}
            Strike::Kill(_) => self.tally.kills += 1,
            Strike::Cut(_) => {
                self.tally.cuts += 1;
                self.lost_in = Some(self.generation()?);
                if let Some(mounted) = self.mounted.take() {
                    let disk = mounted.disk.clone();
                    drop(mounted);
                    lock(&disk).switch_on();
                    self.mount(disk)?;
                }
            }
            Strike::Fault { .. } => {
                self.lost_in = Some(self.generation()?);
                if let Some(mounted) = &self.mounted {
                    self.tally.faults += mounted.disk().disarm(DISK_BYTES);
                }
            }
        }
        Ok(())
    }

    /// Keeps a store that lies on a disk in memory.
    pub fn keep_store(&mut self) {
        if let Some(mounted) = &self.mounted {
            mounted.disk().disarm(DISK_BYTES);
            mounted.disk().switch_on();
            if let Err(error) = copy_folder(&self.store_path(), &self.folder.join("store")) {
                eprintln!("cambium-stress: the store cannot be kept: {error}");
            }
        }
        self.mounted = None;
        _ = std::fs::remove_dir(self.mount_point());
    }

    pub fn remove(&mut self) {
        self.mounted = None;
        _ = std::fs::remove_dir_all(&self.folder);
    }

    fn history_path(&self) -> PathBuf {
        self.folder.join("history.log")
    }

    /// The last lines of the history.
    pub fn history_end(&self) -> String {
        let history = std::fs::read_to_string(self.history_path()).unwrap_or_default();
        let lines: Vec<&str> = history.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }
}
