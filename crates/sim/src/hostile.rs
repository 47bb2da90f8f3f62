//! Bytes that no host has sent: damaged frames, forged ones, and junk.
//!
//! Nothing of it may have an effect, panic or hold up a receiver. Two forgers are at work. One lacks a
//! name that admits a frame; where frames carry tokens, it has the key all the same, as a caller that
//! was let in under another incarnation has. The other knows every name and the state of every flow,
//! and lacks the key: it is at work where frames carry tokens, as it could do anything elsewhere.

use pathcall_wire::base::TOKEN_LEN;
use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{Base, BaseRepr, Flags, Kind, MAX_FRAME, MapFlags, MapFrame, MapRepr, TokenKey, W_MAX};

use crate::party::Node;
use crate::random::{Chance, Random};
use crate::scenario::Scenario;

/// Junk at most; a little more than fits a frame.
const JUNK_MAX: u64 = 1_500;

/// What a forger knows of an application.
#[derive(Debug, Clone, Copy)]
struct Application {
    gaid: u32,
    epoch: u32,
    owner: u32,
    incarnation: u32,
    key: Option<TokenKey>,
}

/// Makes copies of frames that must not be admitted.
pub(crate) struct Forger {
    applications: Vec<Application>,
}

impl Forger {
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

    /// Damages a frame: bits flip, or its end is cut off, or more follows. `None` when what comes out
    /// still is a frame in itself and carries no token, so that only UDP's checksum can tell.
    pub(crate) fn damage(&self, random: &mut Random, frame: &[u8]) -> Option<Vec<u8>> {
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
        let told = bytes != frame && self.of(frame).is_some_and(|application| application.key.is_some());
        (told || MapFrame::new_checked(bytes.as_slice()).is_err()).then_some(bytes)
    }

    /// A frame like this one that must have no effect; or junk.
    pub(crate) fn forge(&self, random: &mut Random, to: Node, frame: &[u8]) -> Vec<u8> {
        if MapFrame::new_checked(frame).is_err() || random.happens(Chance::percent(20)) {
            return junk(random);
        }
        match self.of(frame) {
            Some(Application { key: Some(_), .. }) if random.happens(Chance::percent(60)) => {
                self.unsigned(random, to, frame).unwrap_or_else(|| junk(random))
            }
            _ => self.misnamed(random, to, frame),
        }
    }

    fn of(&self, frame: &[u8]) -> Option<Application> {
        let gaid = Base::new_checked(frame).ok()?.gaid();
        self.applications.iter().find(|application| application.gaid == gaid).copied()
    }

    /// A frame like this one, with other lanes, that lacks a name that admits it.
    fn misnamed(&self, random: &mut Random, to: Node, frame: &[u8]) -> Vec<u8> {
        let mut bytes = frame.to_vec();
        scribble(random, &mut bytes);
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
                // Who receives checks one of the two; an owner both, of a caller's frame.
                let owner = self.applications.iter().any(|application| application.owner == base.src());
                let both = !matches!(to, Node::Owner(..)) || owner;
                let src = random.happens(Chance::percent(50));
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
                if !matches!(to, Node::Caller(..)) && kind != Ok(Kind::MapResult) {
                    base.set_dst(owner);
                }
            }
        }
        self.sign(bytes)
    }

    /// The frame with the token that its application, as it names one now, wants; or with none.
    fn sign(&self, frame: Vec<u8>) -> Vec<u8> {
        let plain = without_token(&frame);
        let key = self.of(&plain).and_then(|application| application.key);
        let mut room = [0; MAX_FRAME];
        let signed = key.and_then(|key| key.seal(&plain, &mut room).map(<[u8]>::to_vec));
        signed.unwrap_or(plain)
    }

    /// A frame in which every name is right and the token is not: like this one with other lanes or
    /// under a number of the forger's choice, or one of another kind.
    fn unsigned(&self, random: &mut Random, to: Node, frame: &[u8]) -> Option<Vec<u8>> {
        let application = self.of(frame)?;
        let mut bytes = without_token(frame);
        scribble(random, &mut bytes);
        if random.happens(Chance::percent(50)) {
            let mut base = Base::new_checked(bytes.as_mut_slice()).ok()?;
            base.set_seq(base.seq().wrapping_add(random.below(W_MAX.into()) as u32));
        }
        if random.happens(Chance::percent(60)) {
            bytes = another_kind(random, to, &application, &bytes)?;
        }
        let (mut room, bits) = ([0; MAX_FRAME], random.bits());
        let guessed = TokenKey::new([bits, !bits]).seal(&bytes, &mut room)?.to_vec();
        let token = Base::LEN..Base::LEN + TOKEN_LEN;
        Some(match random.below(3) {
            // None, a guess, or the one of the frame that it knows.
            0 => bytes,
            1 => guessed,
            _ if guessed.len() == frame.len() && guessed[token.end..] == frame[token.end..] => guessed,
            _ => [&guessed[..token.start], frame.get(token.clone())?, &guessed[token.end..]].concat(),
        })
    }
}

