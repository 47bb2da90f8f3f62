//! Layer before Pathcall's own services: authenticates the caller and checks its access before the call begins.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Extensions, Request, Response};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tonic::Status;
use tonic::body::Body;
use tonic::transport::server::{TcpConnectInfo, TlsConnectInfo};
use tower::{Layer, Service};

use crate::access::rpc_of;
use crate::caller::AuthenticatedCaller;
use crate::{AccessTable, Identity, IdentityRules};

/// Access layer. Without credentials it admits every call: the network is trusted.
#[derive(Debug, Clone)]
pub struct AccessGuard(Option<Arc<GuardTable>>);

/// Whether a caller must have a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificatePolicy {
    /// Callers without a certificate are refused.
    Required,
    /// Certificates are checked if present; other checks admit callers without one.
    Optional,
}

/// Identity rules and access table.
#[derive(Debug)]
pub(crate) struct GuardTable {
    rules: IdentityRules,
    pub(crate) access: AccessTable,
}

impl AccessGuard {
    /// Layer that checks `access`, if there are credentials.
    #[must_use]
    pub fn new(credentials: Option<&crate::Credentials>, access: AccessTable) -> Self {
        Self(credentials.map(|credentials| Arc::new(GuardTable { rules: credentials.rules().clone(), access })))
    }

    /// Checks whether the call may begin, and adds the caller to the request's extensions.
    ///
    /// # Errors
    /// UNAUTHENTICATED without a required certificate or without a role in it; PERMISSION_DENIED without access to the
    /// RPC.
    pub fn check<B>(&self, request: &mut Request<B>, certificate: CertificatePolicy) -> Result<(), Status> {
        let (Some(table), Some(rpc)) = (&self.0, rpc_of(request.uri().path())) else { return Ok(()) };
        let Some(identity) = table.identify(request.extensions(), rpc, certificate)? else { return Ok(()) };
        let rpc = rpc.to_owned();
        request.extensions_mut().insert(AuthenticatedCaller { identity, rpc, table: Arc::clone(table) });
        Ok(())
    }

    /// Checks whether the caller of a request of any service may use `application` as if it called `rpc`, by its
    /// certificate. A caller without one is admitted.
    ///
    /// # Errors
    /// UNAUTHENTICATED without a role in the certificate; PERMISSION_DENIED without access.
    pub fn check_application(&self, extensions: &Extensions, rpc: &str, application: &str) -> Result<(), Status> {
        let Some(table) = &self.0 else { return Ok(()) };
        let Some(identity) = table.identify(extensions, rpc, CertificatePolicy::Optional)? else { return Ok(()) };
        let caller = AuthenticatedCaller { identity, rpc: rpc.to_owned(), table: Arc::clone(table) };
        caller.check(application)
    }
}

impl GuardTable {
    /// Identity of a caller that may call `rpc`; `None` without a certificate, if none is required.
    fn identify(
        &self,
        extensions: &Extensions,
        rpc: &str,
        certificate: CertificatePolicy,
    ) -> Result<Option<Identity>, Status> {
        let info = extensions.get::<TlsConnectInfo<TcpConnectInfo>>();
        let certificates = info.and_then(TlsConnectInfo::peer_certs);
        if certificates.is_none() && certificate == CertificatePolicy::Optional {
            return Ok(None);
        }
        let certificate: Option<&CertificateDer<'_>> =
            certificates.as_ref().and_then(|certificates| certificates.first());
        let Some(identity) = certificate.and_then(|certificate| self.rules.identify(certificate)) else {
            return Err(Status::unauthenticated(format!(
                "{rpc}: the caller's certificate has no role: expected a URI \
                 spiffe://<trust domain>/pathcall/<role>/<name>"
            )));
        };
        if !self.access.allows(&identity, rpc, None) {
            return Err(Status::permission_denied(format!("{identity} may not call {rpc}")));
        }
        Ok(Some(identity))
    }
}

impl<S> Layer<S> for AccessGuard {
    type Service = GuardedService<S>;

    fn layer(&self, inner: S) -> GuardedService<S> {
        GuardedService { guard: self.clone(), inner }
    }
}

/// Service behind an [`AccessGuard`].
#[derive(Debug, Clone)]
pub struct GuardedService<S> {
    guard: AccessGuard,
    inner: S,
}

impl<S, B> Service<Request<B>> for GuardedService<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        match self.guard.check(&mut request, CertificatePolicy::Required) {
            Ok(()) => Box::pin(self.inner.call(request)),
            Err(status) => {
                tracing::info!("refused a call: {}", status.message());
                Box::pin(async move { Ok(status.into_http()) })
            }
        }
    }
}
