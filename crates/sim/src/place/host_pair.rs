//! Model of two hosts and the network between them: each node and each link of the real [`Paths`] is a [`Station`].

use pathcall_place::path::PathSide;
use pathcall_place::{Hop, Path, PathId, Paths};

use super::station::{Station, StationFault};
use crate::random::Random;

/// Two hosts in virtual time.
#[derive(Debug, Clone)]
pub struct HostPair {
    stations: Vec<Station>,
    /// Steps of each path.
    ways: Vec<Vec<PathStep>>,
    /// Minimum and maximum of the network delay in nanoseconds.
    network: (u64, u64),
    /// Line of each path: paths over the same stations share one.
    lines: Vec<usize>,
    /// Last arrival of each line, there and back, if messages of a line stay in order as on a reliable connection.
    ordered: Option<Vec<[u64; 2]>>,
    /// Random deviation of service times at nodes from the average, in thousandths.
    jitter: u64,
    random: Random,
}

/// Network between the hosts, and jitter of the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkModel {
    /// Minimum and maximum of the network delay in nanoseconds.
    pub network_ns: (u64, u64),
    /// Whether messages over the same stations stay in order, as on a reliable connection.
    pub ordered: bool,
    /// Random deviation of service times at nodes from the model, in thousandths.
    pub jitter: u64,
}

/// Visit of a message to one station.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PathStep {
    station: usize,
    /// Service time in nanoseconds.
    busy: u64,
    /// Whether the service time has jitter.
    node: bool,
    /// Whether the responder works on the message here, or, without such a station, receives it here.
    work: bool,
    /// Time from the end of the service to the next station, in nanoseconds.
    after: u64,
    /// Whether the message then crosses the network.
    crosses: bool,
}

/// Result of one step of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepResult {
    /// The message arrives at its next step.
    Arrives {
        /// Time of the arrival.
        at: u64,
        /// End of the service at this step.
        done: u64,
        /// Network delay within the time since.
        network: u64,
    },
    /// The message is back at the requester.
    Returns {
        /// Time of the arrival.
        at: u64,
        /// End of the service at the last step.
        done: u64,
        /// Network delay within the time since.
        network: u64,
    },
    /// The message is lost.
    Lost,
}

impl HostPair {
    /// Creates the hosts of these paths; network delays and jitter are drawn from `random`.
    #[must_use]
    pub fn new(paths: &Paths, network: NetworkModel, random: Random) -> Self {
        let stations = paths.resources.iter().map(|resource| Station::new(resource.slots as usize)).collect();
        let side =
            |hop: usize, path: &Path| path.hops.get(hop).map(|hop| paths.resources[usize::from(hop.resource.0)].side);
        let way = |path: &Path| {
            let step = |(at, hop): (usize, &Hop)| {
                let station = usize::from(hop.resource.0);
                // A profile has the share of a slot; one message has one slot.
                let node = paths.resources[station].node.is_some();
                let work = at == work_at(paths, path);
                let busy = if node { hop.delay_ns } else { hop.busy_ns.min(hop.delay_ns) };
                // The path ends at the requester, wherever its last hop is.
                let next = side(at + 1, path).unwrap_or(PathSide::Requester);
                let crosses = side(at, path).is_some_and(|here| here != next);
                PathStep { station, busy, node, work, after: hop.delay_ns - busy, crosses }
            };
            path.hops.iter().enumerate().map(step).collect()
        };
        let NetworkModel { network_ns, ordered, jitter } = network;
        let ways: Vec<Vec<PathStep>> = paths.paths.iter().map(way).collect();
        let over = |way: &Vec<PathStep>| way.iter().map(|step| step.station).collect::<Vec<_>>();
        let line = |way| ways.iter().position(|other| over(other) == over(way)).expect("path itself");
        let lines: Vec<usize> = ways.iter().map(line).collect();
        let ordered = ordered.then(|| vec![[0; 2]; lines.len()]);
        Self { stations, ways, network: network_ns, lines, ordered, jitter, random }
    }

    /// Adds a fault of a station, by its index in [`Paths::resources`].
    ///
    /// # Panics
    /// If there is no such station.
    pub fn add_fault(&mut self, station: usize, fault: StationFault) {
        self.stations[station].add_fault(fault);
    }

    /// Runs one step of a message, which arrives there at `now` in nanoseconds.
    ///
    /// # Panics
    /// If the path has no such step.
    pub fn step(&mut self, now: u64, path: PathId, at: usize) -> StepResult {
        let way = &self.ways[usize::from(path.0)];
        let PathStep { station, busy, node, after, crosses, .. } = way[at];
        let last = at + 1 == way.len();
        let back = !last && way[at + 1..].iter().filter(|step| step.crosses).count() % 2 == 0;
        let busy = if node && self.jitter > 0 {
            busy * self.random.range(1000 - self.jitter..=1000 + self.jitter) / 1000
        } else {
            busy
        };
        let Some(done) = self.stations[station].take(now, busy) else { return StepResult::Lost };
        let leaves = done + after;
        let network = if crosses { self.delay(path, back, leaves) } else { 0 };
        let at = leaves + network;
        if last { StepResult::Returns { at, done, network } } else { StepResult::Arrives { at, done, network } }
    }

    /// Line of a path: all paths over the same stations have the same.
    pub(super) fn line(&self, path: PathId) -> usize {
        self.lines[usize::from(path.0)]
    }

    /// Whether the responder works on the message at this step.
    pub(super) fn is_work(&self, path: PathId, at: usize) -> bool {
        self.ways[usize::from(path.0)][at].work
    }

    fn delay(&mut self, path: PathId, back: bool, leaves: u64) -> u64 {
        let (from, to) = self.network;
        let delay = self.random.range(from..=to);
        let Some(last) = &mut self.ordered else { return delay };
        let last = &mut last[self.lines[usize::from(path.0)]][usize::from(back)];
        *last = (*last).max(leaves + delay);
        *last - leaves
    }
}

/// Step at which the responder works on a message: its first node on the path, or its first link.
fn work_at(paths: &Paths, path: &Path) -> usize {
    let resource = |hop: &Hop| &paths.resources[usize::from(hop.resource.0)];
    let responds = |hop: &Hop| resource(hop).side == PathSide::Responder;
    let node = path.hops.iter().position(|hop| responds(hop) && resource(hop).node.is_some());
    node.or_else(|| path.hops.iter().position(responds)).unwrap_or(0)
}
