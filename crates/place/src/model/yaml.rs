//! YAML into plain structs, and the library's errors into one line for people.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_saphyr::{Error, MessageFormatter, Spanned, UserMessageFormatter};

use super::units::Quantity;
use crate::{Mistake, Position};

/// Entries of a list or a map that a model may have.
pub(super) const ENTRIES_MAX: usize = 256;
/// Characters of a name.
const NAME_MAX: usize = 64;

/// Text with its position.
pub(super) type Text = Spanned<String>;

/// A key that may be left out, but not its value.
pub(super) fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Text>, D::Error> {
    Text::deserialize(deserializer).map(Some)
}

/// Reads a file's only document.
pub(super) fn read<'t, T: Deserialize<'t>>(file: &str, text: &'t str) -> Result<T, Mistake> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: 16, max_nodes: 20_000, max_documents: 1 },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 20_000 },
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let error = error.without_snippet();
        Mistake::new(file, error.location().and_then(|at| position(&at)), said(error))
    })
}

/// A library's location as ours, if it is known.
pub(super) fn position(at: &serde_saphyr::Location) -> Option<Position> {
    let of = |n: u64| u32::try_from(n).ok().filter(|n| *n > 0);
    Some(Position { line: of(at.line())?, column: of(at.column())? })
}

/// What an error of the library means for who wrote the file.
fn said(error: &Error) -> String {
    match error {
        Error::SerdeUnknownField { field, expected, .. } => {
            format!("there is no key `{field}` here; keys are {}", expected.join(", "))
        }
        Error::SerdeMissingField { field, .. } => format!("the key `{field}` is missing"),
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("the key {key} stands here twice; keep one"),
        Error::NullIntoString { .. } => "a value is missing after the key".to_owned(),
        Error::Eof { .. } => "the file is empty".to_owned(),
        error => {
            let whole = UserMessageFormatter.format_message(error);
            whole.lines().next().unwrap_or_default().to_owned()
        }
    }
}

/// Reads fields out of parsed text and says where they are wrong.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) file: &'a str,
}

impl Reader<'_> {
    pub(super) fn wrong<T>(self, at: &Text, said: impl AsRef<str>) -> Result<T, Mistake> {
        Err(Mistake::new(self.file, position(&at.referenced), said))
    }

    pub(super) fn quantity(self, quantity: &Quantity, text: &Text) -> Result<u64, Mistake> {
        quantity.parse(&text.value).or_else(|said| self.wrong(text, said))
    }

    /// A name: letters, digits, `_`, `-` and `.`.
    pub(super) fn name(self, text: &Text) -> Result<String, Mistake> {
        let name = &text.value;
        let fits = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
        if name.is_empty() || name.len() > NAME_MAX || !fits {
            return self
                .wrong(text, format!("`{name}` is no name; use 1 to {NAME_MAX} letters, digits, `_`, `-`, `.`"));
        }
        Ok(name.clone())
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(self, what: &str, words: &[(&str, T)], text: &Text) -> Result<T, Mistake> {
        match words.iter().find(|(word, _)| *word == text.value) {
            Some((_, meaning)) => Ok(*meaning),
            None => {
                let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                self.wrong(text, format!("`{}` is no {what}; write one of {}", text.value, known.join(", ")))
            }
        }
    }

    pub(super) fn few<T>(self, what: &str, entries: &[T]) -> Result<(), Mistake> {
        match entries.len() {
            0 => Err(Mistake::new(self.file, None, format!("there are no {what}; give at least one"))),
            n if n > ENTRIES_MAX => {
                Err(Mistake::new(self.file, None, format!("there are {n} {what}; at most {ENTRIES_MAX} are taken")))
            }
            _ => Ok(()),
        }
    }
}

/// A map in the file's order, with the positions of its keys.
#[derive(Debug)]
pub(super) struct Named<T>(pub(super) Vec<(Text, T)>);

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Named<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names, each with what belongs to it")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Named(entries))
            }
        }

        deserializer.deserialize_map(Entries(PhantomData))
    }
}
