//! Resolution of filters and messages to [`ResolvedMethod`]s: decides whether a filter is valid for its method, and its
//! meaning.
//!
//! Modules in order of use: `choose` selects the object in the filter file, `field` resolves references to fields,
//! `kind` determines one of five meanings of the primitives, and `app` compares the methods of an application.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use pathcall_proto::manifest::{Ack, ClearPolicy, ForwardTarget, Kind, Modify, Shape};

use crate::cloned::{self, ClonedMethod};
use crate::delegated::{self, DelegatedMethod};
use crate::diagnostic::{BuildDiagnostic, Location, Severity, SourceText};
use crate::filter::{self, NetFilter};
use crate::load::{FilterMethod, Loaded, display_path};
use crate::placed::{self, PlacedMethod};

mod app;
mod choose;
mod field;
mod kind;

/// Resolved method with its filter: the owned form of [`pathcall_proto::manifest::Method`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedMethod {
    /// HTTP/2 path: `/pkg.Service/Method`.
    pub path: String,
    /// Protobuf package of the service.
    pub package: String,
    /// `AppName`.
    pub app: String,
    /// Digest of all filters of `app`: see [`ResolvedMethod::canonical`].
    pub digest: u64,
    /// `Precision`.
    pub precision: u8,
    /// Meaning of the primitives.
    pub kind: Kind,
    /// Operator that is applied to each value before it is added.
    pub modify: Modify,
    /// Typed field of the request.
    pub request: Option<ResolvedField>,
    /// Typed field of the reply.
    pub reply: Option<ResolvedField>,
    /// The request type has fields besides `request`.
    pub untyped_request: bool,
    /// Recipient of the answer.
    pub to: ForwardTarget,
    /// Party that must have an addition before the call completes.
    pub ack: Ack,
    /// Position of the filter.
    pub at: Location,
}

/// Typed field: the owned form of [`pathcall_proto::manifest::Field`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedField {
    /// Field numbers from the message to the typed field.
    pub path: Vec<u32>,
    /// Dotted path: `NewGrad.inner.tensor`.
    pub name: String,
    /// Type of the field.
    pub shape: Shape,
}

/// Resolved methods and all problems.
#[cfg_attr(not(feature = "stubs"), expect(dead_code))]
pub(crate) struct Resolution {
    pub(crate) methods: Vec<ResolvedMethod>,
    pub(crate) delegated: Vec<DelegatedMethod>,
    pub(crate) cloned: Vec<ClonedMethod>,
    pub(crate) placed: Vec<PlacedMethod>,
    pub(crate) problems: Vec<BuildDiagnostic>,
    /// Filters and applications that were read or looked for.
    pub(crate) files: Vec<PathBuf>,
}

impl Resolution {
    pub(crate) fn has_errors(&self) -> bool {
        self.problems.iter().any(|problem| problem.severity == Severity::Error)
    }
}

pub(crate) fn resolve(loaded: &Loaded) -> Resolution {
    let mut problems = Vec::new();
    let mut methods = Vec::new();
    let mut files = Files::default();
    for named in &loaded.methods {
        let Some((path, index)) = file_and_index(named, &mut problems) else { continue };
        if let Some(file) = files.open(&path, named, &mut problems)
            && let Some(filter) = choose::choose(file, index, named, &mut problems)
        {
            methods.extend(kind::method(&file.source, filter, named, &mut problems));
        }
    }
    app::compare(&methods, &mut problems);
    app::digest(&mut methods);
    methods.sort_by(|a, b| a.path.cmp(&b.path));
    let delegated = delegated::resolve(&loaded.delegated, &mut problems);
    let cloned = cloned::resolve(&loaded.cloned, &mut problems);
    let mut files: Vec<PathBuf> = files.0.into_keys().collect();
    let placed = placed::resolve(&loaded.placed, &mut files, &mut problems);
    Resolution { methods, delegated, cloned, placed, problems, files }
}

/// Parses `agtr.nf#2`: the path, relative to the `.proto`, and the number if present.
fn file_and_index(named: &FilterMethod, problems: &mut Vec<BuildDiagnostic>) -> Option<(PathBuf, Option<usize>)> {
    if named.filter.is_empty() {
        problems.push(
            BuildDiagnostic::error(named.at.clone(), "the filter's file name is empty")
                .expected("a path such as `agtr.nf`"),
        );
        return None;
    }
    if named.method.is_client_streaming() || named.method.is_server_streaming() {
        let message = format!("{} is streaming, but a filter needs a unary method", path(named));
        problems.push(BuildDiagnostic::error(named.at.clone(), message).hint("remove the filter or the `stream`"));
        return None;
    }
    let (file, index) = match named.filter.rsplit_once('#') {
        Some((file, index)) if !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit()) => {
            // A number with too many digits names no object either.
            (file, Some(index.parse().unwrap_or(usize::MAX)))
        }
        _ => (named.filter.as_str(), None),
    };
    Some((named.proto.parent().unwrap_or(Path::new("")).join(file), index))
}

