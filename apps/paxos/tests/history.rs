//! History of a run: what was chosen, and what clients saw. Each broken rule is an error.

use std::collections::BTreeMap;

use paxos::consensus::{Slot, Step, Value};
use paxos::pb;
use paxos::store::Registers;
use prost::Message as _;

/// Command of a client, with the times of its call and of its answer.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(crate) command: pb::Command,
    pub(crate) called: u64,
    pub(crate) answered: Option<(u64, pb::Outcome)>,
}

/// Chosen values and operations.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) chosen: BTreeMap<Slot, Value>,
    pub(crate) operations: Vec<Operation>,
    /// First broken rule.
    pub(crate) broken: Option<String>,
}

impl History {
    /// Notes that a learner applies a value: in each slot, all learners apply the same, always.
    pub(crate) fn apply(&mut self, step: &Step) {
        let Step::Apply { slot, value } = step else { return };
        let chosen = self.chosen.entry(*slot).or_insert_with(|| value.clone());
        if chosen != value {
            self.broken.get_or_insert(format!("two values in slot {slot}"));
        }
    }

    /// Checks that the operations are linearizable: the log, without repeated commands, is an order in which they may
    /// have happened one after the other. Each took effect between its call and its answer, with the answered outcome.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        let (mut registers, mut slots) = (Registers::default(), BTreeMap::new());
        for (position, (slot, value)) in (1..).zip(&self.chosen) {
            if position != *slot {
                return Err(format!("nothing was applied in slot {position}"));
            }
            let Value::Command(bytes) = value else { continue };
            let command = pb::Command::decode(&bytes[..]).map_err(|error| error.to_string())?;
            let id = (command.client, command.number);
            if !self.operations.iter().any(|operation| operation.command == command) {
                return Err(format!("slot {slot} has a command that nobody called"));
            }
            if let Some(outcome) = registers.apply(*slot, command) {
                slots.entry(id).or_insert((*slot, outcome));
            }
        }
        // Latest call time of operations in later slots, from the end of the log on.
        let mut answered = Vec::new();
        for operation in &self.operations {
            let Some((at, seen)) = &operation.answered else { continue };
            let id = (operation.command.client, operation.command.number);
            let (slot, outcome) = slots.get(&id).ok_or_else(|| format!("{id:?} was answered and is not in the log"))?;
            if outcome != seen {
                return Err(format!("{id:?} was answered {seen:?}, the log has {outcome:?}"));
            }
            answered.push((*slot, operation.called, *at));
        }
        answered.sort_unstable();
        let mut earliest_answer = u64::MAX;
        for (slot, called, at) in answered.into_iter().rev() {
            if earliest_answer < called {
                return Err(format!("slot {slot} was called after a later slot was answered"));
            }
            earliest_answer = earliest_answer.min(at);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(answers: [(u64, u64, u64); 2]) -> History {
        let mut history = History::default();
        for (client, (slot, called, at)) in (1..).zip(answers) {
            let command = pb::Command { client, number: 1, key: vec![1], value: Some(vec![client as u8]) };
            let value = Value::Command(command.encode_to_vec().into());
            history.apply(&Step::Apply { slot, value });
            let before = (slot == 2).then(|| vec![3 - client as u8]);
            let answered = Some((at, pb::Outcome { value: before, slot }));
            history.operations.push(Operation { command, called, answered });
        }
        history
    }

    #[test]
    fn order_of_log_against_order_of_time_is_found() {
        assert_eq!(history([(1, 0, 5), (2, 3, 9)]).check(), Ok(()));
        assert_eq!(history([(2, 0, 5), (1, 3, 9)]).check(), Ok(()));
        assert!(history([(2, 0, 5), (1, 6, 9)]).check().is_err());
    }

    #[test]
    fn two_values_in_one_slot_are_found() {
        let mut history = history([(1, 0, 5), (2, 3, 9)]);
        history.apply(&Step::Apply { slot: 2, value: Value::Noop });
        assert!(history.check().is_err());
    }
}
