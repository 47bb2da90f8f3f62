//! Coverage of the five papers, part by part: code, tests and figures.
//!
//! A hand-written file of `docs/coverage` describes each paper. All items that it names must exist, and
//! `docs/coverage.md` is generated from it.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde::Deserialize;

use super::tree::{read, words};

/// Files of the papers, in the order of the page.
pub const PAPERS: [&str; 5] = ["netrpc", "netclone", "dpc", "clip", "leo"];

/// Description of one paper.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// Name of the authors' system.
    pub system: String,
    /// Title and venue.
    pub title: String,
    /// Name of the ability in Pathcall.
    pub ability: String,
    /// Page of `docs` that explains the ability.
    pub page: String,
    /// Sections, numbered tables and numbered figures, in the paper's order.
    #[serde(rename = "part")]
    pub parts: Vec<Part>,
}

/// Section, table or figure of a paper.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Number: `§5.1`, `Fig. 8`.
    pub at: String,
    /// Short description of the content.
    pub what: String,
    /// Implementation state.
    pub state: State,
    /// Files or folders, with an item after `#` if one is meant.
    #[serde(default)]
    pub code: Vec<String>,
    /// Tests, as `file::function`.
    #[serde(default)]
    pub tests: Vec<String>,
    /// Figures of the benchmark.
    #[serde(default)]
    pub bench: Vec<String>,
    /// Missing or different parts, with the reason.
    #[serde(default)]
    pub note: String,
}

/// Implementation state of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Implemented completely, and checked by a test or figure.
    Covered,
    /// Implemented in part; the note names the missing rest.
    Partly,
    /// Not implemented yet; the note gives the reason.
    NotYet,
    /// Nothing to implement; the note gives the reason.
    Nothing,
}

impl State {
    /// All states, in the order of the table.
    pub const ALL: [Self; 4] = [Self::Covered, Self::Partly, Self::NotYet, Self::Nothing];

    /// Text on the page.
    pub fn word(self) -> &'static str {
        match self {
            Self::Covered => "covered",
            Self::Partly => "partly",
            Self::NotYet => "**not yet**",
            Self::Nothing => "nothing to build",
        }
    }
}

/// Parses the files of all papers.
///
/// # Errors
/// Returns an error for a missing or invalid file.
pub fn papers() -> Result<Vec<Paper>, String> {
    let paper = |name: &&str| {
        let file = format!("docs/coverage/{name}.toml");
        let text = read(&file).ok_or_else(|| format!("{file} is missing"))?;
        toml::from_str(&text).map_err(|error| format!("{file}: {error}"))
    };
    PAPERS.iter().map(paper).collect()
}

/// Errors in the description of a paper, one a line.
pub fn mistakes(paper: &Paper, tracked: &BTreeSet<String>, figures: &BTreeSet<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for part in &paper.parts {
        let mut say = |what: String| wrong.push(format!("{} {}: {what}", paper.system, part.at));
        if !seen.insert(&part.at) {
            say("is there twice".to_owned());
        }
        let (built, held) = (!part.code.is_empty(), !part.tests.is_empty() || !part.bench.is_empty());
        let enough = match part.state {
            State::Covered => (built || !part.bench.is_empty()) && held,
            State::Partly => (built || held) && !part.note.is_empty(),
            State::NotYet => !part.note.is_empty(),
            State::Nothing => !part.note.is_empty() && !built && !held,
        };
        if !enough {
            say(format!("too little, or too much, is said for {:?}", part.state));
        }
        part.code.iter().filter_map(|code| lacks(code, tracked)).for_each(&mut say);
        part.tests.iter().filter_map(|test| lacks_test(test, tracked)).for_each(&mut say);
        part.bench.iter().filter(|name| !figures.contains(*name)).for_each(|name| say(format!("no figure {name}")));
    }
    wrong
}

/// Reason for which `code` does not exist, or `None` if it does.
fn lacks(code: &str, tracked: &BTreeSet<String>) -> Option<String> {
    let (path, item) = code.split_once('#').map_or((code, None), |(path, item)| (path, Some(item)));
    let folder = format!("{path}/");
    let files: Vec<&String> = tracked.iter().filter(|file| *file == path || file.starts_with(&folder)).collect();
    if files.is_empty() {
        return Some(format!("no file {path}"));
    }
    let item = item?;
    let has = files.iter().any(|file| read(file).is_some_and(|text| defines(&text, item)));
    (!has).then(|| format!("{path} does not define {item}"))
}

/// True if the text defines the item: in Rust, C, P4 or protobuf.
fn defines(text: &str, item: &str) -> bool {
    const BEFORE: [&str; 16] = [
        "fn", "struct", "enum", "trait", "const", "static", "type", "mod", "union", "control", "parser", "message",
        "service", "rpc", "int", "void",
    ];
    words(text, item).any(|at| {
        let before = text[..at].trim_end();
        let word = before.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '#').next();
        word.is_some_and(|word| BEFORE.contains(&word) || word == "#define")
    })
}

/// Reason for which `test` does not exist, or `None` if it does.
fn lacks_test(test: &str, tracked: &BTreeSet<String>) -> Option<String> {
    let Some((file, name)) = test.split_once("::") else { return Some(format!("{test} is no file::test")) };
    let Some(text) = tracked.contains(file).then(|| read(file)).flatten() else {
        return Some(format!("no file {file}"));
    };
    let is_test = |at: usize| {
        let before = text[..at].strip_suffix("fn ").map(|before| before.rsplit("\n\n").next().unwrap_or(before));
        before.is_some_and(|before| before.contains("#[test]") || before.contains("::test"))
    };
    (!words(&text, name).any(is_test)).then(|| format!("{file} has no test {name}"))
}

/// Generates the page.
pub fn page(papers: &[Paper]) -> String {
    let mut page = String::from(TOP);
    page.push_str("\n| paper | ability | covered | partly | not yet | nothing to build |\n|---|---|---|---|---|---|\n");
    for paper in papers {
        let _ = write!(page, "| [{}](#{}) | {} |", paper.system, paper.system.to_lowercase(), paper.ability);
        for state in State::ALL {
            let _ = write!(page, " {} |", paper.parts.iter().filter(|part| part.state == state).count());
        }
        page.push('\n');
    }
    for paper in papers {
        let _ = write!(
            page,
            "\n## {}\n*{}*: [{}]({}).\n\n| part | | code | tests, figures |\n|---|---|---|---|\n",
            paper.system, paper.title, paper.ability, paper.page
        );
        paper.parts.iter().for_each(|part| row(&mut page, part));
    }
    page
}

const TOP: &str = "# The papers, part by part
<!-- Made of docs/coverage/*.toml by `UPDATE=1 cargo test -p pathcall-tidy`: change those. -->

Every section, numbered table and numbered figure of the five papers: where it is in code, which test holds it, which
[figure](figures.md) measures it, or why there is none. A test looks for every file, item, test and figure that is named here.
*Nothing to build*: an introduction, a picture, what others did, what the authors' hardware is.
";

fn row(page: &mut String, part: &Part) {
    let quoted = |names: &[String]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>();
    let mut held = quoted(&part.tests);
    if !part.bench.is_empty() {
        held.push(format!("figures {}", quoted(&part.bench).join(", ")));
    }
    let note = if part.note.is_empty() { String::new() } else { format!(". {}", part.note) };
    let _ = writeln!(
        page,
        "| **{}** {} | {}{note} | {} | {} |",
        part.at,
        part.what,
        part.state.word(),
        quoted(&part.code).join("<br>"),
        held.join("<br>")
    );
}
