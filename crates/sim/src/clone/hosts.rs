//! Output of the hosts: frames, executions, ends of calls and timers.

use pathcall_endpoint::clone::{CloneCallId, CloneWorker, Event};
use pathcall_wire::CloneFrame;

use super::part::PlacedExecution;
use super::violation::CloneViolation;
use super::world::{CloneEvent, CloneNode, CloneWorld, SERVER};

impl CloneWorld<'_> {
    /// Handles all outputs of a node.
    pub(super) fn drain(&mut self, node: CloneNode) -> Result<(), CloneViolation> {
        match node {
            CloneNode::Caller(index) => self.drain_caller(index),
            CloneNode::Server(index) => self.drain_server(index),
            CloneNode::Element(_) | CloneNode::Attacker => Ok(()),
        }
    }

    fn drain_caller(&mut self, index: usize) -> Result<(), CloneViolation> {
        let mut out = [0; pathcall_wire::MAX_FRAME];
        while let Some((to, len)) = self.callers[index].0.transmit(self.time.now, &mut out) {
            if let Ok(frame) = CloneFrame::new_checked(&out[..len])
                && let Some(call) = self.call_of(&frame)
            {
                self.checker.record_sent_frame(self.time.now, call, &frame)?;
            }
            self.route(CloneNode::Caller(index), to, &out[..len]);
        }
        let hedged = self.callers[index].0.stats().hedged;
        self.plan.check_slow_hedges(self.time.now, index, hedged, &mut self.checker.hedged_before)?;
        while let Some(event) = self.callers[index].0.next_event() {
            let (Event::Answered(CloneCallId(seq), _) | Event::Failed(CloneCallId(seq), _)) = &event;
            let call = match self.ids.remove(&(index, *seq)) {
                Some(call) => call,
                None => {
                    return Err(CloneViolation::EndedTwice(
                        self.named.get(&(index, *seq)).copied().unwrap_or(usize::MAX),
                    ));
                }
            };
            match &event {
                Event::Answered(..) => self.counts.answered += 1,
                Event::Failed(..) => self.counts.failed += 1,
            }
            self.line(CloneNode::Caller(index), || match &event {
                Event::Answered(_, answer) => format!("call {call} ANSWERED by {}", answer.server),
                Event::Failed(_, failure) => format!("call {call} FAILED: {failure}"),
            });
            if let Event::Answered(_, answer) = &event {
                self.check_hedged(call, answer)?;
            }
            let refused = self.callers[index].0.stats().refused;
            let is_spent = refused.budget + refused.dear > 0;
            self.checker.ends(self.time.now, call, &event, is_spent)?;
        }
        let next = self.callers[index].0.deadline();
        let wake = &mut self.callers[index].1;
        self.time.wake_at(next, wake, CloneEvent::Wake(CloneNode::Caller(index)));
        Ok(())
    }

    fn drain_server(&mut self, index: usize) -> Result<(), CloneViolation> {
        let mut out = [0; pathcall_wire::MAX_FRAME];
        let incarnation = self.servers[index].incarnation;
        while let Some(worker) = &mut self.servers[index].worker
            && let Some((to, len)) = worker.transmit(self.time.now, &mut out)
        {
            self.forge_server_state(index, &mut out[..len]);
            self.route(CloneNode::Server(index), to, &out[..len]);
        }
        while let Some(worker) = &mut self.servers[index].worker
            && let Some(work) = worker.begin_next(self.time.now)
        {
            let tag = self.checker.begins(index, (SERVER + index as u32, incarnation), &work.request)?;
            self.counts.executions += 1;
            let service = self.random.between(self.plan.servers[index].service);
            let now = self.time.now;
            let at = now + self.plan.slow_service(now).or(self.plan.slow_way_service(now)).unwrap_or(service);
            self.line(CloneNode::Server(index), || format!("begins call {}, execution {}", tag.call, tag.execution));
            self.start_execution(PlacedExecution::new(index, incarnation, work.id, tag), at);
        }
        let server = &mut self.servers[index];
        let next = server.worker.as_ref().and_then(CloneWorker::deadline);
        self.time.wake_at(next, &mut server.wake, CloneEvent::Wake(CloneNode::Server(index)));
        Ok(())
    }

    /// Replaces the reported server state, if the plan has another one.
    fn forge_server_state(&self, index: usize, bytes: &mut [u8]) {
        if let Some(state) = self.plan.servers[index].reported_state.filter(|_| !self.plan.is_way_slow(self.time.now))
            && let Ok(mut frame) = CloneFrame::new_checked(bytes)
        {
            frame.head_mut().set_state(state);
        }
    }
}
