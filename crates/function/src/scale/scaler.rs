//! Groups of servers over time.
//!
//! ```text
//!            wish, load              element has it           no old flows for a while
//! steady v ────────────► prepared v+1 ────────────► v+1, v for old flows ────────────► steady v+1
//!                                                        │ waits for long: drain
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pathcall_wire::{Instant, Mutant, mutant};

use super::ranges::Change;
use super::{
    Block, Command, Config, Event, Input, Load, Output, Ranges, ServerId, Stats, VERSION_MAX, Version, assign,
};

/// Decides which servers get new flows.
#[derive(Debug, Clone)]
pub struct Scaler {
    pub(super) config: Config,
    pub(super) servers: BTreeMap<ServerId, Server>,
    /// What the group shall be; changes wait for the old group's flows.
    pub(super) wanted: BTreeSet<ServerId>,
    /// Whether the operator has said so, or load does.
    pub(super) by_operator: bool,
    pub(super) version: Version,
    pub(super) buckets: Vec<Option<ServerId>>,
    /// Of the version before, while flows need it.
    pub(super) old: Option<Old>,
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
pub(super) struct Server {
    incarnation: u32,
    heard: Instant,
    /// It was given more time since it was heard, as this end had looked late.
    excused: bool,
    pub(super) load: f64,
    pub(super) flows: u64,
    /// By the newest version: what it last said of old flows, and since when there are none.
    pub(super) old_flows: Option<u64>,
    pub(super) none_since: Option<Instant>,
}

#[derive(Debug, Clone)]
pub(super) struct Old {
    pub(super) version: Version,
    pub(super) buckets: Vec<Option<ServerId>>,
    pub(super) since: Instant,
    /// Since when somebody waits for its end.
    pub(super) waited_since: Option<Instant>,
    /// When its servers were last asked for haste.
    pub(super) drained_at: Option<Instant>,
}

impl Old {
    fn new(version: Version, buckets: Vec<Option<ServerId>>, since: Instant) -> Self {
        Self { version, buckets, since, waited_since: None, drained_at: None }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Steady,
    /// The element has to take the new group's buckets before it takes its version.
    Prepared(u64),
    /// It has to take the version before anybody counts by it.
    Switching(u64),
}

impl Scaler {
    /// Before any server has reported. `partitions`: first and last value of each.
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

    /// Something happened. [`Scaler::poll`] until it is empty gives what is to be done.
    pub fn handle(&mut self, now: Instant, input: Input) {
        match input {
            Input::Load(load) => self.load(now, &load),
            Input::Want(servers) => {
                self.wanted = servers.into_iter().collect();
                self.by_operator = true;
            }
            Input::Returned { server, block: (partition, block) } => {
                if self.partitions.get_mut(partition).is_some_and(|ranges| ranges.returned(server, block)) {
                    self.commands.push(Command::Owner { partition, block, server: None });
                }
            }
            Input::Applied { batch } => self.applied(now, batch),
            Input::ElementRestarted => self.restarted(now),
        }
        self.advance(now);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.excuse(now);
        let silent = |server: &Server| now.since(server.heard) >= self.config.report_within;
        let dead: Vec<_> = self.servers.iter().filter(|(_, server)| silent(server)).map(|(id, _)| *id).collect();
        dead.into_iter().for_each(|server| self.died(now, server));
        self.advance(now);
    }

    /// Who looks late has stood still itself, and what was said meanwhile may lie there unread, or be said as late: servers
    /// have half of their time once more.
    fn excuse(&mut self, now: Instant) {
        let within = self.config.report_within;
        for server in self.servers.values_mut().filter(|server| !server.excused) {
            let late = now.since(server.heard + within);
            if late > within / 4 {
                (server.heard, server.excused) = (server.heard + late + within / 2, true);
            }
        }
    }

    /// When [`Scaler::handle_timeout`] is to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let silent = self.servers.values().map(|server| server.heard + self.config.report_within);
        let drain = self.old.iter().filter_map(|old| self.drain_at(old).into_iter().chain(self.overdue_at(old)).min());
        let quiet = self.old.iter().filter_map(|old| self.quiet_at(old)).filter(|_| self.phase == Phase::Steady);
        silent.chain(drain).chain(quiet).chain(self.partitions.iter().filter_map(Ranges::next_at)).min()
    }

