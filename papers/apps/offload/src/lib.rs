//! What applications of *place* share: each is a [`Workload`], and says what it registers, what it asks and what is right.
//!
//! ```text
//! Flags ─► Bed: files, hosts, devices; tasks are profiled ─► run, strategy by strategy ─► Report: table, JSON
//!                                 Workload: messages ─► Context ─► answers, each of them checked
//! ```
//!
//! The application's file says which ways messages can take, hardware models over what; both can be any
//! (`--application`, `--requester`, `--responder`): an application is written once for all of them. A run has a window of
//! messages under way, in the order in which the workload has them. Requester and responder are one context, or two of
//! this process, or two over UDP (`--between`).

mod bed;
mod flags;
mod memo;
mod report;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use pathcall_place::context::{Around, Context, NextFn};
use pathcall_place::device::Code;

pub use bed::{Bed, Between, Plan};
pub use flags::Flags;
pub use memo::Memo;
pub use report::{Device, Outcome, Report, Share};

/// What is done somewhere on a message's way.
#[derive(Debug, Clone)]
pub struct Task {
    /// Its name in the application's file.
    pub name: &'static str,
    /// What the processor does; an answer is right if it is this one's.
    pub cpu: Code,
    /// What accelerators do, one for each kind of device; none where only the processor may.
    pub acc: Vec<Code>,
    /// Bytes of its longest answer, if they may be more than the message's.
    pub answer_max: usize,
    /// A message as it gets it, from which its time is profiled; both roles must answer it alike.
    pub sample: Bytes,
}

/// A message.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Its type in the application's file.
    pub kind: &'static str,
    /// What it is about, for types that keep their order per address.
    pub address: u64,
    /// The whole that it is part of, for types that keep their order per message.
    pub message: u64,
    /// What it says.
    pub payload: Bytes,
    /// Operations in it: look-ups, chunks, reads. Throughput counts these.
    pub operations: u64,
}

/// An application and its load: the same messages in each run.
pub trait Workload {
    /// Name of the application.
    fn name(&self) -> &'static str;

    /// What the devices do.
    fn tasks(&self) -> Vec<Task>;

    /// What further trips say, by the type of message: the last trip's answer unless given.
    fn next(&self) -> Vec<(&'static str, NextFn)> {
        Vec::new()
    }

    /// What the responder does with messages besides the tasks of devices.
    fn around(&self) -> Option<Arc<dyn Around>> {
        None
    }

    /// Whether both roles answer a task's sample alike, to the byte.
    fn alike(&self, _task: &str) -> bool {
        true
    }

    /// Takes everything back to where it was before the first message. The responder has its functions by now, and was
    /// tried with the samples.
    ///
    /// # Errors
    /// When a device does not take what belongs on it.
    fn ready(&mut self, _responder: &Context) -> Result<()> {
        Ok(())
    }

    /// How many messages there are.
    fn messages(&self) -> usize;

    /// One of them, counted from 0.
    fn ask(&self, at: usize) -> Ask;

    /// Holds an answer against what the processor alone, message by message, would answer.
    ///
    /// # Errors
    /// How it differs.
    fn check(&mut self, at: usize, answer: &[u8]) -> Result<(), String>;
}

/// The `main` of an application: runs it with each strategy and prints what came of it. Fails if an answer was wrong.
pub fn main(flags: &Flags, file: (&str, &str), workload: Result<impl Workload>) -> ExitCode {
    let done = workload.and_then(|mut workload| {
        let report = flags.run(file, &mut workload)?;
        report.print(flags.json);
        report.all_equal()
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error:#}", file.0.trim_end_matches(".yaml"));
            ExitCode::FAILURE
        }
    }
}
