//! Plan of a pipe: its steps, the fields that travel between them, and the messages of each hop.
//!
//! ```text
//! call ─▶ first_hop ─▶ step: arrive, request ─▶ service ─▶ answered ─▶ step … ─▶ reply
//! ```
//!
//! A hop carries the earlier messages that are still needed, each without the fields that no later step needs. All
//! functions here are pure: bytes in, bytes out.

use std::fmt;
use std::hash::Hasher;

use bytes::Bytes;
use http::uri::PathAndQuery;
use pathcall_wire::link::LinkSecret;
use prost::encoding::{DecodeContext, decode_key, skip_field};
use prost::{DecodeError, Message};
use prost_reflect::{DynamicMessage, MessageDescriptor, Value};
use tonic::Status;

use crate::expression::Expression;
use crate::fields::{FieldSet, kept};
use crate::{MESSAGE_BYTES_MAX, STEPS_MAX};

/// Pipe whose types have been checked.
#[derive(Debug, Clone)]
pub struct Pipe {
    path: String,
    input: MessageDescriptor,
    steps: Vec<Step>,
    reply: Expression,
    /// Fields of each message that travel to each step: of the call, then of the replies of the steps before it.
    needed: Vec<Vec<FieldSet>>,
    /// Digest of the expressions: all hosts have to agree on them.
    digest: u64,
}

/// Step of a pipe.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) name: String,
    /// Method of the service.
    pub(crate) path: PathAndQuery,
    pub(crate) output: MessageDescriptor,
    /// Whether executing the step twice has the same effect as once.
    pub(crate) idempotent: bool,
    pub(crate) request: Expression,
}

/// Message of one hop.
#[derive(Clone, PartialEq, prost::Message)]
struct HopMessage {
    #[prost(fixed64, tag = "1")]
    digest: u64,
    /// The call and the replies of all steps so far, encoded. A message that is no longer needed is empty.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    messages: Vec<Bytes>,
}

/// Most fields of a hop: digest, call, and a reply of each step.
const FIELDS_MAX: usize = 2 + STEPS_MAX;

/// Number of fields of an encoded message, without those of its messages.
fn fields_of(mut message: &[u8]) -> Result<usize, DecodeError> {
    let mut fields = 0;
    while !message.is_empty() {
        let (tag, wire_type) = decode_key(&mut message)?;
        skip_field(wire_type, tag, &mut message, DecodeContext::default())?;
        fields += 1;
    }
    Ok(fields)
}

/// Messages that have arrived at a step.
#[derive(Debug, Clone, PartialEq)]
pub struct ArrivedHop {
    step: usize,
    /// The call and the replies of the steps before this one.
    messages: Vec<DynamicMessage>,
}

/// Destination and content of the message after a step.
#[derive(Debug, Clone, PartialEq)]
pub enum HopAfter {
    /// Request to the sidecar of the step with this index.
    Step(usize, Bytes),
    /// Reply to the caller.
    Reply(Bytes),
}

impl Pipe {
    pub(crate) fn new(path: String, input: MessageDescriptor, steps: Vec<Step>, reply: Expression) -> Self {
        let needed = (0..steps.len()).map(|step| needed_at(step, &steps, &reply)).collect();
        let digest = digest(&path, &steps, &reply);
        Self { path, input, steps, reply, needed, digest }
    }

    /// Path of the method that callers call: `/pkg.Service/Method`.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Names of the steps, in order; at least one.
    pub fn step_names(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().map(|step| &*step.name)
    }

    /// Index of the step with this name.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with the names of the steps when there is none.
    pub fn step(&self, name: &str) -> Result<usize, Status> {
        self.step_names().position(|known| known == name).ok_or_else(|| {
            let names = self.step_names().collect::<Vec<_>>().join(", ");
            Status::invalid_argument(format!("the pipe has no step {name:?}; its steps are {names}"))
        })
    }

    /// Whether a call may be made again: the methods of all steps are idempotent.
    pub(crate) fn is_idempotent(&self) -> bool {
        self.steps.iter().all(|step| step.idempotent)
    }

    /// Path of the service's method that a step calls.
    pub(crate) fn service_path(&self, step: usize) -> &PathAndQuery {
        &self.steps[step].path
    }

    /// Path of the delegated method that a step's sidecar handles.
    ///
    /// # Panics
    /// There is no step with this index.
    #[must_use]
    pub fn sidecar_path(&self, step: usize) -> String {
        format!("{}/{}", self.path, self.steps[step].name)
    }

    /// Message to the sidecar of the first step, for the encoded request of a call.
    ///
    /// # Errors
    /// INVALID_ARGUMENT when the bytes are no request of the method.
    pub fn first_hop(&self, call: &[u8]) -> Result<Bytes, Status> {
        let call = DynamicMessage::decode(self.input.clone(), call).map_err(|error| {
            Status::invalid_argument(format!("the request is no {}: {error}", self.input.full_name()))
        })?;
        Ok(self.hop(0, &[call]))
    }

