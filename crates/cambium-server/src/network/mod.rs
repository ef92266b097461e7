//! The thread that reads and writes sockets.
//!
//! Each turn it reads all sockets that have something, parses whole commands, hands them to
//! the executor in one go, and sends the answers that have come. A connection has commands
//! with the executor or is read, never both: so answers are in order, and a client that
//! sends without reading fills the buffers of its own socket and none of ours.

pub mod connection;
pub mod listener;
pub mod tls_stream;

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use cambium_io::environment::Clock;
use cambium_io::sync::Mutex;
use cambium_io::sync::atomic::{AtomicBool, Ordering};
use mio::{Events, Poll, Token, Waker};

use crate::descriptors;
use crate::executor::Executor;
use crate::mailbox::Mailbox;
use crate::messages::{Event, Handle, Input, Next, Output};
use crate::metrics::Metrics;
use crate::resp::parser::{Commands, Limits, Parser};
use crate::settings::Shared;
use connection::{Connection, Stream};
use listener::Listener;

const WAKER: Token = Token(usize::MAX);
/// Tokens from here on are those of listeners; connections have those below.
const FIRST_LISTENER: usize = usize::MAX / 2;
/// Commands from which on a round runs before the other sockets are read: its clients go on
/// meanwhile.
const MOST_ROUND_COMMANDS: usize = 256;
/// The same where answers wait for a sync: the fewer rounds, the more writes share one.
const MOST_SYNCED_COMMANDS: usize = 4096;
/// Sockets that one turn looks at.
const EVENTS: usize = 1024;
/// Most that one turn reads of a connection.
const READ_BYTES: usize = 64 << 10;
/// Buffers larger than this are not kept.
const KEPT_BUFFER_BYTES: usize = 16 << 10;
/// How many are.
const KEPT_BUFFERS: usize = 256;
/// Bytes of commands that are not whole.
const MOST_BUFFERED_BYTES: usize = 1 << 30;
/// Messages that a subscriber has not read.
const MOST_SUBSCRIBER_BYTES: usize = 32 << 20;
/// How often idle connections are looked for.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);
/// After an error of accepting, such as too many open files.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What the network thread hears.
#[derive(Debug)]
enum Word {
    Output(Output),
    /// A connection that was accepted elsewhere, and the addresses of both sides.
    Open(Stream, String, String),
    /// No more connections and commands.
    Stop,
    /// No more answers follow.
    Finish,
}

/// The way to the network thread.
#[derive(Debug)]
pub struct Outbox {
    words: Mailbox<Word>,
    waker: Waker,
    /// The thread is awake, and looks at the words before it waits again.
    is_attended: AtomicBool,
}

impl Outbox {
    /// Sends answers.
    pub fn send(&self, outputs: Vec<Output>) {
        self.say(outputs.into_iter().map(Word::Output));
    }

    /// Hands over a connection that was accepted elsewhere, with the addresses of client and
    /// server.
    pub fn open(&self, stream: Stream, peer: String, local: String) {
        self.say([Word::Open(stream, peer, local)]);
    }

    /// Accepts and reads no more; the executor hears [`Event::Stop`] behind the last commands.
    pub fn stop(&self) {
        self.say([Word::Stop]);
    }

    /// Every answer has been sent.
    pub fn finish(&self) {
        self.say([Word::Finish]);
    }

    fn say(&self, words: impl IntoIterator<Item = Word>) {
        let is_first = self.words.send(words);
        if is_first && !self.is_attended.load(Ordering::SeqCst) {
            // It fails if the thread is gone, and nobody is left to send anything to.
            _ = self.waker.wake();
        }
    }
}

/// The network thread.
pub struct Network {
    poll: Poll,
    listeners: Vec<Listener>,
    /// Listeners that failed to accept: the system tells of waiting connections only once.
    unaccepted: Vec<usize>,
    connections: Vec<Option<Box<Connection>>>,
    free: Vec<u32>,
    open: usize,
    next_id: u64,
    outbox: Arc<Outbox>,
    inbox: Arc<Mailbox<Event>>,
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    has_password: bool,
    round_commands: usize,
    /// For the next round, and how many commands are among them.
    events: Vec<Event>,
    commands: usize,
    words: Vec<Word>,
    /// Connections with something to read.
    readable: Vec<u32>,
    buffers: Vec<Vec<u8>>,
    is_stopping: bool,
    idle_checked: Duration,
}

