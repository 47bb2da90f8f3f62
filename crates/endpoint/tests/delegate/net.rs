//! Nodes, each with a caller and a worker, and what is on its way between them.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::{Caller, CallerConfig, CallerEvent, Outcome};
use pathcall_endpoint::delegate::worker::{Work, Worker, WorkerConfig};
use pathcall_endpoint::delegate::{Context, NodeId, Outbox, Peer, for_caller};
use pathcall_wire::Instant;
use pathcall_wire::delegate::{Message, parse};

pub const MS: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
pub struct Out(pub Vec<(SocketAddr, Bytes)>);

impl Outbox for Out {
    fn send(&mut self, to: SocketAddr, head: &[u8], payload: &Bytes) {
        self.0.push((to, [head, payload].concat().into()));
    }
}

pub struct Node {
    pub caller: Caller,
    pub worker: Worker,
    pub peer: Peer,
}

/// The nodes: number 0 calls.
pub struct Net {
    pub now: Instant,
    pub nodes: Vec<Node>,
    pub on_way: VecDeque<(SocketAddr, Peer, Bytes)>,
    pub events: Vec<CallerEvent>,
    /// Messages delivered.
    pub delivered: Vec<Bytes>,
}

pub fn address(node: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, node as u8], 7000))
}

pub fn node(index: usize, process: u64, change: impl FnOnce(&mut WorkerConfig)) -> Node {
    let peer = Peer { node: NodeId::new(index as u64 * 1000 + process), address: address(index) };
    let mut config = WorkerConfig::new(peer.node, peer.address);
    change(&mut config);
    Node { caller: Caller::new(CallerConfig::new(peer.node, peer.address)), worker: Worker::new(config), peer }
}

impl Net {
    pub fn new(nodes: usize) -> Self {
        let nodes = (0..nodes).map(|index| node(index, 1, |_| ())).collect();
        let (on_way, events, delivered) = Default::default();
        Self { now: Instant(1_000_000_000), nodes, on_way, events, delivered }
    }

    /// Has a node do something; what it says is on its way then.
    pub fn at<R>(&mut self, index: usize, work: impl FnOnce(&mut Node, Instant, &mut Out) -> R) -> R {
        let mut out = Out::default();
        let result = work(&mut self.nodes[index], self.now, &mut out);
        let from = self.nodes[index].peer;
        self.on_way.extend(out.0.into_iter().map(|(to, message)| (to, from, message)));
        self.events.extend(std::iter::from_fn(|| self.nodes[index].caller.next_event()));
        result
    }

    /// Delivers one message that is on its way.
    pub fn deliver(&mut self) -> bool {
        let Some((to, from, message)) = self.on_way.pop_front() else { return false };
        if let Some(index) = self.nodes.iter().position(|node| node.peer.address == to) {
            self.delivered.push(message.clone());
            self.at(index, |node, now, out| match for_caller(&message) {
                true => node.caller.handle(now, from, &message, out),
                false => node.worker.handle(now, from, &message, out),
            });
        }
        true
    }

    /// Delivers all there is and has `handler` work on all that waits, until nothing is left.
    pub fn settle(&mut self, mut handler: impl FnMut(&mut Node, usize, Work, Instant, &mut Out)) {
        loop {
            while self.deliver() {}
            let mut any = false;
            for index in 0..self.nodes.len() {
                while let Some(work) = self.at(index, |node, now, _| node.worker.next(now)) {
                    any = true;
                    self.at(index, |node, now, out| handler(node, index, work, now, out));
                }
            }
            if !any && self.on_way.is_empty() {
                return;
            }
        }
    }

    /// Delivers all there is: there is nothing to work on.
    pub fn rest(&mut self) {
        self.settle(|_, index, work, _, _| panic!("node {index} has work: {work:?}"));
    }

    /// Lets time pass, timer by timer, without anybody working.
    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.rest();
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

    /// Loses what is on its way and answers to this.
    pub fn lose(&mut self, which: impl Fn(&Message<'_>) -> bool) {
        self.on_way.retain(|(_, _, message)| !which(&parse(message).expect("a message").0));
    }

    /// The items of a call's replies, in order.
    pub fn replies(&self, of: Context) -> Vec<Bytes> {
        let reply = |event: &CallerEvent| match event {
            CallerEvent::Reply { call, item, .. } if *call == of => Some(item.clone()),
            _ => None,
        };
        self.events.iter().filter_map(reply).collect()
    }

    /// How a call ended.
    pub fn outcome(&self, of: Context) -> Option<Outcome> {
        let ended = |event: &CallerEvent| match event {
            CallerEvent::Ended { call, outcome } if *call == of => Some(outcome.clone()),
            _ => None,
        };
        let mut ended = self.events.iter().filter_map(ended);
        let outcome = ended.next();
        assert_eq!(ended.next(), None, "a call ends once");
        outcome
    }

    /// Whether nobody knows of any call.
    pub fn is_empty(&self) -> bool {
        self.nodes.iter().all(|node| node.caller.is_empty() && node.worker.is_empty())
    }
}
