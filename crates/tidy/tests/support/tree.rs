//! Files of this repository.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Path of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Names of all tracked files.
///
/// # Panics
/// Panics without git, or outside a repository.
pub fn tracked() -> Vec<String> {
    let output = Command::new("git").arg("-C").arg(root()).arg("ls-files").output().expect("git");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("names").lines().map(str::to_owned).collect()
}

/// Content of a file; `None` if it is not text.
pub fn read(file: &str) -> Option<String> {
    std::fs::read_to_string(root().join(file)).ok()
}

/// Checks that the page equals `made`; with `UPDATE=1`, writes it instead.
///
/// # Panics
/// Panics if the page differs, with instructions.
pub fn is_page(page: &str, made: &str) {
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(root().join(page), made).expect("the page can be written");
        return;
    }
    let there = read(page).unwrap_or_default();
    let differs = there.lines().zip(made.lines()).find(|(there, made)| there != made);
    assert!(
        there == made,
        "{page} is stale: UPDATE=1 cargo test -p pathcall-tidy regenerates it; first different line: {differs:?}"
    );
}

/// Positions of `word` as a whole word in `text`.
pub fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |&at| !text[..at].ends_with(part) && !text[at + word.len()..].starts_with(part))
}
