//! Line counts of source text.

/// Number of lines of a text, in P4 or C.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lines {
    /// Lines with code.
    pub code: usize,
    /// All lines, blank lines and comments included.
    pub all: usize,
}

impl std::ops::AddAssign for Lines {
    fn add_assign(&mut self, other: Self) {
        self.code += other.code;
        self.all += other.all;
    }
}

impl Lines {
    /// Counts the lines of a text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let (mut lines, mut comment) = (Self::default(), false);
        for line in text.lines() {
            lines.all += 1;
            lines.code += usize::from(has_code(line, &mut comment));
        }
        lines
    }
}

/// True if the line contains code, not only blanks and comments. `comment` says whether the line begins within a block
/// comment, and is updated for the next line.
fn has_code(line: &str, comment: &mut bool) -> bool {
    let (mut found, mut string, mut rest) = (false, false, line);
    while let Some(character) = rest.chars().next() {
        let mut step = character.len_utf8();
        if *comment {
            if rest.starts_with("*/") {
                (*comment, step) = (false, 2);
            }
        } else if string {
            if rest.starts_with("\\\"") {
                step = 2;
            }
            string = character != '"';
        } else if rest.starts_with("//") {
            return found;
        } else if rest.starts_with("/*") {
            (*comment, step) = (true, 2);
        } else {
            string = character == '"';
            found |= !character.is_whitespace();
        }
        rest = &rest[step..];
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_blank_lines_are_not_counted() {
        let text =
            "// a\n\nint a; // b\n/* c\n d */ int b;\n\t\n/* e */ /* f */\nx = \"// no \\\" comment\"; /*\n*/\ny;";
        assert_eq!(Lines::of(text), Lines { code: 4, all: 10 });
        assert_eq!(Lines::of(""), Lines::default());
    }
}
