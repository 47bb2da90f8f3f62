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
    /// Party of the owner; declared last, so that it is dropped last.
    _server: Party,
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
        Ok(Self { callers: all, _owner: Some(served.owner), _server: server })
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
        Ok(Self { callers: all, _owner: None, _server: server })
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
        let begin = |(stub, party): &(S, Party)| {
            let (stub, work) = (stub.clone(), work.clone());
            party.begin(move || work(stub))
        };
        let begun: Vec<RunningJob<()>> = self.callers.iter().map(begin).collect();
        begun.into_iter().try_for_each(RunningJob::wait)
    }
}
