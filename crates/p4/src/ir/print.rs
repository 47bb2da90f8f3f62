//! Text form of a program, for tests, `explain` and inspection.
//!
//! ```text
//! table pre.nat_out: key hdr.ipv4.src exact; actions pre.rewrite, NoAction; default NoAction(); size 65536; mirrored
//! ingress
//!   apply pre.nat_out hit tmp
//!   if (!tmp)
//!     flight = 1
//! ```

use super::{
    Block, CSource, Expr, ExprKind, Keyset, MatchKind, Parser, Program, Stmt, StmtKind, Table, Transition, Ty, Unary,
};
use std::fmt::{self, Display, Formatter, Write};

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "program {}", self.name)?;
        for slot in &self.slots {
            writeln!(f, "slot {}: {} {:?}", slot.name, slot.ty, slot.kind)?;
        }
        for header in &self.headers {
            let varbit = header.varbit_bits_max.map_or_else(String::new, |max| format!(", varbit<{max}>"));
            let fields: Vec<String> = header.fields.iter().map(|slot| self.slot_name(*slot).to_owned()).collect();
            writeln!(f, "header {}: {} ({}{varbit})", header.name, header.type_name, fields.join(", "))?;
        }
        for register in &self.registers {
            let mirrored = if register.mirrored { " mirrored" } else { "" };
            writeln!(f, "register {}: {}[{}]{mirrored}", register.name, register.ty, register.size)?;
        }
        for counter in &self.counters {
            writeln!(f, "counter {}[{}]", counter.name, counter.size)?;
        }
        for partition in &self.partitions {
            writeln!(f, "partition {}: {} {}..{}", partition.name, partition.ty, partition.first, partition.last)?;
        }
        for action in &self.actions {
            let params: Vec<&str> = action.params.iter().map(|slot| self.slot_name(*slot)).collect();
            writeln!(f, "action {}({})", action.name, params.join(", "))?;
            f.write_str(&self.block(&action.body))?;
        }
        for table in &self.tables {
            writeln!(f, "table {}", self.table(table))?;
        }
        f.write_str(&self.states(&self.parser))?;
        for (name, block) in
            [("verify", &self.verify), ("ingress", &self.ingress), ("egress", &self.egress), ("compute", &self.compute)]
        {
            if !block.is_empty() {
                writeln!(f, "{name}\n{}", self.block(block).trim_end())?;
            }
        }
        let headers: Vec<&str> = self.deparser.iter().map(|header| self.header_name(*header)).collect();
        writeln!(f, "deparser {}", headers.join(", "))?;
        if let Some(handler) = &self.handler {
            let names = |slots: &[super::SlotId]| {
                let names: Vec<&str> = slots.iter().map(|slot| self.slot_name(*slot)).collect();
                names.join(", ")
            };
            writeln!(f, "handler request ({}) response ({})", names(&handler.request), names(&handler.response))?;
            writeln!(f, "  flow ({}) flight {}", names(&handler.flow), self.slot_name(handler.flight))?;
            let lines = |source: &CSource| source.text.lines().count();
            writeln!(f, "  C: {} lines of state, {} of the handler", lines(&handler.state), lines(&handler.body))?;
        }
        Ok(())
    }
}

impl Program {
    /// Name of a slot.
    #[must_use]
    pub fn slot_name(&self, slot: super::SlotId) -> &str {
        &self.slots[slot.0 as usize].name
    }

    /// Name of a header.
    #[must_use]
    pub fn header_name(&self, header: super::HeaderId) -> &str {
        &self.headers[header.0 as usize].name
    }

    /// Statements as text, one per line.
    #[must_use]
    pub fn block(&self, block: &Block) -> String {
        let mut out = String::new();
        self.lines(block, 1, &mut out);
        out
    }

