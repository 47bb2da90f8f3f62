//! Handlers of the delegate simulation; death and restart of processes.

use std::time::Duration;

use bytes::Bytes;
use pathcall_endpoint::delegate::{ContextId, Status};

use super::checker::{DelegateViolation, MessageTag};
use super::host::{DelegateHost, RunningHandler, avoided, nowhere, payload, tag};
use super::plan::{HandlerAction, HandlerEnd};
use super::world::{DelegateEvent, DelegateWorld};

/// Time until the effect of a handler is durable.
const COMMIT_TIME: Duration = Duration::from_micros(20);

impl DelegateWorld<'_> {
    /// Starts handlers for waiting requests, up to the limit of the host.
    pub(super) fn begin_work(&mut self, host: usize) -> Result<(), DelegateViolation> {
        while self.hosts[host].handlers.len() < self.hosts[host].slots {
            let now = self.hosts[host].local(self.time.now);
            let Some(mut work) = self.hosts[host].worker.next(now) else { break };
            let payload = std::mem::take(&mut work.payload);
            let tag = tag(&payload).filter(|tag| tag.call < self.checker.calls.len());
            let planned = tag.filter(|tag| tag.request < self.plan.call(tag.call).requests.len());
            let (execution, incarnation) = (work.execution, self.hosts[host].incarnation);
            if let Some(MessageTag { call, request, .. }) = planned {
                self.counts.executions += 1;
                self.checker.calls[call].active = self.time.now;
                self.line(host, || format!("begins call {call} request {request} as {execution:?}"));
                self.checker.began(call, request, (host, incarnation))?;
                self.hosts[host].worker.set_label(execution, "handle");
            }
            let pause = planned.map_or(Duration::ZERO, |tag| self.pause(host, tag, 0));
            let handler = RunningHandler { tag: planned, work, replies: 0, record: None, avoided: avoided(&payload) };
            self.hosts[host].handlers.insert(execution, handler);
            self.start_execution((host, incarnation), execution, pause);
        }
        Ok(())
    }

    /// Pause before the nth step of a handler, or before its end.
    fn pause(&self, host: usize, tag: MessageTag, step: usize) -> Duration {
        let request = &self.plan.call(tag.call).requests[tag.request];
        let pause = request.steps.get(step).map_or(request.end.0, |step| step.0);
        pause * self.plan.services.as_ref().map_or(1, |services| services.slowness(self.time.now, host))
    }

    pub(super) fn step(&mut self, host: usize, execution: ContextId, step: usize) -> Result<(), DelegateViolation> {
        self.line(host, || format!("{execution:?} step {step}"));
        let Some(handler) = self.hosts[host].handlers.get_mut(&execution) else { return Ok(()) };
        let Some(MessageTag { call, request, .. }) = handler.tag else {
            return self.end(host, execution, None, HandlerEnd::Finish);
        };
        let plan = &self.plan.call(call).requests[request];
        let avoided = std::mem::take(&mut handler.avoided);
        let tag = MessageTag { call, request, reply: handler.replies };
        self.checker.calls[call].active = self.time.now;
        let Some(&(_, action)) = plan.steps.get(step) else {
            return self.end(host, execution, Some(tag), plan.end.1);
        };
        if action == HandlerAction::Reply {
            handler.replies += 1;
            self.checker.replied(tag);
        }
        let target = match action {
            HandlerAction::Delegate(next) => Some(self.address_request(host, call, next, &avoided)?),
            _ => None,
        };
        let handler = self.hosts[host].handlers.get_mut(&execution);
        handler.into_iter().for_each(|handler| handler.avoided = avoided.clone());
        self.on(host, |host, now, out| {
            // An error means that the request was aborted or has failed; an event follows.
            let _ = match (action, target) {
                (HandlerAction::Reply, _) => host.worker.reply(now, execution, payload(tag), out),
                (HandlerAction::Nowhere, _) => host.worker.delegate(now, execution, nowhere(), Bytes::new(), out),
                (HandlerAction::Delegate(_), Some((to, payload))) => {
                    host.worker.delegate(now, execution, to, payload, out)
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
        let pause = self.pause(host.0, tag, step + 1);
        self.time.after(pause, DelegateEvent::Step { host, execution, step: step + 1 });
        Ok(())
    }

    /// Ends a handler.
    fn end(
        &mut self,
        host: usize,
        execution: ContextId,
        tag: Option<MessageTag>,
        end: HandlerEnd,
    ) -> Result<(), DelegateViolation> {
        match end {
            HandlerEnd::Never => Ok(()),
            HandlerEnd::Fail(code) => {
                if let Some(tag) = tag {
                    self.checker.calls[tag.call].failed.push(code);
                }
                let details = tag.map(|tag| self.failure_details(tag.call)).unwrap_or_default();
                self.on(host, |host, now, out| {
                    let status = Status { details, ..Status::new(code, "as planned") };
                    host.worker.fail(now, execution, &status, out);
                    host.handlers.remove(&execution);
                })
            }
            HandlerEnd::Finish => {
                let once = self.hosts[host].handlers.get(&execution).is_some_and(|handler| handler.work.once);
                if let Some(tag) = tag.filter(|_| !once) {
                    self.checker.finished(tag.call, tag.request)?;
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
                    self.time.after(COMMIT_TIME, DelegateEvent::Durable { host, execution });
                }
                Ok(())
            }
        }
    }

    /// Makes effect and record of a request durable, both at once.
    pub(super) fn durable(&mut self, host: usize, execution: ContextId) -> Result<(), DelegateViolation> {
        let Some(RunningHandler { tag, record: Some(record), .. }) = self.hosts[host].handlers.remove(&execution)
        else {
            return Ok(());
        };
        if let Some(tag) = tag {
            self.checker.calls[tag.call].active = self.time.now;
            self.checker.finished(tag.call, tag.request)?;
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
        self.counts.crashes += 1;
        self.hosts[host].up = false;
        self.line(host, || "DIES".to_owned());
        for (index, call) in self.plan.all_calls().enumerate().filter(|(_, call)| call.host == host) {
            let known = &mut self.checker.calls[index];
            known.orphaned |= known.started && (known.outcome.is_none() || call.options.once);
        }
        self.crash_of_service(host);
    }

    pub(super) fn back(&mut self, host: usize) -> Result<(), DelegateViolation> {
        if self.hosts[host].up {
            return Ok(());
        }
        let durable = std::mem::take(&mut self.hosts[host].durable);
        let mut next = DelegateHost::new(self.plan, host, self.hosts[host].incarnation + 1);
        let now = next.local(self.time.now);
        for record in durable.values() {
            // Encodes and decodes the record, as on a disk.
            let stored =
                pathcall_endpoint::delegate::worker::record::RequestRecord::from_bytes(record.to_bytes().into());
            next.worker.restore(now, stored.expect("record of the simulation"));
        }
        let deleted = std::mem::take(&mut self.hosts[host].deleted);
        deleted.iter().for_each(|last| next.worker.restore_ended(*last));
        (next.durable, next.deleted) = (durable, deleted);
        self.hosts[host] = next;
        self.on(host, |_, _, _| ())
    }
}
