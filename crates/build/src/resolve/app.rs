//! Checks that all methods with one `AppName`, which share a map, agree on its content.

use std::collections::BTreeMap;

use pathcall_proto::manifest::Kind;

use super::ResolvedMethod;
use crate::diagnostic::BuildDiagnostic;

/// Reports methods that disagree with the first method of their application.
pub(super) fn compare(methods: &[ResolvedMethod], problems: &mut Vec<BuildDiagnostic>) {
    for methods in by_app(methods).values() {
        let mut methods = methods.clone();
        methods.sort_by(|a, b| {
            (&a.at.file, a.at.line, a.at.column, &a.path).cmp(&(&b.at.file, b.at.line, b.at.column, &b.path))
        });
        // One diagnostic per method: for the first disagreement.
        for (i, method) in methods.iter().enumerate() {
            problems.extend(methods[..i].iter().find_map(|first| disagreement(first, method)));
        }
    }
}

/// Sets the digest of each application in its methods: 64-bit FNV-1a over the canonical lines
/// ([`ResolvedMethod::canonical`]) of its methods, sorted by path.
pub(super) fn digest(methods: &mut [ResolvedMethod]) {
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

fn by_app(methods: &[ResolvedMethod]) -> BTreeMap<&str, Vec<&ResolvedMethod>> {
    let mut apps: BTreeMap<&str, Vec<&ResolvedMethod>> = BTreeMap::new();
    for method in methods {
        apps.entry(&method.app).or_default().push(method);
    }
    apps
}

fn disagreement(first: &ResolvedMethod, method: &ResolvedMethod) -> Option<BuildDiagnostic> {
    let app = &method.app;
    let (field, text, hint) = if service(first) != service(method) {
        let text = format!(
            "application {app:?} belongs to service `{}` and cannot be used in `{}`",
            service(first),
            service(method)
        );
        ("AppName", text, "give each service a separate application")
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
    Some(BuildDiagnostic::error(method.at.clone(), text).field(field).hint(hint).see(first.at.clone(), see))
}

/// Conflict of two kinds of methods on one map.
fn clash(first: Kind, second: Kind) -> Option<&'static str> {
    match (first, second) {
        (Kind::Modify, _) | (_, Kind::Modify) => None,
        // Callers of two sums may call them in different orders, which would add one sum to the other.
        (Kind::Sum { .. }, Kind::Sum { .. }) => Some("only one method can be a sum"),
        (Kind::Sum { .. }, _) | (_, Kind::Sum { .. }) => Some("a sum cannot share the map with keys"),
        (Kind::Add { .. }, Kind::Count { .. }) | (Kind::Count { .. }, Kind::Add { .. }) => {
            Some("votes cannot share the map with values that are added")
        }
        _ => None,
    }
}

/// True for string keys; `None` for a method without keys.
fn string_keys(method: &ResolvedMethod) -> Option<bool> {
    method.request.as_ref().or(method.reply.as_ref()).map(|field| field.shape.has_string_keys())
}

/// True for floating-point values; `None` for a method that neither adds nor reads values. Fields that only provide
/// keys do not count.
fn float_values(method: &ResolvedMethod) -> Option<bool> {
    let field = match method.kind {
        Kind::Sum { .. } | Kind::Add { .. } => &method.request,
        Kind::Query => &method.reply,
        Kind::Count { .. } | Kind::Clear | Kind::Modify => &None,
    };
    field.as_ref().map(|field| field.shape.is_float())
}

/// Path `/pkg.Service/Method` without the method.
fn service(method: &ResolvedMethod) -> &str {
    method.path.trim_start_matches('/').split('/').next().unwrap_or_default()
}

/// 64-bit FNV-1a: <http://www.isthe.com/chongo/tech/comp/fnv/>.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv1a_matches_published_vectors() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
