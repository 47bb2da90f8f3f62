//! What is held for a packet, in C: variables, and the structure of the map.

use super::bits::holder;
use super::plan::Plan;
use super::{Emitter, Storage};
use crate::ir::SlotId;

/// Bytes that are zeroed at once.
const PIECE: usize = 512;

/// Bytes between the places of headers and the values.
const HEAD: usize = 16;

/// Type and name in C of something that is held for a packet.
type Member = (&'static str, String);

impl Emitter<'_> {
    /// Declares what the packet's values are held in.
    pub(super) fn variables(&mut self) {
        self.line("void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end, *at = data;");
        self.line("__u32 error = 0, length = end - data, came = came_by(xdp);");
        if self.plan.loops() {
            self.line("u64 rounds;");
        }
        let storage = self.plan.options.storage;
        if storage != Storage::Locals {
            self.line("__u32 first = 0;");
            self.line("struct slots *v = look_up(&slots, &first);");
            self.line("");
            self.line("if (!v)");
            self.line("\treturn XDP_ABORTED;");
        }
        self.turn();
        if storage != Storage::Scratch {
            let nought = self.plan.nought();
            self.line(&format!("u64 cur = {nought};"));
            for (kind, name) in self.values().into_iter().filter(|(_, name)| name != "cur") {
                // All that fit are worked out in 64 bits: nothing has to be cut to a width.
                let kind = if kind == "u128" { kind } else { "u64" };
                self.line(&format!("{kind} {name} = 0;"));
            }
        }
        match storage {
            Storage::Locals => {
                for (_, name) in self.offsets() {
                    self.line(&format!("u64 {name} = NOWHERE;"));
                }
                for (kind, name) in self.apart() {
                    let kind = if kind == "u128" { kind } else { "u64" };
                    self.line(&format!("{kind} {name} = 0;"));
                }
            }
            Storage::Headers | Storage::Scratch => {
                // All are NOWHERE.
                let bytes = self.offsets_bytes();
                self.line(&format!("__builtin_memset(v, 0x3f, {bytes});"));
            }
        }
        if storage == Storage::Scratch {
            // In pieces that the compiler writes as stores.
            let first = self.offsets_bytes() + HEAD;
            let bytes = bytes(&self.in_map());
            for at in (0..bytes).step_by(PIECE) {
                let bytes = PIECE.min(bytes - at);
                let at = first + at;
                self.line(&format!("__builtin_memset(__builtin_assume_aligned((void *)v + {at}, 8), 0, {bytes});"));
            }
        }
        self.line("");
    }

    /// How often this packet came in before: what a packet that comes in once more has left for it.
    fn turn(&mut self) {
        if !self.plan.recirculates {
            return;
        }
        if self.plan.options.storage == Storage::Locals {
            self.line("__u32 zero = 0, *passes = look_up(&passes_here, &zero);");
            self.line("");
            self.line("if (!passes)");
            self.line("\treturn XDP_ABORTED;");
        } else {
            self.line("u64 *passes = &v->turn;");
        }
        self.line("__u32 turn = *passes;");
        self.line("");
        self.line("*passes = 0;");
    }

    /// The structure of the map.
    pub(super) fn slots_map(&mut self) {
        if self.plan.options.storage == Storage::Locals {
            return;
        }
        self.line("struct slots {");
        let offsets = self.offsets();
        let bytes_of_offsets = self.offsets_bytes();
        for (kind, name) in &offsets {
            self.line(&format!("\t{kind} {name};"));
        }
        let none = bytes_of_offsets / 2 - offsets.len();
        if none > 0 {
            self.line(&format!("\t__u16 none[{none}];"));
        }
        self.line("\tu64 nought; /* which nobody writes */");
        self.line("\tu64 turn;");
        let members = self.in_map();
        for (kind, name) in &members {
            self.line(&format!("\t{kind} {name};"));
        }
        self.line("} __attribute__((aligned(8)));");
        self.line("");
        let bytes = bytes_of_offsets + HEAD + bytes(&members);
        self.line(&format!("_Static_assert(sizeof(struct slots) == {bytes}, \"as it is zeroed\");"));
        self.line("");
        self.map("BPF_MAP_TYPE_PERCPU_ARRAY", 1, "__u32", "struct slots", "slots", "");
    }

    /// What is in the map behind the places of headers.
    fn in_map(&self) -> Vec<Member> {
        let mut members = self.apart();
        if self.plan.options.storage == Storage::Scratch {
            members.extend(self.values());
        }
        sorted(members)
    }

    /// Where each header begins.
    fn offsets(&self) -> Vec<Member> {
        self.plan.headers.iter().map(|header| ("__u16", format!("off_{}", header.name))).collect()
    }

    /// In whole words.
    fn offsets_bytes(&self) -> usize {
        (2 * self.plan.headers.len()).next_multiple_of(8)
    }

    /// Of headers: fields that are held apart, and lengths; they mean something while their header is valid.
    fn apart(&self) -> Vec<Member> {
        let mut members = Vec::new();
        for (header, plan) in self.plan.program.headers.iter().zip(&self.plan.headers) {
            members.extend(plan.apart.iter().map(|(slot, _)| self.plan.member(*slot)));
            if header.varbit_bits_max.is_some() {
                members.push(("__u16", format!("var_{}", plan.name)));
            }
        }
        members
    }

    /// What begins as 0.
    fn values(&self) -> Vec<Member> {
        let plan = &self.plan;
        let mut members = vec![("__u32", "cur".to_owned()), ("__u32", "out".to_owned()), ("u64", "dirty".to_owned())];
        if !plan.fixed {
            members.extend(["place", "same", "moved"].map(|name| ("__u32", name.to_owned())));
        }
        if plan.recirculates {
            members.push(("__u8", "again".to_owned()));
        }
        if plan.truncates {
            members.push(("u64", "keep".to_owned()));
        }
        let slots = (0..plan.program.slots.len()).map(|at| SlotId(at as u32));
        members.extend(slots.filter(|slot| plan.header_of(*slot).is_none()).map(|slot| plan.member(slot)));
        sorted(members)
    }
}

impl Plan<'_> {
    fn member(&self, slot: SlotId) -> Member {
        (holder(self.program.width(slot)), self.name(slot).to_owned())
    }
}

/// The largest first: nothing lies between them.
fn sorted(mut members: Vec<Member>) -> Vec<Member> {
    members.sort_by_key(|(holder, _)| std::cmp::Reverse(size(holder)));
    members
}

/// Bytes of these, in whole words.
fn bytes(members: &[Member]) -> usize {
    members.iter().map(|(holder, _)| size(holder)).sum::<usize>().next_multiple_of(8)
}

fn size(holder: &str) -> usize {
    match holder {
        "__u8" => 1,
        "__u16" => 2,
        "__u32" => 4,
        "u64" => 8,
        _ => 16,
    }
}
