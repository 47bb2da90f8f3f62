//! Scanner of one source file.

use super::{Token, TokenKind, Width};
use crate::check::Num;
use crate::diag::{Diagnostic, Sink};
use crate::ir::SourceSpan;

/// Punctuation, longest first, as the first match is taken. `>>` is absent: the parser joins two `>` where no type
/// ends.
const PUNCTUATION: [&str; 44] = [
    "&&&", "|+|", "|-|", "...", "&&", "||", "==", "!=", "<=", ">=", "<<", "++", "..", "->", "{", "}", "(", ")", "[",
    "]", "<", ">", ";", ":", ",", ".", "=", "+", "-", "*", "/", "%", "&", "|", "^", "~", "!", "?", "@", "$", "`", "\\",
    "'", "#",
];

/// Scanner.
#[derive(Clone)]
pub(crate) struct Scanner<'a> {
    text: &'a str,
    file: u16,
    at: usize,
    line_begins: bool,
    /// Number of open braces.
    pub depth: usize,
    /// Tokens seen so far of the beginning of a C block.
    c: COpening,
    /// True if the next token is a C block.
    c_next: bool,
}

/// Progress through the tokens that begin a C block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum COpening {
    None,
    /// After `state`; a `{` opens the block.
    State,
    /// After `remote_handler`.
    Handler,
    /// Within the parameter list.
    Parameters,
    /// After the parameter list; a `{` opens the block.
    Body,
}

impl<'a> Scanner<'a> {
    pub fn new(file: u16, text: &'a str) -> Self {
        Self { text, file, at: 0, line_begins: true, depth: 0, c: COpening::None, c_next: false }
    }

    /// Scanner of a part of a file, for a directive.
    pub fn part(text: &'a str, part: SourceSpan) -> Self {
        let part_end = part.end as usize;
        // A depth above 0 disables C blocks, which exist at the top level only.
        Self { at: part.start as usize, line_begins: false, depth: 1, ..Self::new(part.file, &text[..part_end]) }
    }

    /// Next token; [`TokenKind::End`] at the end. Invalid characters are reported and skipped.
    pub fn next(&mut self, sink: &mut Sink) -> Token {
        if self.c_next {
            return self.c();
        }
        let before = self.at;
        let first = self.space(sink) || self.line_begins;
        self.line_begins = false;
        let start = self.at;
        let joined = start == before && !first;
        loop {
            let start = self.at;
            let rest = &self.text[start..];
            let Some(c) = rest.chars().next() else {
                return Token { kind: TokenKind::End, at: self.span(start), joined: false, first: true };
            };
            let kind = if c.is_ascii_alphabetic() || c == '_' {
                Some(TokenKind::Name(self.take(|c| c.is_ascii_alphanumeric() || c == '_').into()))
            } else if c.is_ascii_digit() {
                Some(self.number())
            } else if c == '"' {
                self.string(sink)
            } else if let Some(punct) = PUNCTUATION.iter().find(|punct| rest.starts_with(**punct)) {
                self.at += punct.len();
                Some(if *punct == "#" && first { TokenKind::Hash } else { TokenKind::Punct(punct) })
            } else {
                self.at += c.len_utf8();
                sink.push(Diagnostic::new(self.span(start), format!("unexpected character `{}`", c.escape_debug())));
                None
            };
            if let Some(kind) = kind {
                self.open(&kind);
                return Token { kind, at: self.span(start), joined, first };
            }
            self.space(sink);
        }
    }

    /// Skips the rest of the line; returns its span.
    pub fn rest_of_line(&mut self) -> SourceSpan {
        let start = self.at;
        let mut end = start;
        loop {
            let length = self.text[end..].find('\n').unwrap_or(self.text.len() - end);
            end += length;
            let continued = self.text[start..end].trim_end_matches('\r').ends_with('\\');
            if !continued || end == self.text.len() {
                break;
            }
            end += 1;
        }
        self.at = end;
        self.span(start)
    }

    /// Tracks the tokens that begin a C block.
    fn open(&mut self, kind: &TokenKind) {
        let top = self.depth == 0;
        self.c = match self.c {
            COpening::State | COpening::Body if kind.is("{") => {
                self.c_next = true;
                COpening::None
            }
            COpening::Handler if kind.is("(") => COpening::Parameters,
            COpening::Parameters if kind.is(")") => COpening::Body,
            COpening::Parameters => COpening::Parameters,
            _ if top && kind.is("state") => COpening::State,
            _ if top && kind.is("remote_handler") => COpening::Handler,
            _ => COpening::None,
        };
        if kind.is("{") {
            self.depth += 1;
        } else if kind.is("}") {
            self.depth = self.depth.saturating_sub(1);
        }
    }

