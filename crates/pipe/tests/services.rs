//! Tests of pipes of real services: unmodified tonic servers, sidecars, a front, and a stock tonic client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pathcall_pipe::{Pipe, PipeFront, sidecar};
use pathcall_rpc::delegate::{Client, Directory, EncodedMethod, Handlers, Node, NodeConfig, RunningHandlers};
use pathcall_test_support::HANG;
use pathcall_test_support::shop::{FOR_EVER, Shop};
use pathcall_test_support::stubs::shop::front_client::FrontClient;
use pathcall_test_support::stubs::shop::stock_client::StockClient;
use pathcall_test_support::stubs::shop::{Bill, Currency, Item, Paid, Receipt, Reservation, Token, Wish, paid};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};

use crate::{example, order};

/// A channel to a server.
fn channel(url: String) -> Channel {
    Endpoint::from_shared(url).expect("a URL").connect_lazy()
}

/// A pipe of the shop's services, on one host.
struct OrderPipe {
    shop: Shop,
    /// Sidecars of the steps, in order.
    sidecars: Vec<RunningHandlers>,
    client: FrontClient<Channel>,
    /// Directory that all nodes share.
    directory: Directory,
}

impl OrderPipe {
    async fn start() -> Self {
        let (pipe, shop, directory) = (order(), Shop::default(), Directory::default());
        let service = channel(shop.serve().await);
        let mut sidecars = Vec::new();
        for step in pipe.step_names() {
            let handlers = Handlers::new().directory(directory.clone());
            let handlers = sidecar::add_step(handlers, &pipe, step, service.clone()).expect("a step");
            sidecars.push(handlers.start().await.expect("starts"));
        }
        let nodes = sidecars.iter().enumerate().map(|(step, sidecar)| (step, sidecar.address()));
        directory.set(sidecar::directory(&pipe, &nodes.collect::<Vec<_>>()).nodes());
        let url = front(pipe, directory.clone()).await;
        let client = FrontClient::connect(url).await.expect("it listens");
        Self { shop, sidecars, client, directory }
    }

    async fn order(&self, request: impl tonic::IntoRequest<Wish>) -> Result<Receipt, Status> {
        let mut client = self.client.clone();
        timeout(HANG, client.order(request)).await.expect("in time").map(Response::into_inner)
    }
}

/// URL of a front.
async fn front(pipe: Arc<Pipe>, directory: Directory) -> String {
    let (node, _requests) = Node::start(&NodeConfig::default()).await.expect("starts");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(PipeFront::new(pipe, node, directory).serve(listener, std::future::pending()));
    url
}

fn wish(token: &str, name: &str, count: u32) -> Wish {
    let item = Some(Item { name: name.to_owned(), count });
    Wish { token: token.to_owned(), item, comment: "soon".to_owned() }
}

#[tokio::test]
async fn reply_is_built_from_all_steps() {
    let pipe = OrderPipe::start().await;
    let receipt = pipe.order(wish("secret", "lamp", 2)).await.expect("a receipt");
    let paid = Some(Paid { how: Some(paid::How::Account("account of ann".to_owned())) });
    assert_eq!(receipt, Receipt { user: "ann".to_owned(), reservation: 7, paid });
    let item = Some(Item { name: "lamp".to_owned(), count: 2 });
    let (user, currency) = ("ann".to_owned(), Currency::Eur.into());
    let expected = [
        format!("{:?}", Token { token: "secret".to_owned() }),
        format!("{:?}", Reservation { item, user: user.clone(), days: 3 }),
        format!("{:?}", Bill { user, amount: 5.0, currency }),
    ];
    assert_eq!(pipe.shop.requests(), expected);
    // Each sidecar has worked on one request: n + 1 messages.
    let requests = pipe.sidecars.iter().map(|sidecar| sidecar.stats().worker.requests);
    assert_eq!(requests.collect::<Vec<_>>(), [1, 1, 1]);
}

#[tokio::test]
async fn failed_step_ends_call_with_its_status() {
    let pipe = OrderPipe::start().await;
    let failed = pipe.order(wish("wrong", "lamp", 1)).await.expect_err("no user");
    assert_eq!((failed.code(), failed.message()), (Code::Unauthenticated, "step auth: unknown token"));
    assert_eq!(pipe.shop.requests().len(), 1, "later steps are not called");
    let failed = pipe.order(wish("secret", "palace", 5)).await.expect_err("no money");
    assert_eq!((failed.code(), failed.message()), (Code::ResourceExhausted, "step billing: too expensive"));
}

