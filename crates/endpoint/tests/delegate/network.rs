//! Network of nodes, each with a caller and a worker, with the messages in flight.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::{CallOutcome, CallerEvent, DelegateCaller, DelegateCallerConfig};
use pathcall_endpoint::delegate::worker::{DelegateWorker, DelegateWorkerConfig, DelegatedRequest};
use pathcall_endpoint::delegate::{ContextId, MessageOutbox, NodeId, PeerNode, is_for_caller};
use pathcall_wire::Instant;
use pathcall_wire::delegate::{DelegateMessage, parse};

pub const MS: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
pub struct Out(pub Vec<(SocketAddr, Bytes)>);

impl MessageOutbox for Out {
    fn send(&mut self, to: SocketAddr, head: &[u8], payload: &Bytes) {
        self.0.push((to, [head, payload].concat().into()));
    }
}

pub struct Node {
    pub caller: DelegateCaller,
    pub worker: DelegateWorker,
    pub peer: PeerNode,
}

/// Nodes of the network: node 0 is the caller.
pub struct Net {
    pub now: Instant,
    pub nodes: Vec<Node>,
    pub in_flight: VecDeque<(SocketAddr, PeerNode, Bytes)>,
    pub events: Vec<CallerEvent>,
    /// Number of delivered messages.
    pub delivered: Vec<Bytes>,
}

pub fn address(node: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node as u8], 7000))
}

pub fn node(index: usize, process: u64, change: impl FnOnce(&mut DelegateWorkerConfig)) -> Node {
    let peer = PeerNode { node: NodeId::new(index as u64 * 1000 + process), address: address(index) };
    let mut config = DelegateWorkerConfig::new(peer.node, peer.address);
    change(&mut config);
    Node {
        caller: DelegateCaller::new(DelegateCallerConfig::new(peer.node, peer.address)),
        worker: DelegateWorker::new(config),
        peer,
    }
}

impl Net {
    pub fn new(nodes: usize) -> Self {
        let nodes = (0..nodes).map(|index| node(index, 1, |_| ())).collect();
        let (in_flight, events, delivered) = Default::default();
        Self { now: Instant(1_000_000_000), nodes, in_flight, events, delivered }
    }

    /// Runs `work` on a node; its messages are in flight then.
    pub fn at<R>(&mut self, index: usize, work: impl FnOnce(&mut Node, Instant, &mut Out) -> R) -> R {
        let mut out = Out::default();
        let result = work(&mut self.nodes[index], self.now, &mut out);
        let from = self.nodes[index].peer;
        self.in_flight.extend(out.0.into_iter().map(|(to, message)| (to, from, message)));
        self.events.extend(std::iter::from_fn(|| self.nodes[index].caller.next_event()));
        result
    }

    /// Delivers one message in flight.
    pub fn deliver(&mut self) -> bool {
        let Some((to, from, message)) = self.in_flight.pop_front() else { return false };
        if let Some(index) = self.nodes.iter().position(|node| node.peer.address == to) {
            self.delivered.push(message.clone());
            self.at(index, |node, now, out| match is_for_caller(&message) {
                true => node.caller.handle(now, from, &message, out),
                false => node.worker.handle(now, from, &message, out),
            });
        }
        true
    }

    /// Delivers all messages and lets `handler` process all waiting requests, until none is left.
    pub fn deliver_all(&mut self, mut handler: impl FnMut(&mut Node, usize, DelegatedRequest, Instant, &mut Out)) {
        loop {
            while self.deliver() {}
            let mut any = false;
            for index in 0..self.nodes.len() {
                while let Some(work) = self.at(index, |node, now, _| node.worker.next(now)) {
                    any = true;
                    self.at(index, |node, now, out| handler(node, index, work, now, out));
                }
            }
            if !any && self.in_flight.is_empty() {
                return;
            }
        }
    }

    /// Delivers all messages; no request may be waiting.
    pub fn deliver_all_idle(&mut self) {
        self.deliver_all(|_, index, work, _, _| panic!("node {index} has work: {work:?}"));
    }

    /// Advances time, timer by timer, without handlers.
    pub fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.deliver_all_idle();
            let due = |node: &Node| node.worker.next_deadline().into_iter().chain(node.caller.next_deadline()).min();
            let next = self.nodes.iter().filter_map(due).min().filter(|at| *at <= end);
            self.now = next.unwrap_or(end).max(self.now);
            for index in 0..self.nodes.len() {
                self.at(index, |node, now, out| {
                    node.worker.poll(now, out);
                    node.caller.poll(now, out);
                });
            }
            if next.is_none() {
                return;
            }
        }
    }

    /// Drops the messages in flight that match.
    pub fn lose(&mut self, which: impl Fn(&DelegateMessage<'_>) -> bool) {
        self.in_flight.retain(|(_, _, message)| !which(&parse(message).expect("a message").0));
    }

    /// Items of a call's replies, in order.
    pub fn replies(&self, of: ContextId) -> Vec<Bytes> {
        let reply = |event: &CallerEvent| match event {
            CallerEvent::Reply { call, item, .. } if *call == of => Some(item.clone()),
            _ => None,
        };
        self.events.iter().filter_map(reply).collect()
    }

    /// Outcome of a call.
    pub fn outcome(&self, of: ContextId) -> Option<CallOutcome> {
        let ended = |event: &CallerEvent| match event {
            CallerEvent::Ended { call, outcome } if *call == of => Some(outcome.clone()),
            _ => None,
        };
        let mut ended = self.events.iter().filter_map(ended);
        let outcome = ended.next();
        assert_eq!(ended.next(), None, "a call ends once");
        outcome
    }

    /// Returns whether no node has state of a call.
    pub fn is_empty(&self) -> bool {
        self.nodes.iter().all(|node| node.caller.is_empty() && node.worker.is_empty())
    }
}
