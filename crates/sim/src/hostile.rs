//! Bytes that no host has sent: damaged frames, forged ones, and junk.
//!
//! Nothing of it may have an effect, panic or hold up a receiver. Until frames carry tokens, who
//! knows a frame's incarnation can forge it: the forger here never does.

use pathcall_wire::{Base, Flags, Kind, MapFrame};

use crate::party::Node;
use crate::random::{Chance, Random};
use crate::scenario::Scenario;

/// Junk at most; a little more than fits a frame.
const JUNK_MAX: u64 = 1_500;

/// Damages a frame: bits flip, or its end is cut off, or more follows. `None` when what comes out
/// still is a frame in itself, so that only UDP's checksum can tell.
pub(crate) fn damage(random: &mut Random, frame: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = frame.to_vec();
    match random.below(3) {
        0 => bytes.truncate(random.index(bytes.len())),
        1 => bytes.resize(bytes.len() + random.range(1..=64) as usize, random.bits() as u8),
        _ => {
            // Most of them in the headers, where it matters how they are read.
            let within = if random.happens(Chance::percent(80)) { bytes.len().min(72) } else { bytes.len() };
            for _ in 0..random.range(1..=8) {
                bytes[random.index(within)] ^= 1 << random.below(8);
            }
        }
    }
    MapFrame::new_checked(bytes.as_slice()).is_err().then_some(bytes)
}

/// Makes copies of frames that must not be admitted.
pub(crate) struct Forger {
    /// Application, epoch and owner of each.
    applications: Vec<(u32, u32, u32)>,
}

impl Forger {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let applications = scenario.applications.iter().map(|plan| (plan.gaid, plan.epoch, plan.endpoint));
        Self { applications: applications.collect() }
    }

    /// A frame like this one, with other lanes, that lacks what admits it; or junk.
    pub(crate) fn forge(&self, random: &mut Random, to: Node, frame: &[u8]) -> Vec<u8> {
        let mut bytes = frame.to_vec();
        let len = MapFrame::new_checked(bytes.as_slice()).map(|frame| frame.lanes().len() + frame.payload().len());
        let (Ok(len), false) = (len, random.happens(Chance::percent(20))) else { return junk(random) };
        let body = bytes.len() - len;
        let body = &mut bytes[body..];
        if !body.is_empty() {
            for _ in 0..random.range(1..=16) {
                body[random.index(body.len())] ^= random.bits() as u8;
            }
        }
        let Ok(mut base) = Base::new_checked(bytes.as_mut_slice()) else { return junk(random) };
        // What goes past the element, and a round's result, is the same in every epoch.
        let kind = Kind::parse(base.kind());
        let lasting = base.has(Flags::CROSS) || matches!(kind, Ok(Kind::MapResult | Kind::MapSoft | Kind::MapError));
        match random.below(3) {
            0 if !lasting => {
                // A caller may not have heard of this epoch yet, so that the one before is right there.
                let before = !matches!(to, Node::Caller(..)) && random.happens(Chance::percent(50));
                base.set_epoch(if before { base.epoch().wrapping_sub(1) } else { !base.epoch() });
            }
            0 | 1 => {
                // Who receives checks one of the two.
                base.set_src_incarnation(base.src_incarnation() ^ random.range(1..=u64::from(u32::MAX)) as u32);
                base.set_dst_incarnation(base.dst_incarnation() ^ random.range(1..=u64::from(u32::MAX)) as u32);
            }
            _ => {
                let others = self.applications.iter().filter(|(gaid, ..)| *gaid != base.gaid());
                let others: Vec<_> = others.copied().collect();
                let unknown = (u32::MAX, 1, base.dst());
                let (gaid, epoch, owner) = if others.is_empty() { unknown } else { random.pick(&others) };
                base.set_gaid(gaid);
                base.set_epoch(epoch);
                if !matches!(to, Node::Caller(..)) && kind != Ok(Kind::MapResult) {
                    base.set_dst(owner);
                }
            }
        }
        bytes
    }
}

/// Random bytes, some of which begin as a frame does.
fn junk(random: &mut Random) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..random.below(JUNK_MAX)).map(|_| random.bits() as u8).collect();
    let len = bytes.len() as u16;
    if random.happens(Chance::percent(70))
        && let Some(head) = bytes.first_chunk_mut::<8>()
    {
        let [high, low] = len.to_be_bytes();
        *head = [b'P', b'C', 1, random.range(1..=24) as u8, 0, random.bits() as u8 & 0x1f, high, low];
    }
    bytes
}
