//! Error messages in the sources, and their quotes in `docs/errors.md`.
//!
//! Variable parts are `…` in both: an argument of a format string in the sources, and that character on the page.

use super::tree::{read, tracked};

/// Crates whose errors users can get.
const USER_CRATES: [&str; 22] = [
    "auth", "build", "cli", "console", "control", "demo", "driver", "element", "endpoint", "live", "netfn", "p4",
    "pathcall", "pipe", "place", "plot", "program", "rpc", "sandbox", "shm", "testbed", "xdp",
];

/// Message on the page, with its code if present.
#[derive(Debug, PartialEq, Eq)]
pub struct Quoted {
    /// Text of the message.
    pub text: String,
    /// Content of the next cell: a gRPC code, or something else.
    pub beside: String,
}

/// Error or status in the sources.
#[derive(Debug)]
pub struct ErrorMessage {
    /// Source file.
    pub file: String,
    /// Text of the message.
    pub text: String,
    /// Code of a status.
    pub code: Option<String>,
}

/// Messages in the first cells of the page's tables.
pub fn quoted(page: &str) -> Vec<Quoted> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let row = |row: &str| {
        let extra = row.len() - row.trim_start_matches('`').len();
        let (text, rest) = row[extra..].split_once(&format!("{} |", "`".repeat(extra + 1)))?;
        let beside = rest.split('|').next().unwrap_or_default().trim().to_owned();
        Some(Quoted { text: text.trim().to_owned(), beside })
    };
    rows.filter_map(row).collect()
}

/// All string literals in the sources of the product, with `…` for arguments.
pub fn literals() -> Vec<String> {
    sources().iter().flat_map(|(_, text)| strings(text).map(|(_, string)| string)).collect()
}

/// Messages of error types that users can get, and of statuses that end calls.
pub fn error_messages() -> Vec<ErrorMessage> {
    let mut found = Vec::new();
    for (file, text) in sources() {
        for (at, string) in strings(&text) {
            let before = text[..at].trim_end();
            let code = ["", "format!("].iter().find_map(|wrapped| status(before.strip_suffix(wrapped)?.trim_end()));
            if before.ends_with("#[error(") || code.is_some() {
                found.push(ErrorMessage { file: file.clone(), text: string, code });
            }
        }
    }
    found
}

/// Code of the status whose constructor ends here, as in `Status::not_found(`.
fn status(before: &str) -> Option<String> {
    let (_, name) = before.strip_suffix('(')?.rsplit_once("Status::")?;
    let is_code = name != "new" && !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    is_code.then(|| name.to_uppercase())
}

/// Text without the decorations that any message may have.
pub fn bare(text: &str) -> &str {
    text.trim_matches(['…', ' ', ':', '(', ')', ','])
}

/// Sources of these crates without tests, by name.
fn sources() -> Vec<(String, String)> {
    let met = |file: &String| {
        let mut parts = file.split('/');
        let in_a_crate = parts.next() == Some("crates") && parts.next().is_some_and(|name| USER_CRATES.contains(&name));
        in_a_crate
            && parts.next() == Some("src")
            && file.ends_with(".rs")
            && !file.contains("test")
            && !file.contains("mutant")
    };
    let of_testbed = |file: &String| file.starts_with("crates/testbed/src/") && file.ends_with(".rs");
    let files = tracked().into_iter().filter(|file| met(file) || of_testbed(file));
    files
        .filter_map(|file| {
            read(&file)
                .map(|text| (file, text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned()))
        })
        .collect()
}

/// String literals of a Rust file, with their positions.
fn strings(text: &str) -> impl Iterator<Item = (usize, String)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let start = at + text[at..].find(['"', '\'', '/'])?;
            let rest = &text[start..];
            at = if rest.starts_with("//") {
                start + rest.find('\n').unwrap_or(rest.len())
            } else if rest.starts_with("'\"'") || rest.starts_with("'\\") {
                start + 3
            } else if let Some(behind) = rest.strip_prefix('"') {
                let end = end_of(behind)?;
                at = start + 1 + end + 1;
                return Some((start, normal(&behind[..end])));
            } else {
                start + 1
            };
        }
    })
}

/// End of the literal whose text begins here.
fn end_of(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(at, c)| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends.then_some(at)
    })
}

/// First line of a literal as it is printed, with `…` for arguments.
fn normal(literal: &str) -> String {
    let (mut text, mut rest) = (String::new(), literal);
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\\' => {
                let escaped = rest.chars().next().unwrap_or_default();
                rest = rest.get(escaped.len_utf8()..).unwrap_or_default();
                match escaped {
                    '\n' => rest = rest.trim_start(),
                    'n' => return text,
                    escaped => text.push(escaped),
                }
            }
            '{' | '}' if rest.starts_with(c) => {
                text.push(c);
                rest = &rest[1..];
            }
            '{' => {
                text.push('…');
                rest = rest.split_once('}').map_or("", |(_, behind)| behind);
            }
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_found_as_printed() {
        let source = concat!(
            "// \"none\"\nlet quote = '\"'; a(\"one {x:?} \\\"two\\\"\"); b(\"long \\\n        {{line}}\");",
            "\n#[error(\n    \"{0} is\\nhere\"\n)]"
        );
        let found: Vec<String> = strings(source).map(|(_, string)| string).collect();
        assert_eq!(found, ["one … \"two\"", "long {line}", "… is"]);
    }

    #[test]
    fn page_rows_are_found() {
        let page =
            "| says | means |\n|---|---|\n| `a … b` | CODE | c |\n| ``d `e` f`` | |\n| `` `g` h `` | x |\nno `row`\n";
        let texts: Vec<(String, String)> = quoted(page).into_iter().map(|row| (row.text, row.beside)).collect();
        let row = |text: &str, beside: &str| (text.to_owned(), beside.to_owned());
        assert_eq!(texts, [row("a … b", "CODE"), row("d `e` f", ""), row("`g` h", "x")]);
    }
}
