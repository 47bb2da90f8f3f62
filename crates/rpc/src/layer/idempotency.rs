//! Calls with ids: the server applies them in one step and remembers their ids. They do not use the element.

use std::collections::BTreeSet;

use pathcall_driver::server::IdempotentApply;
use pathcall_endpoint::map::server::idempotency::{
    ApplyOutcome, Attempt, CALL_ID_BYTES_MAX, CALL_IDS_MAX, STRAGGLERS_MAX,
};
use pathcall_endpoint::map::{Key, Modify};
use pathcall_proto::v1::{ApplyReply, ApplyRequest, OpenBookReply, Pair};
use pathcall_wire::OpType;
use tonic::Status;

use super::owned_application::OwnedApplication;
use crate::status;

pub(super) async fn open(owned: &OwnedApplication) -> Result<OpenBookReply, Status> {
    // Random: a caller that knows the number may write to the log.
    let book = rand::random_range(1..=u64::MAX);
    owned.ensure_active().handle.open_journal(book).await.map_err(|error| status::of_join(&error))?;
    Ok(OpenBookReply { book, server_incarnation: owned.incarnation })
}

pub(super) async fn apply(owned: &OwnedApplication, request: ApplyRequest) -> Result<ApplyReply, Status> {
    let call = call(request)?;
    if owned.application.threshold > 0 {
        return Err(Status::invalid_argument("calls of sums over all callers cannot have ids"));
    }
    let entered = owned.ensure_active().handle.apply(call).await.map_err(|error| status::of_join(&error))?;
    Ok(ApplyReply { before: entered == ApplyOutcome::AlreadyApplied, server_incarnation: owned.incarnation })
}

/// Validates a request.
fn call(request: ApplyRequest) -> Result<IdempotentApply, Status> {
    let ApplyRequest { book, id, completed, pairs, op, para, number, under_way_from, stragglers, .. } = request;
    let invalid = |what: &str| Status::invalid_argument(format!("invalid call with an id: {what}"));
    if id.len() > CALL_ID_BYTES_MAX || completed.len() > CALL_IDS_MAX || stragglers.len() > STRAGGLERS_MAX {
        return Err(invalid("its id is too long, or it lists too many other ids"));
    }
    let op = u8::try_from(op).ok().and_then(|op| OpType::parse(op).ok()).ok_or_else(|| invalid("unknown operator"))?;
    let read = |Pair { key, value }| Some((Key::from_bytes(&key)?, value));
    let pairs: Vec<(Key, i64)> = pairs.into_iter().map(read).collect::<Option<_>>().ok_or_else(|| invalid("no key"))?;
    let keys: BTreeSet<&Key> = pairs.iter().map(|(key, _)| key).collect();
    if keys.len() < pairs.len() {
        return Err(invalid("it has a key twice"));
    }
    let nth = Attempt { number, under_way_from, stragglers };
    Ok(IdempotentApply { journal: book, attempt: nth, id, completed, pairs, modify: Modify { op, para } })
}
