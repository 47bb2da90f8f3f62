//! Worker tasks of a pool: requests from the queue, answered by the layer's services.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::header::{CONTENT_TYPE, TE};
use http::{HeaderValue, Method, Uri, Version};
use http_body_util::Full;
use pathcall_driver::clone::{CloneWorkerEvent, CloneWorkerEvents, ReplySender};
use pathcall_endpoint::clone::{FailureCause, PoolRequest, PoolRequestId};
use pathcall_proto::manifest::Cloned;
use tokio::task::{AbortHandle, JoinSet};
use tonic::body::Body;
use tonic::{Code, Status};
use tower::ServiceExt;

use super::{REPLY_MAX, lock};
use crate::application::Catalogue;
use crate::cloned::{self, EncodedReply};
use crate::deadline::Deadline;
use crate::layer::Services;
use crate::message::frame;
use crate::status::deadline_exceeded;

/// Fraction of the time limit after which a dropped waiting request counts as late. Requests that are dropped earlier
/// have another reason.
const LATE_FRACTION: f64 = 0.9;
/// Pause between two warnings.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// Answers the requests of the queue, each in a task of its own, until the queue has stopped. The queue gives no more
/// requests at a time than there are workers.
pub(super) async fn answer_all<S: Services>(
    catalogue: Catalogue,
    services: S,
    mut works: CloneWorkerEvents,
    late: LateCounter,
) {
    let mut tasks = JoinSet::new();
    let mut begun: HashMap<PoolRequestId, RunningHandler> = HashMap::new();
    while let Some(order) = works.next().await {
        while tasks.try_join_next().is_some() {}
        let work = match order {
            CloneWorkerEvent::Begin(work) => work,
            CloneWorkerEvent::Cancelled(work) => {
                late.check(work);
                continue;
            }
            CloneWorkerEvent::Unwanted(id) => {
                if let Some(unwanted) = begun.remove(&id) {
                    unwanted.stop();
                }
                continue;
            }
        };
        if begun.len() > 2 * tasks.len() + ENDED_MAX {
            begun.retain(|_, work| !work.task.is_finished());
        }
        let (id, unwanted) = (work.id, Arc::new(AtomicBool::new(false)));
        let pending =
            PendingReply { id, replies: works.replies(), reply: None, method: None, unwanted: Arc::clone(&unwanted) };
        let (catalogue, services, late) = (catalogue.clone(), services.clone(), late.clone());
        let task = tasks.spawn(async move {
            // Owned by the task, so that a handler that panics is answered, too.
            let mut pending = pending;
            pending.reply = Some(match prepare(&catalogue, work, &late) {
                Ok(prepared) => {
                    pending.method = Some(prepared.method);
                    answer(services, prepared).await
                }
                Err(status) => cloned::of_status(status),
            });
        });
        begun.insert(id, RunningHandler { task, unwanted });
    }
    while tasks.join_next().await.is_some() {}
}

/// Number of ended tasks, beyond two for each running one, at which they are removed.
const ENDED_MAX: usize = 64;

/// Running handler.
struct RunningHandler {
    task: AbortHandle,
    unwanted: Arc<AtomicBool>,
}

impl RunningHandler {
    /// Drops the handler, as gRPC does when a caller has gone.
    fn stop(self) {
        self.unwanted.store(true, Ordering::Relaxed);
        self.task.abort();
    }
}

/// Request in progress. Dropping it answers it.
struct PendingReply {
    id: PoolRequestId,
    replies: ReplySender,
    /// `None` if the handler has not finished.
    reply: Option<EncodedReply>,
    /// Method of the call, once known.
    method: Option<&'static Cloned>,
    /// Whether the caller no longer needs a reply.
    unwanted: Arc<AtomicBool>,
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        if self.unwanted.load(Ordering::Relaxed) {
            return self.replies.drop_request(self.id);
        }
        let ended = || cloned::of_status(Status::internal("the handler ended without a reply"));
        let EncodedReply { bytes, code, pushback } = self.reply.take().unwrap_or_else(ended);
        match failure_cause(self.method, code) {
            Some(cause) => self.replies.fail(self.id, bytes, cloned::too_long(), cause, pushback),
            None => self.replies.finish(self.id, bytes, cloned::too_long()),
        }
    }
}

