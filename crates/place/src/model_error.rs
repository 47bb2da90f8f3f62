//! Error of a model file: one line with position, cause and remedy.

use std::fmt;

/// Position in a file; lines and columns count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilePosition {
    /// Line.
    pub line: u32,
    /// Column, in characters.
    pub column: u32,
}

/// Error in a model file, or between models that must match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelError {
    /// Name of the file, as passed by the caller.
    pub file: String,
    /// Position in the file, if the error has one.
    pub position: Option<FilePosition>,
    /// Message: cause, expected value, remedy.
    pub message: String,
}

impl ModelError {
    /// Creates an error. The message has one line, even if it quotes several lines of the file.
    pub(crate) fn new(file: &str, position: impl Into<Option<FilePosition>>, message: impl AsRef<str>) -> Self {
        let mut line = String::with_capacity(message.as_ref().len());
        for character in message.as_ref().chars() {
            match character.is_control() {
                true => line.extend(character.escape_default()),
                false => line.push(character),
            }
        }
        Self { file: file.to_owned(), position: position.into(), message: line }
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.position {
            Some(FilePosition { line, column }) => write!(f, "{}:{line}:{column}: {}", self.file, self.message),
            None => write!(f, "{}: {}", self.file, self.message),
        }
    }
}

impl std::error::Error for ModelError {}
