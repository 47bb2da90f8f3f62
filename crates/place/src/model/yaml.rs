//! YAML reader of the models and of pipes, with one-line errors.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::{DuplicateKeyPolicy, Error, MessageFormatter, Spanned, UserMessageFormatter};

use super::units::Quantity;
use crate::{FilePosition, ModelError};

/// Limit on the entries of a list or a map.
pub(super) const ENTRIES_MAX: usize = 256;
/// Limit on the size of a file in bytes.
const FILE_MAX: usize = 1 << 20;
/// Limit on the length of a name in characters.
const NAME_MAX: usize = 64;

/// Message for a key without a value.
pub(super) const NO_VALUE: &str = "a value is missing after the key; write one, or remove the key";

/// Text with its position.
pub type SpannedText = Spanned<String>;

/// Deserialises an optional key, whose value must not be empty.
pub(super) fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SpannedText>, D::Error> {
    SpannedText::deserialize(deserializer).map(Some)
}

/// Reads the only document of a file. The keys that the file may have are those of `T`.
///
/// # Errors
/// The file is too large, is no YAML, or does not have the keys and values of `T`.
pub fn read<'t, T: Deserialize<'t>>(file: &str, text: &'t str) -> Result<T, ModelError> {
    if text.len() > FILE_MAX {
        let message = format!("the file has {} bytes; at most {FILE_MAX} are allowed", text.len());
        return Err(ModelError::new(file, None, message));
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: 16, max_nodes: 20_000, max_documents: 1 },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 20_000 },
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let error = error.without_snippet();
        let at = error.location().and_then(|at| position(&at));
        let message = match error {
            Error::DuplicateMappingKey { key: Some(key), .. } => duplicate(key, at, text),
            error => message(error),
        };
        ModelError::new(file, at, message)
    })
}

/// Converts a location of the library, if it is known.
#[must_use]
pub fn position(at: &serde_saphyr::Location) -> Option<FilePosition> {
    let of = |n: u64| u32::try_from(n).ok().filter(|n| *n > 0);
    Some(FilePosition { line: of(at.line())?, column: of(at.column())? })
}

/// Message for an error of the library.
fn message(error: &Error) -> String {
    match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            format!("there is no key `{field}` here; keys are {}", expected.join(", "))
        }
        Error::SerdeMissingField { field, .. } => format!("the key `{field}` is missing; add `{field}: …`"),
        Error::NullIntoString { .. } => NO_VALUE.to_owned(),
        Error::Eof { .. } => "the file is empty; begin with `hardware: NAME` or `application: NAME`".to_owned(),
        Error::Budget { breach: BudgetBreach::Documents { .. }, .. } | Error::MultipleDocuments { .. } => {
            "a second document begins here; remove the `---`, or move the document to a file of its own".to_owned()
        }
        Error::Unexpected { expected: "mapping start", .. } => {
            "a map is expected here, not a list or a single value; write `key: value`".to_owned()
        }
        Error::Unexpected { expected: "sequence start", .. } => {
            "a list is expected here, not a map or a single value; write `[one, other]`, or `- one` on a line"
                .to_owned()
        }
        Error::Unexpected { expected: "string scalar", .. } => {
            "a single value is expected here, not a map or a list; write one word, name or quantity".to_owned()
        }
        Error::SerdeInvalidType { expected, .. } => format!("invalid value; write {expected}"),
        error => {
            let whole = UserMessageFormatter.format_message(error);
            whole.lines().next().unwrap_or_default().to_owned()
        }
    }
}

/// Message for a key that its map has already; names the line of the first one.
fn duplicate(key: &str, second: Option<FilePosition>, text: &str) -> String {
    // The library reports the second key only. Read again, both keys of a map are listed.
    let options = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
    let keys = serde_saphyr::from_str_with_options::<MapKeys>(text, options).unwrap_or_default().0;
    let is_second = |(name, at): &&(String, Option<FilePosition>)| name == key && *at == second;
    let map = keys.iter().find(|map| map.iter().any(|entry| is_second(&entry)));
    let first = map.and_then(|map| map.iter().find(|(name, _)| name == key)?.1);
    let line = first.map_or(String::new(), |first| format!(", first in line {}", first.line));
    format!("duplicate key `{key}`{line}; rename or remove one")
}

