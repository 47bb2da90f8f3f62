//! Keys that are too long for a frame: the server gives each a number, over gRPC, and the number
//! travels in its place.
//!
//! ```text
//! caller: long key ─ Name ─► server: Names ─► number
//! caller: number, as any short key ─► frames ─► element, server
//! query:  long key ─► number ─► value ─► long key
//! ```
//!
//! Numbering a key changes no value and may be repeated, so what is exact about short keys holds for
//! long ones too: locks, counts, and values in the element. Both bounds here are said before anything
//! of a call is sent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pathcall_endpoint::map::Key;
use tonic::Status;

/// Longest key, bytes.
pub const KEY_BYTES_MAX: usize = 1 << 20;
/// Bytes of long keys that a server keeps of one application, and a caller of one server: further
/// ones are refused there, and asked for again at each call here.
pub const LONG_KEYS_BYTES_MAX: usize = 256 << 20;
/// What a long key is counted for besides its own bytes.
const OVERHEAD: usize = 128;
/// Bytes of long keys in one request, unless it is a single key.
pub(crate) const REQUEST_KEYS_BYTES: usize = 1 << 20;
/// Longest request for numbers, bytes.
pub(crate) const REQUEST_BYTES_MAX: usize = 2 * (KEY_BYTES_MAX + 4096);

/// The server's numbers of long keys: each key's is its place.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    numbers: HashMap<Arc<str>, u64>,
    keys: Vec<Arc<str>>,
    bytes: usize,
}

impl Names {
    /// Numbers for these keys, new ones where they have none. When there is no room for all, those
    /// that come first have theirs all the same: asking again finds them.
    pub(crate) fn number(&self, app: &str, keys: &[String]) -> Result<Vec<u64>, Status> {
        if let Some(key) = keys.iter().find(|key| !Key::from(key.as_str()).is_long() || key.len() > KEY_BYTES_MAX) {
            return Err(Status::invalid_argument(format!(
                "{app}: a key of {} bytes needs no number, or is {TOO_LONG}",
                key.len()
            )));
        }
        let mut table = self.table();
        keys.iter().map(|key| table.number(key, LONG_KEYS_BYTES_MAX).ok_or_else(|| exhausted(app))).collect()
    }

    /// The key by which frames know this one; itself, if no caller has asked for its number.
    pub(crate) fn short(&self, key: &Key) -> Key {
        let number = key.as_str().filter(|_| key.is_long()).and_then(|text| self.table().numbers.get(text).copied());
        number.map_or_else(|| key.clone(), Key::numbered)
    }

    /// The key of a caller's message; `None` for a number that was never given.
    pub(crate) fn long(&self, key: Key) -> Option<Key> {
        match key.as_number() {
            None => Some(key),
            Some(number) => {
                let place = usize::try_from(number).ok()?;
                self.table().keys.get(place).map(|text| Key::from(&**text))
            }
        }
    }

    /// Held only for a moment, by code that does not panic.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// The key's number, a new one if that does not take more than `limit` bytes in all.
    fn number(&mut self, key: &str, limit: usize) -> Option<u64> {
        if let Some(number) = self.numbers.get(key) {
            return Some(*number);
        }
        let bytes = self.bytes + key.len() + OVERHEAD;
        if bytes > limit {
            return None;
        }
        let (number, key) = (self.keys.len() as u64, Arc::<str>::from(key));
        self.numbers.insert(Arc::clone(&key), number);
        self.keys.push(key);
        self.bytes = bytes;
        Some(number)
    }
}

/// What a caller knows of a server's numbers.
#[derive(Debug, Default)]
pub(crate) struct Known(Mutex<(HashMap<Key, u64>, usize)>);

