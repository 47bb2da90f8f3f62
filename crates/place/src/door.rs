//! A door for operators: a socket on which a running program says where its requests went, and why.
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

/// Bytes of a question at most.
const QUESTION_MAX: u64 = 64;
/// Who has not asked within that time, or not taken the answer within as much again, is left.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of an answer that are sent at a time: fewer than a socket takes at once.
const PIECE: usize = 4096;
/// Between looks whether somebody can be let in again.
const AGAIN: Duration = Duration::from_millis(50);

/// What can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// Where the last requests went, and why.
    Explain(usize),
    /// What paths and devices have come to.
    Status,
}

impl Question {
    /// As it travels.
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

/// The socket; its file goes when it is dropped.
#[derive(Debug)]
pub struct Door {
    path: PathBuf,
    closed: Arc<AtomicBool>,
}

impl Door {
    /// Listens there; a thread asks `answer` for what those who come want to know. A file that a process left that is gone
    /// gives way.
    ///
    /// # Errors
    /// What the system says, as that somebody else listens there.
    pub fn open(path: &Path, answer: impl FnMut(Question) -> String + Send + 'static) -> io::Result<Self> {
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && UnixStream::connect(path).is_err() => {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)?
            }
            listener => listener?,
        };
        let closed = Arc::new(AtomicBool::new(false));
        let (mut answer, over) = (answer, Arc::clone(&closed));
        thread::Builder::new().name("place-door".into()).spawn(move || {
            attend(listener.incoming(), &over, &mut answer);
        })?;
        Ok(Self { path: path.to_owned(), closed })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Release);
        // Wakes its thread.
        let _ = UnixStream::connect(&self.path);
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Those who come, one after the other, until it is over.
fn attend(
    comers: impl Iterator<Item = io::Result<UnixStream>>,
    over: &AtomicBool,
    answer: &mut impl FnMut(Question) -> String,
) {
    for stream in comers {
        if over.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else {
            // Where the process has no descriptors left it is so at once again, and would take a processor until one is.
            thread::sleep(AGAIN);
            continue;
        };
        // Who is rude or slow keeps others for a few seconds.
        let _ = serve(stream, PATIENCE, &mut Clock::now, answer);
    }
}

/// One question.
fn serve(
    mut stream: UnixStream,
    patience: Duration,
    now: &mut impl FnMut() -> Clock,
    answer: &mut impl FnMut(Question) -> String,
) -> io::Result<()> {
    let until = now() + patience;
    let mut text = Vec::new();
    let mut byte = [0];
    while text.len() < QUESTION_MAX as usize {
        stream.set_read_timeout(Some(left(until, now())?))?;
        if stream.read(&mut byte)? == 0 || byte == *b"\n" {
            break;
        }
        text.push(byte[0]);
    }
    let said = match str::from_utf8(&text).ok().and_then(Question::parse) {
        Some(question) => answer(question),
        None => "expected `explain N` or `status`\n".into(),
    };
    let until = now() + patience;
    for piece in said.as_bytes().chunks(PIECE) {
        stream.set_write_timeout(Some(left(until, now())?))?;
        stream.write_all(piece)?;
    }
    Ok(())
}

/// The time until then, which is some.
fn left(until: Clock, now: Clock) -> io::Result<Duration> {
    let left = until.saturating_duration_since(now);
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Asks a running program that listens there: its answer.
///
/// # Errors
/// What the system says, as that nobody listens.
pub fn ask(path: &Path, question: Question) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(4 * PATIENCE))?;
    stream.write_all(question.text().as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cant_be_let_in_is_no_work() {
        let (mut asks, asked) = UnixStream::pair().expect("two ends");
        asks.write_all(b"status\n").expect("room");
        let full = (0..4).map(|_| Err(io::ErrorKind::Other.into()));
        let (began, over) = (Clock::now(), AtomicBool::new(false));
        attend(full.chain([Ok(asked)]), &over, &mut |_| "well".into());
        assert!(began.elapsed() >= 4 * AGAIN, "{:?}", began.elapsed());
        let mut text = String::new();
        asks.read_to_string(&mut text).expect("text");
        assert_eq!(text, "well");
        over.store(true, Ordering::Release);
        attend(std::iter::repeat_with(|| Err(io::ErrorKind::Other.into())), &over, &mut |_| String::new());
    }

    /// Bytes come, or are taken, at once; it is the clock that passes, by as much with each look at it as makes `looks`
    /// of them all the time that there is.
    #[test]
    fn who_is_slow_has_no_more_time_than_who_is_silent() {
        let patience = Duration::from_secs(3600);
        let served = |asked: UnixStream, looks: u32, said: &str| {
            let (began, mut looked) = (Clock::now(), 0);
            let mut now = || {
                looked += 1;
                began + patience / looks * looked
            };
            serve(asked, patience, &mut now, &mut |_| said.into()).map_err(|error| error.kind())
        };
        let timed_out = Err(io::ErrorKind::TimedOut);
        let (mut asks, asked) = UnixStream::pair().expect("two ends");
        asks.write_all(&[b'x'; 50]).expect("room");
        assert_eq!(served(asked, 40, ""), timed_out);

        let long = "x".repeat(200 * PIECE);
        for (looks, expected) in [(100, timed_out), (300, Ok(()))] {
            let (mut asks, asked) = UnixStream::pair().expect("two ends");
            let reads = thread::spawn(move || {
                asks.write_all(b"status\n").expect("room");
                // What was not sent is not missed: the other end is closed then.
                let mut text = Vec::new();
                asks.read_to_end(&mut text).map(|_| text.len())
            });
            assert_eq!(served(asked, looks, &long), expected);
            let read = reads.join().expect("no panic").expect("bytes");
            assert_eq!(read == long.len(), expected.is_ok(), "{read}");
        }
    }
}
