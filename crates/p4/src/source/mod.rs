//! Source files of a program: main file, includes, and built-in includes.

mod condition;
mod directive;
mod expand;
mod lines;
mod preprocess;

pub use lines::Lines;
pub(crate) use preprocess::read;

use crate::ir::SourceSpan;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Largest source file, bytes.
pub const FILE_BYTES_MAX: u64 = 4 << 20;
/// Largest number of files of a program; a file included twice counts twice.
pub const FILES_MAX: usize = 256;

/// Built-in files for `#include <…>`.
const BUILT_IN: [(&str, &str); 4] = [
    ("core.p4", include_str!("../../p4include/core.p4")),
    ("v1model.p4", include_str!("../../p4include/v1model.p4")),
    ("pipeline.p4", include_str!("../../p4include/pipeline.p4")),
    ("inet.p4", include_str!("../../p4include/inet.p4")),
];

/// Input of the compiler.
#[derive(Debug, Clone)]
pub enum Input {
    /// File path.
    File(PathBuf),
    /// Text with a name; its includes are relative to the name.
    Text {
        /// Name.
        name: String,
        /// Text.
        text: String,
    },
}

impl From<&Path> for Input {
    fn from(path: &Path) -> Self {
        Self::File(path.to_owned())
    }
}

impl<N: Into<String>, T: Into<String>> From<(N, T)> for Input {
    fn from((name, text): (N, T)) -> Self {
        Self::Text { name: name.into(), text: text.into() }
    }
}

/// All files of a program in the order of reading; [`SourceSpan::file`] is an index into them.
#[derive(Debug, Default)]
pub struct Sources {
    files: Vec<File>,
    includes: Vec<PathBuf>,
    /// Macros that are defined before the first line.
    defines: Vec<(String, String)>,
}

#[derive(Debug)]
struct File {
    name: String,
    /// Directory of the file, which is searched first for its includes; `None` for built-in files.
    folder: Option<PathBuf>,
    text: Rc<str>,
}

impl Sources {
    /// Empty set of sources; includes are searched in the including file's directory, then in `includes`.
    #[must_use]
    pub fn new(includes: Vec<PathBuf>) -> Self {
        Self { files: Vec::new(), includes, defines: Vec::new() }
    }

    /// Defines a macro, as `#define name value` before the first line.
    #[must_use]
    pub fn define(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.defines.push((name.into(), value.into()));
        self
    }

    /// Name of a file, as it was given.
    #[must_use]
    pub fn name(&self, file: u16) -> &str {
        self.files.get(usize::from(file)).map_or("", |file| &file.name)
    }

    /// Text of a file.
    #[must_use]
    pub fn text(&self, file: u16) -> &str {
        self.files.get(usize::from(file)).map_or("", |file| &file.text)
    }

    /// Text of a file, shared so that more files can be added meanwhile.
    pub(crate) fn shared(&self, file: u16) -> Rc<str> {
        Rc::clone(&self.files[usize::from(file)].text)
    }

    /// Text of a span.
    #[must_use]
    pub fn slice(&self, at: SourceSpan) -> &str {
        self.text(at.file).get(at.start as usize..at.end as usize).unwrap_or("")
    }

    /// Line and column of a span's first character, both from 1.
    #[must_use]
    pub fn position(&self, at: SourceSpan) -> (usize, usize) {
        let text = self.text(at.file);
        let before = text.get(..at.start as usize).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (1 + before.matches('\n').count(), 1 + before[line_start..].chars().count())
    }

    /// Span at a line and column, both from 1, of the file with this name; the first one if the file was read twice.
    #[must_use]
    pub fn at(&self, name: &str, line: usize, column: usize) -> Option<SourceSpan> {
        let file = self.files.iter().position(|file| file.name == name)?;
        let text = &self.files[file].text;
        let before: usize = text.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum();
        let line = text.get(before..)?.lines().next()?;
        let within = line.char_indices().map(|(at, _)| at).nth(column.saturating_sub(1)).unwrap_or(line.len());
        let end = line[within..].find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(line.len() - within);
        let start = before + within;
        Some(SourceSpan { file: file as u16, start: start as u32, end: (start + end.max(1)) as u32 })
    }

    /// Name and text of each file that is not built in, without repeats.
    pub fn written(&self) -> impl Iterator<Item = (&str, &str)> {
        let once = |(at, file): &(usize, &File)| {
            let is_built_in = file.folder.is_none() && file.name.starts_with('<');
            !is_built_in && self.files[..*at].iter().all(|before| before.name != file.name)
        };
        self.files.iter().enumerate().filter(once).map(|(_, file)| (&*file.name, &*file.text))
    }

    /// Reads the main file.
    ///
    /// # Errors
    /// Reason why the file cannot be read.
    pub(crate) fn open(&mut self, input: Input) -> Result<u16, String> {
        match input {
            Input::File(path) => {
                let text = load(&path)?;
                self.add(path.display().to_string(), path.parent().map(Path::to_owned), text)
            }
            Input::Text { name, text } => {
                let folder = Path::new(&name).parent().map(Path::to_owned);
                self.add(name, folder, text)
            }
        }
    }

    /// Reads an include of file `from`. A quoted name is searched in the file's directory, then in the include
    /// directories; a `<name>` is searched among the built-in files first.
    ///
    /// # Errors
    /// Reason why the file cannot be read.
    pub(crate) fn include(&mut self, from: u16, name: &str, system: bool) -> Result<u16, String> {
        let built_in = BUILT_IN.iter().find(|(known, _)| *known == name);
        if let Some((name, text)) = built_in.filter(|_| system) {
            return self.add(format!("<{name}>"), None, (*text).to_owned());
        }
        let beside = self.files[usize::from(from)].folder.clone().filter(|_| !system);
        for folder in beside.iter().chain(&self.includes) {
            let path = folder.join(name);
            if path.is_file() {
                let text = load(&path)?;
                return self.add(path.display().to_string(), path.parent().map(Path::to_owned), text);
            }
        }
        match built_in {
            Some((name, _)) => Err(format!("file `{name}` not found; the built-in one is <{name}>")),
            None => Err(format!("file `{name}` not found")),
        }
    }

    fn add(&mut self, name: String, folder: Option<PathBuf>, text: String) -> Result<u16, String> {
        if self.files.len() >= FILES_MAX {
            return Err(format!("more than {FILES_MAX} files"));
        }
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(format!("`{name}` has {} bytes (at most {FILE_BYTES_MAX})", text.len()));
        }
        self.files.push(File { name, folder, text: text.into() });
        Ok((self.files.len() - 1) as u16)
    }
}

fn load(path: &Path) -> Result<String, String> {
    let length = std::fs::metadata(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?.len();
    if length > FILE_BYTES_MAX {
        return Err(format!("{} has {length} bytes (at most {FILE_BYTES_MAX})", path.display()));
    }
    std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))
}
