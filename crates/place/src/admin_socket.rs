//! Admin socket: a Unix socket on which a running program explains its path selections to operators.
//!
//! ```text
//! pathcall place explain ── `explain 20` ──▶ a thread ── asks ──▶ Context, or a server of placed calls
//!                        ◀─── text, the end ── a thread ◀── text ──┘
//! ```

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant as Clock};

/// Limit on the length of a query in bytes.
const QUERY_MAX: u64 = 64;
/// Timeout for a client to send its query, and again to receive the answer.
pub(crate) const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);
/// Length in bytes of the pieces of an answer; smaller than the socket's buffer.
const PIECE: usize = 4096;
/// Pause after an error of `accept`.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Query of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdminQuery {
    /// Explanations of the last requests.
    Explain(usize),
    /// Counts of paths and devices.
    Status,
}

impl AdminQuery {
    /// Encoded query.
    fn text(self) -> String {
        match self {
            Self::Explain(count) => format!("explain {count}\n"),
            Self::Status => "status\n".into(),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        match text.trim_end().split_once(' ') {
            None if text.trim_end() == "status" => Some(Self::Status),
            Some(("explain", count)) => count.parse().ok().map(Self::Explain),
            _ => None,
        }
    }
}

/// Admin socket; its file is removed on drop.
#[derive(Debug)]
pub struct AdminSocket {
    path: PathBuf,
    closed: Arc<AtomicBool>,
}

impl AdminSocket {
    /// Listens at this path; a thread calls `answer` for each query. The stale file of a process that has ended is
    /// replaced.
    ///
    /// # Errors
    /// An error of the system, for example that another process listens there.
    pub fn open(path: &Path, answer: impl FnMut(AdminQuery) -> String + Send + 'static) -> io::Result<Self> {
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && UnixStream::connect(path).is_err() => {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)?
            }
            listener => listener?,
        };
        let closed = Arc::new(AtomicBool::new(false));
        let (mut answer, over) = (answer, Arc::clone(&closed));
        thread::Builder::new().name("place-admin".into()).spawn(move || {
            serve_clients(listener.incoming(), &over, &mut answer);
        })?;
        Ok(Self { path: path.to_owned(), closed })
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Release);
        // Wakes the thread.
        let _ = UnixStream::connect(&self.path);
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Serves one client after the other, until the socket is closed.
fn serve_clients(
    clients: impl Iterator<Item = io::Result<UnixStream>>,
    over: &AtomicBool,
    answer: &mut impl FnMut(AdminQuery) -> String,
) {
    for stream in clients {
        if over.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else {
            // Without free descriptors `accept` fails at once, and a loop would use a whole processor.
            thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        // A slow client blocks others for a few seconds at most.
        let _ = serve(stream, CLIENT_TIMEOUT, &mut Clock::now, answer);
    }
}

/// Serves one query.
fn serve(
    mut stream: UnixStream,
    timeout: Duration,
    now: &mut impl FnMut() -> Clock,
    answer: &mut impl FnMut(AdminQuery) -> String,
) -> io::Result<()> {
    let until = now() + timeout;
    let mut text = Vec::new();
    let mut byte = [0];
    while text.len() < QUERY_MAX as usize {
        stream.set_read_timeout(Some(time_left(until, now())?))?;
        if stream.read(&mut byte)? == 0 || byte == *b"\n" {
            break;
        }
        text.push(byte[0]);
    }
    let reply = match str::from_utf8(&text).ok().and_then(AdminQuery::parse) {
        Some(query) => answer(query),
        None => "expected `explain N` or `status`\n".into(),
    };
    let until = now() + timeout;
    for piece in reply.as_bytes().chunks(PIECE) {
        stream.set_write_timeout(Some(time_left(until, now())?))?;
        stream.write_all(piece)?;
    }
    Ok(())
}

/// Time left until the deadline; an error if there is none.
fn time_left(until: Clock, now: Clock) -> io::Result<Duration> {
    let left = until.saturating_duration_since(now);
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Sends a query to a running program and returns the answer.
///
/// # Errors
/// An error of the system, for example that no process listens.
pub fn query_admin_socket(path: &Path, query: AdminQuery) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(4 * CLIENT_TIMEOUT))?;
    stream.write_all(query.text().as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_accept_does_not_spin() {
        let (mut asks, asked) = UnixStream::pair().expect("both ends");
        asks.write_all(b"status\n").expect("room");
        let full = (0..4).map(|_| Err(io::ErrorKind::Other.into()));
        let (began, over) = (Clock::now(), AtomicBool::new(false));
        serve_clients(full.chain([Ok(asked)]), &over, &mut |_| "path is healthy".into());
        assert!(began.elapsed() >= 4 * ACCEPT_PAUSE, "{:?}", began.elapsed());
        let mut text = String::new();
        asks.read_to_string(&mut text).expect("text");
        assert_eq!(text, "path is healthy");
        over.store(true, Ordering::Release);
        serve_clients(std::iter::repeat_with(|| Err(io::ErrorKind::Other.into())), &over, &mut |_| String::new());
    }

    /// Bytes are sent and received at once. Only the clock advances: with each reading by the total time divided by
    /// `looks`.
    #[test]
    fn slow_client_has_same_timeout_as_silent_one() {
        let timeout = Duration::from_secs(3600);
        let served = |asked: UnixStream, looks: u32, reply: &str| {
            let (began, mut looked) = (Clock::now(), 0);
            let mut now = || {
                looked += 1;
                began + timeout / looks * looked
            };
            serve(asked, timeout, &mut now, &mut |_| reply.into()).map_err(|error| error.kind())
        };
        let timed_out = Err(io::ErrorKind::TimedOut);
        let (mut asks, asked) = UnixStream::pair().expect("both ends");
        asks.write_all(&[b'x'; 50]).expect("room");
        assert_eq!(served(asked, 40, ""), timed_out);

        let long = "x".repeat(200 * PIECE);
        for (looks, expected) in [(100, timed_out), (300, Ok(()))] {
            let (mut asks, asked) = UnixStream::pair().expect("both ends");
            let reads = thread::spawn(move || {
                asks.write_all(b"status\n").expect("room");
                // Bytes that were not sent are not expected, because the other end is closed then.
                let mut text = Vec::new();
                asks.read_to_end(&mut text).map(|_| text.len())
            });
            assert_eq!(served(asked, looks, &long), expected);
            let read = reads.join().expect("no panic").expect("bytes");
            assert_eq!(read == long.len(), expected.is_ok(), "{read}");
        }
    }
}
