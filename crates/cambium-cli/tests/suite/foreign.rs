//! Stores of others are imported whole, go on where they were broken off, and say
//! which library is missing. Where a library is not here, its test says so.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::harness::{Place, Run};
use cambium_foreign::{Error, making};

mod tables;

/// False, with a word on it, where the library is not here.
fn is_made(made: Result<(), Error>) -> bool {
    match made {
        Err(missing @ Error::Missing { .. }) => {
            eprintln!("SKIPPED: {missing}");
            false
        }
        made => {
            made.unwrap();
            true
        }
    }
}

fn import(place: &Place, source: &str, more: &[&str]) -> Run {
    place.run([&["import", "s", "--from", source], more].concat())
}

fn numbered(count: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let entry = |at| {
        (
            format!("key {at:06}").into_bytes(),
            format!("leaf {at}").into_bytes(),
        )
    };
    (0..count).map(entry).collect()
}

fn slices(entries: &[(Vec<u8>, Vec<u8>)]) -> Vec<(&[u8], &[u8])> {
    entries
        .iter()
        .map(|(key, value)| (&key[..], &value[..]))
        .collect()
}

/// Imports 12,345 entries in two runs: the first stops behind what was synced.
#[track_caller]
fn goes_on(place: &Place, source: &str, count: usize) {
    let position = || {
        let names = fs::read_dir(place.path("s")).unwrap();
        let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.find(|name| name.starts_with("IMPORT-"))
    };
    // What an interruption after a sync leaves: the store as it is then, and the place.
    let binary = place.command(["import", "s", "--from", source]);
    let mut child = kill_after_sync(binary);
    child.wait().unwrap();
    let run = import(place, source, &["--resume"]);
    assert!(
        run.talk.contains("going on behind") || run.talk.contains("beginning"),
        "{}",
        run.talk
    );
    run.done();
    assert_eq!(place.run(["count", "s"]).done(), format!("{count}\n"));
    assert_eq!(position(), None);
}

fn kill_after_sync(mut command: Command) -> std::process::Child {
    let mut child = command
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    let line = lines.find(|line| line.contains("synced")).unwrap();
    assert!(line.contains("synced 10000 entries"), "{line}");
    _ = child.kill();
    child
}

#[test]
fn a_folder_of_leveldb_is_imported() {
    let place = Place::with_store();
    let entries: [(&[u8], &[u8]); 3] = [(b"oak", b"Quercus"), (b"\0\xff", b""), (b"elm", b"\xff")];
    if !is_made(making::leveldb(&place.path("level"), &entries)) {
        return;
    }
    import(&place, "leveldb:level", &[]).done();
    let json = place.run(["scan", "s", "--format", "json"]).done();
    assert_eq!(
        json,
        "{\"key_hex\":\"00ff\",\"value\":\"\"}\n{\"key\":\"elm\",\"value_hex\":\"ff\"}\n\
         {\"key\":\"oak\",\"value\":\"Quercus\"}\n"
    );
    let many = numbered(12_345);
    making::leveldb(&place.path("many"), &slices(&many)).unwrap();
    place.run(["delete", "s", "--from", ""]).done();
    goes_on(&place, "leveldb:many", many.len());
}

#[test]
fn what_is_no_folder_of_leveldb_is_left_alone() {
    let place = Place::with_store();
    import(&place, "leveldb:none", &[]).refused(3, &["none", "CURRENT"]);
    assert!(!place.path("none").exists());
    place.file("rocks/CURRENT", "MANIFEST-000004\n");
    place.file("rocks/OPTIONS-000007", "");
    import(&place, "leveldb:rocks", &[]).refused(2, &["rocksdb:rocks"]);
    import(&place, "lmdb:s", &[]).refused(3, &["data.mdb"]);
}

#[test]
fn column_families_of_rocksdb_become_namespaces() {
    let place = Place::with_store();
    let trees: making::Entries<'_> = &[(b"oak", b"Quercus")];
    let people: making::Entries<'_> = &[(b"ada", b"Lovelace")];
    if !is_made(making::rocksdb(
        &place.path("rocks"),
        trees,
        "people",
        people,
    )) {
        return;
    }
    import(&place, "rocksdb:rocks", &[]).done();
    assert_eq!(place.run(["scan", "s"]).done(), "oak\tQuercus\n");
    let get = ["get", "s", "--namespace", "people", "ada"];
    assert_eq!(place.run(get).done(), "Lovelace");
    place.run(["create", "z", "--engine", "zdb"]).done();
    let run = place.run(["import", "z", "--from", "rocksdb:rocks"]);
    assert_eq!(run.status, Some(2), "{}", run.talk);
    assert!(run.talk.contains("\"people\""), "{}", run.talk);
}

