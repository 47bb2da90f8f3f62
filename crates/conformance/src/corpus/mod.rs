//! Conformance corpus: recorded behaviour of the reference, as files for executions in any language.
//!
//! ```text
//! steps ─► reference ─► Case ─► conformance/*.jsonl ─► Case ─► replay on any execution ─► equal, or a Mismatch
//! ```
//!
//! `conformance/README.md` describes the files.

mod format;
mod registers;

use std::fmt;

use pathcall_program::{Counters, Size};
use pathcall_wire::Instant;

use crate::decode::Decoded;
use crate::step::{ProgramStep, StepEffect};
use crate::{ExecutionFailure, ProgramExecution};
pub use format::{CorpusError, CorpusLine};
pub use registers::StateLine;

/// Version of the format.
pub const VERSION: u32 = 1;

/// Corpus file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// Title.
    pub title: String,
    /// Memory of the execution: at least this size, and requests beyond it are refused.
    pub memory: Size,
    /// Lines in order.
    pub lines: Vec<CorpusLine>,
}

/// Difference between an execution and a corpus file.
#[derive(Debug)]
pub struct Mismatch {
    /// Title of the file.
    pub title: String,
    /// Line number, from 1.
    pub line: usize,
    /// Last remark before the line.
    pub remark: String,
    /// Step, expected and actual effect.
    pub what: String,
}

impl std::error::Error for Mismatch {}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, line {} ({}): {}", self.title, self.line, self.remark, self.what)
    }
}

impl Case {
    /// Case without lines.
    #[must_use]
    pub fn new(title: &str, memory: Size) -> Self {
        Self { title: title.to_owned(), memory, lines: Vec::new() }
    }

    /// Text of the file.
    #[must_use]
    pub fn to_text(&self) -> String {
        format::write(self)
    }

    /// Parses a file.
    ///
    /// # Errors
    /// [`CorpusError`] names the faulty line.
    pub fn from_text(text: &str) -> Result<Self, CorpusError> {
        format::read(text)
    }

    /// True if frames carry tokens, which not every execution supports.
    #[must_use]
    pub fn has_tokens(&self) -> bool {
        self.lines
            .iter()
            .any(|line| matches!(line, CorpusLine::Step { step: ProgramStep::Authenticate(_, Some(_)), .. }))
    }

    /// Applies a step to an execution, and records it with its effect.
    ///
    /// # Errors
    /// If the execution fails.
    pub fn record(&mut self, execution: &mut impl ProgramExecution, step: ProgramStep) -> Result<(), ExecutionFailure> {
        let effect = step.apply(self.now(), execution)?;
        self.lines.push(CorpusLine::Step { step, effect });
        Ok(())
    }

    /// Records the registers and counters of an execution, counters relative to `began`.
    ///
    /// # Errors
    /// If the execution fails.
    pub fn record_state(
        &mut self,
        execution: &mut impl ProgramExecution,
        began: &Counters,
    ) -> Result<(), ExecutionFailure> {
        self.lines.push(CorpusLine::State(Box::new(StateLine::new(&execution.state()?, began))));
        Ok(())
    }

    /// Records a remark.
    pub fn remark(&mut self, text: &str) {
        self.lines.push(CorpusLine::Remark(text.to_owned()));
    }

    fn now(&self) -> Instant {
        Instant(self.lines.len() as u64 + 1)
    }

    /// Replays the case on an execution with empty tables.
    ///
    /// # Errors
    /// The first [`Mismatch`].
    pub fn replay(&self, execution: &mut impl ProgramExecution) -> Result<(), Mismatch> {
        let mut remark = "at the beginning";
        let mismatch = |at: usize, remark: &str, what: String| Mismatch {
            title: self.title.clone(),
            // Line 1 is the header.
            line: at + 2,
            remark: remark.to_owned(),
            what,
        };
        let began = execution.state().map_err(|failure| mismatch(0, remark, failure.to_string()))?.counters;
        for (at, line) in self.lines.iter().enumerate() {
            let failed = |failure: ExecutionFailure| mismatch(at, remark, failure.to_string());
            match line {
                CorpusLine::Remark(text) => remark = text,
                CorpusLine::Step { step, effect } => {
                    let got = step.apply(Instant(at as u64 + 1), execution).map_err(failed)?;
                    if !got.agrees(effect) {
                        let what = format!("{step}\nexpected {effect}\ngot      {got}");
                        return Err(mismatch(at, remark, what));
                    }
                }
                CorpusLine::State(expected) => {
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

impl fmt::Display for CorpusLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remark(text) => write!(f, "# {text}"),
            Self::State(state) => write!(f, "{state}"),
            Self::Step { step: ProgramStep::Frame { bytes, .. }, effect } => {
                write!(f, "{} ─► {effect}", Decoded(bytes))
            }
            Self::Step { step, effect: StepEffect::Changed } => write!(f, "{step}"),
            Self::Step { step, effect } => write!(f, "{step}: {effect}"),
        }
    }
}
