//! Line numbers of the guest's own text in the C written by wasm2c, so that the address of a trap gives a source line.
//!
//! ```text
//! guest.wasm ── code ──► steps that may trap, and loops, function by function ─┐ the same steps, in the same order
//! guest.c (of wasm2c) ── statements of these steps ────────────────────────────┴─► `#line` before each statement
//! guest.wasm ── DWARF ──► the line of each step: of the guest's text, also where headers are inlined into it
//! ```
//!
//! wasm2c writes no line numbers, and one statement for each step. If the two sequences of steps differ, as might
//! happen with another version of wasm2c, the function gets no line numbers.

use std::fmt::Write;

use addr2line::{Context, gimli};
use wasmparser::{Operator, Parser, Payload};

use super::is_generated;

/// First statement of each function written by wasm2c, after its variables.
pub(super) const PROLOGUE: &str = "FUNC_PROLOGUE;";

/// File and line in the guest's text.
type Line = (String, u32);

/// Step that can be recognised in WebAssembly and in C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Load,
    Store,
    Divide,
    Convert,
    Unreachable,
    Call,
    Indirect,
    Bulk,
    /// Cannot trap, but may never end.
    Loop,
}

/// C text with the line numbers of the module's debug information; unchanged if there is none.
pub(super) fn with_lines(wasm: &[u8], c: &str) -> String {
    functions(wasm).map_or_else(|| c.to_owned(), |functions| write(c, &functions))
}

/// Function of the module: its first line, and its steps.
struct Function {
    line: Option<Line>,
    steps: Vec<(Step, Option<Line>)>,
}

/// All functions defined in the module, in order.
fn functions(wasm: &[u8]) -> Option<Vec<Function>> {
    let (mut bodies, mut sections, mut code) = (Vec::new(), Vec::new(), 0);
    for payload in Parser::new(0).parse_all(wasm) {
        match payload.ok()? {
            Payload::CodeSectionStart { unchecked_range, .. } => code = unchecked_range.start,
            Payload::CodeSectionEntry(body) => bodies.push(body),
            Payload::CustomSection(section) => sections.push((section.name(), section.data())),
            _ => {}
        }
    }
    let section = |id: gimli::SectionId| {
        let data = sections.iter().find(|(name, _)| *name == id.name()).map_or(&[][..], |(_, data)| data);
        Ok::<_, gimli::Error>(gimli::EndianSlice::new(data, gimli::LittleEndian))
    };
    let context = Context::from_dwarf(gimli::Dwarf::load(section).ok()?).ok()?;
    // Addresses count from the beginning of the code section.
    let line = |offset: u64| line(&context, offset - code);
    let function = |body: &wasmparser::FunctionBody<'_>| {
        let mut operators = body.get_operators_reader().ok()?;
        let (mut steps, mut begins) = (Vec::new(), None);
        let mut alive = Alive::default();
        let mut in_loop = false;
        while !operators.eof() {
            let (operator, offset) = operators.read_with_offset().ok()?;
            begins = begins.or_else(|| line(offset));
            // The beginning of a loop has no line of its own, so the line of its first step is used.
            if let (true, Some((Step::Loop, at))) = (in_loop, steps.last_mut()) {
                *at = line(offset);
            }
            let step = if alive.pass(&operator) { step(&operator) } else { None };
            in_loop = step == Some(Step::Loop);
            if let Some(step) = step {
                steps.push((step, line(offset)));
            }
        }
        Some(Function { line: begins, steps })
    };
    bodies.iter().map(function).collect()
}

/// Innermost source position at an address that is not in a generated file.
fn line<R: gimli::Reader>(context: &Context<R>, address: u64) -> Option<Line> {
    let mut frames = context.find_frames(address).skip_all_loads().ok()?;
    while let Some(frame) = frames.next().ok()? {
        let place = frame.location.and_then(|location| Some((location.file?.to_owned(), location.line?)));
        let known = |(file, line): &Line| *line > 0 && !is_generated(file) && is_name(file);
        if let Some((file, line)) = place.filter(known) {
            return Some((file, line));
        }
    }
    None
}

