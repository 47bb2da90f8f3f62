//! What hosts do once something has happened to them: send, work, tell of calls that end, set their timers.

use pathcall_endpoint::clone::{CallId, Event, Worker};
use pathcall_wire::{CloneFrame, Instant};

use super::judge::Wrong;
use super::part::Begun;
use super::world::{Happening, Node, SERVER, World};
use crate::queue::EventQueue;

impl World<'_> {
    /// What follows from what has happened at a node: frames, work, ends of calls, timers.
    pub(super) fn drain(&mut self, node: Node) -> Result<(), Wrong> {
        match node {
            Node::Caller(index) => self.drain_caller(index),
            Node::Server(index) => self.drain_server(index),
            Node::Element | Node::Stranger => Ok(()),
        }
    }

    fn drain_caller(&mut self, index: usize) -> Result<(), Wrong> {
        let mut out = [0; pathcall_wire::MAX_FRAME];
        while let Some((to, len)) = self.callers[index].0.transmit(self.now, &mut out) {
            if let Ok(frame) = CloneFrame::new_checked(&out[..len])
                && let Some(call) = self.call_of(&frame)
            {
                self.judge.sends(self.now, call, &frame)?;
            }
            self.route(Node::Caller(index), to, &out[..len]);
        }
        while let Some(event) = self.callers[index].0.event() {
            let (Event::Answered(CallId(seq), _) | Event::Failed(CallId(seq), _)) = &event;
            let call = match self.ids.remove(&(index, *seq)) {
                Some(call) => call,
                None => return Err(Wrong::EndedTwice(self.named.get(&(index, *seq)).copied().unwrap_or(usize::MAX))),
            };
            match &event {
                Event::Answered(..) => self.tally.answered += 1,
                Event::Failed(..) => self.tally.failed += 1,
            }
            self.line(Node::Caller(index), || match &event {
                Event::Answered(_, answer) => format!("call {call} ANSWERED by {}", answer.server),
                Event::Failed(_, failure) => format!("call {call} FAILED: {failure}"),
            });
            self.judge.ends(self.now, call, &event)?;
        }
        let next = self.callers[index].0.deadline();
        let wake = &mut self.callers[index].1;
        arm(&mut self.queue, self.now, Node::Caller(index), next, wake);
        Ok(())
    }

    fn drain_server(&mut self, index: usize) -> Result<(), Wrong> {
        let mut out = [0; pathcall_wire::MAX_FRAME];
        let incarnation = self.servers[index].incarnation;
        while let Some(worker) = &mut self.servers[index].worker
            && let Some((to, len)) = worker.transmit(self.now, &mut out)
        {
            self.lie(index, &mut out[..len]);
            self.route(Node::Server(index), to, &out[..len]);
        }
        while let Some(worker) = &mut self.servers[index].worker
            && let Some(work) = worker.begin(self.now)
        {
            let tag = self.judge.begins(index, (SERVER + index as u32, incarnation), &work.request)?;
            self.tally.executions += 1;
            let (shortest, longest) = self.plan.servers[index].service;
            let at = self.now + shortest + self.random.up_to(longest - shortest);
            self.line(Node::Server(index), || format!("begins call {}, execution {}", tag.call, tag.execution));
            self.begun(Begun::new(index, incarnation, work.id, tag), at);
        }
        let server = &mut self.servers[index];
        let next = server.worker.as_ref().and_then(Worker::deadline);
        arm(&mut self.queue, self.now, Node::Server(index), next, &mut server.wake);
        Ok(())
    }

    /// A server may say that it is idle, or busy, and not be.
    fn lie(&self, index: usize, bytes: &mut [u8]) {
        if let Some(state) = self.plan.servers[index].lies
            && let Ok(mut frame) = CloneFrame::new_checked(bytes)
        {
            frame.head_mut().set_state(state);
        }
    }
}

/// Has a node woken at `next`, if it is not woken before.
fn arm(queue: &mut EventQueue<Happening>, now: Instant, node: Node, next: Option<Instant>, wake: &mut Option<Instant>) {
    let Some(next) = next.map(|at| at.max(now)) else { return };
    if wake.is_none_or(|at| next < at) {
        *wake = Some(next);
        queue.push(next, Happening::Wake(node));
    }
}
