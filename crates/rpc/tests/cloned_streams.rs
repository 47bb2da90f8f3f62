//! Tests of streaming calls to a pool: hedged until the first message of a server.

use std::sync::atomic::Ordering;
use std::time::Duration;

use pathcall_proto::manifest::{Balance, Cloned, HedgeBudgetConfig, Manifest};
use pathcall_rpc::Channel;
use pathcall_rpc::channel::CloneOptions;
use pathcall_test_support::HANG;
use pathcall_test_support::service::{note, until, within};
use pathcall_test_support::store::{PoolServer, STORE, StoreHandler, TestPool};
use pathcall_test_support::stubs::store_client::StoreClient;
use pathcall_test_support::stubs::store_server::StoreServer;
use pathcall_test_support::stubs::{Note, store_client};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Response, Status, Streaming};

/// Texts of all messages, and the status at the end.
async fn texts(stream: Response<Streaming<Note>>) -> (Vec<String>, Option<Status>) {
    let (mut stream, mut texts) = (stream.into_inner(), Vec::new());
    let all = async {
        loop {
            match stream.message().await {
                Ok(Some(note)) => texts.push(note.text),
                Ok(None) => return None,
                Err(status) => return Some(status),
            }
        }
    };
    let end = timeout(HANG, all).await.expect("the stream ends");
    (texts, end)
}

fn server_of(stream: &Response<Streaming<Note>>) -> String {
    stream.metadata().get("server").expect("the server's name").to_str().expect("text").to_owned()
}

fn numbered(server: &PoolServer, count: usize) -> Vec<String> {
    (0..count).map(|nth| format!("{} {nth}", server.address)).collect()
}

/// Channel whose methods are changed.
async fn changed(pool: &TestPool, change: impl Fn(&Cloned) -> Cloned) -> Channel {
    let methods: Vec<_> = STORE.cloned.iter().map(change).collect();
    let manifest: &Manifest = Box::leak(Box::new(Manifest { cloned: methods.leak(), ..STORE }));
    Channel::connect(pool.members[0].uri(), manifest).await.unwrap()
}

/// Waits until held handlers of all servers have begun.
async fn all_begun(pool: &TestPool) {
    for member in &pool.members {
        timeout(HANG, member.kept.began.notified()).await.expect("the server gets the call");
    }
}

async fn dropped(member: &PoolServer) {
    timeout(HANG, member.kept.dropped.notified()).await.expect("its handler is dropped");
}

#[tokio::test]
async fn slow_stream_loses_to_the_other_server() {
    // The servers wait before their first message, or before their headers.
    for command in ["held 5", "late 5"] {
        let pool = TestPool::start(2).await;
        let channel = pool.channel().await;
        let mut client = StoreClient::new(channel.clone());
        let call = tokio::spawn(async move { client.scan(note(command)).await });
        all_begun(&pool).await;
        pool.members[1].kept.gate.send_replace(true);
        let stream = timeout(HANG, call).await.unwrap().unwrap().unwrap();
        assert_eq!(server_of(&stream), pool.members[1].address.to_string());
        let (texts, end) = texts(stream).await;
        assert_eq!((texts, end.map(|end| end.code())), (numbered(&pool.members[1], 5), None), "{command}");
        // The gate of this one is still closed.
        dropped(&pool.members[0]).await;
        let stats = channel.stats();
        let pool = stats.pool;
        assert_eq!((pool.calls, pool.answered, pool.hedged, pool.cancelled), (1, 1, 1, 1), "{command}: {stats:?}");
        assert_eq!((stats.cloned_calls, stats.plain_calls, pool.extra()), (0, 1, 1), "{command}");
    }
}

#[tokio::test]
async fn dropped_call_is_cancelled_at_all_servers() {
    let pool = TestPool::start(2).await;
    let channel = pool.channel().await;
    let mut client = StoreClient::new(channel.clone());
    let call = tokio::spawn(async move { client.scan(note("held")).await.map(drop) });
    all_begun(&pool).await;
    call.abort();
    for member in &pool.members {
        dropped(member).await;
    }
    let stats = channel.stats().pool;
    assert_eq!((stats.answered, stats.failed, stats.cancelled), (0, 0, 2), "{stats:?}");
}

#[tokio::test]
async fn deadline_cancels_all_servers() {
    let pool = TestPool::start(2).await;
    let channel = pool.channel().await;
    let mut client = StoreClient::new(channel.clone());
    let status = timeout(HANG, client.scan(within(1_000, note("late")))).await.expect("an end");
    assert_eq!(status.expect_err("no server answers").code(), Code::DeadlineExceeded);
    let stats = channel.stats().pool;
    // A server that notices the deadline first answers with a status.
    assert_eq!(stats.answered + stats.failed, 1, "{stats:?}");
    for member in &pool.members {
        // On a stalled machine, a server may not have got the call in time.
        if timeout(Duration::ZERO, member.kept.began.notified()).await.is_ok() {
            dropped(member).await;
        }
    }
}

