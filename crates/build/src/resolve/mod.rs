//! Filters and messages to [`Method`]s: here it is decided whether a filter can mean anything for
//! the method that names it, and what.
//!
//! In the order a method meets them: `choose` finds its object in the file it names, `field`
//! looks up the fields that the object refers to, `kind` makes one of five meanings of the
//! primitives, and `app` compares the methods that share an application.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use pathcall_proto::manifest::{Ack, ClearPolicy, Kind, Modify, Shape, Target};

use crate::cloned::{self, Cloned};
use crate::delegated::{self, Delegated};
use crate::diagnostic::{Diagnostic, Location, Severity, Source};
use crate::filter::{self, NetFilter};
use crate::load::{Loaded, Named, shown};
use crate::placed::{self, Placed};

mod app;
mod choose;
mod field;
mod kind;

/// A method and its filter, resolved: the owned twin of [`pathcall_proto::manifest::Method`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Method {
    /// The HTTP/2 path: `/pkg.Service/Method`.
    pub path: String,
    /// The protobuf package that declares it.
    pub package: String,
    /// `AppName`.
    pub app: String,
    /// Digest of all filters of `app`: see [`Method::canonical`].
    pub digest: u64,
    /// `Precision`.
    pub precision: u8,
    /// What the primitives amount to.
    pub kind: Kind,
    /// What is done to each value before it is added.
    pub modify: Modify,
    /// The request's typed field.
    pub request: Option<Field>,
    /// The reply's typed field.
    pub reply: Option<Field>,
    /// The request type declares more than `request`.
    pub untyped_request: bool,
    /// Who gets the answer.
    pub to: Target,
    /// Who must have what is added before the call completes.
    pub ack: Ack,
    /// Where the filter is written.
    pub at: Location,
}

/// A typed field: the owned twin of [`pathcall_proto::manifest::Field`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Field numbers from the message to the typed field.
    pub path: Vec<u32>,
    /// `NewGrad.inner.tensor`.
    pub name: String,
    /// Its type.
    pub shape: Shape,
}

/// Everything that the methods come to, or everything that is wrong.
#[cfg_attr(not(feature = "stubs"), expect(dead_code))]
pub(crate) struct Resolved {
    pub(crate) methods: Vec<Method>,
    pub(crate) delegated: Vec<Delegated>,
    pub(crate) cloned: Vec<Cloned>,
    pub(crate) placed: Vec<Placed>,
    pub(crate) problems: Vec<Diagnostic>,
    /// The filters and applications that were looked for.
    pub(crate) files: Vec<PathBuf>,
}

impl Resolved {
    pub(crate) fn has_errors(&self) -> bool {
        self.problems.iter().any(|problem| problem.severity == Severity::Error)
    }
}

pub(crate) fn resolve(loaded: &Loaded) -> Resolved {
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
    Resolved { methods, delegated, cloned, placed, problems, files }
}

/// `agtr.nf#2`, relative to the `.proto`: the file, and 2 if it is said.
fn file_and_index(named: &Named, problems: &mut Vec<Diagnostic>) -> Option<(PathBuf, Option<usize>)> {
    if named.filter.is_empty() {
        problems.push(
            Diagnostic::error(named.at.clone(), "the filter's file name is empty").expected("a path such as `agtr.nf`"),
        );
        return None;
    }
    if named.method.is_client_streaming() || named.method.is_server_streaming() {
        let message = format!("{} streams; a filter works on unary methods", path(named));
        problems.push(Diagnostic::error(named.at.clone(), message).hint("remove the filter or the `stream`"));
        return None;
    }
    let (file, index) = match named.filter.rsplit_once('#') {
        Some((file, index)) if !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit()) => {
            // More digits than a number has name no object either.
            (file, Some(index.parse().unwrap_or(usize::MAX)))
        }
        _ => (named.filter.as_str(), None),
    };
    Some((named.proto.parent().unwrap_or(Path::new("")).join(file), index))
}

/// A filter file that could be read.
struct FilterFile {
    source: Source,
    filters: Vec<NetFilter>,
}

/// The filter files by path, each read once; one that is wrong is complained about once.
#[derive(Default)]
struct Files(BTreeMap<PathBuf, Option<FilterFile>>);

impl Files {
    fn open(&mut self, path: &Path, named: &Named, problems: &mut Vec<Diagnostic>) -> Option<&FilterFile> {
        if !self.0.contains_key(path) {
            let file = read(path, named).map_err(|found| problems.extend(found)).ok();
            self.0.insert(path.to_path_buf(), file);
        }
        self.0.get(path)?.as_ref()
    }
}

fn read(path: &Path, named: &Named) -> Result<FilterFile, Vec<Diagnostic>> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let message = format!("cannot read filter `{}`: {error}", shown(path));
        vec![Diagnostic::error(named.at.clone(), message).hint("the path is relative to the .proto file that names it")]
    })?;
    let source = Source::new(shown(path), text);
    let filters = filter::parse_source(&source)?;
    Ok(FilterFile { source, filters })
}

/// The HTTP/2 path of a method.
fn path(named: &Named) -> String {
    format!("/{}/{}", named.method.parent_service().full_name(), named.method.name())
}

impl Method {
    fn clears_itself(&self) -> bool {
        matches!(self.kind, Kind::Sum { clear: ClearPolicy::Shadow, .. })
    }

    /// What both ends must agree on, as text; the digest is made of it. Names of fields are not in
    /// it, so renaming one changes nothing, as in protobuf.
    ///
    /// One line: path, application (with its length in bytes before it), precision, kind with
    /// threshold, target, operator and operand, and the two fields as `1.2:FPArray` or `-`; after them
    /// `ack server` and `clear shadow`, if it is so.
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
            Target::All => "all",
            Target::Src => "src",
            Target::Server => "server",
        };
        let field = |field: &Option<Field>| {
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

/// One line for people: `/training.Training/Update: sum of 2 callers, NewGrad.tensor to AgtrGrad.tensor`.
impl fmt::Display for Method {
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
            write!(f, ", kept by the element alone")?;
        }
        let floats = [&self.request, &self.reply].into_iter().flatten().any(|field| field.shape.is_float());
        if floats { write!(f, ", {} digits", self.precision) } else { Ok(()) }
    }
}
