//! C interface of a handler: layout of the shared memory, and the C text that is compiled.
//!
//! ```text
//! pathcall.h │ structs, tables, registers, partitions │ #defines │ state { … } │ remote_handler { … } │ pc_enter
//! ```
//!
//! The program's own text is preceded by `#line` directives, so that compiler messages point into the program's file.

use std::fmt::Write;

use super::{InterfaceError, PARAMETER_BYTES_MAX, c_scan::calls_function, expr_to_c::expr_to_c};
use crate::mirror::layout::{Struct, TableLayout, members, size};
use pathcall_p4::ir::{CSource, HandlerDecl, Program, RegisterId, SlotId, SourceSpan, StmtKind, TableId, Ty};

/// Size of `struct pc_front`, bytes.
const FRONT_BYTES: usize = 16;

/// Lookup of a source position: file name, line and column, both from 1.
pub type LocateSource<'a> = &'a dyn Fn(SourceSpan) -> Option<(String, usize, usize)>;

/// C interface between a handler and its host.
#[derive(Debug, Clone, PartialEq)]
pub struct CInterface {
    /// Complete C text.
    pub text: String,
    /// Layout of the request parameters.
    pub request: Struct,
    /// Layout of the response values.
    pub response: Struct,
    /// Layouts of the mirrored tables, in the program's order; the handler's number of a table is its index here.
    pub tables: Vec<TableLayout>,
    /// Mirrored registers, indexed like the tables.
    pub registers: Vec<RegisterId>,
    /// Offset of the request in the shared memory.
    pub request_offset: usize,
    /// Offset of the response in the shared memory.
    pub response_offset: usize,
    /// Offset of the expired entry in the shared memory.
    pub entry_offset: usize,
    /// Size of the shared memory, bytes.
    pub area_bytes: usize,
    /// For each table, whether the handler receives its expired entries.
    pub expired: Vec<bool>,
}

impl CInterface {
    /// Builds the C interface of `program`'s handler; `locate` gives source positions.
    pub fn new(program: &Program, locate: LocateSource<'_>) -> Result<Self, InterfaceError> {
        let handler = program.handler.as_ref().ok_or(InterfaceError::NoHandler)?;
        let (request, response) =
            (struct_of_slots(program, &handler.request), struct_of_slots(program, &handler.response));
        let got = request.bytes.max(response.bytes);
        if got > PARAMETER_BYTES_MAX {
            return Err(InterfaceError::Parameters { got });
        }
        let mirrored = program.tables.iter().enumerate().filter(|(_, table)| table.mirrored);
        let mut tables =
            mirrored.map(|(id, _)| TableLayout::new(program, TableId(id as u32))).collect::<Result<Vec<_>, _>>()?;
        let names = members(tables.iter().map(|table| table.name.as_str()));
        tables.iter_mut().zip(&names).for_each(|(table, name)| table.name.clone_from(name));
        let mirrored = program.registers.iter().enumerate().filter(|(_, register)| register.mirrored);
        let registers: Vec<_> = mirrored.map(|(id, _)| RegisterId(id as u32)).collect();
        let request_offset = FRONT_BYTES;
        let response_offset = request_offset + request.bytes.max(1).next_multiple_of(8);
        let entry_offset = response_offset + response.bytes.max(1).next_multiple_of(8);
        let entry_bytes = tables.iter().map(|table| table.bytes).max().unwrap_or(0);
        let area_bytes = entry_offset + entry_bytes.max(8).next_multiple_of(8);
        let wants = |name: &str| calls_function(&handler.state.text, name);
        let expired = tables.iter().map(|table| wants(&format!("remote_expired_{}", table.name))).collect();
        let mut interface = Self {
            text: String::new(),
            request,
            response,
            tables,
            registers,
            request_offset,
            response_offset,
            entry_offset,
            area_bytes,
            expired,
        };
        interface.text = interface.write(program, handler, locate)?;
        Ok(interface)
    }

