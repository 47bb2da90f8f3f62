//! Drain of the previous group. The group ends when no flow needs it. If another change of the group or the removal of
//! a server waits for that, its flows are drained.
//!
//! ```text
//! wait ── drain_after ──► drain commands to servers, repeated; event for the operator
//!   └──── drain_within, if set ──► the group ends; remaining flows lose their server
//! ```

use std::collections::BTreeSet;

use pathcall_wire::{Instant, Mutant, mutant};

use super::scaler::{Phase, PreviousGroup, Scaler, group};
use super::{Command, Event, Output, ServerId};

impl Scaler {
    /// Ends the previous group when no flow needs it; its Bloom filter is cleared, and the next version can start.
    pub(super) fn end_previous_group(&mut self, now: Instant) {
        let Some(old) = &self.old else { return };
        if self.phase != Phase::Steady {
            return;
        }
        let quiet = self.quiet_at(old).is_some_and(|at| at <= now);
        let overdue = !quiet && self.overdue_at(old).is_some_and(|at| at <= now);
        if quiet || overdue || mutant::on(Mutant::FunctionOldGroupForgotten) {
            let version = old.version;
            let flows = self.flows_of_old().map(|(_, flows)| flows).sum();
            self.commands.push(Command::Version { version: self.version, previous: false });
            let no_servers = vec![None; old.buckets.len()];
            let cleared = (0..no_servers.len()).map(|bucket| group(version, &no_servers, bucket, &self.buckets));
            self.commands.extend(cleared);
            self.old = None;
            if overdue {
                self.stats.flows_lost += flows;
                self.stats.overdue += 1;
            }
            let event = if overdue { Event::Overdue { version, flows } } else { Event::Drained(version) };
            self.outputs.push_back(Output::Event(event));
            self.send_groups();
        }
    }

    /// End of the quiet time of an old group; `None` while a server has flows of it.
    pub(super) fn quiet_at(&self, old: &PreviousGroup) -> Option<Instant> {
        let owners: BTreeSet<ServerId> = old.buckets.iter().flatten().copied().collect();
        let alive = owners.iter().filter_map(|server| self.servers.get(server));
        let none_since: Option<Vec<Instant>> = alive.map(|server| server.none_since).collect();
        Some(none_since?.into_iter().max().unwrap_or(old.since) + self.config.quiet)
    }

    /// Sends drain requests to the servers with old flows, once the wait has taken long enough.
    pub(super) fn drain(&mut self, now: Instant) {
        let waited = self.is_waited_for();
        let Some(old) = &mut self.old else { return };
        old.waited_since = if waited { old.waited_since.or(Some(now)) } else { None };
        let Some(old) = &self.old else { return };
        if self.drain_at(old).is_none_or(|at| now < at) {
            return;
        }
        let servers: Vec<(ServerId, u64)> = self.flows_of_old().filter(|(_, flows)| *flows > 0).collect();
        let first = old.drained_at.is_none();
        let (version, idle) = (old.version, self.config.drain_idle);
        if let Some(old) = &mut self.old {
            old.drained_at = Some(now);
        }
        self.stats.drains += 1;
        self.outputs.extend(servers.iter().map(|(server, _)| Output::Drain { server: *server, idle }));
        if first {
            self.outputs.push_back(Output::Event(Event::Waits { version, servers }));
        }
    }

    /// Time of the next drain requests; `None` if no change waits.
    pub(super) fn drain_at(&self, old: &PreviousGroup) -> Option<Instant> {
        let since = old.waited_since.filter(|_| self.phase == Phase::Steady)?;
        Some(old.drained_at.map_or(since + self.config.drain_after, |at| at + self.config.drain_every))
    }

    /// Time at which the wait ends regardless of remaining flows.
    pub(super) fn overdue_at(&self, old: &PreviousGroup) -> Option<Instant> {
        let since = old.waited_since.filter(|_| self.phase == Phase::Steady)?;
        Some(since + self.config.drain_within?)
    }

    /// Live servers with flows of the previous group, and the number of such flows that each reported.
    pub(super) fn flows_of_old(&self) -> impl Iterator<Item = (ServerId, u64)> {
        let owners: BTreeSet<ServerId> =
            self.old.iter().flat_map(|old| old.buckets.iter().flatten().copied()).collect();
        owners.into_iter().filter_map(|id| Some((id, self.servers.get(&id)?.old_flows.unwrap_or(0))))
    }

    /// Whether a change of the group waits, or a server of the previous group is not in the newest.
    fn is_waited_for(&self) -> bool {
        let group = self.group();
        let wanted = self.wanted_alive();
        let another = !wanted.is_empty() && wanted != group;
        another || self.flows_of_old().any(|(server, _)| !group.contains(&server))
    }
}
