//! YAML reader of the models and of pipes, with one-line errors.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_saphyr::{Error, MessageFormatter, Spanned, UserMessageFormatter};

use super::units::Quantity;
use crate::{FilePosition, ModelError};

/// Limit on the entries of a list or a map.
pub(super) const ENTRIES_MAX: usize = 256;
/// Limit on the size of a file in bytes.
const FILE_MAX: usize = 1 << 20;
/// Limit on the length of a name in characters.
const NAME_MAX: usize = 64;

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
        ModelError::new(file, error.location().and_then(|at| position(&at)), message(error))
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
        Error::SerdeMissingField { field, .. } => format!("the key `{field}` is missing"),
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("duplicate key {key}; keep one"),
        Error::NullIntoString { .. } => "a value is missing after the key".to_owned(),
        Error::Eof { .. } => "the file is empty".to_owned(),
        error => {
            let whole = UserMessageFormatter.format_message(error);
            whole.lines().next().unwrap_or_default().to_owned()
        }
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

    pub(super) fn check_count<T>(self, what: &str, entries: &[T]) -> Result<(), ModelError> {
        match entries.len() {
            0 => Err(ModelError::new(self.file, None, format!("there are no {what}; give at least one"))),
            n if n > ENTRIES_MAX => Err(ModelError::new(
                self.file,
                None,
                format!("there are {n} {what}; at most {ENTRIES_MAX} are allowed"),
            )),
            _ => Ok(()),
        }
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
                f.write_str("names, each with what belongs to it")
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
