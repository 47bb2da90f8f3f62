//! Connections between parties: who gets through to whom, and what is said to the others.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pathcall_auth::{
    Access, Credentials, Grant, Identity, Pattern, Peer, Role, Rule, Rules, Security, Target, caller, innermost,
};
use pathcall_proto::v1::controller_client::ControllerClient;
use pathcall_proto::v1::function_client::FunctionClient;
use pathcall_proto::v1::function_server::{Function, FunctionServer};
use pathcall_proto::v1::{
    ChangeGroupReply, ChangeGroupRequest, FunctionStatusReply, FunctionStatusRequest, ServerTask, ServerWord,
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

/// Says who asks, and counts.
#[derive(Default)]
struct Echo {
    asked: Arc<AtomicU64>,
    by: Arc<Mutex<Vec<String>>>,
}

#[tonic::async_trait]
impl Function for Echo {
    type ServeStream = Empty<Result<ServerTask, Status>>;

    async fn serve(&self, _: Request<Streaming<ServerWord>>) -> Result<Response<Self::ServeStream>, Status> {
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

/// What a call comes to: its status, or why there is no connection.
async fn call(target: &Target) -> Result<(), Status> {
    let called = async {
        let channel = target.connect().await.map_err(|error| Status::unavailable(innermost(&error)))?;
        FunctionClient::new(channel).function_status(FunctionStatusRequest {}).await.map(drop)
    };
    timeout(HANG, called).await.expect("an answer")
}

fn target(url: &str, credentials: &Credentials) -> Target {
    Target::new(url, Some(credentials), Peer::new(Role::Element).or(Role::Controller)).unwrap()
}

#[tokio::test]
async fn caller_of_the_right_role_is_served_and_known_by_name() {
    let authority = Authority::new();
    let running = serve(authority.security(Role::Element, "e1")).await;
    let operator = authority.credentials(Role::Operator, "ann");
    call(&target(&running.url, &operator)).await.unwrap();
    assert_eq!(*running.by.lock().unwrap(), ["operator ann"]);
}

#[tokio::test]
async fn caller_of_another_role_is_refused_before_the_service() {
    let authority = Authority::new();
    let running = serve(authority.security(Role::Element, "e1")).await;
    for role in [Role::Server, Role::Caller, Role::Element, Role::Controller] {
        let refused = call(&target(&running.url, &authority.credentials(role, "x"))).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        assert!(refused.message().contains(&format!("{role} x may not call Function/FunctionStatus")), "{refused}");
    }
    let unnamed = authority.signed(&[], &["client.example"], Duration::from_secs(86_400));
    let unnamed = Credentials::pem(&authority.pem(), &unnamed.certificate, &unnamed.key, Rules::default()).unwrap();
    let refused = call(&target(&running.url, &unnamed)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    assert_eq!(running.asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn caller_without_a_trusted_certificate_gets_no_connection() {
    let authority = Authority::new();
    let running = serve(authority.security(Role::Element, "e1")).await;
    // Trusts the service, and is trusted by nobody: TLS 1.3 lets it connect, and the call fails.
    let other = Authority::new();
    let Leaf { certificate, key } = other.leaf(Role::Operator, "mallory");
    let both = authority.pem() + &other.pem();
    let mallory = Credentials::pem(&both, &certificate, &key, Rules::default()).unwrap();
    let refused = call(&target(&running.url, &mallory)).await.unwrap_err();
    assert!(matches!(refused.code(), Code::Unavailable | Code::Unknown), "{refused}");
    // Plaintext, and somebody who says nothing while others come.
    let plain = Target::new(&format!("http://{}", running.address), None, Peer::new(Role::Element)).unwrap();
    call(&plain).await.unwrap_err();
    let mut silent = Vec::new();
    for _ in 0..32 {
        silent.push(TcpStream::connect(running.address).await.unwrap());
    }
    call(&target(&running.url, &authority.credentials(Role::Operator, "ann"))).await.unwrap();
    assert_eq!(running.asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn peer_that_is_somebody_else_is_not_spoken_to() {
    let (authority, operator) = (Authority::new(), Role::Operator);
    let ann = authority.credentials(operator, "ann");
    // A caller's certificate is good for no service, of whatever name it is.
    let running = serve(authority.security(Role::Caller, "mallory")).await;
    let refused = call(&target(&running.url, &ann)).await.unwrap_err();
    assert!(refused.message().contains("the certificate is of caller mallory, expected the role element"), "{refused}");
    // One that says no role is good for its names.
    for (name, served) in [("127.0.0.1", true), ("127.0.0.2", false)] {
        let Leaf { certificate, key } = authority.signed(&[], &[name], Duration::from_secs(86_400));
        let credentials = Credentials::pem(&authority.pem(), &certificate, &key, Rules::default()).unwrap();
        let running = serve(Security::new(credentials, Access::default())).await;
        assert_eq!(call(&target(&running.url, &ann)).await.is_ok(), served, "{name}");
    }
    // One of another authority is good for nothing.
    let stranger = serve(Authority::new().security(Role::Element, "e1")).await;
    call(&target(&stranger.url, &ann)).await.unwrap_err();
    assert_eq!(stranger.asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn peer_whose_certificate_has_run_out_is_not_spoken_to() {
    let authority = Authority::new();
    let ann = authority.credentials(Role::Operator, "ann");
    let element = Identity::new(Role::Element, "e1").uri(DOMAIN);
    // From an hour ago: until tomorrow, and until half an hour ago.
    for (lifetime, good) in [(86_400, true), (1_800, false)] {
        let Leaf { certificate, key } = authority.signed(&[&element], &[], Duration::from_secs(lifetime));
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let versions = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions();
        // One that does not look at what it shows.
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
async fn certificates_of_another_issuer_are_named_by_rules() {
    let authority = Authority::new();
    let element = authority.signed(&["spiffe://corp/ns/net/sa/element-7"], &[], Duration::from_secs(86_400));
    let ann = authority.signed(&["spiffe://corp/people/ann"], &[], Duration::from_secs(86_400));
    let rules = Rules::default()
        .domain(DOMAIN)
        .rule(Rule::new(Pattern::new("spiffe://corp/ns/net/sa/element-*"), Role::Element))
        .rule(Rule::new(Pattern::new("spiffe://corp/people/*"), Role::Operator).name("people"));
    let of = |leaf: &Leaf| Credentials::pem(&authority.pem(), &leaf.certificate, &leaf.key, rules.clone()).unwrap();
    let running = serve(Security::new(of(&element), Access::default())).await;
    call(&target(&running.url, &of(&ann))).await.unwrap();
    // A role that another trust domain gives is none here, though the same authority has signed it.
    let bob = authority.signed(&["spiffe://other/pathcall/operator/bob"], &[], Duration::from_secs(86_400));
    let refused = call(&target(&running.url, &of(&bob))).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    assert_eq!(*running.by.lock().unwrap(), ["operator people"]);
}

#[tokio::test]
async fn grants_hold_for_names_and_applications() {
    let authority = Authority::new();
    let access = Access::default()
        .grant(Grant::new(Role::Operator).name(Pattern::new("ann")).applications([Pattern::new("a-*")]));
    let running = serve(Security::new(authority.credentials(Role::Element, "e1"), access)).await;
    let change = async |name: &str, application: &str| {
        let channel = target(&running.url, &authority.credentials(Role::Operator, name)).connect().await.unwrap();
        let request = ChangeGroupRequest { add: vec![application.to_owned()], remove: Vec::new() };
        FunctionClient::new(channel).change_group(request).await.map_err(|status| status.code()).map(drop)
    };
    assert_eq!(change("ann", "a-1").await, Ok(()));
    assert_eq!(change("ann", "b-1").await, Err(Code::PermissionDenied));
    assert_eq!(change("bob", "a-1").await, Err(Code::PermissionDenied));
    assert_eq!(running.asked.load(Ordering::SeqCst), 1);
    // Of a service that is not there nobody is told more.
    let channel = target(&running.url, &authority.credentials(Role::Operator, "ann")).connect().await.unwrap();
    ControllerClient::new(channel).status(StatusRequest {}).await.unwrap_err();
}

#[tokio::test]
async fn certificates_that_are_renewed_are_shown_from_the_next_connection_on() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    let element = authority.files(folder.path(), Role::Element, "e1");
    let running = serve(Security::new(element.clone(), Access::default())).await;
    let ann = authority.credentials(Role::Operator, "ann");
    let open = target(&running.url, &ann).connect().await.unwrap();
    // Another authority takes over: who trusts it alone is served, and connections that are open stay so.
    let next = Authority::new();
    next.write(folder.path(), Role::Element, "e1");
    element.look();
    call(&target(&running.url, &next.credentials(Role::Operator, "bob"))).await.unwrap();
    call(&target(&running.url, &ann)).await.unwrap_err();
    FunctionClient::new(open).function_status(FunctionStatusRequest {}).await.unwrap();
    // What can't be read changes nothing.
    std::fs::write(folder.path().join("e1.pem"), "cut off").unwrap();
    element.look();
    call(&target(&running.url, &next.credentials(Role::Operator, "bob"))).await.unwrap();
    assert_eq!(*running.by.lock().unwrap(), ["operator bob", "operator ann", "operator bob"]);
}

#[tokio::test]
async fn calls_do_not_fail_while_certificates_are_renewed() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    let element = authority.files(folder.path(), Role::Element, "e1");
    let ann = authority.files(folder.path(), Role::Operator, "ann");
    let running = serve(Security::new(element.clone(), Access::default())).await;
    let lasting = target(&running.url, &ann).connect_lazy();
    for _ in 0..50 {
        authority.write(folder.path(), Role::Element, "e1");
        authority.write(folder.path(), Role::Operator, "ann");
        element.look();
        ann.look();
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
fn addresses_and_credentials_have_to_fit() {
    let authority = Authority::new();
    let credentials = authority.credentials(Role::Operator, "ann");
    let said = |url: &str, credentials| {
        Target::new(url, credentials, Peer::new(Role::Controller)).map(drop).map_err(|error| error.to_string())
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
    assert!(none.contains("name those of this program, by --tls"), "{none}");
}

/// What a client meets that says no more than `words`: whether the service has ended the connection within the longest time.
async fn ended_after(address: SocketAddr, words: &[u8]) -> bool {
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(words).await.unwrap();
    let until_the_end = async { while client.read(&mut [0; 1024]).await.is_ok_and(|bytes| bytes > 0) {} };
    timeout(HANG, until_the_end).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn connection_whose_client_does_not_begin_ends_and_one_that_began_stays() {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let plain = serve(Security::default()).await;
    assert!(ended_after(plain.address, b"").await);
    assert!(ended_after(plain.address, &preface[..23]).await);
    assert!(!ended_after(plain.address, preface).await);
    let authority = Authority::new();
    let secured = serve(authority.security(Role::Element, "e1")).await;
    assert!(ended_after(secured.address, b"").await);
}
