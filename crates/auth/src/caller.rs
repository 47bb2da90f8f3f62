//! Authenticated caller of a request, and the check of its access to an application.

use std::sync::Arc;

use tonic::{Extensions, Status};

use crate::Identity;
use crate::guard::GuardTable;

/// Authenticated caller of a request: an extension that the guard adds.
#[derive(Debug, Clone)]
pub struct AuthenticatedCaller {
    pub(crate) identity: Identity,
    pub(crate) rpc: String,
    pub(crate) table: Arc<GuardTable>,
}

/// Identity of a request's caller; `None` without authentication, on a trusted network.
#[must_use]
pub fn identity(extensions: &Extensions) -> Option<&Identity> {
    extensions.get::<AuthenticatedCaller>().map(|caller| &caller.identity)
}

/// Checks whether the caller of a request has access to `application`.
///
/// # Errors
/// PERMISSION_DENIED without access.
pub fn check(extensions: &Extensions, application: &str) -> Result<(), Status> {
    extensions.get::<AuthenticatedCaller>().map_or(Ok(()), |caller| caller.check(application))
}

impl AuthenticatedCaller {
    pub(crate) fn check(&self, application: &str) -> Result<(), Status> {
        let Self { identity, rpc, table } = self;
        if table.access.allows(identity, rpc, Some(application)) {
            return Ok(());
        }
        // Truncated: metadata has a maximum size.
        let application: String = application.chars().take(80).collect();
        Err(Status::permission_denied(format!("{identity} may not call {rpc} for {application:?}")))
    }
}

/// Whether the request's caller is authenticated, so that its access has to be checked.
#[must_use]
pub fn is_known(extensions: &Extensions) -> bool {
    extensions.get::<AuthenticatedCaller>().is_some()
}
