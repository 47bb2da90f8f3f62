//! How the group before goes: when no flow needs it. Somebody may wait for that: the group shall change again, or one of
//! its servers shall go.
//!
//! ```text
//! waits ── drain_after ──► servers are asked for haste, again and again; the operator hears of it
//!   └───── drain_within, if there is such a bound ──► the group goes; flows that are left lose their server
//! ```

use std::collections::BTreeSet;

use pathcall_wire::{Instant, Mutant, mutant};

use super::scaler::{Old, Phase, Scaler, group};
use super::{Command, Event, Output, ServerId};

impl Scaler {
    /// The group before goes when nobody needs it. Its filter is forgotten with it, and the third version may come.
    pub(super) fn retire(&mut self, now: Instant) {
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
            let nobody = vec![None; old.buckets.len()];
            let gone = (0..nobody.len()).map(|bucket| group(version, &nobody, bucket, &self.buckets));
            self.commands.extend(gone);
            self.old = None;
            if overdue {
                self.stats.flows_lost += flows;
                self.stats.overdue += 1;
            }
            let event = if overdue { Event::Overdue { version, flows } } else { Event::Drained(version) };
            self.outputs.push_back(Output::Event(event));
            self.tell_all();
        }
    }

    /// When nobody has needed an old group for long enough; none while somebody does.
    pub(super) fn quiet_at(&self, old: &Old) -> Option<Instant> {
        let owners: BTreeSet<ServerId> = old.buckets.iter().flatten().copied().collect();
        let alive = owners.iter().filter_map(|server| self.servers.get(server));
        let none_since: Option<Vec<Instant>> = alive.map(|server| server.none_since).collect();
        Some(none_since?.into_iter().max().unwrap_or(old.since) + self.config.quiet)
    }

    /// Servers with old flows hurry, if somebody has waited for long.
    pub(super) fn drain(&mut self, now: Instant) {
        let waited = self.waited();
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

    /// When servers are to be asked for haste next; none: nobody waits.
    pub(super) fn drain_at(&self, old: &Old) -> Option<Instant> {
        let since = old.waited_since.filter(|_| self.phase == Phase::Steady)?;
        Some(old.drained_at.map_or(since + self.config.drain_after, |at| at + self.config.drain_every))
    }

    /// When waiting ends, whoever has flows.
    pub(super) fn overdue_at(&self, old: &Old) -> Option<Instant> {
        let since = old.waited_since.filter(|_| self.phase == Phase::Steady)?;
        Some(since + self.config.drain_within?)
    }

    /// Servers that are there and have flows that may be known by the group before, with how many they said.
    pub(super) fn flows_of_old(&self) -> impl Iterator<Item = (ServerId, u64)> {
        let owners: BTreeSet<ServerId> =
            self.old.iter().flat_map(|old| old.buckets.iter().flatten().copied()).collect();
        owners.into_iter().filter_map(|id| Some((id, self.servers.get(&id)?.old_flows.unwrap_or(0))))
    }

    /// Whether another group is wanted than the newest, or a server of the group before is of the newest no more.
    fn waited(&self) -> bool {
        let group = self.group();
        let wanted = self.wanted_alive();
        let another = !wanted.is_empty() && wanted != group;
        another || self.flows_of_old().any(|(server, _)| !group.contains(&server))
    }
}
