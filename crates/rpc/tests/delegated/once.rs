//! Calls that take effect exactly once (DPC §3.5.3), whoever dies in between.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use pathcall_rpc::Channel;
use pathcall_rpc::delegate::{
    Call, CallOptions, Client, Context, Directory, Handlers, History, Node, NodeConfig, Record, RequestId, Sealed,
    Serving,
};
use pathcall_test_support::stubs::delegated::{DocsFetch, DocsLookup};
use pathcall_test_support::stubs::docs_client::DocsClient;
use pathcall_test_support::stubs::{Note, PATHCALL, Wish};
use pathcall_test_support::{HANG, loopback};
use tokio::sync::Notify;
use tokio::time::timeout;
use tonic::{Code, Request, Status};

use super::house::{all, serve, wish};
use super::process::Process;

/// What survives a server.
#[derive(Debug, Default)]
struct Disk {
    effects: Vec<String>,
    records: Vec<(Context, RequestId, Bytes)>,
    ended: Vec<Context>,
    /// Times that a handler ran.
    runs: usize,
}

/// A disk, and what happens to its server.
#[derive(Debug, Default)]
struct Store {
    disk: Mutex<Disk>,
    /// A handler has come so far that its server can be killed.
    there: Notify,
}

impl Store {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().expect("nobody panics")
    }

    /// Times that handlers ran, and effects, sorted.
    fn seen(&self) -> (usize, Vec<String>) {
        let disk = self.disk();
        let mut effects = disk.effects.clone();
        effects.sort();
        (disk.runs, effects)
    }

    /// Both, or none.
    fn commit(&self, effect: String, record: &Record) {
        let mut disk = self.disk();
        disk.effects.push(effect);
        disk.records.push((record.call, record.request, record.to_bytes().into()));
    }

    fn history(&self) -> History {
        let disk = self.disk();
        let read = |(_, _, bytes): &(Context, RequestId, Bytes)| Record::from_bytes(bytes.clone()).expect("ours");
        History { records: disk.records.iter().map(read).collect(), ended: disk.ended.clone() }
    }
}

/// Where the first process of a server stops for its end.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Dies {
    Never,
    BeforeItsEffect,
    BeforeItSaysSo,
}