    fn write(
        &self,
        program: &Program,
        handler: &HandlerDecl,
        locate: LocateSource<'_>,
    ) -> Result<String, InterfaceError> {
        let mut c = String::from("#line 1 \"<pathcall.h>\"\n");
        c.push_str(include_str!("pathcall.h"));
        c.push_str("#line 1 \"<function.h>\"\n");
        write_struct(&mut c, "request", &self.request);
        write_struct(&mut c, "response", &self.response);
        for table in &self.tables {
            write_entry(&mut c, table);
        }
        self.write_area(&mut c);
        for (index, table) in self.tables.iter().enumerate() {
            write_table_functions(&mut c, index, table);
            c.push_str(&apply_function(table, program, self).unwrap_or_default());
        }
        self.write_registers(&mut c, program)?;
        let names = members(program.partitions.iter().map(|partition| partition.name.as_str()));
        names.iter().zip(&program.partitions).for_each(|(name, partition)| write_partition(&mut c, name, partition.ty));
        c.push_str(&handler.defines);
        write_source(&mut c, &handler.state, locate);
        c.push_str(
            "#line 1 \"<handler.h>\"\nstatic void pc_handle(const struct request *req, struct response *res)\n{\n",
        );
        c.push_str("(void)req; (void)res;\n");
        write_source(&mut c, &handler.body, locate);
        c.push_str("#line 1 \"<enter.h>\"\n}\n");
        self.write_enter(&mut c, handler, &names);
        Ok(c)
    }

    fn write_area(&self, c: &mut String) {
        c.push_str("static struct {\n    struct pc_front front;\n");
        c.push_str("    _Alignas(8) struct request request;\n    _Alignas(8) struct response response;\n");
        c.push_str("    _Alignas(8) union {\n        uint64_t none;\n");
        for table in &self.tables {
            let _ = writeln!(c, "        struct {0}_entry {0};", table.name);
        }
        c.push_str("    } entry;\n} pc_the_area;\n");
        let offsets =
            [("request", self.request_offset), ("response", self.response_offset), ("entry", self.entry_offset)];
        for (member, offset) in offsets {
            let _ = writeln!(
                c,
                "_Static_assert(offsetof(__typeof__(pc_the_area), {member}) == {offset}, \"layout of the area\");"
            );
        }
        let _ = writeln!(c, "_Static_assert(sizeof pc_the_area == {}, \"size of the area\");", self.area_bytes);
        c.push_str("const uint32_t pc_area_bytes = sizeof pc_the_area;\n");
        c.push_str("void *pc_area(void) { return &pc_the_area; }\n");
        c.push_str("static inline uint64_t now_ms(void) { return pc_the_area.front.now_ms; }\n");
        c.push_str(PACKET);
    }

    fn write_registers(&self, c: &mut String, program: &Program) -> Result<(), InterfaceError> {
        let names = members(self.registers.iter().map(|id| program.registers[id.0 as usize].name.as_str()));
        for (index, (id, name)) in self.registers.iter().zip(names).enumerate() {
            let register = &program.registers[id.0 as usize];
            if register.ty.width() > 64 {
                return Err(InterfaceError::Register { register: register.name.clone(), got: register.ty.width() });
            }
            let ty = c_type(register.ty);
            let _ = write!(
                c,
                "static inline {ty} {name}_read(uint32_t index)\n{{\n    \
                 return ({ty})pc_host(PC_READ, {index}, 0, 0, 0, 0, index);\n}}\n\
                 static inline void {name}_write(uint32_t index, {ty} value)\n{{\n    \
                 uint64_t cell = (uint64_t)value;\n    \
                 pc_host(PC_WRITE, {index}, &cell, sizeof cell, 0, 0, index);\n}}\n"
            );
        }
        Ok(())
    }