#[tokio::test]
async fn dropped_stream_ends_its_handler_which_has_not_run_ahead() {
    const BYTES: u64 = 64 * 1024;
    let pool = TestPool::start(2).await;
    let mut client = pool.client().await;
    let mut stream = client.scan_tried(note(&format!("endless {BYTES}"))).await.unwrap().into_inner();
    for _ in 0..20 {
        client.get(note("call")).await.unwrap();
    }
    assert_eq!(stream.message().await.unwrap().map(|note| note.text.len() as u64), Some(BYTES));
    let sent: u64 = pool.members.iter().map(|member| member.kept.endless.load(Ordering::SeqCst)).sum();
    // Windows of HTTP/2 and buffers of the two hosts; without flow control it would go on.
    assert!(sent * BYTES < 64 << 20, "{sent} messages for one that was read");
    drop(stream);
    let ended = async {
        tokio::select! {
            () = pool.members[0].kept.dropped.notified() => {}
            () = pool.members[1].kept.dropped.notified() => {}
        }
    };
    timeout(HANG, ended).await.expect("the handler is dropped");
}

#[tokio::test]
async fn non_fatal_status_before_first_message_asks_next_server() {
    let pool = TestPool::start(2).await;
    let channel = pool.channel().await;
    let mut client = StoreClient::new(channel.clone());
    for command in ["refuse", "refuse-late"] {
        // The first server is random: the refusing server is the first of some calls.
        let before = channel.stats().pool.after_failed;
        let another = async {
            while channel.stats().pool.after_failed == before {
                let text = format!("{command} {}", pool.members[0].address);
                let (texts, end) = texts(client.scan_tried(note(&text)).await.unwrap()).await;
                assert_eq!((texts.as_slice(), end.map(|end| end.code())), (&[text][..], None), "{command}");
            }
        };
        timeout(HANG, another).await.expect("the other server is asked");
    }
    assert_eq!(channel.stats().pool.hedged, 0);
}

#[tokio::test]
async fn failure_after_first_message_is_not_retried() {
    let pool = TestPool::start(3).await;
    let mut client = pool.client().await;
    let stream = client.scan_tried(note("break 3")).await.unwrap();
    let server = server_of(&stream);
    let (texts, end) = texts(stream).await;
    assert_eq!(texts, (0..3).map(|nth| format!("{server} {nth}")).collect::<Vec<_>>());
    let status = end.expect("a failure");
    assert_eq!((status.code(), status.message()), (Code::Aborted, "in the middle"));
    assert_eq!(status.metadata().get("why").map(|why| why.as_bytes()), Some(&b"because"[..]));
    assert_eq!(pool.members.iter().map(PoolServer::gets).sum::<u64>(), 1);
}

#[tokio::test]
async fn status_of_last_server_is_the_result() {
    let pool = TestPool::start(3).await;
    let channel = pool.channel().await;
    let mut client = StoreClient::new(channel.clone());
    let gets = || pool.members.iter().map(PoolServer::gets).sum::<u64>();
    for (text, code, asked) in [
        ("fail", Code::Aborted, 3),
        ("deny", Code::PermissionDenied, 1),
        ("push -1", Code::Aborted, 1),
        ("push 1", Code::Aborted, 3),
    ] {
        let before = gets();
        let status = timeout(HANG, client.scan_tried(note(text))).await.expect("an answer").expect_err(text);
        assert_eq!((status.code(), gets() - before), (code, asked), "{text}");
        if text == "fail" {
            assert_eq!((status.message(), status.details()), ("as told", &b"details"[..]));
        }
    }
    assert_eq!(channel.stats().pool.refused.pushback, 1);
    // Fatal, as this method names no codes; and a stream without messages.
    let before = gets();
    assert_eq!(client.scan(note("fail")).await.expect_err("a failure").code(), Code::Aborted);
    let (texts, end) = texts(client.scan_tried(note("empty")).await.unwrap()).await;
    assert_eq!((texts.len(), end.map(|end| end.code()), gets() - before), (0, None, 2));
}

