//! Starting and stopping.

use std::io::Write;
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use cambium::{
    DEFAULT_ENGINE, Environment, Error, FOREST, MEMORY_BUDGET, Options, Store, parse_bytes,
};
use cambium_base::Address;
use cambium_io::sync::Mutex;
use cambium_io::sync::atomic::AtomicU64;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::thread;

use crate::arguments::{Arguments, Safety};
use crate::clock::now_millis;
use crate::cluster::join::{self, Joined, Wanted};
use crate::cluster::membership::Membership;
use crate::descriptors;
use crate::executor::jobs::Jobs;
use crate::executor::pubsub::PubSub;
use crate::executor::server::{Counters, Server};
use crate::executor::syncer::{self, Syncing};
use crate::executor::{self, Executor};
use crate::keyspace::Keyspace;
use crate::keyspace::layout::MOST_DATABASES;
use crate::logs::{self, Format};
use crate::mailbox::Mailbox;
use crate::messages::Event;
use crate::metrics::{Calls, Metrics};
use crate::network::listener::{Listener, deepen, is_public};
use crate::network::{Network, Outbox};
use crate::resp::parser::MOST_STRANGE_BYTES;
use crate::room::Room;
use crate::services::{Services, Sockets};
use crate::settings::{DEFAULT_CLIENTS, Settings};
use crate::tls::{self, Tls};

/// Why the server ends, for people.
type Failure = String;

const DEFAULT_ADDRESS: &str = "127.0.0.1:6379";
const DEFAULT_DATABASES: usize = 16;

/// Serves until a signal, or SHUTDOWN.
///
/// # Errors
/// A line for people; an empty one if the log has it.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let arguments = arguments.with_config()?;
    let log_format = arguments.log_format.unwrap_or_default();
    let _log = logs::start(log_format, arguments.log_level.unwrap_or_default())
        .map_err(|error| format!("cannot start the thread of the log: {error}"))?;
    // A huge page for a few small pieces keeps 2 MiB, and clearing it holds up its round. On a
    // kernel without this setting the server takes more memory.
    _ = rustix::thread::disable_transparent_huge_pages(true);
    let ended = start(&arguments);
    if let (Err(failure), Format::Json) = (&ended, log_format) {
        // As text it is the command's own last line.
        tracing::error!("{failure}");
        return Err(String::new());
    }
    ended
}

fn start(arguments: &Arguments) -> Result<(), Failure> {
    let databases = arguments.databases.unwrap_or(DEFAULT_DATABASES);
    if !(1..=MOST_DATABASES).contains(&databases) {
        return Err(format!(
            "--databases {databases}: expected 1 to {MOST_DATABASES}"
        ));
    }
    if let Some(folder) = arguments.backups.as_deref().filter(|path| !path.is_dir()) {
        return Err(format!(
            "--backups {}: there is no such folder; make it first",
            folder.display()
        ));
    }
    let wanted = wanted_cluster(arguments)?;
    let password = password(arguments)?;
    let addresses = addresses(arguments, password.is_some())?;
    let has_password = password.is_some();
    let bind = |option, text| bind_service(option, text, arguments, has_password);
    let tls = tls::configured(
        arguments.tls_cert.as_deref(),
        arguments.tls_key.as_deref(),
        arguments.tls_ca.as_deref(),
    )?;
    let (secured, plain): (Vec<Address>, Vec<Address>) = addresses
        .into_iter()
        .partition(|address| tls.is_some() && matches!(address, Address::Tcp(_)));
    let sockets = Sockets {
        resp: secured.iter().map(listen).collect::<Result<_, _>>()?,
        http: bind("--http", arguments.http.as_ref())?,
        thrift: bind("--thrift", arguments.thrift.as_ref())?,
        forwards: arguments.proxy,
        tls,
    };
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])
        .map_err(|error| format!("cannot listen to signals: {error}"))?;
    let listeners = bind_clients(&plain)?;
    let environment = environment(arguments)?;
    // Before the store opens its files.
    let clients = descriptors::make_room(DEFAULT_CLIENTS);
    let store = open(arguments, &environment)?;
    let mut given = given_settings(arguments, password, &listeners);
    if clients < DEFAULT_CLIENTS {
        tracing::warn!(
            maxclients = clients,
            "fewer clients than {DEFAULT_CLIENTS}: raise the limit of open files (ulimit -Hn, \
             LimitNOFILE)"
        );
        given.push(("maxclients", clients.to_string()));
    }
    let joined = match wanted {
        Some(wanted) => Some(join::join(wanted, &store, &environment)?),
        None => join::refuse_bound(&store).map(|()| None)?,
    };
    let databases = match joined {
        Some(_) => 1,
        None => databases,
    };
    let settings = Settings::new(databases, &given);
    let parts = Parts {
        joined,
        environment,
        settings,
        listeners,
        sockets,
    };
    let served = serve(arguments, &store, parts, &mut signals);
    let closed = store
        .close()
        .map_err(|error| format!("closing the store: {error}"));
    // A client that sees the end of its connection may open the store.
    let served = served.map(drop);
    if served.is_ok() && closed.is_ok() {
        tracing::info!("stopped");
    }
    served.and(closed)
}