/// Keys of each map of a document, with their positions.
#[derive(Debug, Default)]
struct MapKeys(Vec<Vec<(String, Option<FilePosition>)>>);

impl<'de> Deserialize<'de> for MapKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = MapKeys;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any value")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<MapKeys, A::Error> {
                let (mut own, mut all) = (Vec::new(), Vec::new());
                while let Some((key, MapKeys(inner))) = map.next_entry::<SpannedText, MapKeys>()? {
                    own.push((key.value.clone(), position(&key.referenced)));
                    all.extend(inner);
                }
                all.push(own);
                Ok(MapKeys(all))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<MapKeys, A::Error> {
                let mut all = Vec::new();
                while let Some(MapKeys(inner)) = seq.next_element()? {
                    all.extend(inner);
                }
                Ok(MapKeys(all))
            }

            fn visit_str<E>(self, _: &str) -> Result<MapKeys, E> {
                Ok(MapKeys::default())
            }

            fn visit_bool<E>(self, _: bool) -> Result<MapKeys, E> {
                Ok(MapKeys::default())
            }

            fn visit_i64<E>(self, _: i64) -> Result<MapKeys, E> {
                Ok(MapKeys::default())
            }

            fn visit_u64<E>(self, _: u64) -> Result<MapKeys, E> {
                Ok(MapKeys::default())
            }

            fn visit_f64<E>(self, _: f64) -> Result<MapKeys, E> {
                Ok(MapKeys::default())
            }

            fn visit_unit<E>(self) -> Result<MapKeys, E> {
                Ok(MapKeys::default())
            }
        }

        deserializer.deserialize_any(Any)
    }
}

/// Reader of fields, which reports the position of errors.
#[derive(Clone, Copy)]
pub(super) struct FieldReader<'a> {
    pub(super) file: &'a str,
}

impl FieldReader<'_> {
    pub(super) fn fail<T>(self, at: &SpannedText, message: impl AsRef<str>) -> Result<T, ModelError> {
        Err(ModelError::new(self.file, position(&at.referenced), message))
    }

    pub(super) fn quantity(self, quantity: &Quantity, text: &SpannedText) -> Result<u64, ModelError> {
        quantity.parse(&text.value).or_else(|message| self.fail(text, message))
    }

    /// Reads a name: letters, digits, `_`, `-` and `.`.
    pub(super) fn name(self, text: &SpannedText) -> Result<String, ModelError> {
        let name = &text.value;
        let fits = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
        if name.is_empty() || name.len() > NAME_MAX || !fits {
            return self
                .fail(text, format!("invalid name `{name}`; use 1 to {NAME_MAX} letters, digits, `_`, `-`, `.`"));
        }
        Ok(name.clone())
    }

    /// Reads one of a few words.
    pub(super) fn word<T: Copy>(self, what: &str, words: &[(&str, T)], text: &SpannedText) -> Result<T, ModelError> {
        match words.iter().find(|(word, _)| *word == text.value) {
            Some((_, meaning)) => Ok(*meaning),
            None => {
                let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                self.fail(text, format!("invalid {what} `{}`; write one of {}", text.value, known.join(", ")))
            }
        }
    }

    /// Checks that a list or map has 1 to [`ENTRIES_MAX`] entries.
    pub(super) fn check_count<T>(self, what: &str, entries: &Spanned<T>, count: usize) -> Result<(), ModelError> {
        let message = match count {
            0 => format!("there are no {what}; give at least one"),
            n if n > ENTRIES_MAX => format!("there are {n} {what}; at most {ENTRIES_MAX} are allowed"),
            _ => return Ok(()),
        };
        Err(ModelError::new(self.file, position(&entries.referenced), message))
    }
}

/// Map in the file's order, with the positions of its keys.
#[derive(Debug)]
pub(super) struct NamedEntries<T>(pub(super) Vec<(SpannedText, T)>);

impl<T> Default for NamedEntries<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for NamedEntries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = NamedEntries<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names, each with its keys: `name: { key: value }`")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(NamedEntries(entries))
            }
        }

        deserializer.deserialize_map(Entries(PhantomData))
    }
}