#[test]
fn databases_of_lmdb_become_namespaces() {
    let place = Place::with_store();
    fs::create_dir(place.path("env")).unwrap();
    let value = [7; 48]; // as long as what stands for a database
    let several: [(&[u8], &[u8]); 2] = [(b"k", b"one"), (b"k", b"two")];
    let made = making::lmdb(
        &place.path("env"),
        &[
            ("", 0, &[(b"oak", b"Quercus"), (b"like a database", &value)]),
            ("people", 0, &[(b"ada", b"Lovelace")]),
            ("several", 4, &several),
        ],
    );
    if !is_made(made) {
        return;
    }
    let run = import(&place, "lmdb:env", &[]);
    assert_eq!(run.status, Some(3), "{}", run.talk);
    assert!(
        run.talk.contains("\"several\" keeps several values"),
        "{}",
        run.talk
    );
    let keys = place.run(["scan", "s", "--keys-only"]).done();
    assert_eq!(keys, "like a database\noak\n");
    let get = ["get", "s", "--namespace", "people", "ada"];
    assert_eq!(place.run(get).done(), "Lovelace");
    // The file of a folder is the same environment.
    place.run(["create", "t"]).done();
    place.run(["import", "t", "--from", "lmdb:env/data.mdb"]);
    assert_eq!(place.run(["count", "t"]).done(), "2\n");
    let many = numbered(12_345);
    fs::create_dir(place.path("many")).unwrap();
    making::lmdb(&place.path("many"), &[("", 0, &slices(&many)[..6000])]).unwrap();
    making::lmdb(&place.path("many"), &[("", 0, &slices(&many)[6000..])]).unwrap();
    place.run(["delete", "s", "--from", ""]).done();
    goes_on(&place, "lmdb:many", many.len());
}

#[test]
fn a_database_of_lmdb_whose_name_is_not_utf8_is_imported() {
    let place = Place::with_store();
    fs::create_dir(place.path("env")).unwrap();
    let made = making::lmdb(
        &place.path("env"),
        &[
            (&b""[..], 0, &[(b"oak", b"Quercus")]),
            (b"\xff\xfedb", 0, &[(b"elm", b"Ulmus")]),
        ],
    );
    if !is_made(made) {
        return;
    }
    import(&place, "lmdb:env", &[]).done();
    assert_eq!(place.run(["scan", "s"]).done(), "oak\tQuercus\n");
    let get = ["get", "s", "--namespace", "\u{fffd}\u{fffd}db", "elm"];
    assert_eq!(place.run(get).done(), "Ulmus");
    // Another name that reads the same as text.
    let another: making::Entries<'_> = &[(b"elm", b"another")];
    making::lmdb(&place.path("env"), &[(b"\xfe\xffdb", 0, another)]).unwrap();
    let run = import(&place, "lmdb:env", &[]);
    assert_eq!(run.status, Some(3), "{}", run.talk);
    let named = "has the name of another one as text";
    assert_eq!(run.talk.matches(named).count(), 1, "{}", run.talk);
}

#[test]
fn a_damaged_file_of_lmdb_is_refused() {
    let place = Place::with_store();
    fs::create_dir(place.path("env")).unwrap();
    let many = numbered(12_345);
    if !is_made(making::lmdb(&place.path("env"), &[("", 0, &slices(&many))])) {
        return;
    }
    let whole = fs::read(place.path("env/data.mdb")).unwrap();
    let expected = format!("pages of {} bytes", whole.len());
    fs::write(place.path("cut.mdb"), &whole[..100_000]).unwrap();
    import(&place, "lmdb:cut.mdb", &[])
        .refused(3, &["cut.mdb: damaged", "100000 bytes", &expected]);
    let mut pages = whole.clone();
    for at in (8192..pages.len()).step_by(4096) {
        pages[at..at + 64].fill(0xa5);
    }
    fs::write(place.path("env/data.mdb"), &pages).unwrap();
    import(&place, "lmdb:env", &[]).refused(3, &["env", "lmdb"]);
    assert_eq!(place.run(["count", "s"]).done(), "0\n");
    // The number of entries in both meta pages.
    for (count, found) in [(99_999_u64, "12345"), (99, "more")] {
        let mut other = whole.clone();
        for at in [120, 4096 + 120] {
            other[at..at + 8].copy_from_slice(&count.to_ne_bytes());
        }
        fs::write(place.path("other.mdb"), &other).unwrap();
        let expected = format!("counts {count} entries, and {found} can be read");
        import(&place, "lmdb:other.mdb", &[]).refused(3, &[&expected]);
    }
    let run = script(&place, "import --from lmdb:cut.mdb\nput oak Quercus\n");
    assert!(run.talk.contains("cut.mdb: damaged"), "{}", run.talk);
    assert_eq!(place.run(["count", "s"]).done(), "1\n");
}

