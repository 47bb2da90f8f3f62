//! Caller of a request, as the guard has noted it, and the check of one application.

use std::sync::Arc;

use tonic::{Extensions, Status};

use crate::Identity;
use crate::guard::Table;

/// Who makes a call.
#[derive(Debug, Clone)]
pub struct Caller {
    pub(crate) identity: Identity,
    pub(crate) rpc: String,
    pub(crate) table: Arc<Table>,
}

/// Who makes the call of this request; `None`: nobody is asked, the network is trusted.
#[must_use]
pub fn identity(extensions: &Extensions) -> Option<&Identity> {
    extensions.get::<Caller>().map(|caller| &caller.identity)
}

/// Whether the caller of this request may have it done for `application`.
///
/// # Errors
/// PERMISSION_DENIED.
pub fn check(extensions: &Extensions, application: &str) -> Result<(), Status> {
    let Some(Caller { identity, rpc, table }) = extensions.get::<Caller>() else { return Ok(()) };
    if table.access.allows(identity, rpc, Some(application)) {
        return Ok(());
    }
    // As much of it as metadata may have.
    let application: String = application.chars().take(80).collect();
    Err(Status::permission_denied(format!("{identity} may not call {rpc} for {application:?}")))
}

/// Whether the request has to be looked at: somebody asks who calls.
#[must_use]
pub fn is_known(extensions: &Extensions) -> bool {
    extensions.get::<Caller>().is_some()
}
