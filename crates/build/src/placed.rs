//! Placed methods: resolution and checks of the option `pathcall.place`, and of the application that it names.

use std::fmt;
use std::path::{Path, PathBuf};

use pathcall_place::{Application, Dependency};
use prost_reflect::{Kind, Value};

use crate::cloned::value;
use crate::diagnostic::{BuildDiagnostic, Location};
use crate::load::{OptionMethod, display_path};

/// Method that a host's processor or accelerator may answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedMethod {
    /// HTTP/2 path: `/pkg.Service/Method`.
    pub path: String,
    /// Protobuf package of the service.
    pub package: String,
    /// Name of the application's file in the `.proto`.
    pub file: String,
    /// Content of that file.
    pub application: String,
    /// Request type of the application.
    pub request: String,
    /// Number of the field with the key of a request; 0 if the order of requests does not matter.
    pub key: u32,
    /// Names of the dataflows that a request may use.
    pub dataflows: Vec<String>,
}

/// One-line description.
impl fmt::Display for PlacedMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, file, request, dataflows, .. } = self;
        write!(f, "{path}: {request} of {file}, by {}", dataflows.join(" or "))
    }
}

/// Error message and hint.
struct Problem(String, String);

/// Resolves the methods, sorted by path, and reports invalid ones; adds the applications' paths to `files`.
pub(crate) fn resolve(
    option_methods: &[OptionMethod],
    files: &mut Vec<PathBuf>,
    problems: &mut Vec<BuildDiagnostic>,
) -> Vec<PlacedMethod> {
    let mut methods = Vec::new();
    for option_method in option_methods {
        let service = option_method.method.parent_service();
        let path = format!("/{}/{}", service.full_name(), option_method.method.name());
        match read(option_method, &path, files) {
            Ok(method) => methods.push(method),
            Err(PlacedError::Option(Problem(wrong, hint))) => {
                problems.push(BuildDiagnostic::error(option_method.at.clone(), format!("{path} {wrong}")).hint(hint));
            }
            Err(PlacedError::File(problem)) if problems.contains(&problem) => {}
            Err(PlacedError::File(problem)) => problems.push(*problem),
        }
    }
    methods.sort_by(|a, b| a.path.cmp(&b.path));
    methods
}

/// Error with its position.
enum PlacedError {
    Option(Problem),
    File(Box<BuildDiagnostic>),
}

impl From<Problem> for PlacedError {
    fn from(wrong: Problem) -> Self {
        Self::Option(wrong)
    }
}

fn read(option_method: &OptionMethod, path: &str, files: &mut Vec<PathBuf>) -> Result<PlacedMethod, PlacedError> {
    let wrong = |what: String, hint: &str| Problem(what, hint.to_owned());
    let OptionMethod { method, option, proto, filtered, delegated, .. } = option_method;
    if method.is_client_streaming() || method.is_server_streaming() && !delegated {
        let what = "is streaming, but only unary and delegated methods can be placed".into();
        return Err(wrong(what, "remove the option or the `stream`").into());
    }
    if *filtered {
        let what = "has `pathcall.filter` as well, but mapped calls cannot be placed".into();
        return Err(wrong(what, "remove one of the options").into());
    }
    let text = |name| match value(option, name) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    let (file, key) = (text("application"), text("key"));
    if file.is_empty() {
        return Err(wrong("names no application".into(), "add `application: \"kvs.yaml\"`").into());
    }
    let on_disk = proto.parent().unwrap_or(Path::new("")).join(&file);
    files.push(on_disk.clone());
    let application = std::fs::read_to_string(&on_disk).map_err(|error| {
        wrong(format!("names {}: {error}", display_path(&on_disk)), "the path is relative to the .proto file")
    })?;
    let parsed = Application::parse(&display_path(&on_disk), &application).map_err(|mistake| {
        let mut at = Location::file(mistake.file);
        if let Some(position) = mistake.position {
            (at.line, at.column) = (position.line as usize, position.column as usize);
        }
        PlacedError::File(Box::new(BuildDiagnostic::error(at, mistake.message)))
    })?;
    let request = Some(text("request")).filter(|name| !name.is_empty()).unwrap_or_else(|| method.name().to_owned());
    let Some(found) = parsed.requests.iter().find(|known| known.name == request) else {
        let known: Vec<&str> = parsed.requests.iter().map(|known| known.name.as_str()).collect();
        let what = format!("has the unknown request {request:?} ({} has {})", display_path(&on_disk), known.join(", "));
        return Err(wrong(what, "add `request: \"…\"` with one of these").into());
    };
    Ok(PlacedMethod {
        path: path.to_owned(),
        package: method.parent_service().package_name().to_owned(),
        request,
        key: field(option_method, found.dependency, &key)?,
        dataflows: found.dataflows.iter().map(|flow| flow.name.clone()).collect(),
        file,
        application,
    })
}

/// Number of the key field.
fn field(option_method: &OptionMethod, dependency: Dependency, key: &str) -> Result<u32, Problem> {
    let input = option_method.method.input();
    match (dependency, key.is_empty()) {
        (Dependency::None, true) => return Ok(0),
        (Dependency::None, false) => {
            let what = format!("has the key {key:?}, but its requests are independent");
            return Err(Problem(what, "remove the key, or give the type of request its dependency".into()));
        }
        (Dependency::Addr | Dependency::Msg, true) => {
            let what = format!("has no key, but its requests are ordered by {}", dependency.name());
            return Err(Problem(what, format!("add `key: \"…\"` with a field of {}", input.name())));
        }
        (Dependency::Addr | Dependency::Msg, false) => {}
    }
    let Some(field) = input.get_field_by_name(key) else {
        let known: Vec<String> = input.fields().map(|field| field.name().to_owned()).collect();
        let what = format!("has the unknown key {key:?} ({} has {})", input.name(), known.join(", "));
        return Err(Problem(what, "name one of these".into()));
    };
    if field.is_list() || field.is_map() || matches!(field.kind(), Kind::Message(_)) {
        let what = format!("has the key {key:?}, which is not a single value");
        return Err(Problem(what, "name a field that is a number, a string or bytes".into()));
    }
    Ok(field.number())
}
