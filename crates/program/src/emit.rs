//! Emit stage: forwards a frame, returns it to its sender, sets flags, or addresses it to members of a group.

use pathcall_wire::map::bitmap_words;
use pathcall_wire::{Base, Flags, FrameKind, MapFlags};

use crate::round::clears_itself;
use crate::{AdmissionTables, Context, Endpoint, FrameAction, FrameDropReason, FrameVerdict};

impl Context<'_> {
    pub(crate) fn len(&self) -> usize {
        usize::from(self.frame.base().length())
    }

    pub(crate) fn drop(&self, reason: FrameDropReason) -> FrameVerdict {
        FrameVerdict { action: FrameAction::Drop(reason), len: self.len() }
    }

    /// Forwards the frame to the addressed endpoint.
    pub(crate) fn forward(&self) -> FrameVerdict {
        let action = if self.known {
            FrameAction::Forward(self.base.dst)
        } else {
            FrameAction::Drop(FrameDropReason::UnknownEndpoint)
        };
        FrameVerdict { action, len: self.len() }
    }

    /// Delivers a frame of the server: to the group, or to the addressed endpoint.
    pub(crate) fn deliver(&self) -> FrameVerdict {
        if self.base.flags & Flags::MCAST == 0 {
            return self.forward();
        }
        FrameVerdict { action: FrameAction::Multicast(self.base.gaid), len: self.len() }
    }

    /// Forwards the frame unchanged to the server, because the row cannot take it.
    pub(crate) fn divert(&mut self) -> FrameVerdict {
        self.frame.map_mut().set_flags(self.map.flags | MapFlags::DIVERTED);
        self.forward()
    }

    /// Forwards the frame without its lanes to the server, which answers from its backup.
    pub(crate) fn forward_to_backup(&mut self) -> FrameVerdict {
        self.frame.map_mut().set_flags(self.map.flags | MapFlags::OLD);
        self.frame.strip();
        self.forward()
    }

    /// Forwards the sums of a round to the server; or, if the row clears itself, returns the result: to all members the
    /// first time (`first`), to the sender of a repeat.
    pub(crate) fn emit_sums(&mut self, first: bool) -> FrameVerdict {
        mark_all(self);
        let flags = self.frame.map().flags();
        self.frame.map_mut().set_flags(flags | MapFlags::REACHED);
        if !clears_itself(&self.map) {
            return self.forward();
        }
        if !first {
            return self.reflect(FrameKind::MapResult, false);
        }
        self.frame.base_mut().set_kind(FrameKind::MapResult as u8);
        FrameVerdict { action: FrameAction::Multicast(self.base.gaid), len: self.len() }
    }

    /// Turns the vote that decided a ballot in this round into the announcement of the decision: to all members the
    /// first time (`first`), to the voter on a repeat. Like the server's announcement, it names the next round.
    pub(crate) fn announce_decision(&mut self, round: u32, first: bool) -> FrameVerdict {
        self.frame.base_mut().set_round(round + 1);
        self.frame.map_mut().set_flags(self.map.flags | MapFlags::REACHED);
        if !first {
            return self.reflect(FrameKind::MapSoft, false);
        }
        self.frame.base_mut().set_kind(FrameKind::MapSoft as u8);
        FrameVerdict { action: FrameAction::Multicast(self.base.gaid), len: self.len() }
    }

    /// Returns the frame to its sender.
    pub(crate) fn reflect(&mut self, kind: FrameKind, strip: bool) -> FrameVerdict {
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
        FrameVerdict { action: FrameAction::Forward(base.src), len: self.len() }
    }
}

/// Marks the lanes of a keyed frame that overflowed in the bitmap.
pub(crate) fn mark_overflow(context: &mut Context<'_>, overflow: u32) {
    if context.frame.lane_count() > 0 {
        context.frame.set_bitmap(0, overflow);
    }
    if overflow != 0 {
        context.frame.map_mut().set_flags(context.map.flags | MapFlags::OVERFLOW);
    }
}

/// Marks all lanes as valid in the bitmap.
pub(crate) fn mark_all(context: &mut Context<'_>) {
    let lanes = context.frame.lane_count();
    for word in 0..bitmap_words(lanes) {
        context.frame.set_bitmap(word, u32::MAX >> (32 - (lanes - word * 32).min(32)));
    }
}

impl AdmissionTables {
    /// Calls `each` with a copy of a multicast frame for each member of the group, addressed to the member, and with
    /// the member's endpoint. The copies are made in place, one after the other.
    pub fn copies(&self, gaid: u32, frame: &mut [u8], mut each: impl FnMut(u32, &[u8])) {
        let signature = self.key(gaid).map(|key| key.copy_signer(frame));
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
