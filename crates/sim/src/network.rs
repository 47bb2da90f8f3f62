//! All links, and what is put on them that nobody sent.
//!
//! ```text
//! frame ─► link ─► arrivals
//!    ├──► kept, and again after hundreds more on the link (late)
//!    └──► damaged in place of it, or forged or junk beside it (hostile)
//! ```

use std::collections::BTreeMap;

use pathcall_wire::Instant;

use crate::hostile::Forger;
use crate::link::{Arrival, Cut, Fate, Faulty, Link, Loss, Wire};
use crate::party::Node;
use crate::random::{Chance, Random};
use crate::scenario::Scenario;

/// Copies that a link keeps for later.
const KEPT_MAX: usize = 64;

/// A datagram on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Datagram {
    pub(crate) bytes: Vec<u8>,
    /// It met a congested queue.
    pub(crate) marked: bool,
    /// Nobody who takes part has sent it.
    pub(crate) hostile: bool,
}

/// A datagram that arrives, besides the frame itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Extra {
    pub(crate) at: Instant,
    pub(crate) datagram: Datagram,
}

/// One direction of a link, with what it keeps.
struct Path {
    link: Box<dyn Link>,
    random: Random,
    /// Frames carried.
    carried: u64,
    /// Copies by the number of frames after which they arrive.
    kept: BTreeMap<u64, Datagram>,
}

/// All links of a run.
pub(crate) struct Network<'a> {
    scenario: &'a Scenario,
    random: Random,
    forger: Forger,
    paths: BTreeMap<(Node, Node), Path>,
}

impl<'a> Network<'a> {
    pub(crate) fn new(scenario: &'a Scenario) -> Self {
        let random = Random::new(scenario.seed);
        Self { scenario, random, forger: Forger::new(scenario), paths: BTreeMap::new() }
    }

    /// Carries a frame: its arrivals, and what else arrives with it.
    pub(crate) fn carry(
        &mut self,
        now: Instant,
        (from, to): (Node, Node),
        frame: &Datagram,
        arrivals: &mut Vec<Arrival>,
        extras: &mut Vec<Extra>,
    ) -> Fate {
        let Self { scenario, random, forger, paths } = self;
        let path = paths.entry((from, to)).or_insert_with(|| Path::new(scenario, from, to, random));
        let faults = scenario.faults;
        let mut fate = path.link.carry(now, frame.bytes.len(), arrivals);
        path.carried += 1;
        let Some(first) = arrivals.first().copied() else { return fate };
        while let Some(late) = path.kept.first_entry().filter(|late| *late.key() <= path.carried) {
            extras.push(Extra { at: first.at, datagram: late.remove() });
        }
        if now >= scenario.faults_until || frame.hostile {
            return fate;
        }
        let random = &mut path.random;
        if random.happens(faults.late) && path.kept.len() < KEPT_MAX {
            let after = path.carried + random.range(faults.late_frames / 8..=faults.late_frames);
            path.kept.insert(after, frame.clone());
        }
        if random.happens(faults.hostile) {
            let hostile = |bytes| Datagram { bytes, marked: false, hostile: true };
            if random.happens(Chance::percent(30)) {
                // In place of the frame; what its own checks can't tell from a frame, UDP's
                // checksum does, and nothing arrives.
                arrivals.clear();
                fate.lost = Some(Loss::Damaged);
                let damaged = forger.damage(random, &frame.bytes);
                extras.extend(damaged.map(|bytes| Extra { at: first.at, datagram: hostile(bytes) }));
            } else {
                // Before the frame as well as after it.
                let at = now + random.up_to(first.at.since(now) * 2);
                let bytes = forger.forge(random, to, &frame.bytes);
                extras.push(Extra { at, datagram: hostile(bytes) });
            }
        }
        fate
    }

    /// Everything that is kept for later, now.
    pub(crate) fn release(&mut self) -> Vec<(Node, Datagram)> {
        let paths = self.paths.iter_mut();
        paths.flat_map(|((_, to), path)| std::mem::take(&mut path.kept).into_values().map(|late| (*to, late))).collect()
    }
}

impl Path {
    fn new(scenario: &Scenario, from: Node, to: Node, random: &mut Random) -> Self {
        let changes = scenario.wire_changes.iter().filter(|change| change.of(from, to));
        let outages = scenario.outages.iter().filter(|outage| outage.of(from, to));
        let wire = Wire::new(scenario.wire, random.fork()).with_changes(changes.map(|change| (change.at, change.wire)));
        let cut = Cut::new(wire, outages.map(|outage| (outage.since, outage.until)).collect());
        let link = Box::new(Faulty::new(cut, scenario.faults, scenario.faults_until, random.fork()));
        Self { link, random: random.fork(), carried: 0, kept: BTreeMap::new() }
    }
}