impl Known {
    /// The numbers of these keys, as far as they are known.
    pub(crate) fn find(&self, key: &Key) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.get(key).copied()
    }

    /// Remembers a number, if there is room.
    pub(crate) fn learn(&self, key: &Key, number: u64) {
        self.learn_within(key, number, LONG_KEYS_BYTES_MAX);
    }

    fn learn_within(&self, key: &Key, number: u64, limit: usize) {
        let (numbers, bytes) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let more = key.as_bytes().len() + OVERHEAD;
        if *bytes + more <= limit && numbers.insert(key.clone(), number).is_none() {
            *bytes += more;
        }
    }
}

/// Refuses a key that nothing carries.
pub(crate) fn check(field: &str, pairs: &[(Key, i64)]) -> Result<(), Status> {
    let too_long = |key: &&Key| key.as_str().is_some_and(|text| text.len() > KEY_BYTES_MAX);
    match pairs.iter().position(|(key, _)| too_long(&key)) {
        None => Ok(()),
        Some(position) => {
            let len = pairs[position].0.as_bytes().len() - 1;
            Err(Status::invalid_argument(format!("{field}: key {position} has {len} bytes, which is {TOO_LONG}")))
        }
    }
}

const TOO_LONG: &str = "more than the 1048576 bytes that a key may have";

fn exhausted(app: &str) -> Status {
    let mib = LONG_KEYS_BYTES_MAX >> 20;
    Status::resource_exhausted(format!("{app}: the server keeps {mib} MiB of long keys already, and no more"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(letter: &str, len: usize) -> String {
        letter.repeat(len)
    }

    #[test]
    fn a_key_has_one_number_and_comes_back() {
        let names = Names::default();
        let keys = [key("a", 5000), key("b", KEY_BYTES_MAX)];
        let numbers = names.number("app", &keys).unwrap();
        assert_eq!(names.number("app", &keys).unwrap(), numbers);
        assert_ne!(numbers[0], numbers[1]);
        for (text, number) in keys.iter().zip(numbers) {
            let long = Key::from(text.as_str());
            assert_eq!(names.short(&long), Key::numbered(number));
            assert_eq!(names.long(Key::numbered(number)), Some(long));
        }
        assert_eq!(names.long(Key::numbered(7)), None);
        let short = Key::from("short");
        assert_eq!((names.short(&short), names.long(short.clone())), (short.clone(), Some(short)));
    }

    #[test]
    fn keys_of_another_length_are_refused() {
        let names = Names::default();
        for wrong in [key("a", 10), key("a", KEY_BYTES_MAX + 1)] {
            assert_eq!(names.number("app", &[wrong]).unwrap_err().code(), tonic::Code::InvalidArgument);
        }
        assert!(check("M.f", &[(Key::from(key("a", KEY_BYTES_MAX).as_str()), 1)]).is_ok());
        let error =
            check("M.f", &[(Key::from(1), 1), (Key::from(key("a", KEY_BYTES_MAX + 1).as_str()), 1)]).unwrap_err();
        assert!(error.message().starts_with("M.f: key 1 has 1048577 bytes"), "{error}");
        assert!(TOO_LONG.contains(&KEY_BYTES_MAX.to_string()));
    }

    #[test]
    fn what_is_kept_is_bounded_on_both_sides() {
        let (mut table, known) = (Table::default(), Known::default());
        let limit = 10 * (2000 + OVERHEAD) + 1;
        let key = |i: usize| format!("{i:04}{}", key("k", 1996));
        let numbers: Vec<_> = (0..12).map(|i| table.number(&key(i), limit)).collect();
        assert_eq!(numbers.iter().filter(|number| number.is_some()).count(), 10, "{numbers:?}");
        assert_eq!(table.number(&key(3), limit), Some(3), "what has a number keeps it");
        for i in 0..12 {
            known.learn_within(&Key::from(key(i).as_str()), i as u64, limit);
        }
        assert_eq!(
            (known.find(&Key::from(key(3).as_str())), known.find(&Key::from(key(11).as_str()))),
            (Some(3), None)
        );
        assert!(table.bytes <= limit && known.0.lock().unwrap().1 <= limit);
        assert_eq!(exhausted("app").code(), tonic::Code::ResourceExhausted);
    }
}
