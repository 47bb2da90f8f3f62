//! Common parts of the applications of *place*. Each application is a [`AppWorkload`]: tasks, messages and expected
//! answers.
//!
//! ```text
//! Flags ─► AppTestbed: files, hosts, devices; profiled tasks ─► run, strategy by strategy ─► Report: table, JSON
//!                                     AppWorkload: messages ─► PlaceContext ─► answers, each checked
//! ```
//!
//! The application file lists the paths of messages, and hardware models describe the hosts. Both are exchangeable
//! (`--application`, `--requester`, `--responder`): one application runs on all of them. A run keeps a window of
//! messages in progress, in the order of the workload. Requester and responder are one context, two contexts of this
//! process, or two contexts over UDP (`--between`).

mod flags;
mod memo;
mod report;
mod testbed;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use pathcall_place::context::{NextFn, PlaceContext, TaskHooks};
use pathcall_place::device::TaskCode;

pub use flags::Flags;
pub use memo::Memo;
pub use report::{DeviceCounts, PathShare, Report, StrategyResults};
pub use testbed::{AppRun, AppTestbed, HostLink};

/// Task on the path of a message.
#[derive(Debug, Clone)]
pub struct Task {
    /// Name in the application file.
    pub name: &'static str,
    /// Code of the processor, which defines correct answers.
    pub cpu: TaskCode,
    /// Code of accelerators, one per kind of device; empty for tasks of the processor only.
    pub acc: Vec<TaskCode>,
    /// Bytes of the longest answer, if it may be longer than the message.
    pub answer_max: usize,
    /// Input of the task for profiling; both roles must give the same answer.
    pub sample: Bytes,
}

/// Message of a workload.
#[derive(Debug, Clone)]
pub struct MessageSpec {
    /// Type in the application file.
    pub kind: &'static str,
    /// Address, for types that keep their order per address.
    pub address: u64,
    /// Message number, for types that keep their order per message.
    pub message: u64,
    /// Payload.
    pub payload: Bytes,
    /// Operations in the message: look-ups, chunks or reads. Throughput counts operations.
    pub operations: u64,
}

/// Application with its load: the same messages in each run.
pub trait AppWorkload {
    /// Name of the application.
    fn name(&self) -> &'static str;

    /// Tasks of the devices.
    fn tasks(&self) -> Vec<Task>;

    /// Input of further trips by message type; by default the answer of the trip before.
    fn next(&self) -> Vec<(&'static str, NextFn)> {
        Vec::new()
    }

    /// Hooks of the responder around the tasks of devices.
    fn hooks(&self) -> Option<Arc<dyn TaskHooks>> {
        None
    }

    /// True if both roles give bit-identical answers to a task's sample.
    fn answers_alike(&self, _task: &str) -> bool {
        true
    }

    /// Restores the state before the first message. The responder has all functions registered and profiled.
    ///
    /// # Errors
    /// Returns an error if a device rejects its data.
    fn reset(&mut self, _responder: &PlaceContext) -> Result<()> {
        Ok(())
    }

    /// Number of messages.
    fn messages(&self) -> usize;

    /// Message at index `at`.
    fn ask(&self, at: usize) -> MessageSpec;

    /// Checks an answer against the answer of the processor with sequential messages.
    ///
    /// # Errors
    /// Returns the difference.
    fn check(&mut self, at: usize, answer: &[u8]) -> Result<(), String>;
}

/// Runs an application with each strategy and prints the results; fails if an answer is wrong.
pub fn main(flags: &Flags, file: (&str, &str), workload: Result<impl AppWorkload>) -> ExitCode {
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
