//! Groups: ordered pairs of servers that a request may go to (NetClone §3.3), and the version of the table.

use pathcall_wire::clone::{groups, pair};
use pathcall_wire::{Mutant, mutant};

use super::{CallContext, InstalledPool};

/// Two servers by SID: the second gets the clone, or the request if its queue is shorter. In a pool of one both are the
/// same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) first: u16,
    pub(super) second: u16,
}

/// Pair of a request, and whether the caller drew it. A group of another version is mapped to some pair, as any is
/// valid. `None`: the pool has no servers.
#[inline]
pub(super) fn of_request(call: &CallContext<'_>, pool: &InstalledPool) -> Option<(Pair, bool)> {
    let (grp, servers) = (call.head().grp(), pool.servers.len());
    let drawn = pair(grp, servers).filter(|_| call.base().epoch() == pool.version);
    let (first, second) = match drawn {
        Some(pair) => pair,
        None => pair(grp.checked_rem(groups(servers))?, servers)?,
    };
    Some((Pair { first, second }, drawn.is_some()))
}

/// Other server that has the call of a cancel, besides the one that the cancel names; `None` if unknown, or if there is
/// none.
pub(super) fn other(call: &CallContext<'_>, pool: &InstalledPool) -> Option<u16> {
    let current = call.base().epoch() == pool.version || mutant::on(Mutant::CloneCancelStale);
    let (first, second) = pair(call.head().grp(), pool.servers.len()).filter(|_| current)?;
    match call.head().sid() {
        sid if first == second || (sid != first && sid != second) => None,
        sid => Some(if sid == first { second } else { first }),
    }
}
