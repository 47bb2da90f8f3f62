//! Streaming calls of a clone run: the real [`StreamHedges`], servers that send messages, die, fail and break connections.
//!
//! ```text
//! call ─▶ next_step ─▶ request ─▶ server: messages ─▶ the first one's stream is the call's
//!                         └─────▶ another server   ─▶ reset
//! ```
//!
//! A stream is a connection: what one side sends arrives in order, or the connection breaks.

mod checker;
mod plan;

use pathcall_endpoint::clone::{Pushback, StreamCallEnd, StreamCallId, StreamHedges, StreamOptions, StreamStep};
use pathcall_wire::Instant;

pub use checker::StreamViolation;
use checker::{AskedServers, StreamChecker};
pub(super) use plan::with_streams;
pub use plan::{StreamCallPlan, StreamPlan};

use super::plan::pushback;
use super::world::{CloneEvent, CloneWorld, SERVER};
use crate::random::Random;

/// Times that a call is made again after no server was reached, and the pause before.
const RETRIES_MAX: u32 = 3;
const RETRY_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);
/// Steps of a call at one time, at most.
const STEPS_MAX: u32 = 1_000;

/// Event of a streaming call, with its index.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StreamEvent {
    Start,
    /// Something is due.
    Step,
    /// The caller drops the call.
    Drop,
    /// The call is made again after no server was reached.
    Retry,
    /// A request, or its reset, arrives at the server.
    Request(u32),
    Reset(u32),
    /// The server sends the next message of a request.
    Produce(u32, u32),
    /// An answer to a request arrives.
    Answer(u32, StreamAnswer),
}

/// Answer of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StreamAnswer {
    Message(u32),
    End,
    Failed(Option<Pushback>),
    Broken,
}

/// Streaming calls of a run.
pub(super) struct StreamWorld<'a> {
    plan: &'a StreamPlan,
    random: Random,
    hedges: StreamHedges,
    checker: StreamChecker,
    calls: Vec<StreamCall>,
}

#[derive(Debug, Default)]
struct StreamCall {
    id: Option<StreamCallId>,
    asked: AskedServers,
    /// Servers that have not been asked.
    servers: Vec<usize>,
    requests: Vec<StreamRequest>,
    retries: u32,
    /// The next retry begins later; until then, the call takes no step.
    retry_is_due: bool,
    failed: bool,
    /// Request whose stream is the call's, and the time of its first message.
    winner: Option<(u32, Instant)>,
    next_message: u32,
    is_ended: bool,
}

#[derive(Debug)]
struct StreamRequest {
    server: usize,
    incarnation: u32,
    /// Whether the caller waits for an answer or for messages.
    is_open: bool,
    /// Whether the handler runs.
    is_running: bool,
    /// Arrival of the last thing sent in each direction.
    at_server: Instant,
    at_caller: Instant,
}

impl<'a> StreamWorld<'a> {
    pub(super) fn new(plan: &'a StreamPlan, seed: u64) -> Self {
        Self {
            plan,
            random: Random::new(seed ^ 0x7365_7276_6572_7321),
            hedges: StreamHedges::new(Instant(0), plan.budget),
            checker: StreamChecker::default(),
            calls: plan.calls.iter().map(|_| StreamCall::default()).collect(),
        }
    }

    /// Starts of the calls.
    pub(super) fn starts(&self) -> impl Iterator<Item = (Instant, CloneEvent)> {
        self.plan.calls.iter().enumerate().map(|(call, plan)| (plan.at, CloneEvent::Stream(call, StreamEvent::Start)))
    }

    pub(super) fn check_end(&self) -> Result<(), StreamViolation> {
        match self.calls.iter().position(|call| !call.is_ended) {
            Some(call) => Err(StreamViolation::Hangs(call)),
            None if !self.hedges.is_empty() => Err(StreamViolation::Left),
            None => Ok(()),
        }
    }
}

impl CloneWorld<'_> {
    pub(super) fn stream_event(&mut self, call: usize, event: StreamEvent) -> Result<(), StreamViolation> {
        let Some(mut streams) = self.streams.take() else { return Ok(()) };
        let done = streams.handle(self, call, event);
        self.streams = Some(streams);
        done
    }

    /// Breaks the connections of a server that has died.
    pub(super) fn break_streams(&mut self, server: usize) {
        let Some(mut streams) = self.streams.take() else { return };
        for call in 0..streams.calls.len() {
            for request in 0..streams.calls[call].requests.len() {
                let known = &mut streams.calls[call].requests[request];
                if known.server == server && std::mem::take(&mut known.is_running) {
                    streams.answer(self, call, request as u32, StreamAnswer::Broken);
                }
            }
        }
        self.streams = Some(streams);
    }
}