fn password(arguments: &Arguments) -> Result<Option<String>, Failure> {
    let Some(path) = &arguments.password_file else {
        return Ok(None);
    };
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    match text.lines().next() {
        // No client could send a longer one.
        Some(line) if (1..=MOST_STRANGE_BYTES).contains(&line.len()) => Ok(Some(line.to_string())),
        _ => Err(format!(
            "{}: expected a password of 1 to {MOST_STRANGE_BYTES} bytes in its first line",
            path.display()
        )),
    }
}

fn addresses(arguments: &Arguments, has_password: bool) -> Result<Vec<Address>, Failure> {
    let mut addresses = arguments.resp.clone();
    if addresses.is_empty() {
        addresses.push(DEFAULT_ADDRESS.parse()?);
    }
    for address in &addresses {
        refuse_strangers(address, arguments, has_password)?;
    }
    Ok(addresses)
}

fn refuse_strangers(
    address: &Address,
    arguments: &Arguments,
    has_password: bool,
) -> Result<(), Failure> {
    let is_public = is_public(address).map_err(|error| format!("{address}: {error}"))?;
    if is_public && !has_password && !arguments.unsafe_no_password {
        return Err(format!(
            "{address} can be reached from other machines: give --password-file, or \
             --unsafe-no-password if everyone there may read and write"
        ));
    }
    Ok(())
}

/// Binds the address of `--http` or `--thrift`.
fn bind_service(
    option: &str,
    text: Option<&String>,
    arguments: &Arguments,
    has_password: bool,
) -> Result<Option<TcpListener>, Failure> {
    let Some(text) = text else {
        return Ok(None);
    };
    let address: Address = text.parse()?;
    if matches!(address, Address::Unix(_)) {
        return Err(format!("{option} {text}: expected HOST:PORT"));
    }
    refuse_strangers(&address, arguments, has_password)?;
    listen(&address).map(Some)
}

fn listen(address: &Address) -> Result<TcpListener, Failure> {
    TcpListener::bind(address.to_string())
        .and_then(|listener| deepen(&listener).map(|()| listener))
        .map_err(|error| format!("cannot listen to {address}: {error}"))
}

fn bind_clients(addresses: &[Address]) -> Result<Vec<Listener>, Failure> {
    let bind = |address: &Address| {
        Listener::bind(address).map_err(|error| format!("cannot listen to {address}: {error}"))
    };
    addresses.iter().map(bind).collect()
}