    fn write_enter(&self, c: &mut String, handler: &HandlerDecl, partitions: &[String]) {
        let has = |name: &str| calls_function(&handler.state.text, name);
        c.push_str("void pc_enter(uint32_t entry, uint32_t argument)\n{\n    pc_packet_is_here = false;\n");
        c.push_str("    (void)argument;\n    switch (entry) {\n    case PC_START:\n");
        for (index, name) in partitions.iter().enumerate() {
            let _ = writeln!(c, "        pc_host(PC_RANGES, {index}, 0, 0, &{name}_ranges, sizeof {name}_ranges, 0);");
        }
        if has("remote_start") {
            c.push_str("        remote_start();\n");
        }
        c.push_str(
            "        break;\n    case PC_CALL:\n        pc_handle(&pc_the_area.request, &pc_the_area.response);\n",
        );
        c.push_str("        break;\n    case PC_EXPIRED:\n");
        for (index, table) in self.tables.iter().enumerate().filter(|(index, _)| self.expired[*index]) {
            let name = &table.name;
            let _ = writeln!(c, "        if (argument == {index}) remote_expired_{name}(&pc_the_area.entry.{name});");
        }
        c.push_str("        break;\n    case PC_CHANGED:\n");
        for (index, name) in partitions.iter().enumerate() {
            let _ = writeln!(c, "        if (argument == {index}) {{");
            let _ =
                writeln!(c, "            pc_host(PC_RANGES, {index}, 0, 0, &{name}_ranges, sizeof {name}_ranges, 0);");
            let hook = format!("remote_{name}_changed");
            if has(&hook) {
                let _ = writeln!(c, "            {hook}();");
            }
            c.push_str("        }\n");
        }
        c.push_str("        break;\n    }\n}\n");
    }
}

const PACKET: &str = "\
/* Bytes of the received packet from `offset` on; NULL beyond its end, or beyond PC_PACKET_MAX. */
static inline const uint8_t *packet(uint32_t offset, uint32_t length)
{
    uint32_t bytes = pc_the_area.front.packet_bytes;
    if (bytes > PC_PACKET_MAX)
        bytes = PC_PACKET_MAX;
    if (offset > bytes || length > bytes - offset)
        return 0;
    if (!pc_packet_is_here)
        pc_host(PC_PACKET, 0, 0, 0, pc_packet, bytes, 0);
    pc_packet_is_here = true;
    return pc_packet + offset;
}
static inline uint32_t packet_length(void) { return pc_the_area.front.packet_bytes; }
";

/// Layout of the slots' values as a C struct.
fn struct_of_slots(program: &Program, slots: &[SlotId]) -> Struct {
    let mut of = Struct { align: 1, ..Struct::default() };
    let names = members(slots.iter().map(|slot| program.slots[slot.0 as usize].name.as_str()));
    for (slot, name) in slots.iter().zip(names) {
        of.push(name, program.slots[slot.0 as usize].ty);
    }
    of
}

/// C type of a value of up to 64 bits; wider values are byte arrays.
fn c_type(ty: Ty) -> String {
    match (ty, size(ty).0) {
        (Ty::Float, _) => "float".into(),
        (_, bytes) if ty.width() <= 64 => format!("{}int{}_t", if ty.signed() { "" } else { "u" }, bytes * 8),
        _ => "uint8_t".into(),
    }
}

fn write_members(c: &mut String, of: &Struct, indent: &str) {
    for field in &of.fields {
        let array = if field.ty.width() > 64 { format!("[{}]", size(field.ty).0) } else { String::new() };
        let _ = writeln!(c, "{indent}{} {}{array};", c_type(field.ty), field.name);
    }
}

fn write_struct(c: &mut String, name: &str, of: &Struct) {
    let _ = writeln!(c, "struct {name} {{");
    write_members(c, of, "    ");
    c.push_str("};\n");
    let _ = writeln!(c, "_Static_assert(sizeof(struct {name}) == {}, \"layout of {name}\");", of.bytes);
}

