//! Tests of requests to services with several replicas, of which one dies.

use std::sync::Arc;
use std::time::Duration;

use pathcall_rpc::delegate::{
    CallOptions, Client, DelegatedCall, Directory, Handlers, Node, NodeConfig, NodeTarget, RunningHandlers, Transport,
};
use pathcall_test_support::stubs::Note;
use pathcall_test_support::stubs::delegated::{AnswersAsk, AnswersBook};
use pathcall_test_support::{HANG, loopback};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::{Code, Status};

use super::process::Process;

/// Calls in progress when a replica is killed.
const CALLS: usize = 60;

/// A front that passes calls on to a service of three replicas, whose handlers wait for the gate.
struct Service {
    replicas: Vec<(Process, RunningHandlers)>,
    front: RunningHandlers,
    client: Client,
    gate: Arc<Semaphore>,
    /// Replica of each request that has begun.
    begun: mpsc::UnboundedReceiver<usize>,
}

impl Service {
    async fn new(transport: Transport) -> Self {
        let (gate, (begin, begun)) = (Arc::new(Semaphore::new(0)), mpsc::unbounded_channel());
        let config = NodeConfig::default().transport(transport);
        let mut replicas = Vec::new();
        for replica in 0..3 {
            let (gate, begin) = (Arc::clone(&gate), begin.clone());
            let set_up = move |handlers: Handlers| {
                let (gate, begin) = (Arc::clone(&gate), begin.clone());
                let answer = move |question: Note, call: DelegatedCall<Note>| {
                    let gate = Arc::clone(&gate);
                    // The test may have ended.
                    let _ = begin.send(replica);
                    async move {
                        let _open = gate.acquire().await;
                        call.reply(question).await
                    }
                };
                handlers.handle::<AnswersAsk, _, _>(answer.clone()).handle::<AnswersBook, _, _>(answer)
            };
            replicas.push(Process::start(config.clone().listen(loopback::own()), set_up).await);
        }
        let names = replicas.iter().enumerate();
        let directory = Directory::of(names.map(|(i, (_, replica))| (format!("answers/{i}"), replica.address())));
        let pass_on = async |question: Note, call: DelegatedCall<Note>| {
            call.delegate::<AnswersAsk>(NodeTarget::service("answers"), &question)
        };
        let book = async |question: Note, call: DelegatedCall<Note>| {
            call.delegate::<AnswersBook>(NodeTarget::service("answers"), &question)
        };
        let front = Handlers::new().node(config.clone()).directory(directory);
        let front = front.handle::<AnswersAsk, _, _>(pass_on).handle::<AnswersBook, _, _>(book);
        let front = front.start().await.expect("starts");
        let (node, _requests) = Node::start(&config).await.expect("starts");
        let client = Client::new(node, Directory::of([("front", front.address())]));
        let options = CallOptions::new().ping_period(Duration::from_millis(50)).timeout(Duration::from_secs(2));
        Self { replicas, front, client: client.options(options), gate, begun }
    }

    /// Starts calls of the idempotent method.
    fn ask(&self, calls: &mut JoinSet<Result<Note, Status>>, count: usize) {
        for call in 0..count {
            let question = Note { text: call.to_string() };
            let call = self.client.call::<Note>().request::<AnswersAsk>("front", &question).expect("known");
            calls.spawn(call.reply());
        }
    }

    /// Waits until a replica has begun this many requests, or more.
    async fn has_begun(&mut self, requests: usize) -> [usize; 3] {
        let mut counts = [0; 3];
        while counts.iter().sum::<usize>() < requests {
            counts[timeout(HANG, self.begun.recv()).await.expect("in time").expect("it goes on")] += 1;
        }
        counts
    }
}

async fn killed(transport: Transport) {
    let mut service = Service::new(transport).await;
    let mut calls = JoinSet::new();
    service.ask(&mut calls, CALLS);
    let begun = service.has_begun(CALLS).await;
    assert!(begun.iter().all(|count| *count > 0), "{begun:?}");
    let (mut process, serving) = service.replicas.remove(1);
    drop(serving);
    process.kill();
    // Those of the dead replica begin again elsewhere, while the others go on.
    let repeated = service.has_begun(begun[1]).await;
    service.gate.add_permits(Semaphore::MAX_PERMITS);
    service.ask(&mut calls, CALLS);
    while let Some(answer) = timeout(HANG, calls.join_next()).await.expect("in time") {
        answer.expect("no panic").expect("another replica answers");
    }
    assert_eq!(repeated[1], 0, "the dead replica begins nothing");
    let front = service.front.stats().worker.requests;
    assert!(front >= (2 * CALLS + begun[1]) as u64, "{front} requests at the front");
}

#[tokio::test]
async fn killed_replica_costs_no_idempotent_call_by_flows() {
    killed(Transport::Flows).await;
}

#[tokio::test]
async fn killed_replica_costs_no_idempotent_call_by_tcp() {
    killed(Transport::Tcp).await;
}

#[tokio::test]
async fn call_that_is_not_idempotent_fails_with_its_replica() {
    let mut service = Service::new(Transport::Flows).await;
    let call = service.client.call::<Note>().request::<AnswersBook>("front", &Note::default()).expect("known");
    let call = tokio::spawn(call.reply());
    let begun = service.has_begun(1).await;
    let which = begun.iter().position(|count| *count == 1).expect("one has begun");
    service.replicas.remove(which).0.kill();
    let status = timeout(HANG, call).await.expect("in time").expect("no panic").expect_err("it is not repeated");
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(service.begun.try_recv().is_err(), "no other replica has it");
}
