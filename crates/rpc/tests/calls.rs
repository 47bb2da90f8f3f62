//! Tests of calls through unchanged stubs, a channel and a server's layer; all in software.

use pathcall_proto::types::FpArray;
use pathcall_rpc::{Channel, KEY_BYTES_MAX, Layer};
use pathcall_test_support::HANG;
use pathcall_test_support::service::{
    FOR_EVER, TestServer, counts, gradient, int_fp, names, note, start_plain, str_int, within,
};
use pathcall_test_support::stubs::locks_client::LocksClient;
use pathcall_test_support::stubs::training_client::TrainingClient;
use pathcall_test_support::stubs::words_client::WordsClient;
use pathcall_test_support::stubs::{AgtrGrad, Counts, Indexed, NewGrad, PATHCALL, Wanted};
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tonic::Code;

/// Server whose locks do not expire on a stalled machine.
async fn server_with_long_leases() -> TestServer {
    TestServer::start_with(Layer::builder(&PATHCALL).lock_lease(HANG).build().await.unwrap(), 0).await
}

/// Both workers' replies to one round.
async fn round(server: &TestServer, requests: [NewGrad; 2]) -> [AgtrGrad; 2] {
    let mut workers = [TrainingClient::new(server.channel().await), TrainingClient::new(server.channel().await)];
    let [a, b] = requests;
    let [first, second] = &mut workers;
    let (a, b) = tokio::join!(first.update(a), second.update(b));
    [a.unwrap().into_inner(), b.unwrap().into_inner()]
}

#[tokio::test]
async fn array_is_summed_without_handler() {
    let server = TestServer::start().await;
    let replies = round(&server, [gradient(&[1.5, -2.0, 0.0004]), gradient(&[0.25, -0.5, 0.0005])]).await;
    for reply in replies {
        // Each value is rounded to three digits before the addition.
        assert_eq!(reply.tensor, Some(FpArray { data: vec![1.75, -2.5, 0.001] }));
        assert_eq!(reply.worker, "");
    }
    assert_eq!(server.seen.calls(), 0);
}

#[tokio::test]
async fn handler_gets_untyped_fields_only() {
    let server = TestServer::start().await;
    let mut a = gradient(&[1.0]);
    a.worker = "a".into();
    a.layer.as_mut().unwrap().name = "top".into();
    a.bias = Some(FpArray { data: vec![7.0, 8.0] });
    let [a, b] = round(&server, [a, gradient(&[2.0])]).await;
    assert_eq!(a.worker, "a top");
    // A typed field that the filter does not name travels as ordinary data.
    assert_eq!(a.bias, Some(FpArray { data: vec![7.0, 8.0] }));
    assert_eq!((a.handler_saw, b.handler_saw), (0, 0));
    assert_eq!(a.tensor, Some(FpArray { data: vec![3.0] }));
    assert_eq!(b, AgtrGrad { tensor: a.tensor, ..AgtrGrad::default() });
    assert_eq!(server.seen.calls(), 1);
}

#[tokio::test]
async fn rounds_follow_each_other_including_empty_one() {
    let server = TestServer::start().await;
    let mut workers = [TrainingClient::new(server.channel().await), TrainingClient::new(server.channel().await)];
    let [first, second] = &mut workers;
    for round in 0..5 {
        let data: Vec<f64> = (0..round * 300).map(f64::from).collect();
        let (a, b) = tokio::join!(first.update(gradient(&data)), second.update(gradient(&data)));
        let sums = Some(FpArray { data: data.iter().map(|value| value * 2.0).collect() });
        assert_eq!(a.unwrap().into_inner().tensor, sums);
        assert_eq!(b.unwrap().into_inner().tensor, sums);
    }
    let nothing = first.update(NewGrad::default()).await.unwrap().into_inner();
    assert_eq!(nothing.tensor, Some(FpArray::default()));
}

#[tokio::test]
async fn reply_may_exceed_default_limit() {
    let server = TestServer::start().await;
    let data = vec![0.5; 600_000];
    let client = |channel| {
        TrainingClient::new(channel).max_decoding_message_size(usize::MAX).max_encoding_message_size(usize::MAX)
    };
    let (mut a, mut b) = (client(server.channel().await), client(server.channel().await));
    let (a, b) = tokio::join!(a.update(gradient(&data)), b.update(gradient(&data)));
    assert_eq!(a.unwrap().into_inner().tensor.unwrap().data, vec![1.0; 600_000]);
    assert_eq!(b.unwrap().into_inner().tensor.unwrap().data.len(), 600_000);
}