    /// What is to be done.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The newest version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The servers that new flows go to.
    #[must_use]
    pub fn group(&self) -> BTreeSet<ServerId> {
        self.buckets.iter().flatten().copied().collect()
    }

    /// Servers that report.
    pub fn alive(&self) -> impl Iterator<Item = ServerId> {
        self.servers.keys().copied()
    }

    /// The partitions.
    #[must_use]
    pub fn partitions(&self) -> &[Ranges] {
        &self.partitions
    }

    /// Whether a group is on its way, or old flows need the one before.
    #[must_use]
    pub fn changing(&self) -> bool {
        self.phase != Phase::Steady || self.old.is_some()
    }

    /// What was counted.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    fn load(&mut self, now: Instant, load: &Load) {
        let known = self.servers.get(&load.server).map(|server| server.incarnation);
        if known.is_some_and(|known| load.incarnation < known) {
            return;
        }
        if known.is_some_and(|known| known < load.incarnation) {
            self.died(now, load.server);
        }
        let first = !self.servers.contains_key(&load.server);
        let server = self.servers.entry(load.server).or_insert(Server {
            incarnation: load.incarnation,
            heard: now,
            excused: false,
            load: 0.0,
            flows: 0,
            old_flows: None,
            none_since: None,
        });
        (server.heard, server.excused, server.load, server.flows) = (now, false, load.load, load.flows);
        if load.version == self.version {
            server.old_flows = Some(load.old_flows);
            server.none_since = if load.old_flows > 0 { None } else { server.none_since.or(Some(now)) };
        }
        if first {
            self.outputs.push_back(Output::Event(Event::Up(load.server)));
            self.tell(load.server);
            if !self.by_operator && self.wanted.len() < self.config.servers_min {
                self.wanted.insert(load.server);
            }
        }
    }

