//! Which names a piece of C has: enough of its tokens to tell names from comments and strings.

/// Whether `name` stands in this C with a `(` behind it.
#[must_use]
pub(super) fn calls(c: &str, name: &str) -> bool {
    let mut rest = c;
    while let Some(next) = rest.chars().next() {
        if let Some(comment) = rest.strip_prefix("//") {
            rest = comment.split_once('\n').map_or("", |(_, rest)| rest);
        } else if let Some(comment) = rest.strip_prefix("/*") {
            rest = comment.split_once("*/").map_or("", |(_, rest)| rest);
        } else if next == '"' || next == '\'' {
            rest = behind_quote(&rest[1..], next);
        } else if next.is_ascii_alphanumeric() || next == '_' {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            let (word, behind) = rest.split_at(end);
            if word == name && behind.trim_start().starts_with('(') {
                return true;
            }
            rest = behind;
        } else {
            rest = &rest[next.len_utf8()..];
        }
    }
    false
}

fn behind_quote(text: &str, quote: char) -> &str {
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
    fn names_in_comments_and_strings_are_none() {
        let c =
            "// remote_start()\n/* remote_start() */ \"remote_start() \\\" remote_start()\" '\\'' xremote_start() é";
        assert!(!calls(c, "remote_start"));
        assert!(!calls("int remote_start; remote_start2(1)", "remote_start"));
        assert!(calls("static void remote_start (void) {}", "remote_start"));
        assert!(!calls("/* never ends", "a") && !calls("\"never ends", "a") && !calls("// a(", "a"));
    }
}
