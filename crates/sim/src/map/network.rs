//! Network of the map simulation: all links, late copies and hostile datagrams.
//!
//! ```text
//! frame ─► link ─► arrivals
//!    ├──► stored, and delivered again after hundreds more on the link (late)
//!    └──► damaged in place of the frame, or forged or random bytes beside it (hostile)
//! ```

use std::collections::BTreeMap;

use pathcall_wire::Instant;

use super::hostile::HostileSender;
use super::link::{FaultyLink, FrameArrival, LinkOutcome, LossCause};
use super::node::MapNodeId;
use super::scenario::Scenario;
use crate::random::Random;

/// Limit on the stored copies of a link.
const KEPT_MAX: usize = 64;

/// Datagram in transit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Datagram {
    pub(crate) bytes: Vec<u8>,
    /// Whether it met a congested queue.
    pub(crate) marked: bool,
    /// Whether it was sent by no node of the scenario.
    pub(crate) hostile: bool,
}

/// Datagram that arrives in addition to the frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExtraDatagram {
    pub(crate) at: Instant,
    pub(crate) datagram: Datagram,
}

/// State of one direction of a link.
struct LinkState {
    link: FaultyLink,
    random: Random,
    /// Number of frames that the link has carried.
    carried: u64,
    /// Copies, by the number of frames after which they arrive.
    kept: BTreeMap<u64, Datagram>,
}

/// All links of a run.
pub(crate) struct Network<'a> {
    scenario: &'a Scenario,
    random: Random,
    forger: HostileSender,
    links: BTreeMap<(MapNodeId, MapNodeId), LinkState>,
}

impl<'a> Network<'a> {
    pub(crate) fn new(scenario: &'a Scenario) -> Self {
        let random = Random::new(scenario.seed);
        Self { scenario, random, forger: HostileSender::new(scenario), links: BTreeMap::new() }
    }

    /// Carries a frame: appends its arrivals, and other datagrams that arrive with it.
    pub(crate) fn transmit(
        &mut self,
        now: Instant,
        (from, to): (MapNodeId, MapNodeId),
        frame: &Datagram,
        arrivals: &mut Vec<FrameArrival>,
        extras: &mut Vec<ExtraDatagram>,
    ) -> LinkOutcome {
        let Self { scenario, random, forger, links } = self;
        let state = links.entry((from, to)).or_insert_with(|| LinkState::new(scenario, from, to, random));
        let faults = scenario.faults;
        let mut outcome = state.link.transmit(now, frame.bytes.len(), arrivals);
        state.carried += 1;
        let Some(first) = arrivals.first().copied() else { return outcome };
        while let Some(late) = state.kept.first_entry().filter(|late| *late.key() <= state.carried) {
            extras.push(ExtraDatagram { at: first.at, datagram: late.remove() });
        }
        if now >= scenario.faults_until || frame.hostile {
            return outcome;
        }
        let random = &mut state.random;
        if random.happens(faults.late) && state.kept.len() < KEPT_MAX {
            let after = state.carried + random.range(faults.late_frames / 8..=faults.late_frames);
            state.kept.insert(after, frame.clone());
        }
        if random.happens(faults.hostile) {
            let hostile = |bytes| Datagram { bytes, marked: false, hostile: true };
            if random.percent(30) {
                // The damaged frame replaces the original. If only the UDP checksum can detect the damage, nothing
                // arrives.
                arrivals.clear();
                outcome.lost = Some(LossCause::Damaged);
                let damaged = forger.damage(random, &frame.bytes);
                extras.extend(damaged.map(|bytes| ExtraDatagram { at: first.at, datagram: hostile(bytes) }));
            } else {
                // The forged frame may arrive before the original or after it.
                let at = now + random.up_to(first.at.since(now) * 2);
                let bytes = forger.forge(random, to, &frame.bytes);
                extras.push(ExtraDatagram { at, datagram: hostile(bytes) });
            }
        }
        outcome
    }

    /// Takes all stored copies.
    pub(crate) fn release(&mut self) -> Vec<(MapNodeId, Datagram)> {
        let links = self.links.iter_mut();
        links
            .flat_map(|((_, to), state)| std::mem::take(&mut state.kept).into_values().map(|late| (*to, late)))
            .collect()
    }
}

impl LinkState {
    fn new(scenario: &Scenario, from: MapNodeId, to: MapNodeId, random: &mut Random) -> Self {
        let changes = scenario.wire_changes.iter().filter(|change| change.of(from, to));
        let outages = scenario.outages.iter().filter(|outage| outage.of(from, to));
        let link = FaultyLink::new(scenario.wire, random)
            .with_changes(changes.map(|change| (change.at, change.wire)))
            .with_outages(outages.map(|outage| (outage.since, outage.until)))
            .with_faults(scenario.faults, scenario.faults_until);
        Self { link, random: random.fork(), carried: 0, kept: BTreeMap::new() }
    }
}
