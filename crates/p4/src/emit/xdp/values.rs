//! Per-packet values in C: variables and the map's structure.

use super::bits::holder;
use super::plan::Plan;
use super::{Emitter, Storage};
use crate::ir::SlotId;

/// Number of bytes that are zeroed at once.
const PIECE: usize = 512;

/// Bytes between the header offsets and the values.
const HEAD: usize = 16;

/// C type and name of a per-packet value.
type Member = (&'static str, String);

impl Emitter<'_> {
    /// Declares the packet's variables.
    pub(super) fn emit_variables(&mut self) {
        self.write_line("void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end, *at = data;");
        self.write_line("__u32 error = 0, length = end - data, came = came_by(xdp);");
        if self.plan.has_parser_cycle() {
            self.write_line("u64 rounds;");
        }
        let storage = self.plan.options.storage;
        if storage != Storage::Locals {
            self.write_line("__u32 first = 0;");
            self.write_line("struct slots *v = look_up(&slots, &first);");
            self.write_line("");
            self.write_line("if (!v)");
            self.write_line("\treturn XDP_ABORTED;");
        }
        self.emit_pass_count();
        if storage != Storage::Scratch {
            let nought = self.plan.opaque_zero();
            self.write_line(&format!("u64 cur = {nought};"));
            for (kind, name) in self.value_members().into_iter().filter(|(_, name)| name != "cur") {
                // Values up to 64 bits are computed in 64 bits, so they need no truncation.
                let kind = if kind == "u128" { kind } else { "u64" };
                self.write_line(&format!("{kind} {name} = 0;"));
            }
        }
        match storage {
            Storage::Locals => {
                for (_, name) in self.offset_members() {
                    self.write_line(&format!("u64 {name} = NOWHERE;"));
                }
                for (kind, name) in self.header_members() {
                    let kind = if kind == "u128" { kind } else { "u64" };
                    self.write_line(&format!("{kind} {name} = 0;"));
                }
            }
            Storage::Headers | Storage::Scratch => {
                // All bits set is NOWHERE.
                let bytes = self.offsets_bytes();
                self.write_line(&format!("__builtin_memset(v, 0x3f, {bytes});"));
            }
        }
        if storage == Storage::Scratch {
            // Pieces of a size that the compiler zeroes with stores.
            let first = self.offsets_bytes() + HEAD;
            let bytes = bytes(&self.map_members());
            for at in (0..bytes).step_by(PIECE) {
                let bytes = PIECE.min(bytes - at);
                let at = first + at;
                self.write_line(&format!(
                    "__builtin_memset(__builtin_assume_aligned((void *)v + {at}, 8), 0, {bytes});"
                ));
            }
        }
        self.write_line("");
    }

    /// Emits the count of earlier passes of a recirculated packet.
    fn emit_pass_count(&mut self) {
        if !self.plan.recirculates {
            return;
        }
        if self.plan.options.storage == Storage::Locals {
            self.write_line("__u32 zero = 0, *passes = look_up(&passes_here, &zero);");
            self.write_line("");
            self.write_line("if (!passes)");
            self.write_line("\treturn XDP_ABORTED;");
        } else {
            self.write_line("u64 *passes = &v->turn;");
        }
        self.write_line("__u32 turn = *passes;");
        self.write_line("");
        self.write_line("*passes = 0;");
    }

    /// Emits the structure of the map.
    pub(super) fn emit_slots_map(&mut self) {
        if self.plan.options.storage == Storage::Locals {
            return;
        }
        self.write_line("struct slots {");
        let offsets = self.offset_members();
        let bytes_of_offsets = self.offsets_bytes();
        for (kind, name) in &offsets {
            self.write_line(&format!("\t{kind} {name};"));
        }
        let none = bytes_of_offsets / 2 - offsets.len();
        if none > 0 {
            self.write_line(&format!("\t__u16 none[{none}];"));
        }
        self.write_line("\tu64 nought; /* which nobody writes */");
        self.write_line("\tu64 turn;");
        let members = self.map_members();
        for (kind, name) in &members {
            self.write_line(&format!("\t{kind} {name};"));
        }
        self.write_line("} __attribute__((aligned(8)));");
        self.write_line("");
        let bytes = bytes_of_offsets + HEAD + bytes(&members);
        self.write_line(&format!("_Static_assert(sizeof(struct slots) == {bytes}, \"as it is zeroed\");"));
        self.write_line("");
        self.emit_map("BPF_MAP_TYPE_PERCPU_ARRAY", 1, "__u32", "struct slots", "slots", "");
    }

    /// Members of the map's structure after the header offsets.
    fn map_members(&self) -> Vec<Member> {
        let mut members = self.header_members();
        if self.plan.options.storage == Storage::Scratch {
            members.extend(self.value_members());
        }
        sorted(members)
    }

    /// Offset variable of each header.
    fn offset_members(&self) -> Vec<Member> {
        self.plan.headers.iter().map(|header| ("__u16", format!("off_{}", header.name))).collect()
    }

    /// Size of the header offsets, in whole words.
    fn offsets_bytes(&self) -> usize {
        (2 * self.plan.headers.len()).next_multiple_of(8)
    }

    /// Fields and lengths of headers that are held in variables; undefined while the header is invalid.
    fn header_members(&self) -> Vec<Member> {
        let mut members = Vec::new();
        for (header, plan) in self.plan.program.headers.iter().zip(&self.plan.headers) {
            members.extend(plan.apart.iter().map(|(slot, _)| self.plan.member(*slot)));
            if header.varbit_bits_max.is_some() {
                members.push(("__u16", format!("var_{}", plan.name)));
            }
        }
        members
    }

    /// Values that begin as 0.
    fn value_members(&self) -> Vec<Member> {
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

/// Members by size, largest first, so that there is no padding.
fn sorted(mut members: Vec<Member>) -> Vec<Member> {
    members.sort_by_key(|(holder, _)| std::cmp::Reverse(size(holder)));
    members
}

/// Size of the members, in whole words.
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
