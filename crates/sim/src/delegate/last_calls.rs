//! Calls at the end of a run, whose only purpose is to inform servers of the calls that have ended.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use pathcall_endpoint::delegate::caller::CallOptions;
use pathcall_endpoint::delegate::shards::shard_of_call;

use super::host::{OutgoingMessages, address};
use super::world::DelegateWorld;

/// Options of these calls.
const LAST_CALL: CallOptions =
    CallOptions::new().ping_period(Duration::from_millis(5)).timeout(Duration::from_millis(20)).credit(1);
/// Calls that a shard opens to find one for a shard of a server that was not informed.
const TRIES: usize = 64;

impl DelegateWorld<'_> {
    /// Makes a call from each shard of a host to the hosts that it has not informed; returns whether more may follow. A
    /// call informs one shard of each server.
    pub(super) fn last_calls(&mut self) -> bool {
        if !self.plan.calls.iter().any(|call| call.options.once) {
            return false;
        }
        let shards = |world: &Self, host: usize| world.plan.shards(host, world.hosts[host].incarnation);
        let mut more = false;
        for host in 0..self.hosts.len() {
            let (mut out, now) = (OutgoingMessages::default(), self.hosts[host].local(self.time.now));
            let tries = if self.plan.shards.is_empty() { 1 } else { TRIES * shards(self, host) };
            let mut callers = BTreeSet::new();
            for _ in 0..tries {
                let Ok(id) = self.hosts[host].caller.open(now, LAST_CALL) else { break };
                let to: Vec<_> = match callers.contains(&id.node()) {
                    // A call beside another one of the same shard says less of the calls before.
                    true => Vec::new(),
                    false => (0..self.plan.hosts.len())
                        .filter(|to| self.told_shards.insert((id.node(), *to, shard_of_call(id, shards(self, *to)))))
                        .collect(),
                };
                let caller = &mut self.hosts[host].caller;
                if to.is_empty() {
                    caller.abort(now, id, &mut out);
                    continue;
                }
                callers.insert(id.node());
                for to in to {
                    let _ = caller.send(now, id, address(to), Bytes::new(), &mut out);
                }
            }
            more |= !callers.is_empty() && !self.plan.shards.is_empty();
            self.route(host, out);
            self.arm(host);
        }
        more
    }
}
