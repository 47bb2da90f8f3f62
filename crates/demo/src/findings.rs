//! What the demo has found so far: results that differ, and what its pictures are drawn from.

use std::path::PathBuf;

use pathcall_plot::{Bars, Group};

use crate::failure::Failure;

/// Gathers it, section after section.
pub(super) struct Findings {
    figures: PathBuf,
    /// Calls a second of each application, by each of its ways.
    rates: Vec<Group>,
    /// What is on each picture that was drawn, and where it is.
    pictures: Vec<(&'static str, PathBuf)>,
    differing: Vec<String>,
}

impl Findings {
    /// None; pictures go into this folder, which is made if it is not there.
    pub(super) fn new(figures: PathBuf) -> Result<Self, Failure> {
        std::fs::create_dir_all(&figures).map_err(|source| Failure::File { path: figures.clone(), source })?;
        Ok(Self { figures, rates: Vec::new(), pictures: Vec::new(), differing: Vec::new() })
    }

    /// An application's results, one way, are not those of another.
    pub(super) fn differs(&mut self, what: String) {
        self.differing.push(what);
    }

    /// An application made so many calls a second, one way.
    pub(super) fn rate(&mut self, application: &str, way: &str, calls_per_s: f64) {
        let bar = (way.to_owned(), calls_per_s);
        match self.rates.iter_mut().find(|group| group.name == application) {
            Some(group) => group.bars.push(bar),
            None => self.rates.push(Group { name: application.to_owned(), bars: vec![bar] }),
        }
    }

    /// Where a picture of this name goes; who asks draws it.
    pub(super) fn picture(&mut self, name: &str, shows: &'static str) -> PathBuf {
        let path = self.figures.join(name);
        self.pictures.push((shows, path.clone()));
        path
    }

    /// Draws what all sections gave a part of, and says where pictures are.
    pub(super) fn close(mut self) -> Result<String, Failure> {
        if !self.rates.is_empty() {
            let path = self.picture("applications.svg", "calls a second of each application, by each of its ways");
            Bars {
                title: "calls a second",
                about: "each application by each of its ways; its fastest is the full length; one run on one machine",
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
