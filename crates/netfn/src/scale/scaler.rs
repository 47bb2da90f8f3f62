//! Scaler: state machine of the server groups over time.
//!
//! ```text
//!            wish, load              element has it           no old flows for a while
//! steady v ────────────► prepared v+1 ────────────► v+1, v for old flows ────────────► steady v+1
//!                                                        │ waits for long: drain
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pathcall_wire::{Instant, Mutant, mutant};

use super::ranges::BlockChange;
use super::{Command, Config, Event, Input, Load, Output, Ranges, ServerId, Stats, ValueBlock};
use super::{VERSION_MAX, Version, assign};

/// Scaler: decides which servers get new flows.
#[derive(Debug, Clone)]
pub struct Scaler {
    pub(super) config: Config,
    pub(super) servers: BTreeMap<ServerId, ServerStatus>,
    /// Wanted servers of the group; a change waits for the flows of the old group.
    pub(super) wanted: BTreeSet<ServerId>,
    /// Whether an operator has set the wanted servers, and not the load.
    pub(super) by_operator: bool,
    pub(super) version: Version,
    pub(super) buckets: Vec<Option<ServerId>>,
    /// Previous version, while flows need it.
    pub(super) old: Option<PreviousGroup>,
    pub(super) phase: Phase,
    partitions: Vec<Ranges>,
    pub(super) changed_at: Option<Instant>,
    pub(super) commands: Vec<Command>,
    batches: BTreeMap<u64, Vec<Command>>,
    batch: u64,
    pub(super) outputs: VecDeque<Output>,
    pub(super) stats: Stats,
}

#[derive(Debug, Clone)]
pub(super) struct ServerStatus {
    incarnation: u32,
    last_report: Instant,
    /// Whether the report deadline was extended since the last report, because this process was late.
    deadline_extended: bool,
    pub(super) load: f64,
    pub(super) flows: u64,
    /// Old flows by the newest version, as last reported, and the time since which there are none.
    pub(super) old_flows: Option<u64>,
    pub(super) none_since: Option<Instant>,
}

#[derive(Debug, Clone)]
pub(super) struct PreviousGroup {
    pub(super) version: Version,
    pub(super) buckets: Vec<Option<ServerId>>,
    pub(super) since: Instant,
    /// Time since which a change waits for the end of this group.
    pub(super) waited_since: Option<Instant>,
    /// Time of the last drain commands.
    pub(super) drained_at: Option<Instant>,
}

impl PreviousGroup {
    fn new(version: Version, buckets: Vec<Option<ServerId>>, since: Instant) -> Self {
        Self { version, buckets, since, waited_since: None, drained_at: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Steady,
    /// The element has to apply the new group's buckets before its version.
    Prepared(u64),
    /// The element has to apply the version before servers count by it.
    Switching(u64),
}

impl Scaler {
    /// Scaler without servers. `partitions`: first and last value of each.
    #[must_use]
    pub fn new(config: Config, partitions: &[(u128, u128)]) -> Self {
        Self {
            buckets: vec![None; usize::from(config.buckets)],
            config,
            servers: BTreeMap::new(),
            wanted: BTreeSet::new(),
            by_operator: false,
            version: 0,
            old: None,
            phase: Phase::Steady,
            partitions: partitions.iter().map(|(first, last)| Ranges::new(*first, *last)).collect(),
            changed_at: None,
            commands: Vec::new(),
            batches: BTreeMap::new(),
            batch: 0,
            outputs: VecDeque::new(),
            stats: Stats::default(),
        }
    }

    /// Handles an input; [`Scaler::poll`] then returns the outputs.
    pub fn handle(&mut self, now: Instant, input: Input) {
        match input {
            Input::Load(load) => self.handle_load(now, &load),
            Input::SetWanted(servers) => {
                self.wanted = servers.into_iter().collect();
                self.by_operator = true;
            }
            Input::Returned { server, block: (partition, block) } => {
                if self.partitions.get_mut(partition).is_some_and(|ranges| ranges.mark_returned(server, block)) {
                    self.commands.push(Command::Owner { partition, block, server: None });
                }
            }
            Input::Applied { batch } => self.handle_applied(now, batch),
            Input::ElementRestarted => self.handle_element_restart(now),
        }
        self.advance(now);
    }

    /// Handles the expiry of deadlines.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.extend_report_deadlines(now);
        let silent = |server: &ServerStatus| now.since(server.last_report) >= self.config.report_within;
        let dead: Vec<_> = self.servers.iter().filter(|(_, server)| silent(server)).map(|(id, _)| *id).collect();
        dead.into_iter().for_each(|server| self.handle_server_death(now, server));
        self.advance(now);
    }

    /// Extends the report deadlines by half if this process itself was late, as reports may be waiting unread.
    fn extend_report_deadlines(&mut self, now: Instant) {
        let within = self.config.report_within;
        for server in self.servers.values_mut().filter(|server| !server.deadline_extended) {
            let late = now.since(server.last_report + within);
            if late > within / 4 {
                (server.last_report, server.deadline_extended) = (server.last_report + late + within / 2, true);
            }
        }
    }

    /// Time of the next call of [`Scaler::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let silent = self.servers.values().map(|server| server.last_report + self.config.report_within);
        let drain = self.old.iter().filter_map(|old| self.drain_at(old).into_iter().chain(self.overdue_at(old)).min());
        let quiet = self.old.iter().filter_map(|old| self.quiet_at(old)).filter(|_| self.phase == Phase::Steady);
        silent.chain(drain).chain(quiet).chain(self.partitions.iter().filter_map(Ranges::next_at)).min()
    }

