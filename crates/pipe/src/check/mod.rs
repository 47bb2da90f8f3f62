//! Type checker of pipes: a file and its descriptors to a [`Pipe`].
//!
//! Each reference names the call or an earlier step, each path exists, and each value has the type of its field. So
//! only bytes from the network can be wrong later. `methods` finds the methods; `values` checks expressions.

mod methods;
mod values;

use std::path::{Path, PathBuf};

use pathcall_build::{BuildDiagnostic, Location};
use pathcall_place::model::yaml::SpannedText;
use prost_reflect::{DescriptorPool, Kind};

use crate::file::{self, PipeFile, location};
use crate::plan::{Pipe, Step};
use methods::UnaryMethod;
use values::ValueChecker;

/// Limit on the steps of a pipe. A delegated call passes through at most 64 servers.
pub const STEPS_MAX: usize = 60;
/// Limit on the length of a step's name, bytes.
const NAME_MAX: usize = 64;
/// Name of the call in references.
const CALL: &str = "call";

impl Pipe {
    /// Reads and checks the file at this path and the `.proto` files that it names.
    ///
    /// # Errors
    /// The first error, in one line: position, what is wrong, and what is expected.
    pub fn read(path: &Path) -> Result<Self, Box<BuildDiagnostic>> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| {
            Box::new(BuildDiagnostic::error(Location::file(&name), format!("cannot read the pipe: {error}")))
        })?;
        let pipe = file::read(&name, &text)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let pool = descriptors(&name, folder, &pipe)?;
        check(&name, &pipe, &pool)
    }

    /// Checks the text of a file against descriptors. The `.proto` files that the text names are not read. `name` is the
    /// name of the file in errors.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn parse(name: &str, text: &str, pool: &DescriptorPool) -> Result<Self, Box<BuildDiagnostic>> {
        check(name, &file::read(name, text)?, pool)
    }
}

/// Error at a value of the file. The message has one line, even if it quotes several lines of the file.
fn wrong<T>(file: &str, at: &serde_saphyr::Spanned<T>, message: impl AsRef<str>) -> Box<BuildDiagnostic> {
    Box::new(BuildDiagnostic::error(location(file, at), one_line(message.as_ref())))
}

fn one_line(text: &str) -> String {
    let escape = |c: char| if c.is_control() { c.escape_default().collect() } else { String::from(c) };
    text.chars().map(escape).collect()
}

/// Descriptors of the files that the pipe names. Its paths are relative to `folder`.
fn descriptors(name: &str, folder: &Path, pipe: &PipeFile) -> Result<DescriptorPool, Box<BuildDiagnostic>> {
    let beside = |path: &SpannedText| -> PathBuf { folder.join(&path.value) };
    if pipe.protos.is_empty() {
        let message = "`protos` is empty; name the .proto files of all services";
        return Err(Box::new(BuildDiagnostic::error(Location::file(name), message)));
    }
    let mut includes: Vec<PathBuf> = pipe.includes.iter().map(beside).collect();
    if includes.is_empty() {
        includes.push(if folder == Path::new("") { PathBuf::from(".") } else { folder.to_owned() });
    }
    let protos: Vec<PathBuf> = pipe.protos.iter().map(beside).collect();
    pathcall_build::descriptors(&protos, &includes).map_err(|mut error| {
        error.message.extend(error.hint.take().map(|hint| format!("; {hint}")));
        error.message = one_line(&error.message);
        error
    })
}

fn check(name: &str, pipe: &PipeFile, pool: &DescriptorPool) -> Result<Pipe, Box<BuildDiagnostic>> {
    let method = UnaryMethod::find(name, pool, &pipe.pipe)?;
    check_count(name, pipe)?;
    let mut checker = ValueChecker::new(name);
    checker.add_source(CALL, method.input.clone());
    let mut steps: Vec<Step> = Vec::new();
    for entry in &pipe.steps {
        check_name(name, &entry.name, &steps)?;
        let called = UnaryMethod::find(name, pool, &entry.call)?;
        let later = pipe.steps[steps.len()..].iter().map(|later| later.name.value.clone());
        checker.set_later(later.collect());
        let request = checker.message(&entry.request, "the request", &called.input)?;
        checker.add_source(&entry.name.value, called.output.clone());
        let UnaryMethod { path, output, idempotent, .. } = called;
        steps.push(Step { name: entry.name.value.clone(), path, output, idempotent, request });
    }
    checker.set_later(Vec::new());
    let reply = checker.message(&pipe.reply, "the reply", &method.output)?;
    Ok(Pipe::new(method.path.to_string(), method.input, steps, reply))
}

fn check_count(name: &str, pipe: &PipeFile) -> Result<(), Box<BuildDiagnostic>> {
    match pipe.steps.len() {
        0 => Err(wrong(name, &pipe.pipe, "the pipe has no steps; add at least one under `steps`")),
        steps if steps > STEPS_MAX => {
            let message = format!("the pipe has {steps} steps; at most {STEPS_MAX} are allowed");
            Err(wrong(name, &pipe.steps[STEPS_MAX].name, message))
        }
        _ => Ok(()),
    }
}

fn check_name(file: &str, name: &SpannedText, before: &[Step]) -> Result<(), Box<BuildDiagnostic>> {
    let text = &name.value;
    let fits = text.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-'));
    if text.is_empty() || text.len() > NAME_MAX || !fits {
        let message = format!("invalid name `{text}` of a step; use 1 to {NAME_MAX} letters, digits, `_` and `-`");
        return Err(wrong(file, name, message));
    }
    if text == CALL {
        return Err(wrong(file, name, "`call` is the caller's request; give the step another name"));
    }
    if before.iter().any(|step| step.name == *text) {
        return Err(wrong(file, name, format!("two steps have the name `{text}`; give one another name")));
    }
    Ok(())
}

/// Name of the type of a single value. Kinds that differ in their encoding only have the same name.
fn type_name(kind: &Kind) -> String {
    match kind {
        Kind::Double => "double",
        Kind::Float => "float",
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => "int32",
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => "int64",
        Kind::Uint32 | Kind::Fixed32 => "uint32",
        Kind::Uint64 | Kind::Fixed64 => "uint64",
        Kind::Bool => "bool",
        Kind::String => "string",
        Kind::Bytes => "bytes",
        Kind::Message(message) => return message.full_name().to_owned(),
        Kind::Enum(named) => return named.full_name().to_owned(),
    }
    .to_owned()
}