#[test]
fn lmdb_is_imported_after_the_program_file_was_removed() {
    let place = Place::with_store();
    fs::create_dir(place.path("env")).unwrap();
    if !is_made(making::lmdb(
        &place.path("env"),
        &[("", 0, &[(b"oak", b"Quercus")])],
    )) {
        return;
    }
    // A process of its own copies: another test's child could hold a file open that this
    // process writes, and a file that is open for writing cannot be started.
    let program = place.path("cambium");
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_cambium"))
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    let mut shell = Command::new(&program)
        .args(["shell", "s"])
        .current_dir(place.path(""))
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    fs::remove_file(&program).unwrap();
    let mut lines = shell.stdin.take().unwrap();
    lines.write_all(b"import --from lmdb:env\n").unwrap();
    drop(lines);
    let run = Run::of(shell.wait_with_output().unwrap());
    assert!(run.talk.contains("imported 1 entries"), "{}", run.talk);
}

/// Lines of a shell that goes on behind failures.
fn script(place: &Place, lines: &str) -> Run {
    place.run_with_input(["shell", "s", "-k"], lines.as_bytes())
}

/// A server with a few of Redis' commands, that hangs up after so many of them.
struct Server {
    port: u16,
    /// Commands that are answered before it hangs up.
    left: Arc<AtomicUsize>,
}

impl Server {
    fn start(strings: usize, password: Option<&'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let left = Arc::new(AtomicUsize::new(usize::MAX));
        let mut values: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for at in 0..strings {
            values.insert(format!("key {at}").into(), format!("leaf\r\n{at}").into());
        }
        values.insert(b"hash".to_vec(), Vec::new());
        let counter = left.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                // A client that goes away in the middle is no failure of a server.
                _ = serve(stream, &values, &counter, password);
            }
        });
        Server { port, left }
    }
}

