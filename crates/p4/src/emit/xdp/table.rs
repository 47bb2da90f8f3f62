//! Tables in C: key, lookup and dispatch to the actions.

use super::bits::holder;
use super::layout::{FieldPlace, MapKeyLayout};
use super::{Emitter, Unsupported};
use crate::ir::{SlotId, Stmt, TableId};

/// Largest nesting depth of tables whose actions apply tables.
const DEPTH_MAX: usize = 8;

impl Emitter<'_> {
    pub(super) fn emit_apply(
        &mut self,
        id: TableId,
        hit: Option<SlotId>,
        action: Option<SlotId>,
        stmt: &Stmt,
    ) -> Result<(), Unsupported> {
        let table = &self.plan.program.tables[id.0 as usize];
        if self.actions.len() >= DEPTH_MAX {
            let construct = format!("table {}", table.name);
            return Err(Unsupported { construct, why: "actions apply tables too deep", at: stmt.at });
        }
        let around = self.origins.last().cloned();
        self.begin_construct(
            format!("table {}", table.name),
            if stmt.at == Default::default() { table.at } else { stmt.at },
        );
        let layout = self.plan.layout.tables[id.0 as usize].clone();
        self.write_braced("", |this| {
            let found = match &layout.key {
                None => "0".to_owned(),
                Some(key) => {
                    this.emit_key(id, &layout.map, key);
                    format!("look_up(&{}, &key)", layout.map)
                }
            };
            this.write_line(&format!("struct {}_value *e = {found};", layout.map));
            this.write_line("");
            if let Some(hit) = hit {
                this.emit_assign(hit, "!!e");
            }
            this.write_braced("if (!e)", |this| {
                this.write_line("__u32 only = 0;");
                this.write_line("");
                this.write_line(&format!("e = look_up(&{}_default, &only);", layout.map));
            });
            // Entries without this mark are aged.
            this.write_braced("else if (!e->used)", |this| this.write_line("e->used = 1;"));
            this.write_braced("if (e)", |this| {
                if let Some(action) = action {
                    this.emit_assign(action, "e->action");
                }
                this.write_braced("switch (e->action)", |this| {
                    for (i, (action, _)) in layout.actions.iter().enumerate() {
                        this.emit_case(i, action.0)?;
                    }
                    Ok(())
                })
            })
        })?;
        if let Some(around) = around {
            self.begin_construct(around.what, around.at);
        }
        Ok(())
    }

    fn emit_case(&mut self, i: usize, action: u32) -> Result<(), Unsupported> {
        let of = &self.plan.program.actions[action as usize];
        self.write_braced(&format!("case {i}: /* {} */", super::parser::comment(&of.name)), |this| {
            for (j, param) in of.params.iter().enumerate() {
                let line = format!("{} = e->arg_{i}_{j};", this.plan.slot(*param));
                this.write_line(&line);
            }
            this.actions.push(action);
            let done = this.emit_body(&of.body);
            this.actions.pop();
            this.write_line("break;");
            done
        })
    }

    /// Emits the construction of `key`.
    fn emit_key(&mut self, id: TableId, map: &str, key: &MapKeyLayout) {
        let table = &self.plan.program.tables[id.0 as usize];
        match key {
            MapKeyLayout::Exact { bytes, fields } => {
                // Keys are written in whole words: a read of a word that was written in parts stalls.
                let (kind, word) = if bytes % 8 == 0 { ("u64", 8) } else { ("__u32", 4) };
                self.write_line(&format!("{kind} key[] = {{"));
                for first in (0..*bytes).step_by(word) {
                    let parts = fields.iter().zip(&table.keys).filter_map(|(place, key)| {
                        let value = self.plan.value(&key.expr);
                        part_of_word(&value, *place, first, word)
                    });
                    let parts: Vec<String> = parts.collect();
                    let names = fields.iter().zip(&table.keys).filter(|(place, _)| place.at / word * word == first);
                    let names: Vec<&str> = names.map(|(_, key)| key.name.as_str()).collect();
                    let line = format!(
                        "\t{}, /* {} */",
                        if parts.is_empty() { "0".to_owned() } else { parts.join(" | ") },
                        super::parser::comment(&names.join(", "))
                    );
                    self.write_line(&line);
                }
                self.write_line("};");
            }
            MapKeyLayout::Lpm { bytes, fields, lpm } => {
                for (i, key) in table.keys.iter().enumerate() {
                    self.emit_variable(&format!("key_{i}"), &key.expr);
                }
                let before = (bytes - usize::from(fields[*lpm].1.div_ceil(8))) * 8;
                let length = before + usize::from(fields[*lpm].1);
                self.write_line(&format!("struct {map}_key key = {{.length = {length}}};"));
                self.write_line("void *to = key.bytes;");
                self.write_line("");
                for (i, (at, width)) in fields.iter().enumerate() {
                    let whole = width.div_ceil(8) * 8;
                    // The prefix key begins at the high bit of a byte, other keys end at the low bit of one.
                    let first = *at as u32 * 8 + if i == *lpm { 0 } else { u32::from(whole - width) };
                    for line in key_bytes("to", first, *width, &format!("key_{i}")) {
                        self.write_line(&line);
                    }
                }
            }
        }
    }

    /// Emits the structures of a table's map, and the map.
    pub(super) fn emit_table_maps(&mut self, id: usize) {
        let table = &self.plan.program.tables[id];
        let layout = self.plan.layout.tables[id].clone();
        let map = &layout.map;
        self.begin_construct(format!("table {}", table.name), table.at);
        match &layout.key {
            None => {}
            Some(MapKeyLayout::Exact { bytes, fields }) => {
                self.write_line(&format!("struct {map}_key {{"));
                let mut order: Vec<usize> = (0..fields.len()).collect();
                order.sort_by_key(|i| fields[*i].at);
                let mut end = 0;
                for i in order {
                    let width = table.keys[i].expr.ty.width();
                    self.write_line(&format!(
                        "\t{} key_{i}; /* {} */",
                        holder(width),
                        super::parser::comment(&table.keys[i].name)
                    ));
                    end = fields[i].at + fields[i].bytes;
                }
                if end < *bytes {
                    self.write_line(&format!("\t__u8 zero[{}];", bytes - end));
                }
                self.write_line("};");
                self.write_line("");
                self.write_line(&format!(
                    "_Static_assert(sizeof(struct {map}_key) == {bytes}, \"as the loader has it\");"
                ));
                self.write_line("");
            }
            Some(MapKeyLayout::Lpm { bytes, .. }) => {
                self.write_line(&format!("struct {map}_key {{"));
                self.write_line("\t__u32 length;");
                self.write_line(&format!("\t__u8 bytes[{bytes}];"));
                self.write_line("} __attribute__((packed));");
                self.write_line("");
            }
        }
        self.write_line(&format!("struct {map}_value {{"));
        self.write_line("\t__u32 action;");
        self.write_line("\t__u32 used;");
        self.write_line("\tunion {");
        self.write_line("\t\tu64 none;");
        for (i, (action, places)) in layout.actions.iter().enumerate() {
            let params = &self.plan.program.actions[action.0 as usize].params;
            let mut order: Vec<usize> = (0..places.len()).collect();
            order.sort_by_key(|j| places[*j].at);
            if order.is_empty() {
                continue;
            }
            self.write_line("\t\tstruct {");
            for j in order {
                let slot = params[j];
                let line = format!(
                    "\t\t\t{} arg_{i}_{j}; /* {} */",
                    holder(self.plan.program.width(slot)),
                    self.plan.name(slot)
                );
                self.write_line(&line);
            }
            self.write_line("\t\t};");
        }
        self.write_line("\t};");
        self.write_line("};");
        self.write_line("");
        let value = format!("struct {map}_value");
        self.write_line(&format!(
            "_Static_assert(sizeof({value}) == {}, \"as the loader has it\");",
            layout.value_bytes
        ));
        self.write_line("");
        let key = format!("struct {map}_key");
        match &layout.key {
            None => {}
            Some(MapKeyLayout::Exact { .. }) => self.emit_map("BPF_MAP_TYPE_HASH", table.size, &key, &value, map, ""),
            Some(MapKeyLayout::Lpm { .. }) => {
                self.emit_map("BPF_MAP_TYPE_LPM_TRIE", table.size, &key, &value, map, "BPF_F_NO_PREALLOC");
            }
        }
        self.emit_map("BPF_MAP_TYPE_ARRAY", 1, "__u32", &value, &format!("{map}_default"), "");
    }
}

/// Contribution of a field to the key word at byte `first`, if any, with `PART` of prelude.h.
fn part_of_word(value: &str, place: FieldPlace, first: usize, word: usize) -> Option<String> {
    if place.bytes > word {
        // A field across two words is split in host byte order.
        return match first.checked_sub(place.at) {
            Some(0) => Some(format!("HALF({value}, 0)")),
            Some(8) => Some(format!("HALF({value}, 1)")),
            _ => None,
        };
    }
    (place.at / word * word == first).then(|| format!("PART({value}, {}, {}, {})", place.at - first, place.bytes, word))
}

/// Statements that write a part of a trie's key by bytes; the other bytes are 0.
fn key_bytes(base: &str, first: u32, width: u16, value: &str) -> Vec<String> {
    let end = first + u32::from(width);
    (first / 8..end.div_ceil(8))
        .map(|byte| {
            let (low, high) = (end as i32 - (byte as i32 + 1) * 8, byte);
            let shifted = match low {
                0 => value.to_owned(),
                1.. => format!("({value} >> {low})"),
                _ => format!("({value} << {})", -low),
            };
            format!("*(__u8 *)({base} + {high}) = {shifted};")
        })
        .collect()
}
