//! Shards of a host: several callers and workers, each with a node id and an address of its own.
//!
//! A message is handled by the worker that [`shard_of_message`] names, whichever address of the host it goes to.

use std::net::SocketAddr;

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::{
    CallOptions, CallerEvent, DelegateCaller, DelegateCallerConfig, SendRequestError,
};
use pathcall_endpoint::delegate::shards::{shard_of_call, shard_of_message};
use pathcall_endpoint::delegate::worker::record::RequestRecord;
use pathcall_endpoint::delegate::worker::{
    DelegateWorker, DelegateWorkerConfig, DelegatedRequest, ExecutionError, WorkerEvent,
};
use pathcall_endpoint::delegate::{ContextId, PeerNode, Status};
use pathcall_wire::Instant;
use pathcall_wire::delegate::call_of;

use super::host::OutgoingMessages;

/// Callers of a host, one for each shard.
#[derive(Debug)]
pub(super) struct ShardedCaller {
    peers: Vec<PeerNode>,
    shards: Vec<DelegateCaller>,
    /// Number of calls, which take the shards in turn.
    calls: usize,
}

/// Workers of a host, one for each shard.
#[derive(Debug)]
pub(super) struct ShardedWorker {
    peers: Vec<PeerNode>,
    shards: Vec<DelegateWorker>,
    /// Shard whose turn it is to begin a request.
    turn: usize,
}

impl ShardedCaller {
    pub(super) fn new(peers: &[PeerNode]) -> Self {
        let shard = |(index, peer): (usize, &PeerNode)| {
            let config = DelegateCallerConfig::new(peer.node, peer.address);
            DelegateCaller::new(DelegateCallerConfig { shard: (index, peers.len()), ..config })
        };
        Self { peers: peers.to_vec(), shards: peers.iter().enumerate().map(shard).collect(), calls: 0 }
    }

    /// Caller of a call, from which messages leave to `out`. Another host's call belongs to the first one.
    fn of(&mut self, call: ContextId, out: &mut OutgoingMessages) -> &mut DelegateCaller {
        let shard = self.peers.iter().position(|peer| peer.node == call.node()).unwrap_or(0);
        out.shard = shard;
        &mut self.shards[shard]
    }

    pub(super) fn open(&mut self, now: Instant, options: CallOptions) -> Result<ContextId, SendRequestError> {
        let shard = self.calls % self.shards.len();
        self.calls += 1;
        self.shards[shard].open(now, options)
    }

    pub(super) fn send(
        &mut self,
        now: Instant,
        call: ContextId,
        to: SocketAddr,
        request: Bytes,
        out: &mut OutgoingMessages,
    ) -> Result<(), SendRequestError> {
        self.of(call, out).send(now, call, to, request, out)
    }

    pub(super) fn record_consumed(
        &mut self,
        call: ContextId,
        from: Option<ContextId>,
        bytes: usize,
        out: &mut OutgoingMessages,
    ) {
        self.of(call, out).record_consumed(call, from, bytes, out);
    }

    pub(super) fn abort(&mut self, now: Instant, call: ContextId, out: &mut OutgoingMessages) {
        self.of(call, out).abort(now, call, out);
    }

    pub(super) fn retry(
        &mut self,
        now: Instant,
        call: ContextId,
        out: &mut OutgoingMessages,
    ) -> Result<(), SendRequestError> {
        self.of(call, out).retry(now, call, out)
    }

    pub(super) fn handle(&mut self, now: Instant, from: PeerNode, message: &Bytes, out: &mut OutgoingMessages) {
        self.of(call_of(message).unwrap_or_default(), out).handle(now, from, message, out);
    }

    pub(super) fn undelivered(
        &mut self,
        now: Instant,
        (shard, to): (usize, SocketAddr),
        message: &[u8],
        out: &mut OutgoingMessages,
    ) {
        out.shard = shard;
        self.shards[shard].undelivered(now, to, message, out);
    }

    pub(super) fn poll(&mut self, now: Instant, out: &mut OutgoingMessages) {
        for (index, shard) in self.shards.iter_mut().enumerate() {
            out.shard = index;
            shard.poll(now, out);
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.shards.iter().filter_map(DelegateCaller::next_deadline).min()
    }

    pub(super) fn next_event(&mut self) -> Option<CallerEvent> {
        self.shards.iter_mut().find_map(DelegateCaller::next_event)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shards.iter().all(DelegateCaller::is_empty)
    }
}

impl ShardedWorker {
    /// Creates the workers; all settings except for the ids and addresses are those of `config`.
    pub(super) fn new(peers: &[PeerNode], config: DelegateWorkerConfig) -> Self {
        let shard = |peer: &PeerNode| {
            DelegateWorker::new(DelegateWorkerConfig { node: peer.node, address: peer.address, ..config })
        };
        Self { peers: peers.to_vec(), shards: peers.iter().map(shard).collect(), turn: 0 }
    }

