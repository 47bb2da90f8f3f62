//! Numbers for keys that are too long for a frame: the server assigns them over gRPC, and frames carry the number
//! instead of the key.
//!
//! ```text
//! caller: long key ─ NumberKeys ─► server: KeyNumbers ─► number
//! caller: number, as any short key ─► frames ─► element, server
//! query:  long key ─► number ─► value ─► long key
//! ```
//!
//! Numbering a key changes no value and may be repeated, so long keys have the same guarantees as short ones: locks,
//! counts, and values in the element. Both limits of this module are checked before any part of a call is sent.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pathcall_endpoint::map::Key;
use tonic::Status;

/// Maximum length of a key, bytes.
pub const KEY_BYTES_MAX: usize = 1 << 20;
/// Maximum total of long keys that a server stores for one application, and a caller for one server, bytes. The server
/// refuses further keys; the caller asks for their numbers at each call.
pub const LONG_KEYS_BYTES_MAX: usize = 256 << 20;
/// Overhead that is counted for each long key, bytes.
const OVERHEAD: usize = 128;
/// Maximum total of long keys in one request, bytes, unless it has a single key.
pub(crate) const REQUEST_KEYS_BYTES: usize = 1 << 20;
/// Maximum size of a request for numbers, bytes.
pub(crate) const REQUEST_BYTES_MAX: usize = 2 * (KEY_BYTES_MAX + 4096);

/// Numbers of long keys at the server: a key's number is its index.
#[derive(Default)]
pub(crate) struct KeyNumbers(Mutex<NumberTable>);

impl fmt::Debug for KeyNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyNumbers").finish_non_exhaustive()
    }
}

/// Function that stores a new key.
type KeepKey = Box<dyn Fn(&str) + Send>;

#[derive(Default)]
struct NumberTable {
    /// Called with each new key, in the order of numbers.
    keep: Option<KeepKey>,
    numbers: HashMap<Arc<str>, u64>,
    keys: Vec<Arc<str>>,
    bytes: usize,
}

impl KeyNumbers {
    /// Loads the keys of a former owner, in the order of their numbers. From now on, `keep` is called with each new key before
    /// its number is used.
    pub(crate) fn load<'a>(&self, keys: impl Iterator<Item = &'a str>, keep: impl Fn(&str) + Send + 'static) {
        let mut table = self.table();
        for key in keys {
            // The former owner had the same limit.
            let _ = table.number(key, usize::MAX);
        }
        table.keep = Some(Box::new(keep));
    }

    /// Numbers of these keys; assigns new ones to unknown keys. If there is not enough room for all of them, the first
    /// keys still get their numbers, and a repeated request finds them.
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

    /// Replaces long keys by their numbers; assigns new ones to unknown keys.
    pub(crate) fn shorten<'a>(&self, app: &str, keys: impl Iterator<Item = &'a mut Key>) -> Result<(), Status> {
        let mut long = keys.filter(|key| key.is_long()).peekable();
        if long.peek().is_none() {
            return Ok(());
        }
        let mut table = self.table();
        for key in long {
            let Some(text) = key.as_str() else { continue };
            let number = table.number(text, LONG_KEYS_BYTES_MAX).ok_or_else(|| exhausted(app))?;
            *key = Key::numbered(number);
        }
        Ok(())
    }

    /// Key that frames use for this one; the key itself if no caller has asked for its number.
    pub(crate) fn short(&self, key: &Key) -> Key {
        let number = key.as_str().filter(|_| key.is_long()).and_then(|text| self.table().numbers.get(text).copied());
        number.map_or_else(|| key.clone(), Key::numbered)
    }

    /// Key of the caller's message; `None` for a number that was never assigned.
    pub(crate) fn long(&self, key: Key) -> Option<Key> {
        match key.as_number() {
            None => Some(key),
            Some(number) => {
                let place = usize::try_from(number).ok()?;
                self.table().keys.get(place).map(|text| Key::from(&**text))
            }
        }
    }

    /// Held briefly, by code that does not panic.
    fn table(&self) -> MutexGuard<'_, NumberTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NumberTable {
    /// Number of a key; assigns a new one if all keys then take at most `limit` bytes.
    fn number(&mut self, key: &str, limit: usize) -> Option<u64> {
        if let Some(number) = self.numbers.get(key) {
            return Some(*number);
        }
        let bytes = self.bytes + key.len() + OVERHEAD;
        if bytes > limit {
            return None;
        }
        if let Some(keep) = &self.keep {
            keep(key);
        }
        let (number, key) = (self.keys.len() as u64, Arc::<str>::from(key));
        self.numbers.insert(Arc::clone(&key), number);
        self.keys.push(key);
        self.bytes = bytes;
        Some(number)
    }
}

/// Key numbers that a caller has learnt from a server.
#[derive(Debug, Default)]
pub(crate) struct KnownKeyNumbers(Mutex<(HashMap<Key, u64>, usize)>);

impl KnownKeyNumbers {
    /// Number of this key, if known.
    pub(crate) fn find(&self, key: &Key) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.get(key).copied()
    }

    /// Stores a number, if there is room.
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

/// Refuses keys that are too long.
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
    Status::resource_exhausted(format!("{app}: the server stores the maximum of {mib} MiB of long keys"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(letter: &str, len: usize) -> String {
        letter.repeat(len)
    }

    #[test]
    fn key_number_round_trips() {
        let names = KeyNumbers::default();
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
    fn loaded_keys_keep_their_numbers() {
        let (first, kept) = (KeyNumbers::default(), Arc::new(Mutex::new(Vec::new())));
        let keep = Arc::clone(&kept);
        first.load(std::iter::empty(), move |key: &str| keep.lock().unwrap().push(key.to_owned()));
        let keys = [key("a", 5000), key("b", 2000)];
        let numbers = first.number("app", &keys).unwrap();
        assert_eq!(first.number("app", &keys).unwrap(), numbers);
        let (next, kept) = (KeyNumbers::default(), kept.lock().unwrap().clone());
        assert_eq!(kept, keys);
        next.load(kept.iter().map(String::as_str), |_| {});
        let more = [key("c", 3000), keys[1].clone(), keys[0].clone()];
        assert_eq!(next.number("app", &more).unwrap(), [2, numbers[1], numbers[0]]);
    }

    #[test]
    fn keys_of_invalid_length_are_refused() {
        let names = KeyNumbers::default();
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
    fn stored_keys_are_bounded_at_server_and_caller() {
        let (mut table, known) = (NumberTable::default(), KnownKeyNumbers::default());
        let limit = 10 * (2000 + OVERHEAD) + 1;
        let key = |i: usize| format!("{i:04}{}", key("k", 1996));
        let numbers: Vec<_> = (0..12).map(|i| table.number(&key(i), limit)).collect();
        assert_eq!(numbers.iter().filter(|number| number.is_some()).count(), 10, "{numbers:?}");
        assert_eq!(table.number(&key(3), limit), Some(3), "a known key keeps its number");
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
