//! The HTTP port, as Prometheus, a supervisor and a browser see it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{PATIENCE, Server, folder};

/// A server with this port, and that port's address.
pub fn start(folder: &std::path::Path, arguments: &[&str]) -> (Server, String) {
    Server::start_with(folder, "http", arguments)
}

/// Status and body of a request.
fn request(address: &str, head: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("{head}\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let body = answer.split_once("\r\n\r\n").unwrap().1.to_string();
    (status, body)
}

pub fn get(address: &str, path: &str) -> (u16, String) {
    request(address, &format!("GET {path} HTTP/1.1"))
}

/// The value of a sample, by its name with labels.
pub fn sample(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find(|line| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(' '))
    })?;
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn a_scrape_shows_what_clients_did() {
    for durability in ["written", "synced"] {
        let folder = folder();
        let (server, http) = start(folder.path(), &["--durability", durability]);
        let mut client = server.client();
        client.call("SET oak Quercus");
        client.call("SET elm Ulmus EX 1000");
        client.call("GET oak");
        client.call("GET fir");
        client.call("INCR oak");
        client.call("NOSUCH");
        client.call("MULTI");
        client.call("SET fir Abies");
        client.call("EXEC");
        client.call("KEYS *");
        let (status, text) = get(&http, "/metrics");
        assert_eq!(status, 200);
        let is = |name: &str, expected: f64| {
            assert_eq!(sample(&text, name), Some(expected), "{name}\n{text}");
        };
        is("cambium_command_seconds_count{command=\"set\"}", 3.0);
        is("cambium_command_seconds_count{command=\"get\"}", 2.0);
        is("cambium_command_seconds_count{command=\"keys\"}", 1.0);
        is("cambium_command_seconds_count{command=\"exec\"}", 1.0);
        is(
            "cambium_command_seconds_bucket{le=\"+Inf\",command=\"get\"}",
            2.0,
        );
        is("cambium_command_errors_total{command=\"incr\"}", 1.0);
        is("cambium_rejected_commands_total", 1.0);
        is("cambium_keys{database=\"0\"}", 3.0);
        is("cambium_expiring_keys{database=\"0\"}", 1.0);
        is("cambium_connected_clients", 1.0);
        is("cambium_key_hits_total", 1.0);
        is("cambium_write_failing", 0.0);
        assert!(sample(&text, "cambium_received_bytes_total").unwrap() > 100.0);
        assert!(sample(&text, "cambium_device_bytes").unwrap() > 0.0);
        let syncs = sample(&text, "cambium_sync_seconds_count").unwrap();
        assert_eq!(syncs > 0.0, durability == "synced");
        assert!(text.ends_with("# EOF\n"));
        assert!(text.lines().any(|line| line.starts_with("cambium_store_")));
        server.terminate();
    }
}

#[test]
fn probes_and_pages_answer() {
    let folder = folder();
    let (server, http) = start(folder.path(), &[]);
    assert_eq!(get(&http, "/healthz"), (200, "ok\n".to_string()));
    assert_eq!(get(&http, "/readyz"), (200, "ok\n".to_string()));
    assert!(get(&http, "/").1.contains("<title>cambium-server</title>"));
    assert_eq!(get(&http, "/nowhere").0, 404);
    assert_eq!(get(&http, "/../etc/passwd").0, 404);
    assert_eq!(request(&http, "POST /metrics HTTP/1.1").0, 405);
    assert_eq!(
        request(&http, "HEAD /healthz HTTP/1.1"),
        (200, String::new())
    );
    server.terminate();
}

#[test]
fn the_password_of_clients_guards_counters() {
    let folder = folder();
    let path = folder.path().join("password");
    std::fs::write(&path, "oak\n").unwrap();
    let arguments = ["--password-file", path.to_str().unwrap()];
    let (_server, http) = start(folder.path(), &arguments);
    assert_eq!(get(&http, "/healthz").0, 200);
    for page in ["/", "/metrics"] {
        assert_eq!(get(&http, page).0, 401);
        // default:elm, then default:oak
        for (credentials, status) in [("ZGVmYXVsdDplbG0=", 401), ("ZGVmYXVsdDpvYWs=", 200)] {
            let head = format!("GET {page} HTTP/1.1\r\nAuthorization: Basic {credentials}");
            assert_eq!(request(&http, &head).0, status, "{page} {credentials}");
        }
    }
}

#[test]
fn strangers_neither_reach_the_port_nor_hold_it_up() {
    let folder = folder();
    let refused = Command::new(env!("CARGO_BIN_EXE_cambium-server"))
        .arg("--dir")
        .arg(folder.path().join("store"))
        .args(["--resp", "127.0.0.1:0", "--http", "0.0.0.0:0"])
        .output()
        .unwrap();
    assert!(!refused.status.success());
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("--password-file"), "{said}");

    let (server, http) = start(folder.path(), &[]);
    let slow: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut stream = TcpStream::connect(&http).unwrap();
            stream.write_all(b"GET /metr").unwrap();
            stream
        })
        .collect();
    let mut garbage = TcpStream::connect(&http).unwrap();
    garbage.write_all(&[0xff; 4096]).unwrap();
    let endless = format!("GET /{} HTTP/1.1", "x".repeat(100_000));
    // The server may close the connection before it has read all of it.
    _ = TcpStream::connect(&http)
        .unwrap()
        .write_all(endless.as_bytes());
    assert_eq!(get(&http, "/readyz").0, 200);
    assert_eq!(server.client().call("PING"), "+PONG");
    drop(slow);
    server.terminate();
}

/// The page as Chromium shows it once it has `text`; `None` where there is no Chromium.
pub fn browsed(folder: &Path, http: &str, text: &str, mut between: impl FnMut()) -> Option<String> {
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let is_there = |browser: &&&str| {
        let mut command = Command::new(browser);
        let command = command.arg("--version").stdout(Stdio::null());
        command
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    let Some(browser) = browsers.iter().find(is_there) else {
        eprintln!("SKIPPED: the page was not looked at: there is no Chromium here");
        return None;
    };
    // Virtual time does not wait for a busy machine, so the first page may be shown too early.
    let mut page = String::new();
    for _ in 0..5 {
        between();
        let shown = Command::new(browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu"])
            .args(["--disable-background-networking", "--disable-sync"])
            .args(["--disable-component-update", "--no-first-run"])
            .args(["--virtual-time-budget=9000", "--dump-dom"])
            .arg(format!(
                "--user-data-dir={}",
                folder.join("browser").display()
            ))
            .arg(format!("http://{http}/"))
            .stderr(Stdio::null())
            .output()
            .unwrap();
        page = String::from_utf8_lossy(&shown.stdout).into_owned();
        if page.contains(text) {
            break;
        }
    }
    Some(page)
}

/// The page runs in Chromium, where that is installed: it draws its charts from counters.
#[test]
fn a_browser_draws_the_charts() {
    let folder = folder();
    let (server, http) = start(folder.path(), &[]);
    let mut client = server.client();
    client.call("SET oak Quercus");
    let between = || _ = client.call("GET oak");
    let Some(page) = browsed(folder.path(), &http, "Running for", between) else {
        return;
    };
    assert_eq!(page.matches("<canvas").count(), 6, "{page}");
    assert!(page.contains("Running for"), "{page}");
    assert!(page.contains("<dt>keys</dt><dd>1</dd>"), "{page}");
    assert!(page.contains("id=\"chains\" hidden"), "{page}");
    server.terminate();
}