#[tokio::test]
async fn unquantisable_number_is_named_in_error() {
    let server = TestServer::start().await;
    let mut client = TrainingClient::new(server.channel().await);
    let error = client.update(gradient(&[0.0, f64::NAN])).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert_eq!(
        error.message(),
        "NewGrad.layer.gradient: index 1 holds NaN: with Precision 3, values must be finite and below 2^62 / 10^3"
    );
}

#[tokio::test]
async fn counts_are_added_and_queried() {
    let server = TestServer::start().await;
    let mut words = WordsClient::new(server.channel().await);
    let said = words.reduce(counts(&[("a", 1), ("b", 2)], "")).await.unwrap().into_inner();
    assert_eq!(said.text, "");
    let mut others = WordsClient::new(server.channel().await);
    let said = others.reduce(counts(&[("b", 40)], "hello")).await.unwrap().into_inner();
    assert_eq!(said.text, "hello: no counts");
    others.reduce(Counts::default()).await.unwrap();

    let wanted = Wanted { keys: Some(str_int(&[("b", 0), ("never", 0)])), text: String::new() };
    let found = words.query(wanted).await.unwrap().into_inner();
    let kvs = found.kvs.unwrap().map;
    assert_eq!(kvs.get("b"), Some(&42));
    assert_eq!(kvs.get("a"), None);
    assert_eq!(kvs.get("never").copied().unwrap_or(0), 0);
    assert_eq!(found.text, "");
    assert_eq!(server.seen.calls(), 1);

    let wanted = Wanted { keys: Some(str_int(&[("a", 0)])), text: "who".into() };
    let found = words.query(wanted).await.unwrap().into_inner();
    assert_eq!(found.kvs, Some(str_int(&[("a", 1)])));
    assert_eq!(found.text, "who: 0 keys");
    assert_eq!(server.seen.calls(), 2);
}

#[tokio::test]
async fn to_server_passes_whole_message_to_handler() {
    let server = TestServer::start().await;
    let mut words = WordsClient::new(server.channel().await);
    let said = words.report(counts(&[("a", 1), ("b", 2)], "")).await.unwrap().into_inner();
    assert_eq!(said.text, ": 2 counts");
    let wanted = Wanted { keys: Some(str_int(&[("a", 0), ("b", 0)])), text: String::new() };
    assert_eq!(words.query(wanted).await.unwrap().into_inner().kvs, Some(str_int(&[("a", 1), ("b", 2)])));
}

#[tokio::test]
async fn addition_with_get_returns_new_values() {
    let server = TestServer::start().await;
    let mut words = WordsClient::new(server.channel().await);
    let bump = |pairs: &[(i64, f64)]| Indexed { by: Some(int_fp(pairs)) };
    words.bump(bump(&[(-1, 0.5), (7, 1.0)])).await.unwrap();
    let now = words.bump(bump(&[(7, -3.25), (8, 0.0)])).await.unwrap().into_inner().now;
    // -3.25 becomes -3.3 with one digit: halves are rounded away from zero.
    assert_eq!(now, Some(int_fp(&[(7, -2.3), (8, 0.0)])));
}

#[tokio::test]
async fn lock_has_one_holder() {
    let server = server_with_long_leases().await;
    let mut owner = LocksClient::new(server.channel().await);
    let mut other = LocksClient::new(server.channel().await);
    let locked = owner.lock(names(&["door"], "mine")).await.unwrap();
    assert_eq!(locked.metadata().get("pathcall-forwarded").unwrap(), "true");
    assert_eq!(locked.get_ref().text, "mine");
    let number = |reply: &tonic::Response<_>, name: &str| -> u64 {
        let _: &pathcall_test_support::stubs::Said = reply.get_ref();
        reply.metadata().get(name).expect(name).to_str().unwrap().parse().unwrap()
    };
    // The holder's lease is four fifths of the server's.
    let holder_lease = HANG.as_millis() as u64 / 5 * 4;
    assert!((1..=holder_lease).contains(&number(&locked, "pathcall-lease-ms")));
    let first = number(&locked, "pathcall-fencing-token");
    let denied = other.lock(within(50, names(&["door", "gate"], "mine"))).await.unwrap_err();
    assert_eq!(denied.code(), Code::DeadlineExceeded);
    // The denied call did not reach the handler, and holds nothing.
    assert_eq!(server.seen.calls(), 1);
    owner.lock(names(&["gate"], "")).await.unwrap();

    let waiting = tokio::spawn(async move { other.lock(names(&["door"], "")).await });
    owner.release(names(&["door"], "")).await.unwrap();
    let second = waiting.await.unwrap().unwrap();
    assert!(number(&second, "pathcall-fencing-token") > first);
}