/// With `--set memory_budget` the budget is that of the store and of the server's own tables.
fn environment(arguments: &Arguments) -> Result<Environment, Failure> {
    let value = |assignment: &String| Some(assignment.split_once('=')?.1.to_string());
    match arguments
        .set
        .iter()
        .rfind(|set| is_budget(set))
        .and_then(value)
    {
        None => Ok(Environment::real()),
        Some(value) => match parse_bytes(&value) {
            Some(bytes) => Ok(Environment::real().with_memory(bytes)),
            None => Err(format!(
                "{MEMORY_BUDGET}={value}: expected bytes, such as 64MiB"
            )),
        },
    }
}

fn is_budget(assignment: &str) -> bool {
    assignment
        .split_once('=')
        .is_some_and(|(name, _)| name == MEMORY_BUDGET)
}

fn open(arguments: &Arguments, environment: &Environment) -> Result<Store, Failure> {
    let path = arguments
        .dir
        .as_ref()
        .ok_or("--dir is missing: the folder of the store")?;
    let mut options = Options::new().environment(environment.clone());
    let found = match options.marker(path) {
        Err(Error::NotAStore { .. }) => None,
        found => Some(found.map_err(|error| error.to_string())?.engine),
    };
    if found.is_some() {
        let refused = cambium::comparator::refuse(&*environment.file_system, path);
        refused.map_err(|error| error.to_string())?;
    }
    let is_new = found.is_none();
    let engine = arguments.engine.clone().or(found);
    let engine = engine.unwrap_or_else(|| DEFAULT_ENGINE.to_string());
    if engine == FOREST {
        // As Redis' log, which is rewritten when it has doubled, and from 128 MiB on at most.
        options = options.set("compaction_least_bytes", "128MiB");
        if is_new {
            // The store keeps this one.
            options = options.set("compaction_threshold", "50");
        }
        if environment.memory.limit().is_none() {
            // One thread writes for all clients: the less often a flush takes a processor, the
            // more it writes.
            options = options.set("write_buffer_bytes", "64MiB");
            options = options.set("flush_bytes", "16MiB");
        }
    }
    for assignment in arguments.set.iter().filter(|set| !is_budget(set)) {
        options = options
            .assign(assignment)
            .map_err(|error| error.to_string())?;
    }
    let safety = arguments.durability.unwrap_or_default();
    let options = options.durability(safety.of_rounds());
    let opened = options.open_or_create(path, &engine);
    opened.map_err(|error| error.to_string())
}

/// The cluster that `--cluster` names, and this node in it. Nothing is made or opened before its
/// arguments are right.
fn wanted_cluster(arguments: &Arguments) -> Result<Option<Wanted>, Failure> {
    if arguments.proxy && (arguments.cluster.is_none() || arguments.thrift.is_none()) {
        return Err("--proxy is for a node of a cluster with --thrift".to_string());
    }
    let Some(cluster) = &arguments.cluster else {
        return Ok(None);
    };
    if arguments.tls_cert.is_some() && arguments.tls_ca.is_none() {
        return Err(
            "--tls-ca is missing: the certificate that signs those of all nodes".to_string(),
        );
    }
    let name = arguments.cluster_name.as_deref().unwrap_or("main");
    let (node, address) = (arguments.name.as_ref(), arguments.advertise.as_ref());
    let wanted = Wanted {
        access: arguments.access(),
        ..Wanted::parse(cluster, name, node, address)?
    };
    wanted.registry(join::PATIENCE)?;
    Ok(Some(wanted))
}

fn given_settings(
    arguments: &Arguments,
    password: Option<String>,
    listeners: &[Listener],
) -> Vec<(&'static str, String)> {
    let mut given = Vec::new();
    given.extend(password.map(|password| ("requirepass", password)));
    given.extend(
        arguments
            .dir
            .as_ref()
            .map(|dir| ("dir", dir.display().to_string())),
    );
    for address in listeners
        .iter()
        .filter_map(|listener| listener.address().ok())
    {
        match address.strip_prefix("unix:") {
            Some(path) => given.push(("unixsocket", path.to_string())),
            None => given.extend(
                address
                    .rsplit_once(':')
                    .map(|(_, port)| ("port", port.to_string())),
            ),
        }
    }
    if arguments.durability == Some(Safety::Synced) {
        given.push(("appendfsync", "always".to_string()));
    }
    given
}