    /// Decodes the message of a hop to a step.
    ///
    /// # Errors
    /// FAILED_PRECONDITION when the sender has another pipe; INVALID_ARGUMENT when the bytes are no message of a hop.
    ///
    /// # Panics
    /// There is no step with this index.
    pub fn arrive(&self, step: usize, message: Bytes) -> Result<ArrivedHop, Status> {
        let name = &self.steps[step].name;
        let invalid = |error: &dyn fmt::Display| {
            Status::invalid_argument(format!("step {name}: invalid message of a hop: {error}"))
        };
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(invalid(&format!("it has {} bytes, at most {MESSAGE_BYTES_MAX} are taken", message.len())));
        }
        // Before they take memory.
        let fields = fields_of(&message).map_err(|error| invalid(&error))?;
        if fields > FIELDS_MAX {
            return Err(invalid(&format!("it has {fields} fields, at most {FIELDS_MAX} are taken")));
        }
        let hop = HopMessage::decode(message).map_err(|error| invalid(&error))?;
        if hop.digest != self.digest {
            return Err(Status::failed_precondition(format!(
                "step {name}: the sender has another version of the pipe; start all hosts with the same file"
            )));
        }
        let (wanted, got) = (step + 1, hop.messages.len());
        if got != wanted {
            return Err(Status::invalid_argument(format!(
                "step {name}: a hop to this step carries {wanted} messages, not {got}"
            )));
        }
        let descriptors = [&self.input].into_iter().chain(self.steps.iter().map(|step| &step.output));
        let decoded = descriptors.zip(hop.messages).map(|(descriptor, message)| {
            DynamicMessage::decode(descriptor.clone(), message).map_err(|error| {
                let of = descriptor.full_name();
                Status::invalid_argument(format!("step {name}: the {of} in the hop's message is invalid: {error}"))
            })
        });
        Ok(ArrivedHop { step, messages: decoded.collect::<Result<_, _>>()? })
    }

    /// Request to the service of the step at which the messages arrived, encoded.
    #[must_use]
    pub fn request(&self, arrived: &ArrivedHop) -> Bytes {
        encoded(&self.steps[arrived.step].request, &arrived.messages)
    }

    /// Message after the step, for the encoded reply of its service.
    ///
    /// # Errors
    /// INTERNAL when the bytes are no reply of the service's method.
    pub fn answered(&self, arrived: ArrivedHop, reply: &[u8]) -> Result<HopAfter, Status> {
        let ArrivedHop { step, mut messages } = arrived;
        let Step { name, output, .. } = &self.steps[step];
        let reply = DynamicMessage::decode(output.clone(), reply).map_err(|error| {
            Status::internal(format!("step {name}: the service's reply is no {}: {error}", output.full_name()))
        })?;
        messages.push(reply);
        let next = step + 1;
        Ok(match next < self.steps.len() {
            true => HopAfter::Step(next, self.hop(next, &messages)),
            false => HopAfter::Reply(encoded(&self.reply, &messages)),
        })
    }

    /// Message to a step.
    fn hop(&self, step: usize, messages: &[DynamicMessage]) -> Bytes {
        let kept = messages.iter().zip(&self.needed[step]).map(|(message, fields)| kept(message, fields));
        let messages = kept.map(|message| message.encode_to_vec().into()).collect();
        HopMessage { digest: self.digest, messages }.encode_to_vec().into()
    }
}

/// Digest of a pipe: the same on all hosts with the same expressions and field numbers.
fn digest(path: &str, steps: &[Step], reply: &Expression) -> u64 {
    let steps = steps.iter().map(|step| format!("{} {} {:#}", step.name, step.path, step.request));
    let mut hasher = LinkSecret::hasher();
    for text in [path.to_owned()].into_iter().chain(steps).chain([format!("{reply:#}")]) {
        hasher.write(text.as_bytes());
        // No text contains this byte.
        hasher.write_u8(0xff);
    }
    hasher.finish()
}

/// Fields of each message before a step that this step, a later step or the reply needs.
fn needed_at(step: usize, steps: &[Step], reply: &Expression) -> Vec<FieldSet> {
    let mut needed = vec![FieldSet::default(); step + 1];
    let later = steps[step..].iter().map(|step| &step.request).chain([reply]);
    for reference in later.flat_map(Expression::references) {
        // The replies of this step and of later ones do not exist yet.
        if let Some(fields) = needed.get_mut(reference.source) {
            fields.add(&reference.path);
        }
    }
    needed
}

/// Message of an expression. The type checker has made sure that its value is one.
fn encoded(expression: &Expression, messages: &[DynamicMessage]) -> Bytes {
    let value = expression.evaluate(messages);
    value.as_ref().and_then(Value::as_message).map(Message::encode_to_vec).unwrap_or_default().into()
}

/// Description of the pipe: messages of a call, then its steps with the fields that travel to them.
impl fmt::Display for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.steps.len();
        let (piped, nested) = (steps + 1, 2 * steps);
        writeln!(f, "{}: {piped} messages between hosts for each call; without the pipe {nested}", self.path)?;
        for (n, step) in self.steps.iter().enumerate() {
            let sources = self.steps.iter().map(|step| (&*step.name, &step.output));
            let sources = [("call", &self.input)].into_iter().chain(sources);
            let fields = self.needed[n].iter().zip(sources).flat_map(|(set, (name, of))| set.names(name, of));
            let fields = fields.collect::<Vec<_>>().join(", ");
            let fields = if fields.is_empty() { "no fields" } else { &fields };
            writeln!(f, "{}. {} receives {fields}", n + 1, step.name)?;
            writeln!(f, "   and calls {} with {}", step.path, step.request)?;
        }
        writeln!(f, "The reply is {}", self.reply)
    }
}
