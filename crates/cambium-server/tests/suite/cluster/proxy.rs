//! A connection between nodes that a test can cut.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Forwards connections to an address until it is cut.
pub struct Proxy {
    /// Where it listens.
    pub address: String,
    is_cut: Arc<AtomicBool>,
}

impl Proxy {
    pub fn start(target: &str) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let is_cut = Arc::new(AtomicBool::new(false));
        let (target, cut) = (target.to_string(), is_cut.clone());
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                if cut.load(Ordering::Relaxed) {
                    continue;
                }
                let Ok(far) = TcpStream::connect(&target) else {
                    continue;
                };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let cut = cut.clone();
                    std::thread::spawn(move || forward(from, to, &cut));
                }
            }
        });
        Proxy { address, is_cut }
    }

    /// Ends all connections, and takes no new ones until it is mended.
    pub fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let mut bytes = vec![0; 1 << 16];
    _ = from.set_read_timeout(Some(Duration::from_millis(20)));
    loop {
        let read = from.read(&mut bytes);
        if is_cut.load(Ordering::Relaxed) {
            break;
        }
        match read {
            Ok(0) => break,
            Ok(count) if to.write_all(&bytes[..count]).is_err() => break,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
    _ = from.shutdown(std::net::Shutdown::Both);
    _ = to.shutdown(std::net::Shutdown::Both);
}
