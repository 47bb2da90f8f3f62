//! Tests of exactly-once calls (DPC §3.5.3) with servers that die.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use pathcall_rpc::Channel;
use pathcall_rpc::delegate::{
    CallOptions, Client, ContextId, DelegatedCall, Directory, Handlers, Node, NodeConfig, RecordHistory, RequestId,
    RequestRecord, RunningHandlers, SealedRequest,
};
use pathcall_test_support::stubs::delegated::{DocsFetch, DocsLookup};
use pathcall_test_support::stubs::docs_client::DocsClient;
use pathcall_test_support::stubs::{Note, PATHCALL, Wish};
use pathcall_test_support::{HANG, loopback};
use tokio::sync::Notify;
use tokio::time::timeout;
use tonic::{Code, Request, Status};

use super::cluster::{all, serve, wish};
use super::process::Process;

/// Data that survives a server.
#[derive(Debug, Default)]
struct Disk {
    effects: Vec<String>,
    records: Vec<(ContextId, RequestId, Bytes)>,
    ended: Vec<ContextId>,
    /// Number of runs of the handler.
    runs: usize,
}

/// Disk, and counters of its server.
#[derive(Debug, Default)]
struct Store {
    disk: Mutex<Disk>,
    /// Notified when a handler has reached the point at which its server is killed.
    there: Notify,
}

impl Store {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().expect("no panic")
    }

    /// Number of handler runs, and the effects, sorted.
    fn seen(&self) -> (usize, Vec<String>) {
        let disk = self.disk();
        let mut effects = disk.effects.clone();
        effects.sort();
        (disk.runs, effects)
    }

    /// Commits effect and record together.
    fn commit(&self, effect: String, record: &RequestRecord) {
        let mut disk = self.disk();
        disk.effects.push(effect);
        disk.records.push((record.call, record.request, record.to_bytes().into()));
    }

    fn history(&self) -> RecordHistory {
        let disk = self.disk();
        let read =
            |(_, _, bytes): &(ContextId, RequestId, Bytes)| RequestRecord::from_bytes(bytes.clone()).expect("ours");
        RecordHistory { records: disk.records.iter().map(read).collect(), ended: disk.ended.clone() }
    }
}

/// Point at which the first process of a server is killed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum CrashPoint {
    Never,
    BeforeItsEffect,
    BeforeItSaysSo,
}

/// Handler with an effect for each note.
fn fetches(store: &Arc<Store>, crash_point: CrashPoint) -> impl Fn(Handlers) -> Handlers + Send + 'static {
    let store = Arc::clone(store);
    move |handlers| {
        let forgetting = Arc::clone(&store);
        let handlers = handlers.history(store.history()).on_forget(move |call, request| {
            let mut disk = forgetting.disk();
            disk.records.retain(|(of, which, _)| (*of, *which) != (call, request));
            disk.ended.push(call);
            forgetting.there.notify_one();
        });
        let store = Arc::clone(&store);
        handlers.handle::<DocsFetch, _, _>(move |note: Note, call: DelegatedCall<Note>| {
            let store = Arc::clone(&store);
            async move {
                store.disk().runs += 1;
                call.reply(Note { text: format!("{} done", note.text) }).await?;
                if crash_point == CrashPoint::BeforeItsEffect {
                    store.there.notify_one();
                    return std::future::pending().await;
                }
                let sealed = call.seal()?;
                let record = sealed.record().expect("to be done once").clone();
                store.commit(note.text, &record);
                if crash_point == CrashPoint::BeforeItSaysSo {
                    store.there.notify_one();
                    return std::future::pending().await;
                }
                sealed.release();
                Ok(())
            }
        })
    }
}

fn options() -> CallOptions {
    let (ping_period, timeout) = (Duration::from_millis(40), Duration::from_millis(200));
    CallOptions::default().ping_period(ping_period).timeout(timeout).once(true)
}

async fn client(directory: Directory) -> Client {
    let (node, _requests) = Node::start(&NodeConfig::default()).await.expect("starts");
    Client::new(node, directory).options(options())
}

async fn fetch(client: &Client, text: &str) -> Result<Vec<String>, Status> {
    let note = Note { text: text.to_owned() };
    let mut replies = client.call::<Note>().request::<DocsFetch>("store", &note)?.begin()?;
    let mut texts = Vec::new();
    while let Some(note) = timeout(HANG, replies.message()).await.expect("in time")? {
        texts.push(note.text);
    }
    Ok(texts)
}

/// Kills a server and restarts it with the durable records.
async fn crash_at(how: CrashPoint) {
    let store = Arc::new(Store::default());
    let config = NodeConfig::default().listen(loopback::own());
    let (mut process, serving) = Process::start(config.clone(), fetches(&store, how)).await;
    let at = serving.address();
    let client = client(Directory::of([("store", at)])).await;
    let call = tokio::spawn(async move { (fetch(&client, "a").await, client) });
    timeout(HANG, store.there.notified()).await.expect("the handler reaches this point");
    drop(serving);
    process.kill();
    let (_process, _serving) = Process::start(config, fetches(&store, CrashPoint::Never)).await;
    let (texts, client) = timeout(HANG, call).await.expect("in time").expect("no panic");
    assert_eq!(texts.expect("complete"), ["a done"], "{how:?}");
    let runs = if how == CrashPoint::BeforeItsEffect { 2 } else { 1 };
    assert_eq!(store.seen(), (runs, vec!["a".to_owned()]), "{how:?}");

    // Records are removed when a later call reports the end of earlier calls.
    assert_eq!(fetch(&client, "b").await.expect("complete"), ["b done"]);
    timeout(HANG, store.there.notified()).await.expect("the forget callback runs");
    let disk = store.disk();
    assert_eq!((disk.effects.len(), disk.records.len()), (2, 1));
}