/// Whether a file name of the guest can be written into C that the host compiles: a line break would end the string and
/// break the containment.
fn is_name(file: &str) -> bool {
    !file.contains(char::is_control)
}

/// Reachability of instructions: wasm2c writes none between a jump and the end of its block.
#[derive(Default)]
struct Alive {
    /// Nesting depth of blocks opened in unreachable code.
    dead_blocks: u32,
    dead: bool,
}

impl Alive {
    fn pass(&mut self, operator: &Operator<'_>) -> bool {
        let opens = matches!(operator, Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. });
        if self.dead {
            match operator {
                _ if opens => self.dead_blocks += 1,
                Operator::End if self.dead_blocks > 0 => self.dead_blocks -= 1,
                Operator::End | Operator::Else if self.dead_blocks == 0 => self.dead = false,
                _ => {}
            }
            return false;
        }
        self.dead = matches!(
            operator,
            Operator::Br { .. } | Operator::BrTable { .. } | Operator::Return | Operator::Unreachable
        );
        true
    }
}

#[rustfmt::skip]
fn step(operator: &Operator<'_>) -> Option<Step> {
    use Operator as O;
    Some(match operator {
        O::I32Load { .. } | O::I64Load { .. } | O::F32Load { .. } | O::F64Load { .. } | O::I32Load8S { .. }
        | O::I32Load8U { .. } | O::I32Load16S { .. } | O::I32Load16U { .. } | O::I64Load8S { .. }
        | O::I64Load8U { .. } | O::I64Load16S { .. } | O::I64Load16U { .. } | O::I64Load32S { .. }
        | O::I64Load32U { .. } => Step::Load,
        O::I32Store { .. } | O::I64Store { .. } | O::F32Store { .. } | O::F64Store { .. } | O::I32Store8 { .. }
        | O::I32Store16 { .. } | O::I64Store8 { .. } | O::I64Store16 { .. } | O::I64Store32 { .. } => Step::Store,
        O::I32DivS | O::I32DivU | O::I32RemS | O::I32RemU | O::I64DivS | O::I64DivU | O::I64RemS
        | O::I64RemU => Step::Divide,
        O::I32TruncF32S | O::I32TruncF32U | O::I32TruncF64S | O::I32TruncF64U | O::I64TruncF32S
        | O::I64TruncF32U | O::I64TruncF64S | O::I64TruncF64U => Step::Convert,
        O::Unreachable => Step::Unreachable,
        O::Call { .. } => Step::Call,
        O::CallIndirect { .. } => Step::Indirect,
        O::MemoryCopy { .. } | O::MemoryFill { .. } => Step::Bulk,
        O::Loop { .. } => Step::Loop,
        _ => return None,
    })
}

/// Step done by a line of wasm2c's C.
fn written(line: &str) -> Option<Step> {
    let line = line.trim();
    if line == "UNREACHABLE;" {
        return Some(Step::Unreachable);
    }
    if line.strip_prefix("w2c_L").is_some_and(|rest| rest.ends_with(':')) {
        return Some(Step::Loop);
    }
    let statement = line.split_once(" = ").filter(|(to, _)| to.starts_with("w2c_")).map_or(line, |(_, value)| value);
    if statement.starts_with("(*Z_") {
        return Some(Step::Call);
    }
    let name = statement.split_once('(')?.0;
    let (ty, operation) = name.split_once('_')?;
    if name.contains(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
        return None;
    }
    match name {
        "I32_DIV_S" | "I64_DIV_S" | "DIV_U" | "I32_REM_S" | "I64_REM_S" | "REM_U" => Some(Step::Divide),
        "CALL_INDIRECT" => Some(Step::Indirect),
        "memory_copy" | "memory_fill" => Some(Step::Bulk),
        _ if ty == "w2c" => Some(Step::Call),
        _ if matches!(ty, "i32" | "i64" | "f32" | "f64") && operation.starts_with("load") => Some(Step::Load),
        _ if matches!(ty, "i32" | "i64" | "f32" | "f64") && operation.starts_with("store") => Some(Step::Store),
        _ if matches!(ty, "I32" | "I64") && operation.starts_with("TRUNC_") && !operation.contains("SAT") => {
            Some(Step::Convert)
        }
        _ => None,
    }
}

