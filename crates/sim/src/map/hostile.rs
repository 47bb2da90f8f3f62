//! Generator of hostile datagrams: damaged frames, forged frames and random bytes.
//!
//! A hostile datagram must have no effect, cause no panic and not delay the receiver. There are two kinds of forgers.
//! The first has no valid identity, but has the key if frames carry tokens, like a caller of another incarnation. The
//! second knows all identities and the state of every flow, but not the key; it is used only if frames carry tokens,
//! as it could do anything otherwise.

use pathcall_wire::base::TOKEN_LEN;
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{Base, BaseRepr, Flags, FrameKind, MAX_FRAME, MapFlags, MapFrame, MapRepr, TokenKey, W_MAX};

use super::node::MapNodeId;
use super::scenario::Scenario;
use crate::random::Random;

/// Limit on the length of random bytes, a little above the frame limit.
const JUNK_MAX: u64 = 1_500;

/// Identity of an application, as a forger knows it.
#[derive(Debug, Clone, Copy)]
struct Application {
    gaid: u32,
    epoch: u32,
    owner: u32,
    incarnation: u32,
    key: Option<TokenKey>,
}

/// Source of frames that must not be admitted.
pub(crate) struct HostileSender {
    applications: Vec<Application>,
}

impl HostileSender {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let applications = scenario.applications.iter().map(|plan| Application {
            gaid: plan.gaid,
            epoch: plan.epoch,
            owner: plan.endpoint,
            incarnation: plan.incarnation,
            key: plan.token_key,
        });
        Self { applications: applications.collect() }
    }

    /// Damages a frame: flips bits, truncates or extends it. `None` if the result is a valid frame without a token,
    /// which only the UDP checksum could detect.
    pub(crate) fn damage(&self, random: &mut Random, frame: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = frame.to_vec();
        match random.below(3) {
            0 => bytes.truncate(random.index(bytes.len())),
            1 => bytes.resize(bytes.len() + random.range(1..=64) as usize, random.bits() as u8),
            _ => {
                // Mostly in the headers, which are parsed.
                let within = if random.percent(80) { bytes.len().min(72) } else { bytes.len() };
                for _ in 0..random.range(1..=8) {
                    bytes[random.index(within)] ^= 1 << random.below(8);
                }
            }
        }
        let told = bytes != frame && self.of(frame).is_some_and(|application| application.key.is_some());
        (told || MapFrame::new_checked(bytes.as_slice()).is_err()).then_some(bytes)
    }

    /// Forges a frame from an overheard one, or returns random bytes.
    pub(crate) fn forge(&self, random: &mut Random, to: MapNodeId, frame: &[u8]) -> Vec<u8> {
        if MapFrame::new_checked(frame).is_err() || random.percent(20) {
            return junk(random);
        }
        match self.of(frame) {
            Some(Application { key: Some(_), .. }) if random.percent(60) => {
                self.unsigned(random, to, frame).unwrap_or_else(|| junk(random))
            }
            _ => self.forge_identity(random, to, frame),
        }
    }

    fn of(&self, frame: &[u8]) -> Option<Application> {
        let gaid = Base::new_checked(frame).ok()?.gaid();
        self.applications.iter().find(|application| application.gaid == gaid).copied()
    }

    /// Forges a frame with other lanes and an invalid identity.
    fn forge_identity(&self, random: &mut Random, to: MapNodeId, frame: &[u8]) -> Vec<u8> {
        let mut bytes = frame.to_vec();
        change_payload(random, &mut bytes);
        let Ok(mut base) = Base::new_checked(bytes.as_mut_slice()) else { return junk(random) };
        // Frames that bypass the element, and results of a round, are valid in every epoch.
        let kind = FrameKind::parse(base.kind());
        let lasting = base.has(Flags::CROSS)
            || matches!(kind, Ok(FrameKind::MapResult | FrameKind::MapSoft | FrameKind::MapError));
        match random.below(3) {
            0 if !lasting => {
                // A caller may not know this epoch yet, so the previous one is valid there.
                let before = !matches!(to, MapNodeId::Caller(..)) && random.percent(50);
                base.set_epoch(if before { base.epoch().wrapping_sub(1) } else { !base.epoch() });
            }
            0 | 1 => {
                // A receiver checks one of the two incarnations; an owner checks both, of a caller's frame.
                let owner = self.applications.iter().any(|application| application.owner == base.src());
                let both = !matches!(to, MapNodeId::Owner(..)) || owner;
                let src = random.percent(50);
                let mut other = |incarnation| incarnation ^ random.range(1..=u64::from(u32::MAX)) as u32;
                if both || src {
                    base.set_src_incarnation(other(base.src_incarnation()));
                }
                if both || !src {
                    base.set_dst_incarnation(other(base.dst_incarnation()));
                }
            }
            _ => {
                let others = self.applications.iter().filter(|application| application.gaid != base.gaid());
                let others: Vec<_> = others.map(|a| (a.gaid, a.epoch, a.owner)).collect();
                let unknown = (u32::MAX, 1, base.dst());
                let (gaid, epoch, owner) = if others.is_empty() { unknown } else { random.pick(&others) };
                base.set_gaid(gaid);
                base.set_epoch(epoch);
                if !matches!(to, MapNodeId::Caller(..)) && kind != Ok(FrameKind::MapResult) {
                    base.set_dst(owner);
                }
            }
        }
        self.sign(bytes)
    }

    /// Signs the frame with the key of the application that it names, if that has one.
    fn sign(&self, frame: Vec<u8>) -> Vec<u8> {
        let plain = without_token(&frame);
        let key = self.of(&plain).and_then(|application| application.key);
        let mut room = [0; MAX_FRAME];
        let signed = key.and_then(|key| key.insert_token(&plain, &mut room).map(<[u8]>::to_vec));
        signed.unwrap_or(plain)
    }

    /// Forges a frame with a valid identity and an invalid token: other lanes, another sequence number, or another
    /// kind.
    fn unsigned(&self, random: &mut Random, to: MapNodeId, frame: &[u8]) -> Option<Vec<u8>> {
        let application = self.of(frame)?;
        let mut bytes = without_token(frame);
        change_payload(random, &mut bytes);
        if random.percent(50) {
            let mut base = Base::new_checked(bytes.as_mut_slice()).ok()?;
            base.set_seq(base.seq().wrapping_add(random.below(W_MAX.into()) as u32));
        }
        if random.percent(60) {
            bytes = another_kind(random, to, &application, &bytes)?;
        }
        let (mut room, bits) = ([0; MAX_FRAME], random.bits());
        let guessed = TokenKey::new([bits, !bits]).insert_token(&bytes, &mut room)?.to_vec();
        let token = Base::LEN..Base::LEN + TOKEN_LEN;
        Some(match random.below(3) {
            // No token, a guessed one, or the one of the overheard frame.
            0 => bytes,
            1 => guessed,
            _ if guessed.len() == frame.len() && guessed[token.end..] == frame[token.end..] => guessed,
            _ => [&guessed[..token.start], frame.get(token.clone())?, &guessed[token.end..]].concat(),
        })
    }
}

