//! Messages and records of the protocol as protobuf messages.

use anyhow::{Context, Error, Result, ensure};

use crate::consensus::{Accepted, BallotNumber, Message, Record, ReplicaId, Value};
use crate::pb;
use crate::pb::envelope::Message as Wire;
use crate::pb::log_record::Record as OnDisk;

impl From<BallotNumber> for pb::Ballot {
    fn from(ballot: BallotNumber) -> Self {
        Self { round: ballot.round, leader: ballot.leader.into() }
    }
}

impl TryFrom<Option<pb::Ballot>> for BallotNumber {
    type Error = Error;

    fn try_from(ballot: Option<pb::Ballot>) -> Result<Self> {
        let pb::Ballot { round, leader } = ballot.context("no ballot number")?;
        Ok(Self { round, leader: leader.try_into().context("leader out of range")? })
    }
}

impl From<&Accepted> for pb::Accepted {
    fn from(accepted: &Accepted) -> Self {
        Self { slot: accepted.slot, ballot: Some(accepted.ballot.into()), value: bytes(&accepted.value) }
    }
}

impl TryFrom<pb::Accepted> for Accepted {
    type Error = Error;

    fn try_from(accepted: pb::Accepted) -> Result<Self> {
        let pb::Accepted { slot, ballot, value } = accepted;
        ensure!(slot > 0, "slots count from 1");
        Ok(Self { slot, ballot: ballot.try_into()?, value: value_of(value) })
    }
}

/// A command is never empty.
fn bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::Noop => Vec::new(),
        Value::Command(command) => command.to_vec(),
    }
}

fn value_of(bytes: Vec<u8>) -> Value {
    if bytes.is_empty() { Value::Noop } else { Value::Command(bytes.into()) }
}

/// Message as it travels.
#[must_use]
pub fn envelope(from: ReplicaId, message: &Message) -> pb::Envelope {
    let wire = match message {
        Message::Prepare { ballot, first } => {
            Wire::Prepare(pb::Prepare { ballot: Some((*ballot).into()), first: *first })
        }
        Message::Promise { ballot, accepted, truncated } => Wire::Promise(pb::Promise {
            ballot: Some((*ballot).into()),
            accepted: accepted.iter().map(Into::into).collect(),
            truncated: *truncated,
        }),
        Message::Accept { proposal, chosen, counted_from } => {
            Wire::Accept(pb::Accept { proposal: Some(proposal.into()), chosen: *chosen, counted_from: *counted_from })
        }
        Message::Vote { ballot, slot } => Wire::Voted(pb::Voted { ballot: Some((*ballot).into()), slot: *slot }),
        Message::Heartbeat { ballot, chosen, counted_from } => Wire::Heartbeat(pb::Heartbeat {
            ballot: Some((*ballot).into()),
            chosen: *chosen,
            counted_from: *counted_from,
        }),
        Message::Settled { ballot, below } => {
            Wire::Settled(pb::Settled { ballot: Some((*ballot).into()), below: *below })
        }
        Message::Refused { promised } => Wire::Refused(pb::Refused { promised: Some((*promised).into()) }),
        Message::Missing { first } => Wire::Missing(pb::Missing { first: *first }),
        Message::Chosen { first, values } => {
            Wire::Chosen(pb::Chosen { first: *first, values: values.iter().map(bytes).collect() })
        }
        Message::Snapshot { upto, state } => Wire::Snapshot(pb::Snapshot { upto: *upto, state: state.to_vec() }),
    };
    pb::Envelope { from: from.into(), message: Some(wire) }
}

/// Sender and message of an envelope.
///
/// # Errors
/// Returns an error if a part is missing or out of range.
pub fn message(envelope: pb::Envelope) -> Result<(ReplicaId, Message)> {
    let message = match envelope.message.context("no message")? {
        Wire::Prepare(pb::Prepare { ballot, first }) => Message::Prepare { ballot: ballot.try_into()?, first },
        Wire::Promise(pb::Promise { ballot, accepted, truncated }) => {
            let accepted = accepted.into_iter().map(TryInto::try_into).collect::<Result<_>>()?;
            Message::Promise { ballot: ballot.try_into()?, accepted, truncated }
        }
        Wire::Accept(pb::Accept { proposal, chosen, counted_from }) => {
            Message::Accept { proposal: proposal.context("no proposal")?.try_into()?, chosen, counted_from }
        }
        Wire::Voted(pb::Voted { ballot, slot }) => Message::Vote { ballot: ballot.try_into()?, slot },
        Wire::Heartbeat(pb::Heartbeat { ballot, chosen, counted_from }) => {
            Message::Heartbeat { ballot: ballot.try_into()?, chosen, counted_from }
        }
        Wire::Settled(pb::Settled { ballot, below }) => Message::Settled { ballot: ballot.try_into()?, below },
        Wire::Refused(pb::Refused { promised }) => Message::Refused { promised: promised.try_into()? },
        Wire::Missing(pb::Missing { first }) => Message::Missing { first },
        Wire::Chosen(pb::Chosen { first, values }) => {
            Message::Chosen { first, values: values.into_iter().map(value_of).collect() }
        }
        Wire::Snapshot(pb::Snapshot { upto, state }) => Message::Snapshot { upto, state: state.into() },
    };
    Ok((envelope.from.try_into().context("sender out of range")?, message))
}

impl From<&Record> for pb::LogRecord {
    fn from(record: &Record) -> Self {
        let record = match record {
            Record::Promise(ballot) => OnDisk::Promise((*ballot).into()),
            Record::Accept(accepted) => OnDisk::Accept(accepted.into()),
            Record::Snapshot { upto, state } => OnDisk::Snapshot(pb::Snapshot { upto: *upto, state: state.to_vec() }),
        };
        Self { record: Some(record) }
    }
}

impl TryFrom<pb::LogRecord> for Record {
    type Error = Error;

    fn try_from(record: pb::LogRecord) -> Result<Self> {
        Ok(match record.record.context("an empty record")? {
            OnDisk::Promise(ballot) => Self::Promise(Some(ballot).try_into()?),
            OnDisk::Accept(accepted) => Self::Accept(accepted.try_into()?),
            OnDisk::Snapshot(pb::Snapshot { upto, state }) => Self::Snapshot { upto, state: state.into() },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_their_envelopes() {
        let ballot = BallotNumber { round: 7, leader: 1 };
        let accepted = |value| Accepted { slot: 3, ballot, value };
        let command = Value::Command(b"x".as_slice().into());
        let messages = [
            Message::Prepare { ballot, first: 1 },
            Message::Promise { ballot, accepted: vec![accepted(Value::Noop), accepted(command.clone())], truncated: 2 },
            Message::Accept { proposal: accepted(command.clone()), chosen: 2, counted_from: 1 },
            Message::Vote { ballot, slot: 3 },
            Message::Heartbeat { ballot, chosen: 3, counted_from: 2 },
            Message::Settled { ballot, below: 9 },
            Message::Refused { promised: ballot },
            Message::Missing { first: 4 },
            Message::Chosen { first: 4, values: vec![Value::Noop, command] },
            Message::Snapshot { upto: 4, state: b"state".as_slice().into() },
        ];
        for sent in messages {
            assert_eq!(message(envelope(2, &sent)).unwrap(), (2, sent));
        }
        assert!(message(pb::Envelope { from: 300, message: Some(Wire::Missing(pb::Missing { first: 1 })) }).is_err());
        assert!(message(pb::Envelope { from: 1, message: None }).is_err());
    }
}