#[tokio::test]
async fn death_before_effect_repeats_work() {
    crash_at(CrashPoint::BeforeItsEffect).await;
}

#[tokio::test]
async fn death_after_effect_replays_record() {
    crash_at(CrashPoint::BeforeItSaysSo).await;
}

#[tokio::test]
async fn stub_retry_repeats_delegation() {
    let (index, store) = (Arc::new(Store::default()), Arc::new(Store::default()));
    let config = NodeConfig::default().listen(loopback::own());
    let (mut process, serving) = Process::start(config.clone(), fetches(&store, CrashPoint::BeforeItsEffect)).await;
    let at = serving.address();
    let (directory, seen) = (Directory::of([("store", at)]), Arc::clone(&index));
    let lookup = move |wish: Wish, call: DelegatedCall<Note>| {
        let index = Arc::clone(&seen);
        async move {
            index.disk().runs += 1;
            for name in &wish.names {
                call.delegate::<DocsFetch>("store", &Note { text: name.clone() })?;
            }
            call.reply(Note { text: "index".to_owned() }).await?;
            let sealed = call.seal()?;
            let record = sealed.record().expect("to be done once").clone();
            index.commit("looked up".to_owned(), &record);
            sealed.release();
            Ok(())
        }
    };
    let handlers = Handlers::new().directory(directory).handle::<DocsLookup, _, _>(lookup);
    let url = serve(Some(handlers.start().await.expect("starts"))).await;
    let mut client = DocsClient::new(Channel::connect(url, &PATHCALL).await.expect("connects"));
    let mut request = Request::new(wish(["x", "y"]));
    request.extensions_mut().insert(options());
    let call = tokio::spawn(async move { all(client.lookup(request).await).await });
    timeout(HANG, store.there.notified()).await.expect("the handler reaches this point");
    drop(serving);
    process.kill();
    let (_process, _serving) = Process::start(config, fetches(&store, CrashPoint::Never)).await;
    let (texts, ended) = timeout(HANG, call).await.expect("in time").expect("no panic");
    ended.expect("complete");
    assert_eq!(texts, ["index", "x done", "y done"]);
    assert_eq!(index.seen(), (1, vec!["looked up".to_owned()]));
    assert_eq!(store.seen().1, ["x", "y"]);
}

/// Server whose handler calls `decide` with its sealed result and the number of the run.
async fn sealing(
    store: &Arc<Store>,
    decide: impl Fn(SealedRequest, usize) + Clone + Send + Sync + 'static,
) -> (RunningHandlers, Client) {
    let runs = Arc::clone(store);
    let fetch = move |note: Note, call: DelegatedCall<Note>| {
        let (store, decide) = (Arc::clone(&runs), decide.clone());
        async move {
            store.disk().runs += 1;
            let run = store.disk().runs;
            call.reply(note).await?;
            decide(call.seal()?, run);
            // The result of a sealed handler is ignored.
            Err(Status::internal("not heard"))
        }
    };
    let serving = Handlers::new().handle::<DocsFetch, _, _>(fetch).start().await.expect("starts");
    let client = client(Directory::of([("store", serving.address())])).await;
    (serving, client)
}

#[tokio::test]
async fn discarded_request_runs_again() {
    let store = Arc::new(Store::default());
    let committing = Arc::clone(&store);
    let (_serving, client) = sealing(&store, move |sealed, run| {
        if run == 1 {
            return sealed.discard(&Status::unavailable("the disk is full"));
        }
        committing.commit("effect".to_owned(), &sealed.record().expect("to be done once").clone());
        sealed.release();
    })
    .await;
    assert_eq!(fetch(&client, "a").await.expect("complete"), ["a"]);
    assert_eq!(store.seen(), (2, vec!["effect".to_owned()]));
}

#[tokio::test]
async fn dropped_seal_does_not_run_again() {
    let store = Arc::new(Store::default());
    let (serving, client) = sealing(&store, |sealed, _| drop(sealed)).await;
    let note = Note { text: "a".to_owned() };
    let mut time = Duration::from_secs(1);
    // The call is repeated within this time, except on a stalled machine.
    while serving.stats().worker.repeats == 0 {
        let before = store.disk().runs;
        let call = client.call::<Note>().timeout(time).request::<DocsFetch>("store", &note);
        let mut replies = call.expect("known").begin().expect("room");
        let said = timeout(HANG, replies.message()).await.expect("in time");
        let status = said.expect_err("the result is unknown");
        assert!(matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded), "{status}");
        assert!(store.disk().runs <= before + 1, "the handler runs again");
        time *= 2;
        assert!(time < HANG, "it is not made again: {:?}", serving.stats());
    }
    assert!(store.disk().runs >= 1);
}

#[tokio::test]
async fn handler_without_record_is_reported() {
    let fetch = async |note: Note, call: DelegatedCall<Note>| call.reply(note).await;
    let serving = Handlers::new().handle::<DocsFetch, _, _>(fetch).start().await.expect("starts");
    let client = client(Directory::of([("store", serving.address())])).await;
    let status = self::fetch(&client, "a").await.expect_err("it does not seal");
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("a server that records requests"), "{status}");
}
