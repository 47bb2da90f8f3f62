//! Replicated application: registers by key. Each client's repeated command is executed once.

use std::collections::BTreeMap;

use prost::Message as _;

use crate::consensus::Slot;
use crate::pb;

/// Registers, and the last outcome of each client.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Registers {
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
    sessions: BTreeMap<u64, (u64, pb::Outcome)>,
}

impl Registers {
    /// Executes the command of a slot. A repeated command gets its outcome again; of an older one, nothing is known.
    pub fn apply(&mut self, slot: Slot, command: pb::Command) -> Option<pb::Outcome> {
        let pb::Command { client, number, key, value } = command;
        if let Some((last, outcome)) = self.sessions.get(&client).filter(|(last, _)| *last >= number) {
            return (*last == number).then(|| outcome.clone());
        }
        let before = match value {
            None => self.entries.get(&key).cloned(),
            Some(value) => self.entries.insert(key, value),
        };
        let outcome = pb::Outcome { value: before, slot };
        self.sessions.insert(client, (number, outcome.clone()));
        Some(outcome)
    }

    /// Outcome of a client's command, if it was its last one.
    #[must_use]
    pub fn outcome(&self, client: u64, number: u64) -> Option<pb::Outcome> {
        self.sessions.get(&client).filter(|(last, _)| *last == number).map(|(_, outcome)| outcome.clone())
    }

    /// Writes the state.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        let entry = |(key, value): (&Vec<u8>, &Vec<u8>)| pb::Entry { key: key.clone(), value: value.clone() };
        let session = |(client, (number, outcome)): (&u64, &(u64, pb::Outcome))| pb::Session {
            client: *client,
            number: *number,
            outcome: Some(outcome.clone()),
        };
        let entries = self.entries.iter().map(entry).collect();
        pb::State { entries, sessions: self.sessions.iter().map(session).collect() }.encode_to_vec()
    }

    /// Reads a written state.
    ///
    /// # Errors
    /// Returns an error if the bytes are no state.
    pub fn restore(state: &[u8]) -> Result<Self, prost::DecodeError> {
        let pb::State { entries, sessions } = pb::State::decode(state)?;
        let entries = entries.into_iter().map(|pb::Entry { key, value }| (key, value)).collect();
        let session = |pb::Session { client, number, outcome }| (client, (number, outcome.unwrap_or_default()));
        Ok(Self { entries, sessions: sessions.into_iter().map(session).collect() })
    }

    /// Digest, equal for equal states.
    #[must_use]
    pub fn digest(&self) -> u64 {
        crate::disk::checksum(&self.snapshot())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(number: u64, value: Option<&str>) -> pb::Command {
        pb::Command { client: 1, number, key: b"k".to_vec(), value: value.map(|value| value.as_bytes().to_vec()) }
    }

    #[test]
    fn repeated_command_is_executed_once() {
        let mut registers = Registers::default();
        assert_eq!(registers.apply(1, command(1, Some("a"))), Some(pb::Outcome { value: None, slot: 1 }));
        let second = registers.apply(2, command(2, Some("b")));
        assert_eq!(second, Some(pb::Outcome { value: Some(b"a".to_vec()), slot: 2 }));
        assert_eq!(registers.apply(3, command(2, Some("b"))), second);
        assert_eq!(registers.apply(4, command(1, Some("a"))), None);
        let read = registers.apply(5, command(3, None));
        assert_eq!(read, Some(pb::Outcome { value: Some(b"b".to_vec()), slot: 5 }));
        assert_eq!(Registers::restore(&registers.snapshot()).unwrap(), registers);
    }
}