    fn lines(&self, block: &Block, depth: usize, out: &mut String) {
        for stmt in block {
            let _ = writeln!(out, "{:1$}{2}", "", depth * 2, self.stmt(stmt));
            match &stmt.kind {
                StmtKind::If { then, otherwise, .. } => {
                    self.lines(then, depth + 1, out);
                    if !otherwise.is_empty() {
                        let _ = writeln!(out, "{:1$}else", "", depth * 2);
                        self.lines(otherwise, depth + 1, out);
                    }
                }
                StmtKind::Body(body) => self.lines(body, depth + 1, out),
                _ => {}
            }
        }
    }

    /// Statement as text, without nested statements.
    #[must_use]
    pub fn stmt(&self, stmt: &Stmt) -> String {
        let name = |slot: &super::SlotId| self.slot_name(*slot).to_owned();
        let list = |values: &[Expr]| values.iter().map(|value| self.expr(value)).collect::<Vec<_>>().join(", ");
        let register = |id: &super::RegisterId| &self.registers[id.0 as usize].name;
        match &stmt.kind {
            StmtKind::Assign { to, value } => format!("{} = {}", name(to), self.expr(value)),
            StmtKind::SetValid { header, valid } => {
                format!("{} {}", if *valid { "valid" } else { "invalid" }, self.header_name(*header))
            }
            StmtKind::If { condition, .. } => format!("if ({})", self.expr(condition)),
            StmtKind::Apply { table, hit, action } => {
                let hit = hit.as_ref().map_or_else(String::new, |slot| format!(" hit {}", name(slot)));
                let action = action.as_ref().map_or_else(String::new, |slot| format!(" action {}", name(slot)));
                format!("apply {}{hit}{action}", self.tables[table.0 as usize].name)
            }
            StmtKind::Body(_) => "body".to_owned(),
            StmtKind::Return => "return".to_owned(),
            StmtKind::Exit => "exit".to_owned(),
            StmtKind::Read { register: id, index, to } => {
                format!("{} = {}[{}]", name(to), register(id), self.expr(index))
            }
            StmtKind::Write { register: id, index, value } => {
                format!("{}[{}] = {}", register(id), self.expr(index), self.expr(value))
            }
            StmtKind::Update { register: id, index, op, operand, to } => {
                let to = to.as_ref().map_or_else(String::new, |slot| format!("{} = ", name(slot)));
                format!("{to}{}[{}] {}= {}", register(id), self.expr(index), op.symbol(), self.expr(operand))
            }
            StmtKind::Count { counter, index } => {
                format!("count {}[{}]", self.counters[counter.0 as usize].name, self.expr(index))
            }
            StmtKind::Hash { to, algorithm, base, inputs, max } => {
                let (base, max) = (self.expr(base), self.expr(max));
                format!("{} = {base} + {algorithm:?}({}) % {max}", name(to), list(inputs))
            }
            StmtKind::Checksum { condition, to, algorithm, inputs, payload } => {
                let payload = if *payload { ", payload" } else { "" };
                let condition = self.expr(condition);
                format!("{} = {algorithm:?}({}{payload}) if {condition}", name(to), list(inputs))
            }
            StmtKind::Verify { condition, expected, algorithm, inputs, payload } => {
                let payload = if *payload { ", payload" } else { "" };
                let (condition, expected) = (self.expr(condition), self.expr(expected));
                format!("verify {expected} == {algorithm:?}({}{payload}) if {condition}", list(inputs))
            }
            StmtKind::Extract { header, varbits } => {
                let varbits = varbits.as_ref().map_or_else(String::new, |bits| format!(" varbit {}", self.expr(bits)));
                format!("extract {}{varbits}", self.header_name(*header))
            }
            StmtKind::Advance(bits) => format!("advance {}", self.expr(bits)),
            StmtKind::Require { condition, error } => format!("require {} error {error}", self.expr(condition)),
            StmtKind::Digest { name, values } => format!("digest {name}({})", list(values)),
            StmtKind::Clone { session } => format!("clone {}", self.expr(session)),
            StmtKind::Recirculate => "recirculate".to_owned(),
            StmtKind::Truncate(length) => format!("truncate {}", self.expr(length)),
            StmtKind::Steer { partition, value } => format!("steer {partition} {}", self.expr(value)),
            StmtKind::Remote => "remote".to_owned(),
        }
    }

