//! A context's [`Door`]: its thread asks the context, which answers between two things that it does.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use crossbeam_channel::{Receiver, SendTimeoutError, Sender, bounded};

use super::Context;
use crate::door::{Door, PATIENCE, Question};

/// Questions that wait.
const WAITING_MAX: usize = 16;

/// A question, and where its answer goes.
type Asked = (Question, Sender<String>);

/// The door, and what was asked there.
#[derive(Debug)]
pub(super) struct Answering {
    // Dropped first, so that its thread is waiting for nobody when it is told to end.
    pub(super) asked: Receiver<Asked>,
    _door: Door,
}

impl Answering {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let (ask, asked) = bounded(WAITING_MAX);
        Ok(Self { asked, _door: Door::open(path, move |question| answer(question, &ask))? })
    }
}

fn answer(question: Question, ask: &Sender<Asked>) -> String {
    let (to, answer) = bounded(1);
    match ask.send_timeout((question, to), PATIENCE) {
        Err(SendTimeoutError::Disconnected(_)) => return "the program ends\n".into(),
        Ok(()) | Err(SendTimeoutError::Timeout(_)) => {}
    }
    let busy = "the program is busy with other things, and has not answered within 5 s\n";
    answer.recv_timeout(PATIENCE).unwrap_or_else(|_| busy.into())
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
