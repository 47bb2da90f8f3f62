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
use std::time::Duration;

/// Bytes of a question at most.
const QUESTION_MAX: u64 = 64;
/// Who does not ask, or answer, for so long is left.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

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
            for stream in listener.incoming().flatten() {
                if over.load(Ordering::Acquire) {
                    return;
                }
                // Who is rude or slow keeps others for a few seconds.
                let _ = serve(stream, &mut answer);
            }
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

/// One question.
fn serve(mut stream: UnixStream, answer: &mut impl FnMut(Question) -> String) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut text = Vec::new();
    let mut byte = [0];
    while text.len() < QUESTION_MAX as usize && stream.read(&mut byte)? == 1 && byte != *b"\n" {
        text.push(byte[0]);
    }
    match str::from_utf8(&text).ok().and_then(Question::parse) {
        Some(question) => stream.write_all(answer(question).as_bytes()),
        None => stream.write_all(b"expected `explain N` or `status`\n"),
    }
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
