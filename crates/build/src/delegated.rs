//! Delegated methods: resolution and checks of the option `pathcall.delegate`.

use std::fmt;

use crate::diagnostic::BuildDiagnostic;
use crate::load::DelegateOption;

/// Method whose calls servers may pass on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DelegatedMethod {
    /// HTTP/2 path: `/pkg.Service/Method`.
    pub path: String,
    /// Protobuf package of the service.
    pub package: String,
    /// Names of the service and of the method in the `.proto`.
    pub name: (String, String),
    /// Whether a call has one reply instead of a stream.
    pub unary: bool,
    /// Whether the method has protobuf's option `idempotency_level`, other than `IDEMPOTENCY_UNKNOWN`.
    pub idempotent: bool,
}

impl DelegatedMethod {
    /// Name of its Rust type, which handlers use.
    pub(crate) fn type_name(&self) -> String {
        let (service, name) = &self.name;
        format!("{service}{name}")
    }
}

/// One-line description.
impl fmt::Display for DelegatedMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls = if self.unary { ", unary" } else { "" };
        let repeats = if self.idempotent { ", idempotent" } else { "" };
        write!(f, "{}: delegated{calls}{repeats}", self.path)
    }
}

/// Resolves the methods, sorted by path, and reports invalid ones.
pub(crate) fn resolve(marked: &[DelegateOption], problems: &mut Vec<BuildDiagnostic>) -> Vec<DelegatedMethod> {
    let mut methods = Vec::new();
    for DelegateOption { method, at, filtered, idempotent } in marked {
        let service = method.parent_service();
        let path = format!("/{}/{}", service.full_name(), method.name());
        let (wrong, hint) = if method.is_client_streaming() {
            (
                "takes a stream, but a delegated method takes one message",
                "remove `stream` before the request, or the option",
            )
        } else if *filtered {
            ("has a filter as well, but a method is either mapped or delegated", "remove one of the options")
        } else {
            let name = (service.name().to_owned(), method.name().to_owned());
            let (package, unary) = (service.package_name().to_owned(), !method.is_server_streaming());
            let method = DelegatedMethod { path, package, name, unary, idempotent: *idempotent };
            let same =
                |other: &&DelegatedMethod| other.package == method.package && other.type_name() == method.type_name();
            if let Some(other) = methods.iter().find(same) {
                let text = format!("{} and {} are both `delegated::{}`", method.path, other.path, method.type_name());
                problems.push(BuildDiagnostic::error(at.clone(), text).hint("rename one of them"));
            }
            methods.push(method);
            continue;
        };
        problems.push(BuildDiagnostic::error(at.clone(), format!("{path} {wrong}")).hint(hint));
    }
    methods.sort();
    methods
}