    /// Scans a C block up to its closing brace; braces in strings, characters and comments are ignored.
    fn c(&mut self) -> Token {
        self.c_next = false;
        let (start, bytes) = (self.at, self.text.as_bytes());
        let mut depth = 0_usize;
        while let Some(&byte) = bytes.get(self.at) {
            match byte {
                b'{' => depth += 1,
                b'}' if depth == 0 => break,
                b'}' => depth -= 1,
                b'"' | b'\'' => {
                    self.at += 1;
                    while bytes.get(self.at).is_some_and(|b| *b != byte && *b != b'\n') {
                        self.at += if bytes[self.at] == b'\\' { 2 } else { 1 };
                    }
                }
                b'/' if bytes.get(self.at + 1) == Some(&b'/') => {
                    while bytes.get(self.at + 1).is_some_and(|b| *b != b'\n') {
                        self.at += 1;
                    }
                }
                b'/' if bytes.get(self.at + 1) == Some(&b'*') => {
                    let comment = &bytes[self.at + 2..];
                    let length = comment.windows(2).position(|end| end == b"*/").map_or(comment.len(), |at| at + 2);
                    self.at += 1 + length;
                }
                _ => {}
            }
            self.at += 1;
        }
        self.at = self.at.min(bytes.len());
        while !self.text.is_char_boundary(self.at) {
            self.at += 1;
        }
        Token { kind: TokenKind::C, at: self.span(start), joined: false, first: false }
    }

    /// Skips spaces and comments; true if a new line began.
    fn space(&mut self, sink: &mut Sink) -> bool {
        let mut line = false;
        loop {
            let rest = &self.text[self.at..];
            let blank = rest.len() - rest.trim_start().len();
            if blank > 0 {
                line |= rest[..blank].contains('\n');
                self.at += blank;
            } else if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if let Some(comment) = rest.strip_prefix("/*") {
                let end = comment.find("*/");
                if end.is_none() {
                    let start = self.at as u32;
                    let at = SourceSpan { file: self.file, start, end: start + 2 };
                    sink.push(Diagnostic::new(at, "unterminated comment").hint("close it with `*/`"));
                }
                let length = end.map_or(comment.len(), |end| end + 2);
                line |= comment[..length].contains('\n');
                self.at += 2 + length;
            } else if rest.starts_with("\\\n") || rest.starts_with("\\\r\n") {
                self.at += rest.find('\n').map_or(1, |newline| newline + 1);
            } else {
                return line;
            }
        }
    }

    fn take(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let rest = &self.text[self.at..];
        let length = rest.find(|c| !belongs(c)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    /// Scans a number: `123`, `0xff`, `8w0b1010_1010`, `4s7` (§6.3.3.2).
    fn number(&mut self) -> TokenKind {
        let word = self.take(|c| c.is_ascii_alphanumeric() || c == '_');
        let mark = word.find(['w', 's']).filter(|at| word[..*at].bytes().all(|b| b.is_ascii_digit()));
        let (width, digits) = match mark {
            Some(at) => (Some((&word[..at], word.as_bytes()[at] == b's')), &word[at + 1..]),
            None => (None, word),
        };
        let (radix, digits) = match digits.as_bytes() {
            [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
            [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
            [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
            [b'0', b'd' | b'D', ..] => (10, &digits[2..]),
            _ => (10, digits),
        };
        let digits: String = digits.chars().filter(|c| *c != '_').collect();
        let right = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
        let value = u128::from_str_radix(&digits, radix).ok();
        let width = width.map(|(bits, signed)| bits.parse().map(|bits| Width { bits, signed }));
        match (right, value, width) {
            (true, Some(value), None) => TokenKind::Number(Num::from(value), None),
            (true, Some(value), Some(Ok(width))) => TokenKind::Number(Num::from(value), Some(width)),
            _ => TokenKind::NoNumber(word.into()),
        }
    }

    /// Scans a string up to the closing quote on the same line; `\"` and `\\` are escapes.
    fn string(&mut self, sink: &mut Sink) -> Option<TokenKind> {
        let start = self.at;
        let mut text = String::new();
        let mut rest = self.text[start + 1..].char_indices();
        while let Some((at, c)) = rest.next() {
            match c {
                '"' => {
                    self.at = start + 1 + at + 1;
                    return Some(TokenKind::Text(text.into()));
                }
                '\n' => break,
                '\\' => match rest.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, escaped)) => text.push(escaped),
                    None => break,
                },
                _ => text.push(c),
            }
        }
        let line = &self.text[start..];
        self.at = start + line.find('\n').unwrap_or(line.len());
        sink.push(Diagnostic::new(self.span(start), "unterminated string").hint("close it with `\"`"));
        Some(TokenKind::Text(text.into()))
    }

    fn span(&self, start: usize) -> SourceSpan {
        SourceSpan { file: self.file, start: start as u32, end: self.at as u32 }
    }
}
