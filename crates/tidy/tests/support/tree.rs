//! The files of this repository.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the repository is.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The names of all tracked files.
///
/// # Panics
/// Without git, or outside a repository.
pub fn tracked() -> Vec<String> {
    let output = Command::new("git").arg("-C").arg(root()).arg("ls-files").output().expect("git");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("names").lines().map(str::to_owned).collect()
}

/// What is in a file, if it is text.
pub fn read(file: &str) -> Option<String> {
    std::fs::read_to_string(root().join(file)).ok()
}

/// The page is what `made` says; with `UPDATE=1` it becomes that.
///
/// # Panics
/// If it is not, with what to do.
pub fn is_page(page: &str, made: &str) {
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(root().join(page), made).expect("the page can be written");
        return;
    }
    let there = read(page).unwrap_or_default();
    let differs = there.lines().zip(made.lines()).find(|(there, made)| there != made);
    assert!(
        there == made,
        "{page} is stale: UPDATE=1 cargo test -p pathcall-tidy writes it anew; the first line that differs: {differs:?}"
    );
}

/// Where `word` stands in `text` as a whole word.
pub fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |&at| !text[..at].ends_with(part) && !text[at + word.len()..].starts_with(part))
}
