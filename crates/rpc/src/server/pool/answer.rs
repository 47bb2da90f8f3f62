//! Requests from the queue, answered by the services of the layer.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::header::{CONTENT_TYPE, TE};
use http::{HeaderValue, Method, Uri, Version};
use http_body_util::Full;
use pathcall_endpoint::clone::{Blame, Work, WorkId};
use pathcall_endpoint::driver::clone::{Order, Replies, Works};
use pathcall_proto::manifest::Cloned;
use tokio::task::{AbortHandle, JoinSet};
use tonic::body::Body;
use tonic::{Code, Status};
use tower::ServiceExt;

use super::REPLY_MAX;
use super::late::Late;
use crate::application::Catalogue;
use crate::cloned::reply::{self, Sealed};
use crate::cloned::request;
use crate::deadline::Deadline;
use crate::message::frame;
use crate::server::services::Services;
use crate::status::deadline_exceeded;

/// Answers what the queue gives, each request in a task of its own, until the queue has stopped. It gives no more at
/// one time than it has workers.
pub(super) async fn all<S: Services>(catalogue: Catalogue, services: S, mut works: Works, late: Late) {
    let mut tasks = JoinSet::new();
    let mut begun: HashMap<WorkId, Begun> = HashMap::new();
    while let Some(order) = works.next().await {
        while tasks.try_join_next().is_some() {}
        let work = match order {
            Order::Begin(work) => work,
            Order::GivenUp(work) => {
                late.look(work);
                continue;
            }
            Order::Unwanted(id) => {
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
            Pending { id, replies: works.replies(), reply: None, method: None, unwanted: Arc::clone(&unwanted) };
        let (catalogue, services, late) = (catalogue.clone(), services.clone(), late.clone());
        let task = tasks.spawn(async move {
            // Owned by the task, so that a handler that panics is answered for, too.
            let mut pending = pending;
            pending.reply = Some(match prepared(&catalogue, work, &late) {
                Ok(prepared) => {
                    pending.method = Some(prepared.method);
                    answer(services, prepared).await
                }
                Err(status) => reply::of_status(status),
            });
        });
        begun.insert(id, Begun { task, unwanted });
    }
    while tasks.join_next().await.is_some() {}
}

/// Works that have ended, beyond two for each that has not, before they are swept out.
const ENDED_MAX: usize = 64;

/// A handler at work.
struct Begun {
    task: AbortHandle,
    unwanted: Arc<AtomicBool>,
}

impl Begun {
    /// Drops the handler, as gRPC does when a caller is gone.
    fn stop(self) {
        self.unwanted.store(true, Ordering::Relaxed);
        self.task.abort();
    }
}

/// A request that is worked on; dropped, it is answered.
struct Pending {
    id: WorkId,
    replies: Replies,
    /// None: its handler did not get to the end.
    reply: Option<Sealed>,
    /// Whose call it is, once that is known.
    method: Option<&'static Cloned>,
    /// Whether nobody wants a reply any more.
    unwanted: Arc<AtomicBool>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.unwanted.load(Ordering::Relaxed) {
            return self.replies.drop_work(self.id);
        }
        let ended = || reply::of_status(Status::internal("the handler ended without a reply"));
        let Sealed { bytes, code } = self.reply.take().unwrap_or_else(ended);
        match blame(self.method, code) {
            Some(blame) => self.replies.fail(self.id, bytes, reply::too_long(), blame),
            None => self.replies.finish(self.id, bytes, reply::too_long()),
        }
    }
}

/// What an answer with this code says of the server; `None`: it ends the call. A hedging policy says what does (gRPC
/// A6); without one, success alone.
fn blame(method: Option<&Cloned>, code: Code) -> Option<Blame> {
    let policy = method.and_then(|method| method.hedging);
    if policy.map_or(code == Code::Ok, |policy| !policy.goes_on(code as u8)) {
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
        | Code::Aborted => Blame::Server,
        _ if policy.is_some() => Blame::Policy,
        _ => Blame::Request,
    })
}

/// The sealed reply to a request.
async fn answer<S: Services>(services: S, Prepared { request, left, .. }: Prepared) -> Sealed {
    let replied = async {
        match services.oneshot(request).await {
            Ok(response) => reply::of_response(response, REPLY_MAX).await,
            Err(_) => reply::of_status(Status::unavailable("the service takes no calls")),
        }
    };
    match left {
        None => replied.await,
        Some(left) => match tokio::time::timeout(left, replied).await {
            Ok(reply) => reply,
            Err(_) => reply::of_status(deadline_exceeded()),
        },
    }
}

/// The call of a handler.
struct Prepared {
    method: &'static Cloned,
    request: http::Request<Body>,
    /// How long it may take.
    left: Option<Duration>,
}

fn prepared(catalogue: &Catalogue, work: Work, late: &Late) -> Result<Prepared, Status> {
    let Work { request, waited, .. } = work;
    let (left, envelope) = request::open(request).map_err(|error| Status::invalid_argument(error.to_string()))?;
    let Some(method) = catalogue.cloned(&envelope.path) else {
        return Err(Status::unimplemented(format!("{} is not to be cloned at this server", envelope.path)));
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
    Deadline::after(left).put(request.headers_mut());
    Ok(Prepared { method, request, left })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::HeaderMap;
    use pathcall_proto::manifest::{Balance, Manifest};
    use tokio::time::Instant;

    use super::*;

    static ASKED: Manifest = Manifest {
        methods: &[],
        delegated: &[],
        cloned: &[Cloned {
            path: "/a/Ask",
            clone: true,
            balance: Balance::Random,
            budget: 1.0,
            hedging: None,
            cancel: false,
            workers: 1,
        }],
        placed: &[],
        descriptor: &[],
    };

    /// A request whose caller gave it so long, and that has waited so long.
    fn asked(left: Option<Duration>, waited: Duration) -> Result<Prepared, Status> {
        let mut catalogue = Catalogue::default();
        catalogue.push(&ASKED);
        let request = request::seal("/a/Ask", &HeaderMap::new(), left, b"what").expect("a request");
        prepared(&catalogue, Work { id: WorkId(1), caller: 10, waited, request }, &Late::new(1))
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[tokio::test(start_paused = true)]
    async fn wait_in_the_queue_is_taken_from_the_time_left() {
        let Prepared { request, left, .. } = asked(Some(ms(500)), ms(200)).expect("in time");
        assert_eq!(left, Some(ms(300)));
        assert_eq!(Deadline::of(request.headers()).left(), Some(ms(300)), "and so the handler's server hears it");
        // Its time was over before anybody began.
        for waited in [501, 90_000] {
            let status = asked(Some(ms(500)), ms(waited)).err().expect("late");
            assert_eq!(status.code(), tonic::Code::DeadlineExceeded);
        }
        let Prepared { request, left, .. } = asked(None, ms(90_000)).expect("no limit");
        assert_eq!((left, Deadline::of(request.headers()).left()), (None, None));
    }

    #[tokio::test(start_paused = true)]
    async fn handler_has_what_the_queue_has_left_of_its_time() {
        let never = tower::service_fn(|_: http::Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, Infallible>>()
        });
        let began = Instant::now();
        let sealed = answer(never, asked(Some(ms(500)), ms(200)).expect("in time")).await;
        assert_eq!((sealed.code, began.elapsed()), (tonic::Code::DeadlineExceeded, ms(300)));
    }
}
