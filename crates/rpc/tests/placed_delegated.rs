//! Tests of delegated calls that the processor or the accelerator of their host works on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::placed::several::TWO;
use pathcall_place::model::Preset;
use pathcall_place::{DeviceRole, Hardware, SelectionStrategy};
use pathcall_proto::manifest::{Manifest, Placed};
use pathcall_rpc::delegate::{DelegatedCall, Handlers, PendingTrace};
use pathcall_rpc::layer::{LayerError, PlaceOptions, PlaceSetupError};
use pathcall_rpc::{Channel, Layer};
use pathcall_test_support::stubs::delegated::{DocsFetch, DocsLookup};
use pathcall_test_support::stubs::docs_client::DocsClient;
use pathcall_test_support::stubs::{Note, PATHCALL, Wish};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Status};

static PLACED: Manifest = Manifest {
    methods: &[],
    delegated: PATHCALL.delegated,
    cloned: &[],
    placed: &[Placed {
        path: "/rpctest.Docs/Fetch",
        file: PATHCALL.placed[0].file,
        application: PATHCALL.placed[0].application,
        request: "GET",
        key: 1,
    }],
    descriptor: PATHCALL.descriptor,
};

/// Server that delegates to itself, with a processor and an accelerator.
struct Host {
    pathcall: Layer,
    client: DocsClient<Channel>,
    _serving: JoinSet<()>,
}

/// Status that an accelerator returns for all calls.
#[derive(Clone, Copy, PartialEq)]
enum Device {
    Works,
    Gone,
    GoesAtWork,
}

fn handlers(processor: &Arc<AtomicU32>) -> Handlers {
    let processor = Arc::clone(processor);
    let lookup = async |wish: Wish, call: DelegatedCall<Note>| {
        wish.names.into_iter().try_for_each(|text| call.delegate::<DocsFetch>("here", &Note { text }))
    };
    let fetch = move |note: Note, call: DelegatedCall<Note>| {
        processor.fetch_add(1, Ordering::Relaxed);
        async move { call.reply(Note { text: format!("cpu {}", note.text) }).await }
    };
    Handlers::new().handle::<DocsLookup, _, _>(lookup).handle::<DocsFetch, _, _>(fetch)
}

/// Handler of an accelerator.
async fn accelerated(by: &str, device: Device, note: Note, call: DelegatedCall<Note>) -> Result<(), Status> {
    if device == Device::Gone {
        return Err(Status::unavailable("the device is gone"));
    }
    call.reply(Note { text: format!("{by} {}", note.text) }).await?;
    if device == Device::GoesAtWork { Err(Status::unavailable("the device is gone")) } else { Ok(()) }
}

fn hardware() -> Hardware {
    Hardware::preset(Preset::Direct)
}

impl Host {
    async fn start(strategy: SelectionStrategy, device: Device, processor: &Arc<AtomicU32>) -> Self {
        let placing = PlaceOptions::new(hardware()).strategy(strategy);
        Self::start_with(
            placing.acc_handler::<DocsFetch, _, _>(move |note, call| accelerated("acc", device, note, call)),
            processor,
        )
        .await
    }

    async fn start_with(placing: PlaceOptions, processor: &Arc<AtomicU32>) -> Self {
        let directory = pathcall_rpc::delegate::Directory::default();
        let serving = handlers(processor).directory(directory.clone()).start().await.expect("starts");
        directory.set([("here", serving.address())]);
        let pathcall = Layer::builder(&PLACED).handlers(serving).place(placing).build().await.expect("starts");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let router = tonic::transport::Server::builder().layer(pathcall.clone()).add_routes(Routes::default());
        let mut serving = JoinSet::new();
        serving.spawn(async move { router.serve_with_incoming(TcpIncoming::from(listener)).await.expect("serves") });
        let client = DocsClient::new(Channel::connect(url, &PLACED).await.expect("connects"));
        Self { pathcall, client, _serving: serving }
    }

    /// Texts of the replies, sorted, and the outcome.
    async fn look_up(&mut self, names: &[&str]) -> (Vec<String>, Result<(), Status>) {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let mut texts = Vec::new();
        let ended = async {
            let mut notes = self.client.lookup(Wish { names }).await?.into_inner();
            while let Some(note) = notes.message().await? {
                texts.push(note.text);
            }
            Ok(())
        };
        let ended = ended.await;
        texts.sort_unstable();
        (texts, ended)
    }

    fn done(&self, role: DeviceRole) -> u64 {
        let paths = self.pathcall.place_stats().into_iter();
        paths.filter(|path| path.request == "GET" && path.role == role).map(|path| path.state.done).sum()
    }
}

