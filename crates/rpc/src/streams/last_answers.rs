//! Answer to a stream of requests with one reply: for each key, the last value that the stream got.

use std::collections::hash_map::Entry;

use pathcall_endpoint::map::{Key, Lanes};
use pathcall_endpoint::tables::SeededHashMap;

use crate::message::typed::TypedValues;
use crate::request::MapAnswer;

/// Maximum number of keys, or of array lanes, of a reply to a stream.
pub(crate) const STREAM_KEYS_MAX: usize = 1 << 22;

/// Last values of a stream. The key of an array's value is its index.
#[derive(Debug, Default)]
pub(crate) struct LastAnswers {
    pairs: Vec<(Key, i64)>,
    positions: SeededHashMap<Key, usize>,
    lanes: Vec<i64>,
    floats: Vec<f32>,
    forwarded: Option<bool>,
}

impl LastAnswers {
    /// Adds the answer to the next message; false if there are too many keys.
    #[must_use]
    pub(crate) fn add(&mut self, answer: MapAnswer) -> bool {
        if let Some(forwarded) = answer.forwarded {
            self.forwarded = Some(self.forwarded.unwrap_or_default() || forwarded);
        }
        match answer.values {
            TypedValues::Lanes(lanes) => overlay(&mut self.lanes, lanes.iter()),
            TypedValues::Floats(values) => overlay(&mut self.floats, values.into_iter()),
            TypedValues::Pairs(pairs) => pairs.into_iter().for_each(|(key, value)| self.set(key, value)),
        }
        self.pairs.len().max(self.lanes.len()).max(self.floats.len()) <= STREAM_KEYS_MAX
    }

    fn set(&mut self, key: Key, value: i64) {
        match self.positions.entry(key) {
            Entry::Occupied(position) => self.pairs[*position.get()].1 = value,
            Entry::Vacant(position) => {
                self.pairs.push((position.key().clone(), value));
                position.insert(self.pairs.len() - 1);
            }
        }
    }

    /// Answer for the reply.
    pub(crate) fn into_answer(self) -> MapAnswer {
        let values = match (self.lanes.is_empty(), self.floats.is_empty()) {
            (false, _) => TypedValues::Lanes(Lanes::from(self.lanes)),
            (true, false) => TypedValues::Floats(self.floats),
            (true, true) => TypedValues::Pairs(self.pairs),
        };
        MapAnswer { forwarded: self.forwarded, ..MapAnswer::of(values) }
    }
}

/// Replaces the first values, and appends the others.
fn overlay<T>(all: &mut Vec<T>, values: impl Iterator<Item = T>) {
    for (position, value) in values.enumerate() {
        match all.get_mut(position) {
            Some(last) => *last = value,
            None => all.push(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(answers: impl IntoIterator<Item = MapAnswer>) -> MapAnswer {
        let mut all = LastAnswers::default();
        assert!(answers.into_iter().all(|answer| all.add(answer)));
        all.into_answer()
    }

    #[test]
    fn each_key_has_its_last_value() {
        let pairs = |pairs: &[(&str, i64)]| {
            MapAnswer::of(TypedValues::Pairs(pairs.iter().map(|(key, value)| (Key::from(*key), *value)).collect()))
        };
        let answers = [pairs(&[("a", 1), ("b", 2)]), MapAnswer::EMPTY, pairs(&[("c", 3), ("a", 4)])];
        assert_eq!(last(answers), pairs(&[("a", 4), ("b", 2), ("c", 3)]));
        let lanes = |lanes: &[i64]| MapAnswer::of(TypedValues::Lanes(lanes.to_vec().into()));
        assert_eq!(last([lanes(&[1, 2]), lanes(&[3, 4, 5]), lanes(&[6])]), lanes(&[6, 4, 5]));
        assert_eq!(last([]), MapAnswer::EMPTY);
    }

    #[test]
    fn stream_is_forwarded_if_any_message_is() {
        let counted = |forwarded| MapAnswer { forwarded: Some(forwarded), ..MapAnswer::EMPTY };
        assert_eq!(last([counted(false), counted(true), counted(false)]).forwarded, Some(true));
        assert_eq!(last([counted(false)]).forwarded, Some(false));
    }
}
