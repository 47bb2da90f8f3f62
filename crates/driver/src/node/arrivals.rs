//! Events of a node's transport: messages that arrive or do not arrive, for the state machines and the node itself.

use std::net::SocketAddr;
use std::sync::Weak;

use bytes::Bytes;
use pathcall_endpoint::delegate::{MessageOutbox, PeerNode, is_for_caller};
use pathcall_endpoint::messages::Event;
use pathcall_wire::Instant;
use pathcall_wire::delegate::{DelegateKind, DelegateMessage, LoadReport, NodeId, ShardPorts, parse};

use super::ServerEvent;
use super::state::State;

impl State {
    /// Handles an event of the message transport.
    pub(super) fn handle_event(&mut self, now: Instant, event: Event) {
        match event {
            Event::Arrived { node, from, message } => {
                let kind = DelegateKind::of(&message);
                match kind {
                    Some(DelegateKind::Load) => return self.handle_load(from, &message),
                    Some(DelegateKind::Shards) => return self.handle_shards(from, &message),
                    _ => {}
                }
                match self.other_shard_of(&message) {
                    Some(shard) => {
                        self.handed_over[shard].push(Event::Arrived { node, from, message });
                        self.name_shards(now, from);
                    }
                    None => self.handle_message(now, PeerNode { node: NodeId::new(node), address: from }, &message),
                }
                if kind == Some(DelegateKind::Request) {
                    self.report_load(now, from);
                }
            }
            Event::Undelivered { to, head } => {
                let to = self.peer_shards.node(to);
                self.peer_shards.forget(to);
                if DelegateKind::of(&head) == Some(DelegateKind::Request) {
                    self.tell_observers(ServerEvent::Unreachable(to));
                }
                let (caller, worker, mut out) = self.split(now);
                caller.undelivered(now, to, &head, &mut out);
                worker.undelivered(now, to, &head, &mut out);
            }
            Event::Progress { peer, arriving } => {
                self.caller.restart_timeouts(now, peer);
                let node = self.peer_shards.node(peer);
                if node != peer {
                    self.caller.restart_timeouts(now, node);
                }
                let Some(head) = &arriving else { return };
                match self.other_shard_of(head) {
                    Some(shard) => self.handed_over[shard].push(Event::Progress { peer, arriving }),
                    None => self.worker.arriving(now, head),
                }
            }
        }
    }

    /// Handles an event that another shard has received for this one.
    pub(super) fn handle_handed_over(&mut self, now: Instant, event: Event) {
        self.taken_over += 1;
        match event {
            Event::Arrived { node, from, message } => {
                self.handle_message(now, PeerNode { node: NodeId::new(node), address: from }, &message);
            }
            Event::Progress { arriving, .. } => arriving.iter().for_each(|head| self.worker.arriving(now, head)),
            // A shard sends its messages itself.
            Event::Undelivered { .. } => {}
        }
    }

    fn handle_message(&mut self, now: Instant, from: PeerNode, message: &Bytes) {
        let (caller, worker, mut out) = self.split(now);
        match is_for_caller(message) {
            true => caller.handle(now, from, message, &mut out),
            false => worker.handle(now, from, message, &mut out),
        }
    }

    /// Reports the load to a node that has sent a request, if it does not know the load.
    fn report_load(&mut self, now: Instant, to: SocketAddr) {
        self.record_load();
        let load = self.group.load() + self.handed_over.iter().map(Vec::len).sum::<usize>();
        if let Some(load) = self.load_reports.due(now, to, load) {
            self.split(now).2.send(to, &LoadReport { load }.encode(), &Bytes::new());
        }
    }

    /// Handles a load report of a server.
    fn handle_load(&mut self, from: SocketAddr, message: &[u8]) {
        if let Ok((DelegateMessage::Load(LoadReport { load }), _)) = parse(message) {
            self.tell_observers(ServerEvent::Load(self.peer_shards.node(from), load));
        }
    }

    /// Names the shards of this node to one that did not know them.
    fn name_shards(&mut self, now: Instant, to: SocketAddr) {
        if self.index == 0
            && let Some(ports) = self.group.ports.get().cloned()
            && self.shard_notices.due(now, to)
        {
            self.split(now).2.send(to, &ShardPorts::encode_head(), &ports);
        }
    }

    /// Handles the names of a server's shards.
    fn handle_shards(&mut self, from: SocketAddr, message: &[u8]) {
        if let Ok((DelegateMessage::Shards(ports), _)) = parse(message) {
            self.peer_shards.record(from, ports);
        }
    }

    fn tell_observers(&self, event: ServerEvent) {
        self.observers.iter().filter_map(Weak::upgrade).for_each(|observer| observer.on_server_event(event));
    }
}
