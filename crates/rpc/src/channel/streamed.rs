//! Streamed calls of methods with a filter. Queries, modifications and direct additions are one gRPC stream, which the
//! server's layer executes; of all others, the channel makes the map operation of each message.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use pathcall_proto::manifest::{Kind, MapPath, Method};
use tonic::Status;
use tonic::body::Body;

use super::Inner;
use super::call::mark;
use super::session::{ChannelApplication, SumCancelGuard};
use crate::deadline::Deadline;
use crate::message::typed::TypedValues;
use crate::request::{MapAnswer, MapWork, Request};
use crate::streams::{self, Begun, StreamFuture, StreamedMethod};
use crate::{headers, key_numbers};

/// Streamed call of a channel.
struct ChannelStream {
    channel: Arc<Inner>,
    method: &'static Method,
    application: Arc<ChannelApplication>,
    /// Metadata of the call.
    headers: HeaderMap,
    deadline: Deadline,
}

impl Inner {
    /// Makes a streamed call of a method with a filter.
    pub(super) async fn streamed(
        self: Arc<Self>,
        method: &'static Method,
        mut request: http::Request<Body>,
        deadline: Deadline,
    ) -> Result<http::Response<Body>, Status> {
        self.counters.filtered.add();
        let Some(application) = self.applications.get(method.app).map(Arc::clone) else {
            let what = format!("{}: the manifest of generated code lacks {}", method.path, method.app);
            return Err(Status::internal(what));
        };
        if request.headers().contains_key(headers::CALL_ID) {
            let what = format!("{}: a stream has no call id, because it has many calls", method.path);
            return Err(Status::invalid_argument(what));
        }
        let pinned = application.options.path.unwrap_or(method.map_path);
        let is_direct = match method.kind {
            Kind::Query | Kind::Modify => true,
            Kind::Add { .. } => pinned == MapPath::Direct,
            _ => false,
        };
        if is_direct {
            self.counters.direct.add();
            let session = application.session(method, request.headers(), &self.transport).await?;
            session.continued().await;
            application.check_continuity(method, &session)?;
            mark(request.headers_mut(), headers::DIRECT, &session, deadline);
            application.mark_server_state(method, &session);
            return self.transport.call(request).await;
        }
        let headers = request.headers().clone();
        let call = ChannelStream { channel: self, method, application, headers, deadline };
        streams::call(method, request, Arc::new(call)).await
    }
}

impl StreamedMethod for ChannelStream {
    fn operate(self: Arc<Self>, request: Request, _: usize, begun: Begun) -> StreamFuture<(MapAnswer, Option<Bytes>)> {
        Box::pin(async move {
            let answer = self.map_answer(request.typed, begun).await?;
            Ok((answer, request.handler))
        })
    }

    fn call_handler(self: Arc<Self>, mut request: http::Request<Body>) -> StreamFuture<http::Response<Body>> {
        Box::pin(async move {
            let Self { channel, method, application, headers, deadline } = &*self;
            channel.counters.handler.add();
            let session = application.session(method, headers, &channel.transport).await?;
            mark(request.headers_mut(), headers::CALL, &session, *deadline);
            channel.transport.call(request).await
        })
    }
}

impl ChannelStream {
    /// Makes the map operation of one message.
    async fn map_answer(&self, typed: Option<TypedValues>, begun: Begun) -> Result<MapAnswer, Status> {
        let Self { channel, method, application, headers, .. } = self;
        if let (Some(TypedValues::Pairs(pairs)), Some(field)) = (&typed, &method.request) {
            key_numbers::check(field.name, pairs)?;
        }
        let session = application.admitted(method, headers, &channel.transport).await?;
        application.check_continuity(method, &session)?;
        let mut work = match typed {
            Some(TypedValues::Floats(values)) => {
                return Ok(MapAnswer::of(channel.sum_gradient(method, &session, headers, values).await?));
            }
            Some(typed) => MapWork::new(method, typed),
            None => {
                let keys = channel.all_keys(method, &session, headers, self.deadline).await?;
                MapWork::new(method, TypedValues::Pairs(keys))
            }
        };
        let Some(mut operation) = work.operation.take() else { return Ok(work.answer(method, None)) };
        application.shorten(method, &session, &channel.transport, &mut operation).await?;
        let guard = SumCancelGuard::new(channel, method, &session);
        let output = session.call(method, operation, |_| drop(begun)).await;
        guard.disarm();
        let output = output?;
        application.mark_server_state(method, &session);
        Ok(work.answer(method, Some(output)))
    }
}