#[tokio::test]
async fn spent_budget_refuses_hedges() {
    let pool = TestPool::start(2).await;
    let budget = HedgeBudgetConfig { share: 0.0, burst: 1.0, per_second: 0.0 };
    let channel = changed(&pool, |method| Cloned { budget, ..*method }).await;
    let mut client = StoreClient::new(channel.clone());
    let first = tokio::spawn({
        let mut client = client.clone();
        async move { client.scan(note("held")).await }
    });
    all_begun(&pool).await;
    let second = tokio::spawn(async move { client.scan(note("held")).await });
    until(|| channel.stats().pool.refused.budget > 0).await;
    for member in &pool.members {
        member.kept.gate.send_replace(true);
    }
    for call in [first, second] {
        timeout(HANG, call).await.unwrap().unwrap().unwrap();
    }
    assert_eq!(channel.stats().pool.extra(), 1);
    assert_eq!(pool.members.iter().map(PoolServer::gets).sum::<u64>(), 3);
}

#[tokio::test]
async fn channel_without_hedges_asks_one_server() {
    let pool = TestPool::start(3).await;
    let channel = Channel::builder(pool.members[0].uri(), &STORE).unwrap().cloned(CloneOptions::default());
    let mut client = StoreClient::new(channel.connect().await.unwrap());
    let gets = || pool.members.iter().map(PoolServer::gets).sum::<u64>();
    assert_eq!(client.scan_tried(note("fail")).await.expect_err("a failure").code(), Code::Aborted);
    assert_eq!(gets(), 1);
}

#[tokio::test]
async fn streams_go_to_servers_in_turn_or_at_random() {
    let pool = TestPool::start(3).await;
    for (balance, in_turn) in [(Balance::RoundRobin, true), (Balance::Random, false)] {
        let channel = changed(&pool, |method| Cloned { balance, ..*method }).await;
        let mut client = StoreClient::new(channel);
        let mut servers = Vec::new();
        for _ in 0..60 {
            servers.push(server_of(&client.scan_tried(note("count 1")).await.unwrap()));
        }
        assert!(pool.members.iter().all(|member| servers.contains(&member.address.to_string())), "{servers:?}");
        let repeats =
            servers.windows(3).all(|three| three[0] != three[1] && three[1] != three[2] && three[2] != three[0]);
        assert_eq!(repeats, in_turn, "{servers:?}");
    }
}

#[tokio::test]
async fn streams_go_on_without_a_dead_server() {
    let mut pool = TestPool::start(3).await;
    let channel = pool.channel().await;
    let mut client = StoreClient::new(channel.clone());
    client.scan_tried(note("count 1")).await.unwrap();
    pool.members.pop().expect("a server").kill();
    for _ in 0..30 {
        let stream = timeout(HANG, client.scan_tried(note("count 3"))).await.expect("an answer").unwrap();
        assert_eq!(texts(stream).await.0.len(), 3);
    }
    assert_eq!(channel.stats().pool.extra(), 0, "a server that was not reached is replaced without cost");
}

#[tokio::test]
async fn stock_stub_and_stock_server_stream_plainly() {
    // A stock client of a pool's server.
    let pool = TestPool::start(2).await;
    let stock = tonic::transport::Endpoint::from_shared(pool.members[0].uri()).unwrap().connect().await.unwrap();
    let stream = store_client::StoreClient::new(stock).scan(note("count 4")).await.unwrap();
    assert_eq!(texts(stream).await.0, numbered(&pool.members[0], 4));
    assert_eq!(pool.members[1].gets(), 0);
    // Pathcall's channel to a server without the layer.
    let channel = Channel::connect(stock_server("plain").await, &STORE).await.unwrap();
    let stream = StoreClient::new(channel.clone()).scan(note("count 2")).await.unwrap();
    assert_eq!(texts(stream).await.0, ["plain 0", "plain 1"]);
    assert_eq!((channel.stats().plain_calls, channel.stats().pool.extra()), (1, 0));
}

/// Starts a server without Pathcall; returns its address.
async fn stock_server(name: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tonic::transport::Server::builder().add_service(StoreServer::new(StoreHandler::new(name)));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    url
}

#[tokio::test]
async fn given_servers_without_pool_are_hedged_among() {
    let (one, two) = (stock_server("one").await, stock_server("two").await);
    let channel = Channel::builder(one, &STORE).unwrap().add_server(two).unwrap().connect().await.unwrap();
    let mut client = StoreClient::new(channel.clone());
    for name in ["one", "two"] {
        let text = format!("refuse {name}");
        assert_eq!(texts(client.scan_tried(note(&text)).await.unwrap()).await.0, [text]);
    }
    assert_eq!(channel.stats().pool.hedged, 0, "no server was slow");
}

#[tokio::test]
async fn unknown_server_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let channel = Channel::builder(url, &STORE).unwrap().connect_lazy().unwrap();
    let called = timeout(HANG, StoreClient::new(channel.clone()).scan(note("count 2"))).await.expect("an answer");
    assert_eq!(called.expect_err("no server").code(), Code::Unavailable);
    assert_eq!(channel.stats().pool.failed, 1);
}
