//! Command `pathcall function explain`.

use std::fmt::Write;

use pathcall_p4::emit::xdp::unsupported;
use pathcall_p4::ir::Program;
use pathcall_p4::split::report::StatementPlace;

use super::ParsedFunction;
use crate::failure::Failure;
use pathcall_console::print;

/// Reports whether the element can run in the kernel, or the reasons against it.
fn executions(read: &ParsedFunction, element: &Program, out: &mut String) {
    let lacking = unsupported(element);
    let place = if lacking.is_empty() { "in the kernel (XDP), or in user space" } else { "in user space, all of it:" };
    let _ = writeln!(out, "the element runs                    {place}");
    for one in lacking {
        let (line, _) = read.sources.position(one.at);
        let _ = writeln!(out, "  not in the kernel  {} (line {line}): {}", one.construct, one.why);
    }
}

/// Reports the size of the header vector and the values postponed for it.
fn vector(read: &ParsedFunction, out: &mut String) {
    let Some(split) = &read.split else { return };
    let (whole, bits) = split.report.phv_bits;
    let _ = write!(out, "values at once in the element       {bits} bits, {} B", bits.div_ceil(8));
    if let Some(phv) = read.phv {
        let _ = write!(out, " of {phv} B");
    }
    if split.report.postponed.is_empty() {
        out.push('\n');
        return;
    }
    let _ = writeln!(out, "; {} B before these were postponed:", whole.div_ceil(8));
    for value in &split.report.postponed {
        let mut lines: Vec<String> = Vec::new();
        for at in &value.at {
            let (line, _) = read.sources.position(*at);
            let name = if at.file == 0 { String::new() } else { format!("{}:", read.sources.name(at.file)) };
            lines.push(format!("{name}{line}"));
        }
        lines.dedup();
        let _ = writeln!(
            out,
            "  postponed  {} ({} bits, line {}): {}",
            value.name,
            value.bits,
            lines.join(", "),
            value.to.what()
        );
    }
}

/// Prints the source with the place where each line runs, then the sizes.
pub(super) fn explain(read: &ParsedFunction) -> Result<(), Failure> {
    let Some(split) = &read.split else {
        let mut out = format!("{}: no handler: all of it runs in the element\n", read.program.name);
        executions(read, &read.program, &mut out);
        return Ok(print(&out)?);
    };
    let report = &split.report;
    let mut places: Vec<Option<StatementPlace>> = vec![None; read.sources.text(0).lines().count()];
    for (span, place) in report.lines.iter().filter(|(span, _)| span.file == 0) {
        let (first, _) = read.sources.position(*span);
        let lines = read.sources.slice(*span).trim_end().lines().count().max(1);
        let last = (first - 1 + lines).min(places.len());
        places[first - 1..last].fill(Some(*place));
    }
    let mut out = String::new();
    for (line, place) in read.sources.text(0).lines().zip(&places) {
        let mark = match place {
            Some(StatementPlace::Before) => "before ",
            Some(StatementPlace::Server) => "server ",
            Some(StatementPlace::After) => "after  ",
            None => "       ",
        };
        let _ = writeln!(out, "{mark}│ {line}");
    }
    out.push('\n');
    for (name, place) in
        [("before", StatementPlace::Before), ("server", StatementPlace::Server), ("after ", StatementPlace::After)]
    {
        let _ = writeln!(out, "{name}  {}", place.why());
    }
    let (header, params, travelling) = report.header_bytes;
    let carried: u32 = report.carried.iter().map(|value| u32::from(value.bits)).sum();
    let _ = writeln!(
        out,
        "\nheader between element and servers  {header} B: parameters {params} B, placement {travelling} B, carried {carried} bits"
    );
    for value in &report.carried {
        let _ = writeln!(
            out,
            "  carried  {} ({} bits): the part after the server needs the value from the part before it",
            value.name, value.bits
        );
    }
    vector(read, &mut out);
    executions(read, &split.element, &mut out);
    let _ = writeln!(
        out,
        "stages by dependency, at least      {} of the function, {} with placement and forwarding",
        report.stages.0, report.stages.1
    );
    let kib = |bits: u64| bits.div_ceil(8 * 1024);
    let (tables, registers) = report.memory_bits;
    let _ = writeln!(
        out,
        "memory of the element               tables {} KiB, registers {} KiB",
        kib(tables),
        kib(registers)
    );
    out.push_str(&super::build::written(read));
    for warning in &report.warnings {
        let _ = writeln!(out, "warning: {warning}");
    }
    Ok(print(&out)?)
}
