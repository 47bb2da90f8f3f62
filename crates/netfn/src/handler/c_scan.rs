//! Scanner for names in C text that skips comments and strings.

/// Whether the C text contains `name` followed by `(`, outside comments and strings.
#[must_use]
pub(super) fn calls_function(c: &str, name: &str) -> bool {
    let mut rest = c;
    while let Some(next) = rest.chars().next() {
        if let Some(comment) = rest.strip_prefix("//") {
            rest = comment.split_once('\n').map_or("", |(_, rest)| rest);
        } else if let Some(comment) = rest.strip_prefix("/*") {
            rest = comment.split_once("*/").map_or("", |(_, rest)| rest);
        } else if next == '"' || next == '\'' {
            rest = skip_quoted(&rest[1..], next);
        } else if next.is_ascii_alphanumeric() || next == '_' {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            let (word, tail) = rest.split_at(end);
            if word == name && tail.trim_start().starts_with('(') {
                return true;
            }
            rest = tail;
        } else {
            rest = &rest[next.len_utf8()..];
        }
    }
    false
}

fn skip_quoted(text: &str, quote: char) -> &str {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return &text[at + 1..],
            _ => {}
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_in_comments_and_strings_are_ignored() {
        let c =
            "// remote_start()\n/* remote_start() */ \"remote_start() \\\" remote_start()\" '\\'' xremote_start() é";
        assert!(!calls_function(c, "remote_start"));
        assert!(!calls_function("int remote_start; remote_start2(1)", "remote_start"));
        assert!(calls_function("static void remote_start (void) {}", "remote_start"));
        assert!(
            !calls_function("/* never ends", "a")
                && !calls_function("\"never ends", "a")
                && !calls_function("// a(", "a")
        );
    }
}
