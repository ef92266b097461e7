//! A connection that a test can cut, stop one way, and slow down.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Forwards connections to one address or several.
pub struct Proxy {
    /// Where it listens, for each of them.
    pub addresses: Vec<String>,
    faults: Arc<Faults>,
}

#[derive(Default)]
struct Faults {
    is_cut: AtomicBool,
    /// The connections to it, and those to the targets.
    open: Mutex<Vec<Weak<TcpStream>>>,
    /// Nothing arrives at the target; nothing arrives at those who connect.
    is_stopped: [AtomicBool; 2],
    delay_millis: AtomicU64,
}

impl Proxy {
    pub fn start<'a>(targets: impl IntoIterator<Item = &'a str>) -> Proxy {
        let faults: Arc<Faults> = Arc::default();
        let forward = |target: &str| faults.forward_to(target.to_string());
        Proxy {
            addresses: targets.into_iter().map(forward).collect(),
            faults,
        }
    }

    /// Where it listens for its only target.
    pub fn address(&self) -> &str {
        &self.addresses[0]
    }

    /// Ends all connections, and takes no new ones until it is mended.
    pub fn cut(&self, is_cut: bool) {
        let mut open = self.faults.open.lock().unwrap();
        self.faults.is_cut.store(is_cut, Ordering::Relaxed);
        if is_cut {
            let open = open.drain(..).filter_map(|stream| stream.upgrade());
            open.for_each(|stream| _ = stream.shutdown(Shutdown::Both));
        }
    }

    /// Holds what goes to the target (0), or comes from it (1), until it is mended: as a
    /// network does that loses packets.
    pub fn stop(&self, way: usize) {
        self.faults.is_stopped[way].store(true, Ordering::Relaxed);
    }

    /// Lets each piece of data wait.
    pub fn slow(&self, millis: u64) {
        self.faults.delay_millis.store(millis, Ordering::Relaxed);
    }

    /// Forwards as at the beginning.
    pub fn mend(&self) {
        self.cut(false);
        self.slow(0);
        for way in &self.faults.is_stopped {
            way.store(false, Ordering::Relaxed);
        }
    }
}

impl Faults {
    /// Forwards to a target; the address is where it listens for that.
    fn forward_to(self: &Arc<Self>, target: String) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let of = self.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                if of.is_cut.load(Ordering::Relaxed) {
                    continue;
                }
                let Ok(far) = TcpStream::connect(&target) else {
                    continue;
                };
                let (near, far) = (Arc::new(near), Arc::new(far));
                let mut open = of.open.lock().unwrap();
                if of.is_cut.load(Ordering::Relaxed) {
                    continue;
                }
                open.retain(|stream| stream.strong_count() > 0);
                open.extend([&near, &far].map(Arc::downgrade));
                drop(open);
                for (way, from, to) in [(0, &near, &far), (1, &far, &near)] {
                    let (of, from, to) = (of.clone(), from.clone(), to.clone());
                    std::thread::spawn(move || of.forward(way, &from, &to));
                }
            }
        });
        address
    }

    fn forward(&self, way: usize, mut from: &TcpStream, mut to: &TcpStream) {
        const LOOK: Duration = Duration::from_millis(20);
        let mut bytes = vec![0; 1 << 16];
        _ = from.set_read_timeout(Some(LOOK));
        while !self.is_cut.load(Ordering::Relaxed) {
            let count = match from.read(&mut bytes) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                Err(_) => break,
            };
            std::thread::sleep(Duration::from_millis(
                self.delay_millis.load(Ordering::Relaxed),
            ));
            while self.is_stopped[way].load(Ordering::Relaxed)
                && !self.is_cut.load(Ordering::Relaxed)
            {
                std::thread::sleep(LOOK);
            }
            if self.is_cut.load(Ordering::Relaxed) || to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        _ = from.shutdown(Shutdown::Both);
        _ = to.shutdown(Shutdown::Both);
    }
}
