//! Sums of calls for the server's handler, collected from the sums of their chunks.
//!
//! ```text
//! SumEvent::Reached, chunk by chunk ─► SumCollector of the call ─► HandledSum ─► handler ─► results, chunk by chunk
//! ```
//!
//! A call with more chunks than the application has rows cannot wait for the handler's results: its later chunks need the
//! rows of its earlier ones. So each of its chunks gets its own sum as the result, and the handler's reply travels
//! by gRPC.

use std::collections::BTreeMap;

use pathcall_endpoint::map::server::{MapServer, ReachedPosition, ReachedSum, SumEvent};
use pathcall_endpoint::map::{CallError, FrameSink, Lanes};
use pathcall_wire::Instant;
use tokio::sync::oneshot;

/// Sum of a whole call, for the server's handler.
#[derive(Debug)]
pub struct HandledSum {
    /// Sums of all lanes.
    pub sums: Lanes,
    /// Positions of the chunks, with their numbers of lanes; empty if the chunks have results already.
    pub(super) chunks: Vec<(ReachedPosition, usize)>,
}

/// Sums that were reached, and the calls that wait for some.
#[derive(Default)]
pub(super) struct SumCollectors {
    /// Sums of calls that nobody has asked for yet, by chunk.
    early: BTreeMap<u64, ReachedSum>,
    calls: Vec<SumCollector>,
}

/// Call that waits for the sums of its chunks.
struct SumCollector {
    first: u64,
    chunks: Vec<Option<ReachedSum>>,
    /// Number of chunks without a sum.
    left: usize,
    /// Whether the chunks get their sums as results.
    streams: bool,
    reply: oneshot::Sender<Result<HandledSum, CallError>>,
}

impl HandledSum {
    /// Whether the workers' chunks wait for the handler's result.
    #[must_use]
    pub fn awaits_result(&self) -> bool {
        !self.chunks.is_empty()
    }

    /// Gives all chunks their part of the result, or their sums if `result` is `None`.
    pub(super) fn answer(
        &self,
        now: Instant,
        result: Option<&Lanes>,
        server: &mut MapServer,
        out: &mut impl FrameSink,
    ) {
        let mut values = result.unwrap_or(&self.sums).iter();
        for (position, lanes) in &self.chunks {
            let part: Lanes = values.by_ref().take(*lanes).collect();
            server.answer_sum(now, *position, &part, out);
        }
    }
}

impl SumCollectors {
    /// Collects the sums of `chunks` chunks from `first` on.
    pub(super) fn collect(&mut self, first: u64, chunks: usize, reply: oneshot::Sender<Result<HandledSum, CallError>>) {
        let empty = (0..chunks).map(|_| None).collect();
        let mut call = SumCollector { first, chunks: empty, left: chunks, streams: false, reply };
        let later = self.early.split_off(&(first + chunks as u64));
        self.early.split_off(&first).into_values().for_each(|sum| call.take(sum));
        self.early.extend(later);
        self.calls.push(call);
    }

    /// Takes the reached sums of the server, and passes those of whole calls on.
    pub(super) fn exchange(&mut self, now: Instant, server: &mut MapServer, out: &mut impl FrameSink) {
        while let Some(event) = server.next_sum_event() {
            match event {
                SumEvent::Reached(sum) => match self.calls.iter_mut().find(|call| call.has(sum.position.chunk)) {
                    Some(call) => call.take(sum),
                    None => drop(self.early.insert(sum.position.chunk, sum)),
                },
                SumEvent::Failed => {
                    self.early.clear();
                    for call in self.calls.drain(..) {
                        let _ = call.reply.send(Err(CallError::SumAbandoned));
                    }
                }
            }
        }
        let most = server.chunks_at_once() as usize;
        self.calls.retain(|call| !call.reply.is_closed());
        for call in &mut self.calls {
            call.stream(now, most, server, out);
        }
        for call in self.calls.extract_if(.., |call| call.left == 0) {
            call.finish();
        }
    }

    /// Drops all calls: the owner has ended.
    pub(super) fn clear(&mut self) {
        (self.early, self.calls) = Default::default();
    }
}

impl SumCollector {
    fn has(&self, chunk: u64) -> bool {
        (self.first..self.first + self.chunks.len() as u64).contains(&chunk)
    }

    fn take(&mut self, sum: ReachedSum) {
        let index = (sum.position.chunk - self.first) as usize;
        if self.chunks[index].replace(sum).is_none() {
            self.left -= 1;
        }
    }

    /// Gives the chunks so far their sums as results, if the call has too many chunks to wait for all of them.
    fn stream(&mut self, now: Instant, most: usize, server: &mut MapServer, out: &mut impl FrameSink) {
        self.streams |= self.chunks.len() > most;
        if self.streams {
            for sum in self.chunks.iter().flatten() {
                server.answer_sum(now, sum.position, &sum.sums, out);
            }
        }
    }

    fn finish(self) {
        let mut sums = Lanes::default();
        let mut chunks = Vec::new();
        for sum in self.chunks.into_iter().flatten() {
            if !self.streams {
                chunks.push((sum.position, sum.sums.len()));
            }
            sum.sums.iter().for_each(|value| sums.push(value));
        }
        let _ = self.reply.send(Ok(HandledSum { sums, chunks }));
    }
}
