//! Processes that the supervisor starts: watched while they run, with a deadline.

use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How a process ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// With an exit status.
    Status(i32),
    /// By the supervisor's own kill.
    Killed,
    /// By a signal that the supervisor did not send.
    Signal(i32),
    /// It did not end by its deadline, and was killed.
    Hung,
}

/// Is called every two milliseconds with the time since the start; true kills the process.
pub type Watch<'a> = &'a mut dyn FnMut(Duration) -> bool;

/// Runs a command. Its output goes to `output`, which is made anew.
pub fn run(
    command: &mut Command,
    output: &Path,
    watch: Watch<'_>,
    deadline: Duration,
) -> io::Result<(End, String)> {
    let file = File::create(output)?;
    let child = command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()?;
    let end = wait(child, watch, deadline)?;
    let said = std::fs::read(output)?;
    Ok((end, String::from_utf8_lossy(&said).into_owned()))
}

fn wait(mut child: Child, watch: Watch<'_>, deadline: Duration) -> io::Result<End> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(match status.code() {
                Some(code) => End::Status(code),
                None => End::Signal(status.signal().unwrap_or(0)),
            });
        }
        let end = match began.elapsed() {
            elapsed if watch(elapsed) => End::Killed,
            elapsed if elapsed > deadline => End::Hung,
            _ => {
                std::thread::sleep(Duration::from_millis(2));
                continue;
            }
        };
        child.kill()?;
        child.wait()?;
        return Ok(end);
    }
}

/// Processes that keep processors busy until this is dropped.
pub struct Busy(Vec<Child>);

impl Busy {
    pub fn start(count: usize) -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let start = |_| {
            Command::new(&program)
                .arg("busy")
                .stdin(Stdio::null())
                .spawn()
        };
        Ok(Busy((0..count).map(start).collect::<io::Result<_>>()?))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            _ = child.kill();
            _ = child.wait();
        }
    }
}

/// The number in front of a word of a process's last line.
pub fn number_before(line: &str, word: &str) -> u64 {
    let before = line.split(word).next().unwrap_or_default();
    let last = before.rsplit([' ', '\n']).next();
    last.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The first lines of what a process said.
pub fn head(said: &str) -> String {
    let lines: Vec<&str> = said.trim().lines().take(10).collect();
    lines.join("\n").chars().take(2000).collect()
}

/// A part of this program as a process of its own.
pub fn part(name: &str, orders: &impl serde::Serialize) -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let orders = serde_json::to_string(orders).map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args([name, &orders]);
    Ok(command)
}

/// True if a process complains of a disk that is off.
pub fn is_of_disk(said: &str) -> bool {
    [
        "Input/output error",
        "Read-only file system",
        "No such file",
    ]
    .iter()
    .any(|error| said.contains(error))
}

/// The command `cambium`, which is built into the same folder.
pub fn cambium_command() -> Result<PathBuf, String> {
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
