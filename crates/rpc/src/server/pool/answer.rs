//! Requests from the queue, answered by the services of the layer.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderValue, Method, Uri, Version};
use http_body_util::Full;
use pathcall_endpoint::clone::{Work, WorkId};
use pathcall_endpoint::driver::clone::{Order, Replies, Works};
use tokio::task::{AbortHandle, JoinSet};
use tonic::Status;
use tonic::body::Body;
use tower::{Service, ServiceExt};

use super::REPLY_MAX;
use crate::application::Catalogue;
use crate::cloned::{reply, request};
use crate::deadline::Deadline;
use crate::message::frame;
use crate::status::deadline_exceeded;

/// Answers what the queue gives, each request in a task of its own, until the queue has stopped. It gives no more at
/// one time than it has workers.
pub(super) async fn all<S, B>(catalogue: Catalogue, services: S, mut works: Works)
where
    S: Service<http::Request<Body>, Response = http::Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut tasks = JoinSet::new();
    let mut begun: HashMap<WorkId, Begun> = HashMap::new();
    while let Some(order) = works.next().await {
        while tasks.try_join_next().is_some() {}
        let work = match order {
            Order::Begin(work) => work,
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
        let pending = Pending { id, replies: works.replies(), reply: None, unwanted: Arc::clone(&unwanted) };
        let (catalogue, services) = (catalogue.clone(), services.clone());
        let task = tasks.spawn(async move {
            // Owned by the task, so that a handler that panics is answered for, too.
            let mut pending = pending;
            pending.reply = Some(answer(&catalogue, services, work).await);
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
    reply: Option<Bytes>,
    /// Whether nobody wants a reply any more.
    unwanted: Arc<AtomicBool>,
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.unwanted.load(Ordering::Relaxed) {
            return self.replies.drop_work(self.id);
        }
        let failed = || reply::of_status(Status::internal("the handler ended without a reply"));
        self.replies.finish(self.id, self.reply.take().unwrap_or_else(failed), reply::too_long());
    }
}

/// The sealed reply to a request.
async fn answer<S, B>(catalogue: &Catalogue, services: S, work: Work) -> Bytes
where
    S: Service<http::Request<Body>, Response = http::Response<B>> + Send,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (request, left) = match prepared(catalogue, work) {
        Ok(prepared) => prepared,
        Err(status) => return reply::of_status(status),
    };
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

/// The call of the handler, and how long it may take.
fn prepared(catalogue: &Catalogue, work: Work) -> Result<(http::Request<Body>, Option<Duration>), Status> {
    let Work { request, waited, .. } = work;
    let (left, envelope) = request::open(request).map_err(|error| Status::invalid_argument(error.to_string()))?;
    let Some(method) = catalogue.cloned(&envelope.path) else {
        return Err(Status::unimplemented(format!("{} is not to be cloned at this server", envelope.path)));
    };
    let left = left.map(|left| left.checked_sub(waited).ok_or_else(deadline_exceeded)).transpose()?;
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
    Ok((request, left))
}