fn write_entry(c: &mut String, table: &TableLayout) {
    let name = &table.name;
    write_struct(c, &format!("{name}_key"), &table.key);
    let _ = writeln!(c, "enum {name}_action {{");
    for (index, action) in table.actions.iter().enumerate() {
        let _ = writeln!(c, "    {name}_{} = {index},", action.name);
    }
    let _ = writeln!(c, "}};\nstruct {name}_entry {{\n    struct {name}_key key;\n    uint32_t action;\n    union {{");
    for action in table.actions.iter().filter(|action| !action.args.fields.is_empty()) {
        c.push_str("        struct {\n");
        write_members(c, &action.args, "            ");
        let _ = writeln!(c, "        }} {};", action.name);
    }
    c.push_str("    };\n};\n");
    let _ = writeln!(
        c,
        "_Static_assert(sizeof(struct {name}_entry) == {} && offsetof(struct {name}_entry, action) == {}, \"layout of {name}\");",
        table.bytes, table.action_offset
    );
}

fn write_table_functions(c: &mut String, index: usize, table: &TableLayout) {
    let text = "\
static inline bool T_find(const struct T_key *key, struct T_entry *entry)
{
    return pc_host(PC_LOOKUP, N, key, sizeof *key, entry, sizeof *entry, 0);
}
/* Matching entry, in one of four buffers that are used in turn; NULL if there is none. */
static inline const struct T_entry *T_lookup(const struct T_key *key)
{
    static struct T_entry found[4];
    static uint32_t turn;
    struct T_entry *entry = &found[turn++ % 4];
    return T_find(key, entry) ? entry : 0;
}
/* Expires after `idle_ms` milliseconds without use; 0: the table's own time. False if the table is full. */
static inline bool T_insert(const struct T_entry *entry, uint64_t idle_ms)
{
    return pc_host(PC_INSERT, N, entry, sizeof *entry, 0, 0, idle_ms);
}
static inline bool T_remove(const struct T_key *key) { return pc_host(PC_REMOVE, N, key, sizeof *key, 0, 0, 0); }
static inline bool T_timeout(const struct T_key *key, uint64_t idle_ms)
{
    return pc_host(PC_TIMEOUT, N, key, sizeof *key, 0, 0, idle_ms);
}
static inline uint32_t T_count(void) { return (uint32_t)pc_host(PC_ENTRIES, N, 0, 0, 0, 0, 0); }
/* Next entry of an iteration; the cursor is 0 at first. False after the last. */
static inline bool T_next(uint64_t *cursor, struct T_entry *entry)
{
    uint64_t next = pc_host(PC_NEXT, N, 0, 0, entry, sizeof *entry, *cursor);
    if (next)
        *cursor = next;
    return next;
}
";
    c.push_str(&text.replace("T_", &format!("{}_", table.name)).replace(", N,", &format!(", {index},")));
}