impl StreamWorld<'_> {
    fn handle(&mut self, world: &mut CloneWorld<'_>, call: usize, event: StreamEvent) -> Result<(), StreamViolation> {
        let now = world.time.now;
        world.time.line(|| format!("{:<10} call {call} {event:?}", "Stream"));
        match event {
            StreamEvent::Start => self.start(world, call),
            StreamEvent::Step => self.step(world, call),
            StreamEvent::Retry if self.calls[call].is_ended => Ok(()),
            StreamEvent::Retry => {
                let servers = self.order(world);
                if let Some(id) = self.calls[call].id {
                    self.hedges.retry(id, servers.len());
                }
                self.calls[call].servers = servers;
                self.calls[call].retry_is_due = false;
                self.step(world, call)
            }
            StreamEvent::Drop => {
                let known = &mut self.calls[call];
                if !std::mem::replace(&mut known.is_ended, true) {
                    if let Some(id) = known.id {
                        self.hedges.end_call(now, id, StreamCallEnd::Dropped);
                    }
                    self.reset_all(world, call, usize::MAX);
                }
                Ok(())
            }
            StreamEvent::Request(request) => {
                self.begin(world, call, request);
                Ok(())
            }
            StreamEvent::Reset(request) => {
                self.calls[call].requests[request as usize].is_running = false;
                Ok(())
            }
            StreamEvent::Produce(request, message) => self.produce(world, call, request, message),
            StreamEvent::Answer(request, answer) => self.receive(world, call, request, answer),
        }
    }

    fn start(&mut self, world: &mut CloneWorld<'_>, call: usize) -> Result<(), StreamViolation> {
        let (now, plan) = (world.time.now, &self.plan.calls[call]);
        let servers = self.order(world);
        self.checker.record_call();
        let options =
            StreamOptions { hedge: Some(plan.hedge), cost: plan.cost, servers: servers.len(), deadline: plan.dropped };
        // There are far fewer calls than the hedges have room for.
        self.calls[call].id = self.hedges.start_call(now, options).ok();
        self.calls[call].servers = servers;
        if let Some(dropped) = plan.dropped {
            world.time.after(dropped, CloneEvent::Stream(call, StreamEvent::Drop));
        }
        self.step(world, call)
    }

    /// Servers of the pool in a random order.
    fn order(&mut self, world: &CloneWorld<'_>) -> Vec<usize> {
        let mut servers: Vec<usize> = world.pool.servers.iter().map(|server| (server - SERVER) as usize).collect();
        for at in (1..servers.len()).rev() {
            servers.swap(at, self.random.index(at + 1));
        }
        servers
    }

    /// Takes the steps of a call that are due.
    fn step(&mut self, world: &mut CloneWorld<'_>, call: usize) -> Result<(), StreamViolation> {
        let now = world.time.now;
        for _ in 0..STEPS_MAX {
            let known = &mut self.calls[call];
            let is_waiting = !known.is_ended && known.winner.is_none() && !known.retry_is_due;
            let Some(id) = known.id.filter(|_| is_waiting) else { return Ok(()) };
            match self.hedges.next_step(now, id) {
                StreamStep::Ask => self.ask(world, call)?,
                StreamStep::Wait(None) => return Ok(()),
                StreamStep::Wait(Some(until)) if until > now => {
                    world.time.push(until, CloneEvent::Stream(call, StreamEvent::Step));
                    return Ok(());
                }
                StreamStep::Wait(Some(_)) => {}
                StreamStep::End if known.failed => {
                    known.is_ended = true;
                    self.hedges.end_call(now, id, StreamCallEnd::Failed);
                    let known = &self.calls[call];
                    return self.checker.check_failure(self.plan, call, &known.asked, known.servers.len());
                }
                StreamStep::End => {
                    known.retries += 1;
                    if known.retries > RETRIES_MAX {
                        known.is_ended = true;
                        self.hedges.end_call(now, id, StreamCallEnd::Unreached);
                    } else {
                        known.retry_is_due = true;
                        world.time.after(RETRY_PAUSE * known.retries, CloneEvent::Stream(call, StreamEvent::Retry));
                    }
                    return Ok(());
                }
            }
        }
        Err(StreamViolation::Hangs(call))
    }

    /// Sends the call to the next server.
    fn ask(&mut self, world: &mut CloneWorld<'_>, call: usize) -> Result<(), StreamViolation> {
        let now = world.time.now;
        let known = &mut self.calls[call];
        let server = known.servers.pop().ok_or(StreamViolation::Servers(call))?;
        self.checker.record_asked(self.plan, now, call, &mut known.asked)?;
        let at_server = now + self.random.between(self.plan.delay);
        let request = known.requests.len() as u32;
        known.requests.push(StreamRequest {
            server,
            incarnation: 0,
            is_open: true,
            is_running: false,
            at_server,
            at_caller: now,
        });
        world.time.push(at_server, CloneEvent::Stream(call, StreamEvent::Request(request)));
        Ok(())
    }

    /// Begins a request at its server.
    fn begin(&mut self, world: &mut CloneWorld<'_>, call: usize, request: u32) {
        let known = &mut self.calls[call].requests[request as usize];
        let server = &world.servers[known.server];
        if server.worker.is_none() {
            return self.answer(world, call, request, StreamAnswer::Broken);
        }
        (known.is_running, known.incarnation) = (true, server.incarnation);
        let first = self.random.between(self.plan.first);
        let first = self.plan.slow_first(world.time.now).unwrap_or(first);
        world.time.after(first, CloneEvent::Stream(call, StreamEvent::Produce(request, 0)));
    }

    /// Sends the next message of a request that runs.
    fn produce(
        &mut self,
        world: &mut CloneWorld<'_>,
        call: usize,
        request: u32,
        message: u32,
    ) -> Result<(), StreamViolation> {
        let now = world.time.now;
        let (known, delay) = (&mut self.calls[call], self.plan.delay.1);
        let running = &mut known.requests[request as usize];
        let server = &world.servers[running.server];
        if !running.is_running || server.worker.is_none() || server.incarnation != running.incarnation {
            return Ok(());
        }
        if known.winner.is_some_and(|(winner, since)| winner != request && now > since + delay * 2) {
            return Err(StreamViolation::LoserGoesOn { call, server: running.server });
        }
        let answer = match message {
            0 if self.random.happens(self.plan.breaks) => StreamAnswer::Broken,
            0 if self.random.happens(self.plan.fails) => StreamAnswer::Failed(pushback(call)),
            message if message < self.plan.calls[call].messages => StreamAnswer::Message(message),
            _ => StreamAnswer::End,
        };
        running.is_running = matches!(answer, StreamAnswer::Message(_));
        if running.is_running {
            world.time.after(self.plan.gap, CloneEvent::Stream(call, StreamEvent::Produce(request, message + 1)));
        }
        self.answer(world, call, request, answer);
        Ok(())
    }

    /// Sends an answer to the caller, after all others of its stream.
    fn answer(&mut self, world: &mut CloneWorld<'_>, call: usize, request: u32, answer: StreamAnswer) {
        let known = &mut self.calls[call].requests[request as usize];
        known.at_caller = known.at_caller.max(world.time.now + self.random.between(self.plan.delay));
        world.time.push(known.at_caller, CloneEvent::Stream(call, StreamEvent::Answer(request, answer)));
    }

    /// Handles an answer that arrives.
    fn receive(
        &mut self,
        world: &mut CloneWorld<'_>,
        call: usize,
        request: u32,
        answer: StreamAnswer,
    ) -> Result<(), StreamViolation> {
        let now = world.time.now;
        let known = &mut self.calls[call];
        let Some(id) = known.id.filter(|_| !known.is_ended && known.requests[request as usize].is_open) else {
            return Ok(());
        };
        match answer {
            StreamAnswer::Message(_) | StreamAnswer::End if known.winner.is_none() => {
                self.checker.check_hedged(self.plan, now, call, &known.asked, known.servers.len())?;
                let others = self.hedges.record_first_message(now, id, request);
                let known = &mut self.calls[call];
                known.winner = Some((request, now));
                known.requests[request as usize].is_open = false;
                self.reset_all(world, call, others as usize);
                self.calls[call].requests[request as usize].is_open = true;
                self.deliver(call, request, answer)
            }
            StreamAnswer::Message(_) | StreamAnswer::End => self.deliver(call, request, answer),
            // From the first message on, nothing is retried.
            StreamAnswer::Failed(_) | StreamAnswer::Broken if known.winner.is_some() => {
                known.is_ended = known.winner.is_some_and(|(winner, _)| winner == request);
                known.requests[request as usize].is_open = false;
                Ok(())
            }
            StreamAnswer::Failed(pushback) => {
                known.requests[request as usize].is_open = false;
                known.failed = true;
                known.asked.record_failure(now, pushback);
                self.hedges.record_failure(now, id, pushback);
                self.step(world, call)
            }
            StreamAnswer::Broken => {
                known.requests[request as usize].is_open = false;
                known.asked.record_unreached();
                self.hedges.record_unreached(id);
                self.step(world, call)
            }
        }
    }

    /// Hands a message of the call's stream to the application.
    fn deliver(&mut self, call: usize, request: u32, answer: StreamAnswer) -> Result<(), StreamViolation> {
        let known = &mut self.calls[call];
        let (expected, server) = (known.next_message, known.requests[request as usize].server);
        let is_winner = known.winner.is_some_and(|(winner, _)| winner == request);
        let got = match answer {
            StreamAnswer::Message(message) => message,
            _ => self.plan.calls[call].messages,
        };
        if !is_winner || got != expected {
            return Err(StreamViolation::Order { call, server, got, expected });
        }
        known.next_message += 1;
        known.is_ended = matches!(answer, StreamAnswer::End);
        Ok(())
    }

    /// Resets this number of streams that the caller waits for.
    fn reset_all(&mut self, world: &mut CloneWorld<'_>, call: usize, count: usize) {
        let requests = self.calls[call].requests.iter_mut().enumerate();
        for (request, known) in requests.filter(|(_, request)| request.is_open).take(count) {
            known.is_open = false;
            let at = known.at_server.max(world.time.now + self.random.between(self.plan.delay));
            world.time.push(at, CloneEvent::Stream(call, StreamEvent::Reset(request as u32)));
        }
    }
}
