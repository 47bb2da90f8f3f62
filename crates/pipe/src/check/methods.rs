//! Look-up of unary methods by their paths.

use http::uri::PathAndQuery;
use pathcall_build::BuildDiagnostic;
use pathcall_build::diagnostic::one_of;
use pathcall_place::model::yaml::SpannedText;
use prost_reflect::{DescriptorPool, MessageDescriptor};

use super::wrong;

/// Unary method.
#[derive(Debug)]
pub(super) struct UnaryMethod {
    /// Path: `/pkg.Service/Method`.
    pub(super) path: PathAndQuery,
    pub(super) input: MessageDescriptor,
    pub(super) output: MessageDescriptor,
    /// Whether executing a call twice has the same effect as once.
    pub(super) idempotent: bool,
}

impl UnaryMethod {
    /// Finds a method by its path in the file.
    pub(super) fn find(file: &str, pool: &DescriptorPool, path: &SpannedText) -> Result<Self, Box<BuildDiagnostic>> {
        let text = &path.value;
        let fail = |message: String| Err(wrong(file, path, message));
        let Some((service, method)) = text.strip_prefix('/').and_then(|text| text.split_once('/')) else {
            return fail(format!("invalid method `{text}`; write /package.Service/Method"));
        };
        let Some(found) = pool.get_service_by_name(service) else {
            let services: Vec<_> = pool.services().map(|service| service.full_name().to_owned()).collect();
            let known = one_of(services.iter().map(String::as_str));
            return fail(format!("the .proto files have no service `{service}`; they have {known}"));
        };
        let Some(method) = found.methods().find(|known| known.name() == method) else {
            let methods: Vec<_> = found.methods().map(|method| method.name().to_owned()).collect();
            let known = one_of(methods.iter().map(String::as_str));
            return fail(format!("`{service}` has no method `{method}`; it has {known}"));
        };
        if method.is_client_streaming() || method.is_server_streaming() {
            return fail(format!("{text} is a streaming method; a pipe has unary methods only"));
        }
        let Ok(path) = PathAndQuery::try_from(text) else {
            return fail(format!("invalid method `{text}`; write /package.Service/Method"));
        };
        let idempotent = pathcall_build::is_idempotent(&method);
        Ok(Self { path, input: method.input(), output: method.output(), idempotent })
    }
}