/// C text of `T_apply`; `None` unless the key consists of request parameters and the actions can be written in C (CLIP
/// §IV-C).
fn apply_function(table: &TableLayout, program: &Program, interface: &CInterface) -> Option<String> {
    let handler = program.handler.as_ref()?;
    let member = |slots: &[SlotId], of: &Struct, base: &str, slot: SlotId| {
        let at = slots.iter().position(|other| *other == slot)?;
        Some(format!("{base}->{}", of.fields[at].name))
    };
    let requested = |slot| member(&handler.request, &interface.request, "req", slot);
    let name = &table.name;
    let mut text = format!(
        "/* Looks up the key of the request, and runs the action. */\n\
         static inline bool {name}_apply(const struct request *req, struct response *res)\n{{\n    \
         struct {name}_key key = {{0}};\n    struct {name}_entry entry;\n    (void)req; (void)res;\n"
    );
    for (part, key) in table.keys.iter().zip(&program.tables[table.id.0 as usize].keys) {
        let value = expr_to_c(&key.expr, &requested)?;
        let _ = writeln!(text, "    key.{} = {value};", table.key.fields[part.value].name);
    }
    let _ = write!(text, "    if (!{name}_find(&key, &entry))\n        return false;\n    switch (entry.action) {{\n");
    for action in &table.actions {
        let _ = writeln!(text, "    case {name}_{}:", action.name);
        let of_action = |slot: SlotId| {
            let params = &program.actions[action.id.0 as usize].params;
            let at = params.iter().position(|param| *param == slot)?;
            let is_number = action.args.fields[at].ty.width() <= 64;
            is_number.then(|| format!("entry.{}.{}", action.name, action.args.fields[at].name))
        };
        let known = |slot| of_action(slot).or_else(|| requested(slot));
        write_statements(&mut text, &program.actions[action.id.0 as usize].body, &known, &|slot| {
            member(&handler.response, &interface.response, "res", slot)
        })?;
        text.push_str("        break;\n");
    }
    text.push_str("    }\n    return true;\n}\n");
    Some(text)
}

fn write_statements(
    text: &mut String,
    block: &[pathcall_p4::ir::Stmt],
    known: &dyn Fn(SlotId) -> Option<String>,
    result: &dyn Fn(SlotId) -> Option<String>,
) -> Option<()> {
    for statement in block {
        match &statement.kind {
            StmtKind::Assign { to, value } => {
                let (to, value) = (
                    result(*to)?,
                    match value {
                        // A floating-point value is copied as it is.
                        pathcall_p4::ir::Expr { ty: Ty::Float, kind: pathcall_p4::ir::ExprKind::Slot(slot) } => {
                            known(*slot)?
                        }
                        value => expr_to_c(value, known)?,
                    },
                );
                let _ = writeln!(text, "        {to} = {value};");
            }
            StmtKind::Body(inner) => write_statements(text, inner, known, result)?,
            _ => return None,
        }
    }
    Some(())
}

fn write_partition(c: &mut String, name: &str, ty: Ty) {
    let text = "\
/* Values of P that belong to this server. */
static struct { uint32_t count; struct pc_range at[PC_RANGES_MAX]; } P_ranges;
static inline uint64_t P_count(void)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < P_ranges.count; i++)
        count += P_ranges.at[i].last - P_ranges.at[i].first + 1;
    return count;
}
/* Value with this number, from 0; 0 for numbers beyond the last. */
static inline VALUE P_at(uint64_t number)
{
    for (uint32_t i = 0; i < P_ranges.count; i++) {
        uint64_t here = P_ranges.at[i].last - P_ranges.at[i].first + 1;
        if (number < here)
            return (VALUE)(P_ranges.at[i].first + number);
        number -= here;
    }
    return 0;
}
static inline bool P_owns(uint64_t value)
{
    for (uint32_t i = 0; i < P_ranges.count; i++)
        if (value >= P_ranges.at[i].first && value <= P_ranges.at[i].last)
            return true;
    return false;
}
";
    let ty = if ty.width() > 64 { "uint64_t".into() } else { c_type(ty) };
    c.push_str(
        &text.replace("VALUE", &ty).replace("P_", &format!("{name}_")).replace(" of P ", &format!(" of {name} ")),
    );
}

/// Appends the program's own C text with its `#line` directives.
fn write_source(c: &mut String, source: &CSource, locate: LocateSource<'_>) {
    if let Some((file, line, column)) = locate(source.at) {
        // A line break would end the string literal.
        let file = file.replace(char::is_control, "?").replace('\\', "\\\\").replace('"', "\\\"");
        let _ = writeln!(c, "\n#line {line} \"{file}\"");
        c.extend(std::iter::repeat_n(' ', column.saturating_sub(1)));
    }
    c.push_str(&source.text);
    c.push('\n');
}
