//! Parser of tutorials into blocks: files, commands and outputs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Parsed page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Blocks in order.
    pub blocks: Vec<Block>,
}

/// Content between two fences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    /// Whole file.
    File {
        /// Path in the reader's folder.
        name: String,
        /// Content.
        text: String,
    },
    /// Commands; a command over several lines is joined.
    Commands(Vec<String>),
    /// Output of the commands before.
    Prints {
        /// Lines of output.
        lines: Vec<String>,
        /// Numbers match any number.
        about: bool,
    },
    /// Any other block.
    Other,
}

impl Page {
    /// Parses a page.
    ///
    /// # Panics
    /// Panics if the file can't be read, a block does not end, or a file's name is missing in the text before it.
    #[must_use]
    pub fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let (mut blocks, mut open): (Vec<Block>, Option<(String, String)>) = (Vec::new(), None);
        let mut before = String::new();
        for line in text.lines() {
            match (&mut open, line.strip_prefix("```")) {
                (None, Some(info)) => open = Some((info.to_owned(), String::new())),
                (Some((info, text)), Some("")) => {
                    let block = block(info, std::mem::take(text));
                    if let Block::File { name, .. } = &block {
                        let named = before.contains(&format!("`{name}`"));
                        assert!(named, "{}: the text before the block does not name `{name}`", path.display());
                    }
                    blocks.push(block);
                    (open, before) = (None, String::new());
                }
                (Some((_, text)), _) => {
                    text.push_str(line);
                    text.push('\n');
                }
                (None, None) => {
                    before.push_str(line);
                    before.push('\n');
                }
            }
        }
        assert!(open.is_none(), "{}: unterminated block", path.display());
        Self { blocks }
    }

    /// Differences between the page's files and those of a folder.
    #[must_use]
    pub fn differences(&self, folder: &Path) -> Vec<String> {
        let mut differ = Vec::new();
        let mut shown = BTreeSet::new();
        for block in &self.blocks {
            let Block::File { name, text } = block else { continue };
            shown.insert(name.clone());
            match std::fs::read_to_string(folder.join(name)) {
                Ok(kept) if as_shown(name, &kept) == *text => {}
                Ok(kept) => differ.push(first_difference(name, text, &as_shown(name, &kept))),
                Err(error) => differ.push(format!("{name}: {error}")),
            }
        }
        let hidden = tracked(folder).into_iter().filter(|name| !shown.contains(name));
        differ.extend(hidden.map(|name| format!("{name}: the page does not show it")));
        differ
    }
}

fn block(info: &str, text: String) -> Block {
    match info.split_once(' ') {
        None if info == "sh" => Block::Commands(commands(&text)),
        None if info == "text" => Block::Prints { lines: lines(&text), about: false },
        Some(("text", "about")) => Block::Prints { lines: lines(&text), about: true },
        Some((_, name)) => Block::File { name: name.to_owned(), text },
        None => Block::Other,
    }
}

fn lines(text: &str) -> Vec<String> {
    text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
}

fn commands(text: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    lines(&joined).into_iter().filter(|line| !line.starts_with('#')).collect()
}

/// Manifest as a page shows it: with paths to the workspace from the reader's folder, which is beside it, and without
/// `publish = false` and the last section, which turns tests off.
fn as_shown(name: &str, kept: &str) -> String {
    if name != "Cargo.toml" {
        return kept.to_owned();
    }
    let kept = kept.split_once("\n[[bin]]\n").map_or(kept, |(before, _)| before);
    kept.replace("publish = false\n", "").replace("\"../../", "\"../pathcall/")
}

fn first_difference(name: &str, shown: &str, kept: &str) -> String {
    let at = shown.lines().zip(kept.lines()).take_while(|(shown, kept)| shown == kept).count();
    let line = |text: &str| text.lines().nth(at).unwrap_or("the end").to_owned();
    format!("{name}:{}: the page has `{}`, the file `{}`", at + 1, line(shown), line(kept))
}

/// Files of the folder that git tracks or would track.
fn tracked(folder: &Path) -> Vec<String> {
    if !folder.is_dir() {
        return Vec::new();
    }
    let listed = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").arg("-C").arg(folder).args(listed).output().expect("git");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).expect("names");
    names.lines().filter(|name| PathBuf::from(folder).join(name).is_file()).map(str::to_owned).collect()
}
