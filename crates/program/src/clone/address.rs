//! Addresses: which endpoint a server of the pool is (AddrT). After the queues were compared (NetClone §3.7).

use pathcall_wire::CloneFrame;

use super::Call;
use super::pools::{Endpoints, Entry};
use crate::{Action, Endpoint, Reason};

/// Addresses a frame to a server.
pub(super) fn to_server(frame: &mut CloneFrame<&mut [u8]>, entry: &Entry, endpoints: &Endpoints, sid: u16) -> Action {
    let to = entry.server(sid).and_then(|server| of_pool(endpoints, server, entry.pool.gaid));
    let Some(to) = to else { return Action::Drop(Reason::UnknownEndpoint) };
    let mut base = frame.base_mut();
    base.set_dst(to.endpoint);
    base.set_dst_incarnation(to.incarnation);
    Action::Forward(to.endpoint)
}

/// A request for the very server that it is addressed to.
pub(super) fn as_addressed(call: &Call<'_>, entry: &Entry, endpoints: &Endpoints) -> Action {
    let is_server = entry.pool.servers.contains(&call.base().dst());
    if is_server { onward(call, endpoints) } else { Action::Drop(Reason::UnknownEndpoint) }
}

/// To the endpoint that it is addressed to, if that is one of the pool's.
pub(super) fn onward(call: &Call<'_>, endpoints: &Endpoints) -> Action {
    match of_pool(endpoints, call.base().dst(), call.base().gaid()) {
        Some(to) => Action::Forward(to.endpoint),
        None => Action::Drop(Reason::UnknownEndpoint),
    }
}

fn of_pool(endpoints: &Endpoints, id: u32, gaid: u32) -> Option<&Endpoint> {
    endpoints.get(&id).filter(|endpoint| endpoint.gaid == gaid)
}
