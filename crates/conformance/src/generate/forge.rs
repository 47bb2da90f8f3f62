//! Forged and damaged frames, and random bytes.

use pathcall_wire::base::TOKEN_LEN;
use pathcall_wire::map::MapHeader;
use pathcall_wire::{Base, Flags, MAX_FRAME};

use super::{Generator, SIZE};
use crate::RandomChoice;

/// Length of the base and map headers, where bit errors have most effect.
const HEADERS: usize = Base::LEN + MapHeader::LEN;
/// Offsets of identifying fields of the base header.
const NAMES: [Name; 8] =
    [Name::Gaid, Name::Epoch, Name::Source, Name::Incarnation, Name::Destination, Name::Slot, Name::Flags, Name::Kind];

#[derive(Debug, Clone, Copy)]
enum Name {
    Gaid,
    Epoch,
    Source,
    Incarnation,
    Destination,
    Slot,
    Flags,
    Kind,
}

impl Generator {
    /// Valid frame with wrong identifiers, or with one changed field of its map header; several wrong fields are rarer.
    pub(super) fn forge(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        loop {
            if self.random.percent(70) {
                self.corrupt_identifier(&mut bytes);
            } else {
                let at = Base::LEN + self.random.index(MapHeader::LEN);
                let value = self.random.pick(&[0, 1, 2, 0xff, self.random.clone().bits() as u8]);
                bytes[at.min(MAX_FRAME - 1)] = value;
            }
            if self.random.percent(80) {
                break;
            }
        }
        if self.random.percent(20) {
            bytes = self.add_invalid_token(bytes);
        }
        self.sign_again(bytes)
    }

    fn corrupt_identifier(&mut self, bytes: &mut [u8]) {
        let random = &mut self.random;
        let Ok(mut base) = Base::new_checked(bytes) else { return };
        let near = |random: &mut pathcall_wire::SplitMix64, value: u32| match random.below(4) {
            0 => 0,
            1 => u32::MAX,
            2 => value.wrapping_add(1),
            _ => value.wrapping_sub(1),
        };
        // Identifiers in use, of this application or another.
        let endpoint = |random: &mut pathcall_wire::SplitMix64| 10 * (1 + random.below(5)) + random.below(5);
        match random.pick(&NAMES) {
            Name::Gaid => base.set_gaid(random.below(6)),
            Name::Epoch => base.set_epoch(near(random, base.epoch())),
            Name::Source => base.set_src(endpoint(random)),
            Name::Incarnation => base.set_src_incarnation(near(random, base.src_incarnation())),
            Name::Destination => {
                let other = [endpoint(random), near(random, base.dst())];
                base.set_dst(random.pick(&other));
            }
            Name::Slot => {
                let other = [random.below(SIZE.slots as u32 + 2), near(random, base.slot())];
                base.set_slot(random.pick(&other));
            }
            Name::Flags => {
                let known = [Flags::FROM_SERVER, Flags::MCAST, Flags::CROSS, Flags::NOT_ADMITTED, Flags::ECN];
                let other = 1 << random.below(16);
                let flag = if random.percent(80) { random.pick(&known) } else { other };
                base.set_flags(base.flags() ^ flag);
            }
            Name::Kind => base.set_kind(random.below(33) as u8),
        }
    }

    /// Frame with an invalid token, or with only the token flag.
    fn add_invalid_token(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        let room = bytes.len() + TOKEN_LEN <= MAX_FRAME && self.random.percent(80);
        let Ok(mut base) = Base::new_checked(&mut bytes[..]) else { return bytes };
        let (flags, length) = (base.flags(), base.length());
        if flags & Flags::TOKEN != 0 {
            return bytes;
        }
        base.set_flags(flags | Flags::TOKEN);
        if room {
            base.set_length(length + TOKEN_LEN as u16);
            bytes.splice(Base::LEN..Base::LEN, self.random.bits().to_be_bytes());
        }
        bytes
    }

    /// Frame signed again with the key, in half of the cases.
    fn sign_again(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        let gaid = Base::new_checked(&bytes[..]).map(|base| base.gaid());
        let plan = self.plans.iter().find(|plan| Ok(plan.application.gaid) == gaid);
        if let Some(key) = plan.and_then(|plan| plan.key)
            && self.random.percent(50)
        {
            key.sign(&mut bytes);
        }
        bytes
    }

    /// Flips bits, truncates or extends the frame; half of the frames with a changed length also change the length
    /// field.
    pub(super) fn damage(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        match self.random.below(6) {
            0 => bytes.truncate(self.random.index(bytes.len() + 1)),
            1 => {
                let more = self.random.index(64).min(MAX_FRAME - bytes.len());
                bytes.resize(bytes.len() + more, self.random.bits() as u8);
            }
            2 => return (0..self.random.below(120)).map(|_| self.random.bits() as u8).collect(),
            _ => {
                let within = if self.random.percent(80) { bytes.len().min(HEADERS) } else { bytes.len() };
                for _ in 0..1 + self.random.below(4) {
                    bytes[self.random.index(within)] ^= 1 << self.random.below(8);
                }
            }
        }
        let length = (bytes.len() as u16).to_be_bytes();
        if self.random.percent(50)
            && let Some(place) = bytes.get_mut(6..8)
        {
            place.copy_from_slice(&length);
        }
        bytes
    }
}
