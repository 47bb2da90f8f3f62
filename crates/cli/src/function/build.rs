//! Command `pathcall function build`.

use std::path::{Path, PathBuf};

use clap::Args;
use pathcall_netfn::handler::CInterface;
use pathcall_p4::emit::{p4, xdp};
use pathcall_p4::source::Lines;
use pathcall_p4::split::SplitFunction;
use pathcall_p4::split::layout::HeaderField;
use serde_json::{Value, json};

use super::{ParsedFunction, Source};
use crate::failure::Failure;
use pathcall_console::print;

#[derive(Debug, Args)]
pub(super) struct BuildArgs {
    #[command(flatten)]
    pub(super) source: Source,
    /// Output folder
    #[arg(short, long, value_name = "DIR")]
    out: PathBuf,
}

/// Writes the programs for element and servers, and prints a line for each file.
pub(super) fn build(args: &BuildArgs, read: &ParsedFunction) -> Result<(), Failure> {
    std::fs::create_dir_all(&args.out).map_err(|source| Failure::File { path: args.out.clone(), source })?;
    let element = read.split.as_ref().map_or(&read.program, |split| &split.element);
    let wrong = |what: &str, why: String| Failure::Function(format!("{what}: {why}"));
    let mut files = vec![("element.p4", p4::emit(element).map_err(|error| wrong("element.p4", error.to_string()))?)];
    match xdp::unsupported(element).first() {
        None => {
            let emitted = xdp::emit(element, xdp::EmitOptions { storage: xdp::Storage::of(element) });
            files.push(("element.bpf.c", emitted.map_err(|error| wrong("element.bpf.c", error.to_string()))?.text));
        }
        // The other files are useful without this one.
        Some(first) => {
            let (line, _) = read.sources.position(first.at);
            print(&format!("no element.bpf.c: line {line}: {first}; this element runs in user space\n"))?;
        }
    }
    if let Some(split) = &read.split {
        let face = CInterface::new(&read.program, &|at| read.place(at))
            .map_err(|error| wrong("handler.c", error.to_string()))?;
        files.push(("handler.c", face.text));
        files.push(("layout.json", format!("{:#}\n", layout(split))));
    }
    for (name, text) in &files {
        write(&args.out.join(name), text)?;
    }
    Ok(print(&lines(read, &files))?)
}

/// Lines of code of the author, and lines generated for each target.
fn lines(read: &ParsedFunction, files: &[(&str, String)]) -> String {
    let code = |name: &str| {
        let file = files.iter().find(|(other, _)| *other == name);
        file.map_or(0, |(_, text)| Lines::of(text).code)
    };
    // The C of a handler is mostly the author's.
    let own = read.program.handler.as_ref();
    let own = own.map_or(0, |of| Lines::of(&of.state.text).code + Lines::of(&of.body.text).code);
    let handler = code("handler.c").saturating_sub(own);
    let mut text = written(read);
    for (target, name) in [("XDP", "element.bpf.c"), ("P4", "element.p4")] {
        let element = code(name);
        let servers = if read.split.is_some() { format!(" and {handler} for servers") } else { String::new() };
        text.push_str(&format!("generated  {:>5} lines of code for {target}: {element}{servers}\n", element + handler));
    }
    text
}

/// Lines that the author wrote, in all source files.
pub(super) fn written(read: &ParsedFunction) -> String {
    let mut lines = Lines::default();
    read.sources.written().for_each(|(_, text)| lines += Lines::of(text));
    format!("written    {:>5} lines of code, {} with comments and blank lines\n", lines.code, lines.all)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|source| Failure::File { path: path.to_owned(), source })?;
    Ok(print(&format!("{}  {} lines\n", path.display(), text.lines().count()))?)
}

fn layout(split: &SplitFunction) -> Value {
    let layout = &split.layout;
    let on_server = split.on_server.iter().flat_map(|of| of.slots.iter().map(|slot| of.program.slot_name(*slot)));
    let fields = |fields: &[HeaderField]| -> Vec<Value> {
        let field = |f: &HeaderField| json!({ "name": f.name, "offset_bits": f.offset_bits, "bits": f.ty.width() });
        fields.iter().map(field).collect()
    };
    json!({
        "function": layout.function,
        "bytes": layout.length,
        "request": fields(&layout.request),
        "worked_out_on_server": on_server.collect::<Vec<_>>(),
        "response": fields(&layout.response),
        "travelling": fields(&layout.travelling),
        "carried": fields(&layout.carried),
        "options": fields(&layout.options),
    })
}
