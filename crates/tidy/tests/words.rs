//! Plain words: names and module docs that a networking engineer reads once (`docs/glossary.md`).

use std::collections::{BTreeMap, BTreeSet};

use crate::support::tree::{read, tracked};

/// Words that no identifier has, each with what to write instead.
const BANNED: &[(&str, &str)] = &[
    ("whose", "the noun itself"),
    ("whom", "the noun itself"),
    ("forsake", "on_driver_dropped"),
    ("forsaken", "dropped"),
    ("purse", "hedge_budget"),
    ("looker", "poller"),
    ("teller", "sender"),
    ("unsaid", "guard"),
    ("doom", "kill"),
    ("mangle", "corrupt"),
    ("unsayable", "not_expressible"),
    ("untaken", "rejected"),
    ("weather", "faults"),
    ("fate", "outcome"),
    ("fates", "outcomes"),
    ("habits", "defaults"),
    ("standing", "status"),
    ("lapse", "expiry"),
    ("roads", "router"),
];
/// Words that a test's name does not have: it says subject, condition, result.
const BANNED_IN_TESTS: [&str; 4] = ["what", "who", "whose", "whom"];
/// Words that a module's documentation does not begin with: it begins with the noun of what the module is.
const BANNED_OPENINGS: [&str; 16] = [
    "What", "Who", "Whom", "Whose", "How", "Where", "When", "Whether", "Which", "Why", "That", "It", "They", "There",
    "If", "So",
];
/// Names of public types that several crates or modules define, with the reason.
const SHARED_NAMES: &[(&str, &str)] = &[
    ("Builder", "Rust's name for what builds the module's main type"),
    ("Command", "what a state machine asks its driver to do"),
    ("Config", "Rust's name for a module's configuration"),
    ("Error", "Rust's name for a module's error"),
    ("Event", "what a state machine reports to its driver"),
    ("Field", "a field of a protobuf message, and of a P4 header: both are the standard's term"),
    ("Handle", "Rust's name for the owner of a running task"),
    ("Input", "what a driver passes into a state machine"),
    ("Output", "what a state machine passes to its driver"),
    ("Stats", "what a state machine counted"),
];

/// Sources of the product.
fn sources() -> Vec<(String, String)> {
    let product = |file: &String| {
        file.ends_with(".rs")
            && !["/golden/", "/generated/"].iter().any(|folder| file.contains(folder))
            && !file.starts_with("papers/")
    };
    tracked().into_iter().filter(product).filter_map(|file| read(&file).map(|text| (file, text))).collect()
}

/// A source without its comments and the contents of its strings.
fn code(text: &str) -> String {
    let (mut code, mut rest) = (String::new(), text);
    while let Some(first) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("r\"") || rest.starts_with("r#\"") {
            let end = if rest.starts_with("r#") { "\"#" } else { "\"" };
            let from = rest.find('"').map_or(rest.len(), |at| at + 1);
            rest[from..].find(end).map_or(rest.len(), |at| from + at + end.len())
        } else if first == '"' {
            string_len(rest)
        } else if rest.starts_with("'\"'") {
            3
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        code.push(' ');
        rest = &rest[skipped..];
    }
    code
}

/// Length of the string literal that a text begins with.
fn string_len(text: &str) -> usize {
    let mut escaped = true;
    for (at, c) in text.char_indices() {
        match c {
            '"' if !escaped => return at + 1,
            '\\' if !escaped => escaped = true,
            _ => escaped = false,
        }
    }
    text.len()
}