#[tokio::test]
async fn release_may_name_its_grants() {
    let server = server_with_long_leases().await;
    let mut owner = LocksClient::new(server.channel().await);
    let mut other = LocksClient::new(server.channel().await);
    let both = owner.lock(names(&["gate", "door"], "")).await.unwrap();
    let tokens = both.metadata().get("pathcall-fencing-token").unwrap().clone();
    let named = |tokens: tonic::metadata::AsciiMetadataValue| {
        let mut request = tonic::Request::new(names(&["gate", "door"], ""));
        request.metadata_mut().insert("pathcall-fencing-token", tokens);
        request
    };
    let wrong = owner.release(named("7".parse().unwrap())).await.unwrap_err();
    assert_eq!(wrong.code(), Code::InvalidArgument, "{wrong}");
    owner.release(named("7,8".parse().unwrap())).await.unwrap();
    let denied = other.lock(within(50, names(&["door"], ""))).await.unwrap_err();
    assert_eq!(denied.code(), Code::DeadlineExceeded, "those were other grants");
    owner.release(named(tokens)).await.unwrap();
    other.lock(names(&["door", "gate"], "")).await.unwrap();
}

/// A long key travels as a number, which is ordered differently.
#[tokio::test]
async fn fencing_tokens_are_in_order_of_keys_also_of_long_ones() {
    let server = server_with_long_leases().await;
    let mut owner = LocksClient::new(server.channel().await);
    let mut other = LocksClient::new(server.channel().await);
    let long = "z".repeat(2000);
    let tokens = |reply: &tonic::Response<_>| -> Vec<u64> {
        let _: &pathcall_test_support::stubs::Said = reply.get_ref();
        let tokens = reply.metadata().get("pathcall-fencing-token").unwrap().to_str().unwrap();
        tokens.split(',').map(|token| token.parse().unwrap()).collect()
    };
    // The grants of this key are ahead of the other's.
    for _ in 0..3 {
        owner.lock(names(&["gate"], "")).await.unwrap();
        owner.release(names(&["gate"], "")).await.unwrap();
    }
    let both = owner.lock(names(&[&long, "gate"], "")).await.unwrap();
    let [gate, other_key] = tokens(&both)[..] else { panic!("two tokens") };
    assert!(gate > other_key, "{gate}, {other_key}");
    let mut release = tonic::Request::new(names(&[&long, "gate"], ""));
    release.metadata_mut().insert("pathcall-fencing-token", format!("{gate},{other_key}").parse().unwrap());
    owner.release(release).await.unwrap();
    timeout(HANG, other.lock(names(&["gate", &long], ""))).await.expect("they are free").unwrap();
}

#[tokio::test]
async fn all_locks_of_dropped_call_are_released() {
    let server = server_with_long_leases().await;
    let mut owner = LocksClient::new(server.channel().await);
    let mut other = LocksClient::new(server.channel().await);
    for _ in 0..3 {
        owner.lock(names(&["gate"], "")).await.unwrap();
        owner.release(names(&["gate"], "")).await.unwrap();
    }
    let call = tokio::spawn({
        let mut owner = owner.clone();
        async move { owner.lock(names(&["gate", "door"], FOR_EVER)).await }
    });
    server.seen.stuck.notified().await;
    call.abort();
    // The owner lives, and keeps its lease.
    timeout(HANG, other.lock(names(&["door", "gate"], ""))).await.expect("they are free").unwrap();
}

