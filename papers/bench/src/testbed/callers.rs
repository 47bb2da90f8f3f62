//! Stubs on separate hosts: a service on host 1, callers on the hosts after it.

use std::future::Future;
use std::time::Duration;

use anyhow::Result;
use pathcall::Manifest;

use super::{ElementTestbed, Party, RunningJob, WaitMode};
use crate::net::{Grpc, connect_plain, serve_at, serve_plain_at, thread_cpu};

pub(crate) struct Callers<S> {
    /// Callers with their stubs.
    callers: Vec<(S, Party)>,
    /// Keeps the owner running.
    _owner: Option<pathcall::Layer>,
    /// Party of the owner, unless a process serves; declared last, so that it is dropped last.
    _server: Option<Party>,
}

impl<S: Clone + Send + 'static> Callers<S> {
    /// Starts callers with Pathcall, through the stage's element if there is one, with `rows` rows per application.
    pub(crate) fn pathcall(
        stage: &ElementTestbed,
        (manifest, rows): (&'static Manifest, u32),
        callers: usize,
        service: impl Grpc,
        stub: impl Fn(pathcall::Channel) -> S,
    ) -> Result<Self> {
        let server = stage.host(1, WaitMode::Blocking, None)?;
        let (at, controller) = (stage.free_at(1)?, stage.controller());
        let served = server.run(move || serve_at(at, manifest, controller, rows, service))?;
        let mut all = Vec::new();
        for k in 2..2 + callers {
            let party = stage.host(k, WaitMode::Blocking, None)?;
            let url = served.url.clone();
            let connect = move || async move { Ok(pathcall::Channel::connect(url, manifest).await?) };
            all.push((stub(party.run(connect)?), party));
        }
        Ok(Self { callers: all, _owner: Some(served.owner), _server: Some(server) })
    }

    /// Starts callers without Pathcall.
    pub(crate) fn plain(
        stage: &ElementTestbed,
        callers: usize,
        service: impl Grpc,
        stub: impl Fn(tonic::transport::Channel) -> S,
    ) -> Result<Self> {
        let server = stage.host(1, WaitMode::Blocking, None)?;
        let at = stage.free_at(1)?;
        let url = server.run(move || serve_plain_at(at, service))?;
        let mut all = Vec::new();
        for k in 2..2 + callers {
            let party = stage.host(k, WaitMode::Blocking, None)?;
            let url = url.clone();
            all.push((stub(party.run(move || async move { connect_plain(&url).await })?), party));
        }
        Ok(Self { callers: all, _owner: None, _server: Some(server) })
    }

    /// Starts callers of a process that serves already; `connect` runs on each caller's host.
    pub(crate) fn of_process<F>(
        stage: &ElementTestbed,
        callers: usize,
        connect: impl Fn() -> F + Clone + Send + 'static,
    ) -> Result<Self>
    where
        F: Future<Output = Result<S>> + 'static,
    {
        let mut all = Vec::new();
        for k in 2..2 + callers {
            let party = stage.host(k, WaitMode::Blocking, None)?;
            all.push((party.run(connect.clone())?, party));
        }
        Ok(Self { callers: all, _owner: None, _server: None })
    }

    /// Processor time of all callers so far; the server has used the rest.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        self.callers.iter().map(|(_, party)| party.run(|| async { Ok(thread_cpu()) })).sum()
    }

    /// Runs `work` on all callers concurrently, each on its host.
    pub(crate) fn each<F>(&self, work: impl Fn(S) -> F + Clone + Send + 'static) -> Result<()>
    where
        F: Future<Output = Result<()>> + 'static,
    {
        self.collect(move |_, stub| work(stub)).map(drop)
    }

    /// Runs `work` on all callers concurrently, each on its host, with the caller's number from 0; returns the results
    /// in the order of the callers.
    pub(crate) fn collect<T, F>(&self, work: impl Fn(usize, S) -> F + Clone + Send + 'static) -> Result<Vec<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + 'static,
    {
        let begin = |(number, (stub, party)): (usize, &(S, Party))| {
            let (stub, work) = (stub.clone(), work.clone());
            party.begin(move || work(number, stub))
        };
        let begun: Vec<RunningJob<T>> = self.callers.iter().enumerate().map(begin).collect();
        begun.into_iter().map(RunningJob::wait).collect()
    }

    /// Stubs of all callers.
    pub(crate) fn stubs(&self) -> impl Iterator<Item = &S> {
        self.callers.iter().map(|(stub, _)| stub)
    }
}
