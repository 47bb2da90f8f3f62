//! Checks of `docs/coverage.md`: the page matches `docs/coverage/*.toml`, and all items named there exist. `UPDATE=1`
//! regenerates the page.

use std::collections::BTreeSet;

use crate::support::{coverage, figures, tree};

#[test]
fn coverage_files_name_existing_items() {
    let papers = coverage::papers().unwrap_or_else(|wrong| panic!("{wrong}"));
    let tracked: BTreeSet<String> = tree::tracked().into_iter().collect();
    let known: BTreeSet<String> = figures::of_the_bench().into_keys().collect();
    let wrong: Vec<String> = papers.iter().flat_map(|paper| coverage::mistakes(paper, &tracked, &known)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn coverage_page_is_current() {
    let papers = coverage::papers().unwrap_or_else(|wrong| panic!("{wrong}"));
    tree::is_page("docs/coverage.md", &coverage::page(&papers));
}

#[test]
fn coverage_names_every_figure() {
    let papers = coverage::papers().unwrap_or_else(|wrong| panic!("{wrong}"));
    let named: BTreeSet<&String> = papers.iter().flat_map(|paper| &paper.parts).flat_map(|part| &part.bench).collect();
    let of_papers = ["netrpc-", "netclone-fig", "function-fig", "function-table", "leo-", "dpc-fig", "dpc-table"];
    for name in figures::of_the_bench().into_keys() {
        let of_a_paper = of_papers.iter().any(|start| name.starts_with(start));
        assert!(!of_a_paper || named.contains(&name), "docs/coverage names {name} nowhere");
    }
}

#[test]
fn missing_items_are_reported() {
    let text = r#"
        system = "S"
        title = "T"
        ability = "a"
        page = "p.md"
        [[part]]
        at = "§1"
        what = "w"
        state = "covered"
        code = ["crates/tidy/tests/support/coverage.rs#Paper", "crates/tidy/tests/support/coverage.rs#Nothing_of_this_name", "crates/none"]
        tests = ["crates/tidy/tests/coverage.rs::missing_items_are_reported", "crates/tidy/tests/coverage.rs::tracked"]
        bench = ["no-such-figure"]
        [[part]]
        at = "§1"
        what = "again, and without a reason"
        state = "not-yet"
    "#;
    let paper: coverage::Paper = toml::from_str(text).expect("a paper");
    let tracked = tree::tracked()
        .into_iter()
        .chain(["crates/tidy/tests/support/coverage.rs", "crates/tidy/tests/coverage.rs"].map(String::from));
    let wrong = coverage::mistakes(&paper, &tracked.collect(), &BTreeSet::new());
    let reports = |what: &str| assert!(wrong.iter().any(|line| line.contains(what)), "{what}: {wrong:#?}");
    reports("does not define Nothing_of_this_name");
    reports("no file crates/none");
    reports("has no test tracked");
    reports("no figure no-such-figure");
    reports("is there twice");
    reports("too little");
    assert_eq!(wrong.len(), 6, "{wrong:#?}");
}