fn write(c: &str, functions: &[Function]) -> String {
    let mut out = String::with_capacity(c.len() * 2);
    let mut functions = functions.iter();
    let mut lines = c.lines();
    while let Some(line) = lines.next() {
        if line.trim() != PROLOGUE {
            let _ = writeln!(out, "{line}");
            continue;
        }
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "}").collect();
        let steps = body.iter().filter_map(|line| written(line));
        let function = functions.next().filter(|function| function.steps.iter().map(|(step, _)| *step).eq(steps));
        place(&mut out, function.and_then(|function| function.line.as_ref()));
        let _ = writeln!(out, "{line}");
        let mut known = function.map_or(&[][..], |function| &function.steps).iter();
        for line in body {
            if written(line).is_some() {
                place(&mut out, known.next().and_then(|(_, line)| line.as_ref()));
            }
            let _ = writeln!(out, "{line}");
        }
        out.push_str("#line 1 \"guest.c\"\n}\n");
    }
    out
}

fn place(out: &mut String, line: Option<&Line>) {
    if let Some((file, line)) = line.filter(|(file, _)| is_name(file)) {
        let file = file.replace('\\', "\\\\").replace('"', "\\\"");
        let _ = writeln!(out, "#line {line} \"{file}\"");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wasm2c_statements_are_recognised() {
        for (line, step) in [
            ("  w2c_i0 = i32_load8_u(&instance->w2c_memory, (u64)(w2c_i0) + 8u);", Some(Step::Load)),
            ("  i64_store32(&instance->w2c_memory, (u64)(w2c_i0), w2c_j1);", Some(Step::Store)),
            ("  w2c_i0 = DIV_U(w2c_i0, w2c_i1);", Some(Step::Divide)),
            ("  w2c_i0 = I32_TRUNC_S_F64(w2c_d0);", Some(Step::Convert)),
            ("  w2c_i0 = I32_TRUNC_SAT_S_F64(w2c_d0);", None),
            ("  UNREACHABLE;", Some(Step::Unreachable)),
            ("  w2c_L1: ", Some(Step::Loop)),
            ("  w2c_i0 <<= (w2c_i1 & 31);", None),
            ("  w2c_i0 = !(w2c_i0);", None),
            ("  w2c_B1:;", None),
            ("  w2c_i32_load(instance, w2c_i0);", Some(Step::Call)),
            ("  w2c_j0 = (*Z_envZ_pc_host)(instance->Z_env_instance, w2c_i0);", Some(Step::Call)),
            ("  goto w2c_L1;", None),
        ] {
            assert_eq!(written(line), step, "{line}");
        }
    }

    #[test]
    fn function_with_other_steps_in_c_than_in_wasm_gets_no_lines() {
        let c = "int f() {\n  FUNC_PROLOGUE;\n  UNREACHABLE;\n}\nint g() {\n  FUNC_PROLOGUE;\n  UNREACHABLE;\n}\n";
        let at = |line| Some(("a.p4c".to_owned(), line));
        let functions = [
            Function { line: at(3), steps: vec![(Step::Loop, at(4))] },
            Function { line: None, steps: vec![(Step::Unreachable, at(7))] },
        ];
        let out = write(c, &functions);
        assert!(!out.contains("#line 4") && out.contains("#line 7 \"a.p4c\"\n  UNREACHABLE;"), "{out}");
    }

    #[test]
    fn file_name_with_line_break_is_omitted() {
        let c = "int f() {\n  FUNC_PROLOGUE;\n  UNREACHABLE;\n}\n";
        let out = |file: &str| {
            let at = Some((file.to_owned(), 7));
            write(c, &[Function { line: at.clone(), steps: vec![(Step::Unreachable, at)] }])
        };
        for file in ["x\\\n\"\nint evil;\n//", "x\\\r\n\"\r\nint evil;\r\n//", "x\u{b}", "\0"] {
            let out = out(file);
            assert!(out.lines().all(|line| line.trim() != "int evil;") && !out.contains("#line 7"), "{out}");
        }
        assert!(out("a\\\"b").contains("#line 7 \"a\\\\\\\"b\"\n"));
    }
}