fn identifiers(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Words of an identifier, in lower case: `HedgeBudget` and `hedge_budget` have the same.
fn words_of(identifier: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut lower = false;
    for c in identifier.chars() {
        if c == '_' || (c.is_ascii_uppercase() && lower) {
            words.push(String::new());
        }
        if c != '_' {
            words.last_mut().expect("one at least").push(c.to_ascii_lowercase());
        }
        lower = c.is_ascii_lowercase();
    }
    words
}

/// Functions that are tests.
fn tests(code: &str) -> Vec<&str> {
    let mut marked = false;
    let mut names = Vec::new();
    for line in code.lines().map(str::trim) {
        if line.starts_with("#[") {
            marked |= line.contains("test]") || line.contains("test(");
            continue;
        }
        let function = line.split_once("fn ").and_then(|(_, rest)| identifiers(rest).next());
        if let Some(name) = function
            && std::mem::take(&mut marked)
        {
            names.push(name);
        }
    }
    names
}

#[test]
fn identifiers_have_no_banned_word() {
    let mut wrong = BTreeSet::new();
    for (file, text) in sources() {
        for identifier in identifiers(&code(&text)).filter(|identifier| *identifier != "no_mangle") {
            let words = words_of(identifier);
            for (banned, instead) in BANNED.iter().filter(|(banned, _)| words.iter().any(|word| word == banned)) {
                wrong.insert(format!("{file}: {identifier}: not {banned:?}, but {instead:?} or the like"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.into_iter().collect::<Vec<_>>().join("\n"));
}

#[test]
fn test_names_have_no_banned_word() {
    let mut wrong = Vec::new();
    for (file, text) in sources() {
        for name in tests(&code(&text)) {
            if words_of(name).iter().any(|word| BANNED_IN_TESTS.contains(&word.as_str())) {
                wrong.push(format!("{file}: {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "a test's name says subject, condition, result:\n{}", wrong.join("\n"));
}

#[test]
fn module_docs_begin_with_a_noun() {
    let mut wrong = Vec::new();
    for (file, text) in sources() {
        let Some(opening) = text.strip_prefix("//! ") else { continue };
        let first = opening.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        if BANNED_OPENINGS.contains(&first) {
            wrong.push(format!("{file}: {}", opening.lines().next().unwrap_or_default()));
        }
    }
    assert!(wrong.is_empty(), "these do not begin with the thing that the module is:\n{}", wrong.join("\n"));
}

/// Public types of the libraries under `crates/`, each with the files that define one of this name. A type of a protobuf
/// contract may have the name of the type that it stands for: its file is left out.
fn public_types() -> BTreeMap<String, BTreeSet<String>> {
    let mut types: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, text) in sources() {
        let Some((_, rest)) = file.strip_prefix("crates/").and_then(|rest| rest.split_once('/')) else { continue };
        if !rest.starts_with("src/") || rest.contains("/generated/") {
            continue;
        }
        for line in code(&text).lines() {
            let Some(item) = line.trim().strip_prefix("pub ") else { continue };
            let item = item.strip_prefix("unsafe ").unwrap_or(item);
            let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
            let Some(defined) = kinds.iter().find_map(|kind| item.strip_prefix(kind)) else { continue };
            // A macro names it.
            if defined.starts_with('$') {
                continue;
            }
            let defined = identifiers(defined).next().expect("a name").to_owned();
            types.entry(defined).or_default().insert(file.clone());
        }
    }
    types
}

#[test]
fn two_public_types_have_two_names() {
    let types = public_types();
    let mut wrong = Vec::new();
    for (name, files) in &types {
        let excepted = SHARED_NAMES.iter().any(|(shared, _)| shared == name);
        if files.len() > 1 && !excepted {
            wrong.push(format!("{name}: {}", files.iter().cloned().collect::<Vec<_>>().join(", ")));
        }
        if excepted && files.len() == 1 {
            wrong.push(format!("{name}: one file only, so it needs no exception"));
        }
    }
    for (shared, _) in SHARED_NAMES.iter().filter(|(shared, _)| !types.contains_key(*shared)) {
        wrong.push(format!("{shared}: no file has it, so it needs no exception"));
    }
    assert!(wrong.is_empty(), "one name, one thing, across the workspace:\n{}", wrong.join("\n"));
}

#[test]
fn pages_name_files_that_exist() {
    let files: BTreeSet<String> = tracked().into_iter().collect();
    let exists = |path: &str| {
        let path = path.trim_end_matches('/');
        files.contains(path)
            || files.range(format!("{path}/")..).next().is_some_and(|f| f.starts_with(&format!("{path}/")))
    };
    let mut wrong = Vec::new();
    for page in files.iter().filter(|file| file.ends_with(".md") && file.as_str() != "CHANGELOG.md") {
        let text = read(page).expect("a page");
        for path in text.split('`').skip(1).step_by(2) {
            let folder =
                ["crates/", "bpf/", "p4/", "docs/", "papers/", "apps/", "proto/"].iter().any(|f| path.starts_with(f));
            let plain = path.chars().all(|c| c.is_ascii_alphanumeric() || "/_-.".contains(c));
            // Tutorials make a project of their own.
            let own = page.starts_with("docs/tutorials/") && path.starts_with("proto/");
            if folder && plain && !own && !exists(path) {
                wrong.push(format!("{page}: {path}"));
            }
        }
    }
    assert!(wrong.is_empty(), "no such file:\n{}", wrong.join("\n"));
}

#[test]
fn words_of_an_identifier_are_found_in_either_case() {
    assert_eq!(words_of("HedgeBudget"), ["hedge", "budget"]);
    assert_eq!(words_of("hedge_budget"), ["hedge", "budget"]);
    assert_eq!(tests("#[tokio::test]\nasync fn what_is_x_is_y() {\n"), ["what_is_x_is_y"]);
    assert_eq!(
        identifiers(&code("let a = \"whose \\\" b\"; // whom\nr#\"who\"#; c")).collect::<Vec<_>>(),
        ["let", "a", "c"]
    );
}
