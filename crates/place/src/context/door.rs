//! A door for operators: a socket on which a running context says where its requests went, and why.
//!
//! ```text
//! pathcall place explain ── `explain 20` ──▶ a thread ── asks ──▶ Context, between two things that it does
//!                        ◀─── text, the end ── a thread ◀── text ──┘
//! ```

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::Context;

/// Bytes of a question at most.
const QUESTION_MAX: u64 = 64;
/// Who does not ask, or answer, for so long is left.
const PATIENCE: Duration = Duration::from_secs(5);
/// Questions that wait.
const WAITING_MAX: usize = 16;

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

/// A question, and where its answer goes.
pub(super) type Asked = (Question, Sender<String>);

/// The socket; its file goes when it is dropped.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) asked: Receiver<Asked>,
    path: PathBuf,
}

impl Door {
    /// Listens there. A file that a process left that is gone gives way.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && UnixStream::connect(path).is_err() => {
                std::fs::remove_file(path)?;
                UnixListener::bind(path)?
            }
            listener => listener?,
        };
        let (ask, asked) = bounded(WAITING_MAX);
        thread::Builder::new().name("place-door".into()).spawn(move || {
            for stream in listener.incoming().flatten() {
                // Who is rude or slow keeps others for a few seconds.
                let ended = answer(stream, &ask).is_err_and(|error| error.kind() == io::ErrorKind::NotConnected);
                if ended {
                    return;
                }
            }
        })?;
        Ok(Self { asked, path: path.to_owned() })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // Wakes its thread, which finds that nobody answers.
        let (nobody, asked) = bounded(0);
        drop(nobody);
        self.asked = asked;
        let _ = UnixStream::connect(&self.path).and_then(|mut stream| stream.write_all(b"status\n"));
        let _ = std::fs::remove_file(&self.path);
    }
}

/// One question. `NotConnected`: the context is gone.
fn answer(mut stream: UnixStream, ask: &Sender<Asked>) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut text = Vec::new();
    let mut byte = [0];
    while text.len() < QUESTION_MAX as usize && stream.read(&mut byte)? == 1 && byte != *b"\n" {
        text.push(byte[0]);
    }
    let Some(question) = str::from_utf8(&text).ok().and_then(Question::parse) else {
        return stream.write_all(b"expected `explain N` or `status`\n");
    };
    let (to, answer) = bounded(1);
    ask.send_timeout((question, to), PATIENCE).map_err(|error| match error {
        crossbeam_channel::SendTimeoutError::Timeout(_) => io::Error::from(io::ErrorKind::TimedOut),
        crossbeam_channel::SendTimeoutError::Disconnected(_) => io::Error::from(io::ErrorKind::NotConnected),
    })?;
    match answer.recv_timeout(PATIENCE) {
        Ok(text) => stream.write_all(text.as_bytes()),
        Err(_) => stream.write_all(b"the program is busy with other things, and has not answered within 5 s\n"),
    }
}

/// Asks a running context that listens there: its answer.
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

impl Context {
    /// Answers those who have asked.
    pub(super) fn tell(&self) {
        let Some(door) = &self.door else { return };
        while let Ok((question, to)) = door.asked.try_recv() {
            let mut text = String::new();
            let written = match question {
                Question::Explain(count) => self.explain(count).try_for_each(|line| writeln!(text, "{line}")),
                Question::Status => write!(text, "{}", self.telemetry()),
            };
            if written.is_ok() {
                let _ = to.try_send(text);
            }
        }
    }
}
