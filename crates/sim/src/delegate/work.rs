//! What hosts do: handlers, and processes that die and come back.

use std::time::Duration;

use bytes::Bytes;
use pathcall_endpoint::delegate::{Context, Status};

use super::host::{Handler, Host, address, nowhere, payload, tag};
use super::judge::{Tag, Wrong};
use super::plan::{Action, End};
use super::world::{Event, World};

/// Time until what a handler did is durable.
const DURABLE: Duration = Duration::from_micros(20);

impl World<'_> {
    /// Has handlers begin with what waits, as many as the host runs at one time.
    pub(super) fn begin_work(&mut self, host: usize) -> Result<(), Wrong> {
        while self.hosts[host].handlers.len() < self.hosts[host].slots {
            let now = self.hosts[host].local(self.now);
            let Some(mut work) = self.hosts[host].worker.next(now) else { break };
            let tag = tag(&std::mem::take(&mut work.payload));
            let planned =
                tag.filter(|tag| self.plan.calls.get(tag.call).is_some_and(|call| tag.request < call.requests.len()));
            let (execution, incarnation) = (work.execution, self.hosts[host].incarnation);
            if let Some(Tag { call, request, .. }) = planned {
                self.tally.executions += 1;
                self.judge.calls[call].active = self.now;
                self.line(host, || format!("begins call {call} request {request} as {execution:?}"));
                self.judge.began(call, request, (host, incarnation))?;
                self.hosts[host].worker.label(execution, "handle");
            }
            let pause = planned.map_or(Duration::ZERO, |tag| self.pause(tag, 0));
            let handler = Handler { tag: planned, work, replies: 0, record: None };
            self.hosts[host].handlers.insert(execution, handler);
            self.begun((host, incarnation), execution, pause);
        }
        Ok(())
    }

    /// Pause before a handler's nth step, or before its end.
    fn pause(&self, tag: Tag, step: usize) -> Duration {
        let request = &self.plan.calls[tag.call].requests[tag.request];
        request.steps.get(step).map_or(request.end.0, |step| step.0)
    }

    pub(super) fn step(&mut self, host: usize, execution: Context, step: usize) -> Result<(), Wrong> {
        if self.text.is_some() {
            self.line(host, || format!("{execution:?} step {step}"));
        }
        let Some(handler) = self.hosts[host].handlers.get_mut(&execution) else { return Ok(()) };
        let Some(Tag { call, request, .. }) = handler.tag else {
            return self.end(host, execution, None, End::Finish);
        };
        let plan = &self.plan.calls[call].requests[request];
        let tag = Tag { call, request, reply: handler.replies };
        self.judge.calls[call].active = self.now;
        let Some(&(_, action)) = plan.steps.get(step) else {
            return self.end(host, execution, Some(tag), plan.end.1);
        };
        if action == Action::Reply {
            handler.replies += 1;
            self.judge.replied(tag);
        }
        let target = match action {
            Action::Delegate(next) => Some((address(self.plan.calls[call].requests[next].host), next)),
            _ => None,
        };
        self.on(host, |host, now, out| {
            // An error says that the request was aborted or has failed: an event, or the failure, tells more.
            let _ = match (action, target) {
                (Action::Reply, _) => host.worker.reply(now, execution, payload(tag), out),
                (Action::Nowhere, _) => host.worker.delegate(now, execution, nowhere(), Bytes::new(), out),
                (Action::Delegate(_), Some((to, next))) => {
                    host.worker.delegate(now, execution, to, payload(Tag { call, request: next, reply: 0 }), out)
                }
                _ => {
                    host.worker.set_stalled(execution, true);
                    Ok(())
                }
            };
            if !host.worker.is_working(execution) {
                host.handlers.remove(&execution);
            }
        })?;
        let host = (host, self.hosts[host].incarnation);
        let pause = self.pause(tag, step + 1);
        self.queue.push(self.now + pause, Event::Step { host, execution, step: step + 1 });
        Ok(())
    }

    /// A handler ends.
    fn end(&mut self, host: usize, execution: Context, tag: Option<Tag>, end: End) -> Result<(), Wrong> {
        match end {
            End::Never => Ok(()),
            End::Fail(code) => {
                if let Some(tag) = tag {
                    self.judge.calls[tag.call].failed.push(code);
                }
                self.on(host, |host, now, out| {
                    host.worker.fail(now, execution, &Status::new(code, "as planned"), out);
                    host.handlers.remove(&execution);
                })
            }
            End::Finish => {
                let once = self.hosts[host].handlers.get(&execution).is_some_and(|handler| handler.work.once);
                if let Some(tag) = tag.filter(|_| !once) {
                    self.judge.finished(tag.call, tag.request)?;
                }
                self.on(host, |host, now, out| {
                    match host.worker.finish(now, execution, out) {
                        Ok(Some(record)) => {
                            let handler = host.handlers.get_mut(&execution);
                            handler.into_iter().for_each(|handler| handler.record = Some(record.clone()));
                        }
                        _ => drop(host.handlers.remove(&execution)),
                    };
                })?;
                if self.hosts[host].handlers.contains_key(&execution) {
                    let host = (host, self.hosts[host].incarnation);
                    self.queue.push(self.now + DURABLE, Event::Durable { host, execution });
                }
                Ok(())
            }
        }
    }

    /// Effect and record of a request have become durable together.
    pub(super) fn durable(&mut self, host: usize, execution: Context) -> Result<(), Wrong> {
        let Some(Handler { tag, record: Some(record), .. }) = self.hosts[host].handlers.remove(&execution) else {
            return Ok(());
        };
        if let Some(tag) = tag {
            self.judge.calls[tag.call].active = self.now;
            self.judge.finished(tag.call, tag.request)?;
        }
        self.on(host, |host, now, out| {
            host.durable.insert((record.call, record.request), record);
            host.worker.release(now, execution, out);
        })
    }

    pub(super) fn crash(&mut self, host: usize) {
        if !self.hosts[host].up {
            return;
        }
        self.tally.crashes += 1;
        self.hosts[host].up = false;
        self.line(host, || "DIES".to_owned());
        for (index, call) in self.plan.calls.iter().enumerate().filter(|(_, call)| call.host == host) {
            let known = &mut self.judge.calls[index];
            known.orphaned |= known.started && (known.outcome.is_none() || call.options.once);
        }
    }

    pub(super) fn back(&mut self, host: usize) -> Result<(), Wrong> {
        if self.hosts[host].up {
            return Ok(());
        }
        let durable = std::mem::take(&mut self.hosts[host].durable);
        let mut next = Host::new(self.plan, host, self.hosts[host].incarnation + 1);
        let now = next.local(self.now);
        for record in durable.values() {
            // As it comes from a disk.
            let stored = pathcall_endpoint::delegate::worker::record::Record::from_bytes(record.to_bytes().into());
            next.worker.restore(now, stored.expect("a record of ours"));
        }
        let deleted = std::mem::take(&mut self.hosts[host].deleted);
        deleted.iter().for_each(|last| next.worker.restore_ended(*last));
        (next.durable, next.deleted) = (durable, deleted);
        self.hosts[host] = next;
        self.on(host, |_, _, _| ())
    }
}