#[tokio::test]
async fn votes_are_answered_at_the_threshold() {
    let server = TestServer::start().await;
    let channels = [server.channel().await, server.channel().await];
    let [mut a, mut b] = channels.map(LocksClient::new);
    let (first, second) = tokio::join!(a.vote(names(&["ballot"], "a")), b.vote(names(&["ballot"], "b")));
    assert_eq!(first.unwrap().get_ref().text, "a");
    assert_eq!(second.unwrap().get_ref().text, "b");

    // All counts are cleared, so counting starts again.
    assert_eq!(a.reset(note("all")).await.unwrap().into_inner().text, "all");
    let alone = a.vote(within(50, names(&["ballot"], ""))).await.unwrap_err();
    assert_eq!(alone.code(), Code::DeadlineExceeded);
    b.vote(names(&["ballot"], "")).await.unwrap();
}

#[tokio::test]
async fn votes_to_server_are_forwarded_at_threshold() {
    let server = TestServer::start().await;
    let channels = [server.channel().await, server.channel().await];
    let [mut a, mut b] = channels.map(LocksClient::new);
    let first = a.elect(names(&["leader"], "a")).await.unwrap();
    assert_eq!(first.metadata().get("pathcall-forwarded").unwrap(), "false");
    assert_eq!(first.get_ref().text, "");
    assert_eq!(server.seen.calls(), 0);
    let second = b.elect(names(&["leader"], "b")).await.unwrap();
    assert_eq!(second.metadata().get("pathcall-forwarded").unwrap(), "true");
    assert_eq!(second.get_ref().text, "b");
    assert_eq!(server.seen.calls(), 1);
}

#[tokio::test]
async fn methods_without_a_filter_are_plain_grpc() {
    let server = TestServer::start().await;
    let mut client = TrainingClient::new(server.channel().await);
    assert_eq!(client.echo(note("hi")).await.unwrap().into_inner(), note("hi"));
    let watched = client.watch(note("w")).await.unwrap().into_inner();
    assert_eq!(watched.map(|note| note.unwrap().text).collect::<Vec<_>>().await, ["w"; 3]);
    let notes = tokio_stream::iter(["1", "2", "3"].map(note));
    let chat = client.chat(notes).await.unwrap().into_inner();
    assert_eq!(chat.map(|note| note.unwrap().text).collect::<Vec<_>>().await, ["1", "2", "3"]);
}

/// Each call creates one future and moves it: futures five times as large cost 3 % of the time of a lock call.
#[tokio::test]
async fn call_future_is_small() {
    let server = TestServer::start().await;
    let mut channel = server.channel().await;
    for (path, most) in [("/rpctest.Locks/Lock", 2_048), ("/rpctest.Training/Echo", 1_024)] {
        let request = http::Request::builder().uri(path).body(tonic::body::Body::empty()).unwrap();
        let bytes = size_of_val(&*tower::Service::call(&mut channel, request));
        println!("{path}: {bytes} bytes");
        assert!(bytes <= most, "{path}: {bytes} bytes");
    }
}

#[tokio::test]
async fn handler_failure_fails_call() {
    let server = TestServer::start().await;
    let (mut a, mut b) = (TrainingClient::new(server.channel().await), TrainingClient::new(server.channel().await));
    let mut failing = gradient(&[1.0]);
    failing.worker = "fail".into();
    let (a, b) = tokio::join!(a.update(failing), b.update(gradient(&[2.0])));
    let error = a.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::DataLoss, "as asked"));
    // The map operation took effect.
    assert_eq!(b.unwrap().into_inner().tensor, Some(FpArray { data: vec![3.0] }));
}

#[tokio::test]
async fn filtered_call_needs_layer_at_server() {
    let (address, seen) = start_plain().await;
    let channel = Channel::connect(format!("http://{address}"), &PATHCALL).await.unwrap();
    let error = TrainingClient::new(channel.clone()).update(gradient(&[1.0])).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert_eq!(
        error.message(),
        format!(
            "/rpctest.Training/Update has the filter T-SUM but the server at http://{address}/ does not speak \
             Pathcall: add pathcall::Layer there"
        )
    );
    let error = WordsClient::new(channel.clone()).query(Wanted::default()).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert_eq!(seen.calls(), 0);
    assert_eq!(TrainingClient::new(channel).echo(note("hi")).await.unwrap().into_inner(), note("hi"));
}

