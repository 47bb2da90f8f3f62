//! Calls that servers pass on, worked on by the processor or the accelerator of the host where they come to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pathcall_place::model::Preset;
use pathcall_place::{Hardware, Role, Strategy};
use pathcall_proto::manifest::{Manifest, Placed};
use pathcall_rpc::delegate::{Call, Handlers, Trace};
use pathcall_rpc::server::{BuildError, Placing, PlacingError};
use pathcall_rpc::{Channel, Server};
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

/// A server that passes look-ups on to itself, with a processor and an accelerator for what comes of them.
struct Host {
    pathcall: Server,
    client: DocsClient<Channel>,
    _serving: JoinSet<()>,
}

/// What an accelerator says to all.
#[derive(Clone, Copy, PartialEq)]
enum Device {
    Works,
    Gone,
    GoesAtWork,
}

fn handlers(processor: &Arc<AtomicU32>) -> Handlers {
    let processor = Arc::clone(processor);
    let lookup = async |wish: Wish, call: Call<Note>| {
        wish.names.into_iter().try_for_each(|text| call.delegate::<DocsFetch>("here", &Note { text }))
    };
    let fetch = move |note: Note, call: Call<Note>| {
        processor.fetch_add(1, Ordering::Relaxed);
        async move { call.reply(Note { text: format!("cpu {}", note.text) }).await }
    };
    Handlers::new().handle::<DocsLookup, _, _>(lookup).handle::<DocsFetch, _, _>(fetch)
}

fn hardware() -> Hardware {
    Hardware::preset(Preset::Direct)
}

impl Host {
    async fn start(strategy: Strategy, device: Device, processor: &Arc<AtomicU32>) -> Self {
        let directory = pathcall_rpc::delegate::Directory::default();
        let serving = handlers(processor).directory(directory.clone()).start().await.expect("starts");
        directory.set([("here", serving.address())]);
        let accelerated = move |note: Note, call: Call<Note>| async move {
            if device == Device::Gone {
                return Err(Status::unavailable("the device is gone"));
            }
            call.reply(Note { text: format!("acc {}", note.text) }).await?;
            if device == Device::GoesAtWork { Err(Status::unavailable("the device is gone")) } else { Ok(()) }
        };
        let placing = Placing::new(hardware()).strategy(strategy).acc_handler::<DocsFetch, _, _>(accelerated);
        let pathcall = Server::builder(&PLACED).handlers(serving).place(placing).build().await.expect("starts");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let router = tonic::transport::Server::builder().layer(pathcall.layer()).add_routes(Routes::default());
        let mut serving = JoinSet::new();
        serving.spawn(async move { router.serve_with_incoming(TcpIncoming::from(listener)).await.expect("serves") });
        let client = DocsClient::new(Channel::connect(url, &PLACED).await.expect("connects"));
        Self { pathcall, client, _serving: serving }
    }

    /// What is replied, in the order of texts, and how it ended.
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

    fn done(&self, role: Role) -> u64 {
        let ways = self.pathcall.place_stats().into_iter();
        ways.filter(|way| way.request == "GET" && way.role == role).map(|way| way.state.done).sum()
    }
}

#[tokio::test]
async fn the_processor_or_the_accelerator_answers_what_was_passed_on() {
    for (strategy, by, counts) in
        [(Strategy::AllCpu, ["cpu a", "cpu b"], [2, 0]), (Strategy::AllAcc, ["acc a", "acc b"], [0, 2])]
    {
        let mut host = Host::start(strategy, Device::Works, &Arc::default()).await;
        let (texts, ended) = host.look_up(&["a", "b"]).await;
        ended.expect("complete");
        assert_eq!(texts, by);
        assert_eq!([Role::Cpu, Role::Acc].map(|role| host.done(role)), counts);
        let told = host.pathcall.place_explain(2).concat();
        assert_eq!(told.matches(" GET: ").count(), 2, "{told}");
    }
}

#[tokio::test]
async fn a_trace_says_who_answered() {
    let mut host = Host::start(Strategy::AllAcc, Device::Works, &Arc::default()).await;
    let mut request = Request::new(Wish { names: vec!["a".to_owned()] });
    let trace = Trace::of(&mut request);
    let mut notes = host.client.lookup(request).await.expect("begins").into_inner();
    while notes.message().await.expect("no error").is_some() {}
    let told = trace.finished().await.expect("traced").to_string();
    assert!(told.contains("/rpctest.Docs/Fetch (acc): waited "), "{told}");
}

#[tokio::test]
async fn what_the_accelerator_cannot_do_the_processor_does_unless_something_was_said() {
    let processor = Arc::default();
    let mut host = Host::start(Strategy::RoundRobin, Device::Gone, &processor).await;
    for name in ["a", "b", "c"] {
        let (texts, ended) = host.look_up(&[name]).await;
        ended.expect("the processor does it");
        assert_eq!(texts, [format!("cpu {name}")]);
    }
    assert_eq!(processor.load(Ordering::Relaxed), 3);
    let told = host.pathcall.place_explain(3).concat();
    assert!(told.contains("on cpu-acc: the accelerator says UNAVAILABLE"), "{told}");

    // The caller may have the reply already: it must not come once more.
    let processor = Arc::default();
    let mut host = Host::start(Strategy::AllAcc, Device::GoesAtWork, &processor).await;
    let (texts, ended) = host.look_up(&["a"]).await;
    assert_eq!(ended.expect_err("it failed").code(), Code::Unavailable);
    assert!(texts.len() <= 1 && processor.load(Ordering::Relaxed) == 0, "{texts:?}");
}

#[tokio::test]
async fn a_host_without_a_handler_for_its_accelerator_is_told_so() {
    let serving = handlers(&Arc::default()).start().await.expect("starts");
    let built = Server::builder(&PLACED).handlers(serving).place(Placing::new(hardware())).build().await;
    let Err(BuildError::Placing(error @ PlacingError::NoHandler { .. })) = built else { panic!("{built:?}") };
    assert_eq!(
        error.to_string(),
        "/rpctest.Docs/Fetch has a dataflow over the accelerator, and its handler is not there: give it to \
         Placing::acc_handler"
    );
    // Who works on no such request needs none.
    Server::builder(&PLACED).place(Placing::new(hardware())).build().await.expect("starts");
}