    /// A server is gone with all that it had: who had flows or values there goes on without.
    fn died(&mut self, now: Instant, server: ServerId) {
        let Some(dead) = self.servers.remove(&server) else { return };
        self.stats.deaths += 1;
        self.stats.flows_lost += dead.flows;
        self.outputs.push_back(Output::Event(Event::Down { server, flows: dead.flows }));
        for partition in 0..self.partitions.len() {
            for block in self.partitions[partition].died(server, now + self.config.quarantine) {
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
        // In its own version: flows of other servers stay where they are, and its own have nowhere to stay.
        let servers: Vec<_> = servers.into_iter().collect();
        let gone = |buckets: &mut Vec<Option<ServerId>>| -> Vec<usize> {
            let gone: Vec<_> = (0..buckets.len()).filter(|bucket| buckets[*bucket] == Some(server)).collect();
            for (at, bucket) in gone.iter().enumerate() {
                buckets[*bucket] = (!servers.is_empty()).then(|| servers[at % servers.len()]);
            }
            gone
        };
        let mut changed = gone(&mut self.buckets);
        self.commands.extend(changed.iter().map(|bucket| group(self.version, &self.buckets, *bucket, &self.buckets)));
        if let Some(old) = &mut self.old {
            changed.extend(gone(&mut old.buckets));
            self.commands.extend(changed.iter().map(|bucket| group(old.version, &old.buckets, *bucket, &self.buckets)));
        }
        self.tell_all();
    }

    /// The next step of whatever is under way.
    fn advance(&mut self, now: Instant) {
        self.by_load(now);
        self.drain(now);
        self.retire(now);
        self.change(now);
        self.share(now);
        if !self.commands.is_empty() {
            self.flush();
        }
    }

    /// The group that is wanted, of servers that are there.
    pub(super) fn wanted_alive(&self) -> BTreeSet<ServerId> {
        self.wanted.iter().filter(|server| self.servers.contains_key(server)).copied().collect()
    }

    /// A new version, if another group is wanted and no flow needs the one before the present.
    fn change(&mut self, now: Instant) {
        let wanted = self.wanted_alive();
        let waits = self.old.is_some() && !mutant::on(Mutant::FunctionThirdVersion);
        if wanted.is_empty() || wanted == self.group() || waits || self.phase != Phase::Steady {
            return;
        }
        // Who has no values of a partition can take no new flow. The first group does not wait: without it there is none.
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
            self.old = Some(Old::new(self.version, before, now));
        }
        self.version = version;
        self.changed_at = Some(now);
        self.stats.changes += 1;
        self.servers.values_mut().for_each(|server| (server.old_flows, server.none_since) = (None, None));
        // The version in a batch of its own: it is taken when all its buckets are.
        self.flush();
        self.phase = Phase::Prepared(self.batch);
        self.outputs.push_back(Output::Event(Event::Changed { version, servers }));
    }

    fn applied(&mut self, now: Instant, batch: u64) {
        for command in self.batches.remove(&batch).unwrap_or_default() {
            if let Command::Owner { partition, block, server: Some(_) } = command
                && let Some(server) = self.partitions.get_mut(partition).and_then(|ranges| ranges.steered(block))
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
            self.tell_all();
        }
    }

    /// Values for who has few, back from who has many.
    ///
    /// Those that are to be of the group are given some before, as a server without values can take no new flow; those
    /// that were of it keep some while flows go there, whose first packets may still be on their way.
    fn share(&mut self, now: Instant) {
        self.partitions.iter_mut().for_each(|ranges| ranges.rested(now));
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
                    Change::Give(block, server) => {
                        self.commands.push(Command::Owner { partition, block, server: Some(server) });
                    }
                    Change::Take(block, server) => {
                        self.outputs.push_back(Output::Take { server, block: (partition, block) });
                    }
                }
            }
        }
    }

    /// Every flow is new to the element: those that are not where their bucket is now lose their server. The others are
    /// known by their buckets alone, until a packet of theirs has come: so the group is as a new one, of the same servers,
    /// and the next change waits for them.
    fn restarted(&mut self, now: Instant) {
        self.batches.clear();
        self.commands.clear();
        // Not yet polled: a batch for the element as it was.
        self.outputs.retain(|output| !matches!(output, Output::Element { .. }));
        let old = self.old.take();
        if self.buckets.iter().any(Option::is_some) {
            // The newest version may not have come to it yet.
            let prepared = matches!(self.phase, Phase::Prepared(_));
            let before = old.filter(|_| prepared).map_or(self.version, |old| old.version);
            self.version = next(self.version);
            self.old = Some(Old::new(before, self.buckets.clone(), now));
            self.servers.values_mut().for_each(|server| (server.old_flows, server.none_since) = (None, None));
        }
        self.phase = Phase::Steady;
        let version = self.version;
        let all = 0..self.buckets.len();
        self.commands.extend(all.map(|bucket| group(version, &self.buckets, bucket, &self.buckets)));
        for (partition, ranges) in self.partitions.iter().enumerate() {
            let owned = |block: Block| Some(Command::Owner { partition, block, server: Some(ranges.owner(block)?) });
            self.commands.extend(ranges.blocks().filter_map(owned));
        }
        self.commands.push(Command::Version { version, previous: false });
        self.changed_at = Some(now);
        self.tell_all();
    }

    pub(super) fn tell_all(&mut self) {
        let servers: Vec<ServerId> = self.servers.keys().copied().collect();
        servers.into_iter().for_each(|server| self.tell(server));
    }

    /// Tells a server its buckets: what it has of others is old, or astray.
    fn tell(&mut self, server: ServerId) {
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

/// The bucket of a group, beside that of the newest.
pub(super) fn group(version: Version, of: &[Option<ServerId>], bucket: usize, newest: &[Option<ServerId>]) -> Command {
    let server = of[bucket];
    Command::Group { version, bucket: bucket as u16, server, stays: server.is_some() && server == newest[bucket] }
}

/// The version behind this one: never 0, which in a filter says that no flow came, and of the other parity.
fn next(version: Version) -> Version {
    if version >= VERSION_MAX { 1 } else { version + 1 }
}
