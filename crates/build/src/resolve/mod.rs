//! Resolution of filters and messages to [`ResolvedMethod`]s: decides whether a filter is valid for its method, and its
//! meaning.
//!
//! Modules in order of use: `choose` selects the object in the filter file, `field` resolves references to fields,
//! `kind` determines one of six meanings of the primitives, with `sum` and `count` (`lanes` the size of a sum's values), `streams` what has no meaning in streams, `method` holds the result and writes its texts, and `app`
//! compares the methods of an application.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::cloned::{self, ClonedMethod};
use crate::delegated::{self, DelegatedMethod};
use crate::diagnostic::{BuildDiagnostic, Severity, SourceText};
use crate::filter::{self, NetFilter};
use crate::load::{FilterMethod, Loaded, display_path};
use crate::placed::{self, PlacedMethod};

mod app;
mod choose;
mod count;
mod field;
mod kind;
mod lanes;
mod method;
mod streams;
mod sum;

pub use method::{ResolvedField, ResolvedMethod};

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
    if named.method.is_server_streaming() && !named.method.is_client_streaming() {
        let message = format!("{} has a stream of replies, but a filter has one result for a request", path(named));
        let hint = "remove the filter or the `stream` of replies, or let the requests be a stream, too";
        problems.push(BuildDiagnostic::error(named.at.clone(), message).hint(hint));
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
