//! Methods with one `AppName` work on one map: they must agree on what is in it.

use std::collections::BTreeMap;

use pathcall_proto::manifest::Kind;

use super::Method;
use crate::diagnostic::Diagnostic;

/// Complains about methods that disagree with the first of their application.
pub(super) fn compare(methods: &[Method], problems: &mut Vec<Diagnostic>) {
    for methods in by_app(methods).values() {
        let mut methods = methods.clone();
        methods.sort_by(|a, b| {
            (&a.at.file, a.at.line, a.at.column, &a.path).cmp(&(&b.at.file, b.at.line, b.at.column, &b.path))
        });
        // One complaint per method is enough: with the first that it disagrees with.
        for (i, method) in methods.iter().enumerate() {
            problems.extend(methods[..i].iter().find_map(|first| disagreement(first, method)));
        }
    }
}

/// Writes the digest of each application into its methods: FNV-1a, 64 bits, over the canonical
/// lines ([`Method::canonical`]) of its methods, sorted by path.
pub(super) fn digest(methods: &mut [Method]) {
    let mut digests = BTreeMap::new();
    for (app, methods) in by_app(methods) {
        let mut lines: Vec<_> = methods.iter().map(|method| method.canonical()).collect();
        lines.sort_unstable();
        digests.insert(app.to_owned(), fnv1a(lines.concat().as_bytes()));
    }
    for method in methods {
        method.digest = digests[&method.app];
    }
}

fn by_app(methods: &[Method]) -> BTreeMap<&str, Vec<&Method>> {
    let mut apps: BTreeMap<&str, Vec<&Method>> = BTreeMap::new();
    for method in methods {
        apps.entry(&method.app).or_default().push(method);
    }
    apps
}

fn disagreement(first: &Method, method: &Method) -> Option<Diagnostic> {
    let app = &method.app;
    let (field, text, hint) = if service(first) != service(method) {
        let text = format!(
            "application {app:?} belongs to service `{}`, and `{}` is another",
            service(first),
            service(method)
        );
        ("AppName", text, "give each service an application of its own")
    } else if first.precision != method.precision {
        let text = format!("application {app:?} has Precision {}, not {}", first.precision, method.precision);
        ("Precision", text, "use one Precision throughout an application")
    } else if let Some(text) = clash(first.kind, method.kind) {
        ("AppName", format!("in application {app:?}, {text}"), "give one of them another AppName")
    } else if string_keys(first).zip(string_keys(method)).is_some_and(|(a, b)| a != b) {
        let text = format!("application {app:?} has both string and integer keys");
        ("AppName", text, "give one of them another AppName")
    } else if float_values(first).zip(float_values(method)).is_some_and(|(a, b)| a != b) {
        let text = format!("application {app:?} has both floating-point and integer values");
        ("AppName", text, "give one of them another AppName")
    } else {
        return None;
    };
    let see = format!("`{}` is here", first.path);
    Some(Diagnostic::error(method.at.clone(), text).field(field).hint(hint).see(first.at.clone(), see))
}

/// What two kinds on one map would do to each other.
fn clash(first: Kind, second: Kind) -> Option<&'static str> {
    match (first, second) {
        // The callers of two sums need not take turns alike, and would add one to the other.
        (Kind::Sum { .. }, Kind::Sum { .. }) => Some("there is a sum already"),
        (Kind::Sum { .. }, _) | (_, Kind::Sum { .. }) => Some("a sum cannot share the map with keys"),
        (Kind::Add { .. }, Kind::Count { .. }) | (Kind::Count { .. }, Kind::Add { .. }) => {
            Some("votes cannot share the map with values that are added")
        }
        _ => None,
    }
}

/// Whether the keys are strings, if the method has any.
fn string_keys(method: &Method) -> Option<bool> {
    method.request.as_ref().or(method.reply.as_ref()).map(|field| field.shape.has_string_keys())
}

/// Whether the values are floating-point, if the method adds or reads any; those of a field that
/// only gives keys do not count.
fn float_values(method: &Method) -> Option<bool> {
    let field = match method.kind {
        Kind::Sum { .. } | Kind::Add { .. } => &method.request,
        Kind::Query => &method.reply,
        Kind::Count { .. } | Kind::Clear => &None,
    };
    field.as_ref().map(|field| field.shape.is_float())
}

/// `/pkg.Service/Method` without the method.
fn service(method: &Method) -> &str {
    method.path.trim_start_matches('/').split('/').next().unwrap_or_default()
}

/// FNV-1a with 64 bits: <http://www.isthe.com/chongo/tech/comp/fnv/>.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv1a_of_the_published_vectors() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
