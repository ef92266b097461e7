//! The part that adapters of servers share: starting one, and speaking Redis' protocol to it.
//!
//! ```text
//!  redis.rs, cambium_server.rs ──Dialect──▶ sessions.rs   entries over a connection a session
//!                              └─Launch───▶ process.rs    the server as a child process
//! ```
//!
//! The server is a child of the worker, and listens to a unix socket in the store's folder; it
//! ends with the worker, also where that is killed. Its processor time, memory and bytes on the
//! device count as the store's ([`crate::counters::count_also`]), and so does what the client
//! costs.
//!
//! With setting `address` (`HOST:PORT` or `unix:PATH`) no server is started. The server there
//! must hold the durability that the run asks for, and its database must be empty, or hold
//! exactly the keys that an earlier run left: its key [`OWNER`] has their fingerprint. Space and costs are unknown then, and a cold
//! run or a reopen cannot be. The password is that of the environment variable
//! `REDISCLI_AUTH`.

mod process;
mod sessions;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use cambium_base::hash::sip13;
use cambium_foreign::redis::{Address, Answer, Connection};
use kvzone_core::adapter::{Availability, DurabilityName, OpenRequest, OpenStore};
use kvzone_core::error::{Error, Result};

use self::process::ServerProcess;
use self::sessions::{Held, Open};
use super::settings::Settings;

/// The setting that names a server which runs already.
const ADDRESS: &str = "address";
/// The key that marks a database as KVZone's. Its value is [`OPEN`] or the fingerprint of the keys
/// that the run left, a blank, and the folder of the run.
const OWNER: &[u8] = b"kvzone:run";
/// In place of a fingerprint while a run goes on.
const OPEN: &str = "open";
/// How many keys a step of SCAN is to answer.
const SCANNED: &[u8] = b"1000";
/// The password of a server that runs already.
const PASSWORD: &str = "REDISCLI_AUTH";
/// The longest answer that is read: the largest value that one of the servers takes.
const MOST_BYTES: u64 = 1 << 30;
/// How long an answer may take: a compaction is one.
const PATIENCE: Duration = Duration::from_secs(3600);
/// The longest path of a socket, by the system's limit of 107.
const MOST_SOCKET_BYTES: usize = 100;

/// How a server is spoken to, where servers differ.
pub(super) trait Dialect: Send + Sync {
    fn name(&self) -> &'static str;

    /// The durability that a running server promises, and how it is changed.
    fn promised(&self, connection: &mut Connection) -> Result<(DurabilityName, &'static str)>;

    fn scan(&self, connection: &mut Connection, from: &[u8], limit: u64) -> Result<Vec<Answer>>;

    fn sync(&self, connection: &mut Connection) -> Result<()>;

    fn settle(&self, connection: &mut Connection) -> Result<()>;

    fn compact(&self, connection: &mut Connection) -> Result<()>;

    /// Lines of `name:value`.
    fn counters(&self, connection: &mut Connection) -> Result<String>;

    /// The command that ends the server and keeps what it holds.
    fn shutdown(&self) -> &'static [&'static [u8]];
}

pub(super) fn running(settings: &mut Settings, store: &str) -> Result<Option<Address>> {
    match settings.text(ADDRESS, "").as_str() {
        "" => Ok(None),
        text => {
            let address: std::result::Result<Address, String> = text.parse();
            let malformed = |words| Error::Usage(format!("setting {store}.{ADDRESS}={words}"));
            address.map(Some).map_err(malformed)
        }
    }
}

pub(super) fn is_elsewhere(request: &OpenRequest) -> bool {
    let address = request.overrides.get(ADDRESS);
    address.is_some_and(|address| !address.is_empty())
}

pub(super) fn probe(program: &Path, remedy: &str) -> Availability {
    let missing = |why: String| Availability::Missing {
        what: format!("{}: {why}", program.display()),
        remedy: remedy.to_string(),
    };
    match Command::new(program).arg("--version").output() {
        Err(error) => missing(error.to_string()),
        Ok(output) if !output.status.success() => missing(format!("it answers {}", output.status)),
        Ok(output) => {
            let words = String::from_utf8_lossy(&output.stdout).into_owned();
            let is_version = |word: &&str| word.starts_with(|first: char| first.is_ascii_digit());
            let mut words = words.split([' ', '=', '\n']);
            Availability::Found {
                version: words.find(is_version).unwrap_or("unknown").to_string(),
                path: Some(program.to_path_buf()),
            }
        }
    }
}

/// The same for a request, which may name a server that runs already.
pub(super) fn probe_for(request: &OpenRequest, program: &Path, remedy: &str) -> Availability {
    match is_elsewhere(request) {
        true => Availability::Found {
            version: "running".to_string(),
            path: None,
        },
        false => probe(program, remedy),
    }
}

