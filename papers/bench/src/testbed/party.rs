//! Party of a figure on its own host: a thread in the host's network namespace.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result};
use pathcall_testbed::TestbedNode;
use rustix::thread::{CpuSet, sched_setaffinity};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Job of a party: created and driven on the party's thread.
type Job = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// Thread on a node, with its own runtime: its jobs open sockets in the node's namespace. Tasks spawned by jobs
/// continue between jobs, until the party is dropped.
pub(crate) struct Party {
    /// Address of the node.
    address: Ipv4Addr,
    /// `None` during the drop.
    jobs: Option<UnboundedSender<Job>>,
    thread: Option<thread::JoinHandle<()>>,
}

/// Wait mode of a party.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitMode {
    /// Sleep until the kernel wakes the thread.
    Blocking,
    /// Poll continuously, which occupies a processor.
    Spinning,
}

/// Job in progress.
pub(crate) struct RunningJob<T>(mpsc::Receiver<Result<T>>);

impl Party {
    /// Starts a thread on a node, pinned to processor `cpu` if given.
    pub(crate) fn at(node: &TestbedNode, waiting: WaitMode, cpu: Option<usize>) -> Result<Self> {
        let (name, address) = (node.name().to_string(), node.address());
        let node = node.clone();
        Self::start((name, address), waiting, cpu, move || Ok(node.enter()?))
    }

    /// Starts a thread on this host, pinned to processor `cpu`.
    pub(crate) fn local(cpu: usize) -> Result<Self> {
        let name = format!("processor {cpu}");
        Self::start((name, Ipv4Addr::LOCALHOST), WaitMode::Blocking, Some(cpu), || Ok(()))
    }

    fn start(
        (name, address): (String, Ipv4Addr),
        waiting: WaitMode,
        cpu: Option<usize>,
        enter_node: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        let (jobs, mut queue) = unbounded_channel::<Job>();
        let (ready, readiness) = mpsc::channel();
        let enter = move || {
            enter_node()?;
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
                if waiting == WaitMode::Spinning {
                    tokio::spawn(spin());
                }
                while let Some(job) = queue.recv().await {
                    job().await;
                }
            });
        };
        let thread = thread::Builder::new().name(name).spawn(work).context("cannot start a party's thread")?;
        readiness.recv().context("a party ended at its start")??;
        Ok(Self { address, jobs: Some(jobs), thread: Some(thread) })
    }

    /// Address of the party's node, with a free port.
    pub(crate) fn free_address(&self) -> SocketAddr {
        SocketAddr::new(self.address.into(), 0)
    }

    /// Starts a job, after all jobs started before.
    pub(crate) fn begin<T, F>(&self, job: impl FnOnce() -> F + Send + 'static) -> RunningJob<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + 'static,
    {
        let (done, outcome) = mpsc::channel();
        let job: Job = Box::new(move || {
            let job = job();
            // The receiver may have been dropped meanwhile.
            Box::pin(async move { drop(done.send(job.await)) })
        });
        if let Some(jobs) = &self.jobs {
            // An ended thread drops the job, and with it the sender of the result.
            let _ = jobs.send(job);
        }
        RunningJob(outcome)
    }

    /// Runs a job.
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
            // The thread has printed its panic message.
            let _ = thread.join();
        }
    }
}

impl<T> RunningJob<T> {
    /// Waits for the result.
    pub(crate) fn wait(self) -> Result<T> {
        self.0.recv().context("a party ended before its job")?
    }
}

/// Keeps the runtime polling the system whenever no task is ready.
async fn spin() {
    loop {
        tokio::task::yield_now().await;
    }
}

/// Pins the calling thread, and its future child threads, to one processor.
fn pin(cpu: usize) -> Result<()> {
    let mut only = CpuSet::new();
    only.set(cpu);
    Ok(sched_setaffinity(None, &only)?)
}