/// Changes lanes and payload at random.
fn change_payload(random: &mut Random, frame: &mut [u8]) {
    let Ok(len) = MapFrame::new_checked(&*frame).map(|frame| frame.lanes().len() + frame.payload().len()) else {
        return;
    };
    let body = frame.len() - len;
    let body = &mut frame[body..];
    if !body.is_empty() {
        for _ in 0..random.range(1..=16) {
            body[random.index(body.len())] ^= random.bits() as u8;
        }
    }
}

/// Builds a frame of another kind with the same identity.
fn another_kind(random: &mut Random, to: MapNodeId, application: &Application, frame: &[u8]) -> Option<Vec<u8>> {
    let frame = MapFrame::new_checked(frame).ok()?;
    let (base, map) = (frame.base().repr(), frame.map().repr());
    let owner = (application.owner, application.incarnation);
    let caller =
        if base.src == application.owner { (base.dst, base.dst_incarnation) } else { (base.src, base.src_incarnation) };
    let kind = match to {
        MapNodeId::Caller(..) => random.pick(&[
            FrameKind::MapAck,
            FrameKind::MapPairsAck,
            FrameKind::MapResult,
            FrameKind::MapSoft,
            FrameKind::MapHeld,
            FrameKind::MapCommit,
            FrameKind::MapWithdraw,
            FrameKind::MapRefused,
            FrameKind::MapError,
        ]),
        MapNodeId::Owner(_) => {
            random.pick(&[FrameKind::MapFlush, FrameKind::MapSettled, FrameKind::MapSilent, FrameKind::MapClosed])
        }
        MapNodeId::Element(_) => random.pick(&[
            FrameKind::MapResult,
            FrameKind::MapClose,
            FrameKind::MapWipe,
            FrameKind::MapFree,
            FrameKind::MapSoft,
        ]),
    };
    let (src, dst, flags) = match (to, kind) {
        (MapNodeId::Owner(_), FrameKind::MapClosed) => (owner, owner, Flags::FROM_SERVER),
        (MapNodeId::Owner(_), _) => (caller, owner, Flags::CROSS),
        (MapNodeId::Element(_), _) => (owner, caller, Flags::FROM_SERVER | Flags::MCAST),
        (MapNodeId::Caller(..), _) => (owner, caller, Flags::FROM_SERVER),
    };
    let result = MapFlags::LINEAR | MapFlags::ROUND | MapFlags::GET | MapFlags::CLEAR;
    let (flags_of_map, lanes) = match kind {
        FrameKind::MapResult => (result | map.flags & MapFlags::WIDE, map.lanes),
        FrameKind::MapPairsAck => (map.flags, map.lanes),
        FrameKind::MapSoft => (MapFlags::BARE | MapFlags::ROUND, 0),
        FrameKind::MapSettled => (MapFlags::BARE | MapFlags::CLEAR, 0),
        _ => (MapFlags::BARE, 0),
    };
    let base = BaseRepr {
        kind: kind as u8,
        flags: flags | base.flags & Flags::FLIP,
        src: src.0,
        src_incarnation: src.1,
        dst: dst.0,
        dst_incarnation: dst.1,
        ..base
    };
    let map = MapRepr {
        flags: flags_of_map,
        lanes,
        // For an error, its code; for a release of locks, the holder.
        index: if kind == FrameKind::MapError { 1 } else { map.index },
        threshold: if kind == FrameKind::MapFree { caller.0 } else { map.threshold },
        ..map
    };
    let mut bytes = vec![0; frame_len(map.flags, map.lanes.into(), map.payload_len.into())];
    emit(&base, &map, &mut bytes);
    Some(bytes)
}

/// Removes the token of a frame.
fn without_token(frame: &[u8]) -> Vec<u8> {
    let mut bytes = frame.to_vec();
    if Base::new_checked(frame).is_ok_and(|base| base.has(Flags::TOKEN)) {
        bytes.drain(Base::LEN..Base::LEN + TOKEN_LEN);
        let repr = Base::new_checked(frame).map(|base| base.repr()).unwrap_or_default();
        BaseRepr { flags: repr.flags & !Flags::TOKEN, length: bytes.len() as u16, ..repr }.emit(&mut bytes);
    }
    bytes
}

/// Random bytes, some of them with a frame's first bytes.
fn junk(random: &mut Random) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..random.below(JUNK_MAX)).map(|_| random.bits() as u8).collect();
    let len = bytes.len() as u16;
    if random.percent(70)
        && let Some(head) = bytes.first_chunk_mut::<8>()
    {
        let [high, low] = len.to_be_bytes();
        *head = [b'P', b'C', 1, random.range(1..=24) as u8, 0, random.bits() as u8 & 0x1f, high, low];
    }
    bytes
}
