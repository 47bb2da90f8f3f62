//! Calls with ids: what a caller that may be killed and started again sends past the element.

use std::collections::BTreeSet;

use pathcall_endpoint::driver::server::NamedCall;
use pathcall_endpoint::map::server::books::{Entered, ID_BYTES_MAX, IDS_MAX, STRAGGLERS_MAX, Try};
use pathcall_endpoint::map::{Key, Modify};
use pathcall_proto::v1::{ApplyReply, ApplyRequest, OpenBookReply, Pair};
use pathcall_wire::OpType;
use tonic::Status;

use super::hosted::Hosted;
use crate::status;

pub(super) async fn open(hosted: &Hosted) -> Result<OpenBookReply, Status> {
    // Drawn at random: who knows it may write in the book.
    let book = rand::random_range(1..=u64::MAX);
    hosted.serving().handle.open_book(book).await.map_err(|error| status::of_join(&error))?;
    Ok(OpenBookReply { book, server_incarnation: hosted.incarnation })
}

pub(super) async fn apply(hosted: &Hosted, request: ApplyRequest) -> Result<ApplyReply, Status> {
    let call = call(request)?;
    if hosted.application.threshold > 0 {
        return Err(Status::invalid_argument("a sum takes all its callers: its calls have no ids"));
    }
    let entered = hosted.serving().handle.apply(call).await.map_err(|error| status::of_join(&error))?;
    Ok(ApplyReply { before: entered == Entered::Before, server_incarnation: hosted.incarnation })
}

/// What is asked for, if it makes sense.
fn call(request: ApplyRequest) -> Result<NamedCall, Status> {
    let ApplyRequest { book, id, completed, pairs, op, para, number, under_way_from, stragglers, .. } = request;
    let wrong = |what: &str| Status::invalid_argument(format!("a call with an id: {what}"));
    if id.len() > ID_BYTES_MAX || completed.len() > IDS_MAX || stragglers.len() > STRAGGLERS_MAX {
        return Err(wrong("its id is too long, or names too many others"));
    }
    let op = u8::try_from(op).ok().and_then(|op| OpType::parse(op).ok()).ok_or_else(|| wrong("no such operator"))?;
    let read = |Pair { key, value }| Some((Key::from_bytes(&key)?, value));
    let pairs: Vec<(Key, i64)> = pairs.into_iter().map(read).collect::<Option<_>>().ok_or_else(|| wrong("no key"))?;
    let keys: BTreeSet<&Key> = pairs.iter().map(|(key, _)| key).collect();
    if keys.len() < pairs.len() {
        return Err(wrong("a key stands in it twice"));
    }
    let nth = Try { number, under_way_from, stragglers };
    Ok(NamedCall { book, nth, id, completed, pairs, modify: Modify { op, para } })
}
