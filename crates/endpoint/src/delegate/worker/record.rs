//! Records of exactly-once requests, which the application stores (DPC §3.5.3).
//!
//! ```text
//! finish() ─▶ RequestRecord ─▶ durable together with the effect ─▶ release() ─▶ all messages leave
//! after a restart: restore(record); when the request arrives again, the same messages leave again
//! ```
//!
//! No message leaves before the record is durable: a server that crashes before has done nothing, a server that crashes
//! after repeats its messages. So the caller repeats a failed call, under the same id, until it is complete.

use std::net::SocketAddr;

use bytes::{Buf, Bytes};
use pathcall_wire::Instant;
use pathcall_wire::delegate::{ContextId, DelegateMessage, DelegateRequest, DelegateResponse, RequestId, parse};

use super::super::MessageOutbox;
use super::DelegateWorker;
use super::execution::{Execution, Phase, ResultForm};

/// Message that was sent, or will be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordedMessage {
    to: SocketAddr,
    head: Bytes,
    payload: Bytes,
}

/// Record of a request: all its messages, to send them again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord {
    /// Call of the request.
    pub call: ContextId,
    /// Id of the request within the call.
    pub request: RequestId,
    context: ContextId,
    reply: SocketAddr,
    form: ResultForm,
    responses: u32,
    sent_to: Vec<SocketAddr>,
    recorded: Vec<RecordedMessage>,
}

/// Error of decoding a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes are not a record of a delegated request")]
pub struct InvalidRecord {
    /// Number of bytes.
    pub len: usize,
}

/// Version of the encoding.
const VERSION: u8 = 1;

impl RequestRecord {
    /// Encodes the record for storage.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend(self.call.to_be_bytes());
        out.extend(self.request.to_be_bytes());
        out.extend(self.context.to_be_bytes());
        put_text(&mut out, self.reply);
        out.push(self.form as u8);
        out.extend(self.responses.to_be_bytes());
        out.extend((self.sent_to.len() as u32).to_be_bytes());
        self.sent_to.iter().for_each(|to| put_text(&mut out, *to));
        out.extend((self.recorded.len() as u32).to_be_bytes());
        for RecordedMessage { to, head, payload } in &self.recorded {
            put_text(&mut out, *to);
            for part in [head, payload] {
                out.extend((part.len() as u32).to_be_bytes());
                out.extend(&part[..]);
            }
        }
        out
    }

    /// Decodes a stored record.
    ///
    /// # Errors
    /// [`InvalidRecord`].
    pub fn from_bytes(bytes: Bytes) -> Result<Self, InvalidRecord> {
        let len = bytes.len();
        read(bytes).ok_or(InvalidRecord { len })
    }
}

fn put_text(out: &mut Vec<u8>, address: SocketAddr) {
    let text = address.to_string();
    out.push(text.len() as u8);
    out.extend(text.as_bytes());
}

fn read(mut bytes: Bytes) -> Option<RequestRecord> {
    if take(&mut bytes, 1)?[0] != VERSION {
        return None;
    }
    let call = ContextId::from_be_bytes(*take(&mut bytes, 10)?.first_chunk()?);
    let request = RequestId::from_be_bytes(*take(&mut bytes, 14)?.first_chunk()?);
    let context = ContextId::from_be_bytes(*take(&mut bytes, 10)?.first_chunk()?);
    let reply = address(&mut bytes)?;
    let form = [ResultForm::Manifest, ResultForm::Sole, ResultForm::Chained]
        .into_iter()
        .nth(take(&mut bytes, 1)?[0].into())?;
    let (responses, mut sent_to, mut recorded) = (number(&mut bytes)?, Vec::new(), Vec::new());
    for _ in 0..number(&mut bytes)? {
        sent_to.push(address(&mut bytes)?);
    }
    for _ in 0..number(&mut bytes)? {
        let to = address(&mut bytes)?;
        let mut part = || number(&mut bytes).and_then(|len| take(&mut bytes, len as usize));
        let (head, payload) = (part()?, part()?);
        recorded.push(RecordedMessage { to, head, payload });
    }
    bytes.is_empty().then_some(RequestRecord { call, request, context, reply, form, responses, sent_to, recorded })
}

fn take(bytes: &mut Bytes, len: usize) -> Option<Bytes> {
    (bytes.remaining() >= len).then(|| bytes.split_to(len))
}

fn number(bytes: &mut Bytes) -> Option<u32> {
    Some(u32::from_be_bytes(*take(bytes, 4)?.first_chunk()?))
}

fn address(bytes: &mut Bytes) -> Option<SocketAddr> {
    let len = take(bytes, 1)?[0];
    std::str::from_utf8(&take(bytes, len.into())?).ok()?.parse().ok()
}

/// Collects the messages instead of sending them.
impl MessageOutbox for Vec<RecordedMessage> {
    fn send(&mut self, to: SocketAddr, head: &[u8], payload: &Bytes) {
        self.push(RecordedMessage { to, head: Bytes::copy_from_slice(head), payload: payload.clone() });
    }
}

impl DelegateWorker {
    /// Produces all messages of a finished request, and holds them.
    pub(super) fn prepare(&mut self, now: Instant, id: ContextId) -> Option<RequestRecord> {
        let execution = self.executions.get_mut(&id)?;
        // The caller's grants limit messages in flight; here all messages are in memory anyway.
        execution.granted = u32::MAX;
        let mut recorded = Vec::new();
        self.stats.nulls += u64::from(execution.pump(now, &self.config, &mut self.timers, &mut recorded));
        execution.recorded = recorded.clone();
        let &mut Execution { call, request, context, reply, form, responses, .. } = &mut **execution;
        let sent_to = execution.sent_to.clone();
        execution.enter_phase(now, Phase::Prepared, &mut self.timers);
        Some(RequestRecord { call, request, context, reply, form, responses, sent_to, recorded })
    }

    /// Sends all messages of a recorded request, for the first time or again.
    pub(super) fn send_recorded(&self, call: ContextId, request: RequestId, out: &mut dyn MessageOutbox) {
        let recorded = self.by_request.get(&(call, request)).and_then(|id| self.executions.get(id));
        for RecordedMessage { to, head, payload } in recorded.iter().flat_map(|execution| &execution.recorded) {
            // The ids stay the same; the sender is this process.
            match parse(head) {
                Ok((DelegateMessage::Request(message), _)) => {
                    out.send(*to, &DelegateRequest { sender: self.config.node, ..message }.encode(), payload);
                }
                Ok((DelegateMessage::Response(message), _)) => {
                    let again = recorded.is_some_and(|execution| execution.context.node() != self.config.node);
                    let again = again.then_some(self.config.node);
                    out.send(*to, &DelegateResponse { again, ..message }.encode(), payload);
                }
                _ => {}
            }
        }
    }

    pub(super) fn restore_record(&mut self, now: Instant, record: RequestRecord) {
        let RequestRecord { call, request, context, reply, form, responses, sent_to, recorded } = record;
        if self.by_request.contains_key(&(call, request)) || self.executions.contains_key(&context) {
            return;
        }
        let execution = Execution {
            form,
            responses,
            sent_to,
            recorded,
            phase: Phase::Recorded,
            expires: Instant(u64::MAX),
            ..Execution::idle(now, context, call, request, reply)
        };
        self.by_request.insert((call, request), context);
        self.executions.insert(context, Box::new(execution));
    }
}
