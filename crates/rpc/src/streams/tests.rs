//! Property tests of streams against a model: operations and a handler with drawn delays.

use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body::Frame;
use http_body_util::StreamBody;
use pathcall_endpoint::map::Lanes;
use pathcall_proto::manifest::{Field, Shape};
use proptest::prelude::*;
use tokio_stream::StreamExt;

use super::*;
use crate::message::frame;
use crate::message::typed::TypedValues;

const TYPED: Field = Field { path: &[1], name: "Request.typed", shape: Shape::IntArray };
static EACH: Method = Method {
    path: "/a.S/Each",
    kind: Kind::Count { threshold: 2, to: ForwardTarget::Src },
    request: Some(TYPED),
    reply: Some(TYPED),
    untyped_request: true,
    streams: FilterStreams::Both,
    ..Method::DEFAULT
};
static ONCE: Method = Method { path: "/a.S/Once", streams: FilterStreams::Client, ..EACH };

/// Message of a stream, with the numbers of polls that its parts take.
#[derive(Debug, Clone, Copy)]
struct Planned {
    before_begin: usize,
    until_done: usize,
    in_handler: usize,
    /// Whether the message has a field for the handler.
    is_handled: bool,
    /// Whether `CntFwd` drops it.
    is_dropped: bool,
}

fn planned() -> impl Strategy<Value = Vec<Planned>> {
    let one = (0..4usize, 0..6usize, 0..4usize, any::<bool>(), prop::bool::weighted(0.3));
    let one = one.prop_map(|(before_begin, until_done, in_handler, is_handled, is_dropped)| Planned {
        before_begin,
        until_done,
        in_handler,
        is_handled,
        is_dropped,
    });
    prop::collection::vec(one, 0..100)
}

/// Method as the model executes it.
struct Model {
    plan: Vec<Planned>,
    /// Messages in the order in which their operations began.
    begun: Mutex<Vec<usize>>,
    in_progress: AtomicUsize,
    /// Messages that the handler got.
    handled: Arc<Mutex<Vec<Bytes>>>,
}

impl Model {
    fn new(plan: Vec<Planned>) -> Arc<Self> {
        let (begun, handled) = (Mutex::default(), Arc::default());
        Arc::new(Self { plan, begun, in_progress: AtomicUsize::new(0), handled })
    }

    /// Whether the handler has to get a message.
    fn reaches_handler(&self, number: usize) -> bool {
        self.plan[number].is_handled && !self.plan[number].is_dropped
    }
}

async fn polls(count: usize) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

/// Field for the handler: `2: number`.
fn untyped(number: usize) -> Vec<u8> {
    vec![0x10, number as u8]
}

fn framed(message: &[u8]) -> Bytes {
    let mut framed = frame::begin();
    framed.extend_from_slice(message);
    frame::close(framed).expect("short")
}

fn answer(number: usize, is_dropped: bool) -> MapAnswer {
    let values = TypedValues::Lanes(Lanes::from(vec![number as i64]));
    MapAnswer { forwarded: Some(!is_dropped), ..MapAnswer::of(values) }
}

impl StreamedMethod for Model {
    fn operate(self: Arc<Self>, request: Request, _: usize, begun: Begun) -> StreamFuture<(MapAnswer, Option<Bytes>)> {
        Box::pin(async move {
            let number = request.typed.expect("typed").into_lanes().get(0).expect("a number") as usize;
            let plan = self.plan[number];
            assert!(self.in_progress.fetch_add(1, Ordering::SeqCst) < STREAM_WINDOW);
            polls(plan.before_begin).await;
            self.begun.lock().expect("no panic").push(number);
            drop(begun);
            polls(plan.until_done).await;
            self.in_progress.fetch_sub(1, Ordering::SeqCst);
            Ok((answer(number, plan.is_dropped), request.handler))
        })
    }

    /// Echoes each message; that of a stream with one reply answers with the number of messages.
    fn call_handler(self: Arc<Self>, request: http::Request<Body>) -> StreamFuture<http::Response<Body>> {
        let method = if request.uri().path() == EACH.path { &EACH } else { &ONCE };
        let mut reader = MessageReader::new(method, request.into_body(), HeaderMap::new(), 1000);
        let (sender, receiver) = mpsc::channel(1);
        let handle = async move {
            let mut count = 0;
            while let Some(message) = reader.next().await.expect("a message") {
                let number = *message.last().expect("a number");
                self.handled.lock().expect("no panic").push(message.clone());
                polls(self.plan[usize::from(number)].in_handler).await;
                count += 1;
                if method.streams == FilterStreams::Both && sender.send(Frame::data(framed(&message))).await.is_err() {
                    return;
                }
            }
            if method.streams == FilterStreams::Client {
                let _ = sender.send(Frame::data(framed(&untyped(count)))).await;
            }
            let _ = sender.send(Frame::trailers(assemble::ok_trailers())).await;
        };
        tokio::spawn(handle);
        let frames = tokio_stream::wrappers::ReceiverStream::new(receiver).map(Ok::<_, Infallible>);
        Box::pin(async move { Ok(assemble::streamed_response(Body::new(StreamBody::new(frames)))) })
    }
}