    /// Expression as text.
    #[must_use]
    pub fn expr(&self, expr: &Expr) -> String {
        match &expr.kind {
            ExprKind::Const(value) if *value > 0xffff => format!("{value:#x}"),
            ExprKind::Const(value) => value.to_string(),
            ExprKind::Slot(slot) => self.slot_name(*slot).to_owned(),
            ExprKind::Valid(header) => format!("valid({})", self.header_name(*header)),
            ExprKind::Lookahead { skip } => format!("lookahead({skip}, {})", expr.ty),
            ExprKind::Unary(op, of) => {
                let op = match op {
                    Unary::Not => '!',
                    Unary::Complement => '~',
                    Unary::Negate => '-',
                };
                format!("{op}{}", self.expr(of))
            }
            ExprKind::Binary(op, left, right) => {
                format!("({} {} {})", self.expr(left), op.symbol(), self.expr(right))
            }
            ExprKind::Slice { of, high, low } => format!("{}[{high}:{low}]", self.expr(of)),
            ExprKind::Cast(of) => format!("({}){}", expr.ty, self.expr(of)),
            ExprKind::Mux(condition, then, otherwise) => {
                format!("({} ? {} : {})", self.expr(condition), self.expr(then), self.expr(otherwise))
            }
        }
    }

    fn table(&self, table: &Table) -> String {
        let mut out = format!("{}:", table.name);
        for key in &table.keys {
            let kind = if key.kind == MatchKind::Exact { "exact" } else { "lpm" };
            let _ = write!(out, " key {} {kind} `{}`;", self.expr(&key.expr), key.name);
        }
        let name = |id: &super::ActionId| self.actions[id.0 as usize].name.as_str();
        let actions: Vec<&str> = table.actions.iter().map(name).collect();
        let (default, args) = &table.default;
        let _ = write!(out, " actions {}; default {}{args:?}; size {}", actions.join(", "), name(default), table.size);
        if table.mirrored {
            out.push_str("; mirrored");
        }
        if let Some(idle) = table.idle_timeout_ms {
            let _ = write!(out, "; idle {idle} ms");
        }
        for entry in &table.entries {
            let keys: Vec<String> =
                entry.keys.iter().map(|key| format!("{:#x}/{}", key.value, key.prefix_bits)).collect();
            let _ = write!(out, "\n  ({}) {}{:?}", keys.join(", "), name(&entry.action), entry.args);
        }
        out
    }

    fn states(&self, parser: &Parser) -> String {
        let mut out = String::new();
        for state in &parser.states {
            let _ = writeln!(out, "state {}", state.name);
            out.push_str(&self.block(&state.body));
            match &state.next {
                Transition::Select { keys, cases } => {
                    let keys: Vec<String> = keys.iter().map(|key| self.expr(key)).collect();
                    let _ = writeln!(out, "  select {}", keys.join(", "));
                    for (values, next) in cases {
                        let values: Vec<String> = values.iter().map(value).collect();
                        let _ = writeln!(out, "    {}: {}", values.join(", "), target(parser, next));
                    }
                }
                next => {
                    let _ = writeln!(out, "  {}", target(parser, next));
                }
            }
        }
        out
    }
}

fn target(parser: &Parser, transition: &Transition) -> String {
    match transition {
        Transition::Accept => "accept".to_owned(),
        Transition::Reject(error) => format!("reject {error}"),
        Transition::To(id) => format!("to {}", parser.states[id.0 as usize].name),
        Transition::Select { .. } => "select".to_owned(),
    }
}

fn value(value: &Keyset) -> String {
    match value {
        Keyset::Any => "_".to_owned(),
        Keyset::Mask(value, mask) => format!("{value:#x}/{mask:#x}"),
        Keyset::Range(first, last) => format!("{first}..{last}"),
    }
}

impl Display for Ty {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("bool"),
            Self::Bit(width) => write!(f, "bit<{width}>"),
            Self::Int(width) => write!(f, "int<{width}>"),
            Self::Float => f.write_str("float"),
        }
    }
}
