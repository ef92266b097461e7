//! A server as a child process: it starts in a folder, and is gone when its owner is.
//!
//! | the worker | the server |
//! |---|---|
//! | closes the store | is asked to shut down, and waited for |
//! | drops the store, or panics | is killed, and waited for |
//! | is killed | is killed by the kernel (`PR_SET_PDEATHSIG`), at the same moment |
//!
//! The kernel kills the child when the *thread* that started it ends: a worker opens its store in
//! its main thread.
//!
//! A server that was killed may take a moment to end. The next one in the same folder waits for
//! that: the file `server.lock` is locked as long as a process has it open, and is the
//! server's standard input. What the server prints goes to `server.log`.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use kvzone_core::error::{Error, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::counters::{Counted, count_also};

const LOG: &str = "server.log";
const LOCK: &str = "server.lock";
/// How long an earlier server in the folder may take to end.
const LOCK_PATIENCE: Duration = Duration::from_secs(60);
/// Lines of the log that an error quotes.
const QUOTED_LINES: usize = 4;

#[derive(Debug)]
pub(super) struct ServerProcess {
    name: &'static str,
    child: Child,
    log: PathBuf,
    socket: PathBuf,
    _counted: Counted,
}

impl ServerProcess {
    pub(super) fn start(
        name: &'static str,
        mut command: Command,
        folder: &Path,
        socket: PathBuf,
    ) -> Result<ServerProcess> {
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |error| Error::machine("make", path, error)
        };
        let (lock, log) = (folder.join(LOCK), folder.join(LOG));
        let lock = lock_file(&lock).map_err(failed(&lock))?;
        let output = File::create(&log).map_err(failed(&log))?;
        let errors = output.try_clone().map_err(failed(&log))?;
        let die_with_parent = || Ok(set_parent_process_death_signal(Some(Signal::KILL))?);
        command.stdin(lock).stdout(output).stderr(errors);
        // SAFETY: between fork and exec only async-signal-safe functions may be called: this is
        // one system call.
        unsafe { command.pre_exec(die_with_parent) };
        let child = command.spawn().map_err(|error| {
            let program = command.get_program().to_string_lossy().into_owned();
            Error::store(name, "start", format!("{program}: {error}"))
        })?;
        Ok(ServerProcess {
            name,
            _counted: count_also(child.id()),
            child,
            log,
            socket,
        })
    }

    pub(super) fn check_running(&mut self) -> Result<()> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.ended(&status)),
            Err(error) => Err(Error::store(self.name, "wait", error)),
        }
    }

    pub(super) fn wait(mut self) -> Result<()> {
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(self.ended(&status)),
            Err(error) => Err(Error::store(self.name, "wait", error)),
        }
    }

    fn ended(&self, status: &std::process::ExitStatus) -> Error {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().filter(|line| !line.is_empty()).collect();
        let last = lines[lines.len().saturating_sub(QUOTED_LINES)..].join("; ");
        let words = format!("the server has ended with {status}; its last words: {last}");
        Error::store(self.name, "start", words)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.socket);
    }
}

/// Waits until no other server holds the file.
fn lock_file(path: &Path) -> std::io::Result<File> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)?;
    let begun = Instant::now();
    while let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
        if begun.elapsed() > LOCK_PATIENCE {
            return Err(error.into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_gone_when_it_is_dropped_and_the_next_one_may_start() {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let mut command = Command::new("sleep");
            command.arg("1000");
            let socket = folder.path().join("sock");
            let mut server = ServerProcess::start("x", command, folder.path(), socket).unwrap();
            server.check_running().unwrap();
            let process = server.child.id();
            drop(server);
            assert!(!Path::new(&format!("/proc/{process}")).exists());
        }
    }

    #[test]
    fn a_server_that_ends_is_an_error_with_its_last_words() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such option; exit 3"]);
        let socket = folder.path().join("sock");
        let server = ServerProcess::start("x", command, folder.path(), socket).unwrap();
        let words = server.wait().unwrap_err().to_string();
        assert!(words.contains("no such option"), "{words}");
        assert!(words.contains("exit status: 3"), "{words}");
    }
}
