//! Tests of connections between parties: accepted and refused certificates, and the error messages.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pathcall_auth::{
    AccessGrant, AccessTable, ConnectTarget, Credentials, ExpectedPeer, Identity, IdentityRule, IdentityRules,
    PartyRole, Pattern, Security, caller, innermost,
};
use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_proto::v1::function_client::FunctionClient;
use pathcall_proto::v1::function_server::{Function, FunctionServer};
use pathcall_proto::v1::{
    ChangeGroupReply, ChangeGroupRequest, FunctionStatusReply, FunctionStatusRequest, ServerReport, ServerTask,
    StatusRequest,
};
use pathcall_test_support::HANG;
use pathcall_test_support::certificates::{Authority, DOMAIN, Leaf};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_stream::Empty;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status, Streaming};

/// Service that records its callers.
#[derive(Default)]
struct Echo {
    asked: Arc<AtomicU64>,
    by: Arc<Mutex<Vec<String>>>,
}

#[tonic::async_trait]
impl Function for Echo {
    type ServeStream = Empty<Result<ServerTask, Status>>;

    async fn serve(&self, _: Request<Streaming<ServerReport>>) -> Result<Response<Self::ServeStream>, Status> {
        Err(Status::unimplemented("not here"))
    }

    async fn change_group(&self, request: Request<ChangeGroupRequest>) -> Result<Response<ChangeGroupReply>, Status> {
        caller::check(request.extensions(), &request.get_ref().add[0])?;
        self.asked.fetch_add(1, Ordering::SeqCst);
        Ok(Response::new(ChangeGroupReply::default()))
    }

    async fn function_status(
        &self,
        request: Request<FunctionStatusRequest>,
    ) -> Result<Response<FunctionStatusReply>, Status> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let who = caller::identity(request.extensions()).map_or("anybody".to_owned(), ToString::to_string);
        self.by.lock().unwrap().push(who);
        Ok(Response::new(FunctionStatusReply::default()))
    }
}

struct Running {
    address: SocketAddr,
    url: String,
    asked: Arc<AtomicU64>,
    by: Arc<Mutex<Vec<String>>>,
    _task: JoinSet<()>,
}

async fn serve(security: Security) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let echo = Echo::default();
    let (asked, by) = (Arc::clone(&echo.asked), Arc::clone(&echo.by));
    let url = format!("{}://{address}", security.scheme());
    let mut task = JoinSet::new();
    task.spawn(async move {
        let routes = Routes::new(FunctionServer::new(echo));
        security.serve(Server::builder(), routes, listener, std::future::pending()).await.unwrap();
    });
    Running { address, url, asked, by, _task: task }
}

/// Result of a call: its status, or the reason of a failed connection.
async fn call(target: &ConnectTarget) -> Result<(), Status> {
    let called = async {
        let channel = target.connect().await.map_err(|error| Status::unavailable(innermost(&error)))?;
        FunctionClient::new(channel).function_status(FunctionStatusRequest {}).await.map(drop)
    };
    timeout(HANG, called).await.expect("an answer")
}

fn target(url: &str, credentials: &Credentials) -> ConnectTarget {
    ConnectTarget::new(url, Some(credentials), ExpectedPeer::new(PartyRole::Element).or(PartyRole::Controller)).unwrap()
}

#[tokio::test]
async fn caller_with_role_is_served_and_identified() {
    let authority = Authority::new();
    let running = serve(authority.security(PartyRole::Element, "e1")).await;
    let operator = authority.credentials(PartyRole::Operator, "ann");
    call(&target(&running.url, &operator)).await.unwrap();
    assert_eq!(*running.by.lock().unwrap(), ["operator ann"]);
}

