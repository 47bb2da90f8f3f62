//! Calls with ids: done whole and once, also by a process that was killed and started again.
//!
//! ```text
//! id ─► journal ─┬─ done: answered at once
//!                ├─ new ─────── begun, in the current book ─┬─► Apply ─► applied ─┬─► its handler, if any ─► done
//!                ├─ begun before, in some book ─────────────┘                     │
//!                └─ applied before ───────────────────────────────────────────────┘
//! ```
//!
//! They go past the element, by gRPC: the server does them in one step and remembers their ids.

use std::sync::Arc;

use http::HeaderMap;
use pathcall_endpoint::map::server::books::{ID_BYTES_MAX, Try};
use pathcall_endpoint::map::{Modify, Operation};
use pathcall_proto::manifest::{Kind, Method};
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{ApplyReply, ApplyRequest, OpenBookReply, OpenBookRequest, Pair};
use tonic::{Code, Status};

use super::Inner;
use super::journal::{Book, Journal, JournalError, Stands};
use super::session::Slot;
use super::transport::Transport;
use crate::headers;

/// The id of a call, if it has one.
pub(super) fn id_of(headers: &http::HeaderMap) -> Option<Vec<u8>> {
    headers.get(headers::CALL_ID).map(|id| id.as_bytes().to_vec())
}

/// A call with an id that is not done; nobody else does it as long as this lives.
pub(super) struct Named<'a> {
    method: &'a Method,
    id: &'a [u8],
    stands: Stands,
    journal: &'a Journal,
    slot: &'a Arc<Slot>,
    transport: &'a Transport,
    /// Of the call.
    headers: &'a HeaderMap,
}

impl Inner {
    /// Begins a call with an id; none if it is done already.
    pub(super) fn named<'a>(
        &'a self,
        method: &'a Method,
        slot: &'a Arc<Slot>,
        id: &'a [u8],
        headers: &'a HeaderMap,
    ) -> Result<Option<Named<'a>>, Status> {
        let path = method.path;
        let Some(journal) = &self.journal else {
            return Err(Status::failed_precondition(format!(
                "{path}: a call with an id needs a channel with a journal: Channel::builder(..).journal(path)"
            )));
        };
        if !matches!(method.kind, Kind::Add { get: false, .. }) {
            return Err(Status::invalid_argument(format!(
                "{path}: only calls that add under keys, and get nothing, may have an id"
            )));
        }
        if id.is_empty() || id.len() > ID_BYTES_MAX {
            let len = id.len();
            return Err(Status::invalid_argument(format!("{path}: an id of 1 to {ID_BYTES_MAX} bytes, not {len}")));
        }
        match journal.take(method.app, id) {
            Stands::Done => Ok(None),
            Stands::UnderWay => {
                let id = String::from_utf8_lossy(id);
                Err(Status::aborted(format!("{path}: another call with the id {id:?} is under way")))
            }
            stands => Ok(Some(Named { method, id, stands, journal, slot, transport: &self.transport, headers })),
        }
    }
}

impl Named<'_> {
    /// Has it take effect, unless it has. It is done then, if no handler is to see it.
    pub(super) async fn take_effect(&self, operation: Option<Operation>, handler: bool) -> Result<(), Status> {
        if self.stands != Stands::Applied {
            if let Some(Operation::Add { pairs, modify, .. }) = operation {
                let pairs = pairs.into_iter().map(|(key, value)| Pair { key: key.as_bytes().to_vec(), value });
                self.send(pairs.collect(), modify).await?;
            }
            if handler {
                return self.journal.applied(self.method.app, self.id).map_err(|error| self.unwritten(&error));
            }
        }
        if handler { Ok(()) } else { self.done() }
    }

    /// Notes that it is done.
    pub(super) fn done(&self) -> Result<(), Status> {
        self.journal.done(self.method.app, self.id).map_err(|error| self.unwritten(&error))
    }

    /// Sends it, in the book that it was begun in, or else in the current one.
    async fn send(&self, pairs: Vec<Pair>, modify: Modify) -> Result<(), Status> {
        let app = self.method.app;
        let begun = match self.stands {
            Stands::Begun(book) => Some(book),
            _ => None,
        };
        let mut request = ApplyRequest {
            application: app.into(),
            filter_digest: self.method.digest,
            book: begun.unwrap_or_default(),
            id: self.id.to_vec(),
            pairs,
            op: modify.op as u32,
            para: modify.para,
            method: self.method.path.into(),
            ..ApplyRequest::default()
        };
        if begun.is_some() {
            return self.apply(request).await;
        }
        let current = self.journal.book(app);
        let book = match current {
            Some(book) => book.number,
            None => self.open().await?,
        };
        request.book = book;
        self.journal.begin(app, self.id, book).map_err(|error| self.unwritten(&error))?;
        match self.apply(request.clone()).await {
            // It was new, so it can't have taken effect: a new book will do.
            Err(status) if status.code() == Code::DataLoss => {
                request.book = self.open().await?;
                self.journal.begin(app, self.id, request.book).map_err(|error| self.unwritten(&error))?;
                self.apply(request).await
            }
            outcome => outcome,
        }
    }

    async fn apply(&self, mut request: ApplyRequest) -> Result<(), Status> {
        let mut sending = self.journal.send(self.method.app, request.book);
        let Try { number, under_way_from, ref stragglers } = sending.nth;
        (request.number, request.under_way_from) = (number, under_way_from);
        request.stragglers.clone_from(stragglers);
        request.completed.clone_from(&sending.telling);
        let ApplyReply { server_incarnation, .. } =
            self.client().apply(headers::with(self.headers, request)).await.map_err(|e| self.failed(&e))?.into_inner();
        sending.telling.clear();
        self.slot.invest_in(server_incarnation);
        Ok(())
    }

    async fn open(&self) -> Result<u64, Status> {
        let request = OpenBookRequest {
            application: self.method.app.into(),
            filter_digest: self.method.digest,
            method: self.method.path.into(),
        };
        let opened =
            self.client().open_book(headers::with(self.headers, request)).await.map_err(|error| self.failed(&error))?;
        let OpenBookReply { book, server_incarnation } = opened.into_inner();
        let noted = self.journal.opened(self.method.app, Book { number: book, server: server_incarnation });
        noted.map_err(|error| self.unwritten(&error))?;
        Ok(book)
    }

    fn client(&self) -> PeerClient<tonic::transport::Channel> {
        PeerClient::new(self.transport.channel())
    }

    fn failed(&self, error: &Status) -> Status {
        Status::new(error.code(), format!("{} ({}): {}", self.method.path, self.method.app, error.message()))
    }

    fn unwritten(&self, error: &JournalError) -> Status {
        Status::unavailable(format!("{}: {error}", self.method.path))
    }
}

/// However it ends.
impl Drop for Named<'_> {
    fn drop(&mut self) {
        self.journal.give_back(self.method.app, self.id);
    }
}
