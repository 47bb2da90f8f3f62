//! What a user got wrong: one line that says where, what, and what to do.

use std::fmt;

/// Where in a file; lines and columns count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line.
    pub line: u32,
    /// Column, in characters.
    pub column: u32,
}

/// A mistake in a model, or between models that are to work together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The file, as its reader named it.
    pub file: String,
    /// Where in the file, if it is about one place in it.
    pub position: Option<Position>,
    /// What is wrong, what was expected, what to do.
    pub said: String,
}

impl Mistake {
    /// A mistake somewhere in a file. It is said in one line, also where it repeats what the file has in several.
    pub(crate) fn new(file: &str, position: impl Into<Option<Position>>, said: impl AsRef<str>) -> Self {
        let mut line = String::with_capacity(said.as_ref().len());
        for character in said.as_ref().chars() {
            match character.is_control() {
                true => line.extend(character.escape_default()),
                false => line.push(character),
            }
        }
        Self { file: file.to_owned(), position: position.into(), said: line }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.position {
            Some(Position { line, column }) => write!(f, "{}:{line}:{column}: {}", self.file, self.said),
            None => write!(f, "{}: {}", self.file, self.said),
        }
    }
}

impl std::error::Error for Mistake {}
