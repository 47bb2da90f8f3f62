//! What a user got wrong: one line that says where, what, and what to do.

use std::fmt;

/// Where in a file; lines and columns count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
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
    pub place: Option<Place>,
    /// What is wrong, what was expected, what to do.
    pub said: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Some(Place { line, column }) => write!(f, "{}:{line}:{column}: {}", self.file, self.said),
            None => write!(f, "{}: {}", self.file, self.said),
        }
    }
}

impl std::error::Error for Mistake {}