/// The parts of a server beside its store.
struct Parts {
    joined: Option<Joined>,
    environment: Environment,
    settings: Settings,
    listeners: Vec<Listener>,
    sockets: Sockets,
}

/// Serves until the end; the connections are still open then.
fn serve(
    arguments: &Arguments,
    store: &Store,
    parts: Parts,
    signals: &mut Signals,
) -> Result<Network, Failure> {
    let Parts {
        joined,
        environment,
        settings,
        listeners,
        sockets,
    } = parts;
    let failed = |what: &'static str| move |error: std::io::Error| format!("{what}: {error}");
    let safety = arguments.durability.unwrap_or_default();
    let mut names: Vec<String> = listeners
        .iter()
        .filter_map(|listener| listener.address().ok())
        .collect();
    let now = now_millis();
    let random = environment.randomness.next_u64();
    // Every copy of a partition has one order of SCAN.
    let seed = joined.as_ref().map_or(random, |joined| joined.meta.seed);
    let tracks_unsynced = safety == Safety::Synced && joined.is_none();
    let memory = environment.memory.clone();
    let mut keyspace = Keyspace::open(store.clone(), seed, tracks_unsynced, now, memory)
        .map_err(|error| error.to_string())?;
    let inbox: Arc<Mailbox<Event>> = Arc::default();
    let metrics: Arc<Metrics> = Arc::default();
    let shared = settings.shared().clone();
    let password = settings.password().map(str::to_string);
    let has_password = password.is_some();
    let mut network = Network::new(
        listeners,
        inbox.clone(),
        shared,
        environment.clock.clone(),
        metrics.clone(),
        has_password,
    )
    .map_err(failed("cannot watch sockets"))?;
    let outbox = network.outbox();
    let (syncing, syncer) = match safety {
        Safety::Synced => {
            network.expect_syncs();
            let hears = joined.as_ref().map(|_| inbox.clone());
            let (syncing, thread) = start_syncer(store, hears, &outbox, &metrics, &environment)
                .map_err(failed("cannot start a thread"))?;
            (Some(syncing), Some(thread))
        }
        _ => (None, None),
    };
    let room = Room::new(
        store.clone(),
        environment.file_system.clone(),
        arguments.dir.clone().unwrap_or_default(),
        metrics.clone(),
        arguments.reserve,
    );
    let mut members = Vec::new();
    let chains = match joined {
        Some(joined) => {
            let is_synced = safety == Safety::Synced;
            let password = password.clone();
            let started = Membership {
                joined,
                store,
                environment: &environment,
                inbox: &inbox,
                password,
                tls: sockets.tls.clone(),
                thrift_port: sockets.thrift_port(),
                is_synced,
            };
            let (chains, threads) = started.start(&mut keyspace)?;
            members = threads;
            Some(chains)
        }
        None => None,
    };
    // In a cluster the values of a copy depend on more than its own writes.
    let may_fetch = chains.is_none();
    let server = Server {
        chains,
        room,
        run_id: format!(
            "{:016x}{:016x}{:08x}",
            environment.randomness.next_u64(),
            random,
            std::process::id()
        ),
        environment,
        keyspace,
        sessions: Vec::new(),
        pubsub: PubSub::default(),
        settings,
        statistics: Counters::default(),
        metrics: metrics.clone(),
        calls: Calls::default(),
        round_begun: Duration::ZERO,
        listed: Vec::new(),
        called: Vec::new(),
        jobs: Vec::new(),
        fetches: Vec::new(),
        may_fetch,
        missing: None,
        round: 1,
        started: now,
        durability: safety.name(),
        backups: arguments.backups.clone(),
        expires_actively: true,
        is_stopping: false,
    };
    let jobs = Jobs::start(&inbox).map_err(failed("cannot start a thread"))?;
    let stopping = inbox.clone();
    let executor = Arc::new(Mutex::new(Executor {
        server,
        inbox: inbox.clone(),
        outbox: outbox.clone(),
        syncing,
        jobs,
        events: Vec::new(),
        slow_until: Duration::ZERO,
        is_timed: false,
    }));
    let executing = thread::Builder::new().name("executor".to_string());
    let executing = {
        let executor = executor.clone();
        executing.spawn(move || executor::run(&executor, &inbox))
    };
    let executing = executing.map_err(failed("cannot start a thread"))?;
    names.extend(sockets.addresses());
    let certificate = sockets.tls.clone();
    let services = Services::start(sockets, &stopping, metrics, outbox.clone(), password)
        .map_err(failed("cannot start the thread of HTTP and Thrift"))?;
    let listening = signals.handle();
    thread::scope(|scope| {
        let finish = outbox.clone();
        let signals = &mut *signals;
        scope.spawn(|| watch_signals(signals, &stopping, certificate.as_deref()));
        let others = scope.spawn(move || {
            let executed = executing.join().is_ok();
            let synced = syncer.is_none_or(|thread| thread.join().is_ok());
            let mut members = members.into_iter();
            let left = members.all(|thread| thread.join().is_ok());
            finish.finish();
            executed && synced && left
        });
        announce(&names);
        // A panic in a round must not leave the other threads without an end.
        let ended = catch_unwind(AssertUnwindSafe(|| network.run(&executor)));
        services.stop();
        listening.close();
        // The executor has stopped before the network, unless that has failed.
        stopping.send([Event::Stop]);
        match (others.join(), ended) {
            (Ok(true), Ok(ended)) => ended.map_err(failed("waiting for sockets")),
            _ => Err("a thread of the server has panicked: its message is above".to_string()),
        }
    })
}