#[tokio::test]
async fn metadata_and_time_left_reach_each_service() {
    let pipe = OrderPipe::start().await;
    let mut request = Request::new(wish("secret", "lamp", 1));
    request.metadata_mut().insert("traceparent", "00-1".parse().expect("text"));
    request.metadata_mut().insert_bin("id-bin", tonic::metadata::MetadataValue::from_bytes(b"\0\xff"));
    request.set_timeout(HANG);
    pipe.order(request).await.expect("a receipt");
    let seen = pipe.shop.seen();
    assert_eq!(seen.len(), 3);
    for (request, metadata) in seen {
        assert_eq!(metadata.get("traceparent").map(|value| value.as_bytes()), Some(&b"00-1"[..]), "{request}");
        let id = metadata.get_bin("id-bin").and_then(|id| id.to_bytes().ok());
        assert_eq!(id.as_deref(), Some(&b"\0\xff"[..]), "{request}");
        let left = metadata.get("grpc-timeout").and_then(|left| left.to_str().ok()).expect("a timeout");
        let (digits, unit) = left.split_at(left.len() - 1);
        let per_second = [("S", 1), ("m", 1_000), ("u", 1_000_000), ("n", 1_000_000_000)];
        let (_, per_second) = per_second.iter().find(|(name, _)| *name == unit).expect("a unit");
        let left: u64 = digits.parse().expect("a number");
        assert!(left > 0 && left / per_second <= HANG.as_secs(), "{left} {unit}");
    }
}

#[tokio::test]
async fn deadline_ends_call_of_waiting_service() {
    let pipe = OrderPipe::start().await;
    let mut request = Request::new(wish("secret", FOR_EVER, 1));
    request.set_timeout(Duration::from_millis(300));
    let failed = pipe.order(request).await.expect_err("the service waits");
    // tonic's client reports its own timer, unless the server is faster.
    assert!(matches!(failed.code(), Code::DeadlineExceeded | Code::Cancelled), "{failed:?}");
}

#[tokio::test]
async fn dropped_call_ends_handler_of_service() {
    let pipe = OrderPipe::start().await;
    tokio::select! {
        ended = pipe.order(wish("secret", FOR_EVER, 1)) => panic!("the service waits: {ended:?}"),
        () = pipe.shop.waits.notified() => {}
    }
    timeout(HANG, pipe.shop.dropped.notified()).await.expect("the service's handler is dropped");
}

#[tokio::test]
async fn stopped_sidecar_gives_unavailable_with_step() {
    for (stopped, step) in ["auth", "stock", "billing"].into_iter().enumerate() {
        let mut pipe = OrderPipe::start().await;
        pipe.order(wish("secret", "lamp", 1)).await.expect("a receipt");
        let address = pipe.sidecars.remove(stopped).address();
        let failed = pipe.order(wish("secret", "lamp", 1)).await.expect_err("a sidecar has stopped");
        assert_eq!(failed.code(), Code::Unavailable, "{failed}");
        let text = failed.message();
        assert!(text.starts_with(&format!("step {step}: ")) && text.contains(&address.to_string()), "{failed}");
    }
}

#[tokio::test]
async fn stopped_sidecar_that_left_directory_gives_unavailable_with_step() {
    let mut pipe = OrderPipe::start().await;
    drop(pipe.sidecars.remove(1));
    // The sidecar of the first step still has the address.
    let nodes = pipe.directory.nodes().into_iter().filter(|(name, _)| !name.contains("/stock/"));
    let mut client = FrontClient::connect(front(order(), Directory::of(nodes)).await).await.expect("it listens");
    let failed = timeout(HANG, client.order(wish("secret", "lamp", 1))).await.expect("in time").expect_err("stopped");
    assert_eq!(failed.code(), Code::Unavailable, "{failed}");
    assert!(failed.message().starts_with("step stock: "), "{failed}");
}

#[tokio::test]
async fn step_without_sidecar_gives_unavailable_with_step() {
    let pipe = OrderPipe::start().await;
    let service = "/shop.Front/Order/stock";
    pipe.directory.set(pipe.directory.nodes().into_iter().filter(|(name, _)| !name.starts_with(service)));
    let failed = pipe.order(wish("secret", "lamp", 1)).await.expect_err("no sidecar");
    assert_eq!(failed.code(), Code::Unavailable, "{failed}");
    assert!(failed.message().starts_with("step stock: ") && failed.message().contains(service), "{failed}");
    pipe.directory.set([] as [(String, SocketAddr); 0]);
    let failed = pipe.order(wish("secret", "lamp", 1)).await.expect_err("no sidecars");
    assert!(failed.message().starts_with("step auth: the directory does not have "), "{failed}");
}

#[tokio::test]
async fn step_without_service_gives_unavailable_with_step() {
    let pipe = order();
    // Nothing listens there.
    let nobody = pathcall_test_support::loopback::own();
    let service = channel(format!("http://{nobody}"));
    let handlers = sidecar::add_step(Handlers::new(), &pipe, "auth", service).expect("a step");
    let auth = handlers.start().await.expect("starts");
    let url = front(Arc::clone(&pipe), sidecar::directory(&pipe, &[(0, auth.address())])).await;
    let mut client = FrontClient::connect(url).await.expect("it listens");
    let failed =
        timeout(HANG, client.order(wish("secret", "lamp", 1))).await.expect("in time").expect_err("no service");
    assert_eq!(failed.code(), Code::Unavailable, "{failed}");
    assert!(failed.message().starts_with("step auth: "), "{failed}");
}

