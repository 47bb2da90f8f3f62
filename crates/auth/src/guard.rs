//! A layer before Pathcall's own services: asks who calls, and whether that may, before the call is taken.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tonic::Status;
use tonic::body::Body;
use tonic::transport::server::{TcpConnectInfo, TlsConnectInfo};
use tower::{Layer, Service};

use crate::access::rpc_of;
use crate::caller::Caller;
use crate::{Access, Rules};

/// The layer. Without credentials everybody may do everything: the network is trusted.
#[derive(Debug, Clone)]
pub struct Guard(Option<Arc<Table>>);

/// Whether a caller has to show one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certificate {
    /// It has.
    Required,
    /// One that is shown counts; who shows none is let in by others.
    Optional,
}

/// Who is who, and may do what.
#[derive(Debug)]
pub(crate) struct Table {
    rules: Rules,
    pub(crate) access: Access,
}

impl Guard {
    /// Asks `access`, if there are credentials.
    #[must_use]
    pub fn new(credentials: Option<&crate::Credentials>, access: Access) -> Self {
        Self(credentials.map(|credentials| Arc::new(Table { rules: credentials.rules().clone(), access })))
    }

    /// Whether the call may be taken; it is told who calls. A caller that shows no certificate may not, unless others let such
    /// callers in.
    ///
    /// # Errors
    /// UNAUTHENTICATED for certificates that say no role, PERMISSION_DENIED for an RPC that is none of the caller's.
    pub fn check<B>(&self, request: &mut Request<B>, certificate: Certificate) -> Result<(), Status> {
        let (Some(table), Some(rpc)) = (&self.0, rpc_of(request.uri().path())) else { return Ok(()) };
        let info = request.extensions().get::<TlsConnectInfo<TcpConnectInfo>>();
        let certificates = info.and_then(TlsConnectInfo::peer_certs);
        if certificates.is_none() && certificate == Certificate::Optional {
            return Ok(());
        }
        let certificate: Option<&CertificateDer<'_>> =
            certificates.as_ref().and_then(|certificates| certificates.first());
        let Some(identity) = certificate.and_then(|certificate| table.rules.identify(certificate)) else {
            return Err(Status::unauthenticated(format!(
                "{rpc}: the caller's certificate says no role: spiffe://<trust domain>/pathcall/<role>/<name>"
            )));
        };
        if !table.access.allows(&identity, rpc, None) {
            return Err(Status::permission_denied(format!("{identity} may not call {rpc}")));
        }
        let rpc = rpc.to_owned();
        request.extensions_mut().insert(Caller { identity, rpc, table: Arc::clone(table) });
        Ok(())
    }
}

impl<S> Layer<S> for Guard {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { guard: self.clone(), inner }
    }
}

/// A service behind the [`Guard`].
#[derive(Debug, Clone)]
pub struct Guarded<S> {
    guard: Guard,
    inner: S,
}

impl<S, B> Service<Request<B>> for Guarded<S>
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
        match self.guard.check(&mut request, Certificate::Required) {
            Ok(()) => Box::pin(self.inner.call(request)),
            Err(status) => {
                tracing::info!("a call is refused: {}", status.message());
                Box::pin(async move { Ok(status.into_http()) })
            }
        }
    }
}
