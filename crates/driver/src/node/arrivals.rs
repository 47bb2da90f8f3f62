//! Events of a node's transport: messages that arrive or do not arrive, for the state machines and the node itself.

use std::net::SocketAddr;
use std::sync::Weak;

use bytes::Bytes;
use pathcall_endpoint::delegate::{MessageOutbox, PeerNode, is_for_caller};
use pathcall_endpoint::messages::Event;
use pathcall_wire::Instant;
use pathcall_wire::delegate::{DelegateKind, DelegateMessage, LoadReport, NodeId, parse};

use super::ServerEvent;
use super::state::State;

impl State {
    /// Handles an event of the message transport.
    pub(super) fn handle_event(&mut self, now: Instant, event: Event) {
        match event {
            Event::Arrived { node, from, message } => {
                let kind = DelegateKind::of(&message);
                if kind == Some(DelegateKind::Load) {
                    return self.handle_load(from, &message);
                }
                let (caller, worker, mut out) = self.split(now);
                let peer = PeerNode { node: NodeId::new(node), address: from };
                match is_for_caller(&message) {
                    true => caller.handle(now, peer, &message, &mut out),
                    false => worker.handle(now, peer, &message, &mut out),
                }
                if kind == Some(DelegateKind::Request) {
                    self.report_load(now, from);
                }
            }
            Event::Undelivered { to, head } => {
                if DelegateKind::of(&head) == Some(DelegateKind::Request) {
                    self.tell_observers(ServerEvent::Unreachable(to));
                }
                let (caller, worker, mut out) = self.split(now);
                caller.undelivered(now, to, &head, &mut out);
                worker.undelivered(now, to, &head, &mut out);
            }
            Event::Progress { peer, arriving } => {
                let (caller, worker, _) = self.split(now);
                caller.restart_timeouts(now, peer);
                arriving.iter().for_each(|head| worker.arriving(now, head));
            }
        }
    }

    /// Reports the load to a node that has sent a request, if it does not know the load.
    fn report_load(&mut self, now: Instant, to: SocketAddr) {
        let load = self.requests.len() + self.worker.waiting_requests();
        if let Some(load) = self.load_reports.due(now, to, load) {
            self.split(now).2.send(to, &LoadReport { load }.encode(), &Bytes::new());
        }
    }

    /// Handles a load report of a server.
    fn handle_load(&mut self, from: SocketAddr, message: &[u8]) {
        if let Ok((DelegateMessage::Load(LoadReport { load }), _)) = parse(message) {
            self.tell_observers(ServerEvent::Load(from, load));
        }
    }

    fn tell_observers(&self, event: ServerEvent) {
        self.observers.iter().filter_map(Weak::upgrade).for_each(|observer| observer.on_server_event(event));
    }
}