#[tokio::test]
async fn calls_are_spread_over_sidecars_of_step() {
    let mut pipe = OrderPipe::start().await;
    let handlers = Handlers::new().directory(pipe.directory.clone());
    let handlers = sidecar::add_step(handlers, &order(), "stock", channel(pipe.shop.serve().await)).expect("a step");
    let second = handlers.start().await.expect("starts");
    let name = sidecar::node_name(&order(), 1, "second");
    pipe.directory.set(pipe.directory.nodes().into_iter().chain([(name, second.address())]));
    pipe.sidecars.push(second);
    for _ in 0..64 {
        pipe.order(wish("secret", "lamp", 1)).await.expect("a receipt");
    }
    let counts = pipe.sidecars.iter().map(|sidecar| sidecar.stats().worker.requests).collect::<Vec<_>>();
    // The less loaded one gets the next call.
    assert!(counts[1] > 0 && counts[3] > 0 && counts[1] + counts[3] == 64, "{counts:?}");
}

#[tokio::test]
async fn front_refuses_other_methods() {
    let pipe = OrderPipe::start().await;
    let url = front(order(), pipe.directory.clone()).await;
    let mut stock = StockClient::connect(url).await.expect("it listens");
    let failed = stock.reserve(Reservation::default()).await.expect_err("another method");
    let message = "this server has only the method /shop.Front/Order";
    assert_eq!((failed.code(), failed.message()), (Code::Unimplemented, message));
}

/// Pipe whose only step has no side effects.
const WHO: &str = "
protos: [shop.proto]
pipe: /shop.Front/Order
steps:
  - name: auth
    call: /shop.Auth/Check
    request: { token: $call.token }
reply: { user: $auth.name }
";

#[tokio::test]
async fn idempotent_call_is_made_again_at_another_sidecar() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::copy(example("shop.proto"), folder.path().join("shop.proto")).expect("the example");
    std::fs::write(folder.path().join("who.yaml"), WHO).expect("a file");
    let pipe = Arc::new(Pipe::read(&folder.path().join("who.yaml")).expect("a pipe"));
    let (shop, mut sidecars) = (Shop::default(), Vec::new());
    let service = channel(shop.serve().await);
    for _ in 0..2 {
        let handlers = sidecar::add_step(Handlers::new(), &pipe, "auth", service.clone()).expect("a step");
        sidecars.push(handlers.start().await.expect("starts"));
    }
    let nodes: Vec<_> = sidecars.iter().map(|sidecar| (0, sidecar.address())).collect();
    let url = front(Arc::clone(&pipe), sidecar::directory(&pipe, &nodes)).await;
    let mut client = FrontClient::connect(url).await.expect("it listens");
    sidecars.remove(0);
    // One of these calls goes to the stopped sidecar first.
    for _ in 0..4 {
        let receipt = timeout(HANG, client.order(wish("secret", "lamp", 1))).await.expect("in time");
        assert!(!receipt.expect("the other sidecar answers").into_inner().user.is_empty());
    }
    assert!(sidecars[0].stats().worker.requests >= 4);
}

#[tokio::test]
async fn any_bytes_from_network_leave_sidecar_working() {
    let pipe = OrderPipe::start().await;
    let (node, _requests) = Node::start(&NodeConfig::default()).await.expect("starts");
    let client = Client::new(node, Directory::default());
    for (step, sidecar) in pipe.sidecars.iter().enumerate() {
        for (n, path) in [order().sidecar_path(step), "/shop.Auth/Check".to_owned()].iter().cycle().take(20).enumerate()
        {
            let bytes: Vec<u8> = (0..n as u8).map(|i| i.wrapping_mul(37) ^ n as u8).collect();
            let method = EncodedMethod { path, unary: true, idempotent: false };
            let replies = client.call_bytes(sidecar.address(), method, Request::new(bytes.into()));
            let refused = timeout(HANG, replies.expect("room").message_bytes()).await.expect("in time");
            let codes = [Code::InvalidArgument, Code::FailedPrecondition, Code::Unimplemented];
            assert!(refused.as_ref().is_err_and(|status| codes.contains(&status.code())), "{refused:?}");
        }
    }
    pipe.order(wish("secret", "lamp", 1)).await.expect("a receipt");
}

#[test]
fn unknown_step_is_refused_with_names() {
    let refused = order().step("shipping").expect_err("no step");
    assert_eq!(refused.message(), "the pipe has no step \"shipping\"; its steps are auth, stock, billing");
    let at: SocketAddr = "10.0.0.1:7801".parse().expect("an address");
    let directory = sidecar::directory(&order(), &[(2, at)]);
    assert_eq!(directory.nodes().into_iter().collect::<Vec<_>>(), [("/shop.Front/Order/billing/0".to_owned(), at)]);
}
