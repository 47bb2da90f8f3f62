//! Methods that servers may pass on: what is wrong with them.

use std::fmt;

use crate::diagnostic::Diagnostic;
use crate::load::Marked;

/// A method that servers may pass on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Delegated {
    /// The HTTP/2 path: `/pkg.Service/Method`.
    pub path: String,
    /// The protobuf package that declares it.
    pub package: String,
    /// Its service and its own name, as the `.proto` has them.
    pub name: (String, String),
}

impl Delegated {
    /// Its type in Rust, by which handlers name it.
    pub(crate) fn type_name(&self) -> String {
        let (service, name) = &self.name;
        format!("{service}{name}")
    }
}

/// One line for people.
impl fmt::Display for Delegated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: servers may pass it on", self.path)
    }
}

/// The methods, by path, that can mean what they say.
pub(crate) fn resolve(marked: &[Marked], problems: &mut Vec<Diagnostic>) -> Vec<Delegated> {
    let mut methods = Vec::new();
    for Marked { method, at, filtered } in marked {
        let service = method.parent_service();
        let path = format!("/{}/{}", service.full_name(), method.name());
        let (wrong, hint) = if method.is_client_streaming() {
            ("takes a stream; what is passed on is one message", "remove `stream` before the request, or the option")
        } else if !method.is_server_streaming() {
            ("has one reply; where servers pass a call on there are any number", "write `returns (stream …)`")
        } else if *filtered {
            ("names a filter too; a call is either passed on or mapped", "remove one of the options")
        } else {
            let name = (service.name().to_owned(), method.name().to_owned());
            let method = Delegated { path, package: service.package_name().to_owned(), name };
            let same = |other: &&Delegated| other.package == method.package && other.type_name() == method.type_name();
            if let Some(other) = methods.iter().find(same) {
                let text = format!("{} and {} are both `delegated::{}`", method.path, other.path, method.type_name());
                problems.push(Diagnostic::error(at.clone(), text).hint("give one of them another name"));
            }
            methods.push(method);
            continue;
        };
        problems.push(Diagnostic::error(at.clone(), format!("{path} {wrong}")).hint(hint));
    }
    methods.sort();
    methods
}
