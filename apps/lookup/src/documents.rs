//! Documents: text files below a folder, their words, and their display.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::pb::Found;

/// Limit of a document's bytes; larger files are skipped.
const BYTES_MAX: u64 = 1 << 20;
/// Limit of a displayed line in characters.
const LINE_MAX: usize = 120;

/// Text with its path below the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Document {
    pub(crate) path: String,
    pub(crate) text: String,
    /// All words of the text.
    pub(crate) words: BTreeSet<String>,
}

impl Document {
    pub(crate) fn new(path: String, text: String) -> Self {
        let words = words(&text);
        Self { path, text, words }
    }
}

/// All text files below a folder, by path, except those in hidden folders and build outputs.
pub(crate) fn read(root: &Path) -> Result<Vec<Document>> {
    let mut documents = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        let entries =
            fs::read_dir(&directory).with_context(|| format!("cannot read documents in {}", directory.display()))?;
        for entry in entries {
            let (entry, path) = entry.map(|entry| (entry.file_name(), entry.path()))?;
            let name = entry.to_string_lossy();
            if name.starts_with('.') || name == "target" {
                continue;
            }
            // Vanished files and files that are not UTF-8 are skipped.
            let Ok(about) = fs::symlink_metadata(&path) else { continue };
            if about.is_dir() {
                directories.push(path);
            } else if about.is_file() && about.len() <= BYTES_MAX {
                let Ok(text) = fs::read_to_string(&path) else { continue };
                let path = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
                documents.push(Document::new(path, text));
            }
        }
    }
    ensure!(!documents.is_empty(), "no text files in {}", root.display());
    documents.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(documents)
}

/// Words of a text: runs of at least two letters, digits and underscores, in lower case.
pub(crate) fn words(text: &str) -> BTreeSet<String> {
    let runs = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    runs.filter(|run| run.chars().nth(1).is_some()).map(str::to_lowercase).collect()
}

/// Displayed lines of a found document.
pub(crate) fn show(document: &Document, query: &[String]) -> Found {
    let mut lines = document.text.lines().map(str::trim).filter(|line| !line.is_empty());
    let title = lines.clone().next().unwrap_or_default().trim_start_matches(['#', '/', '!', ' ']);
    let wanted = query.first();
    let snippet = lines.find(|line| wanted.is_some_and(|word| words(line).contains(word))).unwrap_or_default();
    Found { path: document.path.clone(), title: cut(title), snippet: cut(snippet) }
}

fn cut(line: &str) -> String {
    line.chars().take(LINE_MAX).collect()
}

/// Expected result of a look-up, from a scan of all documents.
pub(crate) fn scan(documents: &[Document], query: &[String], limit: usize) -> Vec<Found> {
    let has_all = |document: &&Document| query.iter().all(|word| document.words.contains(word));
    documents.iter().filter(has_all).take(limit).map(|document| show(document, query)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_lower_case_runs() {
        let expected = ["and", "flow_id", "of", "über", "x2"].map(str::to_owned);
        assert_eq!(words("Über-x2, of a flow_id; AND 7").into_iter().collect::<Vec<_>>(), {
            let mut sorted = expected.to_vec();
            sorted.sort();
            sorted
        });
    }

    #[test]
    fn document_shows_title_and_matching_line() {
        let document = Document::new("a.md".into(), "\n# Title\nSofar.\n  So far, so good\n".into());
        let found = show(&document, &["so".to_owned(), "title".to_owned()]);
        assert_eq!((&*found.title, &*found.snippet), ("Title", "So far, so good"));
        let long = Document::new("b".into(), "ü".repeat(500));
        assert_eq!(show(&long, &[]).title.chars().count(), LINE_MAX);
    }

    #[test]
    fn only_text_files_are_read() {
        let root = std::env::temp_dir().join(format!("lookup-documents-{}", std::process::id()));
        fs::create_dir_all(root.join("in")).expect("a directory");
        fs::create_dir_all(root.join(".git")).expect("a directory");
        for (path, bytes) in [("b.md", &b"text"[..]), ("in/a.rs", b"code"), (".git/x", b"x"), ("binary", &[0xff, 0xfe])]
        {
            fs::write(root.join(path), bytes).expect("written");
        }
        let paths: Vec<String> = read(&root).expect("read").into_iter().map(|document| document.path).collect();
        fs::remove_dir_all(&root).expect("removed");
        assert_eq!(paths, ["b.md", "in/a.rs"]);
        assert!(read(&root).unwrap_err().to_string().starts_with("cannot read documents in "));
    }
}