/// One command; an error names the store and the command.
pub(super) fn call(
    store: &'static str,
    connection: &mut Connection,
    name: &'static str,
    words: &[&[u8]],
) -> Result<Answer> {
    let answer = connection.call(words);
    answer.map_err(|error| Error::store(store, name, error))
}

pub(super) fn start<D: Dialect + 'static>(
    dialect: D,
    request: &OpenRequest,
    command: impl FnOnce(&Path) -> Command,
) -> Result<Arc<dyn OpenStore>> {
    let name = dialect.name();
    let socket = socket_path(&request.folder);
    let address = Address::Unix(socket.clone());
    let mut process = ServerProcess::start(name, command(&socket), &request.folder, socket)?;
    let control = loop {
        process.check_running()?;
        match connect(name, &address, None).and_then(ping) {
            Ok(Some(connection)) => break connection,
            // It listens not yet, or it loads.
            Ok(None) | Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    Ok(Arc::new(Open::new(
        dialect,
        address,
        None,
        control,
        Held::Child(process),
    )))
}

pub(super) fn join<D: Dialect + 'static>(
    dialect: D,
    request: &OpenRequest,
    address: Address,
) -> Result<Arc<dyn OpenStore>> {
    let password = std::env::var(PASSWORD).ok();
    let password = password.filter(|password| !password.is_empty());
    let mut control = connect(dialect.name(), &address, password.as_deref())?;
    let (promised, remedy) = dialect.promised(&mut control)?;
    if promised != request.durability {
        return Err(Error::Usage(format!(
            "{} at {address}: its writes are {promised}, and {} ones were asked for: {remedy}, \
             or choose another --durability",
            dialect.name(),
            request.durability
        )));
    }
    claim(dialect.name(), &address, &mut control, &request.folder)?;
    Ok(Arc::new(Open::new(
        dialect,
        address,
        password,
        control,
        Held::Elsewhere(request.folder.clone()),
    )))
}

/// Takes possession of a database: empties what an earlier run left, and refuses what belongs
/// to somebody else.
fn claim(
    name: &'static str,
    address: &Address,
    control: &mut Connection,
    folder: &Path,
) -> Result<()> {
    let owner = call(name, control, "GET", &[b"GET", OWNER])?.into_bytes();
    let blank = owner.iter().position(|byte| *byte == b' ');
    let (state, of) = owner.split_at(blank.unwrap_or(owner.len()));
    if of.strip_prefix(b" ") == Some(folder.as_os_str().as_encoded_bytes()) {
        return Ok(());
    }
    let (count, fingerprint) = keys_of(name, control)?;
    if count > 0 && state != fingerprint.as_bytes() {
        let whose = match state {
            b"" => "that are not of KVZone",
            b"open" => "and its last run has not ended",
            _ => "which are not the ones that KVZone's last run left",
        };
        return Err(Error::Usage(format!(
            "{name} at {address}: database 0 holds {count} keys {whose}; expected an empty \
             database: FLUSHDB empties it, or start another server"
        )));
    }
    call(name, control, "FLUSHDB", &[b"FLUSHDB"])?;
    mark(name, control, OPEN, folder)
}

/// Notes which keys a run leaves, so that the next one removes no others.
fn leave(name: &'static str, control: &mut Connection, folder: &Path) -> Result<()> {
    let (_, fingerprint) = keys_of(name, control)?;
    mark(name, control, &fingerprint, folder)
}

fn mark(name: &'static str, control: &mut Connection, state: &str, folder: &Path) -> Result<()> {
    let folder = folder.as_os_str().as_encoded_bytes();
    let value = [state.as_bytes(), b" ", folder].concat();
    call(name, control, "SET", &[b"SET", OWNER, &value]).map(drop)
}

/// How many keys there are beside [`OWNER`], and a fingerprint of all of them.
fn keys_of(name: &'static str, control: &mut Connection) -> Result<(usize, String)> {
    // SCAN may answer a key twice.
    let mut hashes = HashSet::new();
    let mut cursor = b"0".to_vec();
    loop {
        let words: &[&[u8]] = &[b"SCAN", &cursor, b"COUNT", SCANNED];
        let Answer::List(answers) = call(name, control, "SCAN", words)? else {
            return Err(Error::store(name, "SCAN", "expected a cursor and keys"));
        };
        let mut answers = answers.into_iter();
        cursor = answers.next().map(Answer::into_bytes).unwrap_or_default();
        let Some(Answer::List(keys)) = answers.next() else {
            return Err(Error::store(name, "SCAN", "expected a cursor and keys"));
        };
        let keys = keys.into_iter().map(Answer::into_bytes);
        hashes.extend(
            keys.filter(|key| key != OWNER)
                .map(|key| sip13(&key, [0; 2])),
        );
        if cursor == b"0" {
            break;
        }
    }
    let sum = hashes.iter().copied().fold(0, u64::wrapping_add);
    Ok((hashes.len(), format!("{}-{sum:x}", hashes.len())))
}

fn connect(name: &'static str, address: &Address, password: Option<&str>) -> Result<Connection> {
    let connected = Connection::connect(address, MOST_BYTES, PATIENCE);
    let mut connection =
        connected.map_err(|error| Error::store(name, "connect", format!("{address}: {error}")))?;
    if let Some(password) = password {
        let words: &[&[u8]] = &[b"AUTH", password.as_bytes()];
        call(name, &mut connection, "AUTH", words)?;
    }
    Ok(connection)
}

fn ping(mut connection: Connection) -> Result<Option<Connection>> {
    let pong = connection.call(&[b"PING"]);
    Ok(pong.is_ok().then_some(connection))
}

/// In the folder, or in the system's for temporary files if the path is too long.
fn socket_path(folder: &Path) -> PathBuf {
    let path = folder.join("server.sock");
    if path.as_os_str().len() <= MOST_SOCKET_BYTES {
        return path;
    }
    let hash = sip13(folder.as_os_str().as_encoded_bytes(), [0; 2]);
    let name = format!("kvzone-{}-{hash:x}.sock", std::process::id());
    std::env::temp_dir().join(name)
}

#[cfg(test)]
mod tests {
    use kvzone_core::adapter::{Adapter, Session};

    use super::super::cambium_server::CAMBIUM_SERVER;
    use super::super::conformance::request;
    use super::*;

    fn session(request: &OpenRequest) -> Result<Box<dyn Session>> {
        CAMBIUM_SERVER.open(request)?.session()
    }

    fn has(request: &OpenRequest, key: &[u8]) -> bool {
        let mut value = Vec::new();
        session(request).unwrap().get(key, &mut value).unwrap()
    }

    #[test]
    fn a_server_that_runs_already_is_measured_only_where_nothing_is_lost() {
        if let Availability::Missing { what, remedy } = CAMBIUM_SERVER.probe() {
            eprintln!("SKIPPED: {what}; to get it: {remedy}");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let server = CAMBIUM_SERVER.open(&request(folder.path())).unwrap();
        let socket = socket_path(folder.path());
        let elsewhere = |run: &str| {
            let mut asked = request(&folder.path().join(run));
            let address = format!("unix:{}", socket.display());
            asked.overrides.insert(ADDRESS.to_string(), address);
            asked
        };
        let mut somebody = server.clone().session().unwrap();
        somebody.put(b"oak", b"Quercus").unwrap();
        let words = session(&elsewhere("first")).err().unwrap().to_string();
        assert!(
            words.contains("holds 1 keys that are not of KVZone"),
            "{words}"
        );
        somebody.delete(b"oak").unwrap();

        let first = CAMBIUM_SERVER.open(&elsewhere("first")).unwrap();
        first.clone().session().unwrap().put(b"a", b"1").unwrap();
        assert!(
            has(&elsewhere("first"), b"a"),
            "a second open finds the run's keys"
        );
        let refused = || session(&elsewhere("second")).err().unwrap().to_string();
        assert!(refused().contains("has not ended"), "{}", refused());
        first.close().unwrap();
        somebody.put(b"oak", b"Quercus").unwrap();
        assert!(refused().contains("2 keys which are not"), "{}", refused());
        // As many keys as the run left, and not the same.
        somebody.delete(b"a").unwrap();
        assert!(refused().contains("1 keys which are not"), "{}", refused());
        somebody.put(b"a", b"2").unwrap();
        somebody.delete(b"oak").unwrap();
        assert!(!has(&elsewhere("second"), b"a"), "another run begins anew");

        let synced = OpenRequest {
            durability: DurabilityName::Synced,
            ..elsewhere("second")
        };
        let words = session(&synced).err().unwrap().to_string();
        assert!(
            words.contains("its writes are written, and synced ones"),
            "{words}"
        );
        assert!(!CAMBIUM_SERVER.capabilities_for(&synced).persistent);
        assert!(CAMBIUM_SERVER.data_paths(&synced).is_empty());
        drop(somebody);
        server.close().unwrap();
    }

    #[test]
    fn a_socket_has_a_path_that_the_system_takes() {
        let deep = Path::new("/").join("x".repeat(200));
        for folder in [Path::new("/tmp"), &deep] {
            let path = socket_path(folder);
            assert!(
                path.as_os_str().len() <= MOST_SOCKET_BYTES,
                "{}",
                path.display()
            );
        }
        assert_ne!(socket_path(&deep), socket_path(&deep.join("y")));
    }
}
