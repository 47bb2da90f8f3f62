//! A party of a figure on a host of its own: a thread in that host's network namespace.

use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result};
use pathcall_testbed::Node;
use rustix::thread::{CpuSet, sched_setaffinity};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// What a party is told to do: made on its thread, and driven there.
type Job = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// A thread on a node, with a runtime of its own: all sockets that its jobs open are the node's. What jobs
/// have spawned goes on between jobs, until the party is dropped.
pub(crate) struct Party {
    /// `None` while it is dropped.
    jobs: Option<UnboundedSender<Job>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// How a party gets what it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// It sleeps until the kernel wakes it.
    Blocking,
    /// It asks again and again, for a whole processor.
    Spinning,
}

/// A job that was begun.
pub(crate) struct Begun<T>(mpsc::Receiver<Result<T>>);

impl Party {
    /// On a node, and on one processor if `cpu` names it.
    pub(crate) fn at(node: &Node, waiting: Waiting, cpu: Option<usize>) -> Result<Self> {
        let (jobs, mut queue) = unbounded_channel::<Job>();
        let (ready, readiness) = mpsc::channel();
        let (node, name) = (node.clone(), node.name().to_string());
        let enter = move || {
            node.enter()?;
            if let Some(cpu) = cpu {
                pin(cpu)?;
            }
            Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
        };
        let work = move || {
            let runtime = match enter() {
                Ok(runtime) => runtime,
                Err(error) => return drop(ready.send(Err(error))),
            };
            drop(ready.send(anyhow::Ok(())));
            runtime.block_on(async {
                if waiting == Waiting::Spinning {
                    tokio::spawn(spin());
                }
                while let Some(job) = queue.recv().await {
                    job().await;
                }
            });
        };
        let thread = thread::Builder::new().name(name).spawn(work).context("no thread for a party")?;
        readiness.recv().context("a party ended at once")??;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Begins a job, after those that were begun before.
    pub(crate) fn begin<T, F>(&self, job: impl FnOnce() -> F + Send + 'static) -> Begun<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + 'static,
    {
        let (done, outcome) = mpsc::channel();
        let job: Job = Box::new(move || {
            let job = job();
            // Whoever began it may have given up meanwhile.
            Box::pin(async move { drop(done.send(job.await)) })
        });
        if let Some(jobs) = &self.jobs {
            // A thread that has ended drops the job, and with it what is waited for.
            let _ = jobs.send(job);
        }
        Begun(outcome)
    }

    /// Does a job.
    pub(crate) fn run<T, F>(&self, job: impl FnOnce() -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + 'static,
    {
        self.begin(job).wait()
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // What it panicked with, it has printed.
            let _ = thread.join();
        }
    }
}

impl<T> Begun<T> {
    /// What came of it.
    pub(crate) fn wait(self) -> Result<T> {
        self.0.recv().context("a party ended in the middle of its work")?
    }
}

/// Keeps the runtime looking for events: it polls the system whenever nothing else is ready.
async fn spin() {
    loop {
        tokio::task::yield_now().await;
    }
}

/// Keeps the calling thread, and those that it starts, on one processor.
fn pin(cpu: usize) -> Result<()> {
    let mut only = CpuSet::new();
    only.set(cpu);
    Ok(sched_setaffinity(None, &only)?)
}
