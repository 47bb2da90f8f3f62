//! `function-table4`: resources of the generated parts in an element (CLIP Table IV), with the compiler's default
//! sizes; and lines of each function that its user has written, compared with the generated ones.

use std::path::PathBuf;

use anyhow::{Context, Result};
use pathcall_p4::emit::{p4, xdp};
use pathcall_p4::ir::Program;

use crate::function::parts::CompiledFunction;
use crate::harness::{Bench, Better, Figure, Kind, Metric};

pub(crate) const FIGURE: Figure = Figure {
    name: "function-table4",
    about: "what generated parts take of the element; lines written, lines generated",
    kind: Kind::Counted,
    run,
};

/// Entries of an element's mirrored tables; few, as for the paper's resources.
const ENTRIES: u32 = 1024;
/// Maximum lines of one of the paper's functions.
const LINES: f64 = 150.0;

/// Modules of the paper, with name prefixes of their tables and registers. The modules for ordering and for value
/// transfer exist only here.
const MODULES: [(&str, &[&str]); 4] = [
    ("selecting", &["pc.sketch", "pc.met", "pc.totals", "pc.threshold"]),
    ("scalability", &["pc.filter", "pc.groups", "pc.group", "pc.owner"]),
    ("forwarding", &["pc.servers", "pc.address"]),
    ("order and handing over", &["pc.flying", "pc.state", "pc.gone", "pc.force", "pc.used"]),
];

fn run(bench: &mut Bench) -> Result<()> {
    for (name, title) in [("snat", "SNAT"), ("fib", "FIB"), ("trd", "TRD")] {
        let function = CompiledFunction::read(name, ENTRIES)?;
        memory(bench, title, &function);
        lines(bench, title, name, &function)?;
    }
    Ok(())
}

/// Bits of registers, and of tables' keys and arguments, relative to the whole element.
fn memory(bench: &mut Bench, title: &str, function: &CompiledFunction) {
    let element = &function.split.element;
    let all = kib(element, &|_| true);
    for (module, names) in MODULES {
        let of_module = |name: &str| {
            // `pc.groups` and `pc.group` are both full names; arrays of a kind are numbered.
            names.iter().any(|begin| name.strip_prefix(begin).is_some_and(|rest| rest.len() <= 2 && rest != "s"))
        };
        let metric = Metric::new(format!("{title}: {module}, memory"), "the element", "KiB", Better::Lower);
        bench.row(metric, &[kib(element, &of_module)], &[all]);
    }
    let (before, after) = function.split.report.stages;
    let metric = Metric::new(format!("{title}: stages, split"), "the function alone", "stages", Better::Lower);
    bench.row(metric, &[f64::from(after)], &[f64::from(before)]);
}

fn kib(program: &Program, wanted: &dyn Fn(&str) -> bool) -> f64 {
    let registers = program.registers.iter().filter(|register| wanted(&register.name));
    let registers: u64 = registers.map(|register| u64::from(register.size) * u64::from(register.ty.width())).sum();
    let tables = program.tables.iter().filter(|table| wanted(&table.name)).map(|table| {
        let keys: u64 = table.keys.iter().map(|key| u64::from(key.expr.ty.width())).sum();
        let arguments = table.actions.iter().map(|action| {
            let params = &program.actions[action.0 as usize].params;
            params.iter().map(|slot| u64::from(program.width(*slot))).sum::<u64>()
        });
        u64::from(table.size) * (keys + arguments.max().unwrap_or(0))
    });
    (registers + tables.sum::<u64>()) as f64 / 8.0 / 1024.0
}

/// Lines of code, without comments and empty lines.
fn lines(bench: &mut Bench, title: &str, name: &str, function: &CompiledFunction) -> Result<()> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../functions").join(format!("{name}.p4c"));
    let written = count(&std::fs::read_to_string(&path).with_context(|| path.display().to_string())?);
    let element = &function.split.element;
    let generated = count(&xdp::emit(element, xdp::EmitOptions { storage: xdp::Storage::of(element) })?.text)
        + count(&p4::emit(element)?);
    let metric = |peer| Metric::new(format!("{title}: lines that the user writes"), peer, "lines", Better::Lower);
    bench.row(metric("at most").expect(1.0), &[written], &[LINES]);
    bench.row(metric("the element's C and P4"), &[written], &[generated]);
    Ok(())
}

fn count(text: &str) -> f64 {
    let is_code = |line: &&str| !line.is_empty() && !["//", "/*", "*"].iter().any(|begin| line.starts_with(begin));
    text.lines().map(str::trim).filter(is_code).count() as f64
}
