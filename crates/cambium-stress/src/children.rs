//! Processes that the supervisor starts: with a deadline, and killed on demand.

use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
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

/// Runs a command. Its output goes to `output`, which is made anew. With `kill_after` it
/// is killed then, if it still runs.
pub fn run(
    command: &mut Command,
    output: &Path,
    kill_after: Option<Duration>,
    deadline: Duration,
) -> io::Result<(End, String)> {
    let file = File::create(output)?;
    let child = command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()?;
    let end = wait(child, kill_after, deadline)?;
    let said = std::fs::read(output)?;
    Ok((end, String::from_utf8_lossy(&said).into_owned()))
}

fn wait(mut child: Child, kill_after: Option<Duration>, deadline: Duration) -> io::Result<End> {
    let began = Instant::now();
    let until = kill_after.unwrap_or(deadline);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(match status.code() {
                Some(code) => End::Status(code),
                None => End::Signal(status.signal().unwrap_or(0)),
            });
        }
        let left = until.saturating_sub(began.elapsed());
        if left.is_zero() {
            child.kill()?;
            child.wait()?;
            return Ok(if kill_after.is_some() {
                End::Killed
            } else {
                End::Hung
            });
        }
        std::thread::sleep(left.min(Duration::from_millis(2)));
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
