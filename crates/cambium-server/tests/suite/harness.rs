//! A server in a process of its own.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::client::Client;

/// Longer than any of what is waited for takes on a machine that is slow, and busy.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// A running server, killed when it is dropped.
pub struct Server {
    process: Child,
    /// Where it listens.
    pub address: String,
}

/// A folder for one test.
pub fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

impl Server {
    /// Serves the store `store` of a folder.
    pub fn start(folder: &Path, arguments: &[&str]) -> Server {
        Server::start_with_log(folder, arguments, Stdio::inherit())
    }

    /// The same with its log elsewhere than in the test's own output.
    pub fn start_with_log(folder: &Path, arguments: &[&str], errors: impl Into<Stdio>) -> Server {
        Server::spawn(folder, "127.0.0.1:0", arguments, errors.into())
    }

    fn spawn(folder: &Path, address: &str, arguments: &[&str], errors: Stdio) -> Server {
        Server::try_start_at(folder, address, arguments, errors).expect("the server starts")
    }

    /// The same at an address. The error is the line in place of the one that it is ready.
    pub fn try_start_at(
        folder: &Path,
        address: &str,
        arguments: &[&str],
        errors: Stdio,
    ) -> Result<Server, String> {
        Server::try_start_by(&[], folder, address, arguments, errors)
    }

    /// The same by a program that becomes the server, with its arguments.
    pub fn try_start_by(
        starter: &[String],
        folder: &Path,
        address: &str,
        arguments: &[&str],
        errors: Stdio,
    ) -> Result<Server, String> {
        let program = env!("CARGO_BIN_EXE_cambium-server").to_string();
        let words: Vec<&String> = starter.iter().chain([&program]).collect();
        let level: &[&str] = match arguments.contains(&"--log-level") {
            true => &[],
            false => &["--log-level", "error"],
        };
        let mut process = Command::new(words[0])
            .args(&words[1..])
            .arg("--dir")
            .arg(folder.join("store"))
            .args(["--resp", address])
            .args(level)
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        // Dropped, it is waited for.
        let mut server = Server {
            process,
            address: String::new(),
        };
        let address = line.trim().strip_prefix("cambium-server is ready: ");
        server.address = address.ok_or(&line)?.to_string();
        Ok(server)
    }

    /// The same with one more port, by the name of its option, and that port's address.
    pub fn start_with(folder: &Path, port: &str, arguments: &[&str]) -> (Server, String) {
        Server::start_with_scheme(folder, port, port, arguments)
    }

    /// The same for a port whose addresses begin with another word than its option.
    pub fn start_with_scheme(
        folder: &Path,
        port: &str,
        scheme: &str,
        arguments: &[&str],
    ) -> (Server, String) {
        let option = format!("--{port}");
        let all = [&[&*option, "127.0.0.1:0"], arguments].concat();
        let mut server = Server::start(folder, &all);
        let separator = format!(" {scheme}://");
        let (resp, other) = server.address.split_once(&separator).unwrap();
        let (resp, other) = (resp.to_string(), other.to_string());
        server.address = resp;
        (server, other)
    }

    /// A new connection.
    pub fn client(&self) -> Client {
        Client::connect(&self.address)
    }

    /// Kills the process, as `kill -9` does.
    pub fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Sends SIGTERM, and waits for a clean end.
    pub fn terminate(mut self) {
        self.signal("TERM");
        let status = self.wait(PATIENCE).expect("the server ends");
        assert!(status.success());
    }

    /// The number of the process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends a signal.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.id().to_string())
            .status();
        assert!(status.unwrap().success());
    }

    /// How the process ends, if it does in time.
    pub fn wait(&mut self, time: Duration) -> Option<ExitStatus> {
        let begun = Instant::now();
        while begun.elapsed() < time {
            if let Some(status) = self.process.try_wait().unwrap() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// Calls `test` until it is true.
pub fn eventually(what: &str, mut test: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !test() {
        assert!(begun.elapsed() < PATIENCE, "{what}: it does not come true");
        std::thread::sleep(Duration::from_millis(20));
    }
}
