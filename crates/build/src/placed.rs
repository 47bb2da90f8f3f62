//! Methods that a host's processor or its accelerator may answer: their option, and the application that it names.

use std::fmt;
use std::path::{Path, PathBuf};

use pathcall_place::{Application, Dependency};
use prost_reflect::{Kind, Value};

use crate::cloned::value;
use crate::diagnostic::{Diagnostic, Location};
use crate::load::{Steered, shown};

/// A method that a host's processor or its accelerator may answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// The HTTP/2 path: `/pkg.Service/Method`.
    pub path: String,
    /// The protobuf package that declares it.
    pub package: String,
    /// The application's file as the `.proto` names it.
    pub file: String,
    /// What stands in it.
    pub application: String,
    /// Which of the application's types of requests it is.
    pub request: String,
    /// Number of the field whose value says what a request is about; 0: its order does not matter.
    pub key: u32,
    /// The ways that a request may take, by name.
    pub dataflows: Vec<String>,
}

/// One line for people.
impl fmt::Display for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, file, request, dataflows, .. } = self;
        write!(f, "{path}: {request} of {file}, by {}", dataflows.join(" or "))
    }
}

/// What is wrong, and what to do about it.
struct Wrong(String, String);

/// The methods, by path, that can mean what they say; `files` takes the applications that were looked for.
pub(crate) fn resolve(steered: &[Steered], files: &mut Vec<PathBuf>, problems: &mut Vec<Diagnostic>) -> Vec<Placed> {
    let mut methods = Vec::new();
    for steered in steered {
        let service = steered.method.parent_service();
        let path = format!("/{}/{}", service.full_name(), steered.method.name());
        match read(steered, &path, files) {
            Ok(method) => methods.push(method),
            Err(At::Option(Wrong(wrong, hint))) => {
                problems.push(Diagnostic::error(steered.at.clone(), format!("{path} {wrong}")).hint(hint));
            }
            Err(At::File(problem)) if problems.contains(&problem) => {}
            Err(At::File(problem)) => problems.push(*problem),
        }
    }
    methods.sort_by(|a, b| a.path.cmp(&b.path));
    methods
}

/// Where a mistake is.
enum At {
    Option(Wrong),
    File(Box<Diagnostic>),
}

impl From<Wrong> for At {
    fn from(wrong: Wrong) -> Self {
        Self::Option(wrong)
    }
}

fn read(steered: &Steered, path: &str, files: &mut Vec<PathBuf>) -> Result<Placed, At> {
    let wrong = |what: String, hint: &str| Wrong(what, hint.to_owned());
    let Steered { method, says, proto, filtered, delegated, .. } = steered;
    if method.is_client_streaming() || method.is_server_streaming() && !delegated {
        let what = "streams; only unary calls are placed, and those that servers may pass on".into();
        return Err(wrong(what, "remove the option or the `stream`").into());
    }
    if *filtered {
        let what = "has `pathcall.filter` too; its calls are placed nowhere".into();
        return Err(wrong(what, "remove one of the options").into());
    }
    let text = |name| match value(says, name) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    let (file, key) = (text("application"), text("key"));
    if file.is_empty() {
        return Err(wrong("names no application".into(), "add `application: \"kvs.yaml\"`").into());
    }
    let on_disk = proto.parent().unwrap_or(Path::new("")).join(&file);
    files.push(on_disk.clone());
    let application = std::fs::read_to_string(&on_disk)
        .map_err(|error| wrong(format!("names {}: {error}", shown(&on_disk)), "it is looked for beside the .proto"))?;
    let parsed = Application::parse(&shown(&on_disk), &application).map_err(|mistake| {
        let mut at = Location::file(mistake.file);
        if let Some(position) = mistake.position {
            (at.line, at.column) = (position.line as usize, position.column as usize);
        }
        At::File(Box::new(Diagnostic::error(at, mistake.said)))
    })?;
    let request = Some(text("request")).filter(|name| !name.is_empty()).unwrap_or_else(|| method.name().to_owned());
    let Some(found) = parsed.requests.iter().find(|known| known.name == request) else {
        let known: Vec<&str> = parsed.requests.iter().map(|known| known.name.as_str()).collect();
        let what = format!("is the request {request:?}, which {} lacks; it has {}", shown(&on_disk), known.join(", "));
        return Err(wrong(what, "add `request: \"…\"` with one of these").into());
    };
    Ok(Placed {
        path: path.to_owned(),
        package: method.parent_service().package_name().to_owned(),
        request,
        key: field(steered, found.dependency, &key)?,
        dataflows: found.dataflows.iter().map(|flow| flow.name.clone()).collect(),
        file,
        application,
    })
}

/// The number of the field that says what a request is about.
fn field(steered: &Steered, dependency: Dependency, key: &str) -> Result<u32, Wrong> {
    let input = steered.method.input();
    match (dependency, key.is_empty()) {
        (Dependency::None, true) => return Ok(0),
        (Dependency::None, false) => {
            let what = format!("has the key {key:?}, and its requests depend on no others");
            return Err(Wrong(what, "remove the key, or give the type of request its dependency".into()));
        }
        (Dependency::Addr | Dependency::Msg, true) => {
            let what = format!("says no key, and its requests keep their order by {}", dependency.name());
            return Err(Wrong(what, format!("add `key: \"…\"` with a field of {}", input.name())));
        }
        (Dependency::Addr | Dependency::Msg, false) => {}
    }
    let Some(field) = input.get_field_by_name(key) else {
        let known: Vec<String> = input.fields().map(|field| field.name().to_owned()).collect();
        let what = format!("has the key {key:?}, which {} lacks; it has {}", input.name(), known.join(", "));
        return Err(Wrong(what, "name one of these".into()));
    };
    if field.is_list() || field.is_map() || matches!(field.kind(), Kind::Message(_)) {
        let what = format!("has the key {key:?}, which has no single value");
        return Err(Wrong(what, "name a field that is a number, a string or bytes".into()));
    }
    Ok(field.number())
}