fn start_syncer(
    store: &Store,
    hears: Option<Arc<Mailbox<Event>>>,
    outbox: &Arc<Outbox>,
    metrics: &Arc<Metrics>,
    environment: &Environment,
) -> std::io::Result<(Syncing, thread::JoinHandle<()>)> {
    let (held, synced) = (Arc::default(), Arc::new(AtomicU64::new(0)));
    let syncing = Syncing {
        held: Arc::clone(&held),
        synced: synced.clone(),
    };
    let (store, outbox) = (store.clone(), outbox.clone());
    let (metrics, clock) = (metrics.clone(), environment.clock.clone());
    let thread = thread::Builder::new()
        .name("syncer".to_string())
        .spawn(move || {
            let hears = hears.as_deref();
            syncer::run(&store, hears, &held, &outbox, &synced, &metrics, &*clock)
        })?;
    Ok((syncing, thread))
}

/// The first signal closes, behind the hand-over of what this node is the head of; the second
/// ends the process at once. SIGHUP reads the certificate again.
fn watch_signals(signals: &mut Signals, inbox: &Mailbox<Event>, certificate: Option<&Tls>) {
    let mut is_stopping = false;
    for signal in signals.forever() {
        match (signal, certificate) {
            (SIGHUP, None) => {}
            (SIGHUP, Some(certificate)) => match certificate.reload() {
                Ok(()) => tracing::info!("the certificate is read again"),
                Err(error) => tracing::error!(error, "the old certificate stays"),
            },
            _ if is_stopping => std::process::exit(128 + signal),
            _ => {
                is_stopping = true;
                tracing::info!(signal, "stopping");
                inbox.send([Event::StepDown]);
            }
        }
    }
}

/// One line when clients can connect.
fn announce(addresses: &[String]) {
    let mut out = std::io::stdout();
    // Whoever started the server may not read it.
    _ = writeln!(out, "cambium-server is ready: {}", addresses.join(" "));
    _ = out.flush();
    tracing::info!(addresses = addresses.join(" "), "ready");
}