#[tokio::test]
async fn sum_of_several_callers_needs_channels() {
    let server = TestServer::start().await;
    let plain = tonic::transport::Endpoint::new(server.uri()).unwrap().connect().await.unwrap();
    let error = TrainingClient::new(plain.clone()).update(gradient(&[1.0])).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    let said = "/rpctest.Training/Update has the filter T-SUM, which sums over several callers";
    assert_eq!(error.message(), format!("{said}: call it through pathcall::Channel"));
    assert_eq!(server.seen.calls(), 0);
    assert_eq!(TrainingClient::new(plain).echo(note("hi")).await.unwrap().into_inner(), note("hi"));
}

#[tokio::test]
async fn long_keys_are_sent_as_numbers() {
    let running = server_with_long_leases().await;
    let (long, other) = ("k".repeat(1_000_000), "l".repeat(1024));
    let callers = [running.channel().await, running.channel().await];
    for (caller, value) in callers.iter().zip([1, 10]) {
        let mut words = WordsClient::new(caller.clone());
        for _ in 0..2 {
            words.reduce(counts(&[(&long, value), ("short", value), (&other, value)], "")).await.unwrap();
        }
    }
    let mut words = WordsClient::new(callers[0].clone());
    let unknown = "m".repeat(5000);
    let wanted = str_int(&[(&long, 0), (&other, 0), ("short", 0), (&unknown, 0)]);
    let found = words.query(Wanted { keys: Some(wanted), text: String::new() }).await.unwrap().into_inner();
    assert_eq!(found.kvs, Some(str_int(&[(&long, 22), (&other, 22), ("short", 22), (&unknown, 0)])));

    // A lock is one lock for all callers, and its release frees it.
    let mut holder = LocksClient::new(callers[0].clone());
    holder.lock(names(&[&long, "short"], "")).await.unwrap();
    let mut waiter = LocksClient::new(callers[1].clone());
    let denied = waiter.lock(within(200, names(&[&long], ""))).await.unwrap_err();
    assert_eq!(denied.code(), Code::DeadlineExceeded);
    holder.release(names(&[&long, "short"], "")).await.unwrap();
    waiter.lock(names(&[&long], "")).await.unwrap();
}

#[tokio::test]
async fn too_long_key_is_refused_before_sending() {
    let running = TestServer::start().await;
    let channel = running.channel().await;
    let mut words = WordsClient::new(channel.clone());
    let (long, too_long) = ("k".repeat(KEY_BYTES_MAX), "k".repeat(KEY_BYTES_MAX + 1));
    let error = words.reduce(counts(&[("short", 1), (&too_long, 1)], "")).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().starts_with("Counts.kvs: key ") && error.message().contains("1048577 bytes"), "{error}");
    assert!(channel.stats().applications.iter().all(|app| app.joins == 0), "nobody was asked anything");
    words.reduce(counts(&[("short", 1), (&long, 1)], "")).await.unwrap();
    let wanted = Wanted { keys: Some(str_int(&[("short", 0), (&long, 0)])), text: String::new() };
    let found = words.query(wanted).await.unwrap().into_inner();
    assert_eq!(found.kvs, Some(str_int(&[("short", 1), (&long, 1)])));
}

#[tokio::test]
async fn keys_beyond_server_memory_are_refused() {
    let pathcall = Layer::builder(&PATHCALL).key_memory(200_000).build().await.unwrap();
    let running = TestServer::start_with(pathcall, 0).await;
    let mut words = WordsClient::new(running.channel().await);
    words.reduce(counts(&[("known", 1)], "")).await.unwrap();
    let many: Vec<String> = (0..1000).map(|key| format!("key {key}")).collect();
    let many: Vec<(&str, i64)> = many.iter().map(|key| (key.as_str(), 1)).collect();
    let error = words.reduce(counts(&many, "")).await.unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted);
    assert!(error.message().contains("T-WORDS") && error.message().contains("no room"), "{error}");
    words.reduce(counts(&[("known", 1)], "")).await.unwrap();
    let wanted = Wanted { keys: Some(str_int(&[("known", 0)])), text: String::new() };
    let found = words.query(wanted).await.unwrap().into_inner();
    assert_eq!(found.kvs, Some(str_int(&[("known", 2)])));
}
