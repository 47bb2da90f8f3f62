//! What leaves: forwarded, turned round, marked, or addressed to a member of a group.

use pathcall_wire::map::bitmap_words;
use pathcall_wire::{Base, Flags, Kind, MapFlags};

use crate::round::clears_itself;
use crate::{Action, Context, Endpoint, Reason, Tables, Verdict};

impl Context<'_> {
    pub(crate) fn len(&self) -> usize {
        usize::from(self.frame.base().length())
    }

    pub(crate) fn drop(&self, reason: Reason) -> Verdict {
        Verdict { action: Action::Drop(reason), len: self.len() }
    }

    /// On to the addressed endpoint.
    pub(crate) fn forward(&self) -> Verdict {
        let action = if self.known { Action::Forward(self.base.dst) } else { Action::Drop(Reason::UnknownEndpoint) };
        Verdict { action, len: self.len() }
    }

    /// From the server: to the group, or on.
    pub(crate) fn deliver(&self) -> Verdict {
        if self.base.flags & Flags::MCAST == 0 {
            return self.forward();
        }
        Verdict { action: Action::Multicast(self.base.gaid), len: self.len() }
    }

    /// On to the server, as it came: the row can't take it.
    pub(crate) fn divert(&mut self) -> Verdict {
        self.frame.map_mut().set_flags(self.map.flags | MapFlags::DIVERTED);
        self.forward()
    }

    /// On to the server without its lanes: the answer is in the server's backup.
    pub(crate) fn old(&mut self) -> Verdict {
        self.frame.map_mut().set_flags(self.map.flags | MapFlags::OLD);
        self.frame.strip();
        self.forward()
    }

    /// The sums of a round: on to the server; or, if their row clears itself, the result, for all when it is new
    /// (`first`), and for who asks again.
    pub(crate) fn reached(&mut self, first: bool) -> Verdict {
        mark_all(self);
        let flags = self.frame.map().flags();
        self.frame.map_mut().set_flags(flags | MapFlags::REACHED);
        if !clears_itself(&self.map) {
            return self.forward();
        }
        if !first {
            return self.reflect(Kind::MapResult, false);
        }
        self.frame.base_mut().set_kind(Kind::MapResult as u8);
        Verdict { action: Action::Multicast(self.base.gaid), len: self.len() }
    }

    /// Back to where it came from.
    pub(crate) fn reflect(&mut self, kind: Kind, strip: bool) -> Verdict {
        let base = self.base;
        let mut out = self.frame.base_mut();
        out.set_kind(kind as u8);
        out.set_dst(base.src);
        out.set_dst_incarnation(base.src_incarnation);
        out.set_src(base.dst);
        out.set_src_incarnation(base.dst_incarnation);
        if strip {
            self.frame.strip();
        }
        Verdict { action: Action::Forward(base.src), len: self.len() }
    }
}

/// Says in the bitmap which lanes of a keyed frame overflowed.
pub(crate) fn mark_overflow(context: &mut Context<'_>, overflow: u32) {
    if context.frame.lane_count() > 0 {
        context.frame.set_bitmap(0, overflow);
    }
    if overflow != 0 {
        context.frame.map_mut().set_flags(context.map.flags | MapFlags::OVERFLOW);
    }
}

/// Says in the bitmap that all lanes are valid.
pub(crate) fn mark_all(context: &mut Context<'_>) {
    let lanes = context.frame.lane_count();
    for word in 0..bitmap_words(lanes) {
        context.frame.set_bitmap(word, u32::MAX >> (32 - (lanes - word * 32).min(32)));
    }
}

impl Tables {
    /// Hands out a copy of a multicast frame for each member of the group, addressed to it, with its
    /// endpoint. They are made in place, one after the other.
    pub fn copies(&self, gaid: u32, frame: &mut [u8], mut each: impl FnMut(u32, &[u8])) {
        let signature = self.key(gaid).map(|key| key.copies(frame));
        for member in self.group(gaid) {
            address_copy(frame, member);
            if let Some(signature) = &signature {
                signature.sign(frame);
            }
            each(member.endpoint, frame);
        }
    }
}

fn address_copy(frame: &mut [u8], member: &Endpoint) {
    if let Ok(mut base) = Base::new_checked(frame) {
        base.set_dst(member.endpoint);
        base.set_dst_incarnation(member.incarnation);
    }
}
