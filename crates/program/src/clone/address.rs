//! Address stage: endpoint of a server of the pool (AddrT), after the comparison of queues (NetClone §3.7).

use pathcall_wire::CloneFrame;

use super::CallContext;
use super::pools::{Endpoints, PoolEntry};
use crate::{Endpoint, FrameAction, FrameDropReason};

/// Addresses a frame to a server.
pub(super) fn to_server(
    frame: &mut CloneFrame<&mut [u8]>,
    entry: &PoolEntry,
    endpoints: &Endpoints,
    sid: u16,
) -> FrameAction {
    let to = entry.server(sid).and_then(|server| of_pool(endpoints, server, entry.pool.gaid));
    let Some(to) = to else { return FrameAction::Drop(FrameDropReason::UnknownEndpoint) };
    let mut base = frame.base_mut();
    base.set_dst(to.endpoint);
    base.set_dst_incarnation(to.incarnation);
    FrameAction::Forward(to.endpoint)
}

/// Forwards a request to the server that it is addressed to.
pub(super) fn as_addressed(call: &CallContext<'_>, entry: &PoolEntry, endpoints: &Endpoints) -> FrameAction {
    let is_server = entry.pool.servers.contains(&call.base().dst());
    if is_server { onward(call, endpoints) } else { FrameAction::Drop(FrameDropReason::UnknownEndpoint) }
}

/// Forwards a frame to the addressed endpoint, if it belongs to the pool.
pub(super) fn onward(call: &CallContext<'_>, endpoints: &Endpoints) -> FrameAction {
    match of_pool(endpoints, call.base().dst(), call.base().gaid()) {
        Some(to) => FrameAction::Forward(to.endpoint),
        None => FrameAction::Drop(FrameDropReason::UnknownEndpoint),
    }
}

fn of_pool(endpoints: &Endpoints, id: u32, gaid: u32) -> Option<&Endpoint> {
    endpoints.get(&id).filter(|endpoint| endpoint.gaid == gaid)
}
