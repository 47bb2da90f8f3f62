//! Lexer: names, numbers, strings and punctuation (P4_16 §6.3).
//!
//! Two constructs contain C, and each becomes one [`TokenKind::C`] token: the text between the braces of a top-level `state
//! { … }` and `remote_handler(…) { … }`.

mod scan;

pub(crate) use scan::Scanner;

use crate::check::Num;
use crate::ir::SourceSpan;
use std::fmt;
use std::rc::Rc;

/// Token with its position.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Token {
    pub kind: TokenKind,
    pub at: SourceSpan,
    /// True if no space precedes the token; two joined `>` form one operator.
    pub joined: bool,
    /// True if the token is the first of its line.
    pub first: bool,
}

/// Kind of a token.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TokenKind {
    /// Identifier or keyword.
    Name(Rc<str>),
    /// Number: `7`, `0xff`, `8w255`, `4s7`.
    Number(Num, Option<Width>),
    /// String literal: `"text"`.
    Text(Rc<str>),
    /// Operator or bracket.
    Punct(&'static str),
    /// C source between braces; the token's span covers the source.
    C,
    /// `#` at the beginning of a line.
    Hash,
    /// Malformed number. The parser reports it where it is used, because a macro for C may contain it.
    NoNumber(Rc<str>),
    /// End of the program.
    End,
}

/// Width prefix of a number, before `w` or `s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Width {
    pub bits: u32,
    pub signed: bool,
}

impl TokenKind {
    /// True if the token is this name or punctuation.
    pub fn is(&self, text: &str) -> bool {
        match self {
            Self::Name(name) => &**name == text,
            Self::Punct(punct) => *punct == text,
            _ => false,
        }
    }
}

impl fmt::Display for TokenKind {
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