/// Makes the call of a stream with these messages; returns the replies and the status.
fn run(method: &'static Method, model: &Arc<Model>) -> (Vec<Bytes>, Status) {
    let messages = model.plan.clone().into_iter().enumerate().map(|(number, plan)| {
        let mut message = if plan.is_handled { untyped(number) } else { Vec::new() };
        let values = TypedValues::Lanes(Lanes::from(vec![number as i64]));
        crate::message::reply::append(&mut message, &[1], Shape::IntArray, 0, &values).expect("an array");
        Ok::<_, Infallible>(Frame::data(framed(&message)))
    });
    let mut request = http::Request::new(Body::new(StreamBody::new(tokio_stream::iter(messages))));
    *request.uri_mut() = http::Uri::from_static(method.path);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let response = match call(method, request, Arc::clone(model)).await {
            Ok(response) => response,
            Err(status) => return (Vec::new(), status),
        };
        let (parts, body) = response.into_parts();
        let mut reader = MessageReader::new(method, body, parts.headers, 1000);
        let mut replies = Vec::new();
        while let Some(reply) = reader.next().await.expect("a reply") {
            replies.push(reply);
        }
        (replies, Status::from_header_map(reader.trailers()).expect("a status"))
    })
}

/// Checks a stream with a reply for each message.
fn check_each(plan: &[Planned]) -> Result<(), TestCaseError> {
    let model = Model::new(plan.to_vec());
    let (replies, status) = run(&EACH, &model);
    prop_assert_eq!(status.code(), tonic::Code::Ok, "{}", status.message());
    let expected = (0..plan.len()).map(|number| {
        let handled = if model.reaches_handler(number) { untyped(number) } else { Vec::new() };
        let reply = assemble::reply_frame(&EACH, &handled, &answer(number, false)).expect("a reply");
        reply.slice(frame::HEADER_LEN..)
    });
    prop_assert_eq!(replies, expected.collect::<Vec<_>>());
    check_order(&model)
}

/// Checks that operations have begun in order, and that the handler got its messages in order.
fn check_order(model: &Model) -> Result<(), TestCaseError> {
    let all = 0..model.plan.len();
    prop_assert_eq!(&*model.begun.lock().expect("no panic"), &all.clone().collect::<Vec<_>>());
    let handled = all.filter(|number| model.reaches_handler(*number)).map(untyped).map(Bytes::from);
    prop_assert_eq!(&*model.handled.lock().expect("no panic"), &handled.collect::<Vec<_>>());
    Ok(())
}

proptest! {
    #[test]
    fn stream_has_replies_in_order(plan in planned()) {
        check_each(&plan)?;
    }

    #[test]
    fn stream_with_one_reply_has_last_values(plan in planned()) {
        let model = Model::new(plan.clone());
        let (replies, status) = run(&ONCE, &model);
        prop_assert_eq!(status.code(), tonic::Code::Ok, "{}", status.message());
        let count = (0..plan.len()).filter(|number| model.reaches_handler(*number)).count();
        let handled = if count > 0 { untyped(count) } else { Vec::new() };
        let last = plan.len().checked_sub(1).map_or(MapAnswer::EMPTY, |last| answer(last, false));
        let expected = assemble::reply_frame(&ONCE, &handled, &last).expect("a reply");
        prop_assert_eq!(replies, vec![expected.slice(frame::HEADER_LEN..)]);
        check_order(&model)?;
    }
}

/// Runs plans until one fails.
#[cfg(feature = "mutants")]
#[test]
fn every_mutant_of_streams_is_caught() {
    use pathcall_wire::mutant::plant;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    for mutant in Mutant::FILTERS {
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let config = Config { failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
        plant(Some(*mutant));
        let outcome = TestRunner::new_with_rng(config, rng).run(&planned(), |plan| check_each(&plan));
        plant(None);
        assert!(outcome.is_err(), "{mutant:?} is not caught");
    }
}
