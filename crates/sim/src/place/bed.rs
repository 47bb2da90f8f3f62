//! Two hosts and the network between them: every node and every link of the real [`Paths`] is a [`Station`].

use pathcall_place::path::Side;
use pathcall_place::{Hop, Path, PathId, Paths};

use super::station::{Spell, Station};
use crate::random::Random;

/// Both hosts, in virtual time.
#[derive(Debug, Clone)]
pub struct Bed {
    stations: Vec<Station>,
    /// Of each path.
    ways: Vec<Vec<Step>>,
    /// A message's time between the hosts, from and to, nanoseconds.
    network: (u64, u64),
    /// The line of each path: those over the same stations share one.
    lines: Vec<usize>,
    /// Whether messages of a line stay in order between the hosts, as on a reliable connection; when the last came, there
    /// and back.
    ordered: Option<Vec<[u64; 2]>>,
    /// How far stays at nodes are from what they are on average, either way, thousandths.
    jitter: u64,
    random: Random,
}

/// What lies between the hosts, and how regular they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Between {
    /// A message's time on the network, from and to, nanoseconds.
    pub network_ns: (u64, u64),
    /// Whether messages over the same stations stay in order there, as on a reliable connection.
    pub ordered: bool,
    /// How far stays at nodes are from what the model says, either way, thousandths.
    pub jitter: u64,
}

/// A stay at a station.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    station: usize,
    /// For which a slot is taken, nanoseconds.
    busy: u64,
    /// Whether it varies.
    node: bool,
    /// Whether it is where the responder works on the message, or, where none works, has it.
    work: bool,
    /// Until the message is at the next, then, nanoseconds.
    after: u64,
    /// Whether the message leaves for the other host, or this one, then.
    crosses: bool,
}

/// Where a message is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// At the following step, after so long on the network.
    Goes {
        /// When.
        at: u64,
        /// When the step before it was done with it.
        done: u64,
        /// Of the time since, between the hosts.
        network: u64,
    },
    /// It is back where it came from.
    Back {
        /// When.
        at: u64,
        /// When the last step was done with it.
        done: u64,
        /// Of the time since, between the hosts.
        network: u64,
    },
    /// Nowhere.
    Lost,
}

impl Bed {
    /// The hosts of these paths. Times on the network, and the jitter of nodes, are drawn from `random`.
    #[must_use]
    pub fn new(paths: &Paths, between: Between, random: Random) -> Self {
        let stations = paths.resources.iter().map(|resource| Station::new(resource.slots as usize)).collect();
        let side =
            |hop: usize, path: &Path| path.hops.get(hop).map(|hop| paths.resources[usize::from(hop.resource.0)].side);
        let way = |path: &Path| {
            let step = |(at, hop): (usize, &Hop)| {
                let station = usize::from(hop.resource.0);
                // What is profiled of a node is a slot's share; one message has one slot.
                let node = paths.resources[station].node.is_some();
                let work = at == work_at(paths, path);
                let busy = if node { hop.delay_ns } else { hop.busy_ns.min(hop.delay_ns) };
                // The way ends at the requester, wherever its last hop is.
                let next = side(at + 1, path).unwrap_or(Side::Requester);
                let crosses = side(at, path).is_some_and(|here| here != next);
                Step { station, busy, node, work, after: hop.delay_ns - busy, crosses }
            };
            path.hops.iter().enumerate().map(step).collect()
        };
        let Between { network_ns: network, ordered, jitter } = between;
        let ways: Vec<Vec<Step>> = paths.paths.iter().map(way).collect();
        let over = |way: &Vec<Step>| way.iter().map(|step| step.station).collect::<Vec<_>>();
        let line = |way| ways.iter().position(|other| over(other) == over(way)).expect("at least itself");
        let lines: Vec<usize> = ways.iter().map(line).collect();
        let ordered = ordered.then(|| vec![[0; 2]; lines.len()]);
        Self { stations, ways, network, lines, ordered, jitter, random }
    }

    /// Something will befall a station, which is named by its place in [`Paths::resources`].
    ///
    /// # Panics
    /// When there is no such station.
    pub fn befall(&mut self, station: usize, spell: Spell) {
        self.stations[station].befall(spell);
    }

    /// A message of a path comes to a step of its way, at `now` in nanoseconds.
    ///
    /// # Panics
    /// When the way has no such step.
    pub fn step(&mut self, now: u64, path: PathId, at: usize) -> Next {
        let way = &self.ways[usize::from(path.0)];
        let Step { station, busy, node, after, crosses, .. } = way[at];
        let last = at + 1 == way.len();
        let back = !last && way[at + 1..].iter().filter(|step| step.crosses).count() % 2 == 0;
        let busy = if node && self.jitter > 0 {
            busy * self.random.range(1000 - self.jitter..=1000 + self.jitter) / 1000
        } else {
            busy
        };
        let Some(done) = self.stations[station].take(now, busy) else { return Next::Lost };
        let leaves = done + after;
        let network = if crosses { self.delay(path, back, leaves) } else { 0 };
        let at = leaves + network;
        if last { Next::Back { at, done, network } } else { Next::Goes { at, done, network } }
    }

    /// What a path has in common with others over the same stations.
    pub(super) fn line(&self, path: PathId) -> usize {
        self.lines[usize::from(path.0)]
    }

    /// Whether a message is worked on at a step.
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

/// The step at which the responder works on a message: at the first of its nodes, or the first of its links.
fn work_at(paths: &Paths, path: &Path) -> usize {
    let resource = |hop: &Hop| &paths.resources[usize::from(hop.resource.0)];
    let responds = |hop: &Hop| resource(hop).side == Side::Responder;
    let node = path.hops.iter().position(|hop| responds(hop) && resource(hop).node.is_some());
    node.or_else(|| path.hops.iter().position(responds)).unwrap_or(0)
}
