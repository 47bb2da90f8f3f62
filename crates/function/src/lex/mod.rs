//! Text to tokens: names, numbers, strings, punctuation (P4_16 §6.3).
//!
//! Two pieces are not P4 but C, and are taken whole, as one [`Kind::C`] each: what stands between the braces of
//! `state { … }` and of `remote_handler(…) { … }` at the top of a file.

mod scan;

pub(crate) use scan::Scanner;

use crate::check::Num;
use crate::ir::Span;
use std::fmt;
use std::rc::Rc;

/// A token.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Token {
    pub kind: Kind,
    pub at: Span,
    /// Whether nothing stands between it and the one before: `>` and `>` are then one operator.
    pub joined: bool,
    /// The first of its line, in its file.
    pub first: bool,
}

/// What it is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    /// A name or a keyword.
    Name(Rc<str>),
    /// `7`, `0xff`, `8w255`, `4s7`.
    Number(Num, Option<Width>),
    /// `"text"`.
    Text(Rc<str>),
    /// An operator or bracket.
    Punct(&'static str),
    /// Between the braces of a piece of C; the span is its own.
    C,
    /// `#`, the first of its line.
    Hash,
    /// What begins like a number and is none in P4: told where it is used, for C may have it in a macro.
    NoNumber(Rc<str>),
    /// The end of all text.
    End,
}

/// What stands before `w` or `s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Width {
    pub bits: u32,
    pub signed: bool,
}

impl Kind {
    /// Whether it is this name or punctuation.
    pub fn is(&self, text: &str) -> bool {
        match self {
            Self::Name(name) => &**name == text,
            Self::Punct(punct) => *punct == text,
            _ => false,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "`{name}`"),
            Self::Number(number, None) => write!(f, "`{number}`"),
            Self::Number(number, Some(width)) => {
                write!(f, "`{}{}{number}`", width.bits, if width.signed { 's' } else { 'w' })
            }
            Self::Text(text) => write!(f, "\"{text}\""),
            Self::Punct(punct) => write!(f, "`{punct}`"),
            Self::C => write!(f, "C"),
            Self::Hash => write!(f, "`#`"),
            Self::NoNumber(word) => write!(f, "`{word}`"),
            Self::End => write!(f, "the end of the file"),
        }
    }
}