/// Fetches: an effect for each note.
fn fetches(store: &Arc<Store>, dies: Dies) -> impl Fn(Handlers) -> Handlers + Send + 'static {
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
        handlers.handle::<DocsFetch, _, _>(move |note: Note, call: Call<Note>| {
            let store = Arc::clone(&store);
            async move {
                store.disk().runs += 1;
                call.reply(Note { text: format!("{} done", note.text) }).await?;
                if dies == Dies::BeforeItsEffect {
                    store.there.notify_one();
                    return std::future::pending().await;
                }
                let sealed = call.seal()?;
                let record = sealed.record().expect("to be done once").clone();
                store.commit(note.text, &record);
                if dies == Dies::BeforeItSaysSo {
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

/// A server dies, and comes back with what has become durable.
async fn dies(how: Dies) {
    let store = Arc::new(Store::default());
    let config = NodeConfig::default().listen(loopback::own());
    let (mut process, serving) = Process::start(config.clone(), fetches(&store, how)).await;
    let at = serving.address();
    let client = client(Directory::of([("store", at)])).await;
    let call = tokio::spawn(async move { (fetch(&client, "a").await, client) });
    timeout(HANG, store.there.notified()).await.expect("it comes so far");
    drop(serving);
    process.kill();
    let (_process, _serving) = Process::start(config, fetches(&store, Dies::Never)).await;
    let (texts, client) = timeout(HANG, call).await.expect("in time").expect("no panic");
    assert_eq!(texts.expect("complete"), ["a done"], "{how:?}");
    let runs = if how == Dies::BeforeItsEffect { 2 } else { 1 };
    assert_eq!(store.seen(), (runs, vec!["a".to_owned()]), "{how:?}");

    // Records go when a later call says that the earlier ones have ended.
    assert_eq!(fetch(&client, "b").await.expect("complete"), ["b done"]);
    timeout(HANG, store.there.notified()).await.expect("it is told");
    let disk = store.disk();
    assert_eq!((disk.effects.len(), disk.records.len()), (2, 1));
}

#[tokio::test]
async fn a_server_that_dies_before_its_effect_does_the_work_when_it_is_back() {
    dies(Dies::BeforeItsEffect).await;
}

#[tokio::test]
async fn a_server_that_dies_after_its_effect_only_says_so_when_it_is_back() {
    dies(Dies::BeforeItSaysSo).await;
}

#[tokio::test]
async fn what_was_passed_on_is_passed_on_again_by_a_stubs_call() {
    let (index, store) = (Arc::new(Store::default()), Arc::new(Store::default()));
    let config = NodeConfig::default().listen(loopback::own());
    let (mut process, serving) = Process::start(config.clone(), fetches(&store, Dies::BeforeItsEffect)).await;
    let at = serving.address();
    let (directory, seen) = (Directory::of([("store", at)]), Arc::clone(&index));
    let lookup = move |wish: Wish, call: Call<Note>| {
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
    timeout(HANG, store.there.notified()).await.expect("it comes so far");
    drop(serving);
    process.kill();
    let (_process, _serving) = Process::start(config, fetches(&store, Dies::Never)).await;
    let (texts, ended) = timeout(HANG, call).await.expect("in time").expect("no panic");
    ended.expect("complete");
    assert_eq!(texts, ["index", "x done", "y done"]);
    assert_eq!(index.seen(), (1, vec!["looked up".to_owned()]));
    assert_eq!(store.seen().1, ["x", "y"]);
}

/// A server whose handler does this with what it has sealed, the nth time.
async fn sealing(
    store: &Arc<Store>,
    decide: impl Fn(Sealed, usize) + Clone + Send + Sync + 'static,
) -> (Serving, Client) {
    let runs = Arc::clone(store);
    let fetch = move |note: Note, call: Call<Note>| {
        let (store, decide) = (Arc::clone(&runs), decide.clone());
        async move {
            store.disk().runs += 1;
            let run = store.disk().runs;
            call.reply(note).await?;
            decide(call.seal()?, run);
            // What it says now says nothing.
            Err(Status::internal("not heard"))
        }
    };
    let serving = Handlers::new().handle::<DocsFetch, _, _>(fetch).start().await.expect("starts");
    let client = client(Directory::of([("store", serving.address())])).await;
    (serving, client)
}

#[tokio::test]
async fn what_did_not_become_durable_is_done_again() {
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
async fn what_may_have_become_durable_is_not_done_again() {
    let store = Arc::new(Store::default());
    let (serving, client) = sealing(&store, |sealed, _| drop(sealed)).await;
    let note = Note { text: "a".to_owned() };
    let mut time = Duration::from_secs(1);
    // It is made again in this time, but on a machine that stands still.
    while serving.stats().worker.repeats == 0 {
        let before = store.disk().runs;
        let call = client.call::<Note>().timeout(time).request::<DocsFetch>("store", &note);
        let mut replies = call.expect("known").begin().expect("room");
        let said = timeout(HANG, replies.message()).await.expect("in time");
        let status = said.expect_err("nobody says what became of it");
        assert!(matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded), "{status}");
        assert!(store.disk().runs <= before + 1, "it is done again");
        time *= 2;
        assert!(time < HANG, "it is not made again: {:?}", serving.stats());
    }
    assert!(store.disk().runs >= 1);
}

#[tokio::test]
async fn a_handler_that_records_nothing_says_so() {
    let fetch = async |note: Note, call: Call<Note>| call.reply(note).await;
    let serving = Handlers::new().handle::<DocsFetch, _, _>(fetch).start().await.expect("starts");
    let client = client(Directory::of([("store", serving.address())])).await;
    let status = self::fetch(&client, "a").await.expect_err("it does not seal");
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("records nothing"), "{status}");
}
