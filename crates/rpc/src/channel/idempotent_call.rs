//! Calls with ids: each takes effect once, even if its process is killed and restarted.
//!
//! ```text
//! id ─► journal ─┬─ done: answered at once
//!                ├─ new ─────── recorded, in the current log ─┬─► ApplyCall ─► applied ─┬─► its handler, if any ─► done
//!                ├─ begun before, in some log ────────────────┘                         │
//!                └─ applied before ──────────────────────────────────────────────────────┘
//! ```
//!
//! They go by gRPC and do not use the element: the server executes each in one step and remembers its id.

use std::sync::Arc;

use http::HeaderMap;
use pathcall_endpoint::map::server::idempotency::{CALL_ID_BYTES_MAX, CallAttempt};
use pathcall_endpoint::map::{Modify, Operation};
use pathcall_proto::manifest::{Kind, Method};
use pathcall_proto::v1::peer_client::PeerClient;
use pathcall_proto::v1::{ApplyCallReply, ApplyCallRequest, OpenJournalReply, OpenJournalRequest, Pair};
use tonic::{Code, Status};

use super::Inner;
use super::journal::{CallStatus, IdLog, Journal, JournalError};
use super::session::ChannelApplication;
use super::transport::Transport;
use crate::headers;

/// Id of a call, if it has one.
pub(super) fn id_of(headers: &http::HeaderMap) -> Option<Vec<u8>> {
    headers.get(headers::CALL_ID).map(|id| id.as_bytes().to_vec())
}

/// Call with an id that is not done. Until it is dropped, no other call may use the id.
pub(super) struct IdempotentCall<'a> {
    method: &'a Method,
    id: &'a [u8],
    status: CallStatus,
    journal: &'a Journal,
    application: &'a Arc<ChannelApplication>,
    transport: &'a Transport,
    /// Metadata of the call.
    headers: &'a HeaderMap,
}

impl Inner {
    /// Begins a call with an id; `None` if it is already done.
    pub(super) fn begin_with_id<'a>(
        &'a self,
        method: &'a Method,
        application: &'a Arc<ChannelApplication>,
        id: &'a [u8],
        headers: &'a HeaderMap,
    ) -> Result<Option<IdempotentCall<'a>>, Status> {
        let path = method.path;
        let Some(journal) = &self.journal else {
            return Err(Status::failed_precondition(format!(
                "{path}: a call with an id needs a channel with a journal: set one with \
                 Channel::builder(..).journal(path)"
            )));
        };
        if !matches!(method.kind, Kind::Add { get: false, .. }) {
            return Err(Status::invalid_argument(format!(
                "{path}: only calls that add to keys and read nothing may have an id"
            )));
        }
        if id.is_empty() || id.len() > CALL_ID_BYTES_MAX {
            let len = id.len();
            return Err(Status::invalid_argument(format!(
                "{path}: invalid call id of {len} bytes (1 to {CALL_ID_BYTES_MAX})"
            )));
        }
        match journal.claim(method.app, id) {
            CallStatus::Done => Ok(None),
            CallStatus::InProgress => {
                let id = String::from_utf8_lossy(id);
                Err(Status::aborted(format!("{path}: another call with the id {id:?} is in progress")))
            }
            status => Ok(Some(IdempotentCall {
                method,
                id,
                status,
                journal,
                application,
                transport: &self.transport,
                headers,
            })),
        }
    }
}

impl IdempotentCall<'_> {
    /// Applies the call, unless it has been applied. The call is then done if it has no handler.
    pub(super) async fn apply_once(&self, operation: Option<Operation>, handler: bool) -> Result<(), Status> {
        if self.status != CallStatus::Applied {
            if let Some(Operation::Add { pairs, modify, .. }) = operation {
                let pairs = pairs.into_iter().map(|(key, value)| Pair { key: key.as_bytes().to_vec(), value });
                self.send(pairs.collect(), modify).await?;
            }
            if handler {
                return self.journal.applied(self.method.app, self.id).map_err(|error| self.journal_failed(&error));
            }
        }
        if handler { Ok(()) } else { self.done() }
    }

    /// Records that the call is done.
    pub(super) fn done(&self) -> Result<(), Status> {
        self.journal.done(self.method.app, self.id).map_err(|error| self.journal_failed(&error))
    }

    /// Sends the call, with the log in which it was begun, or the current one.
    async fn send(&self, pairs: Vec<Pair>, modify: Modify) -> Result<(), Status> {
        let app = self.method.app;
        let begun = match self.status {
            CallStatus::Begun(log) => Some(log),
            _ => None,
        };
        let mut request = ApplyCallRequest {
            application: app.into(),
            filter_digest: self.method.digest,
            journal: begun.unwrap_or_default(),
            call_id: self.id.to_vec(),
            pairs,
            op: modify.op as u32,
            para: modify.para,
            method: self.method.path.into(),
            ..ApplyCallRequest::default()
        };
        if begun.is_some() {
            return self.apply(request).await;
        }
        let current = self.journal.id_log(app);
        let log = match current {
            Some(log) => log.number,
            None => self.open().await?,
        };
        request.journal = log;
        self.journal.begin(app, self.id, log).map_err(|error| self.journal_failed(&error))?;
        match self.apply(request.clone()).await {
            // The call was new, so it cannot have taken effect in the lost log: open a new log.
            Err(status) if status.code() == Code::DataLoss => {
                request.journal = self.open().await?;
                self.journal.begin(app, self.id, request.journal).map_err(|error| self.journal_failed(&error))?;
                self.apply(request).await
            }
            outcome => outcome,
        }
    }

    async fn apply(&self, mut request: ApplyCallRequest) -> Result<(), Status> {
        let mut sending = self.journal.send(self.method.app, request.journal);
        let CallAttempt { number, pending_from, ref earlier_pending } = sending.attempt;
        (request.attempt, request.pending_from) = (number, pending_from);
        request.earlier_pending_attempts.clone_from(earlier_pending);
        request.completed_ids.clone_from(&sending.forgettable);
        let ApplyCallReply { server_incarnation, .. } = self
            .client()
            .apply_call(headers::request_with(self.headers, request))
            .await
            .map_err(|e| self.failed(&e))?
            .into_inner();
        sending.forgettable.clear();
        self.application.mark_state_at(server_incarnation);
        Ok(())
    }

    async fn open(&self) -> Result<u64, Status> {
        let request = OpenJournalRequest {
            application: self.method.app.into(),
            filter_digest: self.method.digest,
            method: self.method.path.into(),
        };
        let opened = self
            .client()
            .open_journal(headers::request_with(self.headers, request))
            .await
            .map_err(|error| self.failed(&error))?;
        let OpenJournalReply { journal: log, server_incarnation } = opened.into_inner();
        let noted = self.journal.opened(self.method.app, IdLog { number: log, server: server_incarnation });
        noted.map_err(|error| self.journal_failed(&error))?;
        Ok(log)
    }

    fn client(&self) -> PeerClient<tonic::transport::Channel> {
        PeerClient::new(self.transport.channel())
    }

    fn failed(&self, error: &Status) -> Status {
        Status::new(error.code(), format!("{} ({}): {}", self.method.path, self.method.app, error.message()))
    }

    fn journal_failed(&self, error: &JournalError) -> Status {
        Status::unavailable(format!("{}: {error}", self.method.path))
    }
}

impl Drop for IdempotentCall<'_> {
    fn drop(&mut self) {
        self.journal.release_id(self.method.app, self.id);
    }
}
