//! Reader of a pipe's file: YAML to nodes with their positions.

use std::fmt;

use pathcall_build::{BuildDiagnostic, Location};
use pathcall_place::model::yaml::{self, SpannedText};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// Content of a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PipeFile {
    /// `.proto` files.
    pub(crate) protos: Vec<SpannedText>,
    /// Folders of imports.
    #[serde(default)]
    pub(crate) includes: Vec<SpannedText>,
    /// Method that callers call.
    pub(crate) pipe: SpannedText,
    pub(crate) steps: Vec<StepEntry>,
    pub(crate) reply: Spanned<Node>,
}

/// Step in a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StepEntry {
    pub(crate) name: SpannedText,
    pub(crate) call: SpannedText,
    pub(crate) request: Spanned<Node>,
}

/// Value in a file.
#[derive(Debug)]
pub(crate) enum Node {
    Missing,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Spanned<Node>>),
    Map(Vec<(SpannedText, Spanned<Node>)>),
}

/// Reads a file.
pub(crate) fn read(name: &str, text: &str) -> Result<PipeFile, Box<BuildDiagnostic>> {
    yaml::read(name, text).map_err(|error| {
        let mut at = Location::file(error.file);
        if let Some(position) = error.position {
            (at.line, at.column) = (position.line as usize, position.column as usize);
        }
        Box::new(BuildDiagnostic::error(at, error.message))
    })
}

impl Node {
    /// Kind of the value, for errors.
    pub(crate) fn kind(&self) -> String {
        match self {
            Self::Missing => "no value".to_owned(),
            Self::Bool(value) => format!("the bool `{value}`"),
            Self::Integer(value) => format!("the number `{value}`"),
            Self::Float(value) => format!("the number `{value}`"),
            Self::Text(text) => format!("the text `{text}`"),
            Self::List(_) => "a list".to_owned(),
            Self::Map(_) => "fields of a message".to_owned(),
        }
    }
}

/// Position of a value in the file with this name.
pub(crate) fn location<T>(file: &str, value: &Spanned<T>) -> Location {
    let mut at = Location::file(file);
    if let Some(position) = yaml::position(&value.referenced) {
        (at.line, at.column) = (position.line as usize, position.column as usize);
    }
    at
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyNode;

        impl<'de> Visitor<'de> for AnyNode {
            type Value = Node;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a reference such as `$call.field`, a value, or fields with their values")
            }

            fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
                Ok(Node::Bool(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
                Ok(Node::Integer(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
                Ok(Node::Integer(value.into()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
                Ok(Node::Float(value))
            }

            fn visit_str<E>(self, text: &str) -> Result<Node, E> {
                Ok(Node::Text(text.to_owned()))
            }

            fn visit_unit<E>(self) -> Result<Node, E> {
                Ok(Node::Missing)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Node, A::Error> {
                let mut list = Vec::new();
                while let Some(element) = elements.next_element()? {
                    list.push(element);
                }
                Ok(Node::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Node::Map(entries))
            }
        }

        deserializer.deserialize_any(AnyNode)
    }
}