/// Party to blame for an answer with this code; `None` if the answer ends the call. The hedging policy decides this
/// (gRPC A6); without one, only OK ends the call.
fn failure_cause(method: Option<&Cloned>, code: Code) -> Option<FailureCause> {
    let policy = method.and_then(|method| method.hedging);
    if policy.map_or(code == Code::Ok, |policy| !policy.is_non_fatal(code as u8)) {
        return None;
    }
    Some(match code {
        Code::Unknown
        | Code::Internal
        | Code::Unavailable
        | Code::Unimplemented
        | Code::ResourceExhausted
        | Code::DataLoss
        | Code::DeadlineExceeded
        | Code::Aborted => FailureCause::Server,
        _ if policy.is_some() => FailureCause::Policy,
        _ => FailureCause::Request,
    })
}

/// Encoded reply to a request.
async fn answer<S: Services>(services: S, PreparedCall { request, left, .. }: PreparedCall) -> EncodedReply {
    let replied = async {
        match services.oneshot(request).await {
            Ok(response) => cloned::of_response(response, REPLY_MAX).await,
            Err(_) => cloned::of_status(Status::unavailable("the service accepts no calls")),
        }
    };
    match left {
        None => replied.await,
        Some(left) => match tokio::time::timeout(left, replied).await {
            Ok(reply) => reply,
            Err(_) => cloned::of_status(deadline_exceeded()),
        },
    }
}

/// Request for a handler.
struct PreparedCall {
    method: &'static Cloned,
    request: http::Request<Body>,
    /// Time left for the handler.
    left: Option<Duration>,
}

fn prepare(catalogue: &Catalogue, work: PoolRequest, late: &LateCounter) -> Result<PreparedCall, Status> {
    let PoolRequest { request, waited, .. } = work;
    let (left, envelope) =
        cloned::decode_request(request).map_err(|error| Status::invalid_argument(error.to_string()))?;
    // Streams have no replies in frames.
    let Some(method) = catalogue.cloned(&envelope.path).filter(|method| !method.streaming) else {
        return Err(Status::unimplemented(format!("{} is not a cloned method of this server", envelope.path)));
    };
    let in_time =
        |left: Duration| left.checked_sub(waited).ok_or_else(|| (late.add(left, waited), deadline_exceeded()).1);
    let left = left.map(in_time).transpose()?;
    let mut body = frame::begin();
    body.extend_from_slice(&envelope.message);
    let body = frame::close(body).map_err(|error| Status::invalid_argument(error.to_string()))?;
    let mut request = http::Request::new(Body::new(Full::new(body)));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static(method.path);
    *request.version_mut() = Version::HTTP_2;
    *request.headers_mut() = envelope.metadata;
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
    Deadline::after(left).write_to(request.headers_mut());
    Ok(PreparedCall { method, request, left })
}

/// Shared counter of late requests.
#[derive(Debug, Clone)]
pub(super) struct LateCounter(Arc<LateState>);

#[derive(Debug)]
struct LateState {
    workers: usize,
    count: AtomicU64,
    warned: Mutex<Option<Instant>>,
}

impl LateCounter {
    /// Counter of a server with this number of workers.
    pub(super) fn new(workers: usize) -> Self {
        Self(Arc::new(LateState { workers, count: AtomicU64::new(0), warned: Mutex::default() }))
    }

    pub(super) fn count(&self) -> u64 {
        self.0.count.load(Ordering::Relaxed)
    }