impl Network {
    /// Listens; commands go to `inbox`.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new(
        mut listeners: Vec<Listener>,
        inbox: Arc<Mailbox<Event>>,
        shared: Arc<Shared>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
        has_password: bool,
    ) -> io::Result<Network> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        for (place, listener) in listeners.iter_mut().enumerate() {
            listener.register(poll.registry(), Token(FIRST_LISTENER + place))?;
        }
        let words = Mailbox::default();
        Ok(Network {
            poll,
            listeners,
            unaccepted: Vec::new(),
            connections: Vec::new(),
            free: Vec::new(),
            open: 0,
            next_id: 1,
            outbox: Arc::new(Outbox {
                words,
                waker,
                is_attended: AtomicBool::new(false),
            }),
            inbox,
            shared,
            idle_checked: clock.monotonic(),
            clock,
            metrics,
            has_password,
            round_commands: MOST_ROUND_COMMANDS,
            events: Vec::new(),
            commands: 0,
            words: Vec::new(),
            readable: Vec::new(),
            buffers: Vec::new(),
            is_stopping: false,
        })
    }

    /// Answers will wait for syncs.
    pub fn expect_syncs(&mut self) {
        self.round_commands = MOST_SYNCED_COMMANDS;
    }

    /// The way to this thread.
    pub fn outbox(&self) -> Arc<Outbox> {
        self.outbox.clone()
    }

    /// Serves until [`Outbox::finish`]; the connections end when it is dropped.
    ///
    /// # Errors
    /// Those of waiting for sockets.
    pub fn run(mut self, executor: &Mutex<Executor>) -> io::Result<Network> {
        let mut ready = Events::with_capacity(EVENTS);
        let mut scratch = vec![0; READ_BYTES];
        loop {
            let has_timeout = self.shared.idle_seconds.load(Ordering::Relaxed) > 0;
            self.outbox.is_attended.store(false, Ordering::SeqCst);
            let is_idle =
                self.readable.is_empty() && self.events.is_empty() && self.outbox.words.is_empty();
            let patience = match is_idle {
                true if !self.unaccepted.is_empty() => Some(ACCEPT_PAUSE),
                true => has_timeout.then_some(IDLE_INTERVAL),
                false => Some(Duration::ZERO),
            };
            match self.poll.poll(&mut ready, patience) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            self.outbox.is_attended.store(true, Ordering::SeqCst);
            for event in &ready {
                match event.token() {
                    WAKER => {}
                    Token(token) if token >= FIRST_LISTENER => self.accept(token - FIRST_LISTENER),
                    Token(slot) => self.wake(slot as u32, event),
                }
            }
            for place in std::mem::take(&mut self.unaccepted) {
                self.accept(place);
            }
            if self.take_words() {
                return Ok(self);
            }
            for slot in std::mem::take(&mut self.readable) {
                self.read(slot, &mut scratch);
                if self.commands >= self.round_commands && self.run_round(executor) {
                    return Ok(self);
                }
            }
            if has_timeout {
                self.close_idle();
            }
            if self.run_round(executor) {
                return Ok(self);
            }
        }
    }

    /// Does what other threads ask for; true if nothing more follows.
    fn take_words(&mut self) -> bool {
        let mut words = std::mem::take(&mut self.words);
        self.outbox.words.take(&mut words);
        let mut is_over = false;
        for word in words.drain(..) {
            match word {
                Word::Output(output) => self.answer(output),
                Word::Open(..) if self.is_stopping => {}
                Word::Open(stream, peer, local) => self.open(stream, peer, local),
                Word::Stop if !self.is_stopping => {
                    self.is_stopping = true;
                    self.listeners.clear();
                    self.events.push(Event::Stop);
                }
                Word::Stop => {}
                Word::Finish => is_over = true,
            }
        }
        self.words = words;
        is_over
    }

    /// Runs what was read and sends its answers, or hands it to the executor's thread: where
    /// that one is at work, where rounds are slow, and for the end. True as `take_words`.
    fn run_round(&mut self, executor: &Mutex<Executor>) -> bool {
        self.commands = 0;
        if self.events.is_empty() {
            return false;
        }
        if !self.is_stopping {
            let is_run = match executor.try_lock() {
                Ok(mut executor) => executor.run_inline(&mut self.events),
                Err(_) => false,
            };
            if is_run {
                return self.take_words();
            }
        }
        self.inbox.send(self.events.drain(..));
        false
    }

    fn accept(&mut self, place: usize) {
        while let Some(accepted) = self.listeners.get(place).map(Listener::accept) {
            match accepted {
                Ok((stream, peer, local)) => self.open(stream, peer, local),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // A connection that is lost before it is accepted is none.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::debug!(%error, "a connection is not accepted");
                    if !self.unaccepted.contains(&place) {
                        self.unaccepted.push(place);
                    }
                    return;
                }
            }
        }
    }

    fn open(&mut self, mut stream: Stream, peer: String, local: String) {
        let most = self.shared.clients.load(Ordering::Relaxed);
        if self.open >= most || descriptors::are_scarce(&stream) {
            // The client reads the reason, or has gone.
            _ = stream.write(b"-ERR max number of clients reached\r\n");
            self.events.push(Event::Refused);
            return;
        }
        let slot = self.free.pop().unwrap_or(self.connections.len() as u32);
        if stream
            .register(self.poll.registry(), Token(slot as usize))
            .is_err()
        {
            self.free.push(slot);
            return;
        }
        if slot as usize == self.connections.len() {
            self.connections.push(None);
        }
        let handle = Handle {
            slot,
            id: self.next_id,
        };
        self.next_id += 1;
        self.open += 1;
        let active = self.clock.monotonic().as_secs();
        let is_secured = matches!(stream, Stream::Tls(_));
        let mut connection = Connection::new(stream, handle, self.has_password, active);
        connection.is_readable = is_secured;
        // The end of a handshake may have come with the first command.
        if is_secured {
            self.readable.push(slot);
        }
        let certificate = connection.stream.certificate();
        self.connections[slot as usize] = Some(Box::new(connection));
        self.events.push(Event::Opened {
            handle,
            peer,
            local,
            certificate,
        });
    }

    fn close(&mut self, slot: u32) {
        if let Some(mut connection) = self
            .connections
            .get_mut(slot as usize)
            .and_then(Option::take)
        {
            // Closing the socket does the same, and an error changes nothing.
            _ = connection.stream.deregister(self.poll.registry());
            _ = connection.stream.finish();
            self.events.push(Event::Closed(connection.handle));
            self.open -= 1;
            self.free.push(slot);
        }
    }

    fn connection(&mut self, slot: u32) -> Option<&mut Box<Connection>> {
        self.connections.get_mut(slot as usize)?.as_mut()
    }

    fn wake(&mut self, slot: u32, event: &mio::event::Event) {
        let Some(connection) = self.connection(slot) else {
            return;
        };
        if event.is_readable() {
            connection.is_readable = true;
            connection.is_hung_up |= event.is_read_closed() || event.is_error();
            if !connection.is_busy {
                self.readable.push(slot);
            }
        }
        if event.is_writable() {
            self.drain(slot);
        }
    }

    /// Sends what waits. Behind it a closing connection ends, and a paused one goes on.
    fn drain(&mut self, slot: u32) {
        let Some(connection) = self.connection(slot) else {
            return;
        };
        let is_lost = connection.flush().is_err();
        if is_lost || (connection.is_closing && connection.unsent() == 0) {
            return self.close(slot);
        }
        if connection.unsent() == 0 {
            if let Some(input) = connection.paused.take() {
                let handle = connection.handle;
                self.events.push(Event::Commands(handle, input));
            }
        }
    }

    fn answer(&mut self, output: Output) {
        if let Some(spent) = output.spent {
            self.keep(spent);
        }
        self.metrics
            .bytes_written
            .fetch_add(output.bytes.len() as u64, Ordering::Relaxed);
        let slot = output.handle.slot;
        let Some(connection) = self
            .connection(slot)
            .filter(|connection| connection.handle == output.handle)
        else {
            return;
        };
        connection.is_stranger = output.is_stranger;
        let is_lost = connection.send(&output.bytes).is_err();
        let is_slow = output.is_subscriber && connection.unsent() > MOST_SUBSCRIBER_BYTES;
        if is_lost || is_slow {
            return self.close(slot);
        }
        match output.next {
            Next::More => {}
            Next::Read => {
                connection.is_busy = false;
                // Commands may have been read already, and not parsed yet.
                if connection.is_readable || !connection.buffer.is_empty() {
                    self.readable.push(slot);
                }
            }
            Next::Resume(input) => {
                connection.paused = Some(input);
                self.drain(slot);
            }
            Next::Close => {
                connection.is_closing = true;
                self.drain(slot);
            }
        }
    }

    fn keep(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() > 0
            && buffer.capacity() <= KEPT_BUFFER_BYTES
            && self.buffers.len() < KEPT_BUFFERS
        {
            buffer.clear();
            self.buffers.push(buffer);
        }
    }

    /// Parses what is there, and reads once if that gives no command.
    fn read(&mut self, slot: u32, scratch: &mut [u8]) {
        let is_stopping = self.is_stopping;
        let Some(connection) = self.connection(slot) else {
            return;
        };
        if connection.is_busy || connection.is_closing || connection.is_broken || is_stopping {
            return;
        }
        // Commands of a stranger go one by one: the first may be the password.
        if !connection.buffer.is_empty() && self.submit(slot) {
            return;
        }
        let now = self.clock.monotonic().as_secs();
        let spare = self.buffers.pop();
        let Some(connection) = self
            .connection(slot)
            .filter(|connection| connection.is_readable)
        else {
            spare.into_iter().for_each(|spare| self.keep(spare));
            return;
        };
        match connection.stream.read(scratch) {
            Ok(0) => self.close(slot),
            Ok(count) => {
                // A short read has emptied the socket, unless its end is still to be read.
                connection.is_hung_up |= connection.stream.has_ended();
                connection.is_readable = count == scratch.len() || connection.is_hung_up;
                connection.active = now;
                if connection.buffer.capacity() == 0 {
                    connection.buffer = spare.unwrap_or_default();
                }
                connection.buffer.extend_from_slice(&scratch[..count]);
                let (is_readable, is_full) = (
                    connection.is_readable,
                    connection.buffer.len() > MOST_BUFFERED_BYTES,
                );
                self.metrics
                    .bytes_read
                    .fetch_add(count as u64, Ordering::Relaxed);
                if is_full {
                    return self.close(slot);
                }
                if !self.submit(slot) && is_readable {
                    self.readable.push(slot);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => connection.is_readable = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => self.readable.push(slot),
            Err(_) => self.close(slot),
        }
    }

    /// Hands whole commands to the executor; false if there are none.
    fn submit(&mut self, slot: u32) -> bool {
        let argument_bytes = self.shared.argument_bytes.load(Ordering::Relaxed);
        let spare = self.buffers.pop().unwrap_or_default();
        let Some(connection) = self.connection(slot) else {
            return false;
        };
        let is_stranger = connection.is_stranger;
        let limits = Limits {
            argument_bytes,
            is_stranger,
        };
        let most = if is_stranger { 1 } else { usize::MAX };
        let mut commands = Commands::default();
        let outcome = connection
            .parser
            .parse(&mut connection.buffer, limits, most, &mut commands);
        if commands.is_empty() && outcome.is_ok() {
            let blanks = connection.parser.consumed();
            if blanks > 0 {
                connection.buffer.drain(..blanks);
                connection.parser.shift();
            }
            self.keep(spare);
            return false;
        }
        let mut rest = Vec::new();
        let unparsed = &connection.buffer[connection.parser.consumed()..];
        if !unparsed.is_empty() {
            rest = spare;
            rest.extend_from_slice(unparsed);
        } else {
            connection.parser = Parser::default();
        }
        connection.parser.shift();
        let buffer = std::mem::replace(&mut connection.buffer, rest);
        connection.is_busy = true;
        connection.is_broken = outcome.is_err();
        let count = commands.len();
        let violation = outcome.err().map(|violation| violation.0);
        let input = Input {
            buffer,
            commands,
            next: 0,
            violation,
        };
        let event = Event::Commands(connection.handle, input);
        self.events.push(event);
        self.commands += count;
        true
    }

    fn close_idle(&mut self) {
        let now = self.clock.monotonic();
        if now.saturating_sub(self.idle_checked) < IDLE_INTERVAL {
            return;
        }
        self.idle_checked = now;
        let most = self.shared.idle_seconds.load(Ordering::Relaxed) as u64;
        let is_idle = |connection: &Connection| {
            !connection.is_busy && now.as_secs().saturating_sub(connection.active) > most
        };
        let idle: Vec<u32> = self
            .connections
            .iter()
            .flatten()
            .filter(|connection| is_idle(connection))
            .map(|connection| connection.handle.slot)
            .collect();
        idle.into_iter().for_each(|slot| self.close(slot));
    }
}
