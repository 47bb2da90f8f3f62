//! Groups: the ordered pair of servers that a request may go to (NetClone §3.3), and the version of the table.

use pathcall_wire::clone::{groups, pair};
use pathcall_wire::{Mutant, mutant};

use super::{Call, Pool};

/// Two servers by SID: the second for the clone, or if its queue is shorter. One server is both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) first: u16,
    pub(super) second: u16,
}

/// A request's pair, and whether it is the one that its caller drew. One of another version becomes some
/// pair: any is right. `None`: the pool has no servers.
#[inline]
pub(super) fn of_request(call: &Call<'_>, pool: &Pool) -> Option<(Pair, bool)> {
    let (grp, servers) = (call.head().grp(), pool.servers.len());
    let drawn = pair(grp, servers).filter(|_| call.base().epoch() == pool.version);
    let (first, second) = match drawn {
        Some(pair) => pair,
        None => pair(grp.checked_rem(groups(servers))?, servers)?,
    };
    Some((Pair { first, second }, drawn.is_some()))
}

/// Who has the call that a cancel is about, beside the server that it names; `None`: that is not known
/// any more, or nobody.
pub(super) fn other(call: &Call<'_>, pool: &Pool) -> Option<u16> {
    let current = call.base().epoch() == pool.version || mutant::on(Mutant::CloneCancelStale);
    let (first, second) = pair(call.head().grp(), pool.servers.len()).filter(|_| current)?;
    match call.head().sid() {
        sid if first == second || (sid != first && sid != second) => None,
        sid => Some(if sid == first { second } else { first }),
    }
}