    /// Counts a request that was dropped while it waited, if its time had nearly expired.
    pub(super) fn check(&self, PoolRequest { waited, request, .. }: PoolRequest) {
        if let Ok((Some(left), _)) = cloned::decode_request(request)
            && waited >= left.mul_f64(LATE_FRACTION)
        {
            self.add(left, waited);
        }
    }

    /// Counts a late request that arrived with `left` of its time and waited for `waited`.
    pub(super) fn add(&self, left: Duration, waited: Duration) {
        let LateState { workers, count, warned } = &*self.0;
        let count = count.fetch_add(1, Ordering::Relaxed) + 1;
        let now = Instant::now();
        let mut warned = lock(warned);
        if warned.is_none_or(|warned| now.duration_since(warned) >= WARN_EVERY) {
            *warned = Some(now);
            tracing::warn!(
                count,
                "a call that had {left:?} left waited for {waited:?}: all {workers} workers are busy; give the server \
                 more (`workers` in the method's option, or `Layer::builder(..).workers(..)`)"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::HeaderMap;
    use pathcall_proto::manifest::{Balance, HedgeBudgetConfig, Manifest};
    use tokio::time::Instant;

    use super::*;

    const ASK: Cloned = Cloned {
        path: "/a/Ask",
        automatic: false,
        clone: true,
        balance: Balance::Random,
        budget: HedgeBudgetConfig { share: 1.0, burst: 500.0, per_second: 100.0 },
        cost: 1,
        hedging: None,
        cancel: false,
        workers: 1,
        streaming: false,
    };

    static ASKED: Manifest = Manifest {
        methods: &[],
        delegated: &[],
        cloned: &[ASK, Cloned { path: "/a/Stream", streaming: true, ..ASK }],
        placed: &[],
        descriptor: &[],
    };

    /// Request with this time left, after this wait.
    fn asked(left: Option<Duration>, waited: Duration) -> Result<PreparedCall, Status> {
        asked_of("/a/Ask", left, waited)
    }

    fn asked_of(path: &str, left: Option<Duration>, waited: Duration) -> Result<PreparedCall, Status> {
        let mut catalogue = Catalogue::default();
        catalogue.push(&ASKED);
        let request = cloned::encode_request(path, &HeaderMap::new(), left, b"what").expect("a request");
        prepare(&catalogue, PoolRequest { id: PoolRequestId(1), caller: 10, waited, request }, &LateCounter::new(1))
    }

    #[tokio::test]
    async fn stream_is_refused_by_frames() {
        let status = asked_of("/a/Stream", None, ms(0)).err().expect("no stream by frames");
        assert_eq!(status.message(), "/a/Stream is not a cloned method of this server");
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[tokio::test(start_paused = true)]
    async fn queue_wait_reduces_time_left() {
        let PreparedCall { request, left, .. } = asked(Some(ms(500)), ms(200)).expect("in time");
        assert_eq!(left, Some(ms(300)));
        assert_eq!(Deadline::of(request.headers()).left(), Some(ms(300)), "and so the handler's server hears it");
        // The time had expired before a worker was free.
        for waited in [501, 90_000] {
            let status = asked(Some(ms(500)), ms(waited)).err().expect("late");
            assert_eq!(status.code(), tonic::Code::DeadlineExceeded);
        }
        let PreparedCall { request, left, .. } = asked(None, ms(90_000)).expect("no limit");
        assert_eq!((left, Deadline::of(request.headers()).left()), (None, None));
    }

    #[tokio::test(start_paused = true)]
    async fn handler_gets_time_left_after_queue() {
        let never = tower::service_fn(|_: http::Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, Infallible>>()
        });
        let began = Instant::now();
        let encoded = answer(never, asked(Some(ms(500)), ms(200)).expect("in time")).await;
        assert_eq!((encoded.code, began.elapsed()), (tonic::Code::DeadlineExceeded, ms(300)));
    }
}