/// Other lanes, and another payload.
fn scribble(random: &mut Random, frame: &mut [u8]) {
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

/// A frame with the names of this one that says something else to who receives it.
fn another_kind(random: &mut Random, to: Node, application: &Application, frame: &[u8]) -> Option<Vec<u8>> {
    let frame = MapFrame::new_checked(frame).ok()?;
    let (base, map) = (frame.base().repr(), frame.map().repr());
    let owner = (application.owner, application.incarnation);
    let caller =
        if base.src == application.owner { (base.dst, base.dst_incarnation) } else { (base.src, base.src_incarnation) };
    let kind = match to {
        Node::Caller(..) => random.pick(&[
            Kind::MapAck,
            Kind::MapPairsAck,
            Kind::MapResult,
            Kind::MapSoft,
            Kind::MapHeld,
            Kind::MapCommit,
            Kind::MapWithdraw,
            Kind::MapRefused,
            Kind::MapError,
        ]),
        Node::Owner(_) => random.pick(&[Kind::MapFlush, Kind::MapSettled, Kind::MapSilent, Kind::MapClosed]),
        Node::Element(_) => {
            random.pick(&[Kind::MapResult, Kind::MapClose, Kind::MapWipe, Kind::MapFree, Kind::MapSoft])
        }
    };
    let (src, dst, flags) = match (to, kind) {
        (Node::Owner(_), Kind::MapClosed) => (owner, owner, Flags::FROM_SERVER),
        (Node::Owner(_), _) => (caller, owner, Flags::CROSS),
        (Node::Element(_), _) => (owner, caller, Flags::FROM_SERVER | Flags::MCAST),
        (Node::Caller(..), _) => (owner, caller, Flags::FROM_SERVER),
    };
    let result = MapFlags::LINEAR | MapFlags::ROUND | MapFlags::GET | MapFlags::CLEAR;
    let (flags_of_map, lanes) = match kind {
        Kind::MapResult => (result | map.flags & MapFlags::WIDE, map.lanes),
        Kind::MapPairsAck => (map.flags, map.lanes),
        Kind::MapSoft => (MapFlags::BARE | MapFlags::ROUND, 0),
        Kind::MapSettled => (MapFlags::BARE | MapFlags::CLEAR, 0),
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
        // Of an error: which; of what frees locks: whose.
        index: if kind == Kind::MapError { 1 } else { map.index },
        threshold: if kind == Kind::MapFree { caller.0 } else { map.threshold },
        ..map
    };
    let mut bytes = vec![0; frame_len(map.flags, map.lanes.into(), map.payload_len.into())];
    emit(&base, &map, &mut bytes);
    Some(bytes)
}

/// The frame as it was before it was signed.
fn without_token(frame: &[u8]) -> Vec<u8> {
    let mut bytes = frame.to_vec();
    if Base::new_checked(frame).is_ok_and(|base| base.has(Flags::TOKEN)) {
        bytes.drain(Base::LEN..Base::LEN + TOKEN_LEN);
        let repr = Base::new_checked(frame).map(|base| base.repr()).unwrap_or_default();
        BaseRepr { flags: repr.flags & !Flags::TOKEN, length: bytes.len() as u16, ..repr }.emit(&mut bytes);
    }
    bytes
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
