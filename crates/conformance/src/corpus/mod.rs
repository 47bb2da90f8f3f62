//! The corpus: what the reference does, as files that an execution in any language can be held to.
//!
//! ```text
//! steps ─► reference ─► Case ─► conformance/*.jsonl ─► Case ─► replay: any execution ─► the same, or a Mismatch
//! ```
//!
//! `conformance/README.md` describes the files.

mod format;
mod registers;

use std::fmt;

use pathcall_program::{Counters, Size};
use pathcall_wire::Instant;

use crate::decode::Decoded;
use crate::step::{Effect, Step};
use crate::{Execution, Failure};
pub use format::{Line, Wrong};
pub use registers::StateLine;

/// Version of the format.
pub const VERSION: u32 = 1;

/// A file of the corpus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// What it is about.
    pub title: String,
    /// Memory that an execution needs at least, and refuses no less.
    pub memory: Size,
    /// What happens, in order.
    pub lines: Vec<Line>,
}

/// Where an execution does not do what the file says.
#[derive(Debug)]
pub struct Mismatch {
    /// The file's title.
    pub title: String,
    /// Its line, counted from 1.
    pub line: usize,
    /// The last remark before it.
    pub remark: String,
    /// What was done, expected and got.
    pub what: String,
}

impl std::error::Error for Mismatch {}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, line {} ({}): {}", self.title, self.line, self.remark, self.what)
    }
}

impl Case {
    /// A case without lines.
    #[must_use]
    pub fn new(title: &str, memory: Size) -> Self {
        Self { title: title.to_owned(), memory, lines: Vec::new() }
    }

    /// The text of a file.
    #[must_use]
    pub fn to_text(&self) -> String {
        format::write(self)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`Wrong`] names the line that can't be understood.
    pub fn from_text(text: &str) -> Result<Self, Wrong> {
        format::read(text)
    }

    /// Whether frames carry tokens in it: not every execution works on those.
    #[must_use]
    pub fn has_tokens(&self) -> bool {
        self.lines.iter().any(|line| matches!(line, Line::Step { step: Step::Authenticate(_, Some(_)), .. }))
    }

    /// Has a step happen to an execution, and adds it with what came of it.
    ///
    /// # Errors
    /// When the execution fails.
    pub fn record(&mut self, execution: &mut impl Execution, step: Step) -> Result<(), Failure> {
        let effect = step.apply(self.now(), execution)?;
        self.lines.push(Line::Step { step, effect });
        Ok(())
    }

    /// Adds what an execution holds now. Its counters began at `began`.
    ///
    /// # Errors
    /// When the execution fails.
    pub fn record_state(&mut self, execution: &mut impl Execution, began: &Counters) -> Result<(), Failure> {
        self.lines.push(Line::State(Box::new(StateLine::new(&execution.state()?, began))));
        Ok(())
    }

    /// Adds a remark on what follows.
    pub fn remark(&mut self, text: &str) {
        self.lines.push(Line::Remark(text.to_owned()));
    }

    fn now(&self) -> Instant {
        Instant(self.lines.len() as u64 + 1)
    }

    /// Plays the case to an execution with empty tables.
    ///
    /// # Errors
    /// The first [`Mismatch`].
    pub fn replay(&self, execution: &mut impl Execution) -> Result<(), Mismatch> {
        let mut remark = "at the beginning";
        let mismatch = |at: usize, remark: &str, what: String| Mismatch {
            title: self.title.clone(),
            // The first line is the header.
            line: at + 2,
            remark: remark.to_owned(),
            what,
        };
        let began = execution.state().map_err(|failure| mismatch(0, remark, failure.to_string()))?.counters;
        for (at, line) in self.lines.iter().enumerate() {
            let failed = |failure: Failure| mismatch(at, remark, failure.to_string());
            match line {
                Line::Remark(text) => remark = text,
                Line::Step { step, effect } => {
                    let got = step.apply(Instant(at as u64 + 1), execution).map_err(failed)?;
                    if !got.agrees(effect) {
                        let what = format!("{step}\nexpected {effect}\ngot      {got}");
                        return Err(mismatch(at, remark, what));
                    }
                }
                Line::State(expected) => {
                    let got = StateLine::new(&execution.state().map_err(failed)?, &began);
                    if got != **expected {
                        let what = format!("registers or counters\nexpected {expected}\ngot      {got}");
                        return Err(mismatch(at, remark, what));
                    }
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remark(text) => write!(f, "# {text}"),
            Self::State(state) => write!(f, "{state}"),
            Self::Step { step: Step::Frame { bytes, .. }, effect } => write!(f, "{} ─► {effect}", Decoded(bytes)),
            Self::Step { step, effect: Effect::Changed } => write!(f, "{step}"),
            Self::Step { step, effect } => write!(f, "{step}: {effect}"),
        }
    }
}