    /// Worker that runs an execution, from which messages leave to `out`.
    fn of(&mut self, execution: ContextId, out: &mut OutgoingMessages) -> &mut DelegateWorker {
        out.shard = self.shard(execution);
        &mut self.shards[out.shard]
    }

    fn shard(&self, execution: ContextId) -> usize {
        self.peers.iter().position(|peer| peer.node == execution.node()).expect("an execution of this host")
    }

    pub(super) fn handle(&mut self, now: Instant, from: PeerNode, message: &Bytes, out: &mut OutgoingMessages) {
        out.shard = shard_of_message(message, self.shards.len()).unwrap_or(0);
        self.shards[out.shard].handle(now, from, message, out);
    }

    pub(super) fn arriving(&mut self, now: Instant, head: &[u8]) {
        let shard = shard_of_message(head, self.shards.len()).unwrap_or(0);
        self.shards[shard].arriving(now, head);
    }

    pub(super) fn undelivered(
        &mut self,
        now: Instant,
        (shard, to): (usize, SocketAddr),
        message: &[u8],
        out: &mut OutgoingMessages,
    ) {
        out.shard = shard;
        self.shards[shard].undelivered(now, to, message, out);
    }

    pub(super) fn waiting_requests(&self) -> usize {
        self.shards.iter().map(DelegateWorker::waiting_requests).sum()
    }

    /// Begins the next waiting request of any shard.
    pub(super) fn next(&mut self, now: Instant) -> Option<DelegatedRequest> {
        let (first, shards) = (self.turn, self.shards.len());
        self.turn = (first + 1) % shards;
        (0..shards).find_map(|turn| self.shards[(first + turn) % shards].next(now))
    }

    pub(super) fn reply(
        &mut self,
        now: Instant,
        execution: ContextId,
        item: Bytes,
        out: &mut OutgoingMessages,
    ) -> Result<(), ExecutionError> {
        self.of(execution, out).reply(now, execution, item, out)
    }

    pub(super) fn delegate(
        &mut self,
        now: Instant,
        execution: ContextId,
        to: SocketAddr,
        request: Bytes,
        out: &mut OutgoingMessages,
    ) -> Result<(), ExecutionError> {
        self.of(execution, out).delegate(now, execution, to, request, out)
    }

    pub(super) fn finish(
        &mut self,
        now: Instant,
        execution: ContextId,
        out: &mut OutgoingMessages,
    ) -> Result<Option<RequestRecord>, ExecutionError> {
        self.of(execution, out).finish(now, execution, out)
    }

    pub(super) fn release(&mut self, now: Instant, execution: ContextId, out: &mut OutgoingMessages) {
        self.of(execution, out).release(now, execution, out);
    }

    pub(super) fn fail(&mut self, now: Instant, execution: ContextId, status: &Status, out: &mut OutgoingMessages) {
        self.of(execution, out).fail(now, execution, status, out);
    }

    pub(super) fn set_stalled(&mut self, execution: ContextId, stalled: bool) {
        let shard = self.shard(execution);
        self.shards[shard].set_stalled(execution, stalled);
    }

    pub(super) fn set_label(&mut self, execution: ContextId, label: &str) {
        let shard = self.shard(execution);
        self.shards[shard].set_label(execution, label);
    }

    pub(super) fn is_working(&self, execution: ContextId) -> bool {
        self.shards[self.shard(execution)].is_working(execution)
    }

    pub(super) fn restore(&mut self, now: Instant, record: RequestRecord) {
        let shard = shard_of_call(record.call, self.shards.len());
        self.shards[shard].restore(now, record);
    }

    pub(super) fn restore_ended(&mut self, last: ContextId) {
        self.shards.iter_mut().for_each(|shard| shard.restore_ended(last));
    }

    pub(super) fn poll(&mut self, now: Instant, out: &mut OutgoingMessages) {
        for (index, shard) in self.shards.iter_mut().enumerate() {
            out.shard = index;
            shard.poll(now, out);
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.shards.iter().filter_map(DelegateWorker::next_deadline).min()
    }

    pub(super) fn next_event(&mut self) -> Option<WorkerEvent> {
        self.shards.iter_mut().find_map(DelegateWorker::next_event)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shards.iter().all(DelegateWorker::is_empty)
    }
}