#[tokio::test]
async fn caller_with_wrong_role_does_not_reach_service() {
    let authority = Authority::new();
    let running = serve(authority.security(PartyRole::Element, "e1")).await;
    for role in [PartyRole::Server, PartyRole::Caller, PartyRole::Element, PartyRole::Controller] {
        let refused = call(&target(&running.url, &authority.credentials(role, "x"))).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        assert!(refused.message().contains(&format!("{role} x may not call Function/FunctionStatus")), "{refused}");
    }
    let unnamed = authority.signed(&[], &["client.example"], Duration::from_secs(86_400));
    let unnamed =
        Credentials::pem(&authority.pem(), &unnamed.certificate, &unnamed.key, IdentityRules::default()).unwrap();
    let refused = call(&target(&running.url, &unnamed)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    assert_eq!(running.asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn caller_without_trusted_certificate_is_refused() {
    let authority = Authority::new();
    let running = serve(authority.security(PartyRole::Element, "e1")).await;
    // Trusts the service, but no party trusts its authority: TLS 1.3 lets it connect, and the call fails.
    let other = Authority::new();
    let Leaf { certificate, key } = other.leaf(PartyRole::Operator, "mallory");
    let both = authority.pem() + &other.pem();
    let mallory = Credentials::pem(&both, &certificate, &key, IdentityRules::default()).unwrap();
    let refused = call(&target(&running.url, &mallory)).await.unwrap_err();
    assert!(matches!(refused.code(), Code::Unavailable | Code::Unknown), "{refused}");
    // A plaintext caller, and silent connections while others are served.
    let plain = ConnectTarget::new(&format!("http://{}", running.address), None, ExpectedPeer::new(PartyRole::Element))
        .unwrap();
    call(&plain).await.unwrap_err();
    let mut silent = Vec::new();
    for _ in 0..32 {
        silent.push(TcpStream::connect(running.address).await.unwrap());
    }
    call(&target(&running.url, &authority.credentials(PartyRole::Operator, "ann"))).await.unwrap();
    assert_eq!(running.asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn unexpected_peer_is_refused() {
    let (authority, operator) = (Authority::new(), PartyRole::Operator);
    let ann = authority.credentials(operator, "ann");
    // A caller's certificate is not valid for a service, for any name.
    let running = serve(authority.security(PartyRole::Caller, "mallory")).await;
    let refused = call(&target(&running.url, &ann)).await.unwrap_err();
    assert!(
        refused.message().contains("the certificate belongs to caller mallory, expected the role element"),
        "{refused}"
    );
    // A certificate without a role is valid for its names.
    for (name, served) in [("127.0.0.1", true), ("127.0.0.2", false)] {
        let Leaf { certificate, key } = authority.signed(&[], &[name], Duration::from_secs(86_400));
        let credentials = Credentials::pem(&authority.pem(), &certificate, &key, IdentityRules::default()).unwrap();
        let running = serve(Security::new(credentials, AccessTable::default())).await;
        assert_eq!(call(&target(&running.url, &ann)).await.is_ok(), served, "{name}");
    }
    // A certificate of another authority is not valid.
    let foreign = serve(Authority::new().security(PartyRole::Element, "e1")).await;
    call(&target(&foreign.url, &ann)).await.unwrap_err();
    assert_eq!(foreign.asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn peer_with_expired_certificate_is_refused() {
    let authority = Authority::new();
    let ann = authority.credentials(PartyRole::Operator, "ann");
    let element = Identity::new(PartyRole::Element, "e1").uri(DOMAIN);
    // Issued an hour ago: valid until tomorrow, and expired half an hour ago.
    for (lifetime, good) in [(86_400, true), (1_800, false)] {
        let Leaf { certificate, key } = authority.signed(&[&element], &[], Duration::from_secs(lifetime));
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let versions = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions();
        // A server that does not check its own certificate.
        let config = versions.unwrap().with_no_client_auth().with_single_cert(chain, key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let meets = async move {
            let (stream, _) = listener.accept().await.unwrap();
            TlsAcceptor::from(Arc::new(config)).accept(stream).await.is_ok()
        };
        let target = target(&url, &ann);
        let (met, called) = tokio::join!(timeout(HANG, meets), call(&target));
        assert_eq!(met, Ok(good), "good for {lifetime} s");
        let said = called.unwrap_err();
        assert_eq!(said.message().contains("certificate expired"), !good, "{said}");
    }
}

#[tokio::test]
async fn rules_identify_certificates_of_other_issuers() {
    let authority = Authority::new();
    let element = authority.signed(&["spiffe://corp/ns/net/sa/element-7"], &[], Duration::from_secs(86_400));
    let ann = authority.signed(&["spiffe://corp/people/ann"], &[], Duration::from_secs(86_400));
    let rules = IdentityRules::default()
        .domain(DOMAIN)
        .rule(IdentityRule::new(Pattern::new("spiffe://corp/ns/net/sa/element-*"), PartyRole::Element))
        .rule(IdentityRule::new(Pattern::new("spiffe://corp/people/*"), PartyRole::Operator).name("people"));
    let of = |leaf: &Leaf| Credentials::pem(&authority.pem(), &leaf.certificate, &leaf.key, rules.clone()).unwrap();
    let running = serve(Security::new(of(&element), AccessTable::default())).await;
    call(&target(&running.url, &of(&ann))).await.unwrap();
    // A role in the URI of another trust domain is ignored, even if the same authority has signed it.
    let bob = authority.signed(&["spiffe://other/pathcall/operator/bob"], &[], Duration::from_secs(86_400));
    let refused = call(&target(&running.url, &of(&bob))).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    assert_eq!(*running.by.lock().unwrap(), ["operator people"]);
}

#[tokio::test]
async fn grants_restrict_names_and_applications() {
    let authority = Authority::new();
    let access = AccessTable::default()
        .grant(AccessGrant::new(PartyRole::Operator).name(Pattern::new("ann")).applications([Pattern::new("a-*")]));
    let running = serve(Security::new(authority.credentials(PartyRole::Element, "e1"), access)).await;
    let change = async |name: &str, application: &str| {
        let channel = target(&running.url, &authority.credentials(PartyRole::Operator, name)).connect().await.unwrap();
        let request = ChangeGroupRequest { add: vec![application.to_owned()], remove: Vec::new() };
        FunctionClient::new(channel).change_group(request).await.map_err(|status| status.code()).map(drop)
    };
    assert_eq!(change("ann", "a-1").await, Ok(()));
    assert_eq!(change("ann", "b-1").await, Err(Code::PermissionDenied));
    assert_eq!(change("bob", "a-1").await, Err(Code::PermissionDenied));
    assert_eq!(running.asked.load(Ordering::SeqCst), 1);
    // The error of a missing service gives no details.
    let channel = target(&running.url, &authority.credentials(PartyRole::Operator, "ann")).connect().await.unwrap();
    ControllerClient::new(channel).status(StatusRequest {}).await.unwrap_err();
}

#[tokio::test]
async fn renewed_certificates_are_used_for_new_connections() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    let element = authority.files(folder.path(), PartyRole::Element, "e1");
    let running = serve(Security::new(element.clone(), AccessTable::default())).await;
    let ann = authority.credentials(PartyRole::Operator, "ann");
    let open = target(&running.url, &ann).connect().await.unwrap();
    // A new authority replaces the old one: callers that trust the new one are served, and open connections stay open.
    let next = Authority::new();
    next.write(folder.path(), PartyRole::Element, "e1");
    element.reload_if_changed();
    call(&target(&running.url, &next.credentials(PartyRole::Operator, "bob"))).await.unwrap();
    call(&target(&running.url, &ann)).await.unwrap_err();
    FunctionClient::new(open).function_status(FunctionStatusRequest {}).await.unwrap();
    // An invalid file changes nothing.
    std::fs::write(folder.path().join("e1.pem"), "cut off").unwrap();
    element.reload_if_changed();
    call(&target(&running.url, &next.credentials(PartyRole::Operator, "bob"))).await.unwrap();
    assert_eq!(*running.by.lock().unwrap(), ["operator bob", "operator ann", "operator bob"]);
}

#[tokio::test]
async fn calls_succeed_during_certificate_renewal() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    let element = authority.files(folder.path(), PartyRole::Element, "e1");
    let ann = authority.files(folder.path(), PartyRole::Operator, "ann");
    let running = serve(Security::new(element.clone(), AccessTable::default())).await;
    let lasting = target(&running.url, &ann).connect_lazy();
    for _ in 0..50 {
        authority.write(folder.path(), PartyRole::Element, "e1");
        authority.write(folder.path(), PartyRole::Operator, "ann");
        element.reload_if_changed();
        ann.reload_if_changed();
        let connection = target(&running.url, &ann);
        let mut calls = JoinSet::new();
        for channel in [lasting.clone(), connection.connect().await.unwrap()] {
            calls.spawn(async move {
                FunctionClient::new(channel).function_status(FunctionStatusRequest {}).await.unwrap()
            });
        }
        timeout(HANG, calls.join_all()).await.unwrap();
    }
    assert_eq!(running.asked.load(Ordering::SeqCst), 100);
}

#[test]
fn target_requires_matching_scheme_and_credentials() {
    let authority = Authority::new();
    let credentials = authority.credentials(PartyRole::Operator, "ann");
    let said = |url: &str, credentials| {
        ConnectTarget::new(url, credentials, ExpectedPeer::new(PartyRole::Controller))
            .map(drop)
            .map_err(|error| error.to_string())
    };
    for url in ["http://127.0.0.1:7700", "http://[::1]:7700", "http://controller:7700/"] {
        assert_eq!(said(url, None), Ok(()), "{url}");
    }
    assert_eq!(said("https://127.0.0.1:7700", Some(&credentials)), Ok(()));
    for url in ["", "127.0.0.1:7700", "ftp://127.0.0.1:7700", "http://127.0.0.1", "http://"] {
        assert_eq!(
            said(url, None).unwrap_err(),
            format!("controller address {url:?}: expected http://host:port, as in http://127.0.0.1:7700")
        );
    }
    let plain = said("http://127.0.0.1:7700", Some(&credentials)).unwrap_err();
    assert!(plain.contains("expected https://host:port"), "{plain}");
    let none = said("https://127.0.0.1:7700", None).unwrap_err();
    assert!(none.contains("set them with --tls"), "{none}");
}

/// Whether the service closes the connection of a client that sends only `words`.
async fn ended_after(address: SocketAddr, words: &[u8]) -> bool {
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(words).await.unwrap();
    let until_the_end = async { while client.read(&mut [0; 1024]).await.is_ok_and(|bytes| bytes > 0) {} };
    timeout(HANG, until_the_end).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn connection_without_client_preface_is_closed() {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let plain = serve(Security::default()).await;
    assert!(ended_after(plain.address, b"").await);
    assert!(ended_after(plain.address, &preface[..23]).await);
    assert!(!ended_after(plain.address, preface).await);
    let authority = Authority::new();
    let secured = serve(authority.security(PartyRole::Element, "e1")).await;
    assert!(ended_after(secured.address, b"").await);
}
