//! Findings of the demo: differing results, and the data of its pictures.

use std::path::PathBuf;

use pathcall_plot::{BarGroup, Bars};

use crate::failure::Failure;

/// Columns of the demo's output.
pub(super) const COLUMNS_MAX: usize = 100;

/// Wraps a text at spaces to lines of at most [`COLUMNS_MAX`] characters.
pub(super) fn wrap(text: &str) -> String {
    let (mut wrapped, mut column) = (String::new(), 0);
    for word in text.split_whitespace() {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > COLUMNS_MAX {
            wrapped.push('\n');
            column = 0;
        } else if column > 0 {
            wrapped.push(' ');
            column += 1;
        }
        wrapped.push_str(word);
        column += width;
    }
    wrapped + "\n"
}

/// Verdict of a part, below its table: a sentence on the gain, and one on its limit.
pub(super) fn verdict(gain: &str, limit: &str) -> String {
    wrap(&format!("Gain: {gain}.")) + &wrap(&format!("No gain: {limit}."))
}

/// Comma-separated names, or `none`.
pub(super) fn names(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Collector of findings, section after section.
pub(super) struct Findings {
    figures: PathBuf,
    /// Calls per second of each application, by each path.
    rates: Vec<BarGroup>,
    /// Description and path of each picture.
    pictures: Vec<(&'static str, PathBuf)>,
    differing: Vec<String>,
}

impl Findings {
    /// Creates an empty collector; pictures go into this folder, which is created if missing.
    pub(super) fn new(figures: PathBuf) -> Result<Self, Failure> {
        std::fs::create_dir_all(&figures).map_err(|source| Failure::File { path: figures.clone(), source })?;
        Ok(Self { figures, rates: Vec::new(), pictures: Vec::new(), differing: Vec::new() })
    }

    /// Records a difference between the results of two paths.
    pub(super) fn differs(&mut self, what: String) {
        self.differing.push(what);
    }

    /// Compares the digest of a path's results with that of the reference. Returns the word for it, and records a
    /// difference.
    pub(super) fn compare(&mut self, of: &str, path: &str, got: &str, reference: (&str, &str)) -> &'static str {
        let (name, expected) = reference;
        if path == name {
            return "reference";
        }
        if got == expected {
            return "equal";
        }
        self.differs(format!("{of} ({path}): expected {expected} as {name}, got {got}"));
        "DIFFERS"
    }

    /// Records the calls per second of an application by one path.
    pub(super) fn rate(&mut self, application: &str, way: &str, calls_per_s: f64) {
        let bar = (way.to_owned(), calls_per_s);
        match self.rates.iter_mut().find(|group| group.name == application) {
            Some(group) => group.bars.push(bar),
            None => self.rates.push(BarGroup { name: application.to_owned(), bars: vec![bar] }),
        }
    }

    /// Registers a picture that the caller draws. Returns its path.
    pub(super) fn picture(&mut self, name: &str, shows: &'static str) -> PathBuf {
        let path = self.figures.join(name);
        self.pictures.push((shows, path.clone()));
        path
    }

    /// Draws the common picture, and returns a list of all pictures.
    pub(super) fn close(mut self) -> Result<String, Failure> {
        if !self.rates.is_empty() {
            let path = self.picture("applications.svg", "calls per second of each application, by each path");
            Bars {
                title: "calls per second",
                about: "each application by each path, scaled to its fastest path; one run on one machine",
                unit: "calls/s",
                groups: &self.rates,
            }
            .draw(&path)?;
        }
        if !self.differing.is_empty() {
            return Err(Failure::Differ(self.differing.join("; ")));
        }
        let widest = self.pictures.iter().map(|(shows, _)| shows.len()).max().unwrap_or(0);
        let line = |(shows, path): &(&str, PathBuf)| format!("  {shows:<widest$}  {}\n", path.display());
        Ok(self.pictures.iter().map(line).collect())
    }
}
