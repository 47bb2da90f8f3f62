//! Handlers of `filters.proto`: they return what they get.

use std::pin::Pin;
use std::sync::Arc;

use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use crate::service::{HandlerEvents, TestHandlers};
use crate::stubs::filters::filters_server::Filters;
use crate::stubs::filters::streams_server::Streams;
use crate::stubs::filters::{Ballots, Counted, Decided, Part, Reading, Seen, Words};

/// Replies of a handler.
type Replies<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Answers each message of a stream.
fn each<A, B>(events: &Arc<HandlerEvents>, requests: Streaming<A>, answer: fn(A) -> B) -> Response<Replies<B>>
where
    A: Send + 'static,
    B: Send + 'static,
{
    let events = Arc::clone(events);
    Response::new(Box::pin(requests.then(move |request| {
        let events = Arc::clone(&events);
        async move {
            events.handle("").await;
            Ok(answer(request?))
        }
    })))
}

#[tonic::async_trait]
impl Filters for TestHandlers {
    async fn clamp(&self, request: Request<Reading>) -> Result<Response<Seen>, Status> {
        let request = request.into_inner();
        self.0.handle(&request.text).await;
        Ok(Response::new(seen(request)))
    }

    async fn tally(&self, _: Request<Ballots>) -> Result<Response<Decided>, Status> {
        self.0.handle("").await;
        Ok(Response::new(Decided::default()))
    }
}

fn seen(Reading { values, text }: Reading) -> Seen {
    Seen { values: values.unwrap_or_default().data, text }
}

fn echo(Words { text, .. }: Words) -> Counted {
    Counted { kvs: None, text }
}

#[tonic::async_trait]
impl Streams for TestHandlers {
    type EachStream = Replies<Counted>;
    type LookStream = Replies<Counted>;
    type SumStream = Replies<Part>;
    type VoteStream = Replies<Decided>;
    type ClampEachStream = Replies<Seen>;

    /// Joins the texts; fails at the text `fail`.
    async fn collect(&self, request: Request<Streaming<Words>>) -> Result<Response<Counted>, Status> {
        let (mut requests, mut texts) = (request.into_inner(), Vec::new());
        while let Some(request) = requests.next().await {
            let text = request?.text;
            self.0.handle(&text).await;
            if text == "fail" {
                return Err(Status::data_loss("as asked"));
            }
            texts.push(text);
        }
        Ok(Response::new(Counted { kvs: None, text: texts.join(" ") }))
    }

    async fn each(&self, request: Request<Streaming<Words>>) -> Result<Response<Self::EachStream>, Status> {
        Ok(each(&self.0, request.into_inner(), echo))
    }

    async fn load(&self, request: Request<Streaming<Words>>) -> Result<Response<Counted>, Status> {
        self.collect(request).await
    }

    async fn look(&self, request: Request<Streaming<Words>>) -> Result<Response<Self::LookStream>, Status> {
        Ok(each(&self.0, request.into_inner(), echo))
    }

    async fn sum(&self, request: Request<Streaming<Part>>) -> Result<Response<Self::SumStream>, Status> {
        Ok(each(&self.0, request.into_inner(), |part| part))
    }

    async fn vote(&self, request: Request<Streaming<Ballots>>) -> Result<Response<Self::VoteStream>, Status> {
        Ok(each(&self.0, request.into_inner(), |_| Decided::default()))
    }

    async fn clamp_each(
        &self,
        request: Request<Streaming<Reading>>,
    ) -> Result<Response<Self::ClampEachStream>, Status> {
        Ok(each(&self.0, request.into_inner(), seen))
    }
}