    /// Next output, if there is one.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Newest version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Servers that new flows go to.
    #[must_use]
    pub fn group(&self) -> BTreeSet<ServerId> {
        self.buckets.iter().flatten().copied().collect()
    }

    /// Servers that report.
    pub fn alive(&self) -> impl Iterator<Item = ServerId> {
        self.servers.keys().copied()
    }

    /// Block owners of the partitions.
    #[must_use]
    pub fn partitions(&self) -> &[Ranges] {
        &self.partitions
    }

    /// Whether a new group is being applied, or old flows need the previous group.
    #[must_use]
    pub fn changing(&self) -> bool {
        self.phase != Phase::Steady || self.old.is_some()
    }

    /// Counters of the scaling.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    fn handle_load(&mut self, now: Instant, load: &Load) {
        let known = self.servers.get(&load.server).map(|server| server.incarnation);
        if known.is_some_and(|known| load.incarnation < known) {
            return;
        }
        if known.is_some_and(|known| known < load.incarnation) {
            self.handle_server_death(now, load.server);
        }
        let first = !self.servers.contains_key(&load.server);
        let server = self.servers.entry(load.server).or_insert(ServerStatus {
            incarnation: load.incarnation,
            last_report: now,
            deadline_extended: false,
            load: 0.0,
            flows: 0,
            old_flows: None,
            none_since: None,
        });
        (server.last_report, server.deadline_extended, server.load, server.flows) = (now, false, load.load, load.flows);
        if load.version == self.version {
            server.old_flows = Some(load.old_flows);
            server.none_since = if load.old_flows > 0 { None } else { server.none_since.or(Some(now)) };
        }
        if first {
            self.outputs.push_back(Output::Event(Event::Up(load.server)));
            self.send_group(load.server);
            if !self.by_operator && self.wanted.len() < self.config.servers_min {
                self.wanted.insert(load.server);
            }
        }
    }

    /// Handles the death of a server: its flows move to others, and its values go into quarantine.
    fn handle_server_death(&mut self, now: Instant, server: ServerId) {
        let Some(dead) = self.servers.remove(&server) else { return };
        self.stats.deaths += 1;
        self.stats.flows_lost += dead.flows;
        self.outputs.push_back(Output::Event(Event::Down { server, flows: dead.flows }));
        for partition in 0..self.partitions.len() {
            for block in self.partitions[partition].quarantine(server, now + self.config.quarantine) {
                self.commands.push(Command::Owner { partition, block, server: None });
            }
        }
        let mut servers: BTreeSet<ServerId> = self.group();
        if !servers.remove(&server) && self.old.is_none() {
            return;
        }
        if servers.is_empty() {
            servers = self.servers.keys().copied().take(1).collect();
        }
        // The version stays, as flows of other servers are not affected, and the dead server's flows have to move.
        let servers: Vec<_> = servers.into_iter().collect();
        let reassign = |buckets: &mut Vec<Option<ServerId>>| -> Vec<usize> {
            let reassigned: Vec<_> = (0..buckets.len()).filter(|bucket| buckets[*bucket] == Some(server)).collect();
            for (at, bucket) in reassigned.iter().enumerate() {
                buckets[*bucket] = (!servers.is_empty()).then(|| servers[at % servers.len()]);
            }
            reassigned
        };
        let mut changed = reassign(&mut self.buckets);
        self.commands.extend(changed.iter().map(|bucket| group(self.version, &self.buckets, *bucket, &self.buckets)));
        if let Some(old) = &mut self.old {
            changed.extend(reassign(&mut old.buckets));
            self.commands.extend(changed.iter().map(|bucket| group(old.version, &old.buckets, *bucket, &self.buckets)));
        }
        self.send_groups();
    }

    /// Takes the next step of a change of the group.
    fn advance(&mut self, now: Instant) {
        self.scale_by_load(now);
        self.drain(now);
        self.end_previous_group(now);
        self.start_change(now);
        self.balance_blocks(now);
        if !self.commands.is_empty() {
            self.flush();
        }
    }

    /// Servers that are wanted and alive.
    pub(super) fn wanted_alive(&self) -> BTreeSet<ServerId> {
        self.wanted.iter().filter(|server| self.servers.contains_key(server)).copied().collect()
    }

    /// Starts a new version, if another group is wanted and no flow needs the version before the current one.
    fn start_change(&mut self, now: Instant) {
        let wanted = self.wanted_alive();
        let must_wait = self.old.is_some() && !mutant::on(Mutant::FunctionThirdVersion);
        if wanted.is_empty() || wanted == self.group() || must_wait || self.phase != Phase::Steady {
            return;
        }
        // A server without values of a partition cannot take new flows. The first group does not wait for values.
        let without = |server: &ServerId| self.partitions.iter().any(|ranges| !ranges.has_given(*server));
        if wanted.iter().any(without) && !self.group().is_empty() {
            return;
        }
        let servers: Vec<ServerId> = wanted.into_iter().collect();
        let before = std::mem::take(&mut self.buckets);
        self.buckets = assign(&before, &servers);
        let had = before.iter().any(Option::is_some);
        let version = next(self.version);
        for bucket in 0..self.buckets.len() {
            self.commands.push(group(version, &self.buckets, bucket, &self.buckets));
            if before.iter().any(Option::is_some) {
                self.commands.push(group(self.version, &before, bucket, &self.buckets));
            }
        }
        if had {
            self.old = Some(PreviousGroup::new(self.version, before, now));
        }
        self.version = version;
        self.changed_at = Some(now);
        self.stats.changes += 1;
        self.servers.values_mut().for_each(|server| (server.old_flows, server.none_since) = (None, None));
        // The version goes into a batch of its own, applied after all its buckets.
        self.flush();
        self.phase = Phase::Prepared(self.batch);
        self.outputs.push_back(Output::Event(Event::Changed { version, servers }));
    }

    fn handle_applied(&mut self, now: Instant, batch: u64) {
        for command in self.batches.remove(&batch).unwrap_or_default() {
            if let Command::Owner { partition, block, server: Some(_) } = command
                && let Some(server) = self.partitions.get_mut(partition).and_then(|ranges| ranges.mark_steered(block))
            {
                self.outputs.push_back(Output::Give { server, block: (partition, block) });
            }
        }
        if self.phase == Phase::Prepared(batch) {
            self.commands.push(Command::Version { version: self.version, previous: self.old.is_some() });
            self.flush();
            self.phase = Phase::Switching(self.batch);
        } else if self.phase == Phase::Switching(batch) {
            self.phase = Phase::Steady;
            self.changed_at = Some(now);
            self.send_groups();
        }
    }

    /// Balances the blocks between servers. Servers that are to join the group get blocks first, since a server without
    /// values cannot take new flows. Servers that leave the group keep some blocks while flows go there whose first
    /// packets may be in flight.
    fn balance_blocks(&mut self, now: Instant) {
        self.partitions.iter_mut().for_each(|ranges| ranges.end_quarantines(now));
        let group: BTreeSet<ServerId> = self.group().into_iter().filter(|id| self.servers.contains_key(id)).collect();
        let old = self.old.iter().flat_map(|old| old.buckets.iter().flatten());
        let old = old.filter(|id| self.servers.contains_key(id)).copied();
        let group: BTreeSet<ServerId> = group.into_iter().chain(self.wanted_alive()).chain(old).collect();
        let group: Vec<ServerId> = group.into_iter().collect();
        if group.is_empty() {
            return;
        }
        for partition in 0..self.partitions.len() {
            for change in self.partitions[partition].balance(&group) {
                match change {
                    BlockChange::Give(block, server) => {
                        self.commands.push(Command::Owner { partition, block, server: Some(server) });
                    }
                    BlockChange::Take(block, server) => {
                        self.outputs.push_back(Output::Take { server, block: (partition, block) });
                    }
                }
            }
        }
    }

    /// Handles a restart of the element, whose filters are empty: flows that are not at the current server of their
    /// bucket lose their server. The other flows are assigned by bucket alone until their next packet, so the group
    /// counts as a new one with the same servers, and the next change waits for these flows.
    fn handle_element_restart(&mut self, now: Instant) {
        self.batches.clear();
        self.commands.clear();
        // Batches that were not polled yet were for the element before its restart.
        self.outputs.retain(|output| !matches!(output, Output::Element { .. }));
        let old = self.old.take();
        if self.buckets.iter().any(Option::is_some) {
            // The element may not have received the newest version yet.
            let prepared = matches!(self.phase, Phase::Prepared(_));
            let before = old.filter(|_| prepared).map_or(self.version, |old| old.version);
            self.version = next(self.version);
            self.old = Some(PreviousGroup::new(before, self.buckets.clone(), now));
            self.servers.values_mut().for_each(|server| (server.old_flows, server.none_since) = (None, None));
        }
        self.phase = Phase::Steady;
        let version = self.version;
        let all = 0..self.buckets.len();
        self.commands.extend(all.map(|bucket| group(version, &self.buckets, bucket, &self.buckets)));
        for (partition, ranges) in self.partitions.iter().enumerate() {
            let owned =
                |block: ValueBlock| Some(Command::Owner { partition, block, server: Some(ranges.owner(block)?) });
            self.commands.extend(ranges.blocks().filter_map(owned));
        }
        self.commands.push(Command::Version { version, previous: false });
        self.changed_at = Some(now);
        self.send_groups();
    }

    pub(super) fn send_groups(&mut self) {
        let servers: Vec<ServerId> = self.servers.keys().copied().collect();
        servers.into_iter().for_each(|server| self.send_group(server));
    }

    /// Sends a server its buckets, by which it recognises old flows and flows that have moved elsewhere.
    fn send_group(&mut self, server: ServerId) {
        let own = |buckets: &[Option<ServerId>]| -> Vec<u16> {
            (0..).zip(buckets).filter(|(_, owner)| **owner == Some(server)).map(|(bucket, _)| bucket).collect()
        };
        let old = self.old.as_ref().map(|old| (old.version, own(&old.buckets)));
        let buckets = own(&self.buckets);
        self.outputs.push_back(Output::Group { server, version: self.version, buckets, old });
    }

    fn flush(&mut self) {
        self.batch += 1;
        let commands = std::mem::take(&mut self.commands);
        self.batches.insert(self.batch, commands.clone());
        self.outputs.push_back(Output::Element { batch: self.batch, commands });
    }
}

/// Command for a bucket of a group, compared with the newest group.
pub(super) fn group(version: Version, of: &[Option<ServerId>], bucket: usize, newest: &[Option<ServerId>]) -> Command {
    let server = of[bucket];
    Command::Group { version, bucket: bucket as u16, server, stays: server.is_some() && server == newest[bucket] }
}

/// Version after this one: never 0, which marks an empty filter cell, and of the other parity.
fn next(version: Version) -> Version {
    if version >= VERSION_MAX { 1 } else { version + 1 }
}