fn serve(
    stream: TcpStream,
    values: &BTreeMap<Vec<u8>, Vec<u8>>,
    left: &AtomicUsize,
    password: Option<&str>,
) -> std::io::Result<()> {
    const PAGE: usize = 100;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    let mut is_in = password.is_none();
    let bulk = |bytes: &[u8]| [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    loop {
        let words = read_command(&mut reader)?;
        if left.fetch_sub(1, Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let name = String::from_utf8_lossy(&words[0]).into_owned();
        let answer = match name.as_str() {
            "AUTH" => {
                is_in = password.is_some_and(|right| right.as_bytes() == words[1]);
                b"+OK\r\n".to_vec()
            }
            _ if !is_in => b"-NOAUTH Authentication required.\r\n".to_vec(),
            "INFO" => bulk(b"# Server\r\nrun_id:1f\r\n"),
            "SELECT" => b"+OK\r\n".to_vec(),
            "SCAN" => {
                let from: usize = String::from_utf8_lossy(&words[1]).parse().unwrap();
                let page: Vec<_> = values.keys().skip(from).take(PAGE).collect();
                let next = if from + PAGE < values.len() {
                    from + PAGE
                } else {
                    0
                };
                let mut answer = b"*2\r\n".to_vec();
                answer.extend(bulk(next.to_string().as_bytes()));
                answer.extend(format!("*{}\r\n", page.len()).into_bytes());
                page.iter().for_each(|key| answer.extend(bulk(key)));
                answer
            }
            "TYPE" if words[1] == b"hash" => b"+hash\r\n".to_vec(),
            "TYPE" => b"+string\r\n".to_vec(),
            "PTTL" if words[1] == b"key 7" => b":86400000\r\n".to_vec(),
            "PTTL" => b":-1\r\n".to_vec(),
            "GET" => bulk(&values[&words[1]]),
            other => format!("-ERR unknown command {other}\r\n").into_bytes(),
        };
        stream.write_all(&answer)?;
    }
}

fn read_command(reader: &mut impl BufRead) -> std::io::Result<Vec<Vec<u8>>> {
    let count = read_number(reader, '*')?;
    let mut words = Vec::new();
    for _ in 0..count {
        let mut word = vec![0; read_number(reader, '$')? + 2];
        reader.read_exact(&mut word)?;
        word.truncate(word.len() - 2);
        words.push(word);
    }
    Ok(words)
}

fn read_number(reader: &mut impl BufRead, mark: char) -> std::io::Result<usize> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let digits = line.trim_end().strip_prefix(mark);
    let number = digits.and_then(|digits| digits.parse().ok());
    number.ok_or(std::io::ErrorKind::UnexpectedEof.into())
}

#[test]
fn strings_of_redis_are_imported_and_other_types_named() {
    let place = Place::with_store();
    let server = Server::start(350, None);
    let run = import(&place, &format!("redis:127.0.0.1:{}", server.port), &[]);
    assert_eq!(run.status, Some(3), "{}", run.talk);
    assert!(
        run.talk.contains("1 keys of type hash, such as \"hash\""),
        "{}",
        run.talk
    );
    assert!(run.talk.contains("imported 350 entries"), "{}", run.talk);
    assert_eq!(place.run(["get", "s", "key 349"]).done(), "leaf\r\n349");
    assert_eq!(place.run(["count", "s"]).done(), "350\n");
    let exported = place.run(["export", "s", "--format", "jsonl"]).done();
    let mut expiring = exported.lines().filter(|line| line.contains("expires"));
    assert!(expiring.next().is_some_and(|line| line.contains("key 7\"")));
    assert_eq!(expiring.next(), None);
}

#[test]
fn redis_goes_on_where_it_hung_up() {
    let place = Place::with_store();
    let server = Server::start(350, None);
    let source = format!("redis:127.0.0.1:{}/2", server.port);
    server.left.store(500, Ordering::Relaxed);
    let run = import(&place, &source, &[]);
    assert_eq!(run.status, Some(3), "{}", run.talk);
    assert!(run.talk.contains("the connection ended"), "{}", run.talk);
    assert!(run.talk.contains("synced"), "{}", run.talk);
    server.left.store(usize::MAX, Ordering::Relaxed);
    let run = import(&place, &source, &["--resume"]);
    assert!(
        run.talk.contains("going on behind the keys before cursor"),
        "{}",
        run.talk
    );
    assert_eq!(place.run(["count", "s"]).done(), "350\n");
}

#[test]
fn redis_says_what_it_wants() {
    let place = Place::with_store();
    let server = Server::start(3, Some("secret"));
    let source = format!("redis:127.0.0.1:{}", server.port);
    import(&place, &source, &[]).refused(3, &["NOAUTH", "REDISCLI_AUTH"]);
    let mut command = place.command(["import", "s", "--from", &source]);
    let run = Run::of(command.env("REDISCLI_AUTH", "").output().unwrap());
    run.refused(3, &["NOAUTH", "REDISCLI_AUTH"]);
    let mut command = place.command(["import", "s", "--from", &source]);
    let run = Run::of(command.env("REDISCLI_AUTH", "secret").output().unwrap());
    assert!(run.talk.contains("imported 3 entries"), "{}", run.talk);
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    import(&place, &format!("redis:127.0.0.1:{closed}"), &[]).refused(3, &["refused", "server"]);
    import(&place, "redis:localhost", &[]).refused(2, &["HOST:PORT"]);
}

#[test]
fn a_library_that_is_missing_is_named_with_its_package() {
    let place = Place::with_store();
    // Away from the folder where `make peers` puts libraries.
    let binary = place.path("cambium");
    fs::copy(env!("CARGO_BIN_EXE_cambium"), &binary).unwrap();
    place.file("level/CURRENT", "MANIFEST-000001\n");
    let mut command = Command::new(binary);
    let command = command
        .current_dir(place.path(""))
        .env_remove("KVZONE_PEER_LIBS")
        .args(["import", "s", "--from", "leveldb:level"]);
    // A process that another test starts may hold the copy open for a moment.
    let run = loop {
        match command.output() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                thread::sleep(std::time::Duration::from_millis(10));
            }
            made => break Run::of(made.unwrap()),
        }
    };
    if run.talk.contains("missing") {
        run.refused(3, &["leveldb", "libleveldb1d"]);
    } else {
        eprintln!("SKIPPED: LevelDB is installed on the system");
    }
}
