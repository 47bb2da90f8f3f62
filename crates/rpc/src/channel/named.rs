//! Calls with ids: done whole and once, also by a process that was killed and started again.
//!
//! ```text
//! id ─► journal ─┬─ done: answered at once
//!                ├─ new ─────── begun, in the current book ─┬─► Apply ─► done
//!                └─ begun before, in some book ─────────────┘
//! ```
//!
//! They go past the element, by gRPC: the server does them in one step and remembers their ids.

use pathcall_endpoint::map::server::books::ID_BYTES_MAX;
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

/// Whether a call is done now, or was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    Now,
    Before,
}

/// The id of a call, if it has one.
pub(super) fn id_of(headers: &http::HeaderMap) -> Option<Vec<u8>> {
    headers.get(headers::CALL_ID).map(|id| id.as_bytes().to_vec())
}

/// A call with an id.
pub(super) struct Named<'a> {
    method: &'a Method,
    id: &'a [u8],
    journal: &'a Journal,
    slot: &'a Slot,
    transport: &'a Transport,
}

impl Inner {
    /// Does a call with an id, unless it is done already.
    pub(super) async fn named(
        &self,
        method: &Method,
        slot: &Slot,
        id: &[u8],
        operation: Option<Operation>,
    ) -> Result<Done, Status> {
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
        Named { method, id, journal, slot, transport: &self.transport }.run(operation).await
    }
}

impl Named<'_> {
    async fn run(&self, operation: Option<Operation>) -> Result<Done, Status> {
        let app = self.method.app;
        let begun = match self.journal.take(app, self.id) {
            Stands::Done => return Ok(Done::Before),
            Stands::UnderWay => {
                let id = String::from_utf8_lossy(self.id);
                return Err(Status::aborted(format!(
                    "{}: another call with the id {id:?} is under way",
                    self.method.path
                )));
            }
            Stands::New => None,
            Stands::Begun(book) => Some(book),
        };
        let _under_way = UnderWay(self);
        if let Some(Operation::Add { pairs, modify, .. }) = operation {
            let pairs = pairs.into_iter().map(|(key, value)| Pair { key: key.as_bytes().to_vec(), value }).collect();
            self.send(begun, pairs, modify).await?;
        }
        self.journal.done(app, self.id).map_err(|error| self.unwritten(&error))?;
        Ok(Done::Now)
    }

    /// Sends it, in the book that it was begun in, or else in the current one.
    async fn send(&self, begun: Option<u64>, pairs: Vec<Pair>, modify: Modify) -> Result<(), Status> {
        let app = self.method.app;
        let mut request = ApplyRequest {
            application: app.into(),
            filter_digest: self.method.digest,
            book: begun.unwrap_or_default(),
            id: self.id.to_vec(),
            completed: Vec::new(),
            pairs,
            op: modify.op as u32,
            para: modify.para,
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
        if self.journal.book(self.method.app).is_some_and(|book| book.number == request.book) {
            request.completed = self.journal.untold(self.method.app);
        }
        let ApplyReply { server_incarnation, .. } =
            self.client().apply(request).await.map_err(|e| self.failed(&e))?.into_inner();
        self.slot.invest_in(server_incarnation);
        Ok(())
    }

    async fn open(&self) -> Result<u64, Status> {
        let request = OpenBookRequest { application: self.method.app.into(), filter_digest: self.method.digest };
        let opened = self.client().open_book(request).await.map_err(|error| self.failed(&error))?;
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

/// A call is under way as long as this lives, however it ends.
struct UnderWay<'a>(&'a Named<'a>);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.journal.give_back(self.0.method.app, self.0.id);
    }
}
