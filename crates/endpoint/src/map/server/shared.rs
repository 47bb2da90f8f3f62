//! Frames of the owner: whom they are from, and how they go out.

use pathcall_wire::map::{emit, frame_len};
use pathcall_wire::{Base, BaseRepr, Flags, Kind, MapFlags, MapFrame, MapRepr};

use super::super::{Dest, Outbox};
use super::{Member, Shared};

impl Shared {
    /// Base header of a frame from the owner.
    pub(super) fn base(&self, kind: Kind, flags: u16) -> BaseRepr {
        BaseRepr {
            flags: flags | Flags::FROM_SERVER,
            gaid: self.config.gaid,
            epoch: self.config.epoch,
            src: self.config.endpoint,
            src_incarnation: self.config.incarnation,
            ..BaseRepr::new(kind)
        }
    }

    /// Base header of an answer to `frame`, addressed to its sender.
    pub(super) fn answer(&self, kind: Kind, frame: &MapFrame<&[u8]>) -> BaseRepr {
        let base = frame.base();
        BaseRepr {
            dst: base.src(),
            dst_incarnation: base.src_incarnation(),
            slot: base.slot(),
            seq: base.seq(),
            round: base.round(),
            flags: Flags::FROM_SERVER | base.flags() & (Flags::ECN | Flags::CROSS),
            ..self.base(kind, 0)
        }
    }

    /// Answers a frame that asks for nothing but that.
    pub(super) fn acknowledge(&mut self, frame: &MapFrame<&[u8]>, out: &mut impl Outbox) -> Option<()> {
        self.send_bare(&self.answer(Kind::MapAck, frame), out)
    }

    fn send_bare(&mut self, base: &BaseRepr, out: &mut impl Outbox) -> Option<()> {
        self.send_filled(base, 0, 0, out)
    }

    /// Sends a bare frame with a tag and so many zeros in it.
    fn send_filled(&mut self, base: &BaseRepr, tag: u32, fill: u16, out: &mut impl Outbox) -> Option<()> {
        let map = MapRepr { flags: MapFlags::BARE, tag, payload_len: fill, ..MapRepr::default() };
        let len = frame_len(map.flags, 0, fill.into());
        emit(base, &map, self.scratch.get_mut(..len)?).payload_mut().fill(0);
        self.send(Dest::Endpoint(base.dst), len, out);
        Some(())
    }

    /// Answers a greeting: `round` says whether an element has admitted it on its way, and the answer's mark
    /// whether one admits that. Hears from a caller that both are so. As long as what it answers: an element on
    /// the way sees no frame that came in fragments.
    pub(super) fn greeted(&mut self, frame: &MapFrame<&[u8]>, out: &mut impl Outbox) -> Option<()> {
        let base = frame.base();
        let met = !base.has(Flags::NOT_ADMITTED) && base.epoch() == self.config.epoch && self.config.grant.is_some();
        let state = self.members.get_mut(&base.src())?;
        state.inline |= met && base.round() == 1 && state.member.element;
        let answer = self.answer(Kind::MapAck, frame);
        let base = BaseRepr { flags: answer.flags | Flags::NOT_ADMITTED, round: met.into(), ..answer };
        self.send_filled(&base, frame.map().tag(), frame.map().payload_len(), out)
    }

    pub(super) fn send(&mut self, to: Dest, len: usize, out: &mut impl Outbox) {
        self.stats.frames_sent += 1;
        out.send(to, &self.scratch[..len]);
    }

    /// Sends the frame in `scratch[..len]` by the element, to one member or to all that it knows: addressed to one
    /// that it is on the way to, if there is such a one. That is the only one that hears it if the element is gone,
    /// and knows it by the mark.
    pub(super) fn send_by_element(&mut self, to: Option<u32>, len: usize, out: &mut impl Outbox) {
        let on_the_way = match to {
            Some(endpoint) => self.members.get(&endpoint).filter(|state| state.inline),
            None => self.members.values().find(|state| state.inline),
        };
        let Some(Member { endpoint, incarnation, .. }) = on_the_way.map(|state| state.member) else {
            return self.send(Dest::Element, len, out);
        };
        if let Ok(mut base) = Base::new_checked(&mut self.scratch[..len]) {
            base.set_dst(endpoint);
            base.set_dst_incarnation(incarnation);
            let flags = base.flags() | Flags::NOT_ADMITTED;
            base.set_flags(flags);
        }
        self.send(Dest::Inline(endpoint), len, out);
    }

    /// Sends the frame in `scratch[..len]` to every member: one multicast for those that the
    /// element knows, one copy each for the rest.
    pub(super) fn send_to_all(&mut self, len: usize, out: &mut impl Outbox) {
        let by_element = self.config.grant.is_some();
        if by_element && self.members.values().any(|m| m.member.element) {
            self.send_by_element(None, len, out);
        }
        let Self { members, scratch, stats, .. } = self;
        for state in members.values().filter(|m| !(by_element && m.member.element)) {
            let Ok(mut base) = Base::new_checked(&mut scratch[..len]) else { return };
            base.set_dst(state.member.endpoint);
            base.set_dst_incarnation(state.member.incarnation);
            // One on the way lets it pass, whatever it has of the application.
            let flags = base.flags() & !(Flags::MCAST | Flags::NOT_ADMITTED) | Flags::CROSS;
            base.set_flags(flags);
            stats.frames_sent += 1;
            out.send(Dest::Endpoint(state.member.endpoint), &scratch[..len]);
        }
    }
}
