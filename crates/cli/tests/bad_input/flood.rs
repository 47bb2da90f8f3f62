//! Floods of datagrams, and the memory of this process.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;
/// Resident memory of this process in bytes.
pub(crate) fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * 4096
}

/// Thread that sends datagrams as fast as the system takes them, until it is dropped.
pub(crate) struct Flood {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    began: Instant,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    pub(crate) fn start(mut datagram: impl FnMut(u64, &mut Vec<u8>) -> SocketAddr + Send + 'static) -> Self {
        Self::from(UdpSocket::bind("127.0.0.1:0").expect("a free port"), move |turn, out| datagram(turn, out))
    }

    pub(crate) fn from(
        socket: UdpSocket,
        mut datagram: impl FnMut(u64, &mut Vec<u8>) -> SocketAddr + Send + 'static,
    ) -> Self {
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&sent));
        let thread = std::thread::spawn(move || {
            let mut out = Vec::new();
            for turn in 0.. {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                out.clear();
                let to = datagram(turn, &mut out);
                // A closed port or a full queue loses the datagram, which is fine.
                if socket.send_to(&out, to).is_ok() {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Self { stop, sent, began: Instant::now(), thread: Some(thread) }
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(std::thread::JoinHandle::join);
        assert!(matches!(ended, None | Some(Ok(()))) || std::thread::panicking());
        println!("{} datagrams in {} ms", self.sent(), self.began.elapsed().as_millis());
    }
}
