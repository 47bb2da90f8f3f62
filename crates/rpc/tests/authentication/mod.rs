//! Tests of the services' own checks: a refused caller has no effect, for any kind of call.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use pathcall_rpc::layer::builder::Builder;
use pathcall_rpc::{Channel, Layer};
use pathcall_test_support::service::{HandlerEvents, TestHandlers, str_int};
use pathcall_test_support::stubs::locks_server::LocksServer;
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_test_support::stubs::words_server::WordsServer;
use pathcall_test_support::stubs::{PATHCALL, Wanted};
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Status};
use tower::Service;

mod calls;
mod delegated;
mod frames;
mod tokens;

/// Path prefix of all methods.
const ALL: &str = "/";

/// Access rules: tokens with the path prefixes that each permits.
#[derive(Debug, Default)]
struct Rules {
    tokens: Mutex<BTreeMap<&'static str, BTreeSet<&'static str>>>,
    /// Number of checked requests by path.
    asked: Mutex<BTreeMap<String, usize>>,
}

impl Rules {
    fn new(tokens: &[(&'static str, &[&'static str])]) -> Arc<Self> {
        let tokens = tokens.iter().map(|(token, paths)| (*token, paths.iter().copied().collect())).collect();
        Arc::new(Self { tokens: Mutex::new(tokens), asked: Mutex::default() })
    }

    fn revoke(&self, token: &str) {
        self.tokens.lock().unwrap().remove(token);
    }

    fn asked(&self, path: &str) -> usize {
        self.asked.lock().unwrap().get(path).copied().unwrap_or_default()
    }

    fn check(&self, path: &str, metadata: &MetadataMap) -> Result<(), Status> {
        *self.asked.lock().unwrap().entry(path.to_owned()).or_default() += 1;
        let token = metadata.get("authorization").and_then(|token| token.to_str().ok()).unwrap_or_default();
        match self.tokens.lock().unwrap().get(token) {
            None => Err(Status::unauthenticated("no such token")),
            Some(paths) if paths.iter().any(|opens| path.starts_with(opens)) => Ok(()),
            Some(_) => Err(Status::permission_denied("not with this token")),
        }
    }
}

/// Layer that checks each request before it passes on.
#[derive(Clone)]
struct Checked<S> {
    /// Rules of the layer; `None` admits all requests.
    rules: Option<Arc<Rules>>,
    inner: S,
}

impl<S> Service<http::Request<Body>> for Checked<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Future: Send + 'static>,
    S::Error: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let metadata = MetadataMap::from_headers(request.headers().clone());
        match self.rules.as_ref().map_or(Ok(()), |rules| rules.check(request.uri().path(), &metadata)) {
            Ok(()) => Box::pin(self.inner.call(request)),
            Err(status) => Box::pin(async move { Ok(status.into_http()) }),
        }
    }
}

#[derive(Clone)]
struct Checks(Option<Arc<Rules>>);

impl<S> tower::Layer<S> for Checks {
    type Service = Checked<S>;

    fn layer(&self, inner: S) -> Checked<S> {
        Checked { rules: self.0.clone(), inner }
    }
}

/// Component that applies the rules.
#[derive(Debug, Clone, Copy, PartialEq)]
enum CheckLocation {
    /// Interceptors, which do not see paths.
    Interceptors,
    /// A layer inside Pathcall's.
    Inner,
    /// A layer around Pathcall's.
    Outer,
}

struct Guarded {
    url: String,
    server: Layer,
    seen: Arc<HandlerEvents>,
    rules: Arc<Rules>,
}

impl Guarded {
    async fn start(by: CheckLocation, rules: Arc<Rules>, set_up: impl FnOnce(Builder) -> Builder) -> Self {
        let server = set_up(Layer::builder(&PATHCALL)).build().await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::<HandlerEvents>::default();
        let handlers = TestHandlers(Arc::clone(&seen));
        let check = {
            let rules = Arc::clone(&rules);
            move |request: Request<()>| match by {
                CheckLocation::Interceptors => rules.check(ALL, request.metadata()).map(|()| request),
                CheckLocation::Inner | CheckLocation::Outer => Ok(request),
            }
        };
        let words = InterceptedService::new(WordsServer::new(handlers.clone()), check.clone());
        // The service of the sums is missing, so no caller is admitted to them.
        let locks = InterceptedService::new(LocksServer::new(handlers), check);
        let checks = |at: CheckLocation| Checks((by == at).then(|| Arc::clone(&rules)));
        let router = tonic::transport::Server::builder()
            .layer(checks(CheckLocation::Outer))
            .layer(server.clone())
            .layer(checks(CheckLocation::Inner))
            .add_service(words)
            .add_service(locks);
        tokio::spawn(router.serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true))));
        Self { url, server, seen, rules }
    }

    async fn channel(&self) -> Channel {
        Channel::connect(self.url.clone(), &PATHCALL).await.unwrap()
    }

    /// Value of a key in the map.
    async fn value(&self, key: &str) -> i64 {
        let wanted = Wanted { keys: Some(str_int(&[(key, 0)])), ..Wanted::default() };
        let found = WordsClient::new(self.channel().await).query(with("good", wanted)).await.unwrap().into_inner();
        found.kvs.unwrap().map[key]
    }

    fn members(&self, app: &str) -> usize {
        self.server.stats().iter().find(|application| application.name == app).unwrap().members
    }
}

fn with<T>(token: &'static str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if !token.is_empty() {
        request.metadata_mut().insert("authorization", token.parse().unwrap());
    }
    request
}

fn wanted(key: &str, text: &str) -> Wanted {
    Wanted { keys: Some(str_int(&[(key, 0)])), text: text.into() }
}
