//! What a request led to, for doing it exactly once with the application's help (DPC §3.5.3).
//!
//! ```text
//! finish() ─▶ Record ─▶ durable together with the effect ─▶ release() ─▶ all messages leave
//! after a restart: restore(record); when the request comes again they leave again, the same ones
//! ```
//!
//! Nothing leaves before it is durable: a server that dies before has done nothing, one that dies after says
//! again what it said. So a call that fails is made again by its caller, under its id, until it is complete.

use std::net::SocketAddr;

use bytes::{Buf, Bytes};
use pathcall_wire::Instant;
use pathcall_wire::delegate::{Context, Message, Request, RequestId, Response, parse};

use super::super::Outbox;
use super::Worker;
use super::execution::{Execution, Form, Phase};

/// A message that was sent, or will be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Packet {
    to: SocketAddr,
    head: Bytes,
    payload: Bytes,
}

/// What a request led to: all that is needed to say it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The call.
    pub call: Context,
    /// Which request of it.
    pub request: RequestId,
    context: Context,
    reply: SocketAddr,
    form: Form,
    responses: u32,
    sent_to: Vec<SocketAddr>,
    packets: Vec<Packet>,
}

/// Bytes that are no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes are not a record of a delegated request")]
pub struct NoRecord {
    /// How many there were.
    pub len: usize,
}

/// Version of a record's bytes.
const VERSION: u8 = 1;

impl Record {
    /// As it is stored.
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
        out.extend((self.packets.len() as u32).to_be_bytes());
        for Packet { to, head, payload } in &self.packets {
            put_text(&mut out, *to);
            for part in [head, payload] {
                out.extend((part.len() as u32).to_be_bytes());
                out.extend(&part[..]);
            }
        }
        out
    }

    /// From what was stored.
    ///
    /// # Errors
    /// [`NoRecord`].
    pub fn from_bytes(bytes: Bytes) -> Result<Self, NoRecord> {
        let len = bytes.len();
        read(bytes).ok_or(NoRecord { len })
    }
}

fn put_text(out: &mut Vec<u8>, address: SocketAddr) {
    let text = address.to_string();
    out.push(text.len() as u8);
    out.extend(text.as_bytes());
}

fn read(mut bytes: Bytes) -> Option<Record> {
    if take(&mut bytes, 1)?[0] != VERSION {
        return None;
    }
    let call = Context::from_be_bytes(*take(&mut bytes, 10)?.first_chunk()?);
    let request = RequestId::from_be_bytes(*take(&mut bytes, 14)?.first_chunk()?);
    let context = Context::from_be_bytes(*take(&mut bytes, 10)?.first_chunk()?);
    let reply = address(&mut bytes)?;
    let form = [Form::Manifest, Form::Sole, Form::Chained].into_iter().nth(take(&mut bytes, 1)?[0].into())?;
    let (responses, mut sent_to, mut packets) = (number(&mut bytes)?, Vec::new(), Vec::new());
    for _ in 0..number(&mut bytes)? {
        sent_to.push(address(&mut bytes)?);
    }
    for _ in 0..number(&mut bytes)? {
        let to = address(&mut bytes)?;
        let mut part = || number(&mut bytes).and_then(|len| take(&mut bytes, len as usize));
        let (head, payload) = (part()?, part()?);
        packets.push(Packet { to, head, payload });
    }
    bytes.is_empty().then_some(Record { call, request, context, reply, form, responses, sent_to, packets })
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

/// Keeps what would be sent.
impl Outbox for Vec<Packet> {
    fn send(&mut self, to: SocketAddr, head: &[u8], payload: &Bytes) {
        self.push(Packet { to, head: Bytes::copy_from_slice(head), payload: payload.clone() });
    }
}

impl Worker {
    /// Makes up all that a finished request leads to, and holds it.
    pub(super) fn seal(&mut self, now: Instant, id: Context) -> Option<Record> {
        let execution = self.executions.get_mut(&id)?;
        // The caller's grants bound what is on its way; here all of it is in memory anyway.
        execution.granted = u32::MAX;
        let mut packets = Vec::new();
        self.stats.nulls += u64::from(execution.pump(now, &self.config, &mut self.alarms, &mut packets));
        execution.packets = packets.clone();
        let &mut Execution { call, request, context, reply, form, responses, .. } = &mut **execution;
        let sent_to = execution.sent_to.clone();
        execution.enter(now, Phase::Sealed, &mut self.alarms);
        Some(Record { call, request, context, reply, form, responses, sent_to, packets })
    }

    /// Sends all that a request led to, for the first time or again.
    pub(super) fn send_recorded(&self, call: Context, request: RequestId, out: &mut dyn Outbox) {
        let recorded = self.by_request.get(&(call, request)).and_then(|id| self.executions.get(id));
        for Packet { to, head, payload } in recorded.iter().flat_map(|execution| &execution.packets) {
            // The same ids, but this process says it now.
            match parse(head) {
                Ok((Message::Request(said), _)) => {
                    out.send(*to, &Request { sender: self.config.node, ..said }.encode(), payload);
                }
                Ok((Message::Response(said), _)) => {
                    let again = recorded.is_some_and(|execution| execution.context.node() != self.config.node);
                    let again = again.then_some(self.config.node);
                    out.send(*to, &Response { again, ..said }.encode(), payload);
                }
                _ => {}
            }
        }
    }

    pub(super) fn restore_record(&mut self, now: Instant, record: Record) {
        let Record { call, request, context, reply, form, responses, sent_to, packets } = record;
        if self.by_request.contains_key(&(call, request)) || self.executions.contains_key(&context) {
            return;
        }
        let execution = Execution {
            form,
            responses,
            sent_to,
            packets,
            phase: Phase::Recorded,
            expires: Instant(u64::MAX),
            ..Execution::idle(now, context, call, request, reply)
        };
        self.by_request.insert((call, request), context);
        self.executions.insert(context, Box::new(execution));
    }
}
