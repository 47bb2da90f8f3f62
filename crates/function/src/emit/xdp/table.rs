//! Tables in C: a key, a look-up, and the actions that the table may run.

use super::bits::holder;
use super::layout::{KeyLayout, Place};
use super::{Emitter, Unsupported};
use crate::ir::{SlotId, Stmt, TableId};

/// How deep actions may apply tables whose actions apply tables.
const DEPTH_MAX: usize = 8;

impl Emitter<'_> {
    pub(super) fn apply(
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
        self.construct(format!("table {}", table.name), if stmt.at == Default::default() { table.at } else { stmt.at });
        let layout = self.plan.layout.tables[id.0 as usize].clone();
        self.braced("", |this| {
            let found = match &layout.key {
                None => "0".to_owned(),
                Some(key) => {
                    this.key(id, &layout.map, key);
                    format!("look_up(&{}, &key)", layout.map)
                }
            };
            this.line(&format!("struct {}_value *e = {found};", layout.map));
            this.line("");
            if let Some(hit) = hit {
                this.assign(hit, "!!e");
            }
            this.braced("if (!e)", |this| {
                this.line("__u32 only = 0;");
                this.line("");
                this.line(&format!("e = look_up(&{}_default, &only);", layout.map));
            });
            // Its mark: entries that nothing hits grow old.
            this.braced("else if (!e->used)", |this| this.line("e->used = 1;"));
            this.braced("if (e)", |this| {
                if let Some(action) = action {
                    this.assign(action, "e->action");
                }
                this.braced("switch (e->action)", |this| {
                    for (i, (action, _)) in layout.actions.iter().enumerate() {
                        this.case(i, action.0)?;
                    }
                    Ok(())
                })
            })
        })?;
        if let Some(around) = around {
            self.construct(around.what, around.at);
        }
        Ok(())
    }

    fn case(&mut self, i: usize, action: u32) -> Result<(), Unsupported> {
        let of = &self.plan.program.actions[action as usize];
        self.braced(&format!("case {i}: /* {} */", super::parser::comment(&of.name)), |this| {
            for (j, param) in of.params.iter().enumerate() {
                let line = format!("{} = e->arg_{i}_{j};", this.plan.slot(*param));
                this.line(&line);
            }
            this.actions.push(action);
            let done = this.body(&of.body);
            this.actions.pop();
            this.line("break;");
            done
        })
    }

    /// Puts the key together: `key`.
    fn key(&mut self, id: TableId, map: &str, key: &KeyLayout) {
        let table = &self.plan.program.tables[id.0 as usize];
        match key {
            KeyLayout::Exact { bytes, fields } => {
                // In whole words: what reads them after waits long for a word that was written in parts.
                let (kind, word) = if bytes % 8 == 0 { ("u64", 8) } else { ("__u32", 4) };
                self.line(&format!("{kind} key[] = {{"));
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
                    self.line(&line);
                }
                self.line("};");
            }
            KeyLayout::Lpm { bytes, fields, lpm } => {
                for (i, key) in table.keys.iter().enumerate() {
                    self.variable(&format!("key_{i}"), &key.expr);
                }
                let before = (bytes - usize::from(fields[*lpm].1.div_ceil(8))) * 8;
                let length = before + usize::from(fields[*lpm].1);
                self.line(&format!("struct {map}_key key = {{.length = {length}}};"));
                self.line("void *to = key.bytes;");
                self.line("");
                for (i, (at, width)) in fields.iter().enumerate() {
                    let whole = width.div_ceil(8) * 8;
                    // The prefix begins at a byte's highest bit, others end at a byte's lowest.
                    let first = *at as u32 * 8 + if i == *lpm { 0 } else { u32::from(whole - width) };
                    for line in key_bytes("to", first, *width, &format!("key_{i}")) {
                        self.line(&line);
                    }
                }
            }
        }
    }

    /// The structures of a table's map, and the maps.
    pub(super) fn table_maps(&mut self, id: usize) {
        let table = &self.plan.program.tables[id];
        let layout = self.plan.layout.tables[id].clone();
        let map = &layout.map;
        self.construct(format!("table {}", table.name), table.at);
        match &layout.key {
            None => {}
            Some(KeyLayout::Exact { bytes, fields }) => {
                self.line(&format!("struct {map}_key {{"));
                let mut order: Vec<usize> = (0..fields.len()).collect();
                order.sort_by_key(|i| fields[*i].at);
                let mut end = 0;
                for i in order {
                    let width = table.keys[i].expr.ty.width();
                    self.line(&format!(
                        "\t{} key_{i}; /* {} */",
                        holder(width),
                        super::parser::comment(&table.keys[i].name)
                    ));
                    end = fields[i].at + fields[i].bytes;
                }
                if end < *bytes {
                    self.line(&format!("\t__u8 zero[{}];", bytes - end));
                }
                self.line("};");
                self.line("");
                self.line(&format!("_Static_assert(sizeof(struct {map}_key) == {bytes}, \"as the loader has it\");"));
                self.line("");
            }
            Some(KeyLayout::Lpm { bytes, .. }) => {
                self.line(&format!("struct {map}_key {{"));
                self.line("\t__u32 length;");
                self.line(&format!("\t__u8 bytes[{bytes}];"));
                self.line("} __attribute__((packed));");
                self.line("");
            }
        }
        self.line(&format!("struct {map}_value {{"));
        self.line("\t__u32 action;");
        self.line("\t__u32 used;");
        self.line("\tunion {");
        self.line("\t\tu64 none;");
        for (i, (action, places)) in layout.actions.iter().enumerate() {
            let params = &self.plan.program.actions[action.0 as usize].params;
            let mut order: Vec<usize> = (0..places.len()).collect();
            order.sort_by_key(|j| places[*j].at);
            if order.is_empty() {
                continue;
            }
            self.line("\t\tstruct {");
            for j in order {
                let slot = params[j];
                let line = format!(
                    "\t\t\t{} arg_{i}_{j}; /* {} */",
                    holder(self.plan.program.width(slot)),
                    self.plan.name(slot)
                );
                self.line(&line);
            }
            self.line("\t\t};");
        }
        self.line("\t};");
        self.line("};");
        self.line("");
        let value = format!("struct {map}_value");
        self.line(&format!("_Static_assert(sizeof({value}) == {}, \"as the loader has it\");", layout.value_bytes));
        self.line("");
        let key = format!("struct {map}_key");
        match &layout.key {
            None => {}
            Some(KeyLayout::Exact { .. }) => self.map("BPF_MAP_TYPE_HASH", table.size, &key, &value, map, ""),
            Some(KeyLayout::Lpm { .. }) => {
                self.map("BPF_MAP_TYPE_LPM_TRIE", table.size, &key, &value, map, "BPF_F_NO_PREALLOC");
            }
        }
        self.map("BPF_MAP_TYPE_ARRAY", 1, "__u32", &value, &format!("{map}_default"), "");
    }
}

/// What a field adds to the word of a key that begins at this byte, if anything: `PART` of prelude.h.
fn part_of_word(value: &str, place: Place, first: usize, word: usize) -> Option<String> {
    if place.bytes > word {
        // In two words, in the machine's order.
        return match first.checked_sub(place.at) {
            Some(0) => Some(format!("HALF({value}, 0)")),
            Some(8) => Some(format!("HALF({value}, 1)")),
            _ => None,
        };
    }
    (place.at / word * word == first).then(|| format!("PART({value}, {}, {}, {})", place.at - first, place.bytes, word))
}

/// Statements that write a part of a trie's key byte by byte; what is not written there is 0.
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