#[tokio::test]
async fn either_device_answers_delegated_requests() {
    for (strategy, by, counts) in [
        (SelectionStrategy::AllCpu, ["cpu a", "cpu b"], [2, 0]),
        (SelectionStrategy::AllAcc, ["acc a", "acc b"], [0, 2]),
    ] {
        let mut host = Host::start(strategy, Device::Works, &Arc::default()).await;
        let (texts, ended) = host.look_up(&["a", "b"]).await;
        ended.expect("complete");
        assert_eq!(texts, by);
        assert_eq!([DeviceRole::Cpu, DeviceRole::Acc].map(|role| host.done(role)), counts);
        let told = host.pathcall.place_explain(2).concat();
        assert_eq!(told.matches(" GET: ").count(), 2, "{told}");
    }
}

#[tokio::test]
async fn trace_names_device() {
    let mut host = Host::start(SelectionStrategy::AllAcc, Device::Works, &Arc::default()).await;
    let mut request = Request::new(Wish { names: vec!["a".to_owned()] });
    let trace = PendingTrace::of(&mut request);
    let mut notes = host.client.lookup(request).await.expect("begins").into_inner();
    while notes.message().await.expect("no error").is_some() {}
    let told = trace.finished().await.expect("traced").to_string();
    assert!(told.contains("/rpctest.Docs/Fetch (acc): waited "), "{told}");
}

#[tokio::test]
async fn accelerator_falls_back_only_before_first_reply() {
    let processor = Arc::default();
    let mut host = Host::start(SelectionStrategy::RoundRobin, Device::Gone, &processor).await;
    for name in ["a", "b", "c"] {
        let (texts, ended) = host.look_up(&[name]).await;
        ended.expect("the processor does it");
        assert_eq!(texts, [format!("cpu {name}")]);
    }
    assert_eq!(processor.load(Ordering::Relaxed), 3);
    let told = host.pathcall.place_explain(3).concat();
    assert!(told.contains("on cpu-acc: the accelerator answered UNAVAILABLE"), "{told}");

    // The caller may already have the reply: a second one must not be sent.
    let processor = Arc::default();
    let mut host = Host::start(SelectionStrategy::AllAcc, Device::GoesAtWork, &processor).await;
    let (texts, ended) = host.look_up(&["a"]).await;
    assert_eq!(ended.expect_err("it failed").code(), Code::Unavailable);
    assert!(texts.len() <= 1 && processor.load(Ordering::Relaxed) == 0, "{texts:?}");
}

#[tokio::test]
async fn other_accelerator_handles_requests_that_one_fails() {
    let two =
        || PlaceOptions::new(Hardware::parse("two.yaml", TWO).expect("a model")).strategy(SelectionStrategy::AllAcc);
    let processor = Arc::default();
    let placing = two().acc_handler::<DocsFetch, _, _>(|note, call| accelerated("acc", Device::Gone, note, call));
    let placing =
        placing.acc_handler_at::<DocsFetch, _, _>(1, |note, call| accelerated("acc1", Device::Works, note, call));
    let mut host = Host::start_with(placing, &processor).await;
    for name in ["a", "b", "c"] {
        let (texts, ended) = host.look_up(&[name]).await;
        ended.expect("the second accelerator does it");
        assert_eq!(texts, [format!("acc1 {name}")]);
    }
    assert_eq!((host.done(DeviceRole::Acc1), processor.load(Ordering::Relaxed)), (3, 0));

    let serving = handlers(&Arc::default()).start().await.expect("starts");
    let placing = two().acc_handler::<DocsFetch, _, _>(|note, call| accelerated("acc", Device::Works, note, call));
    let error =
        Layer::builder(&PLACED).handlers(serving).place(placing).build().await.expect_err("no handler").to_string();
    assert_eq!(
        error,
        "/rpctest.Docs/Fetch has a dataflow over acc1, but its handler is missing there: add it with \
         PlaceOptions::acc_handler_at"
    );
}

#[tokio::test]
async fn missing_accelerator_handler_is_an_error() {
    let serving = handlers(&Arc::default()).start().await.expect("starts");
    let built = Layer::builder(&PLACED).handlers(serving).place(PlaceOptions::new(hardware())).build().await;
    let Err(LayerError::Place(error @ PlaceSetupError::NoHandler { .. })) = built else { panic!("{built:?}") };
    assert_eq!(
        error.to_string(),
        "/rpctest.Docs/Fetch has a dataflow over the accelerator, but its handler is missing: add it with \
         PlaceOptions::acc_handler"
    );
    // A server without handlers needs none.
    Layer::builder(&PLACED).place(PlaceOptions::new(hardware())).build().await.expect("starts");
}