/// Filter file that was read.
struct FilterFile {
    source: SourceText,
    filters: Vec<NetFilter>,
}

/// Filter files by path: each is read once, and its errors are reported once.
#[derive(Default)]
struct Files(BTreeMap<PathBuf, Option<FilterFile>>);

impl Files {
    fn open(&mut self, path: &Path, named: &FilterMethod, problems: &mut Vec<BuildDiagnostic>) -> Option<&FilterFile> {
        if !self.0.contains_key(path) {
            let file = read(path, named).map_err(|found| problems.extend(found)).ok();
            self.0.insert(path.to_path_buf(), file);
        }
        self.0.get(path)?.as_ref()
    }
}

fn read(path: &Path, named: &FilterMethod) -> Result<FilterFile, Vec<BuildDiagnostic>> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let message = format!("cannot read filter `{}`: {error}", display_path(path));
        vec![
            BuildDiagnostic::error(named.at.clone(), message)
                .hint("the path is relative to the .proto file that names it"),
        ]
    })?;
    let source = SourceText::new(display_path(path), text);
    let filters = filter::parse_source(&source)?;
    Ok(FilterFile { source, filters })
}

/// HTTP/2 path of a method.
fn path(named: &FilterMethod) -> String {
    format!("/{}/{}", named.method.parent_service().full_name(), named.method.name())
}

impl ResolvedMethod {
    fn clears_itself(&self) -> bool {
        matches!(self.kind, Kind::Sum { clear: ClearPolicy::Shadow, .. })
    }

    /// Canonical text of all properties that both ends must agree on; the digest is computed from it. Names of fields
    /// are excluded, so that renaming a field changes nothing, as in protobuf.
    ///
    /// One line: path, application (with its length in bytes first), precision, kind with threshold, target, operator
    /// and operand, and the two fields as `1.2:FPArray` or `-`; then `ack server` and `clear shadow`, if set.
    #[must_use]
    pub fn canonical(&self) -> String {
        let kind = match self.kind {
            Kind::Sum { threshold, .. } => format!("sum {threshold}"),
            Kind::Add { get, .. } => format!("add {}", u8::from(get)),
            Kind::Query => "query 0".to_owned(),
            Kind::Count { threshold, .. } => format!("count {threshold}"),
            Kind::Clear => "clear 0".to_owned(),
        };
        let to = match self.to {
            ForwardTarget::All => "all",
            ForwardTarget::Src => "src",
            ForwardTarget::Server => "server",
        };
        let field = |field: &Option<ResolvedField>| {
            field.as_ref().map_or_else(
                || "-".to_owned(),
                |field| {
                    let numbers: Vec<_> = field.path.iter().map(u32::to_string).collect();
                    format!("{}:{}", numbers.join("."), field.shape.proto_name())
                },
            )
        };
        format!(
            "{} {}:{} {} {kind} {to} {} {} {} {}{}{}\n",
            self.path,
            self.app.len(),
            self.app,
            self.precision,
            self.modify.op as u8,
            self.modify.para,
            field(&self.request),
            field(&self.reply),
            if self.ack == Ack::Server { " ack server" } else { "" },
            if self.clears_itself() { " clear shadow" } else { "" },
        )
    }
}

/// One-line description: `/training.Training/Update: sum of 2 callers, NewGrad.tensor to AgtrGrad.tensor`.
impl fmt::Display for ResolvedMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: application {:?}, ", self.path, self.app)?;
        match self.kind {
            Kind::Sum { threshold, .. } => write!(f, "sum over {threshold} callers")?,
            Kind::Add { .. } => f.write_str("add")?,
            Kind::Query => f.write_str("query")?,
            Kind::Count { threshold, .. } => write!(f, "count to {threshold}")?,
            Kind::Clear => f.write_str("clear")?,
        }
        if let Some(field) = &self.request {
            write!(f, ", {} ({})", field.name, field.shape.proto_name())?;
        }
        if let Some(field) = &self.reply {
            write!(f, " -> {} ({})", field.name, field.shape.proto_name())?;
        }
        if self.ack == Ack::Server {
            write!(f, ", acknowledged by the server")?;
        }
        if self.clears_itself() {
            write!(f, ", kept in the element only")?;
        }
        let floats = [&self.request, &self.reply].into_iter().flatten().any(|field| field.shape.is_float());
        if floats { write!(f, ", {} digits", self.precision) } else { Ok(()) }
    }
}
